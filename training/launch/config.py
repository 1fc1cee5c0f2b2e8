"""What a run of each kind is asked to do: frozen dataclasses, standard library only.

The help on a field is the help everywhere: on the command line, in the forms, in the documentation.
Defaults and their sources: docs/defaults.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from data.errors import InvalidConfig
from data.fields import Configuration, option
from training.launch.ppo_config import PPOConfig
from training.launch.shared_config import (
    DEMO_MODEL,
    CutSampling,
    EvaluatedConfig,
    EvaluationOptions,
    MachineConfig,
    MachineOptions,
    OptimiserOptions,
    PolicySampling,
    SamplingOptions,
    TrainConfig,
    TrainMachine,
    ids_in,
)

__all__ = [
    "DEMO_MODEL",
    "CutSampling",
    "EvaluatedConfig",
    "MachineConfig",
    "MachineOptions",
    "PPOConfig",
    "SamplingOptions",
    "TrainConfig",
]


def second_names(n: int) -> list[str]:
    """What n second reward models are called: with a number where there are several."""
    return ["second_reward_model"] if n == 1 else [f"second_reward_model_{number}" for number in range(1, n + 1)]


@dataclass(frozen=True, kw_only=True)
class SampleConfig(MachineConfig):
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
    sampling: CutSampling = CutSampling()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.make_tasks and self.k < 2:
            raise InvalidConfig(f"k = {self.k}: a ranking needs at least 2 responses per prompt")


@dataclass(frozen=True, kw_only=True)
class RankingOptions(Configuration):
    """What a reward model learns of a ranking."""

    loss: str = option("pairs", "mean over a ranking's pairs, or choosing the best of the rest one by one "
                       "(Plackett-Luce)", choices=("pairs", "plackett-luce"))  # fmt: skip
    ties: str = option("drop", "equal ranks give no pair, or a pair that is half a win for each side",
                       choices=("drop", "half"))  # fmt: skip
    margin: str = option("none", "by how much a better response's score has to be higher: not at all, by the distance "
                         "of ranks, or by the stated strength", choices=("none", "ranks", "strength"))  # fmt: skip
    margin_size: float = option(1.0, "the margin between the first and the last rank, or at the greatest strength",
                                min=0.0)  # fmt: skip
    centring: float = option(0.0, "weight of the squared mean score of a prompt in the loss", min=0.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loss == "plackett-luce" and (self.ties, self.margin) != ("drop", "none"):
            raise InvalidConfig("loss = 'plackett-luce' has no pairs: ties = 'half' and margin are for loss = 'pairs'")


@dataclass(frozen=True, kw_only=True)
class RewardOptimiser(OptimiserOptions):
    """How a reward model's weights are changed."""

    epochs: int = option(1, "passes over the rankings; more than one overfits", min=1, max=100)
    batch_prompts: int = option(8, "rankings per step", unit="rankings", min=1)
    warmup_share: float = option(0.03, "share of steps with a rising rate", min=0.0, max=0.5)
    weight_decay: float = option(0.0, "decay of the weights", min=0.0)


@dataclass(frozen=True, kw_only=True)
class RewardEvaluation(Configuration):
    """How a reward model is measured, and where its zero is."""

    every: int = option(0, "steps between evaluations on held-out prompts; 0: up to ten over the run", unit="steps",
                        min=0, flat="eval_every")  # fmt: skip
    normalise_on: int = option(256, "SFT responses whose mean score becomes 0", unit="responses", min=1)
    instant_texts: int = option(4096, "at most so many responses are read by the frozen model for the report's first "
                                "baseline and learning curve; 0: none", unit="responses", min=0)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RewardMachine(TrainMachine):
    """Where a reward model computes."""

    micro_batch_tokens: int = option(2048, "tokens per forward pass, padding included", unit="tokens", min=1)
    processes: int = option(1, "processes on this machine, each with the whole model and its part of every step; on "
                            "GPUs one for each", unit="processes", min=1, max=64)  # fmt: skip
    share_prompts: bool = option(True, "read a prompt once for all of its responses, and no padding, where the model "
                                 "gives the same numbers that way")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RewardConfig(TrainConfig):
    """Train a pairwise reward model on whole rankings (Ouyang et al. 2022, section 3.5)."""

    train: bool = option(True, "no: measure a reward model that was trained elsewhere, as it is, and give it a zero")
    facts: bool = option(False, "the reward model reads a prompt's reference facts, after its last message")
    heads: int = option(1, "heads over one model, each on the rankings weighed anew at random; their mean scores, and "
                        "their spread says how sure it is", min=1, max=32)  # fmt: skip
    layers: int = option(0, "only the first layers of the model; 0: all", unit="layers", min=0)
    max_length: int = option(1024, "longest prompt with response; the prompt is cut on the left", unit="tokens", min=8)
    ranking: RankingOptions = RankingOptions()
    optimiser: RewardOptimiser = RewardOptimiser()
    evaluation: RewardEvaluation = RewardEvaluation()
    machine: RewardMachine = RewardMachine()


@dataclass(frozen=True, kw_only=True)
class FinetuneOptimiser(OptimiserOptions):
    """How TRL's trainers change weights."""

    epochs: int = option(1, "passes over the data", min=1, max=100)
    batch_size: int = option(8, "examples per step", min=1)


@dataclass(frozen=True, kw_only=True)
class FinetuneSampling(PolicySampling):
    """How the responses of evaluations are sampled."""

    batch_size: int = option(8, "prompts that an evaluation samples together", unit="prompts", min=1, max=4096,
                             flat="eval_batch_size")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class FinetuneMachine(TrainMachine):
    """Where TRL's trainers compute."""

    micro_batch_size: int = option(4, "examples per forward pass", min=1)


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig(EvaluatedConfig):
    """What TRL's own trainers are asked: SFT and DPO. What is sampled in them is sampled by evaluations alone."""

    max_length: int = option(1024, "longest prompt with response", unit="tokens", min=8)
    optimiser: FinetuneOptimiser = FinetuneOptimiser()
    sampling: FinetuneSampling = FinetuneSampling()
    machine: FinetuneMachine = FinetuneMachine()

    def __post_init__(self) -> None:
        super().__post_init__()
        whole, part = self.optimiser.batch_size, self.machine.micro_batch_size
        if whole % min(part, whole):
            raise InvalidConfig(f"batch_size = {whole} is not divisible by micro_batch_size = {part}")


@dataclass(frozen=True, kw_only=True)
class SFTConfig(FinetuneConfig):
    """Fine-tune on the best-ranked response of each ranking, with TRL's SFTTrainer."""


@dataclass(frozen=True, kw_only=True)
class DPOKL(Configuration):
    """The KL to the reference, which is in DPO's loss."""

    beta: float = option(0.1, "weight of the implicit KL", min=0.0)


@dataclass(frozen=True, kw_only=True)
class DPOConfig(FinetuneConfig):
    """Direct preference optimisation on the snapshot's pairs, with TRL's DPOTrainer (Rafailov et al. 2023)."""

    kl: DPOKL = DPOKL()


@dataclass(frozen=True, kw_only=True)
class RLOOSampling(PolicySampling):
    """What a step of RLOO samples."""

    prompts_per_step: int = option(8, "prompts of a step", unit="prompts", min=1)
    responses_per_prompt: int = option(4, "responses sampled for each of them", min=2, max=64)
    batch_size: int = option(8, "prompts that an evaluation samples together", unit="prompts", min=1, max=4096)


@dataclass(frozen=True, kw_only=True)
class RLOOKL(Configuration):
    """The KL to the reference, in the reward."""

    coef: float = option(0.05, "weight of the KL penalty", unit="reward per nat", min=0.0, flat="kl_coef")


@dataclass(frozen=True, kw_only=True)
class RLOOAdvantages(Configuration):
    """What becomes of a score."""

    missing_eos_penalty: float = option(1.0, "taken from the score of a response that does not end", min=0.0)


@dataclass(frozen=True, kw_only=True)
class RLOOEvaluation(EvaluationOptions):
    """How the policy is measured on the way."""

    every: int = option(10, "steps between evaluations on held-out prompts", unit="steps", min=1, flat="eval_every")


@dataclass(frozen=True, kw_only=True)
class RLOOConfig(EvaluatedConfig):
    """Train a policy against a reward model without a critic, with TRL's RLOOTrainer (Ahmadian et al. 2024)."""

    prompts_file: str = option("", "prompts from this file instead of the snapshot's training side")
    iterations: int = option(50, "steps", min=1, max=1_000_000)
    sampling: RLOOSampling = RLOOSampling()
    kl: RLOOKL = RLOOKL()
    advantages: RLOOAdvantages = RLOOAdvantages()
    evaluation: RLOOEvaluation = RLOOEvaluation()


@dataclass(frozen=True, kw_only=True)
class BaselinesSampling(PolicySampling):
    """What is sampled for the table."""

    responses: int = option(4, "responses of each policy to each prompt", min=1, max=64)
    best_of: int = option(16, "the most responses that the best is taken of", min=1, max=256)


@dataclass(frozen=True, kw_only=True)
class BaselinesEvaluation(Configuration):
    """What the policies are compared on."""

    prompts: int = option(64, "held-out prompts", unit="prompts", min=1, flat="eval_prompts")


@dataclass(frozen=True, kw_only=True)
class BaselinesMachine(MachineOptions):
    """Where it computes."""

    micro_batch_tokens: int = option(4096, "tokens per forward pass", unit="tokens", min=1)


@dataclass(frozen=True, kw_only=True)
class BaselinesConfig(MachineConfig):
    """Compare policies on the snapshot's held-out prompts, with best-of-n from their start as the reference curve."""

    model: str = option("", "the model that the policies started from; empty: found from the "
                        "policies, without any the reward run's model")  # fmt: skip
    models: str = option("", "the policies, such as 'run:ID run:ID/best'")
    second_reward_run: str = option("", "the run of a second reward model, to score with too, or several, with "
                                    "commas between: the mean of all, and their spread")  # fmt: skip
    sampling: BaselinesSampling = BaselinesSampling()
    evaluation: BaselinesEvaluation = BaselinesEvaluation()
    machine: BaselinesMachine = BaselinesMachine()

    @property
    def second_reward_runs(self) -> tuple[str, ...]:
        return ids_in(self.second_reward_run)


@dataclass(frozen=True, kw_only=True)
class ScoreMachine(MachineOptions):
    """Where it computes."""

    batch_size: int = option(16, "texts per forward pass", min=1)


@dataclass(frozen=True, kw_only=True)
class ScoreConfig(MachineConfig):
    """Score prompts with responses by a reward model: those of a file, or what waits to be ranked in a project."""

    input_file: str = option("", "rows with a prompt and its responses")
    unranked: bool = option(False, "score the project's tasks that wait to be ranked, in place of a file")
    beside: str = option("", "ids of further reward runs, such as of other seeds, with commas between: scores are the "
                         "mean of all models, and their spread says how sure they are")  # fmt: skip
    centre_prompts: bool = option(False, "take the mean of a prompt's responses off their scores, in a file")
    machine: ScoreMachine = ScoreMachine()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.unranked and self.beside:
            raise InvalidConfig(
                "beside is for a file: what waits to be ranked is scored by one run for each model, and a selection "
                "puts their scores together"
            )


@dataclass(frozen=True, kw_only=True)
class CompareConfig(MachineConfig):
    """Sample two models on the same prompts, and score both by a reward model where one is named."""

    model_a: str = option("", "the first model; empty: what the second one started from")
    model_b: str = option("", "the second model, such as run:ID of a PPO run, or its best: run:ID/best")
    k: int = option(1, "responses of each model to each prompt", min=1, max=12)
    prompt: str = option("", "the prompt; empty: prompts of the project")
    prompts: str = option("held_out", "which of the project's: only those held out of all that went into both models "
                          "and the reward model, or also others where those are too few, which the result says",
                          choices=("held_out", "any"))  # fmt: skip
    limit: int = option(8, "at most so many prompts", min=1, max=1000)
    sampling: CutSampling = CutSampling()


@dataclass(frozen=True, kw_only=True)
class FeaturesMachine(MachineOptions):
    """Where it computes."""

    batch_tokens: int = option(4096, "tokens per forward pass, padding included", unit="tokens", min=1)


@dataclass(frozen=True, kw_only=True)
class FeaturesConfig(MachineConfig):
    """Read all responses of a project once with the frozen model, for the instant reward model."""

    model: str = option("", "the model that reads: 'demo', a folder, a hub id, run:ID or run:ID/best; empty: the "
                        "one that was sampled")  # fmt: skip
    max_length: int = option(1024, "longest prompt with response; the prompt is cut on the left", unit="tokens", min=8)
    machine: FeaturesMachine = FeaturesMachine()


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
    if config.optimiser.learning_rate is not None:
        return config.optimiser.learning_rate
    return LEARNING_RATES[type(config)][config.adapter == "full"]


def critic_learning_rate(config: PPOConfig) -> float:
    """The critic's learning rate that was asked for, or the usual one."""
    if config.optimiser.critic_learning_rate is not None:
        return config.optimiser.critic_learning_rate
    return CRITIC_LEARNING_RATES[config.adapter == "full"]
