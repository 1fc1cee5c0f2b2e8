"""Exports that are imported again: into their own project nothing changes, into another one nothing is lost or made up.

`Told` has every kind of answer: accounts and authors of imported answers, ties, partial rankings, skips, answers that
no response is acceptable, extra ones, edits, gold, and a researcher's decision.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import factories as make
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from check_work import settle

from data.files.paths import Home
from data.files.snapshots import read_parquet
from data.labels.gold import gold_of_project, set_gold
from data.labels.projects import export_key
from data.labels.prompts import list_prompts
from data.labels.rankings import current_rankings, edit_ranking, save_ranking
from data.labels.roles import OPERATOR
from data.records import Detail, NewRanking, Project, RankingStatus, Role, Split
from data.store import Store, open_store
from data.store.backup import copy_sqlite
from data.store.columns import metadata
from data.store.tables import ranking
from labeling.files.handover import hand_over
from labeling.files.imports import ImportReport, import_prompts, import_rankings, import_responses
from labeling.review.adjudication import decide, open_case
from labeling.review.agreement import project_agreement
from labeling.snapshot.export import FORMATS, export_snapshot
from labeling.snapshot.freeze import SnapshotConfig, freeze_snapshot, plan_snapshot, pseudonym
from labeling.work.checks import annotator_table

READ_AS = {"answers": "native", "kwise": "native", "trl": "trl", "trl-chat": "trl", "openrlhf": "trl"}
KINDS = [
    ("answers", "each"), ("answers", "soft"), ("kwise", "each"), ("kwise", "soft"), ("trl", "each"),
    ("trl-chat", "soft"), ("openrlhf", "each"),
]  # fmt: skip


class Told:
    """A project in which everything has been said that can be said."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store = store
        self.project = settle(store, make.make_project(store, overlap=3), allow_partial=True)
        self.people = [make.make_person(store) for _ in range(3)]
        self.boss = make.make_person(store, Role.RESEARCHER)
        ann, bob, cy = self.people
        self.held_out = make.make_task(store, self.project, prompt="held out", split=Split.EVAL)
        self.named = make.make_task(store, self.project, prompt="to learn from", split=Split.TRAIN)
        self.disputed = make.make_task(store, self.project, prompt="disputed")
        self.checked = make.make_task(store, self.project, prompt="checked")
        for number in range(6):
            task = make.make_task(store, self.project, "a", "b", "c", prompt=f"question {number}")
            make.make_ranking(store, task, ann, [1, 2, 3], comment="clear" if number else "")
            make.make_ranking(store, task, bob, [2, 1, 3] if number % 2 else [1, 1, 3])
        self.last = task
        make.make_ranking(store, task, cy, [1, 2, 2], detail=Detail((1, 2), (True, False, None), strength=2))
        for task, *answers in (
            (self.held_out, [1, 2, 3], [2, 1, 3], [1, 1, 1]),
            (self.named, [3, 2, 1], [3, 1, 2], [1, 2, 3]),
            (self.disputed, [1, 2, 3], [3, 2, 1], [2, 1, 3]),
            (self.checked, [1, 2, 3], [3, 2, 1], [1, 2, 3]),
        ):
            for person, ranks in zip(self.people, answers, strict=True):
                make.make_ranking(store, task, person, ranks)
        none = make.make_task(store, self.project, prompt="none is good", split=Split.EVAL)
        make.make_ranking(store, none, ann, status=RankingStatus.UNACCEPTABLE, comment="all wrong")
        make.make_ranking(store, none, bob)
        with store.begin() as tx:
            set_gold(tx, self.checked.id, (1, 2, 3), author_id=cy.id)
            extra = NewRanking(
                self.named.id, self.boss.id, "late-and-extra", RankingStatus.RANKED, (1, 2, 3), (2, 0, 1)
            )
            save_ranking(tx, extra)
        self.edit()
        case = open_case(store, self.project.id, self.disputed.id)
        decide(store, self.boss, self.project.id, self.disputed.id, reason="b is the only right one",
               submission_key="decision", seen=case.seen, ranks=[2, 1, 3])  # fmt: skip
        row = {"prompt": "question 0", "responses": ["c", "b", "a"], "ranks": [1, 2, 3], "annotator": "from a file"}
        import_rankings(store, OPERATOR, self.project.id, jsonl(folder / "first.jsonl", [row]))

    def edit(self) -> None:
        """Ann changes her ranking of the last question."""
        ann = self.people[0]
        with self.store.begin() as tx:
            old = next(
                each for each, _ in current_rankings(tx, self.project.id)
                if each.task_id == self.last.id and each.annotator_id == ann.id
            )  # fmt: skip
            number = old.version
            new = NewRanking(self.last.id, ann.id, f"an-edit-{number}", RankingStatus.RANKED,
                             (2, 3, 1) if number % 2 else (3, 1, 2), (1, 0, 2), duration_ms=900)  # fmt: skip
            edit_ranking(tx, old.id, new)


def jsonl(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def exported(store: Store, home: Home, project: Project, format_name: str, merge: str = "each") -> list[Path]:
    """The files of an export of a new snapshot."""
    config = SnapshotConfig(eval_share=0.3, merge=merge)
    frozen = freeze_snapshot(store, OPERATOR, home, project.id, config)
    folder = home.exports / f"{frozen.id}-{format_name}"
    export_snapshot(home, frozen, format_name, folder)
    return sorted(path for path in folder.iterdir() if path.name != "manifest.json")


def rows_of(*paths: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for path in paths:
        is_lines = path.suffix == ".jsonl"
        rows += map(json.loads, path.read_text(encoding="utf-8").splitlines()) if is_lines else read_parquet(path)
    return rows


def bring_in(store: Store, project: Project, path: Path, format_name: str = "answers") -> dict[str, int]:
    """Import a file, after a rehearsal that says the same; what was counted."""
    how = {"format_name": READ_AS[format_name]}
    rehearsed = import_rankings(store, OPERATOR, project.id, path, dry_run=True, **how)
    done = import_rankings(store, OPERATOR, project.id, path, **how)
    assert rehearsed.as_dict() | {"dry_run": False} == done.as_dict()
    assert done.problems == []
    return counts_of(done)


def counts_of(report: ImportReport) -> dict[str, int]:
    return {name: number for name, number in (report.counts | {"refused": report.n_problems}).items() if number}


def all_rows(store: Store) -> dict[str, list[str]]:
    with store.read() as tx:
        return {
            table.name: sorted(repr(tuple(row)) for row in tx.rows(sa.select(table)))
            for table in metadata.sorted_tables
        }


@pytest.mark.parametrize(("format_name", "merge"), KINDS)
def test_an_export_changes_nothing_in_its_own_project(
    sqlite_store: Store, home: Home, tmp_path: Path, format_name: str, merge: str
) -> None:
    """It doubled every judgement: twice the annotators, and an agreement of each with themselves."""
    told = Told(sqlite_store, tmp_path)
    files = exported(sqlite_store, home, told.project, format_name, merge)
    before, agreed = all_rows(sqlite_store), project_agreement(sqlite_store, told.project.id)
    for path in files:
        assert bring_in(sqlite_store, told.project, path, format_name) == {"known": len(rows_of(path))}
    assert all_rows(sqlite_store) == before
    assert project_agreement(sqlite_store, told.project.id) == agreed


def test_in_another_project_it_is_as_many_people_and_the_second_time_all_is_known(
    store: Store, home: Home, tmp_path: Path
) -> None:
    told = Told(store, tmp_path)
    files, other = exported(store, home, told.project, "answers"), make.make_project(store)
    first = sum((Counter(bring_in(store, other, path)) for path in files), Counter[str]())
    n_rows = sum(len(rows_of(path)) for path in files)
    assert first == {
        "rankings": n_rows - 2, "skips": 1, "unacceptable": 1, "gold": 1, "extra": 1, "overruled": 3,
    }  # fmt: skip
    before = all_rows(store)
    again = sum((Counter(bring_in(store, other, path)) for path in files), Counter[str]())
    assert again == {"known": n_rows}
    assert all_rows(store) == before
    there = project_agreement(store, other.id)
    with store.read() as tx:
        names = {each.annotator_id for each, _ in current_rankings(tx, told.project.id, with_gold=True)}
        copies = {each.annotator_id for each, _ in current_rankings(tx, other.id, with_gold=True)}
    assert len(copies) == len(names) == 5
    here = project_agreement(store, told.project.id)
    assert (there.pairs_with_ties.value, there.n_units) == (here.pairs_with_ties.value, here.n_units)


def without(rows: Iterable[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name not in names} for row in rows]


def test_without_ids_an_answer_is_known_by_its_content_and_its_person(store: Store, home: Home, tmp_path: Path) -> None:
    """The pseudonyms of this project's exports are its people, accounts and authors of imported answers alike."""
    told = Told(store, tmp_path)
    before = all_rows(store)
    for number, path in enumerate(exported(store, home, told.project, "answers")):
        plain = jsonl(tmp_path / f"{number}.jsonl", without(rows_of(path), "ranking_id", "prompt_id", "split"))
        assert bring_in(store, told.project, plain) == {"known": len(rows_of(path))}
    assert {name: rows for name, rows in all_rows(store).items() if name != "snapshot"} == {
        name: rows for name, rows in before.items() if name != "snapshot"
    }


def test_the_file_that_an_answer_came_from_and_its_export_say_the_same(
    sqlite_store: Store, home: Home, tmp_path: Path
) -> None:
    """One names the author as the file did, the other by the project's pseudonym."""
    project = make.make_project(sqlite_store)
    rows = [
        {"prompt": "p", "responses": ["a", "b"], "ranks": [1, 2], "annotator": "ann", "flags": [["Rude"], []]},
        {"prompt": "p", "responses": ["a", "b"], "status": "unacceptable", "annotator": "bob"},
        {"prompt": "q", "responses": ["a", "b"], "status": "skipped", "annotator": "ann"},
    ]
    original = jsonl(tmp_path / "original.jsonl", rows)
    assert bring_in(sqlite_store, project, original) == {"rankings": 1, "unacceptable": 1, "skips": 1}
    files = exported(sqlite_store, home, project, "answers")
    before = all_rows(sqlite_store)
    assert sum(bring_in(sqlite_store, project, path)["known"] for path in files) == 3
    assert bring_in(sqlite_store, project, original) == {"known": 3}
    plain = jsonl(tmp_path / "plain.jsonl", without(rows_of(*files), "ranking_id", "split"))
    assert bring_in(sqlite_store, project, plain) == {"known": 3}
    assert all_rows(sqlite_store) == before


CHANGED: list[tuple[dict[str, Any], str]] = [
    ({"ranks": [1, 3, 2]}, "ranks [1, 2, 3] here, [1, 3, 2] in the row"),
    ({"status": "unacceptable", "ranks": None}, "status ranked here, unacceptable in the row"),
    ({"comment": "no"}, "comment clear here, no in the row"),
    ({"quality": [7, 1, 1]}, "quality nothing here, [7, 1, 1] in the row"),
    ({"duration_ms": 5}, "duration_ms 1000 here, 5 in the row"),
    ({"display_order": [2, 1, 0]}, "display_order [0, 1, 2] here, [2, 1, 0] in the row"),
    ({"ranks": [1, 2, 2], "unplaced": [1, 2]}, "unplaced nothing here, [1, 2] in the row"),
    ({"annotator": "somebody else"}, "another annotator"),
    ({"prompt": [{"role": "user", "content": "?"}]}, "another prompt"),
    ({"responses": ["a", "b", "d"]}, "other responses"),
    ({"responses": ["a", "b"], "ranks": [1, 2], "display_order": None}, "other responses"),
]


def test_what_differs_is_refused_and_named_and_nothing_is_replaced(store: Store, home: Home, tmp_path: Path) -> None:
    told = Told(store, tmp_path)
    rows = rows_of(*exported(store, home, told.project, "answers"))
    row = next(each for each in rows if each["comment"] == "clear")
    before = all_rows(store)
    for change, words in CHANGED:
        report = import_rankings(store, OPERATOR, told.project.id, jsonl(tmp_path / "changed.jsonl", [row | change]))
        assert counts_of(report) == {"refused": 1}
        said = report.problems[0].message
        assert said.startswith(f"ranking {row['ranking_id']} is in this project and says something else (")
        assert words in said
    (plain,) = without([row | {"ranks": [3, 2, 1]}], "ranking_id")
    report = import_rankings(store, OPERATOR, told.project.id, jsonl(tmp_path / "changed.jsonl", [plain]))
    assert counts_of(report) == {"refused": 1}
    assert "has another answer to just these texts, which is kept (ranks [1, 2, 3] here, [3, 2, 1] in the row)" in (
        report.problems[0].message
    )
    assert all_rows(store) == before


def test_pairs_are_told_by_the_ranking_that_they_come_from(sqlite_store: Store, home: Home, tmp_path: Path) -> None:
    told = Told(sqlite_store, tmp_path)
    rows = rows_of(*exported(sqlite_store, home, told.project, "trl-chat"))
    turned = [row | {"chosen": row["rejected"], "rejected": row["chosen"]} for row in rows]
    other = [row | {"chosen": [{"role": "assistant", "content": "new"}]} for row in rows[:1]]
    path = jsonl(tmp_path / "turned.jsonl", turned + other)
    report = import_rankings(sqlite_store, OPERATOR, told.project.id, path, format_name="trl")
    assert counts_of(report) == {"refused": len(rows) + 1}
    assert all("its ranks put the pair the other way round" in each.message for each in report.problems[:-1])


def test_an_export_from_before_an_edit_is_known_and_the_edit_stays(
    sqlite_store: Store, home: Home, tmp_path: Path
) -> None:
    told = Told(sqlite_store, tmp_path)
    files = exported(sqlite_store, home, told.project, "answers")
    told.edit()
    before = all_rows(sqlite_store)
    for path in files:
        plain = jsonl(tmp_path / path.name, without(rows_of(path), "ranking_id", "split"))
        for each in (path, plain):
            assert bring_in(sqlite_store, told.project, each) == {"known": len(rows_of(path))}
    assert all_rows(sqlite_store) == before


def test_answers_that_a_restored_backup_has_not_come_back_as_those_of_the_same_people(
    sqlite_store: Store, home: Home, tmp_path: Path
) -> None:
    told = Told(sqlite_store, tmp_path)
    ann = told.people[0]
    task = make.make_task(sqlite_store, told.project, "x", "y", prompt="answered after the backup")
    assert sqlite_store.file is not None
    copy_sqlite(sqlite_store.file, tmp_path / "backup.db")
    make.make_ranking(sqlite_store, task, ann, [2, 1])
    files = exported(sqlite_store, home, told.project, "answers")
    restored = open_store(f"sqlite:///{tmp_path / 'backup.db'}")
    counts = sum((Counter(bring_in(restored, told.project, path)) for path in files), Counter[str]())
    assert counts == {"known": sum(len(rows_of(path)) for path in files) - 1, "rankings": 1, "side_kept": 1}
    with restored.read() as tx:
        found = next(each for each, _ in current_rankings(tx, told.project.id) if each.task_id == task.id)
    assert (found.annotator_id, found.ranks, found.source) == (ann.id, (2, 1), "import")
    restored.close()


def test_merged_rows_of_which_a_part_is_here_are_refused(sqlite_store: Store, home: Home, tmp_path: Path) -> None:
    told = Told(sqlite_store, tmp_path)
    rows = rows_of(*exported(sqlite_store, home, told.project, "kwise", "soft"))
    row = next(each for each in rows if "," in each["ranking_id"])
    first, *_ = row["ranking_id"].split(",")
    row["ranking_id"] = f"{first},of-another-store"
    report = import_rankings(sqlite_store, OPERATOR, told.project.id, jsonl(tmp_path / "part.jsonl", [row]))
    assert counts_of(report) == {"refused": 1}
    assert "the row merges 2 rankings, and 1 of them are in this project" in report.problems[0].message


def test_an_id_of_another_project_says_nothing_here(sqlite_store: Store, home: Home, tmp_path: Path) -> None:
    told, other = Told(sqlite_store, tmp_path), make.make_project(sqlite_store)
    row = rows_of(exported(sqlite_store, home, told.project, "kwise")[0])[0]
    changed = row | {"ranks": [3, 2, 1], "unplaced": []}
    assert bring_in(sqlite_store, other, jsonl(tmp_path / "row.jsonl", [changed])) == {"rankings": 1}


# The side of a prompt, and whatever else decides what is learnt from.


@pytest.mark.parametrize("format_name", READ_AS)
def test_held_out_prompts_come_back_held_out(sqlite_store: Store, home: Home, tmp_path: Path, format_name: str) -> None:
    """Those that a file named and those that the snapshot drew."""
    told, other = Told(sqlite_store, tmp_path), make.make_project(sqlite_store)
    files = exported(sqlite_store, home, told.project, format_name)
    frozen_sides = {row["prompt_id"]: row["split"] for path in files for row in rows_of(path)}
    assert {path.stem: {row["split"] for row in rows_of(path)} for path in files} == {
        "eval": {"eval"}, "train": {"train"},
    }  # fmt: skip
    for path in files:  # pairs have no annotators, so where these are at odds the first one to say so counts
        report = import_rankings(sqlite_store, OPERATOR, other.id, path, format_name=READ_AS[format_name])
        assert all("has another answer to just these texts" in each.message for each in report.problems)
        assert not report.problems or READ_AS[format_name] == "trl"
    with sqlite_store.read() as tx:
        sides = Counter(each.split for each in list_prompts(tx, other.id))
    assert sides == Counter(Split(side) for side in frozen_sides.values())
    counts = plan_snapshot(sqlite_store, other.id, SnapshotConfig(eval_share=0.0, seed=7)).counts
    held_out = [row for path in files if path.stem == "eval" for row in rows_of(path)]
    assert counts["prompts_eval"] > 1
    assert counts["prompts_eval"] <= len({row["prompt_id"] for row in held_out})


def test_a_snapshot_of_the_copy_learns_from_the_same_and_leaves_out_the_same(
    store: Store, home: Home, tmp_path: Path
) -> None:
    """Answers to gold, and extra ones, came back as ordinary ones, which models learn from."""
    told, other = Told(store, tmp_path), make.make_project(store)
    with store.begin() as tx:  # decisions do not travel as such: without one the rest is the same
        tx.execute(sa.text("delete from adjudication"))
    for path in exported(store, home, told.project, "answers"):
        bring_in(store, other, path)
    config = SnapshotConfig(eval_share=0.3)
    here, there = (plan_snapshot(store, each.id, config).counts for each in (told.project, other))
    same = [name for name in here if name not in ("left_out", "rankings_late")]
    assert {name: there[name] for name in same} == {name: here[name] for name in same}
    assert there["left_out"] == here["left_out"] | {"replaced_by_an_edit": 0}
    assert (there["left_out"]["gold"], there["left_out"]["extra"], here["left_out"]["replaced_by_an_edit"]) == (3, 1, 1)


def test_what_was_expected_comes_along_and_so_does_whose_answer_it_was(
    sqlite_store: Store, home: Home, tmp_path: Path
) -> None:
    told, other = Told(sqlite_store, tmp_path), make.make_project(sqlite_store)
    for path in exported(sqlite_store, home, told.project, "answers"):
        bring_in(sqlite_store, other, path)
    with sqlite_store.read() as tx:
        (gold,) = gold_of_project(tx, other.id).values()
    assert (gold.ranks, gold.unplaced) == ((1, 2, 3), ())
    measured = [
        Counter((row.gold.value, row.gold.n_items) for row in annotator_table(sqlite_store, project.id))
        for project in (told.project, other)
    ]
    assert measured[0] == measured[1] == {(1.0, 1): 1, (0.0, 1): 1, (None, 0): 3}


def test_another_expectation_here_stays_and_is_counted(sqlite_store: Store, home: Home, tmp_path: Path) -> None:
    told, other = Told(sqlite_store, tmp_path), make.make_project(sqlite_store)
    row = {"prompt": "checked", "responses": [each.text for each in told.checked.responses]}
    bring_in(sqlite_store, other, jsonl(tmp_path / "gold.jsonl", [row | {"ranks": [3, 2, 1], "gold": True}]))
    counts = [
        Counter(bring_in(sqlite_store, other, path)) for path in exported(sqlite_store, home, told.project, "answers")
    ]
    assert sum(counts, Counter[str]())["gold_kept"] == 3
    with sqlite_store.read() as tx:
        assert [each.ranks for each in gold_of_project(tx, other.id).values()] == [(3, 2, 1)]


def test_an_answer_to_gold_without_what_was_expected_is_refused(
    sqlite_store: Store, home: Home, tmp_path: Path
) -> None:
    told, other = Told(sqlite_store, tmp_path), make.make_project(sqlite_store)
    rows = rows_of(*exported(sqlite_store, home, told.project, "answers"))
    old = without((row for row in rows if row["left_out"] == "gold"), "expected")
    report = import_rankings(sqlite_store, OPERATOR, other.id, jsonl(tmp_path / "old.jsonl", old))
    assert counts_of(report) == {"refused": 3}
    assert "an answer to a gold task, and the row does not say what was expected" in report.problems[0].message


def test_a_decision_of_a_researcher_is_counted_as_one(sqlite_store: Store, home: Home, tmp_path: Path) -> None:
    told, other = Told(sqlite_store, tmp_path), make.make_project(sqlite_store)
    counts = [
        bring_in(sqlite_store, other, path, "kwise") for path in exported(sqlite_store, home, told.project, "kwise")
    ]
    assert sum(each.get("decisions", 0) for each in counts) == 1


def test_a_side_that_a_known_prompt_keeps_is_counted(store: Store, tmp_path: Path) -> None:
    project = make.make_project(store)
    rows = [{"prompt": "a"}, {"prompt": "b", "split": "train"}, {"prompt": "c", "split": "eval"}, {"prompt": "d"}]
    import_prompts(store, OPERATOR, project.id, jsonl(tmp_path / "first.jsonl", rows))
    named = [{"prompt": each, "split": "eval"} for each in "abcde"] + [{"prompt": "e", "split": "train"}]
    more = {"responses": ["x", "y"], "ranks": [1, 2]}
    files: list[tuple[Callable[..., ImportReport], Path]] = [
        (import_rankings, jsonl(tmp_path / "k.jsonl", [row | more for row in named[:3]])),
        (import_responses, jsonl(tmp_path / "r.jsonl", [row | more for row in named[:3]])),
        (import_prompts, jsonl(tmp_path / "p.jsonl", named)),
    ]
    for (use_case, path), n_kept in zip(files, (2, 2, 4), strict=True):
        rehearsed = use_case(store, OPERATOR, project.id, path, dry_run=True)
        done = use_case(store, OPERATOR, project.id, path)
        assert done.counts["side_kept"] == n_kept
        assert rehearsed.as_dict() | {"dry_run": False} == done.as_dict()
    with store.read() as tx:
        sides = {each.messages[0]["content"]: each.split for each in list_prompts(tx, project.id)}
    assert sides == {"a": None, "b": Split.TRAIN, "c": Split.EVAL, "d": None, "e": Split.EVAL}


def test_held_out_prompts_of_a_file_are_not_handed_to_a_policy(tmp_path: Path) -> None:
    rows = [{"prompt": "a", "split": "eval"}, {"prompt": "b", "split": "train"}, {"prompt": "c"}]
    path = jsonl(tmp_path / "p.jsonl", [row | {"responses": ["x", "y"]} for row in rows])
    n, problems = hand_over(path, tmp_path / "to_learn.jsonl", with_responses=False)
    assert (n, [(each.line, each.message) for each in problems]) == (
        2, [(1, "its split is 'eval': no policy may learn from a held-out prompt")],
    )  # fmt: skip
    assert hand_over(path, tmp_path / "to_score.jsonl", with_responses=True) == (3, [])


def test_an_export_of_an_older_snapshot_says_nothing_of_what_it_has_not(
    sqlite_store: Store, home: Home, tmp_path: Path
) -> None:
    """Its files have no column for the order of display, nor for what was expected."""
    told = Told(sqlite_store, tmp_path)
    frozen = freeze_snapshot(sqlite_store, OPERATOR, home, told.project.id, SnapshotConfig())
    for name in ("groups.parquet", "others.parquet"):
        path = home.snapshot_folder(frozen.id) / name
        table = pq.read_table(path)
        pq.write_table(
            table.drop_columns([each for each in ("display_order", "expected") if each in table.column_names]), path
        )
    export_snapshot(home, frozen, "answers", tmp_path / "out")
    rows = rows_of(tmp_path / "out" / "train.jsonl")
    assert {(row["display_order"], row["expected"]) for row in rows} == {(None, None)}
    assert set(rows[0]) == set(FORMATS["answers"].schema.names)
    assert bring_in(sqlite_store, told.project, tmp_path / "out" / "train.jsonl") == {"known": len(rows)}


def test_no_name_of_an_account_is_in_an_export(sqlite_store: Store, home: Home, tmp_path: Path) -> None:
    told = Told(sqlite_store, tmp_path)
    rows = rows_of(*exported(sqlite_store, home, told.project, "answers"))
    with sqlite_store.read() as tx:
        key = export_key(tx, told.project.id)
        ids = {row.annotator_id for row in tx.rows(sa.select(ranking.c.annotator_id))}
    named = {row["annotator"] for row in rows} | {row["expected"]["annotator"] for row in rows if row["expected"]}
    assert named <= {pseudonym(key, each) for each in ids}
