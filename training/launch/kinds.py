"""The kinds of runs: one row for each. A new kind is a row here and a module with its job."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from data.records import RunKind
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
    `may_be_evaluated`: a reward model may measure it without being learnt from.
    """

    config: type
    job: str
    title: str
    needs_project: bool = False
    needs_snapshot: bool = False
    needs_reward_run: bool = False
    may_be_evaluated: bool = False
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
        first=("model", "adapter", "epochs", "learning_rate", "batch_prompts", "max_length"),
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
            "model", "adapter", "iterations", "prompts_per_iteration", "responses_per_prompt", "max_new_tokens",
            "kl_coef", "kl_target", "learning_rate",
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
        first=("model", "adapter", "epochs", "learning_rate", "batch_size", "max_length"),
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
        first=("model", "adapter", "epochs", "learning_rate", "beta", "batch_size"),
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
            "model", "adapter", "iterations", "prompts_per_step", "responses_per_prompt", "max_new_tokens", "kl_coef",
            "learning_rate",
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
        command="baselines",
        help="compare policies at equal KL on held-out prompts, with best-of-n from their start",
    ),
}  # fmt: skip
CONFIGS: dict[RunKind, type] = {kind: row.config for kind, row in KINDS.items()}
TRAINED: tuple[RunKind, ...] = tuple(kind for kind, row in KINDS.items() if row.first)
WRITERS: tuple[RunKind, ...] = tuple(kind for kind, row in KINDS.items() if row.writes is Writes.LANGUAGE_MODEL)
