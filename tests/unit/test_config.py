"""Configurations of runs: sound by default, described in full, and refused with the numbers that do not fit."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from data.errors import InvalidConfig
from data.fields import describe, from_dict, from_words, to_dict
from data.records import RunKind
from training.launch.config import (
    CompareConfig,
    DPOConfig,
    PPOConfig,
    RewardConfig,
    SampleConfig,
    SFTConfig,
    critic_learning_rate,
    peak_learning_rate,
)
from training.launch.kinds import CONFIGS


@pytest.mark.parametrize("kind", RunKind)
def test_every_kind_has_a_configuration_that_survives_its_record(kind: RunKind) -> None:
    made = CONFIGS[kind]()
    assert from_dict(CONFIGS[kind], to_dict(made)) == made
    assert dataclasses.is_dataclass(made)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.machine = None
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.machine.seed = 3


@pytest.mark.parametrize("kind", RunKind)
def test_every_field_says_what_it_is(kind: RunKind) -> None:
    for field in describe(CONFIGS[kind]):
        assert field.help and not field.help.endswith("."), field.name
        assert field.min is None or field.max is None or field.min < field.max, field.name
        assert field.type is not int or field.min is not None, f"{field.name}: a whole number needs its smallest value"


def test_a_ranking_needs_two_responses() -> None:
    with pytest.raises(InvalidConfig, match="k = 1: a ranking needs at least 2 responses"):
        SampleConfig(k=1)
    assert SampleConfig(k=1, make_tasks=False).k == 1
    with pytest.raises(InvalidConfig, match="k = 13: 1 to 12 is allowed"):
        from_dict(SampleConfig, {"k": 13})


@pytest.mark.parametrize(
    ("config", "words", "numbers"),
    [
        (SFTConfig, ["batch_size=8", "micro_batch_size=3"], r"batch_size = 8 .* micro_batch_size = 3"),
        (DPOConfig, ["batch_size=9", "micro_batch_size=4"], r"batch_size = 9 .* micro_batch_size = 4"),
        (
            PPOConfig,
            ["prompts_per_iteration=5", "responses_per_prompt=2", "minibatches=4"],
            r"5 prompts x 2 responses = 10 responses .* 4 equal minibatches",
        ),
    ],
)
def test_sizes_that_do_not_divide_are_refused_with_both_numbers(config: type, words: list[str], numbers: str) -> None:
    with pytest.raises(InvalidConfig, match=numbers):
        from_words(config, words)


@pytest.mark.parametrize(
    "words", [["scale_scores=yes", "running_scores=yes"], ["whiten_rewards=yes", "running_scores=yes"],
              ["whiten_rewards=yes", "scale_scores=yes"]],
)  # fmt: skip
def test_scores_are_divided_in_one_way_only(words: list[str]) -> None:
    with pytest.raises(InvalidConfig, match="choose one"):
        from_words(PPOConfig, words)


def test_a_micro_batch_may_be_larger_than_its_batch() -> None:
    assert from_dict(SFTConfig, {"optimiser.batch_size": 2, "machine.micro_batch_size": 4}).optimiser.batch_size == 2


def test_derived_sizes() -> None:
    config = from_dict(
        PPOConfig, {"sampling.prompts_per_iteration": 6, "sampling.responses_per_prompt": 4, "optimiser.minibatches": 3}
    )
    assert (config.sampling.responses_per_iteration, config.minibatch_size) == (24, 8)


def test_ppo_samples_from_the_whole_distribution_and_offers_nothing_else() -> None:
    config = PPOConfig().sampling
    assert (config.top_k, config.top_p, config.temperature) == (0, 1.0, 1.0)
    assert not {"top_k", "top_p"} & {field.flat for field in describe(PPOConfig)}
    with pytest.raises(InvalidConfig, match="no field 'top_k'"):
        from_words(PPOConfig, ["top_k=5"])
    for other in (SampleConfig, CompareConfig):
        chosen: Any = from_words(other, ["top_k=5", "top_p=0.9"])
        assert (chosen.sampling.top_k, chosen.sampling.top_p) == (5, 0.9)


def test_a_target_of_no_kl_at_all_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"kl\.target = 0\.0"):
        from_words(PPOConfig, ["kl_target=0"])


@pytest.mark.parametrize(
    ("config", "rate"),
    [
        (RewardConfig(), 1e-4),
        (RewardConfig(adapter="full"), 9e-6),
        (PPOConfig(), 1e-4),
        (PPOConfig(adapter="full"), 1e-6),
        (SFTConfig(), 2e-4),
        (DPOConfig(adapter="full"), 1e-6),
        (from_dict(PPOConfig, {"optimiser.learning_rate": 0.5}), 0.5),
    ],
)
def test_the_usual_learning_rate_depends_on_what_is_trained(config: PPOConfig, rate: float) -> None:
    assert peak_learning_rate(config) == rate


def test_the_critic_has_a_learning_rate_of_its_own() -> None:
    assert critic_learning_rate(PPOConfig()) == 1e-4
    assert critic_learning_rate(PPOConfig(adapter="full")) == 9e-6
    assert critic_learning_rate(from_dict(PPOConfig, {"optimiser.critic_learning_rate": 0.25})) == 0.25


@pytest.mark.parametrize("words", [["ties=half"], ["margin=ranks"]])
def test_choosing_one_by_one_has_no_pairs_to_be_tied_or_apart(words: list[str]) -> None:
    with pytest.raises(InvalidConfig, match="'plackett-luce' has no pairs"):
        from_words(RewardConfig, ["loss=plackett-luce", *words])
    assert from_words(RewardConfig, words).ranking.loss == "pairs"
