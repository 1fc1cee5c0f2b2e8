"""A run's state: badge, progress with the time left, why it failed and what to do, and the buttons its state allows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import streamlit as st

from app.actions.context import require, store
from app.widgets.base.page import ShownErrors, say_after_rerun
from app.widgets.base.problems import plain
from app.words.values import ago, count, duration, run_name
from data.records import FailureKind, Person, Role, Run, RunEvent, RunStatus
from data.runs.state import checkpoints_of, events_of, get_run, list_runs
from training.launch.config import DEMO_MODEL
from training.launch.queue import cancel, note_lost_runs, resume

REFRESH_S = 2.0
SILENT_S = 20.0  # a worker's heartbeat comes every 5 s
WAITING_S = 20.0
PACE_EVENTS = ("started", "resumed", "resumed_from_checkpoint")

Colour = Literal["red", "orange", "blue", "green", "gray"]
BADGES: dict[RunStatus, tuple[Colour, str]] = {
    RunStatus.QUEUED: ("gray", ":material/schedule:"),
    RunStatus.RUNNING: ("blue", ":material/play_circle:"),
    RunStatus.SUCCEEDED: ("green", ":material/check_circle:"),
    RunStatus.FAILED: ("red", ":material/error:"),
    RunStatus.CANCELLED: ("orange", ":material/cancel:"),
}
ADVICE = {
    FailureKind.BAD_INPUT: "Correct what it names and start a new run: a resumed run keeps its settings.",
    FailureKind.NOT_FINITE: "Start a new run with a lower learning rate or a smaller max_grad_norm. Resuming goes on "
    "from the last checkpoint with the same settings, and may well meet the same trouble.",
    FailureKind.OUT_OF_MEMORY: "Start a new run with a smaller micro-batch, shorter responses, adapters instead of "
    "full training, or a smaller model. Resume only if something else had taken the memory.",
    FailureKind.DISK_FULL: "Make room, then resume: the checkpoints before it are intact.",
    FailureKind.WORKER_LOST: "The machine or the worker's process ended. See that a worker runs, then resume.",
    FailureKind.ERROR: "This is not a known kind of failure. The log has the details; the last lines tell most.",
}


@dataclass(frozen=True)
class View:
    """What the store says of a run at one moment. `events` are those of PACE_EVENTS."""

    run: Run
    now: float
    events: list[RunEvent]
    checkpoint_step: int | None
    n_ahead: int


def run_status(run_id: str, key: str) -> None:
    """Draw the state of a run, and follow it while it is active; the page is drawn anew when it ends."""
    view = look(run_id)
    is_active = not view.run.status.is_final
    st.fragment(_draw, run_every=REFRESH_S if is_active else None)(run_id, key, view.run.status)


def look(run_id: str) -> View:
    """Read a run. If its worker is lost, that is written down first."""
    with store().read() as tx:
        run, now = get_run(tx, run_id), tx.now()
    if run.lease_until is not None and run.lease_until < now:
        note_lost_runs(store())
    with store().read() as tx:
        run = get_run(tx, run_id)
        checkpoints = checkpoints_of(tx, run.id)
        ahead: list[Run] = []
        if run.status is RunStatus.QUEUED:
            active = [each for status in (RunStatus.RUNNING, RunStatus.QUEUED) for each in list_runs(tx, status=status)]
            ahead = [each for each in active if each.created_at < run.created_at]
        events = events_of(tx, run.id, kinds=PACE_EVENTS)
        return View(run, tx.now(), events, checkpoints[0].step if checkpoints else None, len(ahead))


def status_badge(status: RunStatus) -> None:
    colour, icon = BADGES[status]
    st.badge(status.value, icon=icon, color=colour)


def seconds_left(view: View) -> float | None:
    """Time left by the pace of this attempt, or None where nothing is known yet."""
    run = view.run
    begun = [event for event in view.events if event.kind == "started"]
    if run.status is not RunStatus.RUNNING or not run.total_steps or not begun:
        return None
    resumed = [event for event in view.events if event.kind == "resumed_from_checkpoint" and event.at >= begun[-1].at]
    first = int(resumed[-1].detail.get("step", 0)) if resumed else 0
    done = run.step - first
    if done <= 0:
        return None
    return (run.total_steps - run.step) * (view.now - begun[-1].at) / done


def waiting_s(view: View) -> float:
    """How long the run has been in the queue, this time."""
    return view.now - max([view.run.created_at, *(each.at for each in view.events if each.kind == "resumed")])


def progress_words(view: View) -> str:
    """How far the run is, in one line."""
    run = view.run
    if run.status is RunStatus.QUEUED:
        ahead = f"; {count(view.n_ahead, 'run')} before it" if view.n_ahead else ""
        return f"Waiting for a worker for {duration(waiting_s(view))}{ahead}"
    steps = f"step {run.step:,} of {run.total_steps:,}" if run.total_steps else f"step {run.step:,}"
    if run.status.is_final:
        took = duration((run.ended_at or view.now) - (run.started_at or run.created_at))
        ended = ago(view.now - (run.ended_at or view.now))
        return f"Ended {ended} after {took}, at {steps}"
    if run.cancel_requested_at is not None:
        return f"Cancelling at the next safe place, at {steps}"
    left = seconds_left(view)
    words = "preparing" if run.step == 0 else steps
    return f"{words[:1].upper()}{words[1:]}" + (f", about {duration(left)} left" if left is not None else "")


def _draw(run_id: str, key: str, drawn_as: RunStatus) -> None:
    who = require(Role.RESEARCHER)  # a fragment runs without its page
    view = look(run_id)
    run = view.run
    if run.status is not drawn_as:
        st.rerun()
    row = st.container(horizontal=True, vertical_alignment="center")
    with row:
        status_badge(run.status)
        st.text(progress_words(view))
        st.space("stretch")
        _buttons(view, who, key)
    if not run.status.is_final and run.status is RunStatus.RUNNING:
        st.progress(min(run.step / run.total_steps, 1.0) if run.total_steps else 0.0)
    _warnings(view)


def _buttons(view: View, who: Person, key: str) -> None:
    """Only what the state allows."""
    run = view.run
    if not run.status.is_final:
        is_asked = run.cancel_requested_at is not None
        words = "It stops at the next safe place, and can be resumed"
        if st.button(
            "Cancel run", icon=":material/cancel:", key=f"{key}.cancel.{run.id}", disabled=is_asked, help=words
        ):
            _change(cancel, who, run, "asked to stop")
    elif run.status in (RunStatus.FAILED, RunStatus.CANCELLED):
        where = "from the beginning" if view.checkpoint_step is None else f"from step {view.checkpoint_step:,}"
        words = f"It goes on {where}, with the same settings"
        if st.button("Resume run", icon=":material/resume:", key=f"{key}.resume.{run.id}", help=words):
            _change(resume, who, run, "resumed")


def _change(change: Any, who: Person, run: Run, word: str) -> None:
    done = False
    with ShownErrors():
        change(store(), who, run.id)
        done = True
    if done:
        say_after_rerun(f"{run_name(run)} {word}")
        st.rerun()


def _warnings(view: View) -> None:
    run = view.run
    if run.status is RunStatus.FAILED and run.error_kind is not None:
        st.error(f"{plain(run.error_message or run.error_kind.value)}\n\n{ADVICE[run.error_kind]}")
    if run.status is RunStatus.QUEUED and waiting_s(view) > WAITING_S and not view.n_ahead:
        st.warning("No worker has taken this run yet. `rankloop serve` starts one; `rankloop worker` is one alone.")
    silent = view.now - (run.heartbeat_at or view.now)
    if run.status is RunStatus.RUNNING and silent > SILENT_S:
        st.warning(f"No word from the worker for {duration(silent)}. If it stays silent, the run fails as lost.")
    models = [run.config.get(name) for name in ("model", "model_a", "model_b")]
    if run.status is RunStatus.RUNNING and run.step == 0 and DEMO_MODEL in models:
        st.caption("The demo model is fetched the first time it is needed; that takes a few minutes.")
