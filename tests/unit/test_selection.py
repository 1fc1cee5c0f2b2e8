"""What a selection puts first: exact values of doubt, the order of the arms, and what the figures allow to say."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest

from data.errors import InvalidInput
from labeling.review.selection import RANDOM, By, SelectionConfig, disagreement, doubts_of, mean_margin, order_tasks
from labeling.review.selection_report import Arm, verdict


def test_the_margin_is_the_mean_over_all_pairs() -> None:
    """|1-2| + |1-4| + |2-4| over three pairs."""
    assert mean_margin([(1.0, 2.0, 4.0)]) == pytest.approx((1 + 3 + 2) / 3)
    assert mean_margin([(1.0, 2.0, 4.0), (0.0, 0.0, 0.0)]) == pytest.approx(1.0)


def test_models_of_different_scales_that_agree_do_not_disagree() -> None:
    sigmoid = 1 / (1 + math.exp(-2.0))
    assert disagreement([(2.0, 0.0), (2.0, 0.0)]) == 0.0
    assert disagreement([(2.0, 0.0), (0.0, 2.0)]) == pytest.approx(sigmoid - 0.5)
    assert disagreement([(50.0, 0.0), (90.0, 0.0)]) == pytest.approx(0.0, abs=1e-9)
    assert disagreement([(1e9, 0.0), (0.0, 1e9)]) == pytest.approx(0.5)


def test_doubt_is_more_where_scores_are_close_or_models_differ() -> None:
    _, found = doubts_of({"close": {"one": (1.0, 1.1)}, "far": {"one": (1.0, 5.0)}}, {}, By.LOW_MARGIN)
    assert found["close"] > found["far"]
    same, unlike = {"one": (1.0, 0.0), "two": (1.0, 0.0)}, {"one": (1.0, 0.0), "two": (0.0, 1.0)}
    _, found = doubts_of({"same": same, "unlike": unlike}, {}, By.DISAGREEMENT)
    assert found["unlike"] > found["same"]


def test_the_heads_of_one_model_disagree_where_it_has_some_and_else_the_margin_decides() -> None:
    """On `split` the mean is as far apart as on `same`; only the heads tell them apart."""
    scores = {"split": {"one": (1.0, 0.0)}, "same": {"one": (1.0, 0.0)}}
    heads = {"split": {"one": ((5.0, 0.0), (-3.0, 0.0))}, "same": {"one": ((1.0, 0.0), (1.0, 0.0))}}
    by, found = doubts_of(scores, heads, By.AUTO)
    assert by is By.DISAGREEMENT
    wanted = (1 / (1 + math.exp(-5.0)) - 1 / (1 + math.exp(3.0))) / 2  # of two values, half their distance
    assert found == {"split": pytest.approx(wanted), "same": 0.0}
    assert doubts_of(scores, heads, By.LOW_MARGIN) == (By.LOW_MARGIN, {"split": -1.0, "same": -1.0})
    assert doubts_of(scores, {}, By.AUTO) == (By.LOW_MARGIN, {"split": -1.0, "same": -1.0})
    with pytest.raises(InvalidInput, match="this is one model with one head"):
        doubts_of(scores, {}, By.DISAGREEMENT)


def test_a_model_with_one_head_disagrees_beside_an_ensemble() -> None:
    scores = {"task": {"one": (0.0, 0.0), "two": (9.0, 0.0)}}
    heads = {"task": {"one": ((1.0, 0.0), (-1.0, 0.0))}}
    _, found = doubts_of(scores, heads, By.AUTO)
    assert found["task"] == pytest.approx(disagreement([(1.0, 0.0), (-1.0, 0.0), (9.0, 0.0)]))


def test_the_most_doubtful_come_first_with_the_control_arm_between() -> None:
    doubts = {f"task {number}": float(number) for number in range(20)}
    ordered = order_tasks(doubts, SelectionConfig(by="low_margin", control=0.25))
    assert sorted(task for task, _ in ordered) == sorted(doubts)
    assert Counter(arm for _, arm in ordered) == {RANDOM: 5, "low_margin": 15}
    selected = [doubts[task] for task, arm in ordered if arm != RANDOM]
    assert selected == sorted(selected, reverse=True)
    for n in range(4, 21, 4):  # one in four of any beginning
        assert sum(arm == RANDOM for _, arm in ordered[:n]) == n // 4
    assert order_tasks(doubts, SelectionConfig(by="low_margin", control=0.25)) == ordered
    assert order_tasks(doubts, SelectionConfig(by="low_margin", control=0.25, seed=1)) != ordered


def test_the_control_arm_is_a_fair_draw_of_all_tasks() -> None:
    """Every task is in the control arm about as often as any other, however doubtful it is. By chance alone one of the
    40 would be off by more than 5 standard deviations once in 40,000 such tests."""
    doubts = {f"task {number}": float(number) for number in range(40)}
    n = 2_000
    drawn = Counter(
        task for seed in range(n) for task, arm in order_tasks(doubts, SelectionConfig(seed=seed)) if arm == RANDOM
    )
    spread = math.sqrt(n * 0.25 * 0.75)
    assert all(abs(drawn[task] - n / 4) < 5 * spread for task in doubts)


def test_one_task_is_the_control_arm() -> None:
    assert order_tasks({"only": 1.0}, SelectionConfig()) == [("only", RANDOM)]


def arm(name: str, n_prompts: int) -> Arm:
    return Arm(name, n_prompts, n_prompts, n_prompts, 0.5, None, 0.1, 0.0, 0.0, 9.0)


@pytest.mark.parametrize(
    ("difference", "interval", "says"),
    [
        (-0.02, (-0.10, 0.05), "No evidence that selection beat random"),
        (0.02, (-0.05, 0.10), "No evidence that selection beat random"),
        (-0.20, (-0.30, -0.10), "Selection found pairs that the model has wrong more often"),
        (0.20, (0.10, 0.30), "Selection did worse than random"),
        (None, None, "Too early to say whether selection beat random"),
    ],
)
def test_no_more_is_said_than_the_interval_allows(
    difference: float | None, interval: tuple[float, float] | None, says: str
) -> None:
    said = verdict([arm("low_margin", 12), arm(RANDOM, 4)], difference, interval)
    assert said.startswith(says)
    if interval is None:
        assert "12 in low_margin, 4 in random" in said
    else:
        assert f"{interval[0]:+.3f} to {interval[1]:+.3f}" in said


def test_order_does_not_depend_on_where_tasks_stand() -> None:
    doubts = {f"task {number}": float(number % 3) for number in range(12)}
    turned = dict(random.Random(0).sample(list(doubts.items()), 12))
    assert order_tasks(doubts, SelectionConfig()) == order_tasks(turned, SelectionConfig())
