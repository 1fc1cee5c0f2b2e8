"""The kinds of runs: one row for each. A new kind is a row here and a module with its job."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from data.fields import from_dict, named_as_now
from data.records import Run, RunKind
from training.launch.config import (
    BaselinesConfig,
    CompareConfig,
    DPOConfig,
    FeaturesConfig,
    PPOConfig,
    RewardConfig,
    RLOOConfig,
    SampleConfig,
    ScoreConfig,
    SFTConfig,
)


class Writes(StrEnum):
    """What a run that has succeeded leaves for others to start from."""

    LANGUAGE_MODEL = "language model"
    REWARD_MODEL = "reward model"
    NO_MODEL = "no model"


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A row of the table.

    `job`: the module whose `run(config, reporter)` does the run, in a worker's child. `title`: its name on the screens.
    `command`: how the command line queues one; empty where it can't. `help`: what it does, for the words of their own.
    `first`: the fields that stand first in its form on the Train page; none where it has no such form.
    `may_be_evaluated`: a reward model may measure it without being learnt from. `compares`: it reads policies and
    continues none of them.
    """

    config: type
    job: str
    title: str
    needs_project: bool = False
    needs_snapshot: bool = False
    needs_reward_run: bool = False
    may_be_evaluated: bool = False
    compares: bool = False
    writes: Writes = Writes.NO_MODEL
    command: str = ""
    help: str = ""
    first: tuple[str, ...] = ()


KINDS: dict[RunKind, Kind] = {
    RunKind.SAMPLE: Kind(
        config=SampleConfig,
        job="training.sample.run",
        title="Sampling",
        needs_project=True,
        command="sample",
        help="sample K responses for each prompt of a project, to be ranked",
    ),
    RunKind.REWARD: Kind(
        config=RewardConfig,
        job="training.reward.run",
        title="Reward model",
        needs_snapshot=True,
        writes=Writes.REWARD_MODEL,
        command="train reward",
        help="train a reward model on a snapshot's rankings",
        first=(
            "model", "adapter", "optimiser.epochs", "optimiser.learning_rate", "optimiser.batch_prompts", "max_length",
        ),
    ),
    RunKind.PPO: Kind(
        config=PPOConfig,
        job="training.ppo.run",
        title="PPO",
        needs_snapshot=True,
        needs_reward_run=True,
        writes=Writes.LANGUAGE_MODEL,
        command="train ppo",
        help="train a policy against a reward model with PPO",
        first=(
            "model", "adapter", "iterations", "sampling.prompts_per_iteration", "sampling.responses_per_prompt",
            "sampling.max_new_tokens", "kl.coef", "kl.target", "optimiser.learning_rate",
        ),
    ),
    RunKind.SFT: Kind(
        config=SFTConfig,
        job="training.methods.finetune",
        title="SFT",
        needs_snapshot=True,
        may_be_evaluated=True,
        writes=Writes.LANGUAGE_MODEL,
        command="train sft",
        help="fine-tune on the best-ranked responses",
        first=("model", "adapter", "optimiser.epochs", "optimiser.learning_rate", "optimiser.batch_size", "max_length"),
    ),
    RunKind.DPO: Kind(
        config=DPOConfig,
        job="training.methods.finetune",
        title="DPO",
        needs_snapshot=True,
        may_be_evaluated=True,
        writes=Writes.LANGUAGE_MODEL,
        command="train dpo",
        help="train on the preference pairs directly, with DPO",
        first=("model", "adapter", "optimiser.epochs", "optimiser.learning_rate", "kl.beta", "optimiser.batch_size"),
    ),
    RunKind.RLOO: Kind(
        config=RLOOConfig,
        job="training.methods.rloo",
        title="RLOO",
        needs_snapshot=True,
        needs_reward_run=True,
        writes=Writes.LANGUAGE_MODEL,
        command="train rloo",
        help="train a policy against a reward model without a critic, with RLOO",
        first=(
            "model", "adapter", "iterations", "sampling.prompts_per_step", "sampling.responses_per_prompt",
            "sampling.max_new_tokens", "kl.coef", "optimiser.learning_rate",
        ),
    ),
    RunKind.CHECK: Kind(
        config=PPOConfig,
        job="training.check.run",
        title="Check",
        needs_snapshot=True,
        needs_reward_run=True,
        command="train ppo --dry-run",
    ),
    RunKind.SCORE: Kind(
        config=ScoreConfig,
        job="training.reward.scoring_run",
        title="Scoring",
        needs_reward_run=True,
        command="score",
        help="score prompts with responses from a file by a reward model, and wait",
    ),
    RunKind.COMPARE: Kind(
        config=CompareConfig,
        job="training.sample.compare_run",
        title="Comparison",
        needs_project=True,
        compares=True,
    ),
    RunKind.FEATURES: Kind(
        config=FeaturesConfig,
        job="training.reward.features_run",
        title="Features",
        needs_project=True,
        command="features",
        help="read a project's responses once with the frozen model, for the instant reward model",
    ),
    RunKind.BASELINES: Kind(
        config=BaselinesConfig,
        job="training.methods.baselines",
        title="Baselines",
        needs_snapshot=True,
        needs_reward_run=True,
        compares=True,
        command="baselines",
        help="compare policies at equal KL on held-out prompts, with best-of-n from their start",
    ),
}  # fmt: skip
CONFIGS: dict[RunKind, type] = {kind: row.config for kind, row in KINDS.items()}
TRAINED: tuple[RunKind, ...] = tuple(kind for kind, row in KINDS.items() if row.first)
WRITERS: tuple[RunKind, ...] = tuple(kind for kind, row in KINDS.items() if row.writes is Writes.LANGUAGE_MODEL)
GONE = frozenset({"update_kl_coef"})  # fields that runs of older releases have, and nothing reads


def settings(run: Run) -> dict[str, Any]:
    """A run's configuration by the names that fields have today, whichever release has stored it."""
    return named_as_now(CONFIGS[run.kind], {name: value for name, value in run.config.items() if name not in GONE})


def config_of(run: Run) -> Any:
    """What a run was asked to do. Raises InvalidConfig where this release can't read it."""
    return from_dict(CONFIGS[run.kind], settings(run))
