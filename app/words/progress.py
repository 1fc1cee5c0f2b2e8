"""One line that says how far long work is, and how long it will still take. Where there is no terminal, it is quiet."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TextIO

_REDRAW_S = 0.2
_MIN_S = 1.0  # an estimate from less than this says nothing
_CLEAR = "\r\x1b[K"


class ProgressLine:
    """A line on the terminal that is drawn over itself; a context manager that leaves a clean line behind.

    `stream`: where to write (standard error by default, so that standard output stays the result's).
    `clock`: a stand-in for the clock, for tests.
    """

    def __init__(self, label: str, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._label = label
        self._stream = stream or sys.stderr
        self._clock = clock
        self._is_terminal = self._stream.isatty()
        self._begin: tuple[float, int] | None = None  # when and where counting began
        self._drawn_at: float | None = None

    def update(self, done: int, total: int | None = None, unit: str = "", note: str = "") -> None:
        """Say that `done` of `total` is done; the first call with a count starts the clock of the estimate."""
        if not self._is_terminal:
            return
        now = self._clock()
        if self._begin is None:
            self._begin = (now, done)
        is_last = total is not None and done >= total
        if self._drawn_at is not None and now - self._drawn_at < _REDRAW_S and not is_last:
            return
        self._drawn_at = now
        self._stream.write(
            _CLEAR + ", ".join(filter(None, [self._counted(done, total, unit), note, self._left(done, total)]))
        )
        self._stream.flush()

    def close(self) -> None:
        """Remove the line, so that what is printed next stands alone."""
        if self._drawn_at is not None:
            self._stream.write(_CLEAR)
            self._stream.flush()
            self._drawn_at = None

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _where: TracebackType | None
    ) -> None:
        self.close()

    def _counted(self, done: int, total: int | None, unit: str) -> str:
        if not done and not total:
            return self._label
        count = f"{done:,}" if not total else f"{done:,} of {total:,}"
        return f"{self._label}: {count}{f' {unit}' if unit else ''}"

    def _left(self, done: int, total: int | None) -> str:
        if self._begin is None or not total:
            return ""
        began_at, first = self._begin
        elapsed = self._clock() - began_at
        if done <= first or elapsed < _MIN_S:
            return ""
        return f"{duration_text(elapsed / (done - first) * max(total - done, 0))} left"


def duration_text(seconds: float) -> str:
    """A duration as people say it: `8 s`, `3 min 20 s`, `2 h 05 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"
