"""Snapshots: everything is counted, the split is by prompt, what is frozen stays, and nothing half done remains."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import factories as make
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

import labeling.snapshot.freeze
from data.errors import InvalidInput, NotAllowed, NotFound
from data.files.paths import Home
from data.files.snapshots import content_hash, get_snapshot, list_snapshots, read_groups, read_parquet
from data.labels.people import disable_person, external_annotator
from data.labels.rankings import current_rankings, edit_ranking, save_ranking
from data.labels.roles import OPERATOR
from data.records import Detail, NewRanking, Project, Ranking, RankingStatus, Role, Snapshot, Split, Task
from data.store import Store
from data.store.tables import ranking, snapshot
from labeling.snapshot.freeze import SnapshotConfig, freeze_snapshot, plan_snapshot, pseudonym

ROOT = Path(__file__).resolve().parents[2]

FILES = ["groups.parquet", "manifest.json", "others.parquet", "pairs.parquet", "prompts.parquet"]


def pairs_of(home: Home, frozen: Snapshot) -> list[dict[str, Any]]:
    return list(read_parquet(home.snapshot_folder(frozen.id) / "pairs.parquet"))


def edit(store: Store, old: Ranking, ranks: tuple[int, ...], key: str = "edit") -> None:
    new = NewRanking(old.task_id, old.annotator_id, key, RankingStatus.RANKED, ranks, old.display_order)
    with store.begin() as tx:
        edit_ranking(tx, old.id, new)


def extra(store: Store, task: Task, ranks: tuple[int, ...]) -> None:
    """A late answer to a task that is full by now."""
    person = make.make_person(store)
    new = NewRanking(task.id, person.id, f"key-{person.id}", RankingStatus.RANKED, ranks, (0, 1, 2))
    with store.begin() as tx:
        save_ranking(tx, new)


def mixed_project(store: Store) -> Project:
    """Two annotators per task; of each kind of answer at least one."""
    project = make.make_project(store, overlap=2)
    ann, bob = make.make_person(store), make.make_person(store)
    tasks = [make.make_task(store, project, "a", "b", "c", prompt=f"prompt {n}") for n in range(8)]
    for task in tasks[:6]:
        make.make_ranking(store, task, ann, [1, 2, 3])
    make.make_ranking(store, tasks[0], bob, [1, 1, 3])  # a tie
    make.make_ranking(store, tasks[1], bob, [1, 1, 1])  # all tied
    make.make_ranking(store, tasks[2], bob)  # skipped
    make.make_ranking(store, tasks[3], bob, [3, 2, 1])
    extra(store, tasks[3], (2, 1, 3))
    make.make_ranking(store, tasks[6], ann)  # skipped, and nobody else: the prompt is not in
    edit(store, make.make_ranking(store, tasks[4], bob, [2, 1, 3]), (1, 3, 2))
    extra(store, tasks[5], (1, 2, 3))  # late, but a slot was free
    return project


def test_every_answer_is_in_or_left_out_with_its_reason(store: Store, home: Home) -> None:
    project = mixed_project(store)
    counts = plan_snapshot(store, project.id, SnapshotConfig()).counts
    assert counts["left_out"] == {
        "skipped": 2, "unacceptable": 0, "all_tied": 1, "extra": 1, "replaced_by_an_edit": 1, "gold": 0, "repeat": 0,
    }  # fmt: skip
    assert counts["rankings_used"] == 10
    assert counts["rankings_late"] == 1
    with store.read() as tx:
        n_answers = tx.scalar(sa.select(sa.func.count()).select_from(ranking))
    assert counts["rankings_used"] + sum(counts["left_out"].values()) == n_answers == 15
    # 9 strict rankings of 3 make 3 pairs each; the one with a tie makes 2
    assert (counts["pairs"], counts["ties"]) == (29, 1)
    assert counts["responses_per_ranking"] == {"3": 10}
    assert (counts["prompts"], counts["annotators"]) == (6, 3)
    for what in ("rankings", "pairs", "prompts"):
        total = counts["rankings_used" if what == "rankings" else what]
        assert counts[f"{what}_train"] + counts[f"{what}_eval"] == total
    with_extra = plan_snapshot(store, project.id, SnapshotConfig(include_extra=True)).counts
    assert (with_extra["rankings_used"], with_extra["left_out"]["extra"], with_extra["rankings_late"]) == (11, 0, 2)


def test_an_unacceptable_answer_is_counted_and_a_rest_gives_no_pair_within_itself(store: Store, home: Home) -> None:
    project, person = make.make_project(store), make.make_person(store)
    task = make.make_task(store, project, "a", "b", "c", "d", "e", prompt="p")
    rest = Detail(unplaced=(0, 3, 4), acceptable=(False, True, None, None, None), strength=2)
    make.make_ranking(store, task, person, [3, 1, 1, 3, 3], detail=rest, comment="why")
    make.make_ranking(store, make.make_task(store, project), person, status=RankingStatus.UNACCEPTABLE)
    frozen = freeze_snapshot(store, OPERATOR, home, project.id, SnapshotConfig(eval_share=0))
    assert frozen.counts["left_out"]["unacceptable"] == 1
    # of 10 pairs: 2 placed by 3 left give 6, the two placed are a tie, the three left give 3 that nobody compared
    assert [frozen.counts[name] for name in ("pairs", "ties", "not_compared")] == [6, 1, 3]
    pairs = {(each["chosen"], each["rejected"]) for each in pairs_of(home, frozen)}
    assert pairs == {(best, left) for best in "bc" for left in "ade"}
    (group,) = read_groups(home.snapshot_folder(frozen.id))
    assert (group.unplaced, group.acceptable, group.strength) == (rest.unplaced, rest.acceptable, 2)
    assert (group.comment, group.flags, group.quality) == ("why", (), ())


def test_the_plan_says_exactly_what_the_snapshot_then_holds(store: Store, home: Home) -> None:
    project = mixed_project(store)
    plan = plan_snapshot(store, project.id, SnapshotConfig(eval_share=0.3))
    frozen = freeze_snapshot(store, OPERATOR, home, project.id, SnapshotConfig(eval_share=0.3))
    assert frozen.counts == plan.counts
    groups, pairs = list(read_groups(home.snapshot_folder(frozen.id))), pairs_of(home, frozen)
    assert (len(groups), len(pairs)) == (plan.counts["rankings_used"], plan.counts["pairs"])
    assert sum(group.split is Split.EVAL for group in groups) == plan.counts["rankings_eval"]
    assert sum(pair["split"] == "eval" for pair in pairs) == plan.counts["pairs_eval"]
    assert {(each["prompt"], each["chosen"], each["rejected"]) for each in plan.examples} <= {
        (pair["messages"][-1]["content"], pair["chosen"], pair["rejected"]) for pair in pairs
    }


def test_the_pairs_are_those_of_the_rankings(store: Store, home: Home) -> None:
    project, ann, bob = make.make_project(store, overlap=2), make.make_person(store), make.make_person(store)
    task = make.make_task(store, project, "good", "bad", "middle", prompt="p")
    make.make_ranking(store, task, ann, [1, 3, 2])
    make.make_ranking(store, task, bob, [1, 2, 2])
    frozen = freeze_snapshot(store, OPERATOR, home, project.id, SnapshotConfig(eval_share=0))
    pairs = [
        (each["chosen"], each["rejected"], each["rank_distance"], each["weight"]) for each in pairs_of(home, frozen)
    ]
    assert pairs == [
        ("good", "bad", 2, pytest.approx(1 / 6)),
        ("good", "middle", 1, pytest.approx(1 / 6)),
        ("middle", "bad", 1, pytest.approx(1 / 6)),
        ("good", "bad", 1, pytest.approx(1 / 4)),
        ("good", "middle", 1, pytest.approx(1 / 4)),
    ]


def test_the_weights_of_a_prompt_sum_to_one(store: Store, home: Home) -> None:
    """A prompt with many annotators, or many responses, weighs no more than one with few."""
    project = mixed_project(store)
    frozen = freeze_snapshot(store, OPERATOR, home, project.id, SnapshotConfig())
    sums: dict[str, float] = defaultdict(float)
    for pair in pairs_of(home, frozen):
        sums[pair["prompt_id"]] += pair["weight"]
    assert len(sums) == 6
    assert all(total == pytest.approx(1.0) for total in sums.values())
    of_groups: dict[str, float] = defaultdict(float)
    for group in read_groups(home.snapshot_folder(frozen.id)):
        of_groups[group.prompt_id] += group.weight
    assert of_groups == pytest.approx(dict.fromkeys(sums, 1.0))


def test_no_prompt_stands_on_both_sides_and_named_sides_are_kept(store: Store, home: Home) -> None:
    project, people = make.make_project(store, overlap=2), [make.make_person(store) for _ in range(2)]
    named: dict[str, Split] = {}
    for number, split in enumerate([None] * 10 + [Split.TRAIN, Split.EVAL, Split.EVAL]):
        for texts in (("a", "b"), ("c", "d")):  # two tasks for each prompt
            task = make.make_task(store, project, *texts, prompt=f"prompt {number}", split=split)
            for person in people:
                make.make_ranking(store, task, person, [1, 2])
        if split is not None:
            named[task.prompt_id] = split
    frozen = freeze_snapshot(store, OPERATOR, home, project.id, SnapshotConfig(eval_share=0.3))
    sides: dict[str, set[str]] = defaultdict(set)
    for pair in pairs_of(home, frozen):
        sides[pair["prompt_id"]].add(pair["split"])
    assert all(len(each) == 1 for each in sides.values())
    assert {prompt_id: sides[prompt_id] for prompt_id in named} == {key: {side.value} for key, side in named.items()}
    n_eval = sum(side == {"eval"} for side in sides.values())
    assert (frozen.counts["prompts"], frozen.counts["prompts_eval"]) == (13, n_eval)
    assert 1 + 2 <= n_eval <= 9 + 2  # of ten without a name at least one is held out, and never all
    again = freeze_snapshot(store, OPERATOR, home, project.id, SnapshotConfig(eval_share=0.3))
    assert [group.split for group in read_groups(home.snapshot_folder(again.id))] == [
        group.split for group in read_groups(home.snapshot_folder(frozen.id))
    ]


def test_the_hash_is_of_the_content(store: Store, home: Home) -> None:
    project = mixed_project(store)
    one, same = (freeze_snapshot(store, OPERATOR, home, project.id, SnapshotConfig()) for _ in range(2))
    assert one.id != same.id
    assert one.content_hash == same.content_hash
    assert content_hash(read_groups(home.snapshot_folder(one.id))) == one.content_hash
    other_seed = freeze_snapshot(store, OPERATOR, home, project.id, SnapshotConfig(eval_share=0.5, seed=7))
    with store.read() as tx:
        current = next(each for each, _ in current_rankings(tx, project.id) if each.ranks == (1, 2, 3))
    edit(store, current, (1, 3, 2), key="one more")
    edited = freeze_snapshot(store, OPERATOR, home, project.id, SnapshotConfig())
    assert len({each.content_hash for each in (one, other_seed, edited)}) == 3


def test_the_hash_changes_with_everything_that_a_group_holds(sqlite_store: Store, home: Home) -> None:
    frozen = make.make_snapshot(sqlite_store, home)
    groups = list(read_groups(home.snapshot_folder(frozen.id)))
    first = groups[0]
    changed: list[dict[str, Any]] = [
        {"ranking_id": "x"}, {"task_id": "x"}, {"prompt_id": "x"}, {"annotator": "x"}, {"weight": 0.5},
        {"split": Split.EVAL if first.split is Split.TRAIN else Split.TRAIN}, {"ranks": (1, 3, 2)},
        {"messages": ({"role": "user", "content": "x"},)}, {"models": ("x", *first.models[1:])},
        {"responses": ("x", *first.responses[1:])}, {"response_ids": ("x", *first.response_ids[1:])},
        {"unplaced": (1, 2)}, {"acceptable": (True, None, False)}, {"flags": (("x",), (), ())}, {"strength": 2},
        {"quality": (7, None, 1)}, {"comment": "x"}, {"facts": "x"}, {"preferred": (0,) * 9},
        {"compared": (1,) * 9}, {"probabilities": (0.5,) * 9}, {"adjudicated": True}, {"duration_ms": 1},
        {"display_order": (2, 1, 0)},
    ]  # fmt: skip
    assert {name for each in changed for name in each} == set(first.as_row())
    hashes = {content_hash([replace(first, **each), *groups[1:]]) for each in changed}
    assert len(hashes | {frozen.content_hash, content_hash(groups[::-1]), content_hash(groups[1:])}) == len(changed) + 3


def test_what_is_frozen_is_not_touched_by_what_comes_later(store: Store, home: Home) -> None:
    project = mixed_project(store)
    frozen = freeze_snapshot(store, OPERATOR, home, project.id, SnapshotConfig())
    folder = home.snapshot_folder(frozen.id)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with store.read() as tx:
        current = [each for each, _ in current_rankings(tx, project.id) if each.ranks == (1, 2, 3)]
    for number, each in enumerate(current):
        edit(store, each, (3, 2, 1), key=f"later {number}")
    make.make_ranking(store, make.make_task(store, project), make.make_person(store), [1, 2, 3])
    freeze_snapshot(store, OPERATOR, home, project.id, SnapshotConfig())
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    with store.read() as tx:
        assert get_snapshot(tx, frozen.id) == frozen
        assert [each.id for each in list_snapshots(tx, project.id)][-1] == frozen.id


def test_the_manifest_tells_what_it_is_and_checks_the_files(store: Store, home: Home) -> None:
    project = mixed_project(store)
    frozen = freeze_snapshot(store, OPERATOR, home, project.id, SnapshotConfig(seed=3))
    folder = home.snapshot_folder(frozen.id)
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["snapshot"] == frozen.id
    assert manifest["content_hash"] == frozen.content_hash
    assert manifest["counts"] == frozen.counts
    assert manifest["config"] == frozen.config == {
        "eval_share": 0.1, "seed": 3, "include_extra": False, "merge": "each", "annotator_weights": "equal",
    }  # fmt: skip
    assert "rank 1 is best" in manifest["statement"]
    assert len(manifest["examples"]) == 3
    for name, facts in manifest["files"].items():
        assert facts["sha256"] == hashlib.sha256((folder / name).read_bytes()).hexdigest()
    assert sorted(path.name for path in folder.iterdir()) == FILES


def test_annotators_have_names_that_say_nothing_outside_the_project(store: Store, home: Home) -> None:
    ann = make.make_person(store, name="Ann Example")
    projects = [make.make_project(store) for _ in range(2)]
    found = []
    for project in projects:
        for _ in range(2):
            make.make_ranking(store, make.make_task(store, project), ann, [1, 2, 3])
        frozen = freeze_snapshot(store, OPERATOR, home, project.id, SnapshotConfig(eval_share=0))
        found.append({group.annotator for group in read_groups(home.snapshot_folder(frozen.id))})
        text = b"".join(path.read_bytes() for path in home.snapshot_folder(frozen.id).iterdir())
        assert b"Ann" not in text
        assert ann.id.encode() not in text
    assert [len(each) for each in found] == [1, 1]
    assert found[0] != found[1]
    assert pseudonym("key", ann.id) == pseudonym("key", ann.id) != pseudonym("another key", ann.id)


def test_nothing_to_freeze_says_why_and_leaves_nothing(store: Store, home: Home) -> None:
    project, person = make.make_project(store), make.make_person(store)
    with pytest.raises(InvalidInput, match="nothing has been ranked yet; rank some tasks first"):
        freeze_snapshot(store, OPERATOR, home, project.id, SnapshotConfig())
    make.make_ranking(store, make.make_task(store, project), person, [1, 1, 1])
    make.make_ranking(store, make.make_task(store, project), person)
    with pytest.raises(InvalidInput, match="there is no pair to freeze: 1 skipped, 1 all tied; rank some tasks first"):
        freeze_snapshot(store, OPERATOR, home, project.id, SnapshotConfig())
    with pytest.raises(NotFound, match="no project 'nowhere'"):
        freeze_snapshot(store, OPERATOR, home, "nowhere", SnapshotConfig())
    with pytest.raises(NotFound, match="no project 'nowhere'"):
        plan_snapshot(store, "nowhere", SnapshotConfig())
    assert list((home.root / "snapshots").iterdir()) == []
    with store.read() as tx:
        assert list_snapshots(tx) == []
        with pytest.raises(NotFound, match="rankloop snapshot create"):
            get_snapshot(tx, "nothing")


def test_two_clicks_on_freeze_make_one_snapshot(store: Store, home: Home) -> None:
    project = mixed_project(store)
    one = freeze_snapshot(store, OPERATOR, home, project.id, SnapshotConfig(), nonce="click")
    assert freeze_snapshot(store, OPERATOR, home, project.id, SnapshotConfig(), nonce="click") == one
    barrier, found = threading.Barrier(3), []

    def work() -> None:
        barrier.wait()
        found.append(freeze_snapshot(store, OPERATOR, home, project.id, SnapshotConfig(), nonce="another click").id)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert {path.name for path in (home.root / "snapshots").iterdir()} == {one.id, found[0]}


def test_a_row_that_can_not_be_written_leaves_no_files(store: Store, home: Home) -> None:
    """Here because the researcher was disabled while the files were written."""
    project, who = mixed_project(store), make.make_person(store, Role.RESEARCHER)

    def disable(n_rankings: int) -> None:
        with store.begin() as tx:
            disable_person(tx, who.id)

    with pytest.raises(NotAllowed, match="is closed"):
        freeze_snapshot(store, who, home, project.id, SnapshotConfig(), on_group=disable)
    assert list((home.root / "snapshots").iterdir()) == []


def test_a_full_disk_leaves_no_files(sqlite_store: Store, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    project = mixed_project(sqlite_store)

    def full(_path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(labeling.snapshot.freeze, "sync_file", full)
    with pytest.raises(OSError, match="No space left"):
        freeze_snapshot(sqlite_store, OPERATOR, home, project.id, SnapshotConfig())
    assert list((home.root / "snapshots").iterdir()) == []


def test_a_kill_between_the_files_and_the_row_leaves_no_snapshot(sqlite_store: Store, home: Home) -> None:
    project = mixed_project(sqlite_store)
    code = f"""
import os, signal
import labeling.snapshot.freeze as snapshots
from data.files.paths import Home
from data.labels.roles import OPERATOR
from data.store import open_store
from pathlib import Path
snapshots.save_snapshot = lambda *_words, **_more: os.kill(os.getpid(), signal.SIGKILL)
store = open_store({sqlite_store.url!r})
snapshots.freeze_snapshot(store, OPERATOR, Home(Path({str(home.root)!r})), {project.id!r}, snapshots.SnapshotConfig())
"""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    killed = subprocess.run([sys.executable, "-c", code], env=environment, timeout=120, check=False)
    assert killed.returncode == -signal.SIGKILL
    with sqlite_store.read() as tx:
        assert list_snapshots(tx) == []
    [orphan] = (home.root / "snapshots").iterdir()  # whole files, which no row names
    assert sorted(path.name for path in orphan.iterdir()) == FILES
    frozen = freeze_snapshot(sqlite_store, OPERATOR, home, project.id, SnapshotConfig())
    assert frozen.id != orphan.name
    assert content_hash(read_groups(home.snapshot_folder(frozen.id))) == frozen.content_hash


def test_a_snapshot_whose_files_are_missing_says_so(sqlite_store: Store, home: Home, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="the snapshot's folder was moved or not copied to this machine"):
        next(read_groups(tmp_path / "elsewhere"))


def test_rankings_that_come_while_it_is_frozen_are_in_the_next_one(
    store: Store, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts and files are of one moment: both passes over the rankings see the same ones."""
    project = mixed_project(store)
    person = make.make_person(store)
    inner = labeling.snapshot.freeze.split_prompts

    def while_others_rank(*words: Any, **more: Any) -> Any:
        writer = threading.Thread(
            target=lambda: make.make_ranking(store, make.make_task(store, project), person, [1, 2, 3])
        )
        writer.start()
        writer.join()
        return inner(*words, **more)

    monkeypatch.setattr(labeling.snapshot.freeze, "split_prompts", while_others_rank)
    frozen = freeze_snapshot(store, OPERATOR, home, project.id, SnapshotConfig())
    assert frozen.counts["rankings_used"] == 10
    monkeypatch.undo()
    assert freeze_snapshot(store, OPERATOR, home, project.id, SnapshotConfig()).counts["rankings_used"] == 11


def test_imported_rankings_are_frozen_like_any_other(store: Store, home: Home) -> None:
    project = make.make_project(store)
    task = make.make_task(store, project, "a", "b", slots=0)
    with store.begin() as tx:
        for name, ranks in (("x", (1, 2)), ("y", (2, 1))):
            who = external_annotator(tx, project.id, name)
            new = NewRanking(task.id, who, f"key-{name}", RankingStatus.RANKED, ranks, (0, 1), source="import")
            save_ranking(tx, new)
    frozen = freeze_snapshot(store, OPERATOR, home, project.id, SnapshotConfig(eval_share=0))
    assert sorted((each["chosen"], each["rejected"]) for each in pairs_of(home, frozen)) == [("a", "b"), ("b", "a")]
    assert (frozen.counts["left_out"]["extra"], frozen.counts["annotators"]) == (0, 2)


def test_many_rankings_come_in_lots_and_all_of_them(store: Store, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labeling.snapshot.freeze, "TASKS_AT_ONCE", 3)
    monkeypatch.setattr("data.files.snapshots.ROWS_PER_CHUNK", 2)
    monkeypatch.setattr("data.files.snapshots.ROWS_PER_GROUP", 4)
    project = make.make_ranked_project(store, n_prompts=10, k=4)
    frozen = freeze_snapshot(store, OPERATOR, home, project.id, SnapshotConfig())
    groups = list(read_groups(home.snapshot_folder(frozen.id)))
    assert [group.messages[-1]["content"].split()[1] for group in groups] == [str(number) for number in range(10)]
    assert pq.ParquetFile(home.snapshot_folder(frozen.id) / "groups.parquet").num_row_groups == 3
    assert len(pairs_of(home, frozen)) == 60
    with store.read() as tx:
        assert tx.scalar(sa.select(sa.func.count()).select_from(snapshot)) == 1
