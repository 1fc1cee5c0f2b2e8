"""The best policy of a PPO run, kept beside the last one: `run:ID/best` wherever a model is named."""

from __future__ import annotations

from dataclasses import dataclass

from data.engine import Tx
from data.metrics import metrics_of
from data.records import Run, RunKind
from data.runs import events_of

BEST_FOLDER = "best"
BEST_EVENT = "best_so_far"
_RUN = "run:"


@dataclass(frozen=True)
class BestPolicy:
    """The evaluation with the best figure, and the last one. `iteration`: after which one; 0 is the start, of which
    nothing is kept. `told_by`: the metric that decides. `last_figure`: None where it was not a finite number."""

    iteration: int
    told_by: str
    figure: float
    last_iteration: int
    last_figure: float | None


def run_of(name: str) -> str | None:
    """The run's id in `run:ID` and `run:ID/best`; None for any other model."""
    return name.removeprefix(_RUN).split("/", 1)[0] if name.startswith(_RUN) else None


def is_best(name: str) -> bool:
    return name.startswith(_RUN) and name.endswith(f"/{BEST_FOLDER}")


def best_name(run_id: str) -> str:
    return f"{_RUN}{run_id}/{BEST_FOLDER}"


def best_iteration(tx: Tx, run_id: str) -> int:
    """After which iteration the kept policy was measured; 0 where none is kept."""
    events = events_of(tx, run_id, kinds=(BEST_EVENT,))
    return int(events[-1].detail["iteration"]) if events else 0


def best_policy(tx: Tx, run_id: str) -> BestPolicy | None:
    """What the run has measured; None where it measured nothing."""
    events = events_of(tx, run_id, kinds=(BEST_EVENT,))
    if not events:
        return None
    iteration, told_by, figure = (events[-1].detail[name] for name in ("iteration", "told_by", "figure"))
    points = metrics_of(tx, run_id, names=(told_by,))
    step, value = (points[-1].step, points[-1].value) if points else (iteration, figure)
    return BestPolicy(int(iteration), told_by, figure, step, value)


def why_no_best(tx: Tx, run: Run) -> str | None:
    """Why `run:ID/best` is no model, and what to name in its place; None if it is one."""
    if run.kind is not RunKind.PPO:
        return f"that is a {run.kind} run, and only a ppo run keeps a best policy; name run:{run.id}"
    if not run.status.is_final:
        return f"that run is still {run.status}; wait until it has ended"
    best = best_policy(tx, run.id)
    if best is None:
        words = "it measured no held-out prompts (eval_prompts, and a snapshot with a held-out side)"
        return f"that run kept no best policy: {words}; name run:{run.id}"
    if best.iteration:
        return None
    last = "no number" if best.last_figure is None else f"{best.last_figure:.4g}"
    return (
        f"that run kept no best policy: its start was the best, by {best.told_by} ({best.figure:.4g}; the last, "
        f"iteration {best.last_iteration}, has {last}); name run:{run.id} for the last, or the start itself, "
        f"{run.config.get('model')}"
    )
