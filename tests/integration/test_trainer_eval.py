"""Policies that TRL trains are measured on held-out prompts as PPO's are, and training never notices."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from rig import Rig
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

import training.methods.evaluation
from data.fields import describe, from_dict
from data.files.snapshots import read_groups
from data.records import Run, RunKind, RunStatus, Split
from data.runs.state import resume_run
from training.jobs.reporter import Reporter
from training.launch.kinds import CONFIGS
from training.lm.generation import generate, random_numbers
from training.lm.models import Machine, find_model, load_encoder
from training.lm.scorer import Scorer
from training.measures.equal_kl import AS_ASKED

pytestmark = [
    pytest.mark.float64,
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*experimental.*:UserWarning"),
]
ASKED = {"max_new_tokens": 6, "temperature": 0.7}
SIZES: dict[RunKind, dict[str, Any]] = {
    RunKind.RLOO: {"iterations": 5, "prompts_per_step": 3, "responses_per_prompt": 2, "learning_rate": 1e-2},
    RunKind.DPO: {"epochs": 1, "batch_size": 8, "micro_batch_size": 8, "learning_rate": 1e-2},
    RunKind.SFT: {"epochs": 2, "batch_size": 4, "micro_batch_size": 4, "learning_rate": 1e-2},
}
FIGURES = ("score_mean", "kl_mean", "length_mean", "ended_share")


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("trainer_eval"))
    yield made
    made.close()


def queued(rig: Rig, kind: RunKind, adapter: str = "full", **changes: Any) -> Run:
    words: dict[str, Any] = {"snapshot": rig.small_snapshot, "reward_run": rig.reward("full"), "model": rig.model()}
    words |= ASKED | SIZES[kind] | {"adapter": adapter, "eval_every": 2, "checkpoint_every": 100} | changes
    return rig.queue(kind, **words)


def held_out(rig: Rig, run: Run) -> dict[int, list[float | None]]:
    """The figures of each evaluation, by its step."""
    found = rig.metrics(run)
    steps = sorted({step for step, name in found if name == "held_out/kl_mean"})
    return {step: [found[step, f"held_out/{name}"] for name in FIGURES] for step in steps}


def weights_of(rig: Rig, run: Run) -> dict[str, torch.Tensor]:
    return load_file(rig.folder(run) / "model" / "model.safetensors")


def assert_same_weights(rig: Rig, one: Run, other: Run) -> None:
    mine, theirs = weights_of(rig, one), weights_of(rig, other)
    assert mine.keys() == theirs.keys()
    assert [name for name in mine if not torch.equal(mine[name], theirs[name])] == []


def test_every_kind_is_asked_the_same_by_default() -> None:
    kinds = (RunKind.PPO, RunKind.RLOO, RunKind.DPO, RunKind.SFT)
    defaults = [{info.name: info.default for info in describe(CONFIGS[kind])} for kind in kinds]
    for name in (*AS_ASKED, "sampling.max_prompt_tokens"):
        assert len({each[name] for each in defaults}) == 1, name


def test_the_start_has_the_same_figures_in_every_kind(rig: Rig) -> None:
    """What PPO says of it, everybody says; and no policy stays there."""
    ppo = rig.here(rig.queue_ppo("full", iterations=1, token_rows=0, **ASKED))
    score, _, *rest = held_out(rig, ppo)[0]
    for kind, adapter, last in ((RunKind.RLOO, "lora", 5), (RunKind.DPO, "full", 5), (RunKind.SFT, "lora", 6)):
        found = held_out(rig, rig.here(queued(rig, kind, adapter)))
        assert list(found) == sorted({*range(0, last, 2), last}), "the start, every second step, the end"
        assert found[0] == [pytest.approx(score, abs=1e-10), 0.0, *rest], kind
        assert abs(found[last][1] or 0.0) > 1e-4, kind


@torch.no_grad()
def by_hand(rig: Rig, run: Run) -> list[float]:
    """The figures of the model that a run has saved, from the formulas."""
    reporter: Any = Reporter(rig.store, rig.home, run)
    encoder = load_encoder(find_model(rig.model(), rig.home, reporter))
    groups = [each for each in read_groups(rig.home.snapshot_folder(rig.small_snapshot.id)) if each.split is Split.EVAL]
    prompts = [encoder.prompt_ids(each.messages) for each in groups]
    after, before = (
        AutoModelForCausalLM.from_pretrained(each).eval() for each in (rig.folder(run) / "model", rig.model())
    )
    machine = Machine(torch.device("cpu"), is_bf16=False)
    uniform = random_numbers(0, [f"-1:{place}:0" for place in range(len(prompts))], 6)
    words = {"stop_ids": encoder.stop_ids, "pad_id": encoder.pad_id, "machine": machine}
    drawn = generate(after, prompts, 1, from_dict(CONFIGS[RunKind.RLOO], ASKED).sampling, uniform, **words)
    kls, texts = [], []
    for prompt, each in zip(prompts, drawn, strict=True):
        logits = [model(torch.tensor([prompt + each.ids])).logits[0, len(prompt) - 1 : -1] for model in (after, before)]
        tables = [torch.log_softmax(each.double() / ASKED["temperature"], -1) for each in logits]
        kls.append(sum(float(tables[0][t, token] - tables[1][t, token]) for t, token in enumerate(each.ids)))
        texts.append([*prompt, *(each.ids[:-1] if each.has_ended else each.ids), encoder.eos_id])
    scores = Scorer(rig.home, rig.reward("full").id, machine).score_ids(texts)
    n = len(drawn)
    lengths, ended = sum(len(each.ids) for each in drawn), sum(each.has_ended for each in drawn)
    return [float(scores.mean()), sum(kls) / n, lengths / n, ended / n]


@pytest.mark.parametrize(("kind", "adapter"), [(RunKind.RLOO, "full"), (RunKind.DPO, "lora"), (RunKind.SFT, "full")])
def test_the_last_figures_are_those_of_the_saved_model(kind: RunKind, adapter: str, rig: Rig) -> None:
    run = rig.here(queued(rig, kind, adapter))
    assert list(held_out(rig, run).values())[-1] == pytest.approx(by_hand(rig, run), abs=1e-10)


@pytest.mark.parametrize(
    ("kind", "adapter"),
    [(RunKind.RLOO, "lora"), (RunKind.RLOO, "full"), (RunKind.SFT, "lora"), (RunKind.DPO, "lora")],
)
def test_training_does_not_notice(kind: RunKind, adapter: str, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every weight and every other figure is the same to the last bit, also where an evaluation drew random numbers."""
    original = training.methods.evaluation.measure

    def drawing(*words: Any) -> Any:
        torch.rand(3), random.random(), np.random.rand()
        return original(*words)

    monkeypatch.setattr(training.methods.evaluation, "measure", drawing)
    watched, alone = (rig.here(queued(rig, kind, adapter, eval_every=1, eval_prompts=n)) for n in (2, 0))
    assert_same_weights(rig, watched, alone)
    found = rig.metrics(watched)
    assert {key: value for key, value in found.items() if not key[1].startswith("held_out/")} == rig.metrics(alone)
    assert len(held_out(rig, watched)) > 3


def test_without_a_reward_model_or_prompts_nothing_is_measured(rig: Rig) -> None:
    for run in (
        queued(rig, RunKind.SFT, reward_run=None, epochs=1),
        queued(rig, RunKind.DPO, snapshot=rig.snapshot(rig.project(3), eval_share=0.0)),
    ):
        done = rig.here(run)
        assert held_out(rig, done) == {} and rig.metrics(done)


@pytest.mark.float32
@pytest.mark.parametrize("precision_and_adapter", ["full", "lora"])
def test_in_half_precision_the_start_is_still_at_0(precision_and_adapter: str, rig: Rig) -> None:
    found = held_out(rig, rig.here(queued(rig, RunKind.DPO, precision_and_adapter, precision="bf16")))
    assert found[0][1] == 0.0 and all(None not in each for each in found.values())


@pytest.mark.parametrize(("kind", "adapter"), [(RunKind.RLOO, "lora"), (RunKind.DPO, "full")])
def test_stopped_in_an_evaluation_a_run_goes_on_with_it(
    kind: RunKind, adapter: str, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the start, on the way and at the last step, and right after one: what was learnt is saved, and no step is
    measured twice."""
    unbroken, run = rig.here(queued(rig, kind, adapter)), queued(rig, kind, adapter)
    original, measured = training.methods.evaluation.measure, list[Any]()

    def stopping(*words: Any) -> Any:
        reporter = words[-1].__self__
        attempt = rig.look(run).attempt
        if (attempt, len(measured)) in ((1, 0), (2, 1), (4, 3)):
            reporter.request_stop()
        measured.append(found := original(*words))
        if (attempt, len(measured)) == (3, 3):
            reporter.request_stop()
        return found

    monkeypatch.setattr(training.methods.evaluation, "measure", stopping)
    for _ in range(4):
        rig.here(run, RunStatus.CANCELLED)
        with rig.store.begin() as tx:
            resume_run(tx, run.id)
    rig.here(run)
    assert [event.detail["step"] for event in rig.events(run, "resumed_from_checkpoint")] == [0, 2, 4, 5]
    assert len(measured) == 4 and list(held_out(rig, run)) == [0, 2, 4, 5]
    assert_same_weights(rig, run, unbroken)
    assert rig.metrics(run) == rig.metrics(unbroken)
