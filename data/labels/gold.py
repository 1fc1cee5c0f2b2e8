"""Gold: tasks whose ranking is known. What is expected is append-only: a change withdraws it and states another."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from data.errors import InvalidInput
from data.store.engine import Tx
from data.store.tables import task
from data.store.tables_checks import gold


@dataclass(frozen=True)
class Gold:
    """The ranking that is expected of a task; `ranks` and `unplaced` as in an answer.

    `author_id`: whose own answer it is; None where it came from a file.
    """

    task_id: str
    ranks: tuple[int, ...]
    unplaced: tuple[int, ...]
    author_id: str | None
    created_at: float


def set_gold(
    tx: Tx, task_id: str, ranks: Sequence[int], *, unplaced: Sequence[int] = (), author_id: str | None = None
) -> bool:
    """Say which ranking is expected of a task, in place of what was; False if it was just this.

    Raises InvalidInput where all are equal: nobody could be wrong.
    """
    if len(set(ranks)) < 2:
        raise InvalidInput("a gold ranking with all responses equal checks nobody; put one above another")
    tx.lock_row(task, task_id)
    before = gold_of_tasks(tx, [task_id]).get(task_id)
    if before is not None and (before.ranks, before.unplaced) == (tuple(ranks), tuple(unplaced)):
        return False
    withdraw_gold(tx, task_id)
    values = {
        "id": tx.new_id(),
        "task_id": task_id,
        "ranks": json.dumps(list(ranks)),
        "unplaced": json.dumps(list(unplaced)),
        "source": "import" if author_id is None else "answer",
        "author_id": author_id,
        "created_at": tx.now(),
    }
    tx.execute(sa.insert(gold).values(**values))
    return True


def withdraw_gold(tx: Tx, task_id: str) -> bool:
    """Make a task an ordinary one again; False if it was no gold."""
    current = sa.update(gold).where(gold.c.task_id == task_id, gold.c.withdrawn_at.is_(None))
    return bool(tx.execute(current.values(withdrawn_at=tx.now())).rowcount)


def gold_of_tasks(tx: Tx, task_ids: Sequence[str]) -> dict[str, Gold]:
    """What is expected of those of these tasks that are gold."""
    rows = tx.rows(sa.select(gold).where(gold.c.task_id.in_(task_ids), gold.c.withdrawn_at.is_(None)))
    return {row.task_id: as_gold(row) for row in rows}


def gold_of_project(tx: Tx, project_id: str) -> dict[str, Gold]:
    """What is expected of a project's gold tasks, in the order in which they were stated."""
    statement = (
        sa.select(gold)
        .join(task, gold.c.task_id == task.c.id)
        .where(task.c.project_id == project_id, gold.c.withdrawn_at.is_(None))
        .order_by(gold.c.created_at, gold.c.id)
    )
    return {row.task_id: as_gold(row) for row in tx.rows(statement)}


def is_gold(task_id: sa.ColumnElement[str]) -> sa.ColumnElement[bool]:
    """The condition that a task is gold now."""
    return sa.exists().where(gold.c.task_id == task_id, gold.c.withdrawn_at.is_(None))


def as_gold(row: sa.Row[Any]) -> Gold:
    return Gold(
        task_id=row.task_id,
        ranks=tuple(json.loads(row.ranks)),
        unplaced=tuple(json.loads(row.unplaced)),
        author_id=row.author_id,
        created_at=row.created_at,
    )
