"""The words that look after runs: `runs list`, `show`, `cancel`, `resume`."""

from __future__ import annotations

import argparse
from typing import Any

from app.commands.base.common import (
    Context,
    Outcome,
    add_group,
    add_word,
    as_document,
    named,
    table,
)
from app.commands.base.waiting import WAIT_HELP, queued
from app.words.best_policy import best_words
from data.labels.roles import OPERATOR
from data.records import Run, RunKind
from data.runs.best_policy import best_name, best_policy
from data.runs.left_out import left_out_lines
from data.runs.metrics import metrics_of
from data.runs.state import events_of, get_run, list_runs
from training.launch.queue import cancel as cancel_run
from training.launch.queue import resume as resume_run


def add_words(words: Any) -> None:
    group = add_group(words, "runs", "look at runs, stop them, go on with them")
    add_word(group, "list", list_all, "list the runs, the newest first")
    shown = add_word(group, "show", show, "show a run: what was asked, how far it is, what happened")
    cancelled = add_word(group, "cancel", cancel, "ask a run to stop at its next safe place")
    help = "put a failed or cancelled run back; it goes on from its newest checkpoint"
    resumed = add_word(group, "resume", resume, help)
    for parser in (shown, cancelled, resumed):
        parser.add_argument("id", metavar="ID", help="its id, or the last characters of it")
    resumed.add_argument("--wait", action="store_true", help=WAIT_HELP)


def list_all(_arguments: argparse.Namespace, context: Context) -> Outcome:
    with context.store.read() as tx:
        runs = list_runs(tx, limit=1_000_000)
    rows = [(run.id, run.kind, run.status, _steps(run), run.project_id) for run in runs]
    lines = table(rows, ("ID", "KIND", "STATUS", "STEP", "PROJECT")) if rows else ["no run yet"]
    return Outcome(as_document(runs), lines)


def show(arguments: argparse.Namespace, context: Context) -> Outcome:
    with context.store.read() as tx:
        run = get_run(tx, arguments.id)
        events = events_of(tx, run.id)
        points = metrics_of(tx, run.id)
        left_out = left_out_lines(tx, run.id)
        best = best_policy(tx, run.id) if run.kind is RunKind.PPO else None
    latest = {point.name: point.value for point in points}
    folder = str(context.home.run_folder(run.id))
    document = as_document(run) | {"events": as_document(events), "metrics": latest, "folder": folder}
    if best is not None:
        document["best_policy"] = as_document(best) | {
            "model": best_name(run.id) if best.iteration else None,
            "verdict": best_words(best, is_final=run.status.is_final),
        }
    lines = [f"run {run.id}: {run.kind}, {run.status}, step {_steps(run)}", f"  folder: {folder}"]
    lines += [f"  {name}: {value}" for name, value in _links(run).items() if value]
    if run.error_message:
        lines.append(f"  {run.error_kind}: {run.error_message}")
    lines += [f"  {each}" for each in left_out]
    parts = (("asked", run.config), ("result", run.result), ("best policy", document.get("best_policy")),
             ("metrics, at their last step", latest))  # fmt: skip
    for title, values in parts:
        if values:
            lines += [f"  {title}:", *named(values, "    ")]
    lines += ["  events:", *(f"    {event.seq}. {event.kind} {event.detail or ''}".rstrip() for event in events)]
    return Outcome(document, lines)


def cancel(arguments: argparse.Namespace, context: Context) -> Outcome:
    run = cancel_run(context.store, OPERATOR, arguments.id)
    words = "is cancelled" if run.status.is_final else "stops at its next safe place"
    return Outcome(as_document(run), [f"run {run.id} {words}"])


def resume(arguments: argparse.Namespace, context: Context) -> Outcome:
    run = resume_run(context.store, OPERATOR, arguments.id)
    return queued(context, run, arguments.wait)


def _links(run: Run) -> dict[str, str | None]:
    return {"project": run.project_id, "snapshot": run.snapshot_id, "reward run": run.reward_run_id}


def _steps(run: Run) -> str:
    return f"{run.step} of {run.total_steps}" if run.total_steps else str(run.step)
