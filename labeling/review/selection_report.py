"""Whether a selection beat chance: what people said on its tasks and on the control arm's, beside what the reward
model had expected. Intervals are 95 %, percentiles of a bootstrap over prompts."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from data.errors import InvalidInput
from data.labels.projects import get_project
from data.labels.rankings import current_rankings
from data.labels.scores import arms_of, scores_of_tasks
from data.records import Ranking, RankingStatus
from data.store import Store
from labeling.judgement.pairs import pairs_from_ranks
from labeling.review.selection import RANDOM, mean_margin

N_BOOTSTRAP = 2000
LEAST_PROMPTS = 10  # below, an interval by bootstrap says nothing
Interval = tuple[float, float]


@dataclass(frozen=True)
class Arm:
    """One arm. `accuracy`: share of people's pairs that the model ordered as they did (equal scores: half), the mean
    over prompts. `tie_share`: of all pairs that people placed. `skip_share`: of all answers. `seconds`: the median of
    an answer. None: undefined."""

    name: str
    n_tasks: int
    n_ranked: int
    n_prompts: int
    accuracy: float | None
    interval: Interval | None
    mean_margin: float | None
    tie_share: float | None
    skip_share: float | None
    seconds: float | None


@dataclass(frozen=True)
class SelectionReport:
    """The arms of a project, the control arm last; `reward_run_ids`: what the newest selection went by,
    none for the instant reward model.

    `difference`: accuracy of the newest selection's arm less the control arm's, with its interval.
    """

    reward_run_ids: tuple[str, ...]
    arms: list[Arm]
    difference: float | None
    interval: Interval | None
    verdict: str


def selection_report(store: Store, project_id: str, *, seed: int = 0) -> SelectionReport:
    """What people said on each arm's tasks, beside the scores of the reward models that the selection went by.

    The models had scored a task before anybody ranked it. Raises InvalidInput if nothing has been selected.
    """
    with store.read() as tx:
        get_project(tx, project_id)
        arms = arms_of(tx, project_id)
        if not arms:
            raise InvalidInput("nothing has been selected in this project yet; `rankloop selection apply` does it")
        scores = scores_of_tasks(tx, list(arms))
        tallies: dict[str, _ArmTally] = defaultdict(_ArmTally)
        for arm in arms.values():
            tallies[arm.name].n_tasks += 1
        for ranking, prompt_id in current_rankings(tx, project_id):
            if (chosen := arms.get(ranking.task_id)) is not None:
                of_task = scores[ranking.task_id]
                kept = [chosen.scores] if chosen.scores else []
                used = kept or [of_task[run_id] for run_id in chosen.reward_run_ids if run_id in of_task]
                tallies[chosen.name].add(ranking, prompt_id, used)
    newest = next((arm for arm in arms.values() if arm.name != RANDOM), next(iter(arms.values())))
    names = sorted(tallies, key=lambda name: (name == RANDOM, name))
    rng = np.random.default_rng(seed)
    draws = {name: tallies[name].draws(rng) for name in names}
    found_arms = [tallies[name].as_arm(name, draws[name]) for name in names]
    difference = interval = None
    ours, control = draws.get(newest.name), draws.get(RANDOM)
    if newest.name != RANDOM and ours is not None and control is not None:
        difference = float(tallies[newest.name].by_prompt().mean() - tallies[RANDOM].by_prompt().mean())
        interval = _interval(ours - control)
    return SelectionReport(
        newest.reward_run_ids, found_arms, difference, interval, verdict(found_arms, difference, interval)
    )


def verdict(arms: Sequence[Arm], difference: float | None, interval: Interval | None) -> str:
    """What the figures allow to say, in a sentence."""
    numbers = ", ".join(f"{arm.n_prompts} in {arm.name}" for arm in arms)
    if difference is None or interval is None:
        return (
            f"Too early to say whether selection beat random: {LEAST_PROMPTS} prompts with a ranked pair are needed in "
            f"each of two arms, and there are {numbers}."
        )
    figures = f"selected less random {difference:+.3f}, 95 % interval {interval[0]:+.3f} to {interval[1]:+.3f}"
    figures += f"; prompts: {numbers}"
    if interval[0] <= 0 <= interval[1]:
        return (
            "No evidence that selection beat random: the arms differ in how often the model is right no more than "
            f"chance allows ({figures})."
        )
    if difference > 0:
        return f"Selection did worse than random: it found pairs that the model has right more often ({figures})."
    return (
        f"Selection found pairs that the model has wrong more often than random ones ({figures}). Whether a model "
        "learns more from them is not shown by this: they may be harder for people too; see ties, skips and agreement."
    )


@dataclass
class _ArmTally:
    """What is counted of one arm."""

    n_tasks: int = 0
    accuracies: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))  # prompt -> by ranking
    margins: dict[str, float] = field(default_factory=dict)  # task -> mean margin
    ranked: set[str] = field(default_factory=set)
    n_answers: int = 0
    n_skips: int = 0
    n_pairs: int = 0
    n_ties: int = 0
    durations: list[int] = field(default_factory=list)

    def add(self, ranking: Ranking, prompt_id: str, scores: Sequence[Sequence[float]]) -> None:
        """Count an answer; `scores`: of each model, by position."""
        self.n_answers += 1
        self.n_skips += ranking.status is RankingStatus.SKIPPED
        if ranking.status is not RankingStatus.SKIPPED and ranking.duration_ms is not None:
            self.durations.append(ranking.duration_ms)
        if ranking.ranks is None:
            return
        self.ranked.add(ranking.task_id)
        rest = set(ranking.detail.unplaced)
        placed = [pair for pair in combinations(range(len(ranking.ranks)), 2) if not rest.issuperset(pair)]
        self.n_pairs += len(placed)
        self.n_ties += sum(ranking.ranks[one] == ranking.ranks[other] for one, other in placed)
        pairs = pairs_from_ranks(ranking.ranks)
        if scores:
            self.margins[ranking.task_id] = mean_margin(scores)
        if scores and pairs:
            right = [_agreement(each[pair.chosen], each[pair.rejected]) for each in scores for pair in pairs]
            self.accuracies[prompt_id].append(statistics.fmean(right))

    def by_prompt(self) -> np.ndarray:
        return np.array([statistics.fmean(each) for each in self.accuracies.values()])

    def draws(self, rng: np.random.Generator) -> np.ndarray | None:
        values = self.by_prompt()
        if len(values) < LEAST_PROMPTS:
            return None
        return np.asarray(values[rng.integers(0, len(values), (N_BOOTSTRAP, len(values)))].mean(axis=1))

    def as_arm(self, name: str, draws: np.ndarray | None) -> Arm:
        values = self.by_prompt()
        return Arm(
            name=name,
            n_tasks=self.n_tasks,
            n_ranked=len(self.ranked),
            n_prompts=len(values),
            accuracy=float(values.mean()) if len(values) else None,
            interval=None if draws is None else _interval(draws),
            mean_margin=statistics.fmean(self.margins.values()) if self.margins else None,
            tie_share=self.n_ties / self.n_pairs if self.n_pairs else None,
            skip_share=self.n_skips / self.n_answers if self.n_answers else None,
            seconds=statistics.median(self.durations) / 1000 if self.durations else None,
        )


def _agreement(chosen: float, rejected: float) -> float:
    return 0.5 if chosen == rejected else float(chosen > rejected)


def _interval(values: np.ndarray) -> Interval:
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)
