"""How far annotators agree: pairs of responses that two or more people compared, with intervals over prompts.

A unit is a pair of responses of one task; a person's value for it is <, = or >. Which response comes first is settled
by a hash of the texts, so that no order of ranks or of display leaks into the values. What could not be computed is
None, never 0.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import combinations

import evalica
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import kendalltau

from data.intervals import LEAST_PROMPTS, ratio_interval, wilson
from data.labels.people import get_person
from data.labels.projects import get_project
from data.labels.rankings import current_rankings
from data.labels.tasks import get_tasks
from data.records import Ranking, RankingStatus
from data.store import Store, Tx
from labeling.judgement.consensus import Judgement, accuracy_against

N_RESAMPLES, SEED = 1000, 0
N_WORST = 10
_TASKS_AT_ONCE = 500
_SUMS = 12  # per prompt: equal, n, equal strict, n strict, tau, n, accuracy, n, disagreement, counts of <, = and >


@dataclass(frozen=True)
class Answer:
    """One person's ranking of a task: `ranks[i]` belongs to `responses[i]`; `unplaced` are places in no order."""

    prompt: str
    task: str
    annotator: str
    responses: tuple[str, ...]
    ranks: tuple[int, ...]
    unplaced: tuple[int, ...] = ()


@dataclass(frozen=True)
class Figure:
    """A figure with its 95 % interval, how many comparisons it is of, and of how many prompts. None: undefined."""

    value: float | None
    low: float | None
    high: float | None
    n: int
    n_prompts: int = 0

    @property
    def is_told(self) -> bool:
        """Whether there are prompts enough for the interval to hold what it promises."""
        return self.n_prompts >= LEAST_PROMPTS and self.low is not None


@dataclass(frozen=True)
class Share:
    """How often an annotator, or the annotators of a task, agreed in `n` comparisons; None without one.

    `low`, `high`: its 95 % interval, Wilson's, of `n_tasks` tasks: comparisons within a task depend on each other.
    """

    name: str
    agreement: float | None
    n: int
    n_tasks: int = 0
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Agreement:
    """The agreement of a project, or of any answers.

    `pairs_with_ties`: share of equal values; `pairs_without_ties`: the same where both saw a difference; `alpha`:
    Krippendorff's, nominal; `tau`: the mean of Kendall's tau-b over two people's whole rankings of a task;
    `human_accuracy`: how well one person's ranking foretells another's, counted as a reward model's accuracy is.
    """

    pairs_with_ties: Figure
    pairs_without_ties: Figure
    alpha: Figure
    tau: Figure
    human_accuracy: Figure
    n_units: int
    n_tasks: int
    n_annotator_pairs: int
    annotators: list[Share]
    worst_tasks: list[Share]
    n_skipped: int = 0
    n_unacceptable: int = 0
    prompts: dict[str, str] = field(default_factory=dict)


def project_agreement(store: Store, project_id: str) -> Agreement:
    """The agreement of a project's current answers. Raises NotFound."""
    with store.read() as tx:
        get_project(tx, project_id)
        statuses, ranked = Counter[RankingStatus](), list[tuple[Ranking, str]]()
        for ranking, prompt_id in current_rankings(tx, project_id):
            statuses[ranking.status] += 1
            if ranking.status is RankingStatus.RANKED:
                ranked.append((ranking, prompt_id))
        names = {each.annotator_id: get_person(tx, each.annotator_id).name for each, _ in ranked}
        measured = agreement(_answers(tx, ranked))
        prompts = {
            task.id: task.messages[-1]["content"] for task in get_tasks(tx, [w.name for w in measured.worst_tasks])
        }
    return replace(
        measured,
        annotators=[replace(each, name=names[each.name]) for each in measured.annotators],
        n_skipped=statuses[RankingStatus.SKIPPED],
        n_unacceptable=statuses[RankingStatus.UNACCEPTABLE],
        prompts=prompts,
    )


def agreement(answers: Iterable[Answer]) -> Agreement:
    """Compute every figure. A person's answers to one task count once: the last one."""
    tasks: dict[str, dict[str, Answer]] = defaultdict(dict)
    people: set[str] = set()
    for answer in answers:
        tasks[answer.task][answer.annotator] = answer
        people.add(answer.annotator)
    sums: dict[str, NDArray[np.float64]] = defaultdict(lambda: np.zeros(_SUMS))
    by_person, by_task = Counter[tuple[str, bool]](), Counter[tuple[str, bool]]()
    tasks_of: dict[str, set[str]] = defaultdict(set)
    units: list[dict[str, int]] = []
    shared_by: set[tuple[str, str]] = set()
    for task, of_task in tasks.items():
        for unit in _units(of_task.values()):
            units.append(unit)
            row = sums[next(iter(of_task.values())).prompt]
            _add_unit(row, unit)
            for one, other in combinations(sorted(unit), 2):
                is_equal = unit[one] == unit[other]
                by_person.update([(one, is_equal), (other, is_equal)])
                tasks_of[one].add(task)
                tasks_of[other].add(task)
                by_task[task, is_equal] += 1
                shared_by.add((one, other))
        for one_answer, other_answer in combinations(of_task.values(), 2):
            _add_two(sums[one_answer.prompt], one_answer, other_answer)
    table = np.array([sums[prompt] for prompt in sorted(sums)]).reshape(-1, _SUMS)
    figures = _figures(table, units)
    shares = [_share(task, by_task, 1) for task in dict.fromkeys(task for task, _ in by_task)]
    worst = sorted((each for each in shares if each.agreement != 1), key=lambda each: (each.agreement or 0, -each.n))
    return Agreement(
        *figures,
        n_units=len(units),
        n_tasks=len(shares),
        n_annotator_pairs=len(shared_by),
        annotators=[_share(person, by_person, len(tasks_of[person])) for person in sorted(people)],
        worst_tasks=worst[:N_WORST],
    )


def _units(answers: Iterable[Answer]) -> list[dict[str, int]]:
    """The pairs of a task's responses that at least two people compared: annotator -> -1 (<), 0 (=), 1 (>)."""
    units: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    for answer in answers:
        rest = set(answer.unplaced)
        order = sorted(range(len(answer.ranks)), key=lambda place: _text_hash(answer.responses[place]))
        for first, second in combinations(order, 2):
            if not (first in rest and second in rest):
                value = (answer.ranks[first] > answer.ranks[second]) - (answer.ranks[first] < answer.ranks[second])
                units[answer.responses[first], answer.responses[second]][answer.annotator] = value
    return [unit for unit in units.values() if len(unit) >= 2]


def _text_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _add_unit(row: NDArray[np.float64], unit: dict[str, int]) -> None:
    values = list(unit.values())
    for one, other in combinations(values, 2):
        is_strict = one != 0 and other != 0
        row[:4] += (one == other, 1, is_strict and one == other, is_strict)
    counts = np.array([values.count(value) for value in (-1, 0, 1)])
    row[8] += (len(values) ** 2 - (counts**2).sum()) / (len(values) - 1)
    row[9:] += counts


def _add_two(row: NDArray[np.float64], one: Answer, other: Answer) -> None:
    """Add what two people's rankings of a task say of each other."""
    place_of = {response: place for place, response in enumerate(other.responses)}
    order = [place_of[response] for response in one.responses]
    mine = Judgement(one.ranks, one.unplaced)
    theirs = Judgement(
        tuple(other.ranks[place] for place in order),
        tuple(number for number, place in enumerate(order) if place in other.unplaced),
    )
    tau = _tau(mine, theirs)
    if tau is not None:
        row[4:6] += (tau, 1)
    for truth, guess in ((mine, theirs), (theirs, mine)):
        accuracy = accuracy_against(truth, guess)
        if accuracy is not None:
            row[6:8] += (accuracy, 1)


def _tau(one: Judgement, other: Judgement) -> float | None:
    """Kendall's tau-b of two whole rankings; None where one has all tied or left a rest in no order."""
    if one.unplaced or other.unplaced or len(set(one.ranks)) == 1 or len(set(other.ranks)) == 1:
        return None
    return float(kendalltau(one.ranks, other.ranks, variant="b").statistic)


def _figures(table: NDArray[np.float64], units: list[dict[str, int]]) -> tuple[Figure, Figure, Figure, Figure, Figure]:
    total = table.sum(axis=0)
    resampled = _resampled(table)
    point = _values(total)
    if units and point[2] is not None:
        point = (*point[:2], float(evalica.alpha(pd.DataFrame(units).T.astype(float), "nominal").alpha), *point[3:])
    n = (total[1], total[3], total[9:].sum(), total[5], total[7])
    said = (table[:, 1], table[:, 3], table[:, 9:].sum(axis=1), table[:, 5], table[:, 7])  # by prompt
    figures = []
    for figure in range(5):
        drawn = [value for values in resampled if (value := values[figure]) is not None]
        low, high = (None, None) if point[figure] is None else _reach(figure, table, drawn)
        figures.append(Figure(point[figure], low, high, int(n[figure]), int((said[figure] > 0).sum())))
    return figures[0], figures[1], figures[2], figures[3], figures[4]


# Sum and number of what each figure is the mean of, and what it can be; alpha is no mean.
_MEANS = {0: (0, 1, (0.0, 1.0)), 1: (2, 3, (0.0, 1.0)), 3: (4, 5, (-1.0, 1.0)), 4: (6, 7, (0.0, 1.0))}


def _reach(figure: int, table: NDArray[np.float64], drawn: list[float]) -> tuple[float | None, float | None]:
    """Percentiles of the resampled figures. Where all prompts say the same, what is known of the others; alpha has no
    interval then."""
    if not drawn:
        return None, None
    if max(drawn) - min(drawn) < 1e-12:
        if figure not in _MEANS:
            return None, None
        parts, wholes, within = _MEANS[figure]
        return ratio_interval(table[:, parts], table[:, wholes], within)
    low, high = np.percentile(drawn, [2.5, 97.5])
    return float(low), float(high)


_Values = tuple[float | None, float | None, float | None, float | None, float | None]


def _resampled(table: NDArray[np.float64]) -> list[_Values]:
    """The figures of prompts drawn with replacement; none where a single prompt has all there is."""
    n = len(table)
    if n < 2:
        return []
    rng = np.random.default_rng(SEED)
    return [_values(rng.multinomial(n, np.full(n, 1 / n)) @ table) for _ in range(N_RESAMPLES)]


def _values(total: NDArray[np.float64]) -> _Values:
    """The figures from the sums over prompts; alpha is undefined where all values are of one kind."""
    n = total[9:].sum()
    expected = n**2 - (total[9:] ** 2).sum()
    alpha = float(1 - (n - 1) * total[8] / expected) if expected else None
    ratios = [_ratio(total[place], total[place + 1]) for place in (0, 2, 4, 6)]
    return ratios[0], ratios[1], alpha, ratios[2], ratios[3]


def _ratio(part: float, whole: float) -> float | None:
    return float(part / whole) if whole else None


def _share(name: str, counted: Counter[tuple[str, bool]], n_tasks: int) -> Share:
    n = counted[name, True] + counted[name, False]
    value = _ratio(counted[name, True], n)
    return Share(name, value, n, n_tasks, *wilson(value, n_tasks))


def _answers(tx: Tx, ranked: list[tuple[Ranking, str]]) -> Iterable[Answer]:
    for start in range(0, len(ranked), _TASKS_AT_ONCE):
        lot = ranked[start : start + _TASKS_AT_ONCE]
        tasks = {each.id: each for each in get_tasks(tx, list({ranking.task_id for ranking, _ in lot}))}
        for ranking, prompt_id in lot:
            texts = tuple(response.text for response in tasks[ranking.task_id].responses)
            yield Answer(
                prompt_id, ranking.task_id, ranking.annotator_id, texts, ranking.ranks or (), ranking.detail.unplaced
            )
