"""Win rates by hand, and Bradley and Terry's strengths where they are known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from labeling.judgement.win_rates import PairOutcome, PromptOutcomes, win_rates


def ranked(*results: float, pair: tuple[str, str] = ("a", "b")) -> PromptOutcomes:
    """A prompt with one ranking for each result."""
    return [[PairOutcome(*pair, result)] for result in results]


def test_rates_by_hand() -> None:
    """Prompts: won, won, tied, lost, and one that two people judged unlike: half won, half lost."""
    found = win_rates([ranked(1), ranked(1), ranked(0.5), ranked(0), ranked(1, 0)])
    (rate,) = found.rates
    assert (rate.first, rate.second, rate.n_prompts, found.n_prompts) == ("a", "b", 5, 5)
    assert (rate.wins, rate.ties, rate.losses) == pytest.approx((2.5 / 5, 1 / 5, 1.5 / 5))
    assert rate.rate == pytest.approx((2.5 + 0.5) / 5)


def test_three_rankings_of_one_prompt_weigh_no_more_than_one_of_another() -> None:
    (rate,) = win_rates([ranked(1, 1, 1), ranked(0)]).rates
    assert rate.rate == 0.5


def test_the_interval_is_the_bootstraps_over_prompts() -> None:
    """Of 100 prompts 60 are won: the standard error of the share is sqrt(.6 * .4 / 100) = 0.049."""
    (rate,) = win_rates([ranked(1)] * 60 + [ranked(0)] * 40).rates
    assert rate.interval == pytest.approx((0.6 - 1.96 * 0.049, 0.6 + 1.96 * 0.049), abs=0.015)
    (doubled,) = win_rates([ranked(1, 1)] * 60 + [ranked(0, 0)] * 40).rates
    assert doubled.interval == rate.interval  # a second person who says the same is no second prompt


def test_one_prompt_has_no_interval_and_no_prompt_has_nothing() -> None:
    (rate,) = win_rates([ranked(1)]).rates
    assert (rate.rate, rate.interval) == (1.0, None)
    found = win_rates([])
    assert (found.rates, found.strengths, found.n_prompts) == ([], [], 0)


def test_a_model_that_never_wins_has_a_finite_strength() -> None:
    """9 wins to none, and half a win each way in front: odds of 9.5 to 0.5."""
    best, worst = win_rates([ranked(1)] * 9).strengths
    assert (best.model, worst.model) == ("a", "b")
    assert best.value - worst.value == pytest.approx(math.log(9.5 / 0.5), abs=1e-3)
    assert best.value + worst.value == pytest.approx(0, abs=1e-9)


def test_strengths_with_ties_by_hand() -> None:
    """Newman's model of two: odds of a win of one over the other, ties apart, are the ratio of the strengths."""
    best, worst = win_rates([ranked(1)] * 6 + [ranked(0.5)] * 4 + [ranked(0)] * 2).strengths
    assert best.value - worst.value == pytest.approx(math.log(6.5 / 2.5), abs=1e-3)


def test_planted_strengths_are_found() -> None:
    planted = {"a": 1.0, "b": 0.2, "c": -0.4, "d": -0.8}
    rng = np.random.default_rng(1)
    prompts: list[PromptOutcomes] = []
    for _ in range(1500):
        names = sorted(rng.choice(list(planted), 2, replace=False))
        chance = 1 / (1 + math.exp(planted[names[1]] - planted[names[0]]))
        prompts.append(ranked(float(rng.random() < chance), pair=(names[0], names[1])))
    found = win_rates(prompts).strengths
    assert [each.model for each in found] == list("abcd")
    for each in found:
        assert each.value == pytest.approx(planted[each.model], abs=0.15)
        assert each.interval is not None
        assert each.interval[0] < planted[each.model] < each.interval[1]


def test_turning_every_outcome_turns_the_result() -> None:
    prompts = [ranked(1), ranked(0.5), ranked(0), ranked(1)]
    turned = [
        [[PairOutcome("a", "b", 1 - each.result) for each in ranking] for ranking in rankings] for rankings in prompts
    ]
    (rate,), (other,) = win_rates(prompts).rates, win_rates(turned).rates
    assert (rate.wins, rate.losses) == (other.losses, other.wins)
    assert rate.rate == pytest.approx(1 - other.rate)


def test_models_that_were_never_compared_have_no_rate() -> None:
    found = win_rates([ranked(1, pair=("a", "b")), ranked(0, pair=("b", "c"))])
    assert [(each.first, each.second) for each in found.rates] == [("a", "b"), ("b", "c")]


@pytest.mark.parametrize(
    ("result", "n", "interval"),
    [(1.0, 10, (0.7225, 1.0)), (0.0, 10, (0.0, 0.2775)), (0.5, 10, (0.2366, 0.7634)), (1.0, 2, (0.3424, 1.0))],
)
def test_prompts_that_all_say_the_same_have_an_interval_with_a_width(
    result: float, n: int, interval: tuple[float, float]
) -> None:
    """Wilson's for 10 of 10: 10 / (10 + 1.96 ** 2) = 0.7225. A bootstrap would say that it is certain."""
    (rate,) = win_rates([ranked(result)] * n).rates
    assert rate.interval == pytest.approx(interval, abs=1e-4)


def test_models_in_groups_that_never_met_have_no_common_scale() -> None:
    apart = [ranked(1), ranked(0), ranked(1, pair=("c", "d")), ranked(1, pair=("c", "d"))]
    found = win_rates(apart)
    assert (len(found.rates), found.strengths) == (2, [])
    assert len(win_rates([*apart, ranked(0.5, pair=("b", "c"))]).strengths) == 4
