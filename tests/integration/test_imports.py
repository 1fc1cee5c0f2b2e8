"""Imports: what goes in, what is refused by line, that a rehearsal tells the truth, and that nothing else is lost."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import factories as make
import pytest
import sqlalchemy as sa

import labeling.files.imports
from data.errors import InvalidInput, NotFound, StoreUnavailable
from data.label_settings import LabelSettings
from data.labels.projects import project_counts, set_settings
from data.labels.prompts import list_prompts, prompt_by_external_id
from data.labels.rankings import current_rankings
from data.labels.roles import OPERATOR
from data.labels.tasks import get_tasks, list_task_ids
from data.records import Detail, RankingStatus, Split
from data.store import Store
from data.store.columns import metadata
from data.store.tables import person, prompt
from labeling.files.imports import ImportReport, import_prompts, import_rankings, import_responses
from labeling.work.session import next_work


def jsonl(folder: Path, *rows: Any, name: str = "rows.jsonl") -> Path:
    path = folder / name
    lines = [row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def counts_of(report: ImportReport) -> dict[str, int]:
    return {name: number for name, number in (report.counts | {"refused": report.n_problems}).items() if number}


def n_rows_of_all_tables(store: Store) -> dict[str, int]:
    with store.read() as tx:
        return {
            name: tx.scalar(sa.select(sa.func.count()).select_from(table)) for name, table in metadata.tables.items()
        }


PROMPTS = [
    {"id": "a", "prompt": "one", "split": "eval", "topic": "t"},
    {"messages": [{"role": "user", "content": "two"}]},
    {"prompt": "one "},  # known: only white space differs
    {"prompt": ""},
    {"prompt": "three\x00\r\n", "meta": {"x": "\x00"}},
    "not json",
    {"prompt": "four", "split": "test"},
]


def test_prompts_go_in_in_their_order_with_all_that_came_along(store: Store, tmp_path: Path) -> None:
    project = make.make_project(store)
    report = import_prompts(store, OPERATOR, project.id, jsonl(tmp_path, *PROMPTS))
    assert counts_of(report) == {"new": 3, "known": 1, "repaired": 1, "refused": 3}
    assert [problem.line for problem in report.problems] == [6, 4, 7]
    assert report.n_rows == 7
    with store.read() as tx:
        one, two, three = list_prompts(tx, project.id)
        assert prompt_by_external_id(tx, project.id, "a") == one.id
    assert (one.messages, one.split, one.meta) == (({"role": "user", "content": "one"},), Split.EVAL, {"topic": "t"})
    assert two.messages == ({"role": "user", "content": "two"},)
    assert (three.messages[0]["content"], three.meta) == ("three\n", {"x": ""})
    assert report.examples == ["one", "two", "one "]


RESPONSES = [
    {"prompt_id": "a", "responses": ["x", "y"]},
    {"prompt": "new", "responses": ["x", "y", " x "], "source": "s"},
    {"prompt": "new", "responses": ["y", "x"]},  # known: the same texts
    {"prompt": "single", "responses": ["x"]},
    {"prompt": "same", "responses": ["x", "x "]},
    {"prompt_id": "nobody", "responses": ["x", "y"]},
    {"prompt": "many", "responses": [str(number) for number in range(13)]},
    {"responses": ["x", "y"]},
    {"prompt": "new", "responses": ["x", "z"]},  # another task of the prompt
]


def test_responses_become_tasks_to_rank(store: Store, tmp_path: Path) -> None:
    project = make.make_project(store, overlap=2)
    import_prompts(store, OPERATOR, project.id, jsonl(tmp_path, *PROMPTS))
    report = import_responses(store, OPERATOR, project.id, jsonl(tmp_path, *RESPONSES))
    assert counts_of(report) == {"tasks": 3, "known": 1, "responses": 6, "doubles": 1, "refused": 5}
    assert [problem.line for problem in report.problems] == [4, 5, 6, 7, 8]
    with store.read() as tx:
        counts = project_counts(tx, project.id)
        tasks = get_tasks(tx, list_task_ids(tx, project.id))
    assert (counts["prompts"], counts["tasks"], counts["responses"], counts["slots"]) == (4, 3, 6, 6)
    assert [[response.text for response in task.responses] for task in tasks] == [["x", "y"]] * 2 + [["x", "z"]]
    assert tasks[0].messages == ({"role": "user", "content": "one"},)


def test_responses_with_a_problem_are_badged_or_dropped_and_counted(store: Store, tmp_path: Path) -> None:
    project = make.make_project(store)
    with store.begin() as tx:
        set_settings(tx, project.id, settings=LabelSettings(on_error_text="drop"))
    apology, broken = "As an AI language model, I can't.", "Internal server error"
    file = jsonl(
        tmp_path,
        {"prompt": "one", "responses": ["x", {"text": "y", "meta": {"finish_reason": "length"}}, apology, broken]},
        {"prompt": "two", "responses": ["x", broken]},
    )
    report = import_responses(store, OPERATOR, project.id, file)
    assert counts_of(report) == {
        "tasks": 1, "responses": 3, "dropped_error_text": 1, "badge_cut": 1, "badge_self_identification": 1,
        "refused": 1,
    }  # fmt: skip
    assert report.problems[0].message == (
        "fewer than 2 responses are left without what the project drops: looks like an error message"
    )
    with store.read() as tx:
        (task,) = get_tasks(tx, list_task_ids(tx, project.id))
    assert [(each.text, each.badges) for each in task.responses] == [
        ("x", ()), ("y", ("cut",)), (apology, ("self_identification",)),
    ]  # fmt: skip


RANKINGS = [
    {
        "prompt": "p",
        "responses": ["a", "b", "c"],
        "ranks": [2, 1, 3],
        "annotator": "ann",
        "duration_ms": 5,
        "comment": "c",
    },
    {"prompt": "p", "responses": ["c", "b", "a"], "ranks": [1, 1, 3], "annotator": "bob"},  # the same task, other order
    {"prompt": "p", "responses": ["b", "a", "c"], "ranks": [1, 2, 3], "annotator": "ann"},  # known: the same answer
    {"prompt": "p", "responses": ["a", "b", "c"], "ranks": [1, 2, 3], "annotator": "ann"},  # another answer of hers
    {"prompt": "q", "responses": ["a", "b"], "status": "skipped", "skip_reason": "r", "annotator": "ann"},
    {"prompt": "r", "responses": ["a", "b"], "ranks": [1, 3]},
    {"prompt": "s", "responses": ["a", "a ", "b"], "ranks": [1, 1, 3], "flags": [["rude"], [], ["x"]]},
    {"prompt": "t", "responses": ["a", "a", "b"], "ranks": [1, 3, 2]},  # a is better and worse than b
    {"prompt": "u", "responses": ["a", "a", "b"], "ranks": [1, 2, 3]},  # a next to itself is no contradiction
    {"prompt": "only", "responses": ["a"], "ranks": [1]},
]


def test_rankings_go_in_with_their_prompts_and_responses(store: Store, tmp_path: Path) -> None:
    project = make.make_project(store)
    report = import_rankings(store, OPERATOR, project.id, jsonl(tmp_path, *RANKINGS))
    assert counts_of(report) == {
        "rankings": 4, "skips": 1, "known": 1, "doubles": 2, "refused": 4,
    }  # fmt: skip
    assert [problem.line for problem in report.problems] == [4, 6, 8, 10]
    with store.read() as tx:
        found = [ranking for ranking, _ in current_rankings(tx, project.id)]
        tasks = {task.id: task for task in get_tasks(tx, list_task_ids(tx, project.id))}
        by_text = [
            {
                response.text: rank
                for response, rank in zip(tasks[each.task_id].responses, each.ranks or (), strict=bool(each.ranks))
            }
            for each in found
        ]
        names = {row.id: row.name for row in tx.rows(sa.select(person))}
    assert by_text == [{"a": 2, "b": 1, "c": 3}, {"a": 3, "b": 1, "c": 1}, {}, {"a": 1, "b": 2}, {"a": 1, "b": 2}]
    assert [names[each.annotator_id].split(" (")[0] for each in found] == ["ann", "bob", "ann", "unnamed", "unnamed"]
    assert (found[0].duration_ms, found[0].comment, found[0].source) == (5, "c", "import")
    assert (found[2].status, found[2].skip_reason) == (RankingStatus.SKIPPED, "r")
    assert not any(each.is_late or each.is_extra for each in found)


def test_every_kind_of_answer_goes_in_as_what_it_is(store: Store, tmp_path: Path) -> None:
    """Whatever the order of the responses in the row, each keeps what was said of it; equal texts count once."""
    project = make.make_project(store)
    said = {"acceptable": [None, False, True, False], "flags": [[], ["rude"], [], []], "quality": [2, 1, 7, 1]}
    rows: list[dict[str, Any]] = [
        RANKINGS[0] | {"facts": "f"},
        RANKINGS[0] | {"responses": ["c", "b", "a", "b "], "ranks": [2, 2, 1, 2], "unplaced": [0, 1, 3],
                       "annotator": "bob", "strength": 3, **said},
        RANKINGS[0] | {"status": "unacceptable", "annotator": "cy", "ranks": None},
        RANKINGS[0] | {"status": "skipped", "annotator": "di", "ranks": None},
        RANKINGS[0] | {"status": "skipped", "annotator": "cy", "ranks": None},  # she has another answer
    ]  # fmt: skip
    path = jsonl(tmp_path, *rows)
    expected = {"rankings": 2, "skips": 1, "unacceptable": 1, "doubles": 1, "refused": 1}
    assert counts_of(import_rankings(store, OPERATOR, project.id, path)) == expected
    assert counts_of(import_rankings(store, OPERATOR, project.id, path)) == {"known": 4, "doubles": 1, "refused": 1}
    with store.read() as tx:
        found = [ranking for ranking, _ in current_rankings(tx, project.id)]
        (shown,) = list_prompts(tx, project.id)
        (task,) = get_tasks(tx, list_task_ids(tx, project.id))
    assert ([response.text for response in task.responses], shown.facts) == (["a", "b", "c"], "f")
    assert [each.status.value for each in found] == ["ranked", "ranked", "unacceptable", "skipped"]
    assert found[1].ranks == (1, 2, 2)
    assert found[1].detail == Detail((1, 2), (True, False, None), ((), ("rude",), ()), (7, 1, 2), 3)
    assert found[2].ranks is found[2].skip_reason is None


def test_nobody_is_asked_to_rank_what_came_ranked_until_it_comes_to_be_ranked(store: Store, tmp_path: Path) -> None:
    project, ann = make.make_project(store), make.make_person(store)
    import_rankings(store, OPERATOR, project.id, jsonl(tmp_path, RANKINGS[0]))
    assert next_work(store, ann, project.id).assignments == []
    report = import_responses(
        store, OPERATOR, project.id, jsonl(tmp_path, {"prompt": "p", "responses": ["a", "b", "c"]})
    )
    assert counts_of(report) == {"known": 1}
    assert len(next_work(store, ann, project.id).assignments) == 1


def test_a_refused_line_leaves_nothing_behind(store: Store, tmp_path: Path) -> None:
    """Neither its prompt, nor its responses, nor its annotator."""
    project = make.make_project(store)
    before = n_rows_of_all_tables(store)
    bad = [
        {"prompt": "x", "responses": ["a"], "ranks": [1], "annotator": "new"},
        {"prompt": "x", "responses": ["a", "b"], "ranks": [1, 2], "annotator": "\x1b[31m"},
        {"prompt": "x", "responses": ["a", "b"], "ranks": [1, 5], "annotator": "new"},
    ]
    assert counts_of(import_rankings(store, OPERATOR, project.id, jsonl(tmp_path, *bad))) == {"refused": 3}
    assert counts_of(import_responses(store, OPERATOR, project.id, jsonl(tmp_path, bad[0]))) == {"refused": 1}
    assert n_rows_of_all_tables(store) == before


@pytest.mark.parametrize("size", [1, 3, 500])
def test_a_rehearsal_counts_what_the_import_then_does_and_stores_nothing(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Whatever the lots in which rows are stored; and once more over what is there by then."""
    monkeypatch.setattr(labeling.files.imports, "ROWS_PER_TRANSACTION", size)
    monkeypatch.setattr(labeling.files.imports, "PROMPTS_PER_TRANSACTION", size)
    project = make.make_project(store)
    files: list[tuple[Any, Path]] = [
        (import_prompts, jsonl(tmp_path, *PROMPTS, *PROMPTS, name="p.jsonl")),
        (import_responses, jsonl(tmp_path, *RESPONSES, *RESPONSES, name="r.jsonl")),
        (import_rankings, jsonl(tmp_path, *RANKINGS, *RANKINGS, name="k.jsonl")),
    ]
    for use_case, path in files * 2:
        before = n_rows_of_all_tables(store)
        rehearsed = use_case(store, OPERATOR, project.id, path, dry_run=True)
        assert n_rows_of_all_tables(store) == before
        done = use_case(store, OPERATOR, project.id, path)
        assert rehearsed.as_dict() | {"dry_run": False} == done.as_dict()


def test_importing_again_adds_nothing(store: Store, tmp_path: Path) -> None:
    project = make.make_project(store)
    files: list[tuple[Any, Path]] = [
        (import_prompts, jsonl(tmp_path, *PROMPTS, name="p.jsonl")),
        (import_responses, jsonl(tmp_path, *RESPONSES, name="r.jsonl")),
        (import_rankings, jsonl(tmp_path, *RANKINGS, name="k.jsonl")),
    ]
    for use_case, path in files:
        use_case(store, OPERATOR, project.id, path)
    before = n_rows_of_all_tables(store)
    again = [counts_of(use_case(store, OPERATOR, project.id, path)) for use_case, path in files]
    assert n_rows_of_all_tables(store) == before
    assert [each["known"] for each in again] == [4, 4, 6]


def test_every_row_is_accounted_for(sqlite_store: Store, tmp_path: Path) -> None:
    project = make.make_project(sqlite_store)
    report = import_prompts(sqlite_store, OPERATOR, project.id, jsonl(tmp_path, *PROMPTS))
    assert report.n_rows == report.counts["new"] + report.counts["known"] + report.n_problems
    report = import_rankings(sqlite_store, OPERATOR, project.id, jsonl(tmp_path, *RANKINGS))
    assert report.n_rows == sum(report.counts[each] for each in ("rankings", "skips", "known")) + report.n_problems


def test_a_rehearsal_lets_others_write_meanwhile(store: Store, tmp_path: Path) -> None:
    """A long rehearsal must not keep an annotator from submitting."""
    project = make.make_project(store)
    done_at: list[int] = []

    def on_row(number: int) -> None:
        if number == 2:
            writer = threading.Thread(target=lambda: done_at.append(len(make.make_person(store).id)))
            writer.start()
            writer.join(timeout=10)

    import_rankings(store, OPERATOR, project.id, jsonl(tmp_path, *RANKINGS), dry_run=True, on_row=on_row)
    assert done_at


def test_two_imports_at_once_lose_nothing(store: Store, tmp_path: Path) -> None:
    """Both draw numbers for their prompts and tasks from the same project."""
    project = make.make_project(store)
    rows = [[{"prompt": f"{name} {n}", "responses": ["a", "b"]} for n in range(40)] for name in ("left", "right")]
    shared = [{"prompt": f"shared {n}", "responses": ["a", "b"]} for n in range(20)]
    paths = [jsonl(tmp_path, *each, *shared, name=f"{place}.jsonl") for place, each in enumerate(rows)]
    reports: list[Any] = []

    def work(path: Path) -> None:
        try:
            reports.append(counts_of(import_responses(store, OPERATOR, project.id, path)))
            reports.append(counts_of(import_prompts(store, OPERATOR, project.id, path)))
        except Exception as error:
            reports.append(error)

    threads = [threading.Thread(target=work, args=(path,)) for path in paths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(isinstance(each, dict) for each in reports), reports
    total = sum((Counter(each) for each in reports), Counter[str]())
    assert (total["tasks"], total["new"], total["refused"]) == (100, 0, 0)
    with store.read() as tx:
        assert project_counts(tx, project.id)["tasks"] == 100
        assert project_counts(tx, project.id)["prompts"] == 100
        seqs = [row.seq for row in tx.rows(sa.select(prompt.c.seq))]
    assert len(set(seqs)) == 100


def test_two_prompt_imports_at_once_drop_no_prompt(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(labeling.files.imports, "PROMPTS_PER_TRANSACTION", 7)
    project = make.make_project(store)
    paths = [jsonl(tmp_path, *[{"prompt": f"{name} {n}"} for n in range(200)], name=f"{name}.jsonl") for name in "abcd"]
    threads = [threading.Thread(target=import_prompts, args=(store, OPERATOR, project.id, path)) for path in paths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with store.read() as tx:
        assert project_counts(tx, project.id)["prompts"] == 800


def test_annotators_with_long_names_that_begin_alike_stay_two_people(store: Store, tmp_path: Path) -> None:
    project = make.make_project(store)
    rows = [RANKINGS[0] | {"annotator": "https://example.org/" + "x" * 80 + end} for end in ("1", "2")]
    assert counts_of(import_rankings(store, OPERATOR, project.id, jsonl(tmp_path, *rows))) == {"rankings": 2}
    other = make.make_project(store)
    assert counts_of(import_rankings(store, OPERATOR, other.id, jsonl(tmp_path, *rows))) == {"rankings": 2}
    with store.read() as tx:
        assert tx.scalar(sa.select(sa.func.count()).where(person.c.is_external)) == 4


def test_an_id_that_two_prompts_have_is_not_guessed(store: Store, tmp_path: Path) -> None:
    project = make.make_project(store)
    import_prompts(store, OPERATOR, project.id, jsonl(tmp_path, {"id": 1, "prompt": "x"}, {"id": 1, "prompt": "y"}))
    report = import_responses(store, OPERATOR, project.id, jsonl(tmp_path, {"prompt_id": 1, "responses": ["a", "b"]}))
    assert "two prompts of this project have the id '1'" in report.problems[0].message


def test_tables_carry_lists_as_text(store: Store, tmp_path: Path) -> None:
    project = make.make_project(store)
    path = tmp_path / "k.csv"
    path.write_text('prompt,responses,ranks,annotator,duration_ms\n"[1, 2]","[""a"", ""b""]","[2, 1]",ann,1500\n')
    assert counts_of(import_rankings(store, OPERATOR, project.id, path)) == {"rankings": 1}
    with store.read() as tx:
        [(found, prompt_id)] = current_rankings(tx, project.id)
        assert (found.ranks, found.duration_ms) == ((2, 1), 1500)
        assert list_prompts(tx, project.id)[0].messages[0]["content"] == "[1, 2]"
        assert list_prompts(tx, project.id)[0].id == prompt_id


def test_a_row_without_a_ranking_is_counted(store: Store, tmp_path: Path) -> None:
    project = make.make_project(store)
    tree = {"prompt": {"text": "p", "role": "prompter", "replies": [{"text": "r", "role": "assistant", "rank": 0}]}}
    report = import_rankings(store, OPERATOR, project.id, jsonl(tmp_path, tree), format_name="oasst")
    assert counts_of(report) == {"rows_without_ranking": 1}


def test_a_bad_ranking_of_a_row_does_not_cost_the_row_s_others(store: Store, tmp_path: Path) -> None:
    def replies(*texts: str) -> list[dict[str, Any]]:
        return [{"text": text, "role": "assistant", "rank": rank, "replies": []} for rank, text in enumerate(texts)]

    again = {"text": "and?", "role": "prompter", "replies": replies("x", "y")}
    first, second = replies("same", "same")
    tree = {"prompt": {"text": "p", "role": "prompter", "replies": [first | {"replies": [again]}, second]}}
    project = make.make_project(store)
    report = import_rankings(store, OPERATOR, project.id, jsonl(tmp_path, tree), format_name="oasst")
    assert counts_of(report) == {"rankings": 1, "refused": 1}


def test_what_is_not_the_format_is_refused_by_line(store: Store, tmp_path: Path) -> None:
    project = make.make_project(store)
    row = {"data": {"prompt": "p"}, "annotations": [{"result": [{"type": "ranker", "value": {}}]}]}
    report = import_rankings(store, OPERATOR, project.id, jsonl(tmp_path, row, row), format_name="label-studio")
    assert [problem.line for problem in report.problems] == [1, 2]
    assert "the row is not as this format has it" in report.problems[0].message


def test_a_file_or_a_project_that_can_not_be_used_is_refused_whole(store: Store, tmp_path: Path) -> None:
    project = make.make_project(store)
    for use_case in (import_prompts, import_responses, import_rankings):
        empty = tmp_path / "empty.jsonl"
        empty.write_text("\n\n")
        with pytest.raises(InvalidInput, match=r"empty.jsonl: the file has no rows"):
            use_case(store, OPERATOR, project.id, empty)
        with pytest.raises(NotFound, match="no project 'nowhere'"):
            use_case(store, OPERATOR, "nowhere", empty)
    with pytest.raises(InvalidInput, match="format 'other': one of native, trl, hh"):
        import_rankings(store, OPERATOR, project.id, empty, format_name="other")


def test_at_most_fifty_problems_are_shown_and_all_are_counted(sqlite_store: Store, tmp_path: Path) -> None:
    project = make.make_project(sqlite_store)
    report = import_prompts(sqlite_store, OPERATOR, project.id, jsonl(tmp_path, *[{"prompt": ""}] * 120))
    assert (len(report.problems), report.n_problems, report.as_dict()["refused"]) == (50, 120, 120)


def test_a_full_disk_is_told_and_takes_nothing_back(sqlite_store: Store, tmp_path: Path) -> None:
    """What was stored before stays; the lot that did not fit is not half there."""
    store, project = sqlite_store, make.make_project(sqlite_store)
    rows = [{"prompt": f"{number} {'x' * 500}"} for number in range(6000)]
    with store.write_engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count={pages + 900}")
        connection.rollback()
    with pytest.raises(StoreUnavailable, match="can't be used: database or disk is full"):
        import_prompts(store, OPERATOR, project.id, jsonl(tmp_path, *rows))
    with store.read() as tx:
        n_stored = project_counts(tx, project.id)["prompts"]
    assert 0 < n_stored < 6000
    assert n_stored % labeling.files.imports.PROMPTS_PER_TRANSACTION == 0
