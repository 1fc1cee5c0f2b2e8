"""Selection: which tasks people rank next, by what a reward model makes of their responses: the models of reward runs,
or the instant reward model.

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
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import combinations

from data.errors import InvalidInput
from data.fields import option
from data.labels.projects import draw_turn, get_project
from data.labels.roles import Actor, acting
from data.labels.scores import Heads, forget_arms, heads_of_tasks, scores_of_tasks, set_arms, untouched_tasks
from data.labels.slots import set_turns
from data.records import Role, RunKind, RunStatus
from data.runs.state import get_run
from data.store import Store, Tx

RANDOM = "random"  # the control arm; the other arm has the name of what selected
INSTANT = "instant"  # what the instant reward model is called, where a reward run has its id
Scores = Sequence[Sequence[float]]  # of each model, or of each head: its scores by position
Ordered = list[tuple[str, str]]  # (task, arm), in the order in which they come


class By(StrEnum):
    """What makes a task worth ranking early."""

    AUTO = "auto"
    LOW_MARGIN = "low_margin"
    DISAGREEMENT = "disagreement"


@dataclass(frozen=True, kw_only=True)
class SelectionConfig:
    """How tasks that wait to be ranked are put in order."""

    by: str = option(
        By.AUTO.value,
        "low_margin: first where the model's scores of the responses differ least; disagreement: first where the heads "
        "of a reward model, or several reward models, differ most on which response is better; auto: disagreement "
        "where there are several, else low_margin",
        choices=tuple(By),
    )
    control: float = option(0.25, "this share of the tasks is drawn by lot, to compare with", min=0.05, max=0.95)
    seed: int = option(0, "which tasks are drawn by lot", min=0, max=2**31 - 1)


@dataclass(frozen=True)
class Opinion:
    """What the instant reward model makes of a task: its `scores` by position, and those of each of its `heads`."""

    scores: tuple[float, ...]
    heads: Heads


@dataclass(frozen=True)
class Selected:
    """What a selection did. `by`: what it went by. `counts`: `tasks` waiting, `random` and `selected` ones, and
    `without_scores` (by the instant reward model `without_features`), which come in the project's order."""

    by: By
    counts: Counter[str]


def apply_selection(
    store: Store, who: Actor, project_id: str, reward_run_ids: Sequence[str], config: SelectionConfig
) -> Selected:
    """Put the project's waiting tasks in order and mark each with its arm; what an earlier selection said of them goes.

    Only tasks that nobody holds or has ranked are touched, gold is not, and only the ones with scores of all the runs.
    Raises InvalidInput if a run is no finished reward run, if nobody could disagree, or no task has scores of them all.
    """
    with acting(store, who, Role.RESEARCHER) as tx:
        runs = [_reward_run(tx, run_id) for run_id in dict.fromkeys(reward_run_ids)]
        if not runs:
            raise InvalidInput("a selection needs a reward run; none is named")
        waiting = untouched_tasks(tx, project_id)
        scores = scores_of_tasks(tx, waiting, runs)
        known = {task_id: each for task_id, each in scores.items() if set(runs) == set(each)}
        if not known:
            whose = "this reward model" if len(runs) == 1 else "all these reward models"
            raise InvalidInput(f"{len(waiting)} tasks wait to be ranked, none with scores of {whose}: score them first")
        by, ordered = _doubtful_first(known, heads_of_tasks(tx, list(known), runs), config)
        _put_in_order(tx, project_id, waiting, ordered)
        set_arms(tx, project_id, dict(ordered), runs)
        return _selected(by, ordered, len(waiting), "without_scores")


def apply_opinions(
    store: Store, who: Actor, project_id: str, opinions: Mapping[str, Opinion], config: SelectionConfig
) -> Selected:
    """The same by what the instant reward model makes of tasks; it is kept with each, for the report.

    Raises InvalidInput if it has an opinion of no task that waits.
    """
    with acting(store, who, Role.RESEARCHER) as tx:
        waiting = untouched_tasks(tx, project_id)
        known = {task_id: opinions[task_id] for task_id in waiting if task_id in opinions}
        if not known:
            raise InvalidInput(
                f"{len(waiting)} tasks wait to be ranked, and of none has the frozen model read the responses: "
                "`rankloop features` reads them"
            )
        scores = {task_id: {INSTANT: each.scores} for task_id, each in known.items()}
        heads = {task_id: {INSTANT: each.heads} for task_id, each in known.items()}
        by, ordered = _doubtful_first(scores, heads, config)
        _put_in_order(tx, project_id, waiting, ordered)
        set_arms(tx, project_id, dict(ordered), (), {task_id: each.scores for task_id, each in known.items()})
        return _selected(by, ordered, len(waiting), "without_features")


def _doubtful_first(
    scores: Mapping[str, Mapping[str, Sequence[float]]],
    heads: Mapping[str, Mapping[str, Heads]],
    config: SelectionConfig,
) -> tuple[By, Ordered]:
    by, doubts = doubts_of(scores, heads, config.by)
    return by, order_tasks(doubts, replace(config, by=by.value))


def _put_in_order(tx: Tx, project_id: str, waiting: Sequence[str], ordered: Ordered) -> None:
    """Let the ordered tasks come first and forget what earlier selections made of any that waits."""
    order, known = get_project(tx, project_id).settings.task_order, dict(ordered)
    forget_arms(tx, waiting)
    # The project's own turns are 0 or above, so these come first.
    set_turns(tx, project_id, {task_id: draw_turn(order) for task_id in waiting if task_id not in known})
    set_turns(tx, project_id, {task_id: float(place - len(ordered)) for place, (task_id, _) in enumerate(ordered)})


def _selected(by: By, ordered: Ordered, n_waiting: int, missing: str) -> Selected:
    n_random = sum(arm == RANDOM for _, arm in ordered)
    counts = {"tasks": n_waiting, "random": n_random, "selected": len(ordered) - n_random}
    return Selected(by, Counter(counts | {missing: n_waiting - len(ordered)}))


def _reward_run(tx: Tx, run_id: str) -> str:
    run = get_run(tx, run_id)
    if run.kind is not RunKind.REWARD or run.status is not RunStatus.SUCCEEDED:
        raise InvalidInput(f"run {run.id} is a {run.kind} run that has {run.status}; a finished reward run is needed")
    return run.id


def doubts_of(
    scores: Mapping[str, Mapping[str, Sequence[float]]], heads: Mapping[str, Mapping[str, Heads]], by: str
) -> tuple[By, dict[str, float]]:
    """How unsure the models are about each task (more is more doubtful), and by what that was settled.

    `scores`: task -> reward run -> scores by position; `heads`: the same of the ensembles among them.
    Raises InvalidInput where nobody could disagree, and `by` asks for it.
    """
    voices = {task_id: voices_of(each, heads.get(task_id, {})) for task_id, each in scores.items()}
    settled = _settled(by, min(map(len, voices.values())))
    if settled is By.DISAGREEMENT:
        return settled, {task_id: disagreement(each) for task_id, each in voices.items()}
    return settled, {task_id: -mean_margin(list(each.values())) for task_id, each in scores.items()}


def _settled(by: str, n_voices: int) -> By:
    """What to go by, where a task has so many models or heads to disagree."""
    if by == By.AUTO:
        return By.DISAGREEMENT if n_voices > 1 else By.LOW_MARGIN
    if by == By.DISAGREEMENT and n_voices < 2:
        raise InvalidInput(
            "disagreement needs a reward model of several heads (trained with heads=4, say), or two reward runs or "
            "more; this is one model with one head"
        )
    return By(by)


def voices_of(scores: Mapping[str, Sequence[float]], heads: Mapping[str, Heads]) -> Scores:
    """All that may disagree on a task: each head of an ensemble, and each model that has one head."""
    return [voice for run_id, each in scores.items() for voice in heads.get(run_id, (each,))]


def order_tasks(doubts: Mapping[str, float], config: SelectionConfig) -> Ordered:
    """(task, arm) in the order in which they come: the most doubtful first, with the control arm spread evenly between.

    `doubts`: by task, how unsure the model is; `config.by` names the other arm. The control arm is drawn from all tasks
    before anything is put in order.
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


def mean_margin(scores: Scores) -> float:
    """The mean over all pairs of responses of |difference of scores|, averaged over the models. All pairs, because a
    reward model learns from all of them."""
    return statistics.fmean(
        statistics.fmean(abs(one - other) for one, other in combinations(each, 2)) for each in scores
    )


def disagreement(scores: Scores) -> float:
    """The mean over all pairs of responses of the standard deviation, over the models or heads, of the probability that
    the first is better: sigmoid(difference of scores). Probabilities, because models score on scales of their own."""
    pairs = combinations(range(len(scores[0])), 2)
    return statistics.fmean(
        statistics.pstdev(_sigmoid(each[first] - each[second]) for each in scores) for first, second in pairs
    )


def _sigmoid(value: float) -> float:
    return 0.5 * (1.0 + math.tanh(value / 2.0))
