"""Which slot an answer fills, and what that makes of it: its purpose, and whether it is late or extra."""

from __future__ import annotations

from typing import Any, NamedTuple

import sqlalchemy as sa

from data.records import NewRanking, Purpose, RankingStatus
from data.store.engine import Tx
from data.store.tables import slot

_FREE = dict.fromkeys(("annotator_id", "lease_token", "claimed_at", "lease_expires_at", "display_order"))


class Filled(NamedTuple):
    """The slot of an answer, None where it has none, and what follows from it."""

    slot_id: str | None
    purpose: Purpose
    is_late: bool
    is_extra: bool


def take_slot(tx: Tx, new: NewRanking) -> Filled:
    """Mark the annotator's slot as done; free it after a skip, so that somebody else gets the task.

    Without a lease of their own any more, the answer takes another free slot of the task if there is one. The slot of a
    check is nobody else's: it is done after a skip too.
    """
    if new.source != "app":
        return Filled(None, Purpose.ORDINARY, is_late=False, is_extra=new.is_extra)
    # Locked together and in one order, so that nobody claims what is being filled, and nobody waits in a circle.
    slots = sa.select(slot).where(slot.c.task_id == new.task_id).order_by(slot.c.slot_no, slot.c.id)
    rows = tx.rows(slots.with_for_update(key_share=True))
    own = next((row for row in rows if row.annotator_id == new.annotator_id and _is_repeat(row) == new.is_repeat), None)
    is_late = own is None or own.lease_token != new.lease_token or own.lease_expires_at < tx.now()
    if own is not None and own.purpose != Purpose.ORDINARY.value:
        _change(tx, own.id, status="done")
        return Filled(own.id, Purpose(own.purpose), is_late=is_late, is_extra=False)
    if new.status is RankingStatus.SKIPPED:
        if own is not None:
            _change(tx, own.id, status="free", **_FREE)
        return Filled(None, Purpose.ORDINARY, is_late=is_late, is_extra=False)
    own = own or next((row for row in rows if row.status == "free"), None)
    if own is None:
        return Filled(None, Purpose.ORDINARY, is_late=True, is_extra=True)
    _change(tx, own.id, status="done", annotator_id=new.annotator_id)
    return Filled(own.id, Purpose.ORDINARY, is_late=is_late, is_extra=False)


def _is_repeat(row: sa.Row[Any]) -> bool:
    return bool(row.purpose == Purpose.REPEAT.value)


def _change(tx: Tx, slot_id: str, **values: Any) -> None:
    tx.execute(sa.update(slot).where(slot.c.id == slot_id).values(**values))
