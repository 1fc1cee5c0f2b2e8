"""Intervals against numbers worked out by hand, and how often they hold what they promise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from data.intervals import LEAST_PROMPTS, Told, paired, ratio_interval, told, wilson


def test_paired_differences_have_students_interval() -> None:
    """Differences 1, 2, 3: mean 2, standard deviation 1; t(2) at 0.975 is 4.30265."""
    found = paired([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])
    half = 4.302653 / math.sqrt(3)
    assert (found.value, found.n, found.told) == (2.0, 3, Told.TOO_FEW)
    assert (found.low, found.high) == (pytest.approx(2 - half, abs=1e-6), pytest.approx(2 + half, abs=1e-6))


def test_the_best_of_many_has_to_be_better_by_more() -> None:
    """t(2) at 1 - 0.025 / 5 is 9.92484: chosen among five, each difference may use up a fifth of the 5 %."""
    found = paired([2.0, 4.0, 6.0], [1.0, 2.0, 3.0], of=5)
    assert found.high == pytest.approx(2 + 9.924843 / math.sqrt(3), abs=1e-6)


def test_one_pair_has_no_interval_and_sides_must_match() -> None:
    assert (paired([2.0], [1.0]).low, paired([2.0], [1.0]).high) == (None, None)
    for mine, other in (([1.0], [1.0, 2.0]), ([], [])):
        with pytest.raises(ValueError, match="can't be paired"):
            paired(mine, other)


def test_what_an_interval_says_of_a_mark() -> None:
    n = LEAST_PROMPTS
    assert [told(0.1, 0.2, n), told(-0.2, -0.1, n), told(-0.1, 0.1, n)] == [Told.MORE, Told.LESS, Told.UNCLEAR]
    assert [told(0.1, 0.2, n, mark=0.3), told(0.1, 0.2, n, mark=0.15)] == [Told.LESS, Told.UNCLEAR]
    assert told(0.1, 0.2, n - 1) is told(None, None, n) is Told.TOO_FEW


def test_where_all_say_the_same_the_others_are_reckoned_with() -> None:
    """Five prompts of five right: with 95 % fewer than 1 - 0.05^(1/5) = 0.4507 of all prompts are wrong."""
    ones = np.ones(5)
    assert ratio_interval(ones, ones) == (pytest.approx(0.5493, abs=1e-4), 1.0)
    low, high = ratio_interval(0 * ones, ones, within=(-1.0, 1.0))
    assert (low, high) == (pytest.approx(-0.4507, abs=1e-4), pytest.approx(0.4507, abs=1e-4))
    assert ratio_interval(ones[:1], ones[:1]) == (None, None)


def test_wilsons_interval() -> None:
    """0 of n goes up to z^2 / (n + z^2); a half is symmetric."""
    z = 1.959964**2
    assert wilson(0.0, 10) == (0.0, pytest.approx(z / (10 + z)))
    low, high = wilson(0.5, 10)
    assert low is not None and high is not None and low + high == pytest.approx(1)
    assert wilson(None, 3) == wilson(0.5, 0) == (None, None)


@pytest.mark.slow
def test_four_prompts_are_too_few_for_a_bootstrap_and_ten_are_not() -> None:
    """Why LEAST_PROMPTS is what it is: of 2,000 samples from a normal distribution. The standard error of a share of
    2,000 is 0.01, the borders are more than four of them away from what 4,000 samples gave (0.80 and 0.89)."""
    rng, held = np.random.default_rng(0), {4: 0, LEAST_PROMPTS: 0}
    for n in held:
        for _ in range(2000):
            low, high = ratio_interval(rng.normal(size=n), np.ones(n))
            held[n] += low is not None and high is not None and low <= 0 <= high
    assert held[4] / 2000 < 0.845 < held[LEAST_PROMPTS] / 2000
