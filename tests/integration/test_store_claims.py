"""Handing out tasks and taking answers: leases, tabs, late and extra ones, skips, edits, drafts. On both databases."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from typing import Any

import factories as make
import pytest
import sqlalchemy as sa

from data.errors import NotAllowed, NotFound
from data.label_settings import LabelSettings
from data.labels.people import disable_person, get_person
from data.labels.projects import project_counts, set_settings
from data.labels.rankings import current_rankings, edit_ranking, rankings_of, save_ranking
from data.labels.slots import Waiting, claim_slots
from data.records import (
    Assignment,
    NewRanking,
    Person,
    Project,
    Ranking,
    RankingStatus,
    Role,
    SubmitOutcome,
    Task,
)
from data.store import Store
from data.store.tables import ranking, slot, task
from labeling.work.session import acknowledged, keep_draft, next_work, submit

LEASE_S = 30 * 60.0


def in_order(n: int) -> list[int]:
    return list(range(n))


def answer(given: Assignment, ranks: list[int] | None = None, **changes: Any) -> dict[str, Any]:
    """What the browser sends: ranks by place on the screen."""
    k = len(given.task.responses)
    found = {
        "submission_key": f"key-{given.lease_token}",
        "task_id": given.task.id,
        "lease_token": given.lease_token,
        "display_order": list(given.display_order),
        "duration_ms": 1500,
    }
    if not changes.keys() & {"skip_reason", "unacceptable"}:
        found["ranks"] = ranks or list(range(1, k + 1))
    return found | changes


def stored(store: Store, project: Project) -> list[Ranking]:
    with store.read() as tx:
        return [each for each, _ in current_rankings(tx, project.id)]


def slots_of(store: Store, of_task: Task) -> list[tuple[str, str | None]]:
    with store.read() as tx:
        rows = tx.rows(sa.select(slot).where(slot.c.task_id == of_task.id).order_by(slot.c.slot_no))
        return [(row.status, row.annotator_id) for row in rows]


def first(store: Store, person: Person, project: Project) -> Assignment:
    return next_work(store, person, project.id, n=1).assignments[0]


# Claims


def test_tasks_are_handed_out_in_the_project_s_order_and_only_once(store: Store) -> None:
    project, ann, bob = make.make_project(store), make.make_person(store), make.make_person(store)
    tasks = [make.make_task(store, project).id for _ in range(6)]
    of_ann = [each.task.id for each in next_work(store, ann, project.id, n=4).assignments]
    of_bob = next_work(store, bob, project.id, n=4)
    assert of_ann == tasks[:4]
    assert [each.task.id for each in of_bob.assignments] == tasks[4:]


def test_each_task_goes_to_as_many_people_as_the_project_wants(store: Store) -> None:
    project = make.make_project(store, overlap=3)
    made = [make.make_task(store, project) for _ in range(2)]
    people = [make.make_person(store) for _ in range(5)]
    found = [[each.task.id for each in next_work(store, person, project.id, n=4).assignments] for person in people]
    assert found == [[each.id for each in made]] * 3 + [[]] * 2
    assert all(len(slots_of(store, each)) == 3 for each in made)


@pytest.mark.parametrize("overlap", [1, 7, 20])
def test_one_claim_gets_n_different_tasks_however_many_slots_each_has(store: Store, overlap: int) -> None:
    project, person = make.make_project(store, overlap=overlap), make.make_person(store)
    made = [make.make_task(store, project).id for _ in range(5)]
    assert [each.task.id for each in next_work(store, person, project.id, n=4).assignments] == made[:4]


def test_every_tab_of_a_person_shows_the_same_tasks_in_the_same_order(store: Store) -> None:
    project, person = make.make_project(store), make.make_person(store)
    for _ in range(6):
        make.make_task(store, project, *"abcdefgh")
    one, other = (next_work(store, person, project.id, n=3).assignments for _ in range(2))
    assert [replace(each, lease_expires_at=0.0) for each in one] == [
        replace(each, lease_expires_at=0.0) for each in other
    ]
    assert len({each.lease_token for each in one}) == 3


def test_the_display_order_is_drawn_for_each_assignment_and_kept(store: Store) -> None:
    project = make.make_project(store, overlap=40)
    made = make.make_task(store, project, *"abcd")
    orders = set()
    for _ in range(40):
        given = first(store, make.make_person(store), project)
        assert sorted(given.display_order) == in_order(4)
        orders.add(given.display_order)
        assert [response.text for response in given.task.responses] == list("abcd")
    assert len(orders) > 8  # of 24; the chance of fewer in 40 drawings is below 1e-15
    assert len(slots_of(store, made)) == 40


def test_a_project_s_tasks_stay_in_their_project(store: Store) -> None:
    one, other, person = make.make_project(store), make.make_project(store), make.make_person(store)
    mine = make.make_task(store, one)
    make.make_task(store, other)
    assert [each.task.id for each in next_work(store, person, one.id, n=4).assignments] == [mine.id]


def test_a_lease_that_ran_out_goes_to_the_next_one(store: Store, clock: Any) -> None:
    project, ann, bob = make.make_project(store), make.make_person(store), make.make_person(store)
    made = make.make_task(store, project)
    given = first(store, ann, project)
    assert next_work(store, bob, project.id).assignments == []
    clock.advance(LEASE_S)
    assert next_work(store, bob, project.id).assignments == []  # to the last moment
    clock.advance(1)
    taken = first(store, bob, project)
    assert taken.task.id == made.id
    assert taken.lease_token != given.lease_token


def test_an_open_page_keeps_its_leases(store: Store, clock: Any) -> None:
    project, ann, bob = make.make_project(store), make.make_person(store), make.make_person(store)
    make.make_task(store, project)
    given = first(store, ann, project)
    for _ in range(3):
        clock.advance(LEASE_S - 1)
        assert first(store, ann, project).lease_token == given.lease_token
    assert next_work(store, bob, project.id).assignments == []


def test_a_lease_that_ran_out_is_still_one_s_own_as_long_as_nobody_took_it(store: Store, clock: Any) -> None:
    project, ann = make.make_project(store), make.make_person(store)
    make.make_task(store, project)
    given = first(store, ann, project)
    clock.advance(10 * LEASE_S)
    assert first(store, ann, project).lease_token == given.lease_token


def test_who_finds_nothing_is_told_what_is_with_others_and_until_when(store: Store, clock: Any) -> None:
    project, ann, bob = make.make_project(store), make.make_person(store), make.make_person(store)
    for _ in range(3):
        make.make_task(store, project)
    until = clock.now + LEASE_S
    next_work(store, ann, project.id, n=2)
    clock.advance(60)
    next_work(store, ann, project.id, n=0)  # prolongs the leases
    with_others = next_work(store, bob, project.id)
    assert len(with_others.assignments) == 1
    submit(store, bob, answer(with_others.assignments[0]))
    assert next_work(store, bob, project.id).waiting == Waiting(2, until + 60)
    assert next_work(store, ann, project.id).waiting == Waiting(0, None)


def test_only_those_who_may_rank_get_work(store: Store) -> None:
    project, person = make.make_project(store), make.make_person(store)
    make.make_task(store, project)
    with store.begin() as tx:
        disable_person(tx, person.id)
        gone = get_person(tx, person.id)
    for use_case in (
        lambda: next_work(store, gone, project.id),
        lambda: submit(store, gone, {}),
        lambda: keep_draft(store, gone, {}),
    ):
        with pytest.raises(NotAllowed):
            use_case()
    for role in Role:
        assert next_work(store, make.make_person(store, role), project.id) is not None
    with pytest.raises(NotFound, match="no project 'nowhere'"):
        next_work(store, make.make_person(store), "nowhere")


# Answers


def test_an_answer_is_stored_by_stored_position(store: Store) -> None:
    project, person = make.make_project(store), make.make_person(store)
    made = make.make_task(store, project, "worst", "best", "middle")
    given = first(store, person, project)
    by_text = {"best": 1, "middle": 2, "worst": 3}
    shown = [by_text[made.responses[position].text] for position in given.display_order]
    ack = submit(store, person, answer(given, shown))
    assert (ack.outcome, ack.submission_key) == (SubmitOutcome.STORED, f"key-{given.lease_token}")
    [found] = stored(store, project)
    assert found.ranks == (3, 1, 2)
    assert found.display_order == given.display_order
    assert (found.annotator_id, found.duration_ms, found.source) == (person.id, 1500, "app")
    assert (found.is_late, found.is_extra, found.version) == (False, False, 1)
    assert slots_of(store, made) == [("done", person.id)]


def test_ties_are_stored_in_competition_form(store: Store) -> None:
    project, person = make.make_project(store), make.make_person(store)
    make.make_task(store, project, *"abcd")
    given = first(store, person, project)
    submit(store, person, answer(given, [1, 2, 2, 3]))
    assert sorted(stored(store, project)[0].ranks or ()) == [1, 2, 2, 4]


def test_the_same_submission_twice_is_stored_once(store: Store) -> None:
    project, person = make.make_project(store), make.make_person(store)
    make.make_task(store, project)
    given = first(store, person, project)
    outcomes = [submit(store, person, answer(given)).outcome for _ in range(3)]
    assert outcomes == [SubmitOutcome.STORED, SubmitOutcome.REPEATED, SubmitOutcome.REPEATED]
    assert len(stored(store, project)) == 1
    assert acknowledged(store, [f"key-{given.lease_token}", "another-key"]) == {f"key-{given.lease_token}"}
    assert acknowledged(store, []) == set()


def test_the_answer_of_a_second_tab_does_not_replace_the_first(store: Store) -> None:
    project, person = make.make_project(store), make.make_person(store)
    make.make_task(store, project)
    given = first(store, person, project)
    submit(store, person, answer(given, [1, 2, 3]))
    ack = submit(store, person, answer(given, [3, 2, 1], submission_key="another-tab"))
    assert ack.outcome is SubmitOutcome.SUPERSEDED
    assert "in another tab" in ack.reason
    assert len(stored(store, project)) == 1
    assert stored(store, project)[0].submission_key == f"key-{given.lease_token}"


def test_a_late_answer_is_kept_and_marked(store: Store, clock: Any) -> None:
    project, person = make.make_project(store), make.make_person(store)
    made = make.make_task(store, project)
    given = first(store, person, project)
    clock.advance(LEASE_S + 1)
    assert submit(store, person, answer(given)).outcome is SubmitOutcome.STORED
    [found] = stored(store, project)
    assert (found.is_late, found.is_extra) == (True, False)
    assert slots_of(store, made) == [("done", person.id)]


def test_a_late_answer_takes_another_free_slot(store: Store, clock: Any) -> None:
    project, (ann, bob) = make.make_project(store, overlap=2), [make.make_person(store) for _ in range(2)]
    made = make.make_task(store, project)
    given = first(store, ann, project)
    clock.advance(LEASE_S + 1)
    assert first(store, bob, project).slot_id == given.slot_id  # the first slot, which had been ann's
    submit(store, ann, answer(given))
    assert [(each.is_late, each.is_extra) for each in stored(store, project)] == [(True, False)]
    assert slots_of(store, made) == [("leased", bob.id), ("done", ann.id)]


def test_a_late_answer_to_a_full_task_is_kept_as_extra(store: Store, clock: Any) -> None:
    project, ann, bob = make.make_project(store), make.make_person(store), make.make_person(store)
    made = make.make_task(store, project)
    of_ann = first(store, ann, project)
    clock.advance(LEASE_S + 1)
    of_bob = first(store, bob, project)
    assert submit(store, bob, answer(of_bob)).outcome is SubmitOutcome.STORED
    assert submit(store, ann, answer(of_ann)).outcome is SubmitOutcome.STORED
    flags = {each.annotator_id: (each.is_late, each.is_extra) for each in stored(store, project)}
    assert flags == {ann.id: (True, True), bob.id: (False, False)}
    assert slots_of(store, made) == [("done", bob.id)]


def test_a_late_answer_leaves_another_s_lease_alone(store: Store, clock: Any) -> None:
    project, ann, bob = make.make_project(store), make.make_person(store), make.make_person(store)
    made = make.make_task(store, project)
    of_ann = first(store, ann, project)
    clock.advance(LEASE_S + 1)
    of_bob = first(store, bob, project)
    submit(store, ann, answer(of_ann))
    assert slots_of(store, made) == [("leased", bob.id)]
    submit(store, bob, answer(of_bob))
    flags = {each.annotator_id: (each.is_late, each.is_extra) for each in stored(store, project)}
    assert flags == {ann.id: (True, True), bob.id: (False, False)}


def test_an_answer_under_a_token_of_an_earlier_lease_is_late(store: Store) -> None:
    project, person = make.make_project(store), make.make_person(store)
    make.make_task(store, project)
    given = first(store, person, project)
    submit(store, person, answer(given, lease_token="of-another-lease"))
    assert stored(store, project)[0].is_late


def test_the_guidelines_that_the_annotator_saw_are_recorded(store: Store) -> None:
    from data.labels.projects import set_guidelines

    project, person = make.make_project(store), make.make_person(store)
    for _ in range(2):
        make.make_task(store, project)
    submit(store, person, answer(first(store, person, project)))
    with store.begin() as tx:
        set_guidelines(tx, project.id, "new ones")
        assert set_guidelines(tx, project.id, "new ones").guidelines_version == 2  # no change, no version
    submit(store, person, answer(first(store, person, project)))
    assert sorted(each.guidelines_version for each in stored(store, project)) == [1, 2]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"ranks": [1, 2]}, "3 ranks are needed"),
        ({"ranks": None}, "3 ranks are needed"),
        ({"ranks": [1, 2, 4]}, "out of range"),
        ({"ranks": [1, None, 2]}, "rank None"),
        ({"ranks": [1, True, 2]}, "rank True"),
        ({"ranks": [1, 1.0, 2]}, "rank 1.0"),
        ({"ranks": [1, 3, 3]}, "gap"),
        ({"display_order": [0, 1]}, "not an order of this task's 3 responses"),
        ({"display_order": [0, 0, 1]}, "not an order"),
        ({"display_order": [0, True, 2]}, "not an order"),
        ({"display_order": None}, "not an order"),
        ({"display_order": ["0", "1", "2"]}, "not an order"),
        ({"task_id": "nothing"}, "no task 'nothing'"),
        ({"task_id": None}, "no task 'None'"),
        ({"task_id": "a\x00b"}, ""),
        ({"task_id": "\ud800"}, ""),
        ({"submission_key": "short"}, "no proper key"),
        ({"submission_key": "k" * 81}, "no proper key"),
        ({"submission_key": None}, "no proper key"),
        ({"submission_key": "a-key-with-\x00-in-it"}, "no proper key"),
        ({"submission_key": "a-key-with-\ud800-in-it"}, "no proper key"),
        ({"ranks": None, "skip_reason": "  "}, "a skip needs a reason"),
        ({"ranks": None, "skip_reason": 7}, "is not a text"),
        ({"skip_reason": "no idea"}, "not both"),
    ],
)
def test_what_can_not_be_right_is_refused_and_nothing_is_stored(
    sqlite_store: Store, changes: dict[str, Any], reason: str
) -> None:
    store = sqlite_store
    project, person = make.make_project(store), make.make_person(store)
    made = make.make_task(store, project)
    given = first(store, person, project)
    ack = submit(store, person, answer(given) | changes)
    assert ack.outcome is SubmitOutcome.REFUSED
    assert reason in ack.reason
    assert stored(store, project) == []
    assert slots_of(store, made) == [("leased", person.id)]
    assert submit(store, person, answer(given)).outcome is SubmitOutcome.STORED


def test_text_that_postgresql_refuses_is_a_refusal_there_too(store: Store) -> None:
    project, person = make.make_project(store), make.make_person(store)
    make.make_task(store, project)
    given = first(store, person, project)
    for task_id in ("a\x00b", "\ud800"):
        assert submit(store, person, answer(given, task_id=task_id)).outcome is SubmitOutcome.REFUSED
    assert submit(store, person, answer(given, None, skip_reason="a\x00\ud800b")).outcome is SubmitOutcome.STORED
    assert stored(store, project)[0].skip_reason == "a\ufffdb"


@pytest.mark.parametrize("duration", [-1, 2**31, 1.5, "12", None, True])
def test_a_duration_that_can_not_be_right_is_left_out(sqlite_store: Store, duration: object) -> None:
    project, person = make.make_project(sqlite_store), make.make_person(sqlite_store)
    make.make_task(sqlite_store, project)
    submit(sqlite_store, person, answer(first(sqlite_store, person, project), duration_ms=duration))
    assert stored(sqlite_store, project)[0].duration_ms is None


# Skips


def test_a_skipped_task_goes_to_somebody_else_and_not_back(store: Store) -> None:
    project, ann, bob = make.make_project(store), make.make_person(store), make.make_person(store)
    made = make.make_task(store, project)
    ack = submit(store, ann, answer(first(store, ann, project), skip_reason="no idea"))
    assert ack.outcome is SubmitOutcome.STORED
    [found] = stored(store, project)
    assert (found.status, found.ranks, found.skip_reason) == (RankingStatus.SKIPPED, None, "no idea")
    assert slots_of(store, made) == [("free", None)]
    assert next_work(store, ann, project.id).assignments == []
    assert first(store, bob, project).task.id == made.id


def test_a_task_that_is_skipped_often_is_set_aside(store: Store) -> None:
    project = make.make_project(store, overlap=2, max_skips=2)
    made = make.make_task(store, project)
    people = [make.make_person(store) for _ in range(4)]
    holding = next_work(store, people[3], project.id).assignments
    assert len(holding) == 1
    for person in people[:2]:
        submit(store, person, answer(first(store, person, project), skip_reason="no idea"))
    assert next_work(store, people[2], project.id).assignments == []
    assert next_work(store, people[3], project.id).assignments == []  # taken off the screen too
    assert submit(store, people[3], answer(holding[0])).outcome is SubmitOutcome.STORED  # but what was done counts
    with store.read() as tx:
        assert project_counts(tx, project.id)["tasks_set_aside"] == 1
        assert tx.scalar(sa.select(task.c.is_set_aside).where(task.c.id == made.id))


# Edits


def edit(store: Store, old: Ranking, ranks: list[int] | None, key: str = "edit-key") -> SubmitOutcome:
    with store.begin() as tx:
        new = NewRanking(
            task_id=old.task_id,
            annotator_id=old.annotator_id,
            submission_key=key,
            status=RankingStatus.RANKED if ranks else RankingStatus.SKIPPED,
            ranks=tuple(ranks) if ranks else None,
            display_order=old.display_order,
            skip_reason=None if ranks else "no idea",
        )
        return edit_ranking(tx, old.id, new)


def test_an_edit_is_a_new_version_and_the_old_one_stays(store: Store) -> None:
    project, person = make.make_project(store), make.make_person(store)
    made = make.make_task(store, project)
    old = make.make_ranking(store, made, person, [1, 2, 3])
    assert edit(store, old, [3, 2, 1]) is SubmitOutcome.STORED
    assert edit(store, old, [3, 2, 1]) is SubmitOutcome.REPEATED
    [new] = stored(store, project)
    assert (new.ranks, new.version, new.supersedes_id, new.is_late, new.is_extra) == (
        (3, 2, 1),
        2,
        old.id,
        False,
        False,
    )
    with store.read() as tx:
        rows = {row.id: row for row in tx.rows(sa.select(ranking))}
        assert rankings_of(tx, person.id, project.id) == [new]
    assert rows[old.id].ranks == "[1, 2, 3]"
    assert rows[old.id].superseded_at is not None
    assert slots_of(store, made) == [("done", person.id)]


def test_only_the_current_answer_of_its_author_can_be_edited(store: Store) -> None:
    project, ann, bob = make.make_project(store, overlap=2), make.make_person(store), make.make_person(store)
    made = make.make_task(store, project)
    old = make.make_ranking(store, made, ann, [1, 2, 3])
    edit(store, old, [2, 1, 3])
    for wrong in (old, replace(old, annotator_id=bob.id), replace(old, id="nothing")):
        with pytest.raises(NotFound, match="not your current answer"):
            edit(store, wrong, [3, 2, 1], key="another-key")
    assert [each.ranks for each in stored(store, project)] == [(2, 1, 3)]


def test_an_edit_from_a_ranking_to_a_skip_and_back(store: Store) -> None:
    project, person, other = make.make_project(store, max_skips=1), make.make_person(store), make.make_person(store)
    made = make.make_task(store, project)
    edit(store, make.make_ranking(store, made, person, [1, 2, 3]), None, key="to-a-skip")
    assert slots_of(store, made) == [("free", None)]
    [skipped] = stored(store, project)
    with store.read() as tx:
        assert tx.scalar(sa.select(task.c.is_set_aside))
    edit(store, skipped, [3, 1, 2], key="and-back")
    assert slots_of(store, made) == [("done", person.id)]
    assert [(each.ranks, each.version, each.is_extra) for each in stored(store, project)] == [((3, 1, 2), 3, False)]
    with store.read() as tx:
        assert not tx.scalar(sa.select(task.c.is_set_aside))
    assert next_work(store, other, project.id).assignments == []


# Drafts


def test_the_newest_draft_wins_whatever_the_order_of_arrival(store: Store) -> None:
    project, person = make.make_project(store), make.make_person(store)
    made = make.make_task(store, project)
    for at, ranks in ((3.0, [1, None, None]), (5.0, [1, 2, None]), (4.0, [None, None, None]), (5.0, [3, 3, 3])):
        keep_draft(store, person, {"task_id": made.id, "ranks": ranks, "at": at, "display_order": [0, 1, 2]})
    draft = first(store, person, project).draft
    assert draft is not None
    assert (draft["ranks"], draft["at"]) == ([1, 2, None], 5.0)


def test_a_draft_is_its_author_s_and_ends_with_the_answer(store: Store) -> None:
    project, ann, bob = make.make_project(store, overlap=2), make.make_person(store), make.make_person(store)
    made = make.make_task(store, project)
    keep_draft(store, ann, {"task_id": made.id, "ranks": [1, None, None], "at": 1.0})
    assert first(store, bob, project).draft is None
    submit(store, ann, answer(first(store, ann, project)))
    with store.read() as tx:
        assert tx.scalar(sa.text("select count(*) from draft")) == 0


@pytest.mark.parametrize(
    "draft",
    [
        {},
        {"ranks": [1, 2, 3], "at": 1.0},
        {"ranks": [1, 2], "at": 1.0, "task_id": "T"},
        {"ranks": [1, "2", 3], "at": 1.0, "task_id": "T"},
        {"ranks": [1, 2, 3], "at": "soon", "task_id": "T"},
        {"ranks": [1, 2, 3], "at": float("nan"), "task_id": "T"},
        {"ranks": [1, 2, 3], "at": float("inf"), "task_id": "T"},
        {"ranks": [1, 2, 3], "at": 1.0, "task_id": "nothing"},
    ],
)
def test_a_draft_that_can_not_be_right_is_left_alone(sqlite_store: Store, draft: dict[str, Any]) -> None:
    project, person = make.make_project(sqlite_store), make.make_person(sqlite_store)
    made = make.make_task(sqlite_store, project)
    keep_draft(sqlite_store, person, draft | ({"task_id": made.id} if draft.get("task_id") == "T" else {}))
    assert first(sqlite_store, person, project).draft is None


# At once


def at_once(*works: Any) -> list[Any]:
    """Do all of it at the same time, each in a thread; return what each returned or raised."""
    barrier, results = threading.Barrier(len(works)), [None] * len(works)

    def run(place: int) -> None:
        barrier.wait()
        try:
            results[place] = works[place]()
        except Exception as error:
            results[place] = error

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_two_tabs_that_open_at_once_get_the_same_tasks(store: Store) -> None:
    project = make.make_project(store, overlap=3)
    for _ in range(8):
        make.make_task(store, project)
    for _ in range(5):
        person = make.make_person(store)
        found = at_once(*[lambda person=person: next_work(store, person, project.id).assignments] * 4)
        assert not [each for each in found if isinstance(each, Exception)]
        tokens = [[given.lease_token for given in each] for each in found]
        assert all(each == tokens[0] and len(each) == 4 for each in tokens) or not tokens[0]


def test_the_last_slots_go_round_without_a_false_end(store: Store) -> None:
    """As many people as slots, all at once: each gets one, nobody is told that there is nothing."""
    for _ in range(3):
        project = make.make_project(store, overlap=2)
        for _ in range(4):
            make.make_task(store, project)
        claims = [partial(next_work, store, make.make_person(store), project.id, n=1) for _ in range(8)]
        found = [getattr(each, "assignments", each) for each in at_once(*claims)]
        assert not [each for each in found if isinstance(each, Exception)]
        assert [len(each) for each in found] == [1] * 8


def test_one_answer_sent_eight_times_at_once_is_stored_once(store: Store) -> None:
    project, person = make.make_project(store), make.make_person(store)
    for _ in range(5):
        make.make_task(store, project)
        given = first(store, person, project)
        found = at_once(*[lambda given=given: submit(store, person, answer(given)).outcome] * 8)
        assert sorted(found) == sorted([SubmitOutcome.STORED] + [SubmitOutcome.REPEATED] * 7)
    assert len(stored(store, project)) == 5


def test_two_late_answers_at_once_never_fill_one_slot_twice(store: Store, clock: Any) -> None:
    for _ in range(5):
        project = make.make_project(store)
        made = make.make_task(store, project)
        people = []
        for _ in range(3):
            people.append((person := make.make_person(store), first(store, person, project)))
            clock.advance(LEASE_S + 1)
        found = at_once(*[lambda who=who, given=given: submit(store, who, answer(given)) for who, given in people])
        assert [each.outcome for each in found] == [SubmitOutcome.STORED] * 3
        assert sorted(each.is_extra for each in stored(store, project)) == [False, True, True]
        assert [status for status, _ in slots_of(store, made)] == ["done"]


def test_a_late_answer_does_not_take_a_slot_that_is_being_claimed(store: Store, clock: Any) -> None:
    """The claim is not committed yet when the answer arrives: the answer waits for it, and then leaves it alone."""
    project, ann, bob = make.make_project(store), make.make_person(store), make.make_person(store)
    made = make.make_task(store, project)
    of_ann = first(store, ann, project)
    clock.advance(LEASE_S + 1)
    with store.begin() as tx:
        free = {"status": "free", "annotator_id": None, "lease_token": None}
        tx.execute(sa.update(slot).where(slot.c.task_id == made.id).values(**free))
    acks = []
    sender = threading.Thread(target=lambda: acks.append(submit(store, ann, answer(of_ann))))
    with store.begin() as tx:
        assert len(claim_slots(tx, project.id, bob.id, 1)) == 1
        sender.start()
        sender.join(timeout=0.5)
        assert sender.is_alive()
    sender.join()
    assert acks[0].outcome is SubmitOutcome.STORED
    assert slots_of(store, made) == [("leased", bob.id)]
    assert stored(store, project)[-1].is_extra


def test_two_edits_at_once_make_one_new_version(store: Store) -> None:
    project, person = make.make_project(store), make.make_person(store)
    old = make.make_ranking(store, make.make_task(store, project), person, [1, 2, 3])
    found = at_once(*[lambda n=n: edit(store, old, [3, 2, 1], key=f"edit-{n}") for n in range(4)])
    assert found.count(SubmitOutcome.STORED) == 1
    assert sum(isinstance(each, NotFound) for each in found) == 3
    assert [each.version for each in stored(store, project)] == [2]


def test_a_ranking_saved_twice_in_one_transaction_is_stored_once(store: Store) -> None:
    project, person = make.make_project(store), make.make_person(store)
    made = make.make_task(store, project)
    with store.begin() as tx:
        new = NewRanking(made.id, person.id, "the-key", RankingStatus.RANKED, (1, 2, 3), (0, 1, 2))
        assert [save_ranking(tx, new) for _ in range(2)] == [SubmitOutcome.STORED, SubmitOutcome.REPEATED]


def test_tasks_in_random_order_come_in_that_order_for_everybody(store: Store) -> None:
    project = make.make_project(store, overlap=2)
    tasks = [make.make_task(store, project, prompt=f"prompt {n}", slots=2).id for n in range(12)]
    with store.begin() as tx:
        set_settings(tx, project.id, settings=LabelSettings(task_order="random"))
        for n in range(12, 14):  # made after the change: they are drawn too
            tasks.append(make.make_task(tx, project, prompt=f"prompt {n}", slots=2).id)
    orders = []
    for person in (make.make_person(store), make.make_person(store)):
        with store.begin() as tx:
            orders.append([each.task.id for each in claim_slots(tx, project.id, person.id, 14)])
    assert sorted(orders[0]) == sorted(tasks)
    assert orders[0] == orders[1] != tasks  # one order in 14! is that of the tasks
    with store.begin() as tx:
        set_settings(tx, project.id, settings=LabelSettings())
        turns = {row.turn for row in tx.rows(sa.select(slot.c.turn))}
    assert turns == {0.0}


def test_no_response_is_acceptable_is_an_answer_of_its_own(store: Store) -> None:
    project, ann = make.make_project(store), make.make_person(store)
    make.make_task(store, project)
    (given,) = next_work(store, ann, project.id).assignments
    both = submit(store, ann, answer(given) | {"unacceptable": True})
    assert (both.outcome, both.reason[:9]) == (SubmitOutcome.REFUSED, "an answer")
    assert submit(store, ann, answer(given, unacceptable=True)).outcome is SubmitOutcome.STORED
    (found,) = stored(store, project)
    assert (found.status, found.ranks, found.skip_reason) == (RankingStatus.UNACCEPTABLE, None, None)
    with store.read() as tx:
        counts = project_counts(tx, project.id)
    assert (counts["unacceptable"], counts["rankings"], counts["skips"]) == (1, 0, 0)
    assert (counts["slots_done"], counts["tasks_set_aside"]) == (1, 0)  # unlike a skip it fills the slot
    assert next_work(store, ann, project.id).n_done == 1


def test_a_rest_in_no_order_is_stored_as_just_that(store: Store) -> None:
    project, ann = make.make_project(store), make.make_person(store)
    make.make_task(store, project, "a", "b", "c", "d")
    (given,) = next_work(store, ann, project.id, shuffle=lambda _: [2, 0, 3, 1]).assignments
    sent = answer(given, [2, 1, 2, 2], unplaced=[0, 2, 3])
    refused = submit(store, ann, sent)
    assert (refused.outcome, refused.reason) == (SubmitOutcome.REFUSED, "this project wants every response placed")
    with store.begin() as tx:
        set_settings(tx, project.id, settings=LabelSettings(allow_partial=True))
    for wrong in ([0, 2], [1], [0, 1, 2, 3], "all", [0, 2, 9]):
        assert submit(store, ann, sent | {"unplaced": wrong}).outcome is SubmitOutcome.REFUSED
    assert submit(store, ann, sent).outcome is SubmitOutcome.STORED
    (found,) = stored(store, project)
    assert found.ranks == (1, 2, 2, 2)  # place 1 shows position 0
    assert found.detail.unplaced == (1, 2, 3)
