"""How much memory a PPO run will need, by role and part, worked out before anything is loaded.

Weights, gradients and optimizer states are counted exactly; activations and the generation cache are estimated from
the architecture. All figures are bytes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from training.config import PPOConfig
from training.models import Machine, ModelSource
from training.roles import LOGIT_ROWS

FLOAT32 = 4
ADAM_STATES = 2  # both moments, float32
STATES_PER_LAYER, INNER_PER_LAYER = 8, 4  # vectors of the model's width, and of its inner one, kept for the gradients
LOGIT_COPIES = 3  # logits, their log-softmax, and its gradient
_CGROUP = Path("/sys/fs/cgroup")


class Shape(NamedTuple):
    """What of an architecture decides how much memory it takes."""

    parameters: int
    adapter: int  # parameters of one low-rank adapter on every linear layer
    hidden: int
    inner: int
    layers: int
    cached: int  # numbers that one token leaves in one layer's cache
    vocabulary: int


@dataclass(frozen=True)
class Part:
    """One row of the table: what a role, or all of them at work, takes."""

    name: str
    weights: int = 0
    gradients: int = 0
    optimizer: int = 0
    activations: int = 0
    cache: int = 0

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.optimizer + self.activations + self.cache


def shape_of(source: ModelSource, rank: int) -> Shape:
    """Read from the model's configuration; no weight is loaded."""
    config = AutoConfig.from_pretrained(source.place, trust_remote_code=False)
    text = config.get_text_config()
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    head = model.get_output_embeddings()
    adapter = sum(
        rank * (each.weight.shape[0] + each.weight.shape[1])
        for each in model.modules()
        if each is not head and getattr(each, "weight", None) is not None and each.weight.dim() == 2
        and not isinstance(each, torch.nn.Embedding)
    )  # fmt: skip
    heads = int(text.num_attention_heads)
    width = int(getattr(text, "head_dim", None) or text.hidden_size // heads)
    groups = int(getattr(text, "num_key_value_heads", None) or heads)
    inner = int(getattr(text, "intermediate_size", None) or getattr(text, "n_inner", None) or 4 * text.hidden_size)
    return Shape(
        parameters=sum(each.numel() for each in model.parameters()),
        adapter=adapter,
        hidden=int(text.hidden_size),
        inner=inner,
        layers=int(text.num_hidden_layers),
        cached=2 * groups * width,
        vocabulary=int(text.vocab_size),
    )


def memory_plan(
    config: PPOConfig, policy: Shape, reward: Shape, machine: Machine, prompt_tokens: int, *, is_shared: bool
) -> list[Part]:
    """The table: four roles, then what is added while one forward and backward pass, or generation, is at work.

    prompt_tokens: of the longest prompt. is_shared: one base with an adapter for each role.
    """
    frozen = machine.frozen_dtype.itemsize
    is_lora = config.adapter == "lora"
    base = policy.parameters * (frozen if is_lora else FLOAT32)
    critic_base = 0 if is_shared else reward.parameters * (frozen if is_lora else FLOAT32)
    reward_weights = reward.adapter * FLOAT32 if is_shared else reward.parameters * FLOAT32
    longest = prompt_tokens + config.max_new_tokens
    return [
        _trained("policy", base, policy.adapter if is_lora else policy.parameters, is_added=is_lora),
        _trained("critic", critic_base, reward.adapter if is_lora else reward.parameters, is_added=is_lora),
        Part("reward model", weights=reward_weights),
        Part("reference", weights=0 if is_lora else base),
        Part(
            "at work",
            activations=activations(config, policy, machine, longest),
            cache=cache(config, policy, machine, prompt_tokens),
        ),
    ]


def peak(parts: list[Part]) -> int:
    """The most at one time: activations and the cache are never there together."""
    fixed = sum(part.weights + part.gradients + part.optimizer for part in parts)
    return fixed + max(sum(part.activations for part in parts), sum(part.cache for part in parts))


def activations(config: PPOConfig, shape: Shape, machine: Machine, longest: int) -> int:
    """What the backward pass of one micro-batch needs: states of each layer, and the logits of a piece."""
    tokens = max(config.micro_batch_tokens, longest)
    width = 2 if machine.is_bf16 else FLOAT32
    per_token = shape.layers * (STATES_PER_LAYER * shape.hidden + INNER_PER_LAYER * shape.inner) * width
    rows = min(LOGIT_ROWS, max(1, tokens // longest) * config.max_new_tokens)
    return tokens * per_token + rows * shape.vocabulary * FLOAT32 * LOGIT_COPIES


def cache(config: PPOConfig, shape: Shape, machine: Machine, prompt_tokens: int) -> int:
    """Keys and values of the sequences that are generated together."""
    rows = min(config.batch_size, config.prompts_per_iteration) * config.responses_per_prompt
    each = 2 if machine.is_bf16 else FLOAT32
    return rows * (prompt_tokens + config.max_new_tokens) * shape.layers * shape.cached * each


def available_memory(machine: Machine) -> int:
    """Free memory on the run's device: the GPU's, or the machine's and its container's, whichever is less."""
    if machine.device.type == "cuda":
        return int(torch.cuda.mem_get_info(machine.device)[0])
    free = [_free_of_machine()]
    with_limit = _read_number(_CGROUP / "memory.max"), _read_number(_CGROUP / "memory.current")
    if with_limit[0] is not None and with_limit[1] is not None:
        free.append(max(0, with_limit[0] - with_limit[1]))
    return min(free)


def in_use(machine: Machine, *, peak: bool = False) -> int:
    """Memory that this process holds on the run's device now, or its peak."""
    if machine.device.type == "cuda":
        count: Any = torch.cuda.max_memory_allocated if peak else torch.cuda.memory_allocated
        return int(count(machine.device))
    name = "VmHWM" if peak else "VmRSS"
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(name)), 0)


def _trained(name: str, weights: int, trained: int, *, is_added: bool) -> Part:
    own = trained * FLOAT32
    return Part(name, weights + (own if is_added else 0), gradients=own, optimizer=ADAM_STATES * own)


def _free_of_machine() -> int:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _read_number(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="utf-8").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
