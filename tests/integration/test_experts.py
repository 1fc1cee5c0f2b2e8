"""Models of experts with adapters: what is learnt, scored and saved is what plain transformers makes of the files.

Experts lie in three-dimensional parameters, which PEFT wraps in another way than linear layers. Llama is the control.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, TaskType
from rig import Rig
from safetensors.torch import load_file, save_file
from tiny import EXPERTS, tiny_language_model
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

import training.lm.adapters
import training.lm.trl_trainer
import training.methods.finetune
import training.methods.rloo
import training.ppo.roles
import training.ppo.run
import training.ppo.save_roles
from data.errors import InvalidInput
from data.records import RunKind, RunStatus
from training.check.role_checks import plain_logprobs, plain_values
from training.lm.adapters import adapter_on, attach, copied_weights, merged_state, not_adapted
from training.lm.encoding import pack
from training.lm.recorded_scores import RECORDED_FILE, difference
from training.lm.scorer import Scorer
from training.lm.trl_trainer import merged
from training.ppo.roles import Roles, ScoredRow
from training.ppo.save_roles import save_policy

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    # PEFT says so of patterns that match a parameter and no module; they are used all the same.
    pytest.mark.filterwarnings("ignore:The following (rank|alpha)_pattern keys:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:.*experimental.*:UserWarning"),
]
ALWAYS = ("llama", "mixtral", "gpt_oss")  # of experts, one of each way in which their weights lie
FURTHER = tuple(each for each in EXPERTS if each not in ALWAYS)
CAUSAL = TaskType.CAUSAL_LM
# A merged weight is rounded to float32 once, the sums of two passes are in other orders: some hundred roundings of
# 6e-8 of numbers of size 1. What an adapter that is left out moves is 0.1 and more.
ROUNDING, MOVED = 1e-4, 1e-2
BATCH = pack([[3, 77, 78, 1, 4], [3, 90, 1, 4]], [[70, 71, 72, 1], [81, 1]], pad_id=0)


@pytest.fixture(scope="module", params=[*ALWAYS, *(pytest.param(each, marks=pytest.mark.long) for each in FURTHER)])
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("experts"))
    yield made
    made.close()


def scored_rows() -> list[ScoredRow]:
    asked = ({"role": "user", "content": "x"},)
    return [ScoredRow(asked, [3, 97, 1, 4], [*letters, 1], "") for letters in ([71, 72], [97, 98, 99], [90])]


@torch.no_grad()
def logprobs_of(folder: Any) -> Tensor:
    """Log-probabilities of the batch's response tokens, by plain transformers."""
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    logits = model(input_ids=BATCH.ids, attention_mask=BATCH.attention).logits
    row, token = BATCH.mask.nonzero(as_tuple=True)
    before = BATCH.prompt_lengths[row] + token - 1
    return torch.log_softmax(logits[row, before], -1)[torch.arange(len(row)), BATCH.ids[row, before + 1]]


@torch.no_grad()
def logprobs_in(roles: Roles, role: str = "policy") -> Tensor:
    found: Tensor = getattr(roles, role).token_scores(BATCH).logprobs[BATCH.mask]
    return found


@torch.no_grad()
def plain_scores(folder: Any, rows: list[ScoredRow]) -> Tensor:
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    return torch.cat([model(input_ids=torch.tensor([row.prompt + row.response])).logits[0] for row in rows])


def apart(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max())


def test_the_shared_reward_model_gives_the_scores_of_the_saved_one(family: str, rig: Rig) -> None:
    reward = rig.reward("lora", family)
    parts = rig.parts("shared", family, temperature=1.0)
    rig.finish(parts.reporter.run)
    found = parts.roles.reward_model.score(scored_rows())
    info = Scorer(rig.home, reward.id, parts.machine).info
    wanted = plain_scores(rig.folder(reward) / "model", scored_rows()) - info.shift
    assert apart(wanted[:1], wanted[1:]) > MOVED
    assert apart(found, wanted) < ROUNDING
    values = parts.roles.critic.values(BATCH).detach()
    ids = BATCH.ids[0, : int(BATCH.prompt_lengths[0]) + 3]
    row = ScoredRow((), ids[:-1].tolist(), ids[-1:].tolist(), "")
    critic = plain_scores(rig.folder(reward) / "model", [row]) - info.shift
    assert apart(values[0, 3], critic) < ROUNDING, "the critic starts as the reward model"
    assert apart(logprobs_in(parts.roles, "reference"), logprobs_of(rig.model(family))) < ROUNDING


def keep_roles(monkeypatch: pytest.MonkeyPatch) -> list[Roles]:
    """The roles of PPO runs that are done from now on."""
    kept: list[Roles] = []
    built = training.ppo.run.build_roles

    def build(*words: Any) -> Roles:
        kept.append(built(*words))
        return kept[-1]

    monkeypatch.setattr(training.ppo.run, "build_roles", build)
    return kept


def test_what_ppo_saves_is_what_was_in_memory(family: str, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = keep_roles(monkeypatch)
    run = rig.here(rig.queue_ppo("shared", family, temperature=1.0, iterations=2, learning_rate=1e-2))
    (roles,), folder = kept, rig.folder(run)
    ours = logprobs_in(roles)
    assert apart(ours, logprobs_in(roles, "reference")) > MOVED
    assert apart(ours, logprobs_of(folder / "model")) < ROUNDING
    assert apart(roles.critic.values(BATCH)[BATCH.mask].detach(), plain_values(folder / "critic", BATCH)) < ROUNDING
    (event,) = rig.events(run, "reward_scores_compared")
    assert event.detail["recorded"] and event.detail["largest_difference"] < ROUNDING


def test_every_matrix_learns(family: str, rig: Rig) -> None:
    """Experts, their router, and the dense layers beside them, in the policy as in the reward model."""
    parts = rig.parts("shared", family)
    rig.finish(parts.reporter.run)
    assert not rig.events(parts.reporter.run, "weights_not_adapted")
    assert not_adapted(parts.roles.policy.language_model).numbers == {}
    names = " ".join(parts.roles.policy_parameters)
    assert (".mlp.experts." in names) == (family != "llama")


def test_the_check_saves_and_loads_again(family: str, rig: Rig) -> None:
    result = check(rig, family)
    assert result["ok"] is True, result["checks"]
    said = {each["name"]: each["words"] for each in result["checks"]}
    assert re.search(
        r"on 4 texts the scores are off by \S+, the critic's first", said["Roles give their models' numbers"]
    )
    assert "MB were written, and removed" in said["Saved and loaded again"]


def test_in_bf16_tokens_that_go_to_another_expert_are_no_alarm(rig: Rig) -> None:
    """With 8 bits for a number some near ties of the router fall the other way: a large difference at a few tokens."""
    result = check(rig, "deepseek_v3", precision="bf16")
    assert result["ok"] is True, result["checks"]


def check(rig: Rig, family: str, **changes: Any) -> dict[str, Any]:
    words = changes | {"model": rig.model(family), "prompts_per_iteration": 4, "max_new_tokens": 8}
    queued = rig.queue(RunKind.CHECK, snapshot=rig.small_snapshot, reward_run=rig.reward("lora", family), **words)
    found = rig.here(queued)
    assert found.result is not None and not list(rig.folder(found).glob(".saved-*"))
    return found.result


@pytest.mark.parametrize(
    ("name", "kind"),
    [*(("qwen3_moe", each) for each in (RunKind.SFT, RunKind.DPO, RunKind.RLOO)), ("gpt_oss", RunKind.SFT)],
)
def test_what_trls_trainers_learn_is_saved(name: str, kind: RunKind, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    in_memory: list[Tensor] = []

    def merge(model: Any) -> Any:
        in_memory.append(plain_logprobs(model.eval(), BATCH, 1.0))
        return merged(model)

    for module in (training.methods.finetune, training.methods.rloo):
        monkeypatch.setattr(module, "merged", merge)
    words: dict[str, Any] = {"model": rig.model(name), "learning_rate": 1e-2, "eval_prompts": 0}
    if kind is RunKind.RLOO:
        words |= {"iterations": 2, "prompts_per_step": 2, "responses_per_prompt": 2, "max_new_tokens": 6}
        words["reward_run"] = rig.reward("lora", name)
    run = rig.here(rig.queue(kind, snapshot=rig.small_snapshot, **words))
    saved = logprobs_of(rig.folder(run) / "model")
    assert apart(saved, in_memory[0]) < ROUNDING
    assert apart(saved, logprobs_of(rig.model(name))) > MOVED


@pytest.mark.parametrize("name", ["qwen3_moe", "gpt_oss"])
def test_every_weight_trained_is_right_too(name: str, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = keep_roles(monkeypatch)
    reward = rig.reward("full", name)
    run = rig.here(rig.queue_ppo("full", name, temperature=1.0, iterations=2, learning_rate=1e-3))
    (roles,) = kept
    assert apart(logprobs_in(roles), logprobs_of(rig.folder(run) / "model")) < ROUNDING
    scores = roles.reward_model.score(scored_rows())
    shift = reward.result["shift"] if reward.result else 0.0
    assert apart(scores, plain_scores(rig.folder(reward) / "model", scored_rows()) - shift) < ROUNDING


def test_merging_changes_no_weight_in_memory(rig: Rig, tmp_path: Path) -> None:
    """To the last bit: a run goes on after its best policy was saved, and a resumed one must be the same."""
    parts = rig.parts("shared", "qwen3_moe")
    rig.finish(parts.reporter.run)
    model = parts.roles.policy.language_model
    before = {name: each.clone() for name, each in model.state_dict().items()}
    random_state = torch.get_rng_state()
    save_policy(parts.roles.policy, parts.encoder.tokenizer, tmp_path / "saved", parts.encoder)
    after = model.state_dict()
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    assert torch.equal(random_state, torch.get_rng_state())


def test_merged_weights_are_pefts_own(rig: Rig) -> None:
    """To the last bit: ours are merged in copies of the layers, PEFT's in a copy of the whole model."""
    model = attach(tiny_language_model(0, "qwen3_moe"), adapter_on(tiny_language_model(0, "qwen3_moe"), 4, 8, CAUSAL))
    with torch.no_grad():
        for name, each in model.named_parameters():
            if ".lora_" in name:
                each.normal_(0, 0.1)
    found = merged_state(model.get_base_model(), "default")
    wanted = copy.deepcopy(model).merge_and_unload().state_dict()
    assert found.keys() == wanted.keys() and all(torch.equal(found[name], wanted[name]) for name in wanted)
    bare = merged_state(model.get_base_model(), None)
    start = tiny_language_model(0, "qwen3_moe").state_dict()
    assert bare.keys() == start.keys() and all(torch.equal(bare[name], start[name]) for name in start)


def test_a_run_against_other_scores_than_the_saved_models_stops(rig: Rig) -> None:
    """Spoilt on the way: an adapter that fits, with other numbers in it."""
    words = {"model": rig.model(), "learning_rate": 3e-3}
    reward = rig.here(rig.queue(RunKind.REWARD, snapshot=rig.small_snapshot, **words))
    recorded, path = (rig.folder(reward) / name for name in (RECORDED_FILE, "adapter/adapter_model.safetensors"))
    weights = load_file(path)
    save_file({name: each * (1 + 0.1 * ("lora_B" in name)) for name, each in weights.items()}, path)
    for _ in range(2):  # by what was recorded, and by the saved model where nothing was
        failed = rig.here(rig.queue_ppo("shared", reward=reward, iterations=1), RunStatus.FAILED)
        assert re.search(r"the reward model's scores of 8 texts.*: off by 0\.\d+, where", failed.error_message or "")
        assert failed.error_kind == "bad_input"
        recorded.unlink(missing_ok=True)
    save_file(weights, path)
    run = rig.here(rig.queue_ppo("shared", reward=reward, iterations=1))
    (event,) = rig.events(run, "reward_scores_compared")
    assert event.detail["recorded"] is False
    recorded.write_text("{}")
    failed = rig.here(rig.queue_ppo("shared", reward=reward, iterations=1), RunStatus.FAILED)
    assert "can't be used" in (failed.error_message or "")


@pytest.mark.parametrize("option", ["use_rslora", "use_dora"])
def test_the_saved_configuration_is_taken_whole(option: str, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """An adapter with an option that ours never have, as another version may make one."""

    def with_option(*words: Any) -> LoraConfig:
        config = adapter_on(*words)
        setattr(config, option, True)
        return config

    monkeypatch.setattr(training.lm.trl_trainer, "adapter_on", with_option)
    words = {"model": rig.model(), "learning_rate": 3e-3}
    reward = rig.here(rig.queue(RunKind.REWARD, snapshot=rig.small_snapshot, **words))
    monkeypatch.undo()
    parts = rig.parts("shared", reward=reward)
    rig.finish(parts.reporter.run)
    found = parts.roles.reward_model.score(scored_rows())
    wanted = plain_scores(rig.folder(reward) / "model", scored_rows()) - (reward.result or {})["shift"]
    assert apart(wanted[:1], wanted[1:]) > MOVED
    assert apart(found, wanted) < ROUNDING


def test_what_is_not_adapted_is_said(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """PEFT's own choice for gpt-oss: attention alone."""
    monkeypatch.setattr(training.lm.adapters, "without_adapter", lambda *_: [])
    plain = tiny_language_model(0, "gpt_oss")
    inner = 2 * 4 * (32 * 128 + 64 * 32 + 32)  # layers, experts, and the matrices of each with its row of the router
    total = sum(each.numel() for each in plain.parameters())
    found = not_adapted(attach(plain, adapter_on(plain, 4, 8, CAUSAL)))
    assert sum(found.numbers.values()) == inner and found.share == pytest.approx(inner / total)
    words = f"{inner / total:.1%} of the weights are not adapted: model.layers.*.mlp.experts.gate_up_proj, "
    assert found.words.startswith(words)
    rig.model("gpt_oss-plain")
    result = check(rig, "gpt_oss-plain")
    said = {each["name"]: each["words"] for each in result["checks"]}
    assert words in said["Policy equals reference"]
    sft = rig.here(rig.queue(RunKind.SFT, snapshot=rig.small_snapshot, model=rig.model("gpt_oss"), eval_prompts=0))
    for run in (rig.reward("lora", "gpt_oss-plain"), sft):
        (event,) = rig.events(run, "weights_not_adapted")
        assert event.detail["share"] == pytest.approx(inner / total, rel=0.2)
        assert event.detail["model.layers.*.mlp.router.weight"] == 2 * 4 * 32


@pytest.mark.parametrize(("name", "precision"), [("qwen3_moe", "fp32"), ("gpt_oss", "fp32"), ("deepseek_v3", "bf16")])
def test_a_check_that_could_not_save_is_red(
    name: str, precision: str, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An adapter left out of what is saved: the files are whole and load well."""
    monkeypatch.setattr(training.ppo.save_roles, "merged_state", lambda model, _adapter: merged_state(model, None))
    result = check(rig, name, precision=precision)
    (last,) = (each for each in result["checks"] if each["name"] == "Saved and loaded again")
    assert last["state"] == "failed"
    assert re.search(r"the saved policy against the one in memory: off by [0-9.]+, where", last["words"])


def test_what_rounding_explains() -> None:
    """By hand: 1e-4 of the largest number or of 1; in bf16 the median, a twentieth, or a quarter of what moved."""
    wanted = torch.tensor([1.0, 2.0, 10.0])
    assert difference("x", wanted + 9e-4, wanted, is_half=False) == pytest.approx(9e-4, rel=1e-2)
    for is_half, off, bare in (
        (False, [0, 0, 2e-3], None),
        (False, [0, math.nan, 0], None),
        (True, [0.6, 0.6, 0], None),
        (True, [0, 0.3, 0.3], wanted + 1),
        (True, [math.nan] * 3, wanted + 1),
    ):
        with pytest.raises(InvalidInput, match=r"^x: off by .*, where rounding explains"):
            difference("x", wanted + torch.tensor(off), wanted, is_half=is_half, bare=bare)
    assert difference("x", wanted + torch.tensor([0.4, 0.4, 5]), wanted, is_half=True) == pytest.approx(0.4)
    off = torch.tensor([0.2, 0.2, 5])
    assert difference("x", wanted + off, wanted, is_half=True, bare=wanted + 1) == pytest.approx(0.2)


def test_a_role_with_other_numbers_than_its_model_turns_the_check_red(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training.ppo.roles.SharedRewardModel, "score", lambda _self, rows: torch.zeros(len(rows)))
    result = check(rig, "llama")
    (found,) = (each for each in result["checks"] if each["name"] == "Roles give their models' numbers")
    assert found["state"] == "failed" and "the reward model against its scorer: off by" in found["words"]


def test_the_experts_that_a_pass_makes_anew_are_in_the_prediction(rig: Rig) -> None:
    """Both layers' experts and routers, in float32."""
    base = tiny_language_model(0, "mixtral")
    model = attach(base, adapter_on(base, 4, 8, CAUSAL))
    one = 4 * 4 * (2 * 64 * 32 + 32 * 64 + 32)
    assert copied_weights(model) == (2 * one, 4 * 4 * 2 * 64 * 32)
