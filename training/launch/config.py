"""What a run of each kind is asked to do: frozen dataclasses, standard library only.

The help on a field is the help everywhere: on the command line, in the forms, in the documentation.
Defaults and their sources: docs/defaults.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from data.errors import InvalidConfig
from data.fields import option
from training.launch.shared_config import (
    ALGORITHM,
    DEMO_MODEL,
    MACHINE,
    OPTIMISER,
    SAMPLING,
    CutGenerationConfig,
    EvaluatedConfig,
    GenerationConfig,
    MachineConfig,
    TrainConfig,
)

__all__ = [
    "DEMO_MODEL",
    "CutGenerationConfig",
    "EvaluatedConfig",
    "GenerationConfig",
    "MachineConfig",
    "TrainConfig",
]


def ids_in(written: str) -> tuple[str, ...]:
    """The ids of a field that names several runs with commas between."""
    return tuple(each.strip() for each in written.split(",") if each.strip())


def second_names(n: int) -> list[str]:
    """What n second reward models are called: with a number where there are several."""
    return ["second_reward_model"] if n == 1 else [f"second_reward_model_{number}" for number in range(1, n + 1)]


@dataclass(frozen=True, kw_only=True)
class SampleConfig(CutGenerationConfig):
    """Sample K distinct responses for each prompt and make them tasks to rank."""

    model: str = option("", "the SFT model: 'demo', a folder, a hub id, run:ID, or run:ID/best: the best policy that "
                        "a PPO run kept; empty: the model of the project's responses, 'demo' where it has "
                        "none")  # fmt: skip
    k: int = option(4, "responses per prompt", min=1, max=12)
    split: str = option(
        "all", "which prompts: all, those not named as held out, or those that are", choices=("all", "train", "eval")
    )
    limit: int = option(0, "at most so many prompts; 0: all", min=0)
    only_new: bool = option(True, "leave out prompts that have a task already")
    make_tasks: bool = option(True, "hand the responses out to be ranked")
    max_resamples: int = option(3, "how often a repeated response is drawn again", min=0, max=20)
    max_prompt_tokens: int = option(1024, "prompts longer than this are skipped, and counted", unit="tokens", min=1)

    def __post_init__(self) -> None:
        if self.make_tasks and self.k < 2:
            raise InvalidConfig(f"k = {self.k}: a ranking needs at least 2 responses per prompt")


@dataclass(frozen=True, kw_only=True)
class RewardConfig(TrainConfig):
    """Train a pairwise reward model on whole rankings (Ouyang et al. 2022, section 3.5)."""

    train: bool = option(True, "no: measure a reward model that was trained elsewhere, as it is, and give it a zero")
    facts: bool = option(False, "the reward model reads a prompt's reference facts, after its last message")
    heads: int = option(1, "heads over one model, each on the rankings weighed anew at random; their mean scores, and "
                        "their spread says how sure it is", min=1, max=32, group=ALGORITHM)  # fmt: skip
    layers: int = option(0, "only the first layers of the model; 0: all", unit="layers", min=0)
    epochs: int = option(1, "passes over the rankings; more than one overfits", min=1, max=100, group=OPTIMISER)
    batch_prompts: int = option(8, "rankings per step", unit="rankings", min=1, group=OPTIMISER)
    micro_batch_tokens: int = option(2048, "tokens per forward pass, padding included", unit="tokens", min=1,
                                     group=MACHINE)  # fmt: skip
    processes: int = option(1, "processes on this machine, each with the whole model and its part of every step; on "
                            "GPUs one for each", unit="processes", min=1, max=64, group=MACHINE)  # fmt: skip
    share_prompts: bool = option(True, "read a prompt once for all of its responses, and no padding, where the model "
                                 "gives the same numbers that way", group=MACHINE)  # fmt: skip
    warmup_share: float = option(0.03, "share of steps with a rising rate", min=0.0, max=0.5, group=OPTIMISER)
    weight_decay: float = option(0.0, "decay of the weights", min=0.0, group=OPTIMISER)
    max_length: int = option(1024, "longest prompt with response; the prompt is cut on the left", unit="tokens", min=8)
    normalise_on: int = option(256, "SFT responses whose mean score becomes 0", unit="responses", min=1, group=MACHINE)
    loss: str = option("pairs", "mean over a ranking's pairs, or choosing the best of the rest one by one "
                       "(Plackett-Luce)", choices=("pairs", "plackett-luce"), group=ALGORITHM)  # fmt: skip
    ties: str = option("drop", "equal ranks give no pair, or a pair that is half a win for each side",
                       choices=("drop", "half"), group=ALGORITHM)  # fmt: skip
    margin: str = option("none", "by how much a better response's score has to be higher: not at all, by the distance "
                         "of ranks, or by the stated strength", choices=("none", "ranks", "strength"),
                         group=ALGORITHM)  # fmt: skip
    margin_size: float = option(1.0, "the margin between the first and the last rank, or at the greatest strength",
                                min=0.0, group=ALGORITHM)  # fmt: skip
    centring: float = option(0.0, "weight of the squared mean score of a prompt in the loss", min=0.0, group=ALGORITHM)
    instant_texts: int = option(4096, "at most so many responses are read by the frozen model for the report's first "
                                "baseline and learning curve; 0: none", unit="responses", min=0,
                                group=MACHINE)  # fmt: skip
    eval_every: int = option(0, "steps between evaluations on held-out prompts; 0: up to ten over the run",
                             unit="steps", min=0, group=MACHINE)  # fmt: skip

    def __post_init__(self) -> None:
        if self.loss == "plackett-luce" and (self.ties, self.margin) != ("drop", "none"):
            raise InvalidConfig("loss = 'plackett-luce' has no pairs: ties = 'half' and margin are for loss = 'pairs'")


@dataclass(frozen=True, kw_only=True)
class PPOConfig(TrainConfig, GenerationConfig):
    """Train a policy against a reward model with PPO (Ouyang et al. 2022; Schulman et al. 2017)."""

    max_new_tokens: int = option(64, "longest response", unit="tokens", min=1, max=32_768, group=SAMPLING)
    prompts_file: str = option("", "prompts from this file instead of the snapshot's training side")
    iterations: int = option(50, "rollouts, each with its updates", min=1, max=1_000_000)
    prompts_per_iteration: int = option(32, "prompts of a rollout", unit="prompts", min=1, group=SAMPLING)
    responses_per_prompt: int = option(1, "responses sampled for each of them", min=1, max=64, group=SAMPLING)
    max_prompt_tokens: int = option(512, "prompts longer than this are left out, and counted", unit="tokens", min=1)
    ppo_epochs: int = option(2, "passes over a rollout", min=1, max=20, group=OPTIMISER)
    minibatches: int = option(1, "steps per pass", min=1, max=1024, group=OPTIMISER)
    micro_batch_tokens: int = option(4096, "tokens per forward pass", unit="tokens", min=1, group=MACHINE)
    share_prompts: bool = option(True, "read a prompt once for all of its responses, and no padding, where the models "
                                 "give the same numbers that way", group=MACHINE)  # fmt: skip
    critic_learning_rate: float | None = option(
        None, "of the critic; none: the usual one, with adapters or without", min=0.0, group=OPTIMISER
    )
    critic_warmup: int = option(0, "iterations that train the critic alone", min=0, group=OPTIMISER)
    kl_coef: float = option(0.05, "weight of the KL penalty", unit="reward per nat", min=0.0, group=ALGORITHM)
    kl_target: float | None = option(None, "adapt kl_coef towards this KL", unit="nats per response", min=1e-6,
                                     group=ALGORITHM)  # fmt: skip
    kl_horizon: int = option(10_000, "responses over which kl_coef adapts", min=1, group=ALGORITHM)
    kl_place: str = option("reward", "KL in the reward of each token, or in the loss", choices=("reward", "loss"),
                           group=ALGORITHM)  # fmt: skip
    kl_estimator: str = option("k1", "estimate of the KL in the loss", choices=("k1", "k2", "k3"), group=ALGORITHM)
    gamma: float = option(1.0, "discount", min=0.0, max=1.0, group=ALGORITHM)
    gae_lambda: float = option(0.95, "lambda of the advantages", min=0.0, max=1.0, group=ALGORITHM)
    clip_range: float = option(0.2, "epsilon of the clipped surrogate", min=0.0, group=ALGORITHM)
    value_clip_range: float | None = option(0.2, "clip of the value; none: plain squared error", min=0.0,
                                            group=ALGORITHM)  # fmt: skip
    loss_mean: str = option("token", "mean of the policy loss over tokens, or over responses",
                            choices=("token", "response"), group=ALGORITHM)  # fmt: skip
    entropy_coef: float = option(0.0, "weight of an entropy bonus", min=0.0, group=ALGORITHM)
    ptx_coef: float = option(0.0, "weight of a language-model loss on best-ranked responses, or on the texts of "
                             "ptx_file (PPO-ptx)", min=0.0, group=ALGORITHM)  # fmt: skip
    ptx_file: str = option("", "a file of texts, or of prompts with a response, for that loss, in place of the "
                           "best-ranked responses", group=ALGORITHM)  # fmt: skip
    max_update_kl: float | None = option(None, "stop a rollout's updates when KL(old, new) passes this",
                                         unit="nats per token", min=0.0, group=ALGORITHM)  # fmt: skip
    missing_eos_penalty: float = option(1.0, "taken from the score of a response that does not end", min=0.0,
                                        group=ALGORITHM)  # fmt: skip
    surrogate: str = option("clip", "what keeps an update near the policy that sampled: clipped ratios, or a penalty "
                            "on KL(old, new) whose weight adapts", choices=("clip", "penalty"),
                            group=ALGORITHM)  # fmt: skip
    update_kl_coef: float = option(1.0, "weight of that penalty at the start", min=0.0, group=ALGORITHM)
    update_kl_target: float = option(0.01, "KL(old, new) that the weight of the penalty adapts to",
                                     unit="nats per token", min=1e-6, group=ALGORITHM)  # fmt: skip
    score_clip: float | None = option(None, "scores, after scaling, are cut to this size", min=1e-6, group=ALGORITHM)
    running_scores: bool = option(False, "divide scores by the standard deviation of all scores so far",
                                  group=ALGORITHM)  # fmt: skip
    scale_scores: bool = option(False, "divide scores by their standard deviation on the SFT responses",
                                group=ALGORITHM)  # fmt: skip
    whiten_rewards: bool = option(False, "divide the rewards of all tokens, the penalty among them, by their standard "
                                  "deviation over the rollout; their mean stays", group=ALGORITHM)  # fmt: skip
    max_kl: float | None = option(50.0, "alarm when the KL to the reference passes this", unit="nats per response",
                                  min=1e-6, group=ALGORITHM)  # fmt: skip
    on_alarm: str = option("continue", "after an alarm, such as that of max_kl: record it and go on, or stop with a "
                           "checkpoint", choices=("continue", "stop"), group=ALGORITHM)  # fmt: skip
    second_reward_run: str = option("", "the run of a second reward model, which PPO does not train against, or "
                                    "several, with commas between, such as of other seeds: when it (of several their "
                                    "mean less their spread) falls while the score rises, the score is being "
                                    "gamed")  # fmt: skip
    eval_every: int = option(10, "iterations between evaluations on held-out prompts", min=1, group=MACHINE)
    eval_prompts: int = option(16, "held-out prompts to evaluate on, always the same; 0: none", unit="prompts", min=0,
                               group=MACHINE)  # fmt: skip
    sample_rows: int = option(8, "responses of each iteration to show", min=0, max=64, group=MACHINE)
    token_rows: int = option(8, "responses of each iteration, and held-out prompts of each evaluation, whose tokens "
                             "are kept one by one", min=0, max=256, group=MACHINE)  # fmt: skip

    def __post_init__(self) -> None:
        rows = self.prompts_per_iteration * self.responses_per_prompt
        if rows % self.minibatches:
            raise InvalidConfig(
                f"{self.prompts_per_iteration} prompts x {self.responses_per_prompt} responses = {rows} responses per "
                f"iteration can't be cut into {self.minibatches} equal minibatches"
            )
        if self.ptx_file and not self.ptx_coef:
            raise InvalidConfig("ptx_file is learnt from only with ptx_coef above 0; set it, or leave the file out")
        if self.scale_scores and self.running_scores:
            raise InvalidConfig("scale_scores and running_scores both divide the scores; choose one")
        if self.whiten_rewards and (self.scale_scores or self.running_scores):
            raise InvalidConfig("whiten_rewards divides rewards whose scores were divided already; choose one of them")

    @property
    def second_reward_runs(self) -> tuple[str, ...]:
        return ids_in(self.second_reward_run)

    @property
    def responses_per_iteration(self) -> int:
        return self.prompts_per_iteration * self.responses_per_prompt

    @property
    def minibatch_size(self) -> int:
        return self.responses_per_iteration // self.minibatches


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig(EvaluatedConfig):
    """What TRL's own trainers are asked: SFT and DPO. What is sampled in them is sampled by evaluations alone."""

    epochs: int = option(1, "passes over the data", min=1, max=100, group=OPTIMISER)
    batch_size: int = option(8, "examples per step, and prompts that an evaluation samples together", min=1,
                             group=OPTIMISER)  # fmt: skip
    micro_batch_size: int = option(4, "examples per forward pass", min=1, group=MACHINE)
    max_length: int = option(1024, "longest prompt with response", unit="tokens", min=8)
    max_new_tokens: int = option(64, "longest response of an evaluation", unit="tokens", min=1, max=32_768,
                                 group=SAMPLING)  # fmt: skip
    max_prompt_tokens: int = option(512, "held-out prompts longer than this are left out of evaluations, and counted",
                                    unit="tokens", min=1, group=SAMPLING)  # fmt: skip

    def __post_init__(self) -> None:
        if self.batch_size % min(self.micro_batch_size, self.batch_size):
            raise InvalidConfig(
                f"batch_size = {self.batch_size} is not divisible by micro_batch_size = {self.micro_batch_size}"
            )


@dataclass(frozen=True, kw_only=True)
class SFTConfig(FinetuneConfig):
    """Fine-tune on the best-ranked response of each ranking, with TRL's SFTTrainer."""


@dataclass(frozen=True, kw_only=True)
class DPOConfig(FinetuneConfig):
    """Direct preference optimisation on the snapshot's pairs, with TRL's DPOTrainer (Rafailov et al. 2023)."""

    beta: float = option(0.1, "weight of the implicit KL", min=0.0, group=ALGORITHM)


@dataclass(frozen=True, kw_only=True)
class RLOOConfig(EvaluatedConfig):
    """Train a policy against a reward model without a critic, with TRL's RLOOTrainer (Ahmadian et al. 2024)."""

    prompts_file: str = option("", "prompts from this file instead of the snapshot's training side")
    iterations: int = option(50, "steps", min=1, max=1_000_000)
    prompts_per_step: int = option(8, "prompts of a step", unit="prompts", min=1, group=SAMPLING)
    responses_per_prompt: int = option(4, "responses sampled for each of them", min=2, max=64, group=SAMPLING)
    batch_size: int = option(8, "prompts that an evaluation samples together", unit="prompts", min=1, max=4096,
                             group=SAMPLING)  # fmt: skip
    eval_every: int = option(10, "steps between evaluations on held-out prompts", unit="steps", min=1, group=MACHINE)
    kl_coef: float = option(0.05, "weight of the KL penalty", unit="reward per nat", min=0.0, group=ALGORITHM)
    missing_eos_penalty: float = option(1.0, "taken from the score of a response that does not end", min=0.0,
                                        group=ALGORITHM)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class BaselinesConfig(GenerationConfig):
    """Compare policies on the snapshot's held-out prompts, with best-of-n from their start as the reference curve."""

    model: str = option("", "the model that the policies started from; empty: found from the "
                        "policies, without any the reward run's model")  # fmt: skip
    models: str = option("", "the policies, such as 'run:ID run:ID/best'")
    max_new_tokens: int = option(64, "longest response", unit="tokens", min=1, max=32_768, group=SAMPLING)
    eval_prompts: int = option(64, "held-out prompts", unit="prompts", min=1, group=SAMPLING)
    responses: int = option(4, "responses of each policy to each prompt", min=1, max=64, group=SAMPLING)
    best_of: int = option(16, "the most responses that the best is taken of", min=1, max=256, group=SAMPLING)
    max_prompt_tokens: int = option(512, "prompts longer than this are left out, and counted", unit="tokens", min=1)
    second_reward_run: str = option("", "the run of a second reward model, to score with too, or several, with "
                                    "commas between: the mean of all, and their spread")  # fmt: skip
    micro_batch_tokens: int = option(4096, "tokens per forward pass", unit="tokens", min=1, group=MACHINE)

    @property
    def second_reward_runs(self) -> tuple[str, ...]:
        return ids_in(self.second_reward_run)


@dataclass(frozen=True, kw_only=True)
class ScoreConfig(MachineConfig):
    """Score prompts with responses by a reward model: those of a file, or what waits to be ranked in a project."""

    input_file: str = option("", "rows with a prompt and its responses")
    unranked: bool = option(False, "score the project's tasks that wait to be ranked, in place of a file")
    beside: str = option("", "ids of further reward runs, such as of other seeds, with commas between: scores are the "
                         "mean of all models, and their spread says how sure they are")  # fmt: skip
    centre_prompts: bool = option(False, "take the mean of a prompt's responses off their scores, in a file")
    batch_size: int = option(16, "texts per forward pass", min=1, group=MACHINE)

    def __post_init__(self) -> None:
        if self.unranked and self.beside:
            raise InvalidConfig(
                "beside is for a file: what waits to be ranked is scored by one run for each model, and a selection "
                "puts their scores together"
            )


@dataclass(frozen=True, kw_only=True)
class CompareConfig(CutGenerationConfig):
    """Sample two models on the same prompts, and score both by a reward model where one is named."""

    model_a: str = option("", "the first model; empty: what the second one started from")
    model_b: str = option("", "the second model, such as run:ID of a PPO run, or its best: run:ID/best")
    k: int = option(1, "responses of each model to each prompt", min=1, max=12, group=SAMPLING)
    prompt: str = option("", "the prompt; empty: prompts of the project")
    prompts: str = option("held_out", "which of the project's: only those held out of all that went into both models "
                          "and the reward model, or also others where those are too few, which the result says",
                          choices=("held_out", "any"))  # fmt: skip
    limit: int = option(8, "at most so many prompts", min=1, max=1000)
    max_prompt_tokens: int = option(1024, "prompts longer than this are skipped, and counted", unit="tokens", min=1)


@dataclass(frozen=True, kw_only=True)
class FeaturesConfig(MachineConfig):
    """Read all responses of a project once with the frozen model, for the instant reward model."""

    model: str = option("", "the model that reads: 'demo', a folder, a hub id, run:ID or run:ID/best; empty: the "
                        "one that was sampled")  # fmt: skip
    max_length: int = option(1024, "longest prompt with response; the prompt is cut on the left", unit="tokens", min=8)
    batch_tokens: int = option(4096, "tokens per forward pass, padding included", unit="tokens", min=1, group=MACHINE)


# Peak learning rates: with adapters, and for every weight. Sources: docs/defaults.md.
LEARNING_RATES: dict[type, tuple[float, float]] = {
    RewardConfig: (1e-4, 9e-6),
    PPOConfig: (1e-4, 1e-6),
    SFTConfig: (2e-4, 2e-5),
    DPOConfig: (5e-5, 1e-6),
    RLOOConfig: (1e-4, 1e-6),
}
CRITIC_LEARNING_RATES = (1e-4, 9e-6)


def peak_learning_rate(config: TrainConfig) -> float:
    """The learning rate that was asked for, or the usual one for this kind of run."""
    if config.learning_rate is not None:
        return config.learning_rate
    return LEARNING_RATES[type(config)][config.adapter == "full"]


def critic_learning_rate(config: PPOConfig) -> float:
    """The critic's learning rate that was asked for, or the usual one."""
    if config.critic_learning_rate is not None:
        return config.critic_learning_rate
    return CRITIC_LEARNING_RATES[config.adapter == "full"]
