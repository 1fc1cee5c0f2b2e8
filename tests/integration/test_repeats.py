"""Silent repeats: an annotator's own tasks again, in another order, and what they say of them. On both databases."""

from __future__ import annotations

from typing import Any

import factories as make
import pytest
import sqlalchemy as sa
from check_work import answer, get, settle
from cli_runner import Cli

from app.widgets.labels.ranker import asked_for, surface_data
from data.errors import Conflict
from data.files.paths import Home
from data.labels.check_answers import count_repeats
from data.labels.projects import project_counts
from data.labels.rankings import current_rankings
from data.records import Assignment, Person, Project, Purpose, SubmitOutcome
from data.store import Store
from data.store.tables import draft, ranking, slot
from labeling.judgement.pair_agreement import PairAgreement
from labeling.snapshot.freeze import SnapshotConfig, plan_snapshot
from labeling.work.checks import annotator_table
from labeling.work.session import history, keep_draft, next_work, submit


def prepare(store: Store, n: int = 6, overlap: int = 1) -> tuple[Project, Person]:
    project = settle(store, make.make_project(store, overlap=overlap), repeat_share=0.2)
    for _ in range(n):
        make.make_task(store, project)
    return project, make.make_person(store)


def repeat_after(
    store: Store, person: Person, project: Project, n: int, clock: Any = None
) -> tuple[Assignment, Assignment]:
    """Answer n tasks, and return the first of them with its repeat."""
    first = None
    for _ in range(n):
        [each] = get(store, person, project, dice=lambda: 1.0)
        first = first or each
        answer(store, person, each)
        if clock is not None:
            clock.advance(60)
    assert first is not None
    _, again = get(store, person, project, dice=lambda: 0.0, repeat_after=n - 1)
    assert (again.purpose, again.task.id) == (Purpose.REPEAT, first.task.id)
    return first, again


def test_a_repeat_is_of_an_old_enough_task_in_another_order_and_comes_once(store: Store) -> None:
    project, person = prepare(store)
    first, again = repeat_after(store, person, project, 3)
    assert sorted(again.display_order) == sorted(first.display_order)
    assert again.display_order != first.display_order
    for each in get(store, person, project, dice=lambda: 0.0):
        answer(store, person, each)
    # the fourth and the fifth are among the three newest: only the second and the third can come now
    for _ in range(2):
        for each in get(store, person, project, dice=lambda: 0.0, repeat_after=2):
            assert each.purpose is Purpose.ORDINARY or each.task.id != first.task.id
            answer(store, person, each)
    with store.read() as tx:
        twice = tx.rows(sa.select(slot.c.task_id).where(slot.c.purpose == "repeat"))
    assert len({row.task_id for row in twice}) == len(twice) == 3


@pytest.mark.parametrize("ends", [[0, 1, 2], [2, 1, 0]])
def test_whatever_is_drawn_the_order_is_another_one(sqlite_store: Store, ends: list[int]) -> None:
    project, person = prepare(sqlite_store)
    [first] = get(sqlite_store, person, project, dice=lambda: 1.0, shuffle=lambda _n: ends)
    answer(sqlite_store, person, first)
    found = get(sqlite_store, person, project, dice=lambda: 0.0, shuffle=lambda _n: ends, repeat_after=0)
    assert found[1].display_order == tuple(reversed(ends))


def test_what_was_skipped_unacceptable_or_just_answered_does_not_come_again(store: Store) -> None:
    project, person = prepare(store)
    for said in ({"skip_reason": "no idea"}, {"unacceptable": True}, {}):
        [each] = get(store, person, project, dice=lambda: 1.0)
        answer(store, person, each, **said)
    assert len(get(store, person, project, dice=lambda: 0.0, repeat_after=1)) == 1


def test_a_repeat_fills_no_slot_and_goes_into_no_snapshot(store: Store) -> None:
    project, person = prepare(store)
    before = plan_snapshot(store, project.id, SnapshotConfig()).counts
    assert before["left_out"]["repeat"] == 0
    first, again = repeat_after(store, person, project, 3)
    answer(store, person, again, (3, 2, 1))
    with store.read() as tx:
        counts = project_counts(tx, project.id)
        answers = [each for each, _ in current_rankings(tx, project.id, with_gold=True)]
        assert count_repeats(tx, project.id) == 1
    assert (counts["slots"], counts["slots_done"], counts["rankings"]) == (6, 3, 3)
    assert [each.ranks for each in answers if each.task_id == first.task.id] == [(1, 2, 3)]
    planned = plan_snapshot(store, project.id, SnapshotConfig()).counts
    assert (planned["rankings_used"], planned["left_out"]["repeat"]) == (3, 1)
    others = [make.make_person(store) for _ in range(3)]
    assert [len(get(store, each, project, n=9)) for each in others] == [2, 0, 0]  # one is held by the person


def test_the_schema_allows_one_answer_and_one_repeat(store: Store) -> None:
    project, person = prepare(store)
    _, again = repeat_after(store, person, project, 2)
    key = answer(store, person, again)
    again_and_again = {"submission_key": "another-key", "task_id": again.slot_id, "lease_token": again.lease_token,
                       "display_order": list(again.display_order), "ranks": [1, 2, 3]}  # fmt: skip
    assert submit(store, person, again_and_again).outcome is SubmitOutcome.SUPERSEDED
    assert submit(store, person, again_and_again | {"submission_key": key}).outcome is SubmitOutcome.REPEATED
    with store.read() as tx:
        rows = {table: tx.rows(sa.select(table).where(table.c.purpose == "repeat"))[0] for table in (slot, ranking)}
    other = {"id": "another", "lease_token": "another", "submission_key": "one-more-key"}
    for table, row in rows.items():
        double = dict(row._mapping) | {name: value for name, value in other.items() if name in table.c}
        with pytest.raises(Conflict), store.begin() as tx:
            tx.execute(sa.insert(table).values(**double | {"status": "leased"} if table is slot else double))


def test_a_repeat_has_a_draft_and_an_edit_of_its_own(store: Store) -> None:
    project, person = prepare(store)
    first, again = repeat_after(store, person, project, 2)
    keep_draft(store, person, {"task_id": again.slot_id, "at": 1.0, "ranks": [1, None, None], "elapsed_ms": 9000,
                               "display_order": list(again.display_order)})  # fmt: skip
    held = next(each for each in get(store, person, project) if each.purpose is Purpose.REPEAT)
    assert held.draft is not None
    assert held.draft["elapsed_ms"] == 9000
    key = answer(store, person, again, (3, 2, 1))
    with store.read() as tx:
        assert tx.rows(sa.select(draft)) == []
    item = {"submission_key": "edit-of-repeat", "task_id": again.slot_id, "display_order": list(again.display_order)}
    assert submit(store, person, item | {"unacceptable": True, "edit_of": key}).outcome is SubmitOutcome.STORED
    mixed = item | {"submission_key": "edit-of-first", "task_id": first.task.id, "unacceptable": True}
    assert submit(store, person, mixed | {"edit_of": "edit-of-repeat"}).outcome is SubmitOutcome.REFUSED
    with store.read() as tx:
        answers = [each.ranks for each, _ in current_rankings(tx, project.id) if each.task_id == first.task.id]
    assert answers == [(1, 2, 3)]


def test_nothing_on_the_page_tells_a_repeat_and_the_history_keeps_the_two_apart(store: Store) -> None:
    project, person = prepare(store)
    _, again = repeat_after(store, person, project, 2)
    work = next_work(store, person, project.id)
    shown = surface_data(person, work, [], with_drafts=True)
    assert again.slot_id in [each["task_id"] for each in shown["tasks"]]
    assert again.task.id not in [each["task_id"] for each in shown["tasks"]]
    assert len({frozenset(each) for each in shown["tasks"]}) == 1
    assert history(store, person, project.id)[0] == 2  # before the fact: the answers that were given
    answer(store, person, again, (3, 2, 1))
    assert next_work(store, person, project.id).n_done == 3
    lines = asked_for(store, person, project.id, {"history": 0, "at": 1})["history"]["lines"]
    assert len({line["task_id"] for line in lines}) == 3
    opened = asked_for(store, person, project.id, {"open": lines[0]["task_id"], "at": 1})["opened"]
    assert opened["task"]["task_id"] == again.slot_id == lines[0]["task_id"]
    assert opened["task"]["display_order"] == list(again.display_order)
    assert opened["answer"]["ranks"] == [3 - position for position in again.display_order]


def test_self_consistency_is_of_the_first_answer_as_it_was_and_the_repeat_as_it_came(store: Store, clock: Any) -> None:
    project, person = prepare(store)
    first, again = repeat_after(store, person, project, 2, clock)
    key = answer(store, person, again, (2, 1, 3))  # AB the other way round, AC and BC as before
    clock.advance(60)
    for task_id, given in ((first.task.id, first), (again.slot_id, again)):
        edited = {"submission_key": f"edit-{task_id}", "task_id": task_id, "edit_of": key, "ranks": [1, 1, 1]}
        if task_id == first.task.id:
            [own] = [each.ranking for each in history(store, person, project.id)[1] if each.ranking.task_id == task_id
                     and each.ranking.purpose is not Purpose.REPEAT]  # fmt: skip
            edited["edit_of"] = own.id
        ack = submit(store, person, edited | {"display_order": list(given.display_order)})
        assert ack.outcome is SubmitOutcome.STORED
    [row] = annotator_table(store, project.id)
    assert row.consistency == PairAgreement(pytest.approx(2 / 3), 3, 1)
    assert row.n_ranked == 2


def test_a_skipped_repeat_is_no_comparison_and_comes_no_more(store: Store) -> None:
    project, person = prepare(store)
    _, again = repeat_after(store, person, project, 2)
    answer(store, person, again, skip_reason="no idea")
    held = get(store, person, project, n=3, dice=lambda: 0.0, repeat_after=1)
    assert again.slot_id not in [each.slot_id for each in held]
    [row] = annotator_table(store, project.id)
    assert (row.consistency, row.n_skipped) == (PairAgreement(None, 0, 0), 0)


def test_the_word_annotators_shows_it(sqlite_store: Store, home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    project, person = prepare(sqlite_store)
    _, again = repeat_after(sqlite_store, person, project, 2)
    answer(sqlite_store, person, again)
    said = Cli(home.root, capsys)("annotators", project.name)
    assert "1.00 (0.21-1.00, 3 pairs of 1)" in said.out
