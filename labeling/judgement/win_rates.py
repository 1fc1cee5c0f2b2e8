"""Win rates between models, with intervals, and strengths by Bradley and Terry's model with ties.

Prompts are what is drawn: several rankings of a prompt are averaged within it, and the bootstrap draws prompts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np

from data.intervals import wilson

N_BOOTSTRAP = 1000
NOT_CONNECTED = "no chain of comparisons leads from each model to each other"
Interval = tuple[float, float]


class PairOutcome(NamedTuple):
    """`first` against `second` in one ranking: 1 preferred, 0.5 tie, 0 the other is preferred. In order of name."""

    first: str
    second: str
    result: float


PromptOutcomes = list[list[PairOutcome]]  # of one prompt: for each ranking its outcomes


@dataclass(frozen=True)
class Rate:
    """`first` against `second`: shares of prompts won, tied and lost; `rate` is wins and half of the ties.

    `interval`: 95 %, percentiles of a bootstrap over prompts, Wilson's where all prompts say the same and a bootstrap
    would have no width; None below two prompts. `n_prompts`: with such a pair.
    """

    first: str
    second: str
    wins: float
    ties: float
    losses: float
    rate: float
    interval: Interval | None
    n_prompts: int


@dataclass(frozen=True)
class Strength:
    """A model's strength on a scale where the mean of the logarithms is 0: odds of `a` against `b` without a tie are
    exp(a - b)."""

    model: str
    value: float
    interval: Interval | None


@dataclass(frozen=True)
class WinRates:
    """Rates of all pairs in order of name, strengths with the strongest first. `n_prompts`: with any comparison.

    There are no strengths where no chain of comparisons leads from each model to each other: they would have no common
    scale.
    """

    rates: list[Rate]
    strengths: list[Strength]
    n_prompts: int


def win_rates(prompts: Sequence[PromptOutcomes], *, seed: int = 0, n_bootstrap: int = N_BOOTSTRAP) -> WinRates:
    """Rates and strengths from outcomes by prompt."""
    shares = [each for each in map(_shares, prompts) if each]
    models = sorted({model for each in shares for pair in each for model in pair})
    pairs = [pair for pair in combinations(models, 2) if any(pair in each for each in shares)]
    table = np.full((len(shares), len(pairs), 3), np.nan)  # prompt, pair, (won, tied, lost)
    for row, by_pair in enumerate(shares):
        for column, pair in enumerate(pairs):
            if pair in by_pair:
                table[row, column] = by_pair[pair]
    rng = np.random.default_rng(seed)
    draws = [rng.integers(0, len(shares), len(shares)) for _ in range(n_bootstrap)] if len(shares) > 1 else []
    return WinRates(
        rates=[_rate(pair, table[:, column], draws) for column, pair in enumerate(pairs)],
        strengths=_strengths(models, pairs, table, draws),
        n_prompts=len(shares),
    )


def _shares(rankings: PromptOutcomes) -> dict[tuple[str, str], list[float]]:
    """For each pair of models, the shares of the prompt's comparisons that were won, tied and lost."""
    results_of: dict[tuple[str, str], list[float]] = defaultdict(list)
    for outcomes in rankings:
        for first, second, result in outcomes:
            results_of[first, second].append(result)
    return {
        pair: [results.count(value) / len(results) for value in (1.0, 0.5, 0.0)] for pair, results in results_of.items()
    }


def _rate(pair: tuple[str, str], column: np.ndarray, draws: Sequence[np.ndarray]) -> Rate:
    known = ~np.isnan(column[:, 0])
    wins, ties, losses = (float(value) for value in column[known].mean(axis=0))
    scores = column[:, 0] + column[:, 1] / 2
    means = [scores[draw][known[draw]].mean() for draw in draws if known[draw].any()]
    n = int(known.sum())
    rate = wins + ties / 2
    interval = None if n < 2 else _of_equal(rate, n) if np.ptp(scores[known]) == 0 else _interval(means)
    return Rate(*pair, wins, ties, losses, rate, interval, n)


def _strengths(
    models: list[str], pairs: list[tuple[str, str]], table: np.ndarray, draws: Sequence[np.ndarray]
) -> list[Strength]:
    if not models or not _is_connected(models, pairs):
        return []
    values = _newman(models, pairs, np.nansum(table, axis=0))
    drawn = np.array([_newman(models, pairs, np.nansum(table[draw], axis=0)) for draw in draws[: N_BOOTSTRAP // 5]])
    strengths = [
        Strength(model, float(values[place]), _interval(list(drawn[:, place])) if len(drawn) else None)
        for place, model in enumerate(models)
    ]
    return sorted(strengths, key=lambda each: -each.value)


def _newman(models: list[str], pairs: list[tuple[str, str]], sums: np.ndarray) -> np.ndarray:
    """Logarithms of the strengths, mean 0. Half a win each way stands in front of each pair that was compared: then a
    model that never won has a finite strength.

    Without a single tie evalica's `newman` gives every model the same strength, whatever the wins; the model is then
    that of Bradley and Terry. Source: Newman 2023, section 5.
    """
    import evalica  # it brings pandas, which the command line does without until here

    prior = [(first, second, 0.5, 0.0, 0.5) for first, second in pairs]
    rows = [*prior, *((*pair, *sums[column]) for column, pair in enumerate(pairs))]
    solve = evalica.newman if sums[:, 1].any() else evalica.bradley_terry
    solved = solve(
        [row[0] for row in rows for _ in range(3)],
        [row[1] for row in rows for _ in range(3)],
        [evalica.Winner.X, evalica.Winner.Draw, evalica.Winner.Y] * len(rows),
        weights=[float(weight) for row in rows for weight in row[2:]],
        limit=1000,
    )
    logs = np.log(np.array([solved.scores[model] for model in models]))
    return np.asarray(logs - logs.mean())


def _is_connected(models: list[str], pairs: list[tuple[str, str]]) -> bool:
    reached = {models[0]}
    for _ in models:
        reached |= {model for pair in pairs if reached & set(pair) for model in pair}
    return len(reached) == len(models)


def _of_equal(rate: float, n: int) -> Interval:
    low, high = wilson(rate, n)
    return low or 0.0, 1.0 if high is None else high


def _interval(values: Sequence[float]) -> Interval:
    low, high = np.percentile(np.asarray(values), [2.5, 97.5])
    return float(low), float(high)
