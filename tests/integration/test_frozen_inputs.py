"""What a run learns from is what it was at its first start, and at the first start of every run on the snapshot."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import factories as make
import pytest
import sqlalchemy as sa
from rig import Rig

from data.files.snapshots import file_hash, get_snapshot
from data.records import Project, Run, RunKind, RunStatus, Snapshot, Split
from data.runs.frozen_prompts import ensure_frozen, frozen_prompts
from data.runs.state import resume_run
from data.store.tables import snapshot as snapshot_table
from training.jobs.reporter import Reporter

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")
PPO = {"iterations": 4, "prompts_per_iteration": 4, "learning_rate": 1e-2, "critic_learning_rate": 1e-2}
RLOO = {"iterations": 4, "prompts_per_step": 3, "responses_per_prompt": 2, "learning_rate": 1e-2}


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("frozen"))
    yield made
    made.close()


def own_snapshot(rig: Rig, name: str) -> tuple[Project, Snapshot]:
    """A project of its own, so that what is imported disturbs no other test."""
    project = rig.project(n_prompts=12, prompt=name + " {}")
    return project, rig.snapshot(project)


def queued(rig: Rig, kind: RunKind, snapshot: Snapshot, **changes: Any) -> Run:
    words = {"model": rig.model(), "max_new_tokens": 6, "checkpoint_every": 1, "eval_every": 2, "temperature": 0.7}
    words |= (PPO if kind is RunKind.PPO else RLOO) | changes
    return rig.queue(kind, snapshot=snapshot, reward_run=rig.reward(), **words)


def new_prompt(rig: Rig, project: Project, text: str, split: Split | None = None) -> None:
    make.make_task(rig.store, project, "a", "b", prompt=text, split=split)


def stop_after(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    original = Reporter.step

    def step_and_stop(self: Reporter, number: int, *words: Any, **more: Any) -> None:
        original(self, number, *words, **more)
        if number == step:
            self.request_stop()

    monkeypatch.setattr(Reporter, "step", step_and_stop)


def stopped(rig: Rig, run: Run, step: int = 2) -> None:
    """Let the run work until a step, and put it back into the queue."""
    with pytest.MonkeyPatch.context() as patch:
        stop_after(patch, step)
        rig.here(run, RunStatus.CANCELLED)
    with rig.store.begin() as tx:
        resume_run(tx, run.id)


def points_apart(rig: Rig, one: Run, other: Run) -> int:
    mine, theirs = rig.metrics(one), rig.metrics(other)
    assert mine.keys() == theirs.keys()
    return sum(mine[key] != theirs[key] for key in mine)


@pytest.mark.parametrize("kind", [RunKind.PPO, RunKind.RLOO])
def test_prompts_that_come_meanwhile_change_no_resumed_run(kind: RunKind, rig: Rig) -> None:
    project, snapshot = own_snapshot(rig, f"resumed {kind}")
    unbroken = rig.here(queued(rig, kind, snapshot))
    run = queued(rig, kind, snapshot)
    stopped(rig, run)
    new_prompt(rig, project, f"came meanwhile {kind}", Split.TRAIN)
    done = rig.here(run)
    assert points_apart(rig, run, unbroken) == 0
    assert done.result == unbroken.result
    again = rig.here(queued(rig, kind, snapshot))
    assert points_apart(rig, again, unbroken) == 0, "a later run on the same snapshot"


def of_an_older_release(rig: Rig, snapshot: Snapshot) -> Path:
    """Make a snapshot what it was before prompts were frozen with it; returns its folder."""
    folder = rig.home.snapshot_folder(snapshot.id)
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["files"]["prompts.parquet"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "prompts.parquet").unlink()
    with rig.store.begin() as tx:
        tx.execute(sa.update(snapshot_table).where(snapshot_table.c.id == snapshot.id).values(prompts_hash=None))
    return folder


def test_a_snapshot_freezes_every_prompt_with_its_side(rig: Rig) -> None:
    project = rig.project(n_prompts=8, prompt="sides {}")
    new_prompt(rig, project, "named eval", Split.EVAL)
    new_prompt(rig, project, "named train", Split.TRAIN)
    new_prompt(rig, project, "no side")
    snapshot = rig.snapshot(project)
    new_prompt(rig, project, "too late")
    found = list(frozen_prompts(rig.store, rig.home, snapshot.id))
    texts = [each.messages[-1]["content"] for each in found]
    assert texts == [*(f"sides {n}" for n in range(8)), "named eval", "named train", "no side"]
    held_out = rig.held_out(snapshot)
    assert [each.is_ranked for each in found] == [True] * 8 + [False] * 3
    assert {text for text, each in zip(texts[:8], found, strict=False) if each.split is Split.EVAL} == held_out
    assert [each.split for each in found[8:10]] == [Split.EVAL, Split.TRAIN]
    assert snapshot.prompts_hash == file_hash(rig.home.snapshot_folder(snapshot.id) / "prompts.parquet")


def test_an_unranked_prompt_has_the_side_that_it_would_have_if_it_were_ranked(rig: Rig) -> None:
    """A snapshot that comes later then holds no prompt out that a policy of an earlier one was trained on."""
    project = rig.project(n_prompts=12, prompt="later {}")
    tasks = [make.make_task(rig.store, project, "z", "b", prompt=f"unranked {n}") for n in range(40)]
    first = rig.snapshot(project)
    person = make.make_person(rig.store)
    for task in tasks:
        make.make_ranking(rig.store, task, person, [1, 2])
    before, after = ({each.prompt_id: each.split for each in frozen_prompts(rig.store, rig.home, of.id)}
                     for of in (first, rig.snapshot(project)))  # fmt: skip
    unranked = [task.prompt_id for task in tasks]
    assert {before[each] for each in unranked} == {Split.TRAIN, Split.EVAL}
    assert [before[each] for each in unranked] == [after[each] for each in unranked]


def test_an_old_snapshot_is_given_its_prompts_at_the_first_start_of_a_run(rig: Rig) -> None:
    project, snapshot = own_snapshot(rig, "old")
    folder = of_an_older_release(rig, snapshot)
    first = rig.here(queued(rig, RunKind.PPO, snapshot, iterations=2))
    (event,) = rig.events(first, "prompts_frozen")
    assert event.detail["prompts"] == 12 and "older release" in event.detail["reason"]
    new_prompt(rig, project, "came after the first", Split.TRAIN)
    second = rig.here(queued(rig, RunKind.PPO, snapshot, iterations=2))
    assert points_apart(rig, first, second) == 0 and not rig.events(second, "prompts_frozen")
    with rig.store.read() as tx:
        assert get_snapshot(tx, snapshot.id).prompts_hash == file_hash(folder / "prompts.parquet")


def test_of_two_that_freeze_at_once_the_first_one_wins(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    project, snapshot = own_snapshot(rig, "at once")
    folder = of_an_older_release(rig, snapshot)
    import data.runs.frozen_prompts as module

    inner, nested = module.write_prompts, []

    def while_another_does(*words: Any, **more: Any) -> None:
        inner(*words, **more)
        if not nested:
            nested.append(1)
            new_prompt(rig, project, "between the two")
            nested.append(ensure_frozen(rig.store, rig.home, snapshot.id))

    monkeypatch.setattr(module, "write_prompts", while_another_does)
    found, is_first = ensure_frozen(rig.store, rig.home, snapshot.id)
    (winner, was_first) = nested[1]
    assert (was_first, is_first) == (True, False)
    assert found.prompts_hash == winner.prompts_hash == file_hash(folder / "prompts.parquet")
    assert len(list(frozen_prompts(rig.store, rig.home, snapshot.id))) == 13
    assert not list(folder.glob(".*"))


@pytest.mark.parametrize("name", ["prompts.parquet", "groups.parquet", "pairs.parquet"])
def test_a_snapshot_whose_files_have_changed_starts_no_run(name: str, rig: Rig) -> None:
    _, snapshot = own_snapshot(rig, f"changed {name}")
    _, other = own_snapshot(rig, f"other {name}")
    shutil.copyfile(rig.home.snapshot_folder(other.id) / name, rig.home.snapshot_folder(snapshot.id) / name)
    for kind in (RunKind.PPO, RunKind.RLOO):
        ended = rig.here(queued(rig, kind, snapshot), RunStatus.FAILED)
        assert f"{name} has changed since it was frozen" in (ended.error_message or "")
    ended = rig.here(rig.queue(RunKind.SFT, snapshot=snapshot, model=rig.model()), RunStatus.FAILED)
    assert f"{name} has changed since it was frozen" in (ended.error_message or "")


def prompts_file(path: Path, texts: list[str]) -> str:
    rows = [{"line": n, "messages": [{"role": "user", "content": text}]} for n, text in enumerate(texts, start=1)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.mark.parametrize("kind", [RunKind.PPO, RunKind.RLOO])
def test_a_file_of_prompts_is_learnt_from_as_the_run_first_saw_it(kind: RunKind, rig: Rig, tmp_path: Path) -> None:
    _, snapshot = own_snapshot(rig, f"file {kind}")
    path = prompts_file(tmp_path / "given.jsonl", [f"typed {n}" for n in range(6)])
    unbroken = rig.here(queued(rig, kind, snapshot, prompts_file=path))
    run = queued(rig, kind, snapshot, prompts_file=path)
    stopped(rig, run)
    prompts_file(Path(path), [f"another {n}" for n in range(9)])
    rig.here(run)
    assert points_apart(rig, run, unbroken) == 0
    kept = rig.folder(run) / "prompts.jsonl"
    (event,) = rig.events(run, "input")
    assert event.detail == {"what": "prompts_file", "sha256": file_hash(kept)}


def test_a_kept_file_that_was_changed_is_refused(rig: Rig, tmp_path: Path) -> None:
    _, snapshot = own_snapshot(rig, "spoilt")
    words = {"prompts_file": prompts_file(tmp_path / "given.jsonl", ["typed 1", "typed 2"])}
    run = queued(rig, RunKind.PPO, snapshot, **words)
    stopped(rig, run)
    prompts_file(rig.folder(run) / "prompts.jsonl", ["changed"])
    ended = rig.here(run, RunStatus.FAILED)
    assert "prompts_file has changed since the run's first start" in (ended.error_message or "")


@pytest.mark.parametrize("layout", ["shared", "full"])
def test_a_reward_model_that_was_changed_on_the_way_is_refused(layout: str, rig: Rig) -> None:
    reward = rig.here(rig.queue(RunKind.REWARD, snapshot=rig.small_snapshot, model=rig.model(),
                                adapter="lora" if layout == "shared" else "full"))  # fmt: skip
    run = rig.queue_ppo(layout, reward=reward, iterations=4, checkpoint_every=1)
    stopped(rig, run)
    path = rig.folder(reward) / "model" / "reward_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"shift": 12.5}))
    ended = rig.here(run, RunStatus.FAILED)
    assert f"model 'run:{reward.id}' has changed since the checkpoint" in (ended.error_message or "")


def test_a_template_that_was_changed_on_the_way_is_refused(rig: Rig) -> None:
    folder = Path(rig.model("llama-template"))
    run = rig.queue(RunKind.SFT, snapshot=rig.small_snapshot, model=str(folder), checkpoint_every=1, batch_size=4)
    stopped(rig, run, step=1)
    path = folder / "chat_template.jinja"
    path.write_text(path.read_text().replace("assistant", "user"))
    ended = rig.here(run, RunStatus.FAILED)
    assert "(tokenizer)' has changed since the checkpoint" in (ended.error_message or "")
