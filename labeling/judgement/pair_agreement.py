"""Pair agreement of one person with what is expected of a task, and with themselves. Plain Python.

Pairs within a rest that was placed last in no order are no comparisons, on either side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING

from data.intervals import wilson
from data.records import Ranking, RankingStatus

if TYPE_CHECKING:
    from data.labels.gold import Gold

_Side = tuple[Sequence[int], Sequence[int]]  # ranks, and the positions without an order


@dataclass(frozen=True)
class PairAgreement:
    """The share of `n` pairs, of `n_items` tasks, that are as they should be; None without a pair.

    `low`, `high`: its 95 % interval (Wilson's, of the tasks: pairs of one task depend on each other).
    """

    value: float | None
    n: int
    n_items: int
    low: float | None = field(default=None, compare=False)
    high: float | None = field(default=None, compare=False)


def agreement_with_gold(answers: Iterable[tuple[Ranking, Gold]]) -> PairAgreement:
    """Of the pairs that gold puts in an order: those in the same order count 1, those called equal a half.

    Gold is always an order: who answers that no response is acceptable has all of its pairs wrong.
    """
    return _share(_points(ranking, gold) for ranking, gold in answers)


def self_consistency(answers: Iterable[tuple[Ranking, Ranking]]) -> PairAgreement:
    """Of all pairs of first answers and their repeats: those with the same order, or called equal both times."""
    return _share(
        [
            float(before == after)
            for before, after in _pairs(
                (first.ranks or (), first.detail.unplaced), (second.ranks or (), second.detail.unplaced)
            )
        ]
        for first, second in answers
    )


def _points(ranking: Ranking, gold: Gold) -> list[float]:
    wanted = (gold.ranks, gold.unplaced)
    if ranking.status is RankingStatus.UNACCEPTABLE:
        return [0.0 for expected, _ in _pairs(wanted, wanted) if expected != 0]
    return [
        0.5 if given == 0 else float(given == expected)
        for expected, given in _pairs(wanted, (ranking.ranks or (), ranking.detail.unplaced))
        if expected != 0
    ]


def _pairs(one: _Side, other: _Side) -> Iterator[tuple[int, int]]:
    """The order of each pair on both sides: -1, 0 or 1."""
    for places in combinations(range(len(one[0])), 2):
        if not any(set(places) <= set(unplaced) for _, unplaced in (one, other)):
            yield _order(one[0], *places), _order(other[0], *places)


def _order(ranks: Sequence[int], first: int, second: int) -> int:
    return (ranks[first] > ranks[second]) - (ranks[first] < ranks[second])


def _share(items: Iterable[list[float]]) -> PairAgreement:
    compared = [points for points in items if points]
    n = sum(map(len, compared))
    value = sum(map(sum, compared)) / n if n else None
    return PairAgreement(value, n, len(compared), *wilson(value, len(compared)))
