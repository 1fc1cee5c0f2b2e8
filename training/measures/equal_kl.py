"""Policies held against each other at one KL: the score that each one's own held-out evaluations had there.

KL is measured, and every policy ends at another; what counts is the score that a policy had for the same distance.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from data.records import Run
from data.runs.metrics import metrics_of
from data.runs.state import events_of
from data.store.engine import Tx

KL, SCORE = "held_out/kl_mean", "held_out/score_mean"
AS_ASKED = {  # what evaluations are made with, and what older releases called it
    "evaluation.prompts": "eval_prompts",
    "sampling.max_new_tokens": "max_new_tokens",
    "sampling.temperature": "temperature",
    "machine.seed": "seed",
}
PROMPTS_EVENT = "held_out_prompts"
NO_EVALUATIONS = "no held-out evaluations"
NOT_THERE = "no evaluation that near the start"


@dataclass(frozen=True)
class Path:
    """A policy's held-out evaluations: (KL, score) in their order. `why_not`: they can't stand beside the others'."""

    points: Sequence[tuple[float, float]] = ()
    why_not: str | None = None


def path_of(tx: Tx, run: Run, table: Run) -> Path:
    """The evaluations of a policy's run, if they are by the table's reward model, on its prompts, from its start."""
    known = {(point.step, point.name): point.value for point in metrics_of(tx, run.id, names=(KL, SCORE))}
    pairs = [(known.get((step, KL)), known.get((step, SCORE))) for step in sorted({step for step, _ in known})]
    points = [(kl, score) for kl, score in pairs if kl is not None and score is not None]
    if not points:
        return Path(why_not=NO_EVALUATIONS)
    for what, here, there in (
        ("by another reward model", run.reward_run_id, table.reward_run_id),
        ("on another snapshot", run.snapshot_id, table.snapshot_id),
        ("from another start", run.config.get("model"), table.config.get("model")),
    ):
        if here != there:
            return Path(why_not=f"evaluated {what}")
    return Path(points)


def equal_kl(paths: Mapping[str, Path]) -> float | None:
    """The greatest KL that all policies have reached: the least of their last ones. None where none has any."""
    ends = [path.points[-1][0] for path in paths.values() if path.points]
    return max(0.0, min(ends)) if ends else None


def row_at(path: Path, kl: float | None) -> dict[str, Any]:
    """What a policy's line of the table says of that KL: a score, or why there is none."""
    score = None if kl is None else score_at(path.points, kl)
    return {
        "score_at_equal_kl": score,
        "why_no_score_at_equal_kl": None if score is not None else path.why_not or NOT_THERE,
    }


def settings_that_differ(tx: Tx, runs: Iterable[Run]) -> list[str]:
    """Names of what the runs' evaluations were not made with alike, the prompts themselves last."""
    known = list(runs)
    found = [
        name
        for name, former in AS_ASKED.items()
        if len({run.config.get(name, run.config.get(former)) for run in known}) > 1
    ]
    prompts = {event.detail.get("sha256") for run in known for event in events_of(tx, run.id, kinds=(PROMPTS_EVENT,))}
    return [*found, *([PROMPTS_EVENT] if len(prompts - {None}) > 1 else [])]  # None: of an older release


def score_at(points: Sequence[tuple[float, float]], kl: float) -> float | None:
    """The score where (KL, score) in their order passed a KL last, straight between two over the root of the KL.

    None where they never did: nothing is said beyond them. A KL below 0, which is chance, counts as 0.
    """
    wanted, passed = _root(kl), [(_root(each), score) for each, score in points]
    if passed and passed[-1][0] == wanted:
        return passed[-1][1]
    for (left, low), (right, high) in reversed(list(pairwise(passed))):
        if min(left, right) <= wanted <= max(left, right):
            return low + (high - low) * (wanted - left) / (right - left) if left != right else high
    return None


def _root(kl: float) -> float:
    return math.sqrt(max(0.0, kl))
