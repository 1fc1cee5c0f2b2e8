"""Which models a form offers: what was sampled, what was trained here, the demo model."""

from __future__ import annotations

from contextlib import suppress

from app.widgets.words import ago, flatten, number, run_name, short_id
from data.errors import NotFound
from data.records import Run, Snapshot
from data.runs import get_run
from data.store import Tx
from data.tasks import models_of_project
from training.config import DEMO_MODEL
from training.launch import reward_models, trained_models


def model_suggestions(tx: Tx, project_id: str) -> dict[str, str]:
    """Models that can write: value -> label. Anything else may be typed."""
    found = {DEMO_MODEL: "demo: SmolLM2 135M Instruct"}
    for run in trained_models(tx, project_id):
        found[f"run:{run.id}"] = f"{run_name(run)}, {ago(tx.now() - (run.ended_at or run.created_at))}"
    for model, n_responses in models_of_project(tx, project_id):
        found.setdefault(model, f"{model} ({n_responses:,} responses here)")
    return found


def model_name(tx: Tx, value: str) -> str:
    """How to call a model of a configuration: a run of ours by its kind, the rest as it is."""
    if not value.startswith("run:"):
        return value
    with suppress(NotFound):
        return run_name(get_run(tx, value.removeprefix("run:")))
    return value


def reward_run_labels(tx: Tx, project_id: str) -> dict[str, str]:
    """Finished reward runs: id -> label with what it reached."""
    now = tx.now()
    return {run.id: _reward_label(run, now) for run in reward_models(tx, project_id)}


def snapshot_label(snapshot: Snapshot, now: float) -> str:
    counts = snapshot.counts
    sizes = f"{counts.get('rankings_used', 0):,} rankings, {counts.get('pairs', 0):,} pairs"
    return f"{short_id(snapshot.id)}: {sizes}, {ago(now - snapshot.created_at)}"


def _reward_label(run: Run, now: float) -> str:
    figures = flatten(run.result).items()
    accuracy = next((value for name, value in figures if name.endswith("pair_accuracy")), None)
    reached = f", accuracy {number(accuracy)}" if isinstance(accuracy, float) else ""
    return f"{run_name(run)}{reached}, {ago(now - (run.ended_at or run.created_at))}"
