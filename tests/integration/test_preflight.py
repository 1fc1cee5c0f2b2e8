"""The check before a PPO run: every item, green and red, and `rankloop train ppo --dry-run`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from cli_runner import Cli
from rig import LAYOUTS, Rig

import training.preflight
from app.commands.checks import report_lines
from data.records import Run, RunKind, RunStatus
from training.config import PPOConfig
from training.launch import is_green, newest_check
from training.models import weights_hash
from training.preflight import make_states

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")
NAMES = [
    "Sizes divide", "Model and machine", "End and padding", "Context and prompts", "The reward model's zero",
    "Memory", "Policy equals reference", "One step at the worst length",
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
    assert "the model reads 512 tokens" in said["Context and prompts"] and "9 prompts of" in said["Context and prompts"]
    assert result["sample"].startswith("<|user|>prompt ") and result["sample"].endswith("<|end|><|assistant|>")
    assert result["step"]["seconds"] > 0
    memory = result["memory"]
    assert memory["predicted_step_mb"] > 0 and memory["measured_step_mb"] > 0
    assert f"{memory['predicted_step_mb']:,.0f} MB predicted, " in said["One step at the worst length"]
    lines = report_lines(result)
    assert any("optimizer" in line.lower() for line in lines) and result["sample"] in lines


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
    monkeypatch.setattr(training.preflight, "available_memory", lambda _machine: 1_000_000)
    said = {layout: check(rig, layout) for layout in ("full", "shared")}
    assert "use adapter=lora" in words(said["full"])["Memory"]
    assert "lower micro_batch_tokens from 4096" in words(said["shared"])["Memory"]
    assert states(said["full"])["One step at the worst length"] == "not reached"


def test_what_can_not_be_measured_is_said(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training.preflight, "reset_peak", lambda _machine: False)
    result = check(rig)
    assert "MB predicted, not measured on this machine" in words(result)["One step at the worst length"]
    assert "measured_step_mb" not in result["memory"] and result["ok"] is True


def test_a_model_that_can_not_be_tried_is_said(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: Any, **_words: Any) -> int:
        raise RuntimeError("it depends on the data")

    monkeypatch.setattr("training.memory_plan.most_held", refuse)
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
    config = PPOConfig(**words_)
    found = newest_check(rig.store, config, **links)
    assert found is not None and found.id == queued.id and not is_green(found)
    assert newest_check(rig.store, PPOConfig(**words_, kl_coef=0.06), **links) is None
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
