"""The PPO run from the queue to a policy and a critic that plain transformers loads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import factories as make
import pytest
import torch
from rig import LAYOUTS, Rig
from safetensors.torch import load_file
from tiny import STRICT_TEMPLATE, tiny_tokenizer
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer, GenerationConfig

import training.ppo.run
from data.records import FailureKind, Run, RunKind, RunStatus, Split
from data.runs.metrics import samples_of
from training.lm.encoding import pack
from training.lm.models import weights_hash
from training.ppo.roles import Roles, ScoredRow

NONE_REFUSED = {"refused_by_policy": 0, "refused_by_reward_model": 0}
pytestmark = [
    pytest.mark.float64,
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:fan_in_fan_out:UserWarning"),
]
WORDS = {"iterations": 2, "learning_rate": 1e-2, "critic_learning_rate": 1e-2, "sample_rows": 64}
BATCH = pack([[3, 77, 78, 1, 4], [3, 90, 1, 4]], [[70, 71, 72, 1], [80]], pad_id=0)
METRICS = {
    "reward/score_mean", "reward/score_std", "reward/score_after_penalty_mean", "reward/total_mean",
    "kl/k1_mean", "kl/k3_token_mean", "kl/coef",
    "policy/loss", "policy/clip_fraction", "policy/approx_kl", "policy/ratio", "policy/first_ratio_deviation",
    "policy/grad_norm", "policy/entropy",
    "value/loss", "value/clip_fraction", "value/grad_norm", "value/mean", "value/explained_variance",
    "value/centred_explained_variance", "policy/learning_rate", "value/learning_rate",
    "response/length_mean", "response/ended_share",
}  # fmt: skip
HELD_OUT = {
    "held_out/score_mean", "held_out/kl_mean", "held_out/objective", "held_out/length_mean", "held_out/ended_share",
}  # fmt: skip


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("ppo"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def finished(rig: Rig) -> Run:
    """A run done as in the product: by a worker, in a process of its own."""
    return rig.in_child(rig.queue_ppo("shared", **(WORDS | {"iterations": 3})))


def sampled_prompts(rig: Rig, run: Run) -> list[str]:
    with rig.store.read() as tx:
        return [sample["prompt"] for _, sample in samples_of(tx, run.id)]


def test_every_iteration_is_reported(finished: Run, rig: Rig) -> None:
    found = rig.metrics(finished)
    for step, wanted in ((0, HELD_OUT), (1, METRICS), (2, METRICS), (3, METRICS | HELD_OUT)):
        assert {name for at, name in found if at == step} == wanted
    phases = {f"time/{phase}_{unit}" for phase in ("generate", "score", "update") for unit in ("s", "tokens_per_s")}
    assert {name for _, name in rig.metrics(finished, with_time=True)} - METRICS - HELD_OUT == phases
    assert (finished.step, finished.total_steps, finished.result["iterations"]) == (3, 3, 3)


def test_the_first_iteration_has_the_signature_of_a_sound_start(finished: Run, rig: Rig) -> None:
    found = rig.metrics(finished)
    assert found[1, "kl/k1_mean"] == found[1, "kl/k3_token_mean"] == 0
    assert max(rig.curve(finished, "policy/first_ratio_deviation")) < 1e-10
    assert found[2, "kl/k3_token_mean"] > 0  # type: ignore[operator]


def test_figures_of_an_iteration_fit_together(finished: Run, rig: Rig) -> None:
    found = rig.metrics(finished)
    for step in (1, 2, 3):
        at = {name: float(value or 0) for (each, name), value in found.items() if each == step}
        penalty = 1.0 * (1 - at["response/ended_share"])
        assert at["reward/score_after_penalty_mean"] == pytest.approx(at["reward/score_mean"] - penalty, abs=1e-10)
        total = at["reward/score_after_penalty_mean"] - at["kl/coef"] * at["kl/k1_mean"]
        assert at["reward/total_mean"] == pytest.approx(total, abs=1e-10)
        assert at["value/explained_variance"] <= 1
        assert 0 < at["policy/entropy"] < 5.6  # the logarithm of 264 tokens is 5.58


def test_samples_are_what_people_need_to_see(finished: Run, rig: Rig) -> None:
    with rig.store.read() as tx:
        rows = [sample for step, sample in samples_of(tx, finished.id) if step == 2]
    assert len(rows) == 4
    assert all(
        row.keys() == {"prompt", "response", "score", "score_after_penalty", "kl", "n_tokens", "ended"} for row in rows
    )
    scores = [row["score"] for row in rows]
    assert sum(scores) / 4 == pytest.approx(rig.metrics(finished)[2, "reward/score_mean"], abs=1e-10)
    (first,) = rig.events(finished, "first_prompt")
    assert first.detail["text"].startswith("<|user|>prompt ") and first.detail["text"].endswith("<|end|><|assistant|>")


def test_held_out_prompts_are_never_sampled(rig: Rig) -> None:
    held_out = rig.held_out(rig.small_snapshot)
    run = rig.here(rig.queue_ppo("shared", **(WORDS | {"iterations": 6})))
    seen = set(sampled_prompts(rig, run))
    assert len(held_out) == 3 and len(seen) == 9
    assert not held_out & seen
    assert run.result["prompts"] == 9


def test_prompts_named_as_held_out_are_never_sampled_though_nobody_ranked_them(rig: Rig) -> None:
    project = rig.project(n_prompts=6, prompt="own {}")
    make.make_task(rig.store, project, "a", "b", prompt="own named", split=Split.EVAL)
    make.make_task(rig.store, project, "a", "b", prompt="own fresh", split=Split.TRAIN)
    snapshot = rig.snapshot(project)
    words = {"snapshot": snapshot, "reward_run": rig.reward(), "model": rig.model(), "max_new_tokens": 4}
    run = rig.here(rig.queue(RunKind.PPO, **words, prompts_per_iteration=8, iterations=2, sample_rows=64))
    seen = set(sampled_prompts(rig, run))
    assert "own fresh" in seen and "own named" not in seen


def keep_roles(monkeypatch: pytest.MonkeyPatch) -> list[Roles]:
    """Catch the roles of a run in this process when it is about to save them."""
    kept: list[Roles] = []
    original = training.ppo.run.train
    monkeypatch.setattr(
        training.ppo.run,
        "train",
        lambda config, learner, *rest: kept.append(learner.roles) or original(config, learner, *rest),
    )
    return kept


@torch.no_grad()
def plain_values(folder: Path) -> list[Tensor]:
    """Values by the saved critic, as its page says: the state before each token, the head, and the bias beside it."""
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    bias = json.loads((folder / "critic_config.json").read_text())["bias"]
    states = model.base_model(input_ids=BATCH.ids, attention_mask=BATCH.attention).last_hidden_state
    values = model.score(states).squeeze(-1) + bias
    return [
        values[row, start - 1 : start - 1 + int(BATCH.mask[row].sum())]
        for row, start in enumerate(BATCH.prompt_lengths.tolist())
    ]


@pytest.mark.parametrize(
    ("layout", "family"),
    [
        *[(each, "llama") for each in LAYOUTS],
        *[pytest.param(each, "gpt2", marks=pytest.mark.long) for each in LAYOUTS],
        ("shared", "qwen2"),
    ],
)
def test_what_is_saved_is_what_was_in_memory(
    layout: str, family: str, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = keep_roles(monkeypatch)
    reward = rig.reward("lora" if layout == "shared" else "full", family)
    before = weights_hash(rig.folder(reward) / "model"), reward_scores(rig, layout, family)
    run = rig.here(rig.queue_ppo(layout, family, **WORDS))
    (roles,) = kept
    folder = rig.folder(run)
    policy = AutoModelForCausalLM.from_pretrained(folder / "model").eval()
    roles.policy.trunk.activate()
    with torch.no_grad():
        ours = roles.policy.language_model(input_ids=BATCH.ids, attention_mask=BATCH.attention).logits
        theirs = policy(input_ids=BATCH.ids, attention_mask=BATCH.attention).logits
        start = AutoModelForCausalLM.from_pretrained(rig.model(family))(
            input_ids=BATCH.ids, attention_mask=BATCH.attention
        ).logits
    counts = BATCH.attention
    assert torch.allclose(ours[counts], theirs[counts], atol=1e-10, rtol=0)
    assert (theirs - start)[counts].abs().max() > 1e-2  # it has learnt something
    assert policy.dtype == torch.float32
    values = roles.critic.values(BATCH).detach()
    for row, wanted in enumerate(plain_values(folder / "critic")):
        assert values[row, : len(wanted)].tolist() == pytest.approx(wanted.tolist(), abs=1e-10)
    reloaded = AutoTokenizer.from_pretrained(folder / "model")
    assert reloaded.chat_template == AutoTokenizer.from_pretrained(rig.model(family)).chat_template
    # What was frozen is what it was: the reward model on disk and in memory, and the reference.
    assert before[0] == weights_hash(rig.folder(reward) / "model")
    roles.share_prompts(wanted=False)  # as they were scored before
    assert scores_by(roles).tolist() == pytest.approx(before[1].tolist(), abs=0)
    again = rig.parts(layout, family).roles.reference
    assert torch.equal(roles.reference.token_scores(BATCH).logprobs, again.token_scores(BATCH).logprobs)


ROWS = [ScoredRow(({"role": "user", "content": "x"},), [3, 97, 1, 4], [n, 1], "ab"[n % 2]) for n in (71, 72)]


def scores_by(roles: Roles) -> Tensor:
    return roles.reward_model.score(ROWS)


def reward_scores(rig: Rig, layout: str, family: str) -> Tensor:
    return scores_by(rig.parts(layout, family).roles)


def test_low_rank_training_changes_linear_layers_only(rig: Rig) -> None:
    run = rig.here(rig.queue_ppo("shared", **WORDS))
    before, after = (
        load_file(Path(rig.model()) / "model.safetensors"),
        load_file(rig.folder(run) / "model" / "model.safetensors"),
    )
    assert before.keys() == after.keys()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed and all("_proj" in name for name in changed)


def test_full_training_changes_everything(rig: Rig) -> None:
    run = rig.here(rig.queue_ppo("full", **WORDS))
    before, after = (
        load_file(Path(rig.model()) / "model.safetensors"),
        load_file(rig.folder(run) / "model" / "model.safetensors"),
    )
    assert all(not torch.equal(before[name], after[name]) for name in before)


def test_a_models_own_sampling_settings_neither_leak_in_nor_stop_the_saving(rig: Rig) -> None:
    plain, strange = rig.model("llama"), rig.model("llama-strange")
    settings = GenerationConfig(
        do_sample=False, temperature=0.1, top_k=1, top_p=0.3, repetition_penalty=9.0, eos_token_id=[1]
    )
    (Path(strange) / "generation_config.json").write_text(settings.to_json_string())
    runs = [
        rig.here(rig.queue(RunKind.PPO, snapshot=rig.small_snapshot, reward_run=rig.reward("full"), model=model,
                           adapter="full", prompts_per_iteration=4, max_new_tokens=6, iterations=1))
        for model in (plain, strange)
    ]  # fmt: skip
    assert rig.metrics(runs[0]) == rig.metrics(runs[1])
    kept = json.loads((rig.folder(runs[1]) / "model" / "generation_config.json").read_text())
    assert kept["repetition_penalty"] == 9.0
    AutoModelForCausalLM.from_pretrained(rig.folder(runs[1]) / "model")


def prompts_file(rig: Rig, texts: list[Any]) -> str:
    path = rig.home.uploads / f"{len(list(rig.home.uploads.iterdir()))}.jsonl"
    rows = [text if isinstance(text, dict) else {"messages": [{"role": "user", "content": text}]} for text in texts]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_prompts_may_come_from_a_file_and_what_does_not_fit_is_counted(rig: Rig) -> None:
    wrong = [{"prompt": " "}, {"question": "third"}]
    path = prompts_file(rig, ["first", {"prompt": "second"}, *wrong, "much too long " * 5])
    run = rig.here(rig.queue_ppo("shared", **WORDS, prompts_file=path, max_prompt_tokens=30))
    assert rig.events(run, "prompts")[0].detail == {"used": 2, "too_long": 1} | NONE_REFUSED
    assert set(sampled_prompts(rig, run)) == {"first", "second"}
    problems = "line 3: the prompt is empty; line 4: no 'prompt' and no 'messages'; the row has 'question'"
    assert rig.events(run, "prompt_rows_left_out")[0].detail == {"rows": 2, "first": problems}


def test_prompts_that_leave_no_room_in_the_context_are_left_out(rig: Rig) -> None:
    """Absolute positions: one token more than the table has would end the run with an index error."""
    rig.model("gpt2-short", n_positions=32)
    path = prompts_file(rig, ["a" * 13, "b" * 14, "c"])  # the template adds 3 tokens, the response 16
    reward = rig.here(
        rig.queue(RunKind.REWARD, snapshot=rig.small_snapshot, model=rig.model("gpt2-short"), adapter="lora")
    )
    words = {"reward": reward, "prompts_file": path, "max_new_tokens": 16, "model": rig.model("gpt2-short")}
    run = rig.here(rig.queue_ppo("shared", **WORDS, **words))
    assert rig.events(run, "prompts")[0].detail == {"used": 2, "too_long": 1} | NONE_REFUSED
    (cut,) = rig.events(run, "prompts_cut_for_the_reward_model")
    assert cut.detail == {"prompts": 1, "reward_max_length": 32}
    refused = rig.here(rig.queue_ppo("shared", **WORDS, **(words | {"max_new_tokens": 32})), RunStatus.FAILED)
    assert refused.error_kind is FailureKind.BAD_INPUT
    assert "max_new_tokens = 32 leaves no room for a prompt: the model reads 32 tokens" in (refused.error_message or "")


def test_prompts_that_the_template_refuses_are_counted_and_none_at_all_is_bad_input(rig: Rig) -> None:
    model = rig.model("llama-strict", tokenizer=tiny_tokenizer(template=STRICT_TEMPLATE))
    with_system = {"messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]}
    reward = rig.here(rig.queue(RunKind.REWARD, snapshot=rig.small_snapshot, model=model))
    words = {"reward": reward, "model": model}
    run = rig.here(rig.queue_ppo("shared", **WORDS, **words, prompts_file=prompts_file(rig, ["hi", with_system])))
    assert rig.events(run, "prompts")[0].detail == {"used": 1, "too_long": 0} | NONE_REFUSED | {"refused_by_policy": 1}
    none = rig.queue_ppo("shared", **WORDS, **words, prompts_file=prompts_file(rig, [with_system]))
    ended = rig.here(none, RunStatus.FAILED)
    assert ended.error_kind is FailureKind.BAD_INPUT
    assert "no prompt is left to sample from (0 used, 0 too long, 1 refused by policy" in (ended.error_message or "")


def test_the_weight_of_the_kl_moves_towards_its_target(rig: Rig) -> None:
    run = rig.here(rig.queue_ppo("shared", **(WORDS | {"iterations": 3}), kl_target=1000.0, kl_horizon=40, kl_coef=0.5))
    # Four responses an iteration, KL far below its target: 0.5 * (1 - 0.2 * 4 / 40) and so on.
    assert rig.curve(run, "kl/coef") == pytest.approx([0.5, 0.49, 0.4802])


def test_an_update_that_goes_too_far_stops_early(rig: Rig) -> None:
    words = WORDS | {"learning_rate": 0.05, "iterations": 1, "ppo_epochs": 8}
    free = rig.here(rig.queue_ppo("full", **words))
    stopped = rig.here(rig.queue_ppo("full", **words, max_update_kl=1e-6))
    (event,) = rig.events(stopped, "update_stopped_early")
    assert event.detail["iteration"] == 0 and event.detail["kl"] > 1e-6
    assert rig.curve(stopped, "policy/approx_kl")[0] < rig.curve(free, "policy/approx_kl")[0]


def test_the_critic_may_start_alone(rig: Rig) -> None:
    run = rig.here(rig.queue_ppo("shared", **WORDS, critic_warmup=1))
    names = {step: {name for at, name in rig.metrics(run) if at == step} for step in (1, 2)}
    assert not {name for name in names[1] if name.startswith("policy/")} - {"policy/entropy", "policy/learning_rate"}
    assert names[2] == METRICS | HELD_OUT
    assert rig.curve(run, "kl/k1_mean") == [0.0, 0.0]  # the first step of the policy comes after the second rollout


def test_scores_may_be_divided_by_their_spread(rig: Rig) -> None:
    words = WORDS | {"iterations": 1, "missing_eos_penalty": 0.0}
    plain, scaled = (rig.here(rig.queue_ppo("shared", **words, scale_scores=each)) for each in (False, True))
    spread = rig.reward("lora").result["score_std"]
    first, second = (rig.metrics(run)[1, "reward/score_after_penalty_mean"] for run in (plain, scaled))
    assert first == pytest.approx(second * spread, abs=1e-10)  # type: ignore[operator]
    assert rig.metrics(plain)[1, "reward/score_mean"] == rig.metrics(scaled)[1, "reward/score_mean"]


@pytest.mark.parametrize(
    "changes",
    [
        {"kl_place": "loss", "kl_estimator": "k3"},
        {"ptx_coef": 1.0, "entropy_coef": 0.01},
        {"loss_mean": "response", "minibatches": 2, "responses_per_prompt": 2},
        pytest.param({"precision": "bf16"}, marks=pytest.mark.float32),
    ],
)
def test_the_other_ways_run_too(changes: dict[str, Any], rig: Rig) -> None:
    for layout in ("shared", "full"):
        run = rig.here(rig.queue_ppo(layout, **WORDS, **changes))
        assert all(value is not None for value in rig.metrics(run).values())
        assert ("ptx/loss" in {name for _, name in rig.metrics(run)}) == ("ptx_coef" in changes)
        deviations = rig.curve(run, "policy/first_ratio_deviation")
        assert max(deviations) < 1e-3  # also in bf16: the rollout and the update compute alike, cut alike
        if "kl_place" in changes:  # then the reward holds the score alone
            found = rig.metrics(run)
            assert found[2, "reward/total_mean"] == pytest.approx(
                found[2, "reward/score_after_penalty_mean"], abs=1e-10
            )


def test_the_same_seed_gives_the_same_run_to_the_last_bit(rig: Rig) -> None:
    one, same, other = (rig.here(rig.queue_ppo("shared", **WORDS, seed=seed)) for seed in (5, 5, 6))
    assert rig.metrics(one) == rig.metrics(same) != rig.metrics(other)


def test_going_on_from_a_policy_that_ppo_has_made(rig: Rig) -> None:
    first = rig.here(rig.queue_ppo("shared", **WORDS))
    second = rig.here(rig.queue_ppo("lora", **WORDS, reward=rig.reward("lora"), model=f"run:{first.id}"))
    assert rig.metrics(second)[1, "kl/k1_mean"] == 0  # its reference is what it starts from
    assert rig.events(second, "roles")[0].detail["layout"].startswith("separate")


def test_a_reward_model_without_its_zero_is_bad_input(rig: Rig) -> None:
    reward = rig.here(rig.queue(RunKind.REWARD, snapshot=rig.small_snapshot, model=rig.model()))
    queued = rig.queue_ppo("shared", **WORDS, reward=reward)
    (rig.folder(reward) / "model" / "reward_config.json").unlink()
    ended = rig.here(queued, RunStatus.FAILED)
    assert ended.error_kind is FailureKind.BAD_INPUT
    assert "zero is not known; train the reward model again" in (ended.error_message or "")


def test_responses_that_share_their_prompt_learn_the_same(rig: Rig) -> None:
    words = WORDS | {"responses_per_prompt": 3, "prompts_per_iteration": 4, "learning_rate": 1e-3, "ppo_epochs": 2}
    shared, separate = (rig.here(rig.queue_ppo("shared", **words, share_prompts=each)) for each in (True, False))
    (event,) = rig.events(shared, "shared_prompts")
    assert event.detail["output_difference"] < 1e-10 and event.detail["gradient_difference"] < 1e-10
    assert not rig.events(separate, "shared_prompts", "prompts_not_shared")
    found, wanted = rig.metrics(shared), rig.metrics(separate)
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        assert found[key] == pytest.approx(value, abs=1e-10, rel=1e-10), key
