"""Pauses: an annotator gets no work in a project until somebody lifts it. What was, stays recorded."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from data.errors import NotFound
from data.store.engine import Tx
from data.store.tables import person
from data.store.tables_checks import pause
from data.text import clean_text


@dataclass(frozen=True)
class Pause:
    """`reason`: "gold" or "haste"; `figures`: what the alarm was about. `lifted_by` is None where nobody signed in."""

    id: str
    project_id: str
    annotator_id: str
    annotator: str
    reason: str
    figures: dict[str, Any]
    created_at: float
    lifted_at: float | None
    lifted_by: str | None
    note: str


def pause_annotator(tx: Tx, project_id: str, annotator_id: str, reason: str, figures: dict[str, Any]) -> bool:
    """Pause an annotator in a project; False if they are paused already."""
    values = {
        "id": tx.new_id(),
        "project_id": project_id,
        "annotator_id": annotator_id,
        "reason": reason,
        "figures": json.dumps(figures),
        "created_at": tx.now(),
    }
    return bool(tx.insert_ignoring(pause, values))


def current_pause(tx: Tx, project_id: str, annotator_id: str) -> Pause | None:
    """The pause that keeps an annotator from work now."""
    return next((each for each in list_pauses(tx, project_id, annotator_id) if each.lifted_at is None), None)


def lift_pause(tx: Tx, project_id: str, annotator_id: str, *, by: str | None = None, note: str = "") -> None:
    """Let an annotator go on; what they answered before raises no alarm any more. Raises NotFound if not paused."""
    current = sa.update(pause).where(
        pause.c.project_id == project_id, pause.c.annotator_id == annotator_id, pause.c.lifted_at.is_(None)
    )
    values = {"lifted_at": tx.now(), "lifted_by": by, "note": clean_text(note).strip()}
    if not tx.execute(current.values(**values)).rowcount:
        raise NotFound("this annotator is not paused in this project")


def last_lifted_at(tx: Tx, project_id: str, annotator_id: str) -> float:
    """When the last pause was lifted; 0 before the first."""
    found = sa.select(sa.func.max(pause.c.lifted_at))
    found = found.where(pause.c.project_id == project_id, pause.c.annotator_id == annotator_id)
    return float(tx.scalar(found) or 0.0)


def count_paused(tx: Tx, project_id: str) -> int:
    """How many annotators are paused in a project now."""
    current = sa.select(sa.func.count()).where(pause.c.project_id == project_id, pause.c.lifted_at.is_(None))
    return int(tx.scalar(current))


def list_pauses(tx: Tx, project_id: str, annotator_id: str | None = None) -> list[Pause]:
    """A project's pauses, lifted ones too, the newest first."""
    statement = sa.select(pause, person.c.name).join(person, pause.c.annotator_id == person.c.id)
    statement = statement.where(pause.c.project_id == project_id)
    if annotator_id is not None:
        statement = statement.where(pause.c.annotator_id == annotator_id)
    return [
        Pause(
            id=row.id,
            project_id=row.project_id,
            annotator_id=row.annotator_id,
            annotator=row.name,
            reason=row.reason,
            figures=json.loads(row.figures),
            created_at=row.created_at,
            lifted_at=row.lifted_at,
            lifted_by=row.lifted_by,
            note=row.note,
        )
        for row in tx.rows(statement.order_by(pause.c.created_at.desc(), pause.c.id.desc()))
    ]
