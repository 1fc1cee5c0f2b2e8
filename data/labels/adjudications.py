"""Adjudications: append-only, like rankings. A later decision on a task supersedes the one before."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa

from data.errors import Conflict
from data.labels.rankings import as_ranking
from data.records import Adjudication, NewAdjudication, Purpose, Ranking
from data.store.engine import Tx
from data.store.tables import ranking, task
from data.store.tables_adjudication import adjudication


def save_adjudication(tx: Tx, new: NewAdjudication) -> Adjudication:
    """Store a decision once, however often it is sent.

    Raises Conflict if the task has another current decision than `new.supersedes_id`. The caller has checked the rest.
    """
    tx.lock_row(task, new.task_id)
    known = adjudication_of_key(tx, new.submission_key)
    if known is not None:
        return known
    current = adjudication_of(tx, new.task_id)
    if (current.id if current else None) != new.supersedes_id:
        raise Conflict("somebody else has decided on this task meanwhile; look at their decision first")
    now = tx.now()
    if current is not None:
        tx.execute(sa.update(adjudication).where(adjudication.c.id == current.id).values(superseded_at=now))
    values = {
        "id": tx.new_id(),
        "task_id": new.task_id,
        "decided_by": new.decided_by,
        "submission_key": new.submission_key,
        "ranks": json.dumps(list(new.ranks)),
        "unplaced": json.dumps(list(new.unplaced)),
        "chosen_id": new.chosen_id,
        "reason": new.reason,
        "seen": json.dumps(list(new.seen)),
        "agreement": new.agreement,
        "supersedes_id": new.supersedes_id,
        "created_at": now,
    }
    tx.execute(sa.insert(adjudication).values(**values))
    return _as_adjudication(tx.rows(sa.select(adjudication).where(adjudication.c.id == values["id"]))[0])


def adjudication_of_key(tx: Tx, submission_key: str) -> Adjudication | None:
    """The decision that was sent under this key, current or not."""
    row = tx.row(sa.select(adjudication).where(adjudication.c.submission_key == submission_key))
    return None if row is None else _as_adjudication(row)


def find_adjudication(tx: Tx, adjudication_id: str) -> Adjudication | None:
    """A decision by its id, current or not."""
    row = tx.row(sa.select(adjudication).where(adjudication.c.id == adjudication_id))
    return None if row is None else _as_adjudication(row)


def adjudication_of(tx: Tx, task_id: str) -> Adjudication | None:
    """The current decision on a task."""
    statement = sa.select(adjudication).where(adjudication.c.task_id == task_id, adjudication.c.superseded_at.is_(None))
    row = tx.row(statement)
    return None if row is None else _as_adjudication(row)


def current_adjudications(tx: Tx, project_id: str) -> list[Adjudication]:
    """The current decisions in a project, the newest first."""
    statement = (
        sa.select(adjudication)
        .join(task, adjudication.c.task_id == task.c.id)
        .where(task.c.project_id == project_id, adjudication.c.superseded_at.is_(None))
        .order_by(adjudication.c.created_at.desc(), adjudication.c.id.desc())
    )
    return [_as_adjudication(row) for row in tx.rows(statement)]


def answers_to_task(tx: Tx, task_id: str) -> list[Ranking]:
    """All current answers to a task, by time; silent repeats are none."""
    is_answer = ranking.c.purpose != Purpose.REPEAT.value
    statement = (
        sa.select(ranking)
        .where(ranking.c.task_id == task_id, ranking.c.superseded_at.is_(None), is_answer)
        .order_by(ranking.c.created_at, ranking.c.id)
    )
    return [as_ranking(row) for row in tx.rows(statement)]


def _as_adjudication(row: sa.Row[Any]) -> Adjudication:
    return Adjudication(
        id=row.id,
        task_id=row.task_id,
        decided_by=row.decided_by,
        ranks=tuple(json.loads(row.ranks)),
        unplaced=tuple(json.loads(row.unplaced)),
        chosen_id=row.chosen_id,
        reason=row.reason,
        seen=tuple(json.loads(row.seen)),
        agreement=row.agreement,
        supersedes_id=row.supersedes_id,
        created_at=row.created_at,
    )
