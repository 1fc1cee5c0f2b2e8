"""Position and length bias against numbers worked out by hand; each comment shows the arithmetic."""

from __future__ import annotations

import math
import random

import pytest

from labeling.judgement.bias import length_bias, length_lean, position_bias


def first_at(place: int, k: int) -> tuple[int, ...]:
    """A ranking without ties whose best response stood at this place."""
    rest = iter(range(2, k + 1))
    return tuple(1 if each == place else next(rest) for each in range(k))


def test_two_places() -> None:
    found = position_bias([first_at(0, 2)] * 15 + [first_at(1, 2)] * 5)
    assert (found.observed, found.expected, found.n) == ((15.0, 5.0), (10.0, 10.0), 20)
    assert found.chi_square == pytest.approx(5.0)  # (5^2 + 5^2) / 10
    assert found.p_value == pytest.approx(math.erfc(math.sqrt(5 / 2)))  # one degree of freedom: a squared normal


def test_three_places() -> None:
    found = position_bias([first_at(0, 3)] * 10 + [first_at(1, 3)] * 5 + [first_at(2, 3)] * 3)
    assert found.chi_square == pytest.approx(26 / 6)  # (4^2 + 1^2 + 3^2) / 6
    assert found.p_value == pytest.approx(math.exp(-13 / 6))  # two degrees of freedom: exp(-x / 2)


def test_tied_firsts_share_the_first_rank_and_vary_less() -> None:
    found = position_bias([(1, 2, 2)] * 15 + [(1, 1, 3)] * 15)
    assert found.observed == (22.5, 7.5, 0.0)  # 15 + 15/2, 15/2, 0
    # One ranking adds (K - t) / (t K (K - 1)) = 1/3 with t = 1 and 1/12 with t = 2: together 15/3 + 15/12 = 6.25.
    assert found.chi_square == pytest.approx((12.5**2 + 2.5**2 + 10**2) / 6.25)  # = 42
    assert found.p_value == pytest.approx(math.exp(-21))


def test_a_ranking_with_all_tied_says_nothing() -> None:
    strict = [first_at(0, 2)] * 15 + [first_at(1, 2)] * 5
    assert position_bias(strict + [(1, 1)] * 100) == position_bias(strict)
    assert position_bias([(1, 1, 1)] * 50).n == 0


def test_no_test_is_made_of_too_few() -> None:
    assert position_bias([first_at(0, 4)] * 19).p_value is None  # 19/4 < 5 expected at each place
    assert position_bias([first_at(0, 4)] * 20).p_value is not None
    assert position_bias([first_at(0, 3)] * 15).p_value is not None
    assert position_bias([]).chi_square is None
    # The fourth place has its own expectation: 4 rankings of four make 1 of it, whatever the others.
    mixed = position_bias([first_at(0, 2)] * 100 + [first_at(0, 4)] * 4)
    assert (mixed.expected, mixed.p_value) == ((51.0, 51.0, 1.0, 1.0), None)


@pytest.mark.slow
def test_by_chance_one_annotator_in_twenty_is_below_five_per_cent() -> None:
    """With ties and K from 2 to 5 mixed: the covariance is that of the mixture. 1,000 annotators: 50 +- 3 x 6.9."""
    draw = random.Random(7)
    patterns = [(1, 2), (1, 2, 3), (1, 1, 3), (1, 2, 3, 4), (1, 1, 1, 4), (1, 2, 3, 4, 5), (1, 1, 3, 4, 5)]
    n_below = 0
    for _ in range(1000):
        rankings = [draw.sample(pattern, len(pattern)) for pattern in patterns * 14]
        p_value = position_bias(rankings).p_value
        assert p_value is not None
        n_below += p_value < 0.05
    assert 29 <= n_below <= 71


@pytest.mark.parametrize(
    ("ranks", "lengths", "unplaced", "lean"),
    [
        ((1, 2, 3), (30, 20, 10), (), 1),
        ((3, 2, 1), (30, 20, 10), (), -1),
        ((1, 2, 3), (20, 30, 10), (), 1),  # lost one, won two
        ((1, 2, 2), (20, 30, 10), (), 0),  # lost one, won one, one tie
        ((1, 2), (10, 10), (), 0),
        ((1, 1, 1), (1, 2, 3), (), 0),
        ((1, 2, 2), (10, 30, 20), (1, 2), -1),  # the rest among itself is no pair
    ],
)
def test_which_way_a_ranking_leans(
    ranks: tuple[int, ...], lengths: tuple[int, ...], unplaced: tuple[int, ...], lean: int
) -> None:
    assert length_lean(ranks, lengths, unplaced) == lean


def test_the_share_of_rankings_that_lean_to_the_longer() -> None:
    found = length_bias(8, 2)
    assert (found.share, found.n) == (0.8, 10)
    assert found.p_value == pytest.approx(112 / 1024)  # 2 x (C(10,8) + C(10,9) + C(10,10)) / 2^10 = 2 x 56 / 1024
    assert (found.low, found.high) == (pytest.approx(0.4439, abs=5e-5), pytest.approx(0.9748, abs=5e-5))  # a table's


def test_all_to_one_side_has_an_interval_that_can_be_worked_out() -> None:
    found = length_bias(10, 0)
    assert (found.low, found.high) == (pytest.approx(0.025 ** (1 / 10)), 1.0)  # low^10 = 0.025
    assert found.p_value == pytest.approx(2 / 1024)


def test_nothing_to_go_by_is_undefined() -> None:
    found = length_bias(0, 0)
    assert (found.share, found.low, found.high, found.p_value, found.n) == (None, None, None, None, 0)
