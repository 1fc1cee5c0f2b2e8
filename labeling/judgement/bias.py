"""Whether an annotator favours places on the screen, or long responses. Pure arithmetic, no input or output.

Neither is a proof: a longer response may well be the better one. What can't be computed is None, never 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.stats import binomtest, chi2

MIN_EXPECTED = 5.0  # first ranks expected at each place, below which the chi-square distribution does not hold


@dataclass(frozen=True)
class PositionBias:
    """How often rank 1 stood at each display place, and how often it would by chance.

    `p_value`: of a difference as large by chance; None where a place is expected to hold fewer than 5 first ranks.
    `n`: rankings that say something, so not those with all responses tied.
    """

    observed: tuple[float, ...]
    expected: tuple[float, ...]
    chi_square: float | None
    p_value: float | None
    n: int


@dataclass(frozen=True)
class LengthBias:
    """In which share of the rankings the longer responses won more pairs than they lost, with its exact 95 % interval.

    `p_value`: of a share as far from a half by chance (sign test). `n`: rankings that lean to either side. Rankings are
    counted and not pairs, because the pairs of one ranking depend on each other.
    """

    share: float | None
    low: float | None
    high: float | None
    p_value: float | None
    n: int


def position_bias(rankings: Iterable[Sequence[int]]) -> PositionBias:
    """Test whether rank 1 falls on all display places alike; each ranking holds ranks by display place.

    t responses that share rank 1 count 1/t each. Under chance, t of K places hold it, all choices alike, so that one
    ranking adds (K - t) / (t K (K - 1)) (I - J / K) to the covariance of the counts. The statistic is the difference
    from the expected counts, squared in the metric of the sum of these: for one K without ties it is Pearson's.
    """
    informative = [ranks for ranks in rankings if len(set(ranks)) > 1]
    if not informative:
        return PositionBias((), (), None, None, 0)
    size = max(map(len, informative))
    observed, expected, covariance = np.zeros(size), np.zeros(size), np.zeros((size, size))
    for ranks in informative:
        k = len(ranks)
        first = np.array(ranks) == min(ranks)
        t = int(first.sum())
        observed[:k] += first / t
        expected[:k] += 1 / k
        covariance[:k, :k] += (k - t) / (t * k * (k - 1)) * (np.eye(k) - 1 / k)
    difference = observed - expected
    chi_square = p_value = None
    if expected.min() > MIN_EXPECTED - 1e-9:  # fifteen thirds are a little less than five
        chi_square = float(difference @ np.linalg.pinv(covariance, hermitian=True) @ difference)
        p_value = float(chi2.sf(chi_square, size - 1))
    found, by_chance = tuple(map(float, observed)), tuple(map(float, expected))
    return PositionBias(found, by_chance, chi_square, p_value, len(informative))


def length_lean(ranks: Sequence[int], lengths: Sequence[int], unplaced: Sequence[int] = ()) -> int:
    """Whether a ranking's longer responses won more pairs than they lost (1), fewer (-1), or as many (0).

    Ties, pairs of equal length and pairs within the rest in no order count for neither side.
    """
    rest, balance = set(unplaced), 0
    for first, second in combinations(range(len(ranks)), 2):
        if not (first in rest and second in rest):
            better, longer = ranks[second] - ranks[first], lengths[first] - lengths[second]
            balance += _sign(better) * _sign(longer)
    return _sign(balance)


def length_bias(n_longer: int, n_shorter: int) -> LengthBias:
    """Test rankings that lean to longer responses against those that lean to shorter ones."""
    n = n_longer + n_shorter
    if n == 0:
        return LengthBias(None, None, None, None, 0)
    test = binomtest(n_longer, n, 0.5)
    interval = test.proportion_ci(0.95, method="exact")
    return LengthBias(n_longer / n, float(interval.low), float(interval.high), float(test.pvalue), n)


def _sign(value: int) -> int:
    return (value > 0) - (value < 0)
