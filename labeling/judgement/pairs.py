"""From a ranking to preference pairs. A tie gives no pair; it is counted. Plain Python, no input or output."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import combinations
from typing import NamedTuple


class Pair(NamedTuple):
    """Response `chosen` was ranked above response `rejected`; both are places in the list of responses."""

    chosen: int
    rejected: int
    rank_distance: int


def pairs_from_ranks(ranks: Sequence[int]) -> list[Pair]:
    """All (chosen, rejected) with rank(chosen) < rank(rejected): C(K, 2) of them without ties.

    Source: Ouyang et al. 2022, section 3.5.
    """
    pairs = []
    for first, second in combinations(range(len(ranks)), 2):
        if ranks[first] != ranks[second]:
            chosen, rejected = (first, second) if ranks[first] < ranks[second] else (second, first)
            pairs.append(Pair(chosen, rejected, ranks[rejected] - ranks[chosen]))
    return pairs


def compared(ranks: Sequence[int], unplaced: Collection[int], first: int, second: int) -> int | None:
    """How two responses were compared: -1 if the first is better, 1 if the second is, 0 if they are equal.

    None if both were left in the unordered rest, so that nobody compared them.
    """
    if first in unplaced and second in unplaced:
        return None
    return (ranks[first] > ranks[second]) - (ranks[first] < ranks[second])


def pairs_from_probabilities(probabilities: Sequence[float], ranks: Sequence[int]) -> list[Pair]:
    """The pairs of a merged ranking, each from its majority's side; where the sides are even there is none.

    `probabilities[i * K + j]`: how sure it is that response i is better than j; both are 0 where nobody sees a
    difference. `rank_distance` is 0 where the majorities go in a circle, and the merged ranks are equal.
    """
    k, pairs = len(ranks), []
    for first, second in combinations(range(k), 2):
        there, back = probabilities[first * k + second], probabilities[second * k + first]
        if there != back:
            chosen, rejected = (first, second) if there > back else (second, first)
            pairs.append(Pair(chosen, rejected, ranks[rejected] - ranks[chosen]))
    return pairs


def count_ties(ranks: Sequence[int], unplaced: Sequence[int] = ()) -> int:
    """How many of the C(K, 2) pairs are ties. Two `unplaced` responses share a rank, but nobody called them equal."""
    equal = sum(ranks[first] == ranks[second] for first, second in combinations(range(len(ranks)), 2))
    return equal - count_not_compared(unplaced)


def count_not_compared(unplaced: Sequence[int]) -> int:
    """How many pairs lie within the rest that was placed last in no order."""
    return len(unplaced) * (len(unplaced) - 1) // 2
