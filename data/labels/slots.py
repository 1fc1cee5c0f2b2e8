"""Handing out tasks: a slot is claimed by one annotator for a time, under a token that the answer brings back."""

from __future__ import annotations

import json
import math
import random
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from data.labels.gold import is_gold
from data.labels.tasks import get_tasks
from data.records import Assignment, Purpose
from data.store.engine import Tx
from data.store.tables import draft, person, ranking, slot, task, task_response

LEASE_MINUTES = 30
Shuffle = Callable[[int], Sequence[int]]


@dataclass(frozen=True)
class Waiting:
    """Why there is nothing to rank now: so many tasks are with others, the first may come free at `first_free_at`."""

    n_with_others: int
    first_free_at: float | None


def shuffled(n: int) -> list[int]:
    """A random order of n responses, from the system's random source: nobody can foresee or repeat it."""
    order = list(range(n))
    random.SystemRandom().shuffle(order)
    return order


def take_turns(tx: Tx, annotator_id: str) -> None:
    """Let the pages of one annotator claim one after the other, so that all of them get the same tasks."""
    tx.lock_row(person, annotator_id)


def held_assignments(tx: Tx, project_id: str, annotator_id: str) -> list[Assignment]:
    """What the annotator holds in this project, the oldest claim first; a lease that ran out still counts as held
    as long as nobody else took the slot."""
    statement = (
        sa.select(slot)
        .join(task, slot.c.task_id == task.c.id)
        .where(*_held_by(annotator_id, project_id), ~task.c.is_set_aside)
        .order_by(slot.c.claimed_at, slot.c.turn, slot.c.task_seq)
    )
    return _assignments(tx, tx.rows(statement))


def claim_slots(
    tx: Tx,
    project_id: str,
    annotator_id: str,
    n: int,
    *,
    shuffle: Shuffle = shuffled,
    lease_minutes: float = LEASE_MINUTES,
) -> list[Assignment]:
    """Claim up to n slots of tasks that the annotator has not answered and does not hold, in the project's order.

    Free slots and slots whose lease ran out are taken; gold tasks are given out by `data.labels.check_slots`. The
    display order is drawn here, once per assignment.
    """
    claimed: list[str] = []
    while len(claimed) < n:
        opened = _next_open(tx, project_id, annotator_id)
        if opened is None:
            break
        size = tx.scalar(sa.select(sa.func.count()).where(task_response.c.task_id == opened.task_id))
        values = {
            "status": "leased",
            "annotator_id": annotator_id,
            "lease_token": secrets.token_urlsafe(16),
            "claimed_at": tx.now(),
            "lease_expires_at": tx.now() + lease_minutes * 60,
            "display_order": json.dumps(list(shuffle(size))),
        }
        tx.execute(sa.update(slot).where(slot.c.id == opened.id).values(**values))
        claimed.append(opened.id)
    return assignments_of(tx, claimed)


def assignments_of(tx: Tx, slot_ids: Sequence[str]) -> list[Assignment]:
    """What slots of one annotator hold, in this order."""
    rows = {row.id: row for row in tx.rows(sa.select(slot).where(slot.c.id.in_(slot_ids)))}
    return _assignments(tx, [rows[slot_id] for slot_id in slot_ids])


def _next_open(tx: Tx, project_id: str, annotator_id: str) -> sa.Row[Any] | None:
    """The first slot that the annotator may claim. One at a time: what is found is locked, and others pass it by."""
    other = slot.alias("other")
    held = sa.exists().where(other.c.task_id == slot.c.task_id, other.c.annotator_id == annotator_id)
    is_open = sa.or_(slot.c.status == "free", sa.and_(slot.c.status == "leased", slot.c.lease_expires_at < tx.now()))
    statement = (
        sa.select(slot.c.id, slot.c.task_id)
        .join(task, slot.c.task_id == task.c.id)
        .where(
            slot.c.project_id == project_id,
            sa.text("slot.status <> 'done'"),  # in these words, so that the index of open slots serves
            slot.c.purpose == Purpose.ORDINARY.value,
            is_open,
            ~task.c.is_set_aside,
            ~is_gold(slot.c.task_id),
            ~_answered_by(annotator_id),
            ~held,
        )
        .order_by(slot.c.turn, slot.c.task_seq, slot.c.slot_no)
        .limit(1)
    )
    return tx.row(statement.with_for_update(skip_locked=True, key_share=True, of=slot))


def set_turns(tx: Tx, project_id: str, turns: Mapping[str, float]) -> None:
    """Set when tasks come, by task: the lowest turn first, then the lowest number. A task's slots share its turn."""
    for task_id, turn in turns.items():
        tx.execute(sa.update(slot).where(slot.c.project_id == project_id, slot.c.task_id == task_id).values(turn=turn))


def extend_leases(tx: Tx, annotator_id: str, project_id: str, lease_minutes: float = LEASE_MINUTES) -> None:
    """Prolong what the annotator holds: called while the ranking page is open."""
    expires_at = tx.now() + lease_minutes * 60
    tx.execute(sa.update(slot).where(*_held_by(annotator_id, project_id)).values(lease_expires_at=expires_at))


def waiting(tx: Tx, project_id: str, annotator_id: str) -> Waiting:
    """What the annotator could rank if others gave it back."""
    statement = (
        sa.select(
            sa.func.count(slot.c.task_id.distinct()).label("number"),
            sa.func.min(slot.c.lease_expires_at).label("first"),
        )
        .join(task, slot.c.task_id == task.c.id)
        .where(
            slot.c.project_id == project_id,
            slot.c.status == "leased",
            slot.c.purpose == Purpose.ORDINARY.value,
            slot.c.annotator_id != annotator_id,
            ~task.c.is_set_aside,
            ~is_gold(slot.c.task_id),
            ~_answered_by(annotator_id),
        )
    )
    row = tx.row(statement)
    return Waiting(row.number, row.first) if row is not None else Waiting(0, None)


def _held_by(annotator_id: str, project_id: str) -> tuple[sa.ColumnElement[bool], ...]:
    return (slot.c.annotator_id == annotator_id, slot.c.status == "leased", slot.c.project_id == project_id)


def _answered_by(annotator_id: str) -> sa.ColumnElement[bool]:
    """Whoever has answered a task has a current answer: the index of current ones finds it."""
    return sa.exists().where(
        ranking.c.task_id == slot.c.task_id,
        ranking.c.annotator_id == annotator_id,
        ranking.c.superseded_at.is_(None),
    )


def save_draft(tx: Tx, task_id: str, annotator_id: str, body: dict[str, Any], at: float) -> None:
    """Keep a half-done ranking. `at` is the browser's time of the change: an older draft never replaces a newer one."""
    if not math.isfinite(at):
        return
    values = {"task_id": task_id, "annotator_id": annotator_id, "body": json.dumps(body), "at": at}
    tx.upsert(draft, values, ["task_id", "annotator_id"], newest_by="at")


def drop_draft(tx: Tx, task_id: str, annotator_id: str) -> None:
    tx.execute(sa.delete(draft).where(draft.c.task_id == task_id, draft.c.annotator_id == annotator_id))


def _assignments(tx: Tx, rows: Sequence[sa.Row[Any]]) -> list[Assignment]:
    if not rows:
        return []
    tasks = {each.id: each for each in get_tasks(tx, [row.task_id for row in rows])}
    mine = sa.and_(draft.c.annotator_id == rows[0].annotator_id, draft.c.task_id.in_(tasks))
    drafts = {row.task_id: json.loads(row.body) | {"at": row.at} for row in tx.rows(sa.select(draft).where(mine))}
    return [
        Assignment(
            slot_id=row.id,
            task=tasks[row.task_id],
            annotator_id=row.annotator_id,
            lease_token=row.lease_token,
            lease_expires_at=row.lease_expires_at,
            display_order=tuple(json.loads(row.display_order)),
            draft=drafts.get(row.task_id),
            purpose=Purpose(row.purpose),
        )
        for row in rows
    ]
