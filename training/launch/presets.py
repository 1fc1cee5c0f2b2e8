"""Named settings with their sources, on top of the defaults: what a paper used, or what suits a machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from data.errors import InvalidConfig
from data.fields import describe, from_dict, named_as_now
from data.records import RunKind
from training.launch.kinds import CONFIGS

Values = dict[str, Any]


@dataclass(frozen=True)
class Preset:
    """Values of a kind's fields. `otherwise`: what the source does that these fields can't say."""

    title: str
    source: str
    values: Values
    otherwise: str = ""


_PAPER_PPO: Values = {
    "adapter": "full",
    "advantages.gamma": 1.0,
    "advantages.gae_lambda": 0.95,
    "limits.clip_range": 0.2,
    "limits.value_clip_range": 0.2,
    "optimiser.minibatches": 1,
    "optimiser.ppo_epochs": 4,
    "sampling.prompts_per_iteration": 512,
    "sampling.responses_per_prompt": 1,
}
_TLDR = "Stiennon et al. 2020, Learning to summarize from human feedback, appendix B.1: TL;DR, 1.3B"
_HUANG = "Huang et al. 2024, The N+ implementation details of RLHF with PPO: TL;DR"
_OURS = (
    "Hu et al. 2022 for the adapters; the rest is ours, chosen for one GPU with 80 GB and a 7B model, not yet run there"
)

PRESETS: dict[RunKind, dict[str, Preset]] = {
    RunKind.PPO: {
        "instructgpt": Preset(
            "InstructGPT",
            "Ouyang et al. 2022, section 3.5 and appendices C.4 and E.7",
            _PAPER_PPO
            | {
                "kl.coef": 0.02,
                "optimiser.critic_learning_rate": 9e-6,
                "optimiser.minibatches": 8,
                "optimiser.ppo_epochs": 1,
                "sampling.max_new_tokens": 1000,
                "sampling.max_prompt_tokens": 1000,
                "sampling.temperature": 1.0,
                "iterations": 500,
            },
            "the policy's learning rate is not printed; the rate rises over ten iterations; weights are averaged "
            "(0.992); PPO-ptx takes pretraining text with weight 27.8",
        ),
        "stiennon-2020": Preset(
            "Stiennon 2020",
            _TLDR,
            _PAPER_PPO
            | {
                "kl.coef": 0.05,
                "optimiser.learning_rate": 1.5e-5,
                "optimiser.critic_learning_rate": 1.5e-5,
                "sampling.max_new_tokens": 48,
                "iterations": 1953,
            },
            "the rate falls to 0 over a million responses",
        ),
        "ziegler-2019": Preset(
            "Ziegler 2019",
            "Ziegler et al. 2019, Fine-tuning language models from human preferences, and its code: 774M, books",
            _PAPER_PPO
            | {
                "kl.coef": 0.15,
                "kl.target": 6.0,
                "kl.horizon": 10_000,
                "advantages.score_scale": "whiten",
                "optimiser.learning_rate": 1e-5,
                "optimiser.critic_learning_rate": 1e-5,
                "sampling.max_new_tokens": 24,
                "sampling.temperature": 0.7,
                "iterations": 1953,
            },
            "policy and value share one network there; the rate falls to 0; a text without a full stop scores -1",
        ),
        "huang-2024": Preset(
            "Huang 2024",
            _HUANG,
            _PAPER_PPO
            | {
                "kl.coef": 0.05,
                "optimiser.learning_rate": 3e-6,
                "optimiser.critic_learning_rate": 3e-6,
                "sampling.max_new_tokens": 53,
                "sampling.temperature": 0.7,
                "iterations": 1953,
            },
            "the rate falls to 0; the score of a response without an end becomes -1",
        ),
        "adapters-one-gpu": Preset(
            "Adapters, one GPU",
            _OURS,
            {
                "adapter": "lora",
                "optimiser.lora_rank": 16,
                "optimiser.lora_alpha": 32,
                "optimiser.minibatches": 4,
                "sampling.batch_size": 64,
                "sampling.max_new_tokens": 256,
                "sampling.prompts_per_iteration": 64,
                "sampling.responses_per_prompt": 4,
                "machine.micro_batch_tokens": 16_384,
                "machine.precision": "bf16",
            },
        ),
        "cpu-demo": Preset(
            "CPU demo",
            "`rankloop demo`: SmolLM2-135M-Instruct on two CPU cores, in minutes",
            {
                "adapter": "lora",
                "iterations": 10,
                "kl.coef": 0.02,
                "advantages.score_scale": "sft",
                "advantages.missing_eos_penalty": 0.0,  # the reward model alone has to find that answers should end
                "optimiser.learning_rate": 3e-4,
                "optimiser.critic_learning_rate": 2e-4,
                "sampling.batch_size": 16,
                "sampling.max_new_tokens": 40,
                "sampling.prompts_per_iteration": 16,
                "sampling.temperature": 0.7,
                "machine.precision": "bf16",
            },
        ),
    },
    RunKind.REWARD: {
        "instructgpt": Preset(
            "InstructGPT",
            "Ouyang et al. 2022, section 3.4 and appendix C.2",
            {"adapter": "full", "optimiser.epochs": 1, "optimiser.learning_rate": 9e-6, "optimiser.batch_prompts": 64},
        ),
        "stiennon-2020": Preset(
            "Stiennon 2020",
            _TLDR,
            {
                "adapter": "full",
                "optimiser.epochs": 1,
                "optimiser.learning_rate": 1.5e-5,
                "optimiser.batch_prompts": 64,
            },
        ),
        "huang-2024": Preset(
            "Huang 2024",
            _HUANG,
            {"adapter": "full", "optimiser.epochs": 1, "optimiser.learning_rate": 3e-6, "optimiser.batch_prompts": 64},
        ),
        "adapters-one-gpu": Preset(
            "Adapters, one GPU",
            _OURS,
            {
                "adapter": "lora",
                "optimiser.lora_rank": 16,
                "optimiser.lora_alpha": 32,
                "optimiser.batch_prompts": 32,
                "machine.micro_batch_tokens": 16_384,
                "machine.precision": "bf16",
            },
        ),
        "cpu-demo": Preset(
            "CPU demo",
            "`rankloop demo`: SmolLM2-135M-Instruct on two CPU cores, in minutes",
            {
                "adapter": "lora",
                "max_length": 256,
                "evaluation.every": 1000,
                "evaluation.normalise_on": 128,
                "optimiser.epochs": 2,
                "optimiser.learning_rate": 3e-4,
                "optimiser.batch_prompts": 4,
                "machine.precision": "bf16",
            },
        ),
    },
}


def preset_values(kind: RunKind, name: str) -> Values:
    """A preset's values; none where no preset is named. Raises InvalidConfig for a name that is none."""
    known = PRESETS.get(kind, {})
    if name and name not in known:
        raise InvalidConfig(f"preset = {name!r}: one of {', '.join(known) or 'none'} is there for {kind} runs")
    return known[name].values if name else {}


def differing(kind: RunKind, name: str, values: Values) -> list[tuple[str, Any, Any]]:
    """(field, value, the preset's value) where values are others than the preset's, or the defaults without one.

    What a run works on (models, files, other runs) is no setting of a preset, so it does not count.
    """
    config, given = CONFIGS[kind], named_as_now(CONFIGS[kind], values)
    wanted = {info.name: info.default for info in describe(config)} | preset_values(kind, name)
    settings = [info.name for info in describe(config) if info.type is not str or info.choices]
    return [
        (field, given[field], wanted[field]) for field in settings if field in given and given[field] != wanted[field]
    ]


def preset_config(kind: RunKind, name: str, values: Values) -> Any:
    """A configuration of a preset with other values over it. Raises InvalidConfig."""
    return from_dict(CONFIGS[kind], {**preset_values(kind, name), **named_as_now(CONFIGS[kind], values)})
