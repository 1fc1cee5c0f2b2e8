"""Handing out checks on an annotator: a gold task, or a task of their own again. Each has a slot beyond the overlap.

Only the annotator of a check can fill its slot. Who calls these has let the annotator's pages take turns
(`data.labels.slots.take_turns`); the schema has the rule that there is one slot for each.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence

import sqlalchemy as sa

from data.labels.gold import is_gold
from data.labels.slots import LEASE_MINUTES, Shuffle, assignments_of, shuffled
from data.records import Assignment, Purpose, RankingStatus
from data.store.engine import Tx
from data.store.tables import ranking, slot, task, task_response

REPEAT_AFTER = 20  # other answers at least between the two: nobody has twenty items in their head


def claim_gold(
    tx: Tx, project_id: str, annotator_id: str, *, shuffle: Shuffle = shuffled, lease_minutes: float = LEASE_MINUTES
) -> list[Assignment]:
    """Give the annotator one of the project's gold tasks that they have not met, whichever; none if there is none."""
    met = [
        sa.exists().where(table.c.task_id == task.c.id, table.c.annotator_id == annotator_id)
        for table in (slot, ranking)
    ]
    statement = sa.select(task.c.id).where(
        task.c.project_id == project_id, is_gold(task.c.id), ~task.c.is_set_aside, *(~each for each in met)
    )
    task_id = tx.scalar(statement.order_by(sa.func.random()).limit(1))
    if task_id is None:
        return []
    size = tx.scalar(sa.select(sa.func.count()).where(task_response.c.task_id == task_id))
    return _lease(tx, task_id, annotator_id, Purpose.GOLD, list(shuffle(size)), lease_minutes)


def claim_repeat(
    tx: Tx,
    project_id: str,
    annotator_id: str,
    *,
    shuffle: Shuffle = shuffled,
    lease_minutes: float = LEASE_MINUTES,
    after: int = REPEAT_AFTER,
) -> list[Assignment]:
    """Give the annotator one of their own ranked tasks again, in another order; none if none is old enough.

    So many of their answers lie between at least, and no task comes a third time.
    """
    own = (
        sa.select(ranking.c.task_id, ranking.c.display_order, ranking.c.created_at, ranking.c.status)
        .join(task, ranking.c.task_id == task.c.id)
        .where(
            ranking.c.annotator_id == annotator_id,
            task.c.project_id == project_id,
            ranking.c.superseded_at.is_(None),
            ranking.c.source == "app",
            ranking.c.display_order.is_not(None),
            ranking.c.purpose != Purpose.REPEAT.value,
            ~task.c.is_set_aside,
        )
    )
    newer = own.order_by(ranking.c.created_at.desc(), ranking.c.id.desc()).limit(1).offset(after)
    newest_old = tx.row(newer)
    if newest_old is None:
        return []
    has_repeat = sa.exists().where(
        slot.c.task_id == ranking.c.task_id,
        slot.c.annotator_id == annotator_id,
        slot.c.purpose == Purpose.REPEAT.value,
    )
    old = own.where(
        ranking.c.created_at <= newest_old.created_at, ranking.c.status == RankingStatus.RANKED.value, ~has_repeat
    )
    first = tx.row(old.order_by(sa.func.random()).limit(1))
    if first is None:
        return []
    before = json.loads(first.display_order)
    order = list(shuffle(len(before)))
    return _lease(
        tx, first.task_id, annotator_id, Purpose.REPEAT, order if order != before else order[::-1], lease_minutes
    )


def repeated_task(tx: Tx, slot_id: str, annotator_id: str) -> str | None:
    """The task of an annotator's repeat, by its slot; None for any other id."""
    task_id = tx.scalar(
        sa.select(slot.c.task_id).where(
            slot.c.id == slot_id, slot.c.annotator_id == annotator_id, slot.c.purpose == Purpose.REPEAT.value
        )
    )
    return None if task_id is None else str(task_id)


def _lease(
    tx: Tx, task_id: str, annotator_id: str, purpose: Purpose, order: Sequence[int], lease_minutes: float
) -> list[Assignment]:
    of_task = tx.rows(sa.select(task.c.project_id, task.c.seq).where(task.c.id == task_id))[0]
    values = {
        "id": tx.new_id(),
        "project_id": of_task.project_id,
        "task_id": task_id,
        "task_seq": of_task.seq,
        "purpose": purpose.value,
        "status": "leased",
        "annotator_id": annotator_id,
        "lease_token": secrets.token_urlsafe(16),
        "claimed_at": tx.now(),
        "lease_expires_at": tx.now() + lease_minutes * 60,
        "display_order": json.dumps(list(order)),
    }
    tx.execute(sa.insert(slot).values(**values))
    return assignments_of(tx, [str(values["id"])])
