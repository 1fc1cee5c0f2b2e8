"""SFT and DPO runs: they learn, on the response only, and plain transformers loads what they made."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import factories as make
import pytest
import torch
from rig import Rig
from safetensors.torch import load_file
from tiny import STRICT_TEMPLATE, tiny_tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from data.files.snapshots import PAIRS, read_groups, read_parquet
from data.records import FailureKind, Run, RunKind, RunStatus, Split
from training.lm.encoding import Encoder

pytestmark = [
    pytest.mark.float64,
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:fan_in_fan_out:UserWarning"),
]
WORDS = {"epochs": 6, "learning_rate": 1e-2, "batch_size": 4, "micro_batch_size": 2}
KINDS = (RunKind.SFT, RunKind.DPO)


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("finetune"))
    yield made
    made.close()


def queued(rig: Rig, kind: RunKind, **changes: Any) -> Run:
    words = {"snapshot": rig.small_snapshot, "model": rig.model()} | WORDS | changes
    return rig.queue(kind, **words)


@torch.no_grad()
def log_probability(model: Any, prompt: list[int], response: list[int]) -> float:
    logits = model(input_ids=torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1]
    table = torch.log_softmax(logits.double(), dim=-1)
    return sum(table[place, token].item() for place, token in enumerate(response))


ALWAYS = ((RunKind.SFT, "lora", "llama"), (RunKind.SFT, "full", "gpt2"), (RunKind.DPO, "full", "gpt2"))
LAYOUTS = [(kind, *more) for kind in KINDS for more in itertools.product(("lora", "full"), ("llama", "gpt2"))]


@pytest.mark.parametrize(
    ("kind", "adapter", "family"),
    [*ALWAYS, *(pytest.param(*each, marks=pytest.mark.long) for each in LAYOUTS if each not in ALWAYS)],
)
def test_the_loss_falls_and_plain_transformers_loads_the_result(
    kind: RunKind, adapter: str, family: str, rig: Rig
) -> None:
    model = rig.model(f"{family}-end", pad="<|end|>")  # padding is the end token, as the demo model's
    snapshot = rig.snapshot(rig.project(48 if adapter == "lora" else 12), eval_share=0.0)
    run = rig.here(queued(rig, kind, adapter=adapter, model=model, snapshot=snapshot))
    losses = rig.curve(run, f"{kind.value}/loss")
    assert sum(losses[-5:]) / 5 < losses[0] - 0.05  # the frozen, random embedding allows low-rank training little more
    folder = rig.folder(run) / "model"
    before, after = (AutoModelForCausalLM.from_pretrained(each).eval() for each in (model, folder))
    encoder = Encoder(AutoTokenizer.from_pretrained(folder))
    best, worst = encoder.response_ids("zzzzzz"), encoder.response_ids("aaaaaa")
    prompt = encoder.prompt_ids(({"role": "user", "content": "prompt 1"},))
    margins = [log_probability(each, prompt, best) - log_probability(each, prompt, worst) for each in (before, after)]
    assert margins[1] > margins[0] + 0.5  # what people liked has become likelier than what they did not
    changed = changed_weights(Path(model), folder)
    linear = ("_proj.weight", "attn.weight", "c_proj.weight", "c_fc.weight")
    assert changed and (adapter == "full" or all(name.endswith(linear) for name in changed))


def changed_weights(before: Path, after: Path) -> list[str]:
    one, two = (load_file(each / "model.safetensors") for each in (before, after))
    return [name for name in one if name in two and not torch.equal(one[name], two[name])]


def test_sft_counts_the_response_alone_with_its_end(rig: Rig) -> None:
    """The first loss by hand: minus the mean log-probability of the best responses' tokens, nothing of the prompts."""
    run = rig.here(queued(rig, RunKind.SFT, learning_rate=0.0, epochs=1, batch_size=16, micro_batch_size=4))
    model, encoder = AutoModelForCausalLM.from_pretrained(rig.model()), Encoder(tiny_tokenizer())
    total, n_tokens, n_groups, n_tied = 0.0, 0, 0, 0
    for group in read_groups(rig.home.snapshot_folder(rig.small_snapshot.id)):
        if group.split is Split.TRAIN:
            assert group.ranks[group.responses.index(group.best)] == 1
            response = encoder.response_ids(group.best)
            total += log_probability(model, encoder.prompt_ids(group.messages), response)
            n_tokens, n_groups = n_tokens + len(response), n_groups + 1
            n_tied += group.ranks.count(1) > 1
    assert rig.curve(run, "sft/loss") == pytest.approx([-total / n_tokens], abs=1e-10)
    assert run.result["examples"] == n_groups == 9
    assert rig.events(run, "data")[0].detail == {
        "examples": 9, "prompts_cut": 0, "responses_cut": 0, "refused": 0, "best_tied": n_tied,
    }  # fmt: skip


@pytest.mark.parametrize("adapter", ["lora", "full"])
def test_dpo_starts_at_its_reference_and_its_loss_is_the_papers(adapter: str, rig: Rig) -> None:
    run = rig.here(queued(rig, RunKind.DPO, adapter=adapter, epochs=1, batch_size=64, micro_batch_size=8, beta=0.3))
    assert rig.curve(run, "dpo/loss")[0] == pytest.approx(math.log(2), abs=1e-10)
    assert rig.curve(run, "dpo/margin")[0] == pytest.approx(0, abs=1e-10)
    pairs = [pair for pair in read_parquet(rig.home.snapshot_folder(rig.small_snapshot.id) / PAIRS)
             if pair["split"] == Split.TRAIN.value]  # fmt: skip
    assert run.result["examples"] == len(pairs)


def test_a_second_dpo_run_is_measured_against_what_it_started_from(rig: Rig) -> None:
    first = rig.here(queued(rig, RunKind.SFT))
    for adapter in ("lora", "full"):
        second = rig.here(queued(rig, RunKind.DPO, adapter=adapter, epochs=1, model=f"run:{first.id}"))
        assert rig.curve(second, "dpo/loss")[0] == pytest.approx(math.log(2), abs=1e-10)
        assert second.result["model"] == f"run:{first.id}"


def test_what_an_sft_run_made_can_be_trained_on(rig: Rig) -> None:
    """A merged policy as the base of a reward model and of PPO: its adapters off give the policy, not what it was."""
    sft = rig.here(queued(rig, RunKind.SFT))
    reward = rig.here(rig.queue(RunKind.REWARD, snapshot=rig.small_snapshot, model=f"run:{sft.id}"))
    run = rig.queue_ppo("shared", reward=reward, model=f"run:{sft.id}", iterations=1)
    done = rig.here(run)
    assert rig.events(done, "roles")[0].detail["layout"] == "one base, an adapter for each role"
    assert rig.metrics(done)[1, "kl/k1_mean"] == 0


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_cut_or_left_out_is_counted(kind: RunKind, rig: Rig) -> None:
    run = rig.here(queued(rig, kind, max_length=8, epochs=1))
    detail = rig.events(run, "data")[0].detail
    assert detail["prompts_cut"] == detail["examples"] == run.result["examples"] > 0
    assert detail["responses_cut"] == 0


def test_pairs_that_become_the_same_by_being_cut_are_left_out(rig: Rig) -> None:
    project, person = make.make_project(rig.store), make.make_person(rig.store)
    for number, texts in enumerate([("x" * 20 + "1", "x" * 20 + "2"), ("short", "other")]):
        task = make.make_task(rig.store, project, *texts, prompt=f"cut {number}")
        make.make_ranking(rig.store, task, person, [1, 2])
    run = rig.here(queued(rig, RunKind.DPO, snapshot=rig.snapshot(project, eval_share=0.0), max_length=10, epochs=1))
    detail = rig.events(run, "data")[0].detail
    assert (detail["examples"], detail["same_when_cut"], detail["prompts_cut"]) == (1, 1, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_template_that_refuses_everything_is_bad_input(kind: RunKind, rig: Rig) -> None:
    refusing = STRICT_TEMPLATE.replace("== 'system'", "== 'user'")
    model = rig.model("llama-refusing", tokenizer=tiny_tokenizer(template=refusing))
    ended = rig.here(queued(rig, kind, model=model), RunStatus.FAILED)
    assert ended.error_kind is FailureKind.BAD_INPUT
    n = rig.events(ended, "data")[0].detail["refused"]
    assert n > 0
    assert f"none of the {n} training examples can be used; the first: {n} refused" in (ended.error_message or "")


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_run_to_the_last_bit(kind: RunKind, rig: Rig) -> None:
    one, same, other = (rig.here(queued(rig, kind, epochs=2, seed=seed)) for seed in (1, 1, 2))
    assert rig.metrics(one) == rig.metrics(same) != rig.metrics(other)
    assert not changed_weights(*(rig.folder(run) / "model" for run in (one, same)))


@pytest.mark.float32
def test_sft_in_half_precision(rig: Rig) -> None:
    for kind in KINDS:
        run = rig.here(queued(rig, kind, precision="bf16", epochs=2))
        assert all(value is not None for value in rig.metrics(run).values())
