"""The best policy of a PPO run, kept beside the last one: `run:ID/best` wherever a model is named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from data.intervals import Difference, paired
from data.records import Run, RunKind
from data.runs.metrics import metrics_of
from data.runs.state import events_of
from data.store.engine import Tx

BEST_FOLDER = "best"
BEST_EVENT, STANDING_EVENT = "best_so_far", "best_compared"
START = 0  # the evaluation before the first update
_RUN = "run:"


@dataclass(frozen=True)
class Standing:
    """By how much the best of `evaluations` is better than the others, over `prompts` prompts: than the start
    (`less_start`, None where it is the start) and than the next best, after iteration `next_iteration`.

    Both are paired by prompt, and share their 5 % with every other evaluation that it was chosen from.
    """

    prompts: int
    evaluations: int
    less_start: Difference | None
    next_iteration: int | None
    less_next: Difference | None


@dataclass(frozen=True)
class BestPolicy:
    """The evaluation with the best figure, and the last one. `iteration`: after which one; 0 is the start, of which
    nothing is kept. `told_by`: the metric that decides. `last_figure`: None where it was not a finite number.
    `standing`: None where an older release did not tell it."""

    iteration: int
    told_by: str
    figure: float
    last_iteration: int
    last_figure: float | None
    standing: Standing | None = None


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
    return BestPolicy(int(iteration), told_by, figure, step, value, _standing(tx, run_id, int(iteration)))


def standing(best: int, by_prompt: Mapping[int, Sequence[float]], evaluations: int) -> Standing:
    """Compare the evaluation after iteration `best` with the others that are given, prompt by prompt.

    by_prompt: what each evaluation's figure is the mean of. evaluations: among how many the best was chosen.
    """
    mine, others = by_prompt[best], {each: values for each, values in by_prompt.items() if each != best}
    second = max(others, key=lambda each: (fmean(others[each]), -each), default=None)
    of = max(1, evaluations - 1)
    return Standing(
        len(mine),
        evaluations,
        paired(mine, others[START], of) if START in others else None,
        second,
        None if second is None else paired(mine, others[second], of),
    )


def standing_detail(measured: Standing) -> dict[str, Any]:
    """As an event and a result hold it."""
    told = {"less_start": measured.less_start, "less_next": measured.less_next}
    words = {name: None if each is None else each.as_dict() for name, each in told.items()}
    return {
        "prompts": measured.prompts,
        "evaluations": measured.evaluations,
        "next_iteration": measured.next_iteration,
    } | words


def _standing(tx: Tx, run_id: str, best: int) -> Standing | None:
    """The newest that was told of this best one."""
    events = events_of(tx, run_id, kinds=(STANDING_EVENT,))
    if not events or events[-1].detail["iteration"] != best:
        return None
    detail = events[-1].detail
    start, following = (
        None if each is None else Difference(each["value"], each["low"], each["high"], each["n"])
        for each in (detail["less_start"], detail["less_next"])
    )
    return Standing(detail["prompts"], detail["evaluations"], start, detail["next_iteration"], following)


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
    n = "" if best.standing is None else f" on {best.standing.prompts:,} prompts"
    return (
        f"that run kept no best policy: no evaluation had a higher {best.told_by} than its start "
        f"({best.figure:.4g}{n}; the last, iteration {best.last_iteration}, has {last}); name run:{run.id} for the "
        f"last, or the start itself, {run.config.get('model')}"
    )
