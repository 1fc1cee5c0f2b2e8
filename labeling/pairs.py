"""From a ranking to preference pairs. A tie gives no pair; it is counted. Plain Python, no input or output."""

from __future__ import annotations

from collections.abc import Sequence
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


def count_ties(ranks: Sequence[int], unplaced: Sequence[int] = ()) -> int:
    """How many of the C(K, 2) pairs are ties. Two `unplaced` responses share a rank, but nobody called them equal."""
    equal = sum(ranks[first] == ranks[second] for first, second in combinations(range(len(ranks)), 2))
    return equal - count_not_compared(unplaced)


def count_not_compared(unplaced: Sequence[int]) -> int:
    """How many pairs lie within the rest that was placed last in no order."""
    return len(unplaced) * (len(unplaced) - 1) // 2
