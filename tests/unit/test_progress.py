"""The progress line: drawn on a terminal, quiet elsewhere, honest about the time left."""

from __future__ import annotations

import io

import pytest

from app.words.progress import ProgressLine, duration_text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    @property
    def lines(self) -> list[str]:
        return [part for part in self.getvalue().split("\r\x1b[K") if part]


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_nothing_is_written_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    with ProgressLine("work", stream) as progress:
        progress.update(1, 10)
        progress.update(10, 10)
    assert stream.getvalue() == ""


def test_the_time_left_follows_from_what_was_done_since_the_line_began() -> None:
    stream, clock = Terminal(), Clock()
    with ProgressLine("run", stream, clock) as progress:
        progress.update(40, 100, "steps")  # a resumed run: the first 40 took no time of ours
        clock.now += 10
        progress.update(50, 100, "steps")
        clock.now += 40
        progress.update(100, 100, "steps")
    assert stream.lines == [
        "run: 40 of 100 steps",
        "run: 50 of 100 steps, 50 s left",
        "run: 100 of 100 steps, 0 s left",
    ]
    assert stream.getvalue().endswith("\r\x1b[K")


def test_the_line_is_drawn_five_times_a_second_at_most() -> None:
    stream, clock = Terminal(), Clock()
    progress = ProgressLine("import", stream, clock)
    for done in range(1, 1001):
        clock.now += 0.001
        progress.update(done)
    assert len(stream.lines) == 5


def test_without_a_total_there_is_a_count_and_no_estimate() -> None:
    stream, clock = Terminal(), Clock()
    progress = ProgressLine("import", stream, clock)
    progress.update(0, note="queued")
    clock.now += 10
    progress.update(12_000, None, "lines")
    assert stream.lines == ["import, queued", "import: 12,000 lines"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "0 s"), (59.4, "59 s"), (59.6, "1 min 00 s"), (200, "3 min 20 s"), (7500, "2 h 05 min")],
)
def test_durations_read_as_people_say_them(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
