"""How much memory a PPO run will need, by role and part, worked out before anything is loaded.

Weights, gradients and optimizer states are counted on models without data. What a micro-batch and generation hold is
found by running them on such models (`training.check.weightless`). All figures are bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from training.check.weightless import (
    MicroBatch,
    critic_model,
    critic_update,
    decoding,
    most_held,
    policy_model,
    policy_scoring,
    policy_update,
    reading_prompts,
    reward_model,
)
from training.launch.config import PPOConfig, second_names
from training.lm.adapters import copied_weights, saved_adapter
from training.lm.models import ADAPTER_FOLDER, MODEL_FOLDER, Machine, ModelSource

FLOAT32 = 4
ADAM_STATES = 2  # both moments, float32 as what is trained
# On the CPU the heap takes more than the tensors in it: what is freed leaves holes that other sizes do not fill. Of a
# 135M model's step with glibc 2.36: 0.4 to 0.95 of its activations more (docs/performance.md). A GPU's blocks: no more.
HEAP = {"cpu": 2.0}
# What `generation.choose_tokens` holds for each logit at its last step: logits and probabilities (float32), their
# double and its cumulative sum; of a cut distribution also the order (int64), the sum before and what is dropped.
BYTES_PER_CHOICE, BYTES_PER_CUT_CHOICE = 4 + 4 + 8 + 8, 4 + 4 + 8 + 8 + 8 + 4 + 1
# For models that can't be run without data, generously: vectors of the model's width and of its inner one that a layer
# keeps for each token (Llama keeps 9 and 4, GPT-2 8 and 5), and copies of a response token's logits.
STATES_PER_LAYER, INNER_PER_LAYER, LOGIT_COPIES = 12, 6, 4


class Numbers(NamedTuple):
    """How many numbers a role has of its own: frozen ones, in the machine's precision, and trained ones, in float32."""

    frozen: int
    trained: int


class Workload(NamedTuple):
    """Bytes held for one micro-batch, and in generation for the cache and beside it. `rule`: why they are from a
    rule of thumb; empty where they were found by running the models without data."""

    micro_batch: int
    cache: int
    generating: int
    rule: str = ""


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
    def fixed(self) -> int:
        """What is held all the time, from the first step on."""
        return self.weights + self.gradients + self.optimizer


@dataclass(frozen=True)
class Models:
    """The roles without data. `reward`: its numbers, all float32. `is_shared`: one base with an adapter for each.

    seconds: the numbers of each reward model that only evaluates, all float32 too."""

    policy: Any
    critic: Any
    reward: int
    is_shared: bool
    seconds: tuple[int, ...] = ()


def find_models(
    config: PPOConfig,
    machine: Machine,
    source: ModelSource,
    reward_folder: Path,
    *,
    is_shared: bool,
    shares_ids: bool,
    second_folders: Sequence[Path] = (),
) -> Models:
    """The roles as `training.ppo.build_roles` would load them. `shares_ids`: one tokenizer for all."""
    policy, own_model = policy_model(config, source, machine), _model_in(reward_folder)
    seconds = tuple(_size(reward_model(_model_in(folder))) for folder in second_folders)
    if not is_shared:
        critic = critic_model(config, own_model if shares_ids else source, machine)
        return Models(policy, critic, _size(reward_model(own_model)), is_shared, seconds)
    critic = policy_model(config, source, machine, saved_adapter(reward_folder / ADAPTER_FOLDER))
    return Models(policy, critic, numbers_of(critic).trained + _width(critic), is_shared, seconds)


def _model_in(folder: Path) -> ModelSource:
    """A reward run's model, by its folder."""
    return ModelSource("", str(folder / MODEL_FOLDER), "")


def _size(model: Any) -> int:
    return sum(each.numel() for each in model.parameters())


def numbers_of(model: Any) -> Numbers:
    """A tensor with two names counts once."""
    parameters = list(model.parameters())
    trained = sum(each.numel() for each in parameters if each.requires_grad)
    return Numbers(sum(each.numel() for each in parameters) - trained, trained)


def plan(
    config: PPOConfig, models: Models, machine: Machine, lengths: Sequence[int], shape: MicroBatch | None = None
) -> tuple[list[Part], Workload]:
    """The table for prompts of these lengths. `shape`: another micro-batch than the largest that may come."""
    work = work_of(
        config, models, machine, lengths, shape or largest_micro_batch(config, lengths, config.minibatch_size)
    )
    policy, critic = numbers_of(models.policy), numbers_of(models.critic)
    critic = Numbers(0 if models.is_shared else critic.frozen, critic.trained + _width(models.critic) + 1)
    return memory_table(config, machine, policy, critic, models.reward, work, models.seconds), work


def memory_table(
    config: PPOConfig,
    machine: Machine,
    policy: Numbers,
    critic: Numbers,
    reward: int,
    work: Workload,
    seconds: Sequence[int] = (),
) -> list[Part]:
    """Four roles and the second reward models, then what is added while a micro-batch, or generation, is at work: never
    both.

    Policy and critic are updated one after the other, with the gradients of both there.
    """
    names = [name.replace("_", " ") for name in second_names(len(seconds))]
    return [
        _trained("policy", policy, machine),
        _trained("critic", critic, machine),
        Part("reward model", weights=reward * FLOAT32),
        Part("reference", weights=policy.trained * FLOAT32 if config.adapter == "full" else 0),
        *(Part(name, weights=numbers * FLOAT32) for name, numbers in zip(names, seconds, strict=True)),
        Part("one micro-batch", activations=_in_heap(work.micro_batch, machine)),
        Part("generation", activations=_in_heap(work.generating, machine), cache=work.cache),
    ]


def peak(parts: Sequence[Part]) -> int:
    """The most at one time."""
    return sum(part.fixed for part in parts) + max(part.activations + part.cache for part in parts)


def largest_micro_batch(config: PPOConfig, lengths: Sequence[int], responses: int) -> MicroBatch:
    """The largest micro-batch that may come of so many responses to prompts of these lengths.

    It is as full as the budget allows, or as a single text is that is longer; and as many response tokens are scored as
    the shortest prompt leaves room for. Several responses to a prompt are taken to share it: a row each takes no more.
    The one place where a micro-batch's tokens are known.
    """
    size, budget = config.sampling.max_new_tokens, config.machine.micro_batch_tokens
    together = config.sampling.responses_per_prompt if config.machine.share_prompts else 1
    longest = max(max(lengths) + size, min(budget, max(lengths) + together * size))
    tokens = max(longest, min(budget, math.ceil(responses / together) * longest))
    rows = math.ceil(tokens / longest)
    fitting = budget // (min(lengths) + together * size) * together or (budget - min(lengths)) // size
    scored = min(responses, max(1, fitting)) * size
    return MicroBatch(rows, math.ceil(tokens / rows), scored, together if config.machine.share_prompts else 0)


def work_of(config: PPOConfig, models: Models, machine: Machine, lengths: Sequence[int], shape: MicroBatch) -> Workload:
    """What one micro-batch of training or scoring takes at most, and generation: at its beginning or at its end."""
    prompts = min(config.sampling.batch_size, config.sampling.prompts_per_iteration)
    rows = prompts * config.sampling.responses_per_prompt
    length = max(lengths) + config.sampling.max_new_tokens - 1  # the last token is drawn, but never read
    text = models.policy.config.get_text_config()
    is_cut = config.sampling.top_k or config.sampling.top_p < 1
    choosing = rows * int(text.vocab_size) * (BYTES_PER_CUT_CHOICE if is_cut else BYTES_PER_CHOICE)
    of_rollout = largest_micro_batch(config, lengths, config.sampling.responses_per_iteration)
    try:
        update = max(
            most_held(models.policy, machine, policy_update(config, shape, machine)),
            most_held(models.critic, machine, critic_update(config, shape, machine)),
            most_held(models.policy, machine, policy_scoring(config, of_rollout, machine)),
        )
        sizes: list[int] = []
        generating = max(
            most_held(models.policy, machine, decoding(rows, length, machine, sizes)),
            most_held(models.policy, machine, reading_prompts(prompts, max(lengths), machine)),
        )
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        together, largest = copied_weights(models.policy)
        return Workload(by_rule(text, shape) + together, cache_by_rule(text, rows, length), choosing + largest, reason)
    return Workload(update, sizes[0], generating - sizes[0] + choosing)  # the last logits are there while the next come


def step_peak(
    config: PPOConfig,
    models: Models,
    machine: Machine,
    parts: Sequence[Part],
    shape: MicroBatch,
    *,
    is_by_rule: bool,
) -> int:
    """The most at one time in a step that is one micro-batch: it has no gradients when it starts.

    The critic comes first, its gradients stay, then the policy's come.
    """
    policy, critic, *_ = parts
    kept = sum(part.weights + part.optimizer for part in parts)
    if is_by_rule:
        held = by_rule(models.policy.config.get_text_config(), shape) + copied_weights(models.policy)[0]
        return kept + policy.gradients + critic.gradients + _in_heap(held, machine)
    of_critic = most_held(models.critic, machine, critic_update(config, shape, machine), has_gradients=False)
    of_policy = most_held(models.policy, machine, policy_update(config, shape, machine), has_gradients=False)
    return kept + max(_in_heap(of_critic, machine), critic.gradients + _in_heap(of_policy, machine))


def by_rule(text: Any, shape: MicroBatch) -> int:
    """What a micro-batch takes, by a rule of thumb in float32."""
    inner = int(getattr(text, "intermediate_size", None) or getattr(text, "n_inner", None) or 4 * text.hidden_size)
    per_token = text.num_hidden_layers * (STATES_PER_LAYER * text.hidden_size + INNER_PER_LAYER * inner)
    return int(shape.rows * shape.length * per_token + shape.scored * text.vocab_size * LOGIT_COPIES) * FLOAT32


def cache_by_rule(text: Any, rows: int, length: int) -> int:
    """Keys and values in float32."""
    heads = int(text.num_attention_heads)
    width = int(getattr(text, "head_dim", None) or text.hidden_size // heads)
    groups = int(getattr(text, "num_key_value_heads", None) or heads)
    return rows * length * int(text.num_hidden_layers) * 2 * groups * width * FLOAT32


def _in_heap(held: int, machine: Machine) -> int:
    return round(held * HEAP.get(machine.device.type, 1.0))


def _trained(name: str, numbers: Numbers, machine: Machine) -> Part:
    own = numbers.trained * FLOAT32
    weights = numbers.frozen * machine.frozen_dtype.itemsize + own
    return Part(name, weights, gradients=own, optimizer=ADAM_STATES * own)


def _width(model: Any) -> int:
    return int(model.config.get_text_config().hidden_size)
