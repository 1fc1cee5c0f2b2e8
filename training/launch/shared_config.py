"""What the configurations of runs share: the groups of their fields, and what every training run has."""

from __future__ import annotations

from dataclasses import dataclass

from data.fields import Configuration, option

DEMO_MODEL = "demo"


def ids_in(written: str) -> tuple[str, ...]:
    """The ids of a field that names several runs with commas between."""
    return tuple(each.strip() for each in written.split(",") if each.strip())


@dataclass(frozen=True, kw_only=True)
class MachineOptions(Configuration):
    """Where and in which precision a run computes: the same for every kind."""

    seed: int = option(0, "seed of everything random in the run", min=0, max=2**31 - 1)
    device: str = option(
        "auto", "where to compute; auto takes CUDA, then MPS, then the CPU", choices=("auto", "cuda", "mps", "cpu")
    )
    precision: str = option(
        "auto",
        "auto: bf16 autocast over fp32 master weights on CUDA, fp32 elsewhere",
        choices=("auto", "fp32", "bf16"),
    )
    threads: int = option(0, "CPU threads of torch; 0 leaves the choice to torch", min=0, max=256)


@dataclass(frozen=True, kw_only=True)
class TrainMachine(MachineOptions):
    """The same, for a run that leaves checkpoints."""

    checkpoint_every: int = option(25, "steps between checkpoints", unit="steps", min=1)


@dataclass(frozen=True, kw_only=True)
class SamplingOptions(Configuration):
    """How responses are sampled. Every field is passed on; a model's own defaults never count."""

    max_new_tokens: int = option(256, "longest response", unit="tokens", min=1, max=32_768)
    temperature: float = option(1.0, "sampling temperature", min=0.01, max=10.0)
    batch_size: int = option(8, "prompts generated together", unit="prompts", min=1, max=4096)
    max_prompt_tokens: int = option(1024, "prompts longer than this are left out, and counted", unit="tokens", min=1)

    # PPO learns from samples of the whole distribution: of any other, its ratios and its KL would be wrong.
    @property
    def top_k(self) -> int:
        return 0

    @property
    def top_p(self) -> float:
        return 1.0


@dataclass(frozen=True, kw_only=True)
class CutSampling(SamplingOptions):
    """The same, with unlikely tokens left out where that is asked."""

    top_k: int = option(0, "sample from the k most likely tokens; 0: from all", min=0, max=10_000)
    top_p: float = option(1.0, "sample from the smallest set with this much probability", min=0.01, max=1.0)


@dataclass(frozen=True, kw_only=True)
class PolicySampling(SamplingOptions):
    """How the responses are sampled that a policy learns from, or is measured by."""

    max_new_tokens: int = option(64, "longest response", unit="tokens", min=1, max=32_768)
    max_prompt_tokens: int = option(512, "prompts longer than this are left out, and counted", unit="tokens", min=1)


@dataclass(frozen=True, kw_only=True)
class OptimiserOptions(Configuration):
    """How weights are changed."""

    lora_rank: int = option(16, "rank of the adapters", min=1, max=512)
    lora_alpha: int = option(32, "scale of the adapters is alpha / rank", min=1, max=1024)
    learning_rate: float | None = option(
        None, "peak; none: the usual one for this kind, with adapters or without", min=0.0
    )
    max_grad_norm: float = option(1.0, "gradients are clipped to this norm", min=1e-6)


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions(Configuration):
    """How a policy is measured on the way: always on the same held-out prompts."""

    every: int = option(25, "steps between evaluations on held-out prompts", unit="steps", min=1, flat="eval_every")
    prompts: int = option(
        16, "held-out prompts to evaluate on, always the same; 0: none", unit="prompts", min=0, flat="eval_prompts"
    )


@dataclass(frozen=True, kw_only=True)
class MachineConfig(Configuration):
    """A run that computes, and no more."""

    machine: MachineOptions = MachineOptions()


@dataclass(frozen=True, kw_only=True)
class TrainConfig(MachineConfig):
    """What every training run has."""

    model: str = option("", "what to start from: 'demo', a folder, a hub id, run:ID or run:ID/best; empty: the "
                        "model that was sampled")  # fmt: skip
    adapter: str = option("lora", "train low-rank adapters, or every weight", choices=("lora", "full"))
    optimiser: OptimiserOptions = OptimiserOptions()
    machine: TrainMachine = TrainMachine()


@dataclass(frozen=True, kw_only=True)
class EvaluatedConfig(TrainConfig):
    """A policy that TRL trains: the run's reward model measures it on held-out prompts, as it does PPO's."""

    sampling: PolicySampling = PolicySampling()
    evaluation: EvaluationOptions = EvaluationOptions()
