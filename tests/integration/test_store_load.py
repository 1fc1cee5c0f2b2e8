"""Sixteen annotators at once, each sending some answers twice: nothing lost, nothing doubled, no task over-annotated.

The same load against a store whose rules were taken away shows that the test can fail.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from typing import Any

import factories as make
import pytest
import sqlalchemy as sa

from data.labels.rankings import current_rankings
from data.records import Person, Project, SubmitOutcome
from data.store import Store
from data.store.engine import Tx
from data.store.tables import ranking, slot
from labeling.work.session import next_work, submit

N_ANNOTATORS, N_TASKS, OVERLAP = 16, 40, 3


class Annotator(threading.Thread):
    """Ranks until nothing is left; sends a fifth of the answers twice, at the same moment."""

    def __init__(self, store: Store, person: Person, project: Project, start: threading.Barrier) -> None:
        super().__init__()
        self._store, self._person, self._project, self._start = store, person, project, start
        self._random = random.Random(person.id)
        self.acknowledged: set[str] = set()
        self.errors: list[Exception] = []

    def run(self) -> None:
        self._start.wait()
        try:
            while given := next_work(self._store, self._person, self._project.id, n=2).assignments:
                self._answer(given[0])
        except Exception as error:
            self.errors.append(error)

    def _answer(self, given: Any) -> None:
        order = list(given.display_order)
        message = {
            "submission_key": f"{self._person.id}-{given.task.id}",
            "task_id": given.task.id,
            "lease_token": given.lease_token,
            "display_order": order,
            "ranks": [position + 1 for position in order],  # the stored order is the ranking
        }
        if self._random.random() < 0.2:
            second = threading.Thread(target=self._send, args=(message,))
            second.start()
            self._send(message)
            second.join()
        else:
            self._send(message)

    def _send(self, message: dict[str, Any]) -> None:
        try:
            ack = submit(self._store, self._person, message)
        except Exception as error:
            self.errors.append(error)
            return
        if ack.outcome in (SubmitOutcome.STORED, SubmitOutcome.REPEATED):
            self.acknowledged.add(ack.submission_key)


def work_through(store: Store) -> tuple[Project, list[Annotator]]:
    project = make.make_project(store, overlap=OVERLAP)
    for _ in range(N_TASKS):
        make.make_task(store, project)
    start = threading.Barrier(N_ANNOTATORS)
    annotators = [Annotator(store, make.make_person(store), project, start) for _ in range(N_ANNOTATORS)]
    for annotator in annotators:
        annotator.start()
    for annotator in annotators:
        annotator.join()
    return project, annotators


def damage(store: Store, project: Project, annotators: list[Annotator]) -> dict[str, int]:
    """What went wrong, counted from the tables alone."""
    with store.read() as tx:
        found = [each for each, _ in current_rankings(tx, project.id)]
    acknowledged = set().union(*(annotator.acknowledged for annotator in annotators))
    by_task = Counter(each.task_id for each in found)
    by_person = Counter((each.task_id, each.annotator_id) for each in found)
    return {
        "lost": len(acknowledged - {each.submission_key for each in found}),
        "doubled": sum(number - 1 for number in by_person.values()),
        "over": sum(max(0, number - OVERLAP) for number in by_task.values()),
        "missing": sum(OVERLAP - min(OVERLAP, by_task[task]) for task in by_task) + OVERLAP * (N_TASKS - len(by_task)),
        "wrong": sum(each.ranks != (1, 2, 3) or each.is_late or each.is_extra for each in found),
        "errors": sum(len(annotator.errors) for annotator in annotators),
    }


def test_nothing_is_lost_doubled_or_over_annotated(store: Store) -> None:
    project, annotators = work_through(store)
    assert damage(store, project, annotators) == dict.fromkeys(
        ("lost", "doubled", "over", "missing", "wrong", "errors"), 0
    )
    with store.read() as tx:
        slots = Counter(row.status for row in tx.rows(sa.select(slot.c.status)))
    assert slots == {"done": N_TASKS * OVERLAP}


def test_without_the_rules_the_same_load_does_damage(postgres_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """No constraints, no row locks: what other tools do. If this finds no damage, the test above proves nothing."""
    store = postgres_store
    with store.begin() as tx:
        tx.execute(sa.text("alter table ranking drop constraint uq_ranking_submission_key"))
        for index in ("uq_slot_task_id_annotator_id", "uq_ranking_task_id_annotator_id_current"):
            tx.execute(sa.text(f"drop index {index}"))
        tx.execute(sa.text("drop index uq_ranking_slot_id_current"))
    monkeypatch.setattr(sa.Select, "with_for_update", lambda self, **_words: self)
    monkeypatch.setattr(Tx, "lock_row", lambda *_words: None)
    project, annotators = work_through(store)
    found = damage(store, project, annotators)
    assert found["doubled"] + found["over"] > 0
    with store.read() as tx:
        assert tx.scalar(sa.select(sa.func.count()).select_from(ranking)) > N_TASKS * OVERLAP
