"""Who gets what, and how often: strict overlap under skips, leases, late work; counters; the index behind it all.

What people reported of other tools, row by row of the study of labelling tools (13 to 20). On both databases.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from typing import Any

import factories as make
import pytest
import sqlalchemy as sa

from data.label_settings import LabelSettings
from data.labels.projects import project_counts, set_settings
from data.labels.rankings import current_rankings
from data.labels.slots import Waiting
from data.records import Assignment, Person, Project, Ranking, RankingStatus, SubmitOutcome
from data.store import Store
from labeling.work.session import Ack, next_work, submit


def send(store: Store, person: Person, given: Assignment, *, skip: bool = False) -> Ack:
    item: dict[str, Any] = {
        "submission_key": f"key-{person.id}-{given.lease_token}",
        "task_id": given.task.id,
        "lease_token": given.lease_token,
        "display_order": list(given.display_order),
        "duration_ms": 1500,
    }
    return submit(store, person, item | ({"skip_reason": "no idea"} if skip else {"ranks": [1, 2, 3]}))


def stored(store: Store, project: Project) -> list[Ranking]:
    with store.read() as tx:
        return [each for each, _ in current_rankings(tx, project.id)]


def open_task(store: Store, person: Person, project: Project) -> Assignment | None:
    return next(iter(next_work(store, person, project.id, n=1).assignments), None)


def test_row_13_at_overlap_one_no_two_people_ever_hold_one_task(store: Store) -> None:
    project, people = make.make_project(store), [make.make_person(store) for _ in range(6)]
    for _ in range(10):
        make.make_task(store, project)
    barrier, found = threading.Barrier(6), []

    def claim(person: Person) -> None:
        barrier.wait()
        found.append([each.task.id for each in next_work(store, person, project.id, n=2).assignments])

    threads = [threading.Thread(target=claim, args=(person,)) for person in people]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    held = Counter(task_id for each in found for task_id in each)
    assert len(held) == 10
    assert set(held.values()) == {1}


def test_row_14_skips_do_not_fill_the_overlap_and_do_not_overshoot_it(store: Store) -> None:
    """Seven people, two skips among them, all holding what they can: two answers, not one, not three."""
    project = make.make_project(store, overlap=2, max_skips=10)
    make.make_task(store, project)
    people, n_given = [make.make_person(store) for _ in range(7)], 0
    for number, person in enumerate(people):
        given = open_task(store, person, project)
        n_given += given is not None
        if given is not None:
            assert send(store, person, given, skip=number in (0, 2)).outcome is SubmitOutcome.STORED
    answers = stored(store, project)
    assert n_given == 4
    assert Counter(each.status for each in answers) == {RankingStatus.SKIPPED: 2, RankingStatus.RANKED: 2}
    assert not any(each.is_extra for each in answers)


def test_row_14_live_leases_count_towards_the_overlap(store: Store) -> None:
    project = make.make_project(store, overlap=2)
    make.make_task(store, project)
    one, two, three = (make.make_person(store) for _ in range(3))
    held = open_task(store, one, project)
    assert held is not None
    assert open_task(store, two, project) is not None
    assert open_task(store, three, project) is None
    send(store, one, held, skip=True)
    assert open_task(store, three, project) is not None


def test_row_15_an_absent_annotator_s_tasks_come_free_and_the_others_are_told_when(store: Store, clock: Any) -> None:
    project, gone, here = make.make_project(store), make.make_person(store), make.make_person(store)
    for _ in range(3):
        make.make_task(store, project)
    started = clock.now
    next_work(store, gone, project.id, n=3)
    assert next_work(store, here, project.id).waiting == Waiting(3, started + 1800)
    clock.advance(1801)
    assert len(next_work(store, here, project.id, n=3).assignments) == 3


@pytest.mark.parametrize("seed", range(4))
def test_rows_16_and_17_every_task_gets_its_overlap_and_nobody_a_task_twice(store: Store, seed: int) -> None:
    """A crowd that skips now and then, until nobody finds anything: strictly n answers a task, none extra."""
    draw = random.Random(seed)
    project = make.make_project(store, overlap=3, max_skips=100)
    tasks = [make.make_task(store, project).id for _ in range(5)]
    people = [make.make_person(store) for _ in range(8)]
    idle = 0
    while idle < 30:
        person = draw.choice(people)
        given = open_task(store, person, project)
        idle = 0 if given is not None else idle + 1
        if given is not None:
            # A task that all would skip could not get its three: the first five people never do.
            send(store, person, given, skip=draw.random() < 0.4 and person in people[5:])
    answers = stored(store, project)
    ranked = Counter(each.task_id for each in answers if each.status is RankingStatus.RANKED)
    assert ranked == dict.fromkeys(tasks, 3)
    assert len({(each.task_id, each.annotator_id) for each in answers}) == len(answers)
    assert not any(each.is_extra or each.is_late for each in answers)
    fresh = make.make_person(store)
    work = next_work(store, fresh, project.id)
    assert (work.assignments, work.waiting) == ([], Waiting(0, None))  # the page then says that nothing is left


def test_row_18_counts_are_what_the_answers_say_after_skips_edits_and_late_work(store: Store) -> None:
    project = make.make_project(store, overlap=2)
    people = [make.make_person(store) for _ in range(3)]
    for _ in range(2):
        make.make_task(store, project)
    for number, person in enumerate(people):
        for given in next_work(store, person, project.id, n=2).assignments:
            send(store, person, given, skip=number == 0)
    with store.read() as tx:
        counts = project_counts(tx, project.id)
    assert {name: counts[name] for name in ("slots", "slots_done", "rankings", "skips")} == {
        "slots": 4,
        "slots_done": 4,
        "rankings": 4,
        "skips": 2,
    }
    assert [next_work(store, person, project.id).n_done for person in people] == [0, 2, 2]
    answers = stored(store, project)
    assert sum(each.status is RankingStatus.RANKED for each in answers) == counts["rankings"]


def test_row_19_a_task_leaves_the_queue_after_enough_skips_and_is_counted_as_set_aside(store: Store) -> None:
    project = make.make_project(store, max_skips=2)
    made, other = make.make_task(store, project), make.make_task(store, project)
    for _ in range(2):
        person = make.make_person(store)
        given = open_task(store, person, project)
        assert given is not None
        assert given.task.id == made.id
        send(store, person, given, skip=True)
    given = open_task(store, make.make_person(store), project)
    assert given is not None
    assert given.task.id == other.id
    with store.read() as tx:
        assert project_counts(tx, project.id)["tasks_set_aside"] == 1


@pytest.mark.parametrize("order", ["in_order", "random"])
def test_the_next_task_is_found_by_the_index_of_open_slots(store: Store, order: str) -> None:
    """Neither a sort nor a look at what is done: with a hundred thousand slots a claim takes as long as with ten."""
    project, person = make.make_project(store), make.make_person(store)
    with store.begin() as tx:
        set_settings(tx, project.id, settings=LabelSettings(task_order=order))
    make.make_task(store, project)
    seen: list[tuple[str, Any]] = []

    def note(connection: Any, cursor: Any, statement: str, parameters: Any, *rest: Any) -> None:
        if "AS other" in statement:
            seen.append((statement, parameters))

    sa.event.listen(store.write_engine, "before_cursor_execute", note)
    next_work(store, person, project.id, n=1)
    sa.event.remove(store.write_engine, "before_cursor_execute", note)
    statement, parameters = seen[0]
    with store.begin() as tx:
        if not store.is_sqlite:
            tx.connection.exec_driver_sql("set local enable_seqscan = off")
            tx.connection.exec_driver_sql("set local enable_bitmapscan = off")
            tx.connection.exec_driver_sql("set local enable_sort = off")
        explain = "EXPLAIN QUERY PLAN " if store.is_sqlite else "EXPLAIN "
        plan = "\n".join(str(row) for row in tx.connection.exec_driver_sql(explain + statement, parameters))
    assert "ix_slot_open" in plan
    assert "TEMP B-TREE" not in plan
    assert "Sort" not in plan
