"""The alarms of PPO: each rule alone, at both sides of its border."""

from __future__ import annotations

from typing import Any

import pytest

from data.fields import from_dict
from training.launch.config import PPOConfig
from training.ppo.alarms import alarms, is_over_optimised, look, look_at_evaluations
from training.ppo.learner import Watch

FIRST = {"policy/entropy": 2.0, "response/length_mean": 20.0, "response/ended_share": 0.8, "kl/k1_mean": 0.0}
CONFIG = from_dict(PPOConfig, {"sampling.max_new_tokens": 64, "limits.max_kl": 50.0})


def kinds(now: dict[str, float], config: PPOConfig = CONFIG, first: dict[str, float] | None = None) -> list[str]:
    return [alarm.kind for alarm in alarms(config, first or FIRST, FIRST | now, [])]


def test_a_start_like_any_other_is_quiet() -> None:
    assert kinds({}) == []


@pytest.mark.parametrize(
    ("now", "kind"),
    [
        ({"kl/k1_mean": 50.1}, "kl_above_ceiling"),
        ({"policy/entropy": 0.59}, "entropy_collapsed"),
        ({"response/ended_share": 0.07}, "responses_no_longer_end"),
        ({"response/length_mean": 61.0}, "length_at_the_cap"),
        ({"response/length_mean": 1.9}, "responses_are_empty"),
    ],
)
def test_each_rule_fires_alone(now: dict[str, float], kind: str) -> None:
    assert kinds(now) == [kind]
    (alarm,) = alarms(CONFIG, FIRST, FIRST | now, [])
    assert alarm.advice and any(digit in alarm.seen for digit in "0123456789")


@pytest.mark.parametrize(
    "now",
    [
        {"kl/k1_mean": 50.0},
        {"policy/entropy": 0.6},
        {"response/ended_share": 0.081},
        {"response/length_mean": 60.7},
        {"response/length_mean": 2.0},
    ],
)
def test_at_its_border_a_rule_is_quiet(now: dict[str, float]) -> None:
    assert kinds(now) == []


def test_a_model_that_never_ended_or_was_always_cut_is_not_blamed() -> None:
    first = FIRST | {"response/ended_share": 0.0, "response/length_mean": 64.0}
    assert kinds({"response/ended_share": 0.0, "response/length_mean": 64.0}, first=first) == []
    assert kinds({"kl/k1_mean": 1e9}, config=from_dict(PPOConfig, {"limits.max_kl": None})) == []


def evaluations(*pairs: tuple[float, float]) -> list[dict[str, float]]:
    return [{"score": score, "second": second} for score, second in pairs]


def test_over_optimisation_needs_three_steps_apart_in_a_row() -> None:
    falling = evaluations((0, 1), (1, 0.9), (2, 0.8), (3, 0.7))
    assert is_over_optimised(falling)
    assert not is_over_optimised(falling[1:])
    assert not is_over_optimised(evaluations((0, 1), (1, 0.9), (2, 0.95), (3, 0.7)))
    assert not is_over_optimised(evaluations((0, 1), (1, 0.9), (0.5, 0.8), (3, 0.7)))
    assert is_over_optimised([*evaluations((9, 9), (0, 1)), *falling[1:]])
    assert not is_over_optimised([{"score": float(step)} for step in range(5)])
    (alarm,) = alarms(CONFIG, FIRST, FIRST, falling)
    assert alarm.kind == "over_optimised"


def test_the_last_evaluation_is_looked_at_though_no_iteration_follows() -> None:
    watch = Watch(evaluations=evaluations((0, 1), (1, 0.9), (2, 0.8)))
    assert look_at_evaluations(watch) == []
    watch.evaluations = [*watch.evaluations, *evaluations((3, 0.7))]
    assert [alarm.kind for alarm in look_at_evaluations(watch)] == watch.raised == ["over_optimised"]
    assert look_at_evaluations(watch) == []  # told once


def test_an_alarm_is_told_once_until_it_has_gone_off() -> None:
    watch, told = Watch(), []
    for kl in (0.0, 60.0, 70.0, 10.0, 60.0):
        figures: dict[str, Any] = FIRST | {"kl/k1_mean": kl}
        told.append([alarm.kind for alarm in look(CONFIG, watch, figures)])
    assert told == [[], ["kl_above_ceiling"], [], [], ["kl_above_ceiling"]]
    assert watch.first == {name: FIRST[name] for name in watch.first}
