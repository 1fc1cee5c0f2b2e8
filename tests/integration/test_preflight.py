"""The check before a PPO run: every item, green and red, and `rankloop train ppo --dry-run`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import factories as make
import pytest
import torch
from cli_runner import Cli
from rig import LAYOUTS, Rig
from safetensors.torch import load_file
from tiny import BOS_TEMPLATE, STRICT_TEMPLATE, tiny_tokenizer

import training.check.run
import training.check.sample
from app.commands.runs.check import report_lines
from data.errors import Fenced
from data.fields import from_dict
from data.labels.prompts import add_prompts
from data.records import NewPrompt, Run, RunKind, RunStatus, Split
from training.check.run import make_states
from training.jobs.reporter import Cancelled
from training.launch.config import PPOConfig
from training.launch.find import is_green, newest_check
from training.lm.models import find_model, weights_hash
from training.ppo.build_roles import context_of_roles

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:fan_in_fan_out:UserWarning")
NAMES = [
    "Sizes divide", "Model and machine", "End and padding", "The reward model's zero", "Context and prompts",
    "Memory", "Policy equals reference", "One step at the worst length", "Roles give their models' numbers",
    "Saved and loaded again",
]  # fmt: skip


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("preflight"))
    yield made
    made.close()


def check(rig: Rig, layout: str = "shared", reward: Run | None = None, **changes: Any) -> dict[str, Any]:
    reward = reward or rig.reward("lora" if layout == "shared" else "full")
    words = {"adapter": "full" if layout == "full" else "lora", "prompts_per_iteration": 4, "max_new_tokens": 8}
    words |= {"model": rig.model()} | changes
    run = rig.here(rig.queue(RunKind.CHECK, snapshot=rig.small_snapshot, reward_run=reward, **words))
    assert run.result is not None
    return run.result


def both(
    rig: Rig, prompts: list[tuple[str, ...]], tmp_path: Path, reward: Run, **changes: Any
) -> tuple[dict[str, Any], dict[str, Any], Run]:
    """A check and a PPO run with the same settings and prompts: the check's result, counts of its prompts, the run.

    prompts: the contents of a prompt's messages; of two the first is a system turn.
    """
    path = tmp_path / "prompts.jsonl"
    roles = ("system", "user")
    rows = [
        {"messages": [{"role": role, "content": each} for role, each in zip(roles[-len(said) :], said, strict=True)]}
        for said in prompts
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = {"adapter": "full", "prompts_per_iteration": 2, "max_new_tokens": 8, "iterations": 1, "ppo_epochs": 1}
    words |= {"model": rig.model(), "prompts_file": str(path)} | changes
    links = {"snapshot": rig.small_snapshot, "reward_run": reward}
    run = rig.here(rig.queue(RunKind.PPO, **links, **words))
    checked = rig.here(rig.queue(RunKind.CHECK, **links, **words))
    counted = [rig.events(each, "prompts")[0].detail for each in (checked, run)]
    assert counted[0] == counted[1] and checked.result is not None
    return checked.result, counted[0], run


def states(result: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["state"] for each in result["checks"]}


def words(result: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["words"] for each in result["checks"]}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_sound_run_is_green_with_every_item(layout: str, rig: Rig) -> None:
    result = check(rig, layout, micro_batch_tokens=64)
    assert list(states(result)) == NAMES
    assert set(states(result).values()) == {"ok"} and result["ok"] is True
    said = words(result)
    assert said["Sizes divide"].startswith("4 prompts x 1 responses = 4 responses, in 1 minibatches of 4")
    assert "'<|end|>' (1); padding is '<|pad|>' (0)" in said["End and padding"]
    assert "read 512 tokens" in said["Context and prompts"] and "9 prompts of" in said["Context and prompts"]
    policy, judge = result["samples"]
    assert (policy["reader"], judge["reader"]) == ("policy", "reward model")
    assert re.fullmatch(r"<\|user\|>prompt \d+<\|end\|><\|assistant\|>[abcz]{6}<\|end\|>", policy["text"])
    assert policy["text"] == judge["text"] and policy["notes"] == judge["notes"] == ""
    assert result["step"]["seconds"] > 0
    memory = result["memory"]
    assert memory["predicted_step_mb"] > 0 and memory["measured_step_mb"] > 0
    assert f"{memory['predicted_step_mb']:,.0f} MB predicted, " in said["One step at the worst length"]
    lines = report_lines(result)
    assert any("optimizer" in line.lower() for line in lines) and policy["text"] in lines


def test_the_sample_is_what_each_model_reads(rig: Rig) -> None:
    """A reward model that knows the facts, with a template of its own, and two more, of which one reads few tokens."""
    project, person = make.make_project(rig.store), make.make_person(rig.store)
    for number in range(8):
        asked = ({"role": "user", "content": f"a rather long question, number {number}"},)
        with rig.store.begin() as tx:
            add_prompts(tx, project.id, [NewPrompt(asked, facts="it is z" if number % 2 else "")])
        task = make.make_task(rig.store, project, "abc", "zzb", prompt=asked)
        make.make_ranking(rig.store, task, person, [2, 1])
    snapshot = rig.snapshot(project)
    words_ = {"model": rig.model("llama-bos", tokenizer=tiny_tokenizer(template=BOS_TEMPLATE)), "adapter": "full"}
    reward = rig.here(rig.queue(RunKind.REWARD, snapshot=snapshot, facts=True, **words_))
    rig.model("gpt2-short", n_positions=32)
    words_ = {"adapter": "full", "model": rig.model(), "prompts_per_iteration": 4}
    seconds = [rig.reward("full", "gpt2-short"), rig.reward("full")]
    words_["second_reward_run"] = ",".join(each.id for each in seconds)
    memory: dict[str, Any] = {}

    def samples(**changes: Any) -> list[dict[str, Any]]:
        run = rig.queue(RunKind.CHECK, snapshot=snapshot, reward_run=reward, **words_, **changes)
        result = rig.here(run).result
        assert result is not None and result["ok"] is True, result
        found: list[dict[str, Any]] = result["samples"]
        memory.update(result["memory"])
        return found

    policy, first, second, third = samples(max_new_tokens=8)
    asked_words = re.escape("<|user|>a rather long question, number ") + r"[1357]"
    end = re.escape("<|end|><|assistant|>zzb<|end|>")
    assert re.fullmatch(asked_words + end, policy["text"]) and policy["notes"] == ""
    assert re.fullmatch(r"<\|start\|>" + asked_words + r"\n\nReference facts:\nit is z" + end, first["text"])
    assert policy["text"].endswith(second["text"]) and second["tokens"] == 32
    assert (second["reader"], third["reader"]) == ("second reward model 1", "second reward model 2")
    sizes = {part["name"]: part["weights"] * 1e6 for part in memory["parts_mb"]}
    for number, each in enumerate(seconds, start=1):
        weights = load_file(rig.folder(each) / "model" / "model.safetensors")
        assert sizes[f"second reward model {number}"] == 4 * sum(map(torch.numel, weights.values()))
    assert second["notes"] == "the prompt's beginning is cut: it reads at most 32 tokens"
    policy, first, *_ = samples(max_new_tokens=3)
    assert policy["text"].endswith("<|assistant|>zz<|end|>") and first["text"].endswith("<|assistant|>zz<|end|>")
    assert policy["notes"] == "the response is cut to 3 tokens, as max_new_tokens says"


def test_a_sample_without_a_known_response_or_too_long_to_show_says_so(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training.check.sample, "MOST_CHARACTERS", 40)
    result, _, _ = both(rig, [("one" * 20,), ("two",)], tmp_path, rig.reward("full"), max_new_tokens=40)
    policy = result["samples"][0]
    assert policy["text"] == "<|user|>oneoneoneone […] s in for one.<|end|>"
    assert "no response to the prompt is in the snapshot, a sentence stands in" in policy["notes"]
    assert "characters of its middle are not shown" in policy["notes"]


def test_checking_changes_nothing_that_the_run_will_load(rig: Rig) -> None:
    reward = rig.reward("lora")
    before = weights_hash(rig.folder(reward) / "model"), weights_hash(Path(rig.model()))
    check(rig)
    assert (weights_hash(rig.folder(reward) / "model"), weights_hash(Path(rig.model()))) == before


def test_a_response_without_room_is_red_and_the_rest_is_not_reached(rig: Rig) -> None:
    result = check(rig, max_new_tokens=600)
    assert result["ok"] is False
    found = states(result)
    assert found["Context and prompts"] == "failed" and found["Memory"] == "not reached"
    assert "max_new_tokens = 600 leaves no room" in words(result)["Context and prompts"]


def test_prompts_fit_what_policy_and_critic_read(rig: Rig, tmp_path: Path) -> None:
    """The critic starts from the reward model, which reads fewer tokens than the policy."""
    rig.model("gpt2-short", n_positions=32)
    reward, changes = rig.reward("full", "gpt2-short"), {"model": rig.model("gpt2")}
    result, counts, _ = both(rig, [("one",), ("two",), ("three" * 5,)], tmp_path, reward, **changes)
    assert result["ok"] is True, words(result)
    assert "policy and critic read 32 tokens: prompts of up to 24" in words(result)["Context and prompts"]
    assert (counts["used"], counts["too_long"]) == (2, 1)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_context_is_known_before_the_models_are_loaded(layout: str, rig: Rig) -> None:
    rig.model("gpt2-short", n_positions=32)
    rewards = [rig.reward("full", "gpt2-short")] if layout != "shared" else []
    for reward in [*rewards, rig.reward("lora" if layout == "shared" else "full")]:
        parts = rig.parts(layout, reward=reward)
        source = find_model(parts.config.model, rig.home, parts.reporter)
        known = context_of_roles(parts.config, parts.reporter, source, parts.encoder)
        assert known == parts.roles.context
        rig.finish(parts.reporter.run)


def test_prompts_that_a_reward_model_refuses_are_left_out(rig: Rig, tmp_path: Path) -> None:
    rig.model("llama-strict", tokenizer=tiny_tokenizer(template=STRICT_TEMPLATE))
    strict = rig.reward("full", "llama-strict")
    prompts: list[tuple[str, ...]] = [("one",), ("two",), ("be kind", "three")]
    result, counts, _ = both(rig, prompts, tmp_path, strict)
    assert result["ok"] is True, words(result)
    assert counts == {"used": 2, "too_long": 0, "refused_by_policy": 0, "refused_by_reward_model": 1}
    assert "1 refused by reward model" in words(result)["Context and prompts"]
    _, counts, _ = both(rig, prompts, tmp_path, rig.reward("full"), second_reward_run=strict.id)
    assert (counts["used"], counts["refused_by_reward_model"], counts["refused_by_second_reward_model"]) == (2, 0, 1)


def test_held_out_prompts_that_a_reward_model_refuses_are_left_out(rig: Rig) -> None:
    rig.model("llama-strict", tokenizer=tiny_tokenizer(template=STRICT_TEMPLATE))
    strict = rig.reward("full", "llama-strict")
    project = make.make_project(rig.store, k=2)
    person = make.make_person(rig.store)
    for number in range(12):
        before = ({"role": "system", "content": "be kind"},) if number % 2 and number < 8 else ()
        asked, split = (
            (*before, {"role": "user", "content": f"ask {number}"}),
            Split.EVAL if number < 8 else Split.TRAIN,
        )
        task = make.make_task(rig.store, project, "zz", "ab", prompt=asked, split=split)
        make.make_ranking(rig.store, task, person, [1, 2])
    snapshot = rig.snapshot(project)
    words_ = {"adapter": "full", "prompts_per_iteration": 2, "max_new_tokens": 8, "iterations": 1, "ppo_epochs": 1}
    words_["model"] = rig.model()
    checked, run = (
        rig.here(rig.queue(kind, snapshot=snapshot, reward_run=strict, **words_))
        for kind in (RunKind.CHECK, RunKind.PPO)
    )
    assert checked.result is not None and "4 held-out prompts" in words(checked.result)["Context and prompts"]
    for each in (checked, run):
        assert rig.events(each, "held_out_prompts_refused")[0].detail == {"used": 4, "refused_by_reward_model": 4}


def test_an_unexpected_error_turns_its_check_red(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(*_args: Any, **_words: Any) -> None:
        raise IndexError("index out of range\n in self")

    with monkeypatch.context() as patch:
        patch.setattr(training.check.run, "worst_rollout", break_down)
        result = check(rig)
    assert result["ok"] is False and states(result)["One step at the worst length"] == "failed"
    said = words(result)["One step at the worst length"]
    assert "IndexError: index out of range in self" in said and "log" in said


@pytest.mark.parametrize(("error", "status"), [
    (Cancelled("stopped as asked"), RunStatus.CANCELLED), (Fenced("another worker owns it"), RunStatus.RUNNING),
])  # fmt: skip
def test_what_stops_a_check_is_no_finding(
    error: Exception, status: RunStatus, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_args: Any, **_words: Any) -> None:
        raise error

    monkeypatch.setattr(training.check.run, "build_roles", stop)
    words_ = {"model": rig.model(), "prompts_per_iteration": 4, "max_new_tokens": 8}
    run = rig.queue(RunKind.CHECK, snapshot=rig.small_snapshot, reward_run=rig.reward("lora"), **words_)
    assert rig.here(run, expect=None).status is status
    if status is RunStatus.RUNNING:
        rig.finish(run)


def test_no_prompt_that_fits_is_red(rig: Rig) -> None:
    result = check(rig, max_prompt_tokens=2)
    assert "9 too long" in words(result)["Context and prompts"]


def test_a_reward_model_without_its_zero_is_red(rig: Rig) -> None:
    words_ = {"model": rig.model(), "learning_rate": 3e-3}
    reward = rig.here(rig.queue(RunKind.REWARD, snapshot=rig.small_snapshot, **words_))
    path = rig.folder(reward) / "model" / "reward_config.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"shift": float("nan")}))
    assert "not a finite number" in words(check(rig, reward=reward))["The reward model's zero"]
    path.unlink()
    assert "zero is not known" in words(check(rig, reward=reward))["The reward model's zero"]


def test_too_little_memory_is_red_and_says_what_to_change(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training.check.run, "available_memory", lambda _machine: 1_000_000)
    said = {layout: check(rig, layout) for layout in ("full", "shared")}
    assert "use adapter=lora" in words(said["full"])["Memory"]
    assert "lower machine.micro_batch_tokens from 4096" in words(said["shared"])["Memory"]
    assert states(said["full"])["One step at the worst length"] == "not reached"


def test_what_can_not_be_measured_is_said(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training.check.run, "reset_peak", lambda _machine: False)
    result = check(rig)
    assert "MB predicted, not measured on this machine" in words(result)["One step at the worst length"]
    assert "measured_step_mb" not in result["memory"] and result["ok"] is True


def test_a_model_that_can_not_be_tried_is_said(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: Any, **_words: Any) -> int:
        raise RuntimeError("it depends on the data")

    monkeypatch.setattr("training.check.memory_plan.most_held", refuse)
    result = check(rig)
    assert "by a rule of thumb, as the model can't be tried: it depends on the data" in words(result)["Memory"]
    assert result["ok"] is True and result["memory"]["predicted_step_mb"] > 0


def test_the_states_of_the_optimizers_are_made_without_a_change(rig: Rig) -> None:
    parts = rig.parts("full")
    before = {name: each.clone() for name, each in parts.roles.policy_parameters.items()}
    make_states(parts.learner.policy_optimizer)
    assert len(parts.learner.policy_optimizer.state) == len(before)
    for name, each in parts.roles.policy_parameters.items():
        assert torch.equal(each, before[name]) and each.grad is None
    rig.finish(parts.reporter.run)


def test_a_check_is_found_by_exactly_its_settings(rig: Rig) -> None:
    reward, words_ = rig.reward("lora"), {"threads": 1, "prompts_per_iteration": 4, "max_new_tokens": 7}
    queued = rig.queue(RunKind.CHECK, snapshot=rig.small_snapshot, reward_run=reward, **words_)
    links = {"snapshot_id": rig.small_snapshot.id, "reward_run_id": reward.id}
    config = from_dict(PPOConfig, words_)
    found = newest_check(rig.store, config, **links)
    assert found is not None and found.id == queued.id and not is_green(found)
    assert newest_check(rig.store, from_dict(PPOConfig, {**words_, "kl.coef": 0.06}), **links) is None
    rig.here(queued, RunStatus.SUCCEEDED)
    assert is_green(newest_check(rig.store, config, **links))


def test_the_dry_run_of_the_command_line(rig: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    """In this process, but the check itself: a worker of its own does it."""
    cli = Cli(rig.home.root, capsys)
    links = ["--snapshot", rig.small_snapshot.id, "--reward-run", rig.reward("lora").id]
    sizes = ["--set", "prompts_per_iteration=4", "--set", "max_new_tokens=6", "--set", "threads=1"]
    said = cli("train", "ppo", *links, *sizes, "--dry-run")
    assert said.status == 0, said.err
    assert "One step at the worst length" in said.out and "<|assistant|>" in said.out
    said = cli("train", "ppo", *links, *sizes, "--set", "max_prompt_tokens=2", "--dry-run", "--json")
    assert said.status == 1
    assert "Context and prompts: no prompt is left" in said.err
    assert said.document["result"]["ok"] is False
