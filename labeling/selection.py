"""Selection: which tasks people rank next, by what a reward model makes of their responses.

The tasks on which the model is least sure come first, before whatever the project's own order has. A part of them is
drawn by lot instead, from all of them and before the rest is put in order: the control arm, without which nobody could
say whether the selection was worth it.
"""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations

from data.errors import InvalidInput
from data.fields import option
from data.projects import draw_turn, get_project
from data.records import RunKind, RunStatus
from data.runs import get_run
from data.scores import forget_arms, scores_of_tasks, set_arms, untouched_tasks
from data.slots import set_turns
from data.store import Store, Tx

RANDOM = "random"  # the control arm; the other arm has the name of what selected
Scores = Mapping[str, Sequence[float]]  # reward run -> its scores by position


class By(StrEnum):
    """What makes a task worth ranking early."""

    LOW_MARGIN = "low_margin"
    DISAGREEMENT = "disagreement"


@dataclass(frozen=True, kw_only=True)
class SelectionConfig:
    """How tasks that wait to be ranked are put in order."""

    by: str = option(
        By.LOW_MARGIN.value,
        "low_margin: first where the model's scores of the responses differ least; disagreement: first where several "
        "reward models differ most on which response is better",
        choices=tuple(By),
    )
    control: float = option(0.25, "this share of the tasks is drawn by lot, to compare with", min=0.05, max=0.95)
    seed: int = option(0, "which tasks are drawn by lot", min=0, max=2**31 - 1)


def apply_selection(
    store: Store, project_id: str, reward_run_ids: Sequence[str], config: SelectionConfig
) -> Counter[str]:
    """Put the project's waiting tasks in order and mark each with its arm; what an earlier selection said of them goes.

    Only tasks that nobody holds or has ranked are touched, and of those only the ones with scores of all the runs.
    Returns counts: `tasks` waiting, `random` and `selected` ones, `without_scores` (they come in the project's order).
    Raises InvalidInput if a run is no finished reward run, there are too few runs, or no task has scores of them all.
    """
    with store.begin() as tx:
        order = get_project(tx, project_id).settings.task_order
        runs = [_reward_run(tx, run_id) for run_id in dict.fromkeys(reward_run_ids)]
        if len(runs) < (2 if config.by == By.DISAGREEMENT else 1):
            needed = "two reward runs or more" if config.by == By.DISAGREEMENT else "a reward run"
            raise InvalidInput(f"{config.by} needs {needed}; {len(runs)} named")
        waiting = untouched_tasks(tx, project_id)
        scores = scores_of_tasks(tx, waiting, runs)
        known = {task_id: each for task_id, each in scores.items() if set(runs) == set(each)}
        if not known:
            whose = "this reward model" if len(runs) == 1 else "all these reward models"
            raise InvalidInput(f"{len(waiting)} tasks wait to be ranked, none with scores of {whose}: score them first")
        ordered = order_tasks({task_id: doubt(each, config.by) for task_id, each in known.items()}, config)
        forget_arms(tx, waiting)
        set_arms(tx, project_id, dict(ordered), runs)
        # The project's own turns are 0 or above, so these come first.
        set_turns(tx, project_id, {task_id: draw_turn(order) for task_id in waiting if task_id not in known})
        set_turns(tx, project_id, {task_id: float(place - len(ordered)) for place, (task_id, _) in enumerate(ordered)})
    n_random = sum(arm == RANDOM for _, arm in ordered)
    return Counter(
        tasks=len(waiting),
        random=n_random,
        selected=len(ordered) - n_random,
        without_scores=len(waiting) - len(ordered),
    )


def _reward_run(tx: Tx, run_id: str) -> str:
    run = get_run(tx, run_id)
    if run.kind is not RunKind.REWARD or run.status is not RunStatus.SUCCEEDED:
        raise InvalidInput(f"run {run.id} is a {run.kind} run that has {run.status}; a finished reward run is needed")
    return run.id


def order_tasks(doubts: Mapping[str, float], config: SelectionConfig) -> list[tuple[str, str]]:
    """(task, arm) in the order in which they come: the most doubtful first, with the control arm spread evenly between.

    `doubts`: by task, how unsure the model is. The control arm is drawn from all tasks before anything is put in order.
    """
    rng = random.Random(config.seed)
    task_ids = sorted(doubts)
    rng.shuffle(task_ids)  # among equally doubtful ones the lot decides
    n_random = min(len(task_ids), max(1, round(config.control * len(task_ids))))
    control = task_ids[:n_random]
    selected = sorted(task_ids[n_random:], key=lambda task_id: -doubts[task_id])
    places = [((place + 0.5) / len(control), task_id, RANDOM) for place, task_id in enumerate(control)]
    places += [((place + 0.5) / len(selected), task_id, config.by) for place, task_id in enumerate(selected)]
    return [(task_id, arm) for _, task_id, arm in sorted(places, key=lambda each: each[0])]


def doubt(scores: Scores, by: str) -> float:
    """How unsure the model (or the models) is about a task; more is more doubtful."""
    return disagreement(list(scores.values())) if by == By.DISAGREEMENT else -mean_margin(list(scores.values()))


def mean_margin(scores: Sequence[Sequence[float]]) -> float:
    """The mean over all pairs of responses of |difference of scores|, averaged over the models. All pairs, because a
    reward model learns from all of them."""
    return statistics.fmean(
        statistics.fmean(abs(one - other) for one, other in combinations(each, 2)) for each in scores
    )


def disagreement(scores: Sequence[Sequence[float]]) -> float:
    """The mean over all pairs of responses of the standard deviation, over the models, of the probability that the
    first is better: sigmoid(difference of scores). Probabilities, because models score on scales of their own."""
    pairs = combinations(range(len(scores[0])), 2)
    return statistics.fmean(
        statistics.pstdev(_sigmoid(each[first] - each[second]) for each in scores) for first, second in pairs
    )


def _sigmoid(value: float) -> float:
    return 0.5 * (1.0 + math.tanh(value / 2.0))
