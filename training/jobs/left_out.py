"""Counting what a run can't use of what it was asked for. A run that can use nothing of it has failed."""

from __future__ import annotations

from collections.abc import Mapping

from data.errors import InvalidInput
from data.runs.left_out import LEFT_OUT
from training.jobs.reporter import Recorder


class LeftOut:
    """How many of `of` things are left out, and why the first one is. `what`: the things, in the plural."""

    def __init__(self, what: str, of: int, n: int = 0, first: str = "") -> None:
        self.what, self.of, self.n, self.first = what, of, n, first

    @classmethod
    def counted(cls, what: str, counts: Mapping[str, int], kept: int) -> LeftOut:
        """Of things that are counted by reason already, beside those that are `kept`."""
        reasons = {reason: n for reason, n in counts.items() if n}
        n = sum(reasons.values())
        return cls(what, n + kept, n, ", ".join(f"{n:,} {reason.replace('_', ' ')}" for reason, n in reasons.items()))

    def add(self, reason: str) -> None:
        self.n += 1
        self.first = self.first or reason

    def note(self, recorder: Recorder) -> None:
        """Write the event, where anything is left out."""
        if self.n:
            recorder.event(LEFT_OUT, what=self.what, n=self.n, of=self.of, first=self.first)

    def report(self, recorder: Recorder, advice: str) -> None:
        """Write the event. Raises InvalidInput, with `advice`, if nothing else is left."""
        self.note(recorder)
        if self.n and self.n >= self.of:
            raise InvalidInput(f"none of the {self.of:,} {self.what} can be used; the first: {self.first}. {advice}")
