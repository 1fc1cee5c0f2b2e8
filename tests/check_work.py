"""Annotators at work in tests of the checks on them: what they get next, and their answers to it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import factories as make

from data.label_settings import LabelSettings
from data.labels.gold import set_gold
from data.labels.projects import set_settings
from data.records import Assignment, Person, Project, SubmitOutcome, Task
from data.store import Store
from labeling.work.session import item_id, next_work, submit

_numbers = itertools.count(1)


def settle(store: Store, project: Project, **settings: Any) -> Project:
    with store.begin() as tx:
        return set_settings(tx, project.id, settings=LabelSettings(**settings))


def make_gold_task(store: Store, project: Project, ranks: Sequence[int] = (1, 2, 3), slots: int = 0) -> Task:
    task = make.make_task(store, project, slots=slots)
    with store.begin() as tx:
        assert set_gold(tx, task.id, ranks)
    return task


def rolls(*values: float) -> Callable[[], float]:
    """Dice that fall as they are told: 0 lets a check come, 1 does not. Gold is thrown for first, then a repeat."""
    return iter(values).__next__


def get(store: Store, person: Person, project: Project, n: int = 1, **how: Any) -> list[Assignment]:
    return next_work(store, person, project.id, n=n, **how).assignments


def answer(store: Store, person: Person, given: Assignment, ranks: Sequence[int] = (1, 2, 3), **said: Any) -> str:
    """Send an answer, with ranks by stored position; returns its submission key."""
    key = f"key-number-{next(_numbers)}"
    item = {
        "submission_key": key,
        "task_id": item_id(given.task.id, given.slot_id, given.purpose),
        "lease_token": given.lease_token,
        "display_order": list(given.display_order),
        "duration_ms": 60_000,
    }
    if "skip_reason" not in said and "unacceptable" not in said:
        item["ranks"] = [ranks[position] for position in given.display_order]
    ack = submit(store, person, item | said)
    assert (ack.outcome, ack.reason) == (SubmitOutcome.STORED, "")
    return key
