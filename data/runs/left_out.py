"""What a run left out of all that it was asked for: an event with both numbers, shown wherever the run is looked at."""

from __future__ import annotations

from typing import Any

from data.runs.state import events_of
from data.store.engine import Tx

LEFT_OUT = "left_out"


def left_out_lines(tx: Tx, run_id: str) -> list[str]:
    """What the run has left out so far, one line for each kind of thing; of several attempts the last one counts."""
    newest = {event.detail["what"]: event.detail for event in events_of(tx, run_id, kinds=(LEFT_OUT,))}
    return [left_out_words(detail) for detail in newest.values()]


def left_out_words(detail: dict[str, Any]) -> str:
    """The event's detail in one line."""
    return f"{detail['n']:,} of {detail['of']:,} {detail['what']} left out; the first: {detail['first']}"
