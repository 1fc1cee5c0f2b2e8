"""What a PPO run is asked to do, in groups of fields."""

from __future__ import annotations

from dataclasses import dataclass

from data.errors import InvalidConfig
from data.fields import Configuration, option
from training.launch.shared_config import (
    EvaluationOptions,
    OptimiserOptions,
    PolicySampling,
    TrainConfig,
    TrainMachine,
    ids_in,
)


@dataclass(frozen=True, kw_only=True)
class RolloutSampling(PolicySampling):
    """What a rollout of PPO is."""

    prompts_per_iteration: int = option(32, "prompts of a rollout", unit="prompts", min=1)
    responses_per_prompt: int = option(1, "responses sampled for each of them", min=1, max=64)

    @property
    def responses_per_iteration(self) -> int:
        return self.prompts_per_iteration * self.responses_per_prompt


@dataclass(frozen=True, kw_only=True)
class PPOOptimiser(OptimiserOptions):
    """How policy and critic learn from a rollout."""

    critic_learning_rate: float | None = option(
        None, "of the critic; none: the usual one, with adapters or without", min=0.0
    )
    critic_warmup: int = option(0, "iterations that train the critic alone", min=0)
    ppo_epochs: int = option(2, "passes over a rollout", min=1, max=20)
    minibatches: int = option(1, "steps per pass", min=1, max=1024)
    loss_mean: str = option("token", "mean of the policy loss over tokens, or over responses",
                            choices=("token", "response"))  # fmt: skip
    entropy_coef: float = option(0.0, "weight of an entropy bonus", min=0.0)
    ptx_coef: float = option(0.0, "weight of a language-model loss on best-ranked responses, or on the texts of "
                             "ptx_file (PPO-ptx)", min=0.0)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PPOKL(Configuration):
    """The KL to the reference: how much it weighs, and where."""

    coef: float = option(0.05, "weight of the KL penalty", unit="reward per nat", min=0.0, flat="kl_coef")
    target: float | None = option(None, "adapt the weight towards this KL", unit="nats per response", min=1e-6,
                                  flat="kl_target")  # fmt: skip
    horizon: int = option(10_000, "responses over which the weight adapts", min=1, flat="kl_horizon")
    place: str = option("reward", "KL in the reward of each token, or in the loss", choices=("reward", "loss"),
                        flat="kl_place")  # fmt: skip
    estimator: str = option("k1", "estimate of the KL in the loss", choices=("k1", "k2", "k3"), flat="kl_estimator")


@dataclass(frozen=True, kw_only=True)
class PPOAdvantages(Configuration):
    """What becomes of a score on its way to an advantage."""

    gamma: float = option(1.0, "discount", min=0.0, max=1.0)
    gae_lambda: float = option(0.95, "lambda of the advantages", min=0.0, max=1.0)
    score_scale: str = option(
        "none", "what scores are divided by: nothing; their standard deviation on the SFT responses; that of all "
        "scores so far; or, after the penalty, rewards of all tokens by that of the rollout's (their mean stays)",
        choices=("none", "sft", "running", "whiten"),
        took_over={"scale_scores": "sft", "running_scores": "running", "whiten_rewards": "whiten"},
    )  # fmt: skip
    score_clip: float | None = option(None, "scores, after scaling, are cut to this size", min=1e-6)
    missing_eos_penalty: float = option(1.0, "taken from the score of a response that does not end", min=0.0)


@dataclass(frozen=True, kw_only=True)
class PPOLimits(Configuration):
    """How far a policy may move: in an update, and from the reference."""

    surrogate: str = option("clip", "what keeps an update near the policy that sampled: clipped ratios, or a penalty "
                            "on KL(old, new) whose weight adapts", choices=("clip", "penalty"))  # fmt: skip
    clip_range: float = option(0.2, "epsilon of the clipped surrogate", min=0.0)
    update_kl_target: float = option(0.01, "KL(old, new) that the weight of the penalty adapts to",
                                     unit="nats per token", min=1e-6)  # fmt: skip
    value_clip_range: float | None = option(0.2, "clip of the value; none: plain squared error", min=0.0)
    max_update_kl: float | None = option(None, "stop a rollout's updates when KL(old, new) passes this",
                                         unit="nats per token", min=0.0)  # fmt: skip
    max_kl: float | None = option(50.0, "alarm when the KL to the reference passes this", unit="nats per response",
                                  min=1e-6)  # fmt: skip
    on_alarm: str = option("continue", "after an alarm, such as that of max_kl: record it and go on, or stop with a "
                           "checkpoint", choices=("continue", "stop"))  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PPOEvaluation(EvaluationOptions):
    """How the policy is measured on the way, and what is kept of it to be looked at."""

    every: int = option(10, "iterations between evaluations on held-out prompts", min=1, flat="eval_every")
    sample_rows: int = option(8, "responses of each iteration to show", min=0, max=64)
    token_rows: int = option(8, "responses of each iteration, and held-out prompts of each evaluation, whose tokens "
                             "are kept one by one", min=0, max=256)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PPOMachine(TrainMachine):
    """Where PPO computes."""

    micro_batch_tokens: int = option(4096, "tokens per forward pass", unit="tokens", min=1)
    share_prompts: bool = option(True, "read a prompt once for all of its responses, and no padding, where the models "
                                 "give the same numbers that way")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PPOConfig(TrainConfig):
    """Train a policy against a reward model with PPO (Ouyang et al. 2022; Schulman et al. 2017)."""

    prompts_file: str = option("", "prompts from this file instead of the snapshot's training side")
    iterations: int = option(50, "rollouts, each with its updates", min=1, max=1_000_000)
    ptx_file: str = option("", "a file of texts, or of prompts with a response, for PPO-ptx, in place of the "
                           "best-ranked responses")  # fmt: skip
    second_reward_run: str = option("", "the run of a second reward model, which PPO does not train against, or "
                                    "several, with commas between, such as of other seeds: when it (of several their "
                                    "mean less their spread) falls while the score rises, the score is being "
                                    "gamed")  # fmt: skip
    sampling: RolloutSampling = RolloutSampling()
    optimiser: PPOOptimiser = PPOOptimiser()
    kl: PPOKL = PPOKL()
    advantages: PPOAdvantages = PPOAdvantages()
    limits: PPOLimits = PPOLimits()
    evaluation: PPOEvaluation = PPOEvaluation()
    machine: PPOMachine = PPOMachine()

    def __post_init__(self) -> None:
        super().__post_init__()
        sampling, rows, n = self.sampling, self.sampling.responses_per_iteration, self.optimiser.minibatches
        if rows % n:
            raise InvalidConfig(
                f"{sampling.prompts_per_iteration} prompts x {sampling.responses_per_prompt} responses = {rows} "
                f"responses per iteration can't be cut into {n} equal minibatches"
            )
        if self.ptx_file and not self.optimiser.ptx_coef:
            raise InvalidConfig("ptx_file is learnt from only with ptx_coef above 0; set it, or leave the file out")

    @property
    def second_reward_runs(self) -> tuple[str, ...]:
        return ids_in(self.second_reward_run)

    @property
    def minibatch_size(self) -> int:
        return self.sampling.responses_per_iteration // self.optimiser.minibatches
