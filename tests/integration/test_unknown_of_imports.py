"""What a file does not say of an answer is unknown, and in no test of place or pace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import factories as make
import pytest
from check_work import answer, get

from app.demo.judge import rank_everything, simulated_annotators
from app.widgets.labels.ranker import asked_for
from data.files.paths import Home
from data.labels.check_slots import claim_repeat
from data.labels.projects import export_key
from data.labels.prompts import prompt_id_of
from data.labels.rankings import answer_of, current_rankings, edit_ranking
from data.labels.roles import OPERATOR
from data.labels.tasks import add_task, get_task
from data.records import NewPrompt, NewRanking, NewResponse, RankingStatus
from data.store import Store
from labeling.files.imports import import_rankings
from labeling.snapshot.export import export_snapshot
from labeling.snapshot.freeze import SnapshotConfig, freeze_snapshot, pseudonym
from labeling.work.checks import annotator_table
from labeling.work.session import next_work, reopen, submit

N = 60  # rankings: far above the 5 expected at each place from which on there is a p


def jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def pair(number: int, format_name: str) -> dict[str, Any]:
    """A row whose better response comes first, as it does in all these formats."""
    prompt, best, worst = f"question {number}", "good", "bad"
    replies = [
        {"text": text, "role": "assistant", "rank": rank, "replies": []} for rank, text in enumerate((best, worst))
    ]
    turns = [[{"role": "user", "content": prompt}, {"role": "assistant", "content": text}] for text in (best, worst)]
    return {
        "native": {"prompt": prompt, "responses": [best, worst], "ranks": [1, 2]},
        "trl": {"prompt": prompt, "chosen": best, "rejected": worst},
        "hh": {
            name: f"\n\nHuman: {prompt}\n\nAssistant: {text}" for name, text in (("chosen", best), ("rejected", worst))
        },
        "oasst": {"prompt": {"text": prompt, "role": "prompter", "replies": replies}},
        "fastchat": {"winner": "model_a", "conversation_a": turns[0], "conversation_b": turns[1]},
        "label-studio": {
            "data": {"prompt": prompt, "left": best, "right": worst},
            "annotations": [{"result": [{"type": "pairwise", "value": {"selected": "left"}}]}],
        },
        "argilla": {
            "prompt": prompt, "r1": best, "r2": worst,
            "q.responses": [[{"value": "r1", "rank": 1}, {"value": "r2", "rank": 2}]],
        },
    }[format_name]  # fmt: skip


@pytest.mark.parametrize("format_name", ["native", "trl", "hh", "oasst", "fastchat", "label-studio", "argilla"])
def test_the_order_of_a_file_is_no_order_on_a_screen(sqlite_store: Store, tmp_path: Path, format_name: str) -> None:
    """Rank 1 stood "at place A" in 60 of 60 rankings, by chance once in 10^14."""
    project = make.make_project(sqlite_store)
    path = jsonl(tmp_path / "rows.jsonl", [pair(number, format_name) for number in range(N)])
    assert import_rankings(sqlite_store, OPERATOR, project.id, path, format_name=format_name).counts["rankings"] == N
    (row,) = annotator_table(sqlite_store, project.id)
    assert (row.n_ranked, row.position.n, row.position.p_value) == (N, 0, None)
    assert (row.n_timed, row.median_seconds, row.busiest_minute) == (0, None, 0)
    with sqlite_store.read() as tx:
        found = [each for each, _ in current_rankings(tx, project.id)]
    assert {(each.display_order, each.guidelines_version, each.duration_ms) for each in found} == {(None, None, None)}


def test_an_order_that_a_file_states_is_kept_and_tested(store: Store, tmp_path: Path) -> None:
    """Stored by the task's positions, whatever the order of the row; what was ranked first stood in place B."""
    project = make.make_project(store)
    rows = []
    for number in range(N):
        said = {"prompt": f"question {number}", "annotator": "ann"}
        texts, ranks, order = (["good", "bad"], [1, 2], [1, 0]) if number % 2 else (["bad", "good"], [2, 1], [0, 1])
        rows.append(said | {"responses": texts, "ranks": ranks, "display_order": order})
        rows.append(said | {"responses": texts[::-1], "ranks": ranks[::-1], "annotator": "bob"})
    assert (
        import_rankings(store, OPERATOR, project.id, jsonl(tmp_path / "rows.jsonl", rows)).counts["rankings"] == 2 * N
    )
    ann, bob = annotator_table(store, project.id)
    assert (ann.position.n, ann.position.observed, bob.position.n) == (N, (0.0, 60.0), 0)
    assert ann.position.p_value == pytest.approx(9.5e-15, rel=0.02)  # chi-square 60 with one degree of freedom


@pytest.mark.parametrize("order", [[0, 0], [0], [1, 2], "left", [0, 1.5], {"a": 1}])
def test_an_order_that_can_not_be_right_is_refused(sqlite_store: Store, tmp_path: Path, order: Any) -> None:
    project = make.make_project(sqlite_store)
    row = pair(1, "native") | {"display_order": order}
    report = import_rankings(sqlite_store, OPERATOR, project.id, jsonl(tmp_path / "rows.jsonl", [row]))
    assert report.n_problems == 1
    assert "the places (from 0) of all 2 responses, in the order in which they were shown" in report.problems[0].message


def test_with_a_text_twice_in_the_row_the_order_is_unknown(sqlite_store: Store, tmp_path: Path) -> None:
    project = make.make_project(sqlite_store)
    row = {"prompt": "p", "responses": ["a", "a ", "b"], "ranks": [1, 1, 3], "display_order": [2, 0, 1]}
    assert (
        import_rankings(sqlite_store, OPERATOR, project.id, jsonl(tmp_path / "rows.jsonl", [row])).counts["doubles"]
        == 1
    )
    with sqlite_store.read() as tx:
        assert [each.display_order for each, _ in current_rankings(tx, project.id)] == [None]


def test_an_export_tells_the_order_that_annotators_saw(store: Store, home: Home, tmp_path: Path) -> None:
    """And the project that imports it finds the same habits."""
    project, other, ann = make.make_project(store), make.make_project(store), make.make_person(store)
    for number in range(N):
        make.make_task(store, project, "x", "y", "z", prompt=f"question {number}")
    for given in get(store, ann, project, n=N, shuffle=lambda _n: (2, 0, 1)):
        answer(store, ann, given, (2, 3, 1))
    frozen = freeze_snapshot(store, OPERATOR, home, project.id, SnapshotConfig(eval_share=0))
    export_snapshot(home, frozen, "answers", tmp_path / "out")
    import_rankings(store, OPERATOR, other.id, tmp_path / "out" / "train.jsonl")
    (here,), (there,) = (annotator_table(store, each.id) for each in (project, other))
    assert here.position.observed == there.position.observed == (60.0, 0.0, 0.0)
    assert here.position.n == there.position.n == N


def as_answered_elsewhere(store: Store, tmp_path: Path) -> tuple[Any, Any, Any]:
    """A project in which a file holds an answer of somebody who has an account."""
    project, ann = make.make_project(store), make.make_person(store)
    task = make.make_task(store, project, "x", "y", "z", prompt="p")
    with store.read() as tx:
        name = pseudonym(export_key(tx, project.id), ann.id)
    row = {"prompt": "p", "responses": ["z", "y", "x"], "ranks": [1, 2, 3], "annotator": name}
    assert import_rankings(store, OPERATOR, project.id, jsonl(tmp_path / "row.jsonl", [row])).counts["rankings"] == 1
    return project, ann, task


def test_the_author_can_look_at_an_answer_whose_order_is_unknown_and_change_it(store: Store, tmp_path: Path) -> None:
    """It is shown in the stored order. Of the edit neither order nor time is the answer's, so both stay unknown."""
    project, ann, task = as_answered_elsewhere(store, tmp_path)
    shown, found = reopen(store, ann, task.id)
    assert (shown.id, found.ranks, found.display_order) == (task.id, (3, 2, 1), None)
    opened = asked_for(store, ann, project.id, {"open": task.id, "at": 1})["opened"]
    assert (opened["task"]["responses"], opened["answer"]["ranks"]) == (["x", "y", "z"], [3, 2, 1])
    (line,) = asked_for(store, ann, project.id, {"history": 0})["history"]["lines"]
    assert line["ranks"] == [3, 2, 1]
    sent = {
        "submission_key": "edit-of-an-import", "task_id": task.id, "display_order": [0, 1, 2], "ranks": [1, 2, 3],
        "duration_ms": 40, "edit_of": found.id,
    }  # fmt: skip
    assert submit(store, ann, sent).outcome == "stored"
    with store.read() as tx:
        edited = answer_of(tx, task.id, ann.id)
    assert (edited.ranks, edited.version, edited.source) == ((1, 2, 3), 2, "app")
    assert (edited.display_order, edited.duration_ms, edited.guidelines_version) == (None, None, 1)
    (row,) = annotator_table(store, project.id)
    assert (row.position.n, row.n_timed) == (0, 0)
    with store.begin() as tx:  # nor does it come again as a silent repeat: in another order than what?
        assert claim_repeat(tx, project.id, ann.id, after=0) == []


def test_an_imported_answer_is_no_work_of_today(store: Store, tmp_path: Path) -> None:
    project, ann, _ = as_answered_elsewhere(store, tmp_path)
    work = next_work(store, ann, project.id)
    assert (work.assignments, work.n_done, work.n_today, work.pace_s) == ([], 1, 0, None)


def test_an_edit_of_an_answer_with_an_order_keeps_telling_it(sqlite_store: Store) -> None:
    project, ann = make.make_project(sqlite_store), make.make_person(sqlite_store)
    first = make.make_ranking(sqlite_store, make.make_task(sqlite_store, project), ann, [1, 2, 3])
    new = NewRanking(first.task_id, ann.id, "an-edit", RankingStatus.RANKED, (3, 2, 1), (1, 2, 0), duration_ms=9)
    with sqlite_store.begin() as tx:
        edit_ranking(tx, first.id, new)
        found = answer_of(tx, first.task_id, ann.id)
    assert (found.display_order, found.duration_ms) == ((1, 2, 0), 9)


def test_simulated_annotators_have_no_pace(sqlite_store: Store) -> None:
    """They took 0 ms, so that all their answers were hasty and each of them an alarm."""
    project = make.make_project(sqlite_store)
    with sqlite_store.begin() as tx:
        for number in range(12):
            prompt_id = prompt_id_of(tx, project.id, NewPrompt(({"role": "user", "content": f"question {number}"},)))
            facts = {"n_tokens": 20, "finish_reason": "eos"}
            texts = [NewResponse(f"one of {n} answers", provenance=facts) for n in range(3)]
            get_task(tx, add_task(tx, project.id, prompt_id, texts, slots=1).task_id)
    people = simulated_annotators(sqlite_store, 1)
    assert rank_everything(sqlite_store, project.id, people, seed=0) == 12
    (row,) = annotator_table(sqlite_store, project.id)
    assert (row.n_ranked, row.n_timed, row.n_hasty, row.median_seconds, row.alarms) == (12, 0, 0, None, [])
