"""What is said of a run's progress."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.widgets.runs.details import command_line, detail_words, note_lines, ordered
from app.widgets.runs.status import View, progress_words, seconds_left, waiting_s
from data.records import Run, RunEvent, RunKind, RunStatus

RUN = Run(
    id="0123456789abcdef", kind=RunKind.SFT, status=RunStatus.RUNNING, project_id="p", snapshot_id=None,
    reward_run_id=None, config={}, versions={}, result={}, epoch=1, attempt=1, step=0, total_steps=None,
    created_at=100.0, started_at=None,
    heartbeat_at=None, lease_until=None, ended_at=None, cancel_requested_at=None, error_kind=None,
    error_message=None, created_by=None,
)  # fmt: skip


def view(now: float, *events: tuple[str, float, dict[str, Any]], n_ahead: int = 0, **changes: Any) -> View:
    made = [RunEvent(RUN.id, seq, at, kind, detail) for seq, (kind, at, detail) in enumerate(events)]
    return View(replace(RUN, **changes), now, made, None, n_ahead)


def test_time_left_is_by_the_pace_of_this_attempt() -> None:
    started = ("started", 100.0, {})
    assert seconds_left(view(150.0, started, step=10, total_steps=40)) == 150.0
    again = [started, ("started", 1000.0, {}), ("resumed_from_checkpoint", 1010.0, {"step": 30})]
    assert seconds_left(view(1020.0, *again, step=32, total_steps=40)) == 80.0


@pytest.mark.parametrize(
    "changes",
    [
        {"step": 0, "total_steps": 10},
        {"step": 5, "total_steps": None},
        {"step": 5, "total_steps": 10, "status": RunStatus.FAILED},
    ],
)
def test_nothing_is_guessed_where_nothing_is_known(changes: dict[str, Any]) -> None:
    assert seconds_left(view(150.0, ("started", 100.0, {}), **changes)) is None


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (view(110.0, status=RunStatus.QUEUED), "Waiting for a worker for 10 s"),
        (view(110.0, status=RunStatus.QUEUED, n_ahead=2), "Waiting for a worker for 10 s; 2 runs before it"),
        (view(110.0, ("started", 100.0, {})), "Preparing"),
        (view(150.0, ("started", 100.0, {}), step=10, total_steps=40), "Step 10 of 40, about 2 min 30 s left"),
        (view(150.0, step=10, cancel_requested_at=149.0), "Cancelling at the next safe place, at step 10"),
        (
            view(400.0, status=RunStatus.SUCCEEDED, step=40, total_steps=40, started_at=110.0, ended_at=170.0),
            "Ended 3 min ago after 1 min, at step 40 of 40",
        ),
    ],
)
def test_progress_words(seen: View, words: str) -> None:
    assert progress_words(seen) == words


def test_a_resumed_run_waits_since_it_was_resumed() -> None:
    assert waiting_s(view(500.0, ("resumed", 480.0, {}), status=RunStatus.QUEUED)) == 20.0


def test_notes_are_gathered_by_kind() -> None:
    events = [RunEvent(RUN.id, seq, 0.0, "prompt_skipped", {"reason": f"r{seq}"}) for seq in range(5)]
    events += [RunEvent(RUN.id, 6, 0.0, "checkpoint", {"step": 1}), RunEvent(RUN.id, 7, 0.0, "model", {"name": "m"})]
    assert note_lines(events) == ["Prompt skipped (5 times): reason r0 | reason r1 | reason r2 | ...", "Model: name m"]


def test_detail_words() -> None:
    detail = {"n_left": 1200, "why": {"too_long": True}, "names": ["a", "b"]}
    assert detail_words(RunEvent("r", 1, 0.0, "x", detail)) == "n left 1,200; why.too long yes; names a, b"


def test_samples_without_a_score_come_last() -> None:
    bodies: list[dict[str, Any]] = [{"score": 1}, {}, {"score": 2}, {"score": None}]
    assert ordered(bodies, "best score")[:2] == [{"score": 2}, {"score": 1}]
    assert ordered(bodies, "worst score")[:2] == [{"score": 1}, {"score": 2}]
    assert ordered(bodies, "as sampled") == bodies


def test_the_command_line_of_each_kind() -> None:
    sample = replace(RUN, kind=RunKind.SAMPLE, config={"k": 6, "model": "demo"})
    assert command_line(sample) == "rankloop sample --project p --set model=demo --set k=6"
    score = replace(RUN, kind=RunKind.SCORE, reward_run_id="r", config={"input_file": "a b.jsonl"})
    assert command_line(score) == "rankloop score 'a b.jsonl' --reward-run r"
    assert command_line(replace(RUN, kind=RunKind.COMPARE)) == ""
