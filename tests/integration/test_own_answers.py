"""An annotator's own answers: seen again, changed, counted. On both databases."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import Clock
from factories import make_person, make_project, make_ranking, make_task

from data.errors import NotAllowed, NotFound
from data.files.paths import Home
from data.label_settings import LabelSettings
from data.labels.people import disable_person
from data.labels.projects import set_guidelines, set_settings
from data.labels.rankings import answer_of
from data.labels.roles import OPERATOR
from data.records import Person, RankingStatus, SubmitOutcome
from data.store import Store
from labeling.snapshot.freeze import SnapshotConfig, freeze_snapshot
from labeling.work.session import Ack, history, next_work, reopen, submit

K = 3


def send(store: Store, person: Person, task_id: str, key: str, **what: Any) -> Ack:
    given = {"submission_key": key, "task_id": task_id, "display_order": [0, 1, 2], "duration_ms": 2000}
    return submit(store, person, given | what)


def test_a_change_is_a_new_version(store: Store) -> None:
    project, ann = make_project(store, k=K), make_person(store)
    task = make_task(store, project)
    first = make_ranking(store, task, ann, [1, 2, 3])
    ack = send(store, ann, task.id, "key-of-change", ranks=[3, 2, 1], edit_of=first.id)
    assert ack.outcome is SubmitOutcome.STORED
    found = reopen(store, ann, task.id)[1]
    assert (found.ranks, found.version, found.supersedes_id) == ((3, 2, 1), 2, first.id)
    assert (
        send(store, ann, task.id, "key-of-change", ranks=[3, 2, 1], edit_of=first.id).outcome is SubmitOutcome.REPEATED
    )
    late = send(store, ann, task.id, "key-of-another", ranks=[1, 1, 1], edit_of=first.id)
    assert (late.outcome, "changed this answer elsewhere" in late.reason) == (SubmitOutcome.REFUSED, True)
    assert reopen(store, ann, task.id)[1].ranks == (3, 2, 1)


def test_the_last_submit_can_be_named_by_its_key_before_the_browser_knows_more(store: Store) -> None:
    project, ann = make_project(store, k=K), make_person(store)
    make_task(store, project)
    (held,) = next_work(store, ann, project.id).assignments
    token = {"lease_token": held.lease_token}
    assert send(store, ann, held.task.id, "key-number-1", ranks=[1, 2, 3], **token).outcome is SubmitOutcome.STORED
    again = send(store, ann, held.task.id, "key-number-2", skip_reason="no idea", edit_of="key-number-1")
    third = send(store, ann, held.task.id, "key-number-3", unacceptable=True, edit_of="key-number-2")
    fourth = send(store, ann, held.task.id, "key-number-4", ranks=[2, 1, 3], edit_of="key-number-3")
    assert {each.outcome for each in (again, third, fourth)} == {SubmitOutcome.STORED}
    with store.read() as tx:
        found = answer_of(tx, held.task.id, ann.id)
    assert (found.version, found.status, found.ranks, found.is_extra) == (4, RankingStatus.RANKED, (2, 1, 3), False)
    unknown = send(store, ann, held.task.id, "key-number-5", ranks=[1, 2, 3], edit_of="no-such-key")
    assert unknown.outcome is SubmitOutcome.REFUSED


def test_nobody_changes_what_is_not_theirs(store: Store) -> None:
    project, ann, ben = make_project(store, k=K), make_person(store), make_person(store)
    task = make_task(store, project)
    theirs = make_ranking(store, task, ann, [1, 2, 3])
    assert send(store, ben, task.id, "key-of-ben", ranks=[3, 2, 1], edit_of=theirs.id).outcome is SubmitOutcome.REFUSED
    with pytest.raises(NotFound):
        reopen(store, ben, task.id)
    assert history(store, ben, project.id) == (0, [])
    with store.begin() as tx:
        disable_person(tx, ann.id)
    ann = Person(ann.id, ann.name, ann.role, False, False, ann.created_at, disabled_at=1.0)
    with pytest.raises(NotAllowed):
        history(store, ann, project.id)


def test_the_history_comes_in_pages_the_newest_first(store: Store, home: Home, clock: Clock) -> None:
    project, ann = make_project(store, k=K), make_person(store)
    tasks = []
    for number in range(5):
        clock.advance(60)
        tasks.append(make_task(store, project, prompt=f"prompt {number}:\n\n  " + "long " * 100))
        make_ranking(store, tasks[-1], ann, [1, 2, 3] if number != 3 else None)
        if number == 2:
            freeze_snapshot(store, OPERATOR, home, project.id, SnapshotConfig(eval_share=0.5))
            clock.advance(60)
    n, page = history(store, ann, project.id, limit=2)
    assert (n, [each.ranking.task_id for each in page]) == (5, [tasks[4].id, tasks[3].id])
    assert page[0].prompt == ("prompt 4: " + "long " * 100)[:120]
    assert page[1].ranking.status is RankingStatus.SKIPPED
    _, rest = history(store, ann, project.id, offset=2, limit=20)
    assert [each.ranking.task_id for each in rest] == [tasks[2].id, tasks[1].id, tasks[0].id]
    assert [each.is_frozen for each in page + rest] == [False, False, True, True, True]


def test_the_guidelines_that_were_seen_go_with_the_answer(store: Store) -> None:
    project, ann = make_project(store, k=K), make_person(store)
    tasks = [make_task(store, project) for _ in range(2)]
    with store.begin() as tx:
        assert set_guidelines(tx, project.id, "Be strict").guidelines_version == 2
    send(store, ann, tasks[0].id, "key-of-old", ranks=[1, 2, 3], guidelines_version=1)
    send(store, ann, tasks[1].id, "key-of-none", ranks=[1, 2, 3])
    versions = {each.ranking.task_id: each.ranking.guidelines_version for each in history(store, ann, project.id)[1]}
    assert versions == {tasks[0].id: 1, tasks[1].id: 2}


def test_details_come_back_as_they_were_sent(store: Store) -> None:
    project, ann = make_project(store, k=K), make_person(store)
    task = make_task(store, project)
    with store.begin() as tx:
        set_settings(tx, project.id, settings=LabelSettings(allow_partial=True), flags=("Wrong", "Rude"))
    what = {"acceptable": [False, None, True], "flags": [["Rude", "Wrong"], [], []], "quality": [2, None, 6]}
    sent = what | {"ranks": [1, 2, 2], "unplaced": [1, 2], "strength": 2, "rationale": "so", "display_order": [2, 0, 1]}
    assert send(store, ann, task.id, "key-of-details", **sent).outcome is SubmitOutcome.STORED
    found = reopen(store, ann, task.id)[1]
    assert found.ranks == (2, 2, 1)
    assert found.detail.unplaced == (0, 1)
    assert found.detail.acceptable == (None, True, False)
    assert found.detail.flags == ((), (), ("Rude", "Wrong"))
    assert (found.detail.quality, found.detail.strength, found.comment) == ((None, 6, 2), 2, "so")


def test_own_pace_counts_todays_answers(store: Store, clock: Clock) -> None:
    clock.now = 1_800_000_000.0 // 86400 * 86400 + 3600  # one o'clock at night in Greenwich
    project, ann, ben = make_project(store, k=K), make_person(store), make_person(store)
    tasks = [make_task(store, project, slots=2) for _ in range(5)]
    for number, task in enumerate(tasks[:4]):
        send(store, ann, task.id, f"key-number-{number}", ranks=[1, 2, 3], duration_ms=(number + 1) * 10_000)
    send(store, ben, tasks[0].id, "key-of-ben", ranks=[1, 2, 3], duration_ms=900_000)
    send(store, ann, tasks[4].id, "key-of-skip", skip_reason="no idea", duration_ms=5)
    send(store, ann, tasks[0].id, "key-of-change", ranks=[3, 2, 1], edit_of="key-number-0", duration_ms=700_000)
    work = next_work(store, ann, project.id)
    assert (work.n_done, work.n_today, work.pace_s) == (4, 4, 25.0)
    clock.advance(2 * 3600)
    assert next_work(store, ann, project.id, utc_offset_minutes=120).n_today == 0  # west of it, a new day has begun
    assert next_work(store, ann, project.id, utc_offset_minutes=-60).n_today == 4
    clock.advance(24 * 3600)
    work = next_work(store, ann, project.id)
    assert (work.n_done, work.n_today, work.pace_s) == (4, 0, None)
