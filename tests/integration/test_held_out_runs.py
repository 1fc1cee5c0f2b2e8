"""Every run that measures something on held-out prompts leaves out those that something behind it was trained on."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import factories as make
import pytest
from rig import Rig, planted_responses, ranks_by_z

from data.labels.projects import get_project
from data.records import FailureKind, Project, Run, RunKind, RunStatus, Snapshot, Split
from data.runs.metrics import samples_of

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")
SIZES: dict[RunKind, dict[str, Any]] = {
    RunKind.PPO: {"iterations": 1, "prompts_per_iteration": 2},
    RunKind.CHECK: {"iterations": 1, "prompts_per_iteration": 2},
    RunKind.RLOO: {"iterations": 1, "prompts_per_step": 2, "responses_per_prompt": 2},
    RunKind.SFT: {},
    RunKind.DPO: {},
    RunKind.BASELINES: {"responses": 1, "best_of": 2},
}


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("held-out"))
    yield made
    made.close()


def ranked(rig: Rig, sides: dict[str, Split]) -> Project:
    rng, project, person = random.Random(0), make.make_project(rig.store, k=4), make.make_person(rig.store)
    for text, split in sides.items():
        task = make.make_task(rig.store, project, *planted_responses(rng), prompt=text, split=split)
        make.make_ranking(rig.store, task, person, ranks_by_z([each.text for each in task.responses]))
    return project


@pytest.fixture(scope="module")
def policy_side(rig: Rig) -> Snapshot:
    sides = {f"ask {n}": Split.EVAL for n in range(3)} | {f"learn {n}": Split.TRAIN for n in range(5)}
    return rig.snapshot(ranked(rig, sides))


@pytest.fixture(scope="module")
def reward(rig: Rig) -> Run:
    """A reward model of another project, in which "ask 1" was learnt from."""
    sides = {"ask 0": Split.EVAL, "ask 1": Split.TRAIN} | {f"other {n}": Split.TRAIN for n in range(4)}
    snapshot = rig.snapshot(ranked(rig, sides))
    return rig.here(rig.queue(RunKind.REWARD, snapshot=snapshot, model=rig.model(), adapter="full"))


@pytest.mark.parametrize("kind", SIZES)
def test_what_the_reward_model_was_trained_on_is_no_held_out_prompt(
    kind: RunKind, rig: Rig, policy_side: Snapshot, reward: Run
) -> None:
    words = {"model": rig.model(), "max_new_tokens": 4} | SIZES[kind]
    run = rig.here(rig.queue(kind, snapshot=policy_side, reward_run=reward, **words))
    detail = rig.events(run, "held_out_prompts")[-1].detail
    assert {name: detail[name] for name in ("used", "trained_on", "refused", "too_long")} == {
        "used": 2, "trained_on": 1, "refused": 0, "too_long": 0,
    }  # fmt: skip
    if kind is RunKind.BASELINES:
        assert run.result["prompts"] == 2


def test_a_held_out_prompt_in_the_file_that_ppo_samples_from_is_none(
    rig: Rig, policy_side: Snapshot, reward: Run, tmp_path: Path
) -> None:
    path = tmp_path / "prompts.jsonl"
    rows = [{"line": n, "messages": [{"role": "user", "content": f"ask {n}"}]} for n in (1, 2)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = {"model": rig.model(), "max_new_tokens": 4, "prompts_file": str(path)} | SIZES[RunKind.PPO]
    run = rig.here(rig.queue(RunKind.PPO, snapshot=policy_side, reward_run=reward, **words))
    detail = rig.events(run, "held_out_prompts")[-1].detail
    assert (detail["used"], detail["trained_on"]) == (1, 2)


def test_a_table_leaves_out_what_any_of_its_policies_was_trained_on(
    rig: Rig, policy_side: Snapshot, reward: Run
) -> None:
    sides = {"ask 2": Split.TRAIN, "more": Split.TRAIN}
    sft = rig.here(rig.queue(RunKind.SFT, snapshot=rig.snapshot(ranked(rig, sides)), model=rig.model()))
    words = {"models": f"run:{sft.id}", "max_new_tokens": 4} | SIZES[RunKind.BASELINES]
    table = rig.here(rig.queue(RunKind.BASELINES, snapshot=policy_side, reward_run=reward, **words))
    assert (table.result["prompts"], table.config["model"]) == (1, rig.model())


def test_held_out_rankings_that_the_start_learnt_from_are_counted(rig: Rig, policy_side: Snapshot) -> None:
    sft = rig.here(
        rig.queue(RunKind.SFT, snapshot=rig.snapshot(ranked(rig, {"ask 2": Split.TRAIN})), model=rig.model())
    )
    words = {"snapshot": policy_side, "instant_texts": 0}
    run = rig.here(rig.queue(RunKind.REWARD, **words, model=f"run:{sft.id}"))
    assert (run.result["held_out_rankings"], run.result["held_out_rankings_trained_on"]) == (3, 1)
    (event,) = rig.events(run, "held_out_trained_on")
    assert event.detail == {"rankings": 1, "of": 3}
    plain = rig.here(rig.queue(RunKind.REWARD, **words, model=rig.model()))
    assert not rig.events(plain, "held_out_trained_on") and "held_out_rankings_trained_on" not in plain.result


def rows_of(rig: Rig, run: Run) -> list[dict[str, Any]]:
    with rig.store.read() as tx:
        return [row for step, row in samples_of(tx, run.id) if step == 2]


def test_a_comparison_takes_prompts_that_nothing_behind_it_was_trained_on(
    rig: Rig, policy_side: Snapshot, reward: Run
) -> None:
    sft = rig.here(rig.queue(RunKind.SFT, snapshot=policy_side, model=rig.model()))
    with rig.store.read() as tx:
        project = get_project(tx, policy_side.project_id)
    words = {"project": project, "model_b": f"run:{sft.id}", "max_new_tokens": 4}
    plain = rig.here(rig.queue(RunKind.COMPARE, **words))
    assert (plain.result["prompts"], plain.result["prompts_trained_on"]) == (3, 0)
    assert plain.result["model_a"] == rig.model()
    scored = rig.here(rig.queue(RunKind.COMPARE, **words, reward_run=reward))
    assert {row["prompt"] for row in rows_of(rig, scored)} == {"ask 0", "ask 2"}
    assert rig.events(scored, "prompts")[0].detail == {
        "prompts": 2, "prompts_trained_on": 0, "held_out": 2, "trained_on": 6,
    }  # fmt: skip
    wide = rig.here(rig.queue(RunKind.COMPARE, **words, reward_run=reward, prompts="any", limit=4))
    assert (wide.result["prompts"], wide.result["prompts_trained_on"]) == (4, 2)
    marks = {row["prompt"]: row["trained_on"] for row in rows_of(rig, wide)}
    assert marks == {"ask 0": False, "ask 2": False, "ask 1": True, "learn 0": True}
    typed = rig.here(rig.queue(RunKind.COMPARE, **words, prompt="learn 3"))
    assert (typed.result["prompts"], typed.result["prompts_trained_on"]) == (1, 1)


def test_a_comparison_without_a_held_out_prompt_is_refused(rig: Rig) -> None:
    project = ranked(rig, {f"seen {n}": Split.TRAIN for n in range(4)})
    sft = rig.here(rig.queue(RunKind.SFT, snapshot=rig.snapshot(project), model=rig.model()))
    words = {"project": project, "model_b": f"run:{sft.id}", "max_new_tokens": 4}
    ended = rig.here(rig.queue(RunKind.COMPARE, **words), RunStatus.FAILED)
    assert ended.error_kind is FailureKind.BAD_INPUT
    assert "none of the project's 4 prompts is held out" in (ended.error_message or "")
