"""Calibration against numbers worked out by hand, and against margins whose truth is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from training.measures.calibration import (
    calibration,
    expected_calibration_error,
    fitted_temperature,
    negative_log_likelihood,
    reliability,
)


def test_bins_are_of_the_preferred_response() -> None:
    """Margins 2, -2 (wrong) and 0.1: confidences 0.8808, 0.8808, 0.5250."""
    bins = reliability(np.array([2.0, -2.0, 0.1]), np.array([1.0, 1.0, 2.0]), np.ones(3))
    assert [(each["from"], each["n"]) for each in bins] == [(0.5, 1), (0.85, 2)]
    assert [each["accuracy"] for each in bins] == [1.0, 0.5]
    assert [each["confidence"] for each in bins] == pytest.approx([0.5249791875, 0.8807970780])
    assert [each["share"] for each in bins] == [0.5, 0.5]
    error = 0.5 * (1 - 0.5249791875) + 0.5 * (0.8807970780 - 0.5)
    assert expected_calibration_error(bins) == pytest.approx(error)


def test_certainty_and_equal_scores_have_their_bins() -> None:
    bins = reliability(np.array([50.0, 0.0]), np.ones(2), np.ones(2))
    assert [(each["from"], each["accuracy"]) for each in bins] == [(0.5, 0.5), (0.95, 1.0)]


def test_the_loss_is_that_of_pairs() -> None:
    assert negative_log_likelihood(np.array([1.0, 2.0]), np.array([1.0, 1.0]), np.ones(2)) == pytest.approx(
        (math.log1p(math.exp(-1)) + math.log1p(math.exp(-2))) / 2
    )
    assert negative_log_likelihood(np.array([1.0]), np.ones(1), np.ones(1), 2.0) == pytest.approx(
        math.log1p(math.exp(-0.5))
    )


def test_a_temperature_makes_the_share_of_right_pairs_come_true() -> None:
    """Three of four right, all margins 4: the best temperature gives them 0.75, so T = 4 / log 3."""
    margins = np.array([4.0, 4.0, 4.0, -4.0])
    temperature = fitted_temperature(margins, np.ones(4), np.ones(4))
    assert temperature == pytest.approx(4 / math.log(3), rel=1e-3)
    found = calibration(margins, np.ones(4), np.ones(4), np.arange(4))
    assert found["error"] == pytest.approx(1 / (1 + math.exp(-4)) - 0.75)
    assert found["error_at_temperature"] == pytest.approx(0, abs=1e-3)
    assert found["loss_at_temperature"] < found["loss"]


def test_margins_that_tell_the_truth_are_left_as_they_are() -> None:
    rng = np.random.default_rng(0)
    size = np.abs(rng.normal(0, 1.5, 20_000))
    margins = np.where(rng.random(20_000) < 1 / (1 + np.exp(-size)), size, -size)
    found = calibration(margins, np.ones(20_000), np.ones(20_000), np.arange(20_000))
    assert found["temperature"] == pytest.approx(1, abs=0.05)
    assert found["error"] < 0.01
    doubled = calibration(2 * margins, np.ones(20_000), np.ones(20_000), np.arange(20_000))
    assert doubled["temperature"] == pytest.approx(2, abs=0.1)
    assert doubled["error"] > 0.05


def test_a_temperature_stays_in_its_limits_where_all_is_right_or_wrong() -> None:
    for margins in (np.ones(3), -np.ones(3)):
        assert 0.01 <= fitted_temperature(margins, np.ones(3), np.ones(3)) <= 100


def test_what_people_are_less_than_sure_of_is_the_target() -> None:
    """Margins 2, -2, 0 with targets 0.75, 0.75, 0.5: where the model prefers the first, 0.75 people did, else 0.25."""
    margins, targets = np.array([2.0, -2.0, 0.0]), np.array([0.75, 0.75, 0.5])
    low, high = reliability(margins, np.ones(3), targets)
    assert (low["accuracy"], low["confidence"]) == (0.5, 0.5)
    assert high["accuracy"] == pytest.approx((0.75 + 0.25) / 2)
    losses = [
        0.75 * math.log1p(math.exp(-2)) + 0.25 * math.log1p(math.exp(2)),
        0.75 * math.log1p(math.exp(2)) + 0.25 * math.log1p(math.exp(-2)),
        math.log(2),
    ]
    assert negative_log_likelihood(margins, np.ones(3), targets) == pytest.approx(sum(losses) / 3)


def test_a_model_as_sure_as_people_are_is_calibrated() -> None:
    """sigmoid(log 3) = 0.75. With every score twice as far apart the fitted temperature is 2."""
    margins, targets = np.array([math.log(3), -math.log(3)]), np.array([0.75, 0.25])
    found = calibration(margins, np.ones(2), targets, np.arange(2))
    assert found["error"] == pytest.approx(0, abs=1e-12)
    assert found["temperature"] == pytest.approx(1, rel=1e-3)
    assert fitted_temperature(2 * margins, np.ones(2), targets) == pytest.approx(2, rel=1e-3)


def test_a_fitted_temperature_has_an_interval_over_prompts() -> None:
    """Of each four prompts three are right, all margins 4: T = 4 / log 3. With u = log 3 the slopes are u / 4, three
    times, and -3 u / 4, so that both their squares and the curvature add up to 3 u^2 / 4: the error of log T is the
    root of 40 / 39 / (10 * 0.75 u^2). Each prompt ten times over is no more to go by."""
    margins = np.tile([4.0, 4.0, 4.0, -4.0], 10)
    error = math.sqrt(40 / 39 / (7.5 * math.log(3) ** 2))
    for times in (1, 10):
        found = calibration(
            np.repeat(margins, times),
            np.full(40 * times, 1 / times),
            np.ones(40 * times),
            np.repeat(np.arange(40), times),
        )
        assert found["temperature_low"] == pytest.approx(4 / math.log(3) * math.exp(-1.959964 * error), rel=1e-3)
        assert found["temperature_high"] == pytest.approx(4 / math.log(3) * math.exp(1.959964 * error), rel=1e-3)
        assert (found["told"], found["prompts"], found["n"]) == ("more", 40, 40 * times)
    alone = calibration(margins, np.ones(40), np.ones(40), np.zeros(40, dtype=np.int64))
    assert (alone["temperature_low"], alone["told"]) == (None, "too few")
    right = calibration(np.ones(40), np.ones(40), np.ones(40), np.arange(40))
    assert (right["temperature_low"], right["told"]) == (None, "too few"), "no temperature is low enough for these"
