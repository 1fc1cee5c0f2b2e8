"""The table of annotators from stored answers: counts, time, haste, bias. On both databases."""

from __future__ import annotations

from typing import Any

import factories as make
import pytest
from cli_runner import Cli
from hypothesis import given
from hypothesis import strategies as st

from data.errors import NotFound
from data.files.paths import Home
from data.records import Assignment, Person, Project
from data.store import Store
from labeling.work import checks
from labeling.work.checks import AnnotatorRow, annotator_table, busiest_minute, is_hasty, n_words
from labeling.work.session import next_work, submit


def send(store: Store, person: Person, project: Project, **answer: Any) -> Assignment:
    [assigned] = next_work(store, person, project.id, n=1).assignments
    item = {
        "submission_key": f"key-{assigned.lease_token}",
        "task_id": assigned.task.id,
        "lease_token": assigned.lease_token,
        "display_order": list(assigned.display_order),
        "duration_ms": 60_000,
    }
    ack = submit(store, person, item | answer)
    assert ack.reason == ""
    return assigned


def table(store: Store, project: Project) -> dict[str, AnnotatorRow]:
    return {row.name: row for row in annotator_table(store, project.id)}


def test_answers_are_counted_by_kind_and_person(store: Store, clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "AT_ONCE", 2)  # several lots
    project = make.make_project(store, overlap=2)
    ann, bob = make.make_person(store, name="Ann"), make.make_person(store, name="Bob")
    for _ in range(5):
        make.make_task(store, project)
    for _ in range(3):
        send(store, ann, project, ranks=[1, 2, 3])
    send(store, ann, project, skip_reason="no idea", duration_ms=10)
    next_work(store, bob, project.id, n=1)
    clock.advance(3600)
    with store.begin() as tx:  # the lease ran out, and the page was not open meanwhile
        held = tx.connection.exec_driver_sql(
            "select lease_token, task_id, display_order from slot where status='leased'"
        )
        token, task_id, order = held.one()
    late = {"submission_key": "a-late-key", "task_id": task_id, "lease_token": token, "ranks": [1, 2, 3]}
    submit(store, bob, late | {"display_order": [int(each) for each in order.strip("[]").split(",")]})
    found = table(store, project)
    assert list(found) == ["Ann", "Bob"]
    counts = {name: (row.n_ranked, row.n_unacceptable, row.n_skipped, row.n_late) for name, row in found.items()}
    assert counts == {"Ann": (3, 0, 1, 0), "Bob": (1, 0, 0, 1)}
    assert (found["Ann"].median_seconds, found["Ann"].n_timed, found["Ann"].busiest_minute) == (60.0, 3, 4)
    assert (found["Bob"].median_seconds, found["Bob"].n_timed) == (None, 0)


def test_an_answer_faster_than_its_texts_can_be_read_is_hasty(store: Store) -> None:
    project, person = make.make_project(store), make.make_person(store)
    words = 60 * 7  # with a prompt of 3 words and three responses: 7 seconds of reading at 60 words a second
    for number in range(3):
        texts = [f"{number} {place} " + "word " * (words // 3 - 3) for place in "abc"]
        task = make.make_task(store, project, *texts, prompt=f"a b{number} c")
        assert n_words(task) == words
    for duration in (6_999, 7_000, 30_000):
        send(store, person, project, ranks=[1, 2, 3], duration_ms=duration)
    [row] = annotator_table(store, project.id)
    assert (row.n_hasty, row.n_timed, row.median_seconds) == (1, 3, 7.0)


def test_signs_of_writing_without_spaces_are_counted_one_by_one(sqlite_store: Store) -> None:
    task = make.make_task(sqlite_store, make.make_project(sqlite_store), "你好吗", "two words", prompt="ok")
    assert n_words(task) == 1 + 3 + 2
    assert is_hasty(99, 6)
    assert not is_hasty(100, 6)


def test_position_bias_is_of_places_on_the_screen_and_length_bias_of_texts(store: Store) -> None:
    """One who always puts the first place first and the other who always puts the longest first: told apart."""
    project = make.make_project(store, overlap=2)
    top, long = make.make_person(store, name="Top"), make.make_person(store, name="Long")
    for number in range(20):
        make.make_task(store, project, f"{number} short", f"{number} quite a bit longer", f"{number} somewhat longer")
    for _ in range(20):
        send(store, top, project, ranks=[1, 2, 3])
        [assigned] = next_work(store, long, project.id, n=1).assignments
        lengths = [len(assigned.task.responses[position].text) for position in assigned.display_order]
        send(store, long, project, ranks=[1 + sum(other > each for other in lengths) for each in lengths])
    found = table(store, project)
    assert found["Top"].position.observed == (20.0, 0.0, 0.0)
    assert found["Top"].position.p_value is not None and found["Top"].position.p_value < 1e-6
    assert (found["Long"].length.share, found["Long"].length.n) == (1.0, 20)
    assert found["Long"].length.p_value == pytest.approx(2 / 2**20)
    assert sum(found["Long"].position.observed) == pytest.approx(20)


def test_imported_answers_have_no_time(store: Store) -> None:
    from data.labels.rankings import save_ranking
    from data.records import NewRanking, RankingStatus

    project, person = make.make_project(store), make.make_person(store)
    task = make.make_task(store, project)
    ranks = (1, 2, 3)
    new = NewRanking(
        task.id, person.id, "from-a-file", RankingStatus.RANKED, ranks, (0, 1, 2), duration_ms=1, source="import"
    )
    with store.begin() as tx:
        save_ranking(tx, new)
    [row] = annotator_table(store, project.id)
    assert (row.n_ranked, row.n_timed, row.n_hasty, row.busiest_minute) == (1, 0, 0, 0)


def test_a_project_without_answers_has_an_empty_table(store: Store) -> None:
    assert annotator_table(store, make.make_project(store).id) == []
    with pytest.raises(NotFound):
        annotator_table(store, "nowhere")


@given(st.lists(st.integers(0, 12).map(lambda number: number * 20.0)))
def test_the_busiest_minute_is_what_counting_from_each_answer_gives(times: list[float]) -> None:
    by_hand = max((sum(start <= time < start + 60 for time in times) for start in times), default=0)
    assert busiest_minute(times) == by_hand


def test_the_word_annotators(sqlite_store: Store, home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    cli, project = Cli(home.root, capsys), make.make_project(sqlite_store, "Trial")
    assert cli("annotators", "Trial").out == "no answer yet\n"
    ann = make.make_person(sqlite_store, name="Ann")
    for number in range(15):
        make.make_task(
            sqlite_store, project, f"{number} short", f"{number} somewhat longer", f"{number} most of all here"
        )
        send(sqlite_store, ann, project, ranks=[1, 2, 3], duration_ms=20_000)
    make.make_task(sqlite_store, project, "same", "size")
    send(sqlite_store, ann, project, skip_reason="no idea")
    lines = cli("annotators", "Trial").out.splitlines()
    assert lines[1].split()[:8] == ["Ann", "15", "0", "1", "0", "20.0", "0", "of"]
    assert " <0.0001 " in lines[1]  # always the first place
    [row] = cli.make("annotators", "Trial")
    assert row["position"]["observed"] == [15.0, 0.0, 0.0]
    assert row["length"]["n"] <= 15
