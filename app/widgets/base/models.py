"""Which models a form offers: what was sampled, what was trained here, the demo model."""

from __future__ import annotations

from contextlib import suppress

from app.words.values import ago, flatten, number, run_name, short_id
from data.errors import NotFound
from data.labels.tasks import models_of_project
from data.records import Run, Snapshot
from data.runs.best_policy import best_iteration, best_name, is_best, run_of
from data.runs.state import get_run
from data.store import Tx
from training.launch.config import DEMO_MODEL
from training.launch.find import best_policies, reward_models, trained_models


def model_suggestions(tx: Tx, project_id: str) -> dict[str, str]:
    """Models that can write: value -> label. Anything else may be typed."""
    labels = {DEMO_MODEL: "demo: SmolLM2 135M Instruct"}
    best = {run.id: (run, iteration) for run, iteration in best_policies(tx, project_id)}
    for run in trained_models(tx, project_id):
        labels[f"run:{run.id}"] = f"{run_name(run)}, {_when(tx, run)}"
        if run.id in best:
            labels |= _best_label(tx, *best.pop(run.id))
    for run, iteration in best.values():  # of runs that were stopped
        labels |= _best_label(tx, run, iteration)
    for model, n_responses in models_of_project(tx, project_id):
        labels.setdefault(model, f"{model} ({n_responses:,} responses here)")
    return labels


def model_name(tx: Tx, value: str) -> str:
    """How to call a model of a configuration: a run of ours by its kind, the rest as it is."""
    run_id = run_of(value)
    if run_id is None:
        return value
    with suppress(NotFound):
        run = get_run(tx, run_id)
        return best_label(run, best_iteration(tx, run.id)) if is_best(value) else run_name(run)
    return value


def best_label(run: Run, iteration: int) -> str:
    """`PPO 1a2b3c best (iteration 4)`."""
    return f"{run_name(run)} best (iteration {iteration})"


def _best_label(tx: Tx, run: Run, iteration: int) -> dict[str, str]:
    return {best_name(run.id): f"{best_label(run, iteration)}, {_when(tx, run)}"}


def _when(tx: Tx, run: Run) -> str:
    return ago(tx.now() - (run.ended_at or run.created_at))


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
