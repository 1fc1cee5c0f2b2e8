"""Alarms on low agreement with gold and on haste, and the pauses that follow where a project wants them."""

from __future__ import annotations

import threading
from typing import Any

import factories as make
import pytest
import sqlalchemy as sa
from check_work import answer, get, make_gold_task, settle
from cli_runner import Cli

from app.widgets.labels.ranker import surface_data
from data.errors import Conflict, NotAllowed, NotFound
from data.files.paths import Home
from data.labels.pauses import list_pauses, pause_annotator
from data.records import Person, Project, Purpose, Role, SubmitOutcome
from data.store import Store
from data.store.tables_checks import pause
from labeling.judgement.pair_agreement import PairAgreement
from labeling.work.alarms import AlarmKind, AnnotatorAlarm, Paused, lift, pauses
from labeling.work.checks import annotator_table
from labeling.work.session import next_work, submit

ALWAYS = 0.0


def prepare(store: Store, n: int = 6, **settings: Any) -> tuple[Project, Person]:
    project = settle(store, make.make_project(store), **{"gold_share": 0.3, "gold_min_items": 2} | settings)
    for _ in range(n):
        make_gold_task(store, project)
        make.make_task(store, project)
    return project, make.make_person(store, name="Ann")


def work_on(store: Store, person: Person, project: Project, n_gold: int, ranks: tuple[int, ...], **said: Any) -> None:
    """Answer so many gold tasks with these ranks, and the ordinary ones between them as well as can be."""
    for _ in range(n_gold):
        for each in get(store, person, project, dice=lambda: ALWAYS):
            answer(store, person, each, ranks if each.purpose is Purpose.GOLD else (1, 2, 3), **said)


def test_low_agreement_with_gold_is_a_warning_that_researchers_see_and_stops_nobody(store: Store) -> None:
    project, ann = prepare(store)
    work_on(store, ann, project, 1, (3, 2, 1))
    [row] = annotator_table(store, project.id)
    assert (row.alarms, row.is_paused) == ([], False)  # one gold task says too little
    work_on(store, ann, project, 1, (1, 2, 3))
    [row] = annotator_table(store, project.id)
    assert row.alarms == [AnnotatorAlarm(AlarmKind.GOLD, 0.5, 0.7, 2)]
    work = next_work(store, ann, project.id)
    assert work.paused is None
    assert work.assignments
    assert "alarm" not in str(surface_data(ann, work, [], with_drafts=True))


def test_that_no_response_is_acceptable_is_a_wrong_answer_to_gold_and_a_skip_is_none(store: Store) -> None:
    project, ann = prepare(store, on_low_gold="pause")
    for _ in range(3):
        for each in get(store, ann, project, dice=lambda: ALWAYS):
            answer(store, ann, each, **({"skip_reason": "no idea"} if each.purpose is Purpose.GOLD else {}))
    [row] = annotator_table(store, project.id)
    assert (row.alarms, row.gold.n, row.is_paused) == ([], 0, False)
    bob = make.make_person(store, name="Bob")
    for n_given in (1, 2):
        for each in get(store, bob, project, dice=lambda: ALWAYS):
            answer(store, bob, each, **({"unacceptable": True} if each.purpose is Purpose.GOLD else {}))
        row = annotator_table(store, project.id)[1]
        assert (row.gold, row.is_paused) == (PairAgreement(0.0, 3 * n_given, n_given), n_given == 2)
    assert row.alarms == [AnnotatorAlarm(AlarmKind.GOLD, 0.0, 0.7, 2)]
    assert next_work(store, bob, project.id).paused is not None


def test_agreement_at_the_threshold_raises_no_alarm(store: Store) -> None:
    project, ann = prepare(store, gold_threshold=0.5, on_low_gold="pause")
    work_on(store, ann, project, 1, (3, 2, 1))
    work_on(store, ann, project, 1, (1, 2, 3))
    [row] = annotator_table(store, project.id)
    assert (row.alarms, row.is_paused) == ([], False)


def test_a_pause_gives_no_more_work_until_a_researcher_lifts_it(store: Store, clock: Any) -> None:
    project, ann = prepare(store, on_low_gold="pause")
    researcher = make.make_person(store, Role.RESEARCHER, "Rita")
    for _ in range(2):
        work_on(store, ann, project, 1, (3, 2, 1))
        clock.advance(60)
    work = next_work(store, ann, project.id)
    assert (work.assignments, work.n_done) == ([], 4)
    assert work.paused == Paused(AlarmKind.GOLD, ("Rita",))
    assert surface_data(ann, work, [], with_drafts=False)["paused"] == {"reason": "gold", "ask": ["Rita"]}
    other = settle(store, make.make_project(store))
    make.make_task(store, other)
    assert get(store, ann, other), "the pause is of one project"
    with pytest.raises(NotAllowed):
        lift(store, ann, project.id, ann.id)
    lift(store, researcher, project.id, ann.id, " talked about it ")
    with pytest.raises(NotFound, match="is not paused"):
        lift(store, researcher, project.id, ann.id)
    [found] = pauses(store, project.id)
    assert (found.annotator, found.reason, found.lifted_by, found.note) == (
        "Ann", "gold", researcher.id, "talked about it",
    )  # fmt: skip
    # Wilson's interval of 0 of 2: up to z^2 / (2 + z^2).
    assert found.figures == {"kind": "gold", "value": 0.0, "threshold": 0.7, "n": 2, "low": 0.0, "high":
                             pytest.approx(3.8415 / 5.8415, abs=1e-4)}  # fmt: skip
    assert found.lifted_at == clock.now
    clock.advance(60)
    work_on(store, ann, project, 1, (3, 2, 1))
    calm = next_work(store, ann, project.id, dice=lambda: ALWAYS)
    assert calm.paused is None, "what was talked about raises no alarm again"
    work_on(store, ann, project, 1, (3, 2, 1))
    assert next_work(store, ann, project.id).paused is not None
    with store.read() as tx:
        assert [each.lifted_at is None for each in list_pauses(tx, project.id)] == [True, False]


def test_what_was_on_its_way_when_the_pause_came_is_stored(store: Store) -> None:
    project, ann = prepare(store, on_low_gold="pause")
    held = get(store, ann, project, n=4, dice=lambda: ALWAYS)
    golds = [each for each in held if each.purpose is Purpose.GOLD]
    others = [each for each in held if each.purpose is Purpose.ORDINARY]
    for each in golds:
        answer(store, ann, each, (3, 2, 1))
    assert next_work(store, ann, project.id).paused is not None
    for each in others:
        answer(store, ann, each)
    assert next_work(store, ann, project.id).n_done == 4


def test_what_a_paused_annotator_held_comes_free_when_its_lease_ends(store: Store, clock: Any) -> None:
    project, ann = prepare(store, n=1, on_low_gold="pause", gold_share=0.0)
    bob = make.make_person(store)
    assert len(get(store, ann, project)) == 1
    with store.begin() as tx:
        assert pause_annotator(tx, project.id, ann.id, "gold", {})
        assert not pause_annotator(tx, project.id, ann.id, "haste", {})
    clock.advance(1700)
    next_work(store, ann, project.id)
    assert get(store, bob, project) == []
    clock.advance(101)
    assert len(get(store, bob, project)) == 1


def test_two_answers_at_once_make_one_pause_and_the_schema_allows_no_other(store: Store) -> None:
    project, ann = prepare(store, on_low_gold="pause")
    held = [each for each in get(store, ann, project, n=8, dice=lambda: ALWAYS) if each.purpose is Purpose.GOLD]
    barrier = threading.Barrier(len(held))

    def send(given: Any) -> None:
        barrier.wait()
        answer(store, ann, given, (3, 2, 1))

    threads = [threading.Thread(target=send, args=(each,)) for each in held]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with store.read() as tx:
        [row] = tx.rows(sa.select(pause))
    double = dict(row._mapping) | {"id": "another"}
    with pytest.raises(Conflict), store.begin() as tx:
        tx.execute(sa.insert(pause).values(**double))


def test_haste_is_a_warning_or_a_pause_as_the_project_wants(store: Store, clock: Any) -> None:
    project, ann = prepare(store, gold_share=0.0, haste_min_answers=4, haste_threshold=0.25)
    for duration in (1, 60_000, 60_000, 60_000):
        [each] = get(store, ann, project)
        answer(store, ann, each, duration_ms=duration)
        clock.advance(60)
    assert annotator_table(store, project.id)[0].alarms == []  # a quarter is not more than a quarter
    [each] = get(store, ann, project)
    key = answer(store, ann, each, duration_ms=1)
    [row] = annotator_table(store, project.id)
    assert row.alarms == [AnnotatorAlarm(AlarmKind.HASTE, 0.4, 0.25, 5)]
    assert next_work(store, ann, project.id).paused is None
    settle(store, project, haste_min_answers=4, haste_threshold=0.25, on_haste="pause")
    edit = {"submission_key": "slow-edit", "task_id": each.task.id, "edit_of": key, "duration_ms": 900_000}
    edit |= {"display_order": list(each.display_order), "ranks": [1, 1, 2]}
    assert submit(store, ann, edit).outcome is SubmitOutcome.STORED  # an edit does not make the first answer slow
    assert next_work(store, ann, project.id).paused is None  # and a slow one raises no alarm
    [each] = get(store, ann, project)
    answer(store, ann, each, duration_ms=2)
    assert next_work(store, ann, project.id).paused == Paused(AlarmKind.HASTE, ())
    figures = pauses(store, project.id)[0].figures
    assert figures["low"] + figures["high"] == pytest.approx(1)  # of a half
    assert {name: figures[name] for name in ("kind", "value", "threshold", "n")} == {
        "kind": "haste", "value": 0.5, "threshold": 0.25, "n": 6,
    }  # fmt: skip


def test_whom_to_ask_are_researchers_else_admins_and_nobody_who_left(store: Store) -> None:
    project, ann = prepare(store, n=1)
    admin = make.make_person(store, Role.ADMIN, "Ada")
    with store.begin() as tx:
        pause_annotator(tx, project.id, ann.id, "gold", {})
    assert next_work(store, ann, project.id).paused == Paused(AlarmKind.GOLD, ("Ada",))
    for name in ("Rita", "Ravi", "Rosa", "Ruth"):
        make.make_person(store, Role.RESEARCHER, name)
    assert next_work(store, ann, project.id).paused == Paused(AlarmKind.GOLD, ("Ravi", "Rita", "Rosa"))
    assert admin.name == "Ada"


def test_the_word_pause(sqlite_store: Store, home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    project, ann = prepare(sqlite_store, on_low_gold="pause")
    cli = Cli(home.root, capsys)
    assert "nobody is or was paused" in cli("pause", "list", project.name).out
    assert "Ann is not paused" in cli.refuse("pause", "lift", project.name, "Ann")
    work_on(sqlite_store, ann, project, 2, (3, 2, 1))
    assert "gold 0.00 (0.00-0.66, n 2), paused" in cli("annotators", project.name).out
    assert "0.00 (threshold 0.70, n 2)" in cli("pause", "list", project.name).out
    lifted = cli.make("pause", "lift", project.name, "Ann", "--note", "talked")
    assert (lifted["annotator"], lifted["note"], lifted["lifted_by"]) == ("Ann", "talked", None)
    assert "paused" not in cli("annotators", project.name).out.splitlines()[1]
