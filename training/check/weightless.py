"""What a model holds while it works, found by running it on tensors that have a shape and no data.

The model is made from its configuration, with its adapters and its precision, and the roles of `training.ppo.roles`
do on it what they do in a run; each storage that appears counts for as long as something refers to it. So attention's
own buffers, what adapters keep, the casts of mixed precision, logits that are computed twice and gradients on their way
are in it, whatever the architecture. What a kernel takes inside itself is not, but for `SCRATCH`.

Only weights, and what is computed from them, are without data. Token ids are real, so that the roles can pack and mask
them as ever; a model that asks for the numbers that it computes can't be tried.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from dataclasses import fields
from typing import Any, NamedTuple

import torch
from peft import LoraConfig, TaskType
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification

from training.launch.config import PPOConfig
from training.lm.adapters import attach
from training.lm.encoding import Sequences, pack
from training.lm.generation import cache_of, cache_word
from training.lm.models import Machine, ModelSource, backbone
from training.lm.packing import rows_of_batch
from training.lm.trl_trainer import lora_config
from training.ppo.roles import Critic, Policy, Trunk
from training.ppo.rollout import Minibatch
from training.ppo.update import loss_of_critic, loss_of_policy

BLOCK = 512  # what an allocator gives out is a multiple of this on a GPU, and of less on the CPU
# What a matrix product in bf16 takes on the CPU for each thread, in a model of width 32. It is up to 1.7 MB at width
# 2048, where it is little beside the rest, and `memory_plan.HEAP` has room for it.
SCRATCH = 2**15
_SCALES_OR_CAPS = ("final_logit_softcapping", "logit_scale", "logits_scaling")  # of models whose head is not plain


class MicroBatch(NamedTuple):
    """One micro-batch: rows, tokens of each row, and response tokens in all, whose logits are computed.

    together: responses that share each row's prompt; 0 where texts are padded to a common length.
    """

    rows: int
    length: int
    scored: int
    together: int = 0

    @classmethod
    def of(cls, batch: Sequences, *, is_shared: bool) -> MicroBatch:
        """What a batch takes, with a row for each prompt or for each response."""
        rows = rows_of_batch(batch) if is_shared else []
        (n, length), scored = batch.ids.shape, int(batch.mask.sum())
        tokens = sum(row.n_tokens for row in rows)
        if 0 < tokens < n * length:
            return cls(len(rows), math.ceil(tokens / len(rows)), scored, math.ceil(n / len(rows)))
        return cls(n, length, scored)

    def batch(self, device: torch.device) -> Sequences:
        """A batch like that, in real numbers: a prompt of its own for each row, and responses of about one length."""
        prompts, responses = [], []
        for row, scored in enumerate(_shares(self.scored, self.rows)):
            # Rows that are to be packed are not all of one length: the roles would see that padding costs nothing.
            more = (row == 0) - (row == self.rows - 1) if self.together else 0
            for length in _shares(scored, min(self.together or 1, scored)):
                prompts.append([row] * max(1, self.length - scored + more))
                responses.append([row] * length)
        return pack(prompts, responses, pad_id=0).to(device)


class Held(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of what operations make on a device, while it is referred to. `most`: the most at one time."""

    def __init__(self, device: torch.device, known: list[Tensor]) -> None:
        """`known`: what was there before and does not count."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._device = device
        self._sizes = {_key(each): 0 for each in known}
        self.now = self.most = 0

    def restart(self) -> None:
        """Forget the highest mark; what is held now stays counted."""
        self.most = self.now

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if self._is_new(tensor):
                storage = tensor.untyped_storage()
                self._sizes[_key(tensor)] = size = math.ceil(storage.nbytes() / BLOCK) * BLOCK
                self.now += size
                weakref.finalize(storage, self._let_go, _key(tensor))
        self.most = max(self.most, self.now)
        return out

    def _is_new(self, made: Any) -> bool:
        is_here = isinstance(made, Tensor) and made.device.type == self._device.type
        return is_here and _key(made) not in self._sizes

    def _let_go(self, key: int) -> None:
        self.now -= self._sizes.pop(key)


class _Caller(nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, work: Callable[[Any], None]) -> None:
        work(self.model)


def most_held(model: Any, machine: Machine, work: Callable[[Any, Held], None], *, has_gradients: bool = True) -> int:
    """The most bytes held at one time while `work(model, held)` is done, beyond the model's weights, and its gradients
    where it has them already; where not, they count.

    Raises RuntimeError for a model whose operations depend on the data, such as one that routes tokens to experts.
    """
    caller, weights = _Caller(model), {}
    with FakeTensorMode(allow_non_fake_inputs=True):  # such as token ids
        for name, weight in [*caller.named_parameters(), *caller.named_buffers()]:
            weights[name] = torch.empty(weight.shape, dtype=weight.dtype, device=machine.device)
            weights[name].requires_grad_(weight.requires_grad)
            if has_gradients and weight.requires_grad:
                weights[name].grad = torch.empty_like(weights[name])
    gradients = [each.grad for each in weights.values() if each.grad is not None]
    held = Held(machine.device, [*weights.values(), *gradients])
    with held:
        torch.func.functional_call(caller, weights, (lambda made: work(made, held),))
    return held.most


def policy_update(config: PPOConfig, shape: MicroBatch, machine: Machine) -> Callable[[Any, Held], None]:
    """Forward and backward pass of the policy on a micro-batch."""

    def work(model: Any, _held: Held) -> None:
        minibatch, _scratch = _minibatch(shape, machine), _scratch_of(machine)
        rows = minibatch.rows(torch.arange(len(minibatch.batch.ids)))
        loss, _ = loss_of_policy(config, _policy(config, model, shape, machine), rows, kl_coef=1.0, update_kl_coef=1.0)
        torch.autograd.backward(loss)

    return work


def policy_scoring(config: PPOConfig, shape: MicroBatch, machine: Machine) -> Callable[[Any, Held], None]:
    """The pass over a rollout, without gradients."""

    @torch.no_grad()
    def work(model: Any, _held: Held) -> None:
        _policy(config, model, shape, machine).token_scores(shape.batch(machine.device), with_entropy=True)

    return work


def critic_update(config: PPOConfig, shape: MicroBatch, machine: Machine) -> Callable[[Any, Held], None]:
    """Forward and backward pass of the critic on a micro-batch."""

    def work(model: Any, _held: Held) -> None:
        minibatch, _scratch = _minibatch(shape, machine), _scratch_of(machine)
        rows = minibatch.rows(torch.arange(len(minibatch.batch.ids)))
        critic = Critic(_trunk(model, shape, machine), _value_head(model, machine))
        loss, _ = loss_of_critic(config, critic, rows)
        torch.autograd.backward(loss)

    return work


def reading_prompts(rows: int, length: int, machine: Machine) -> Callable[[Any, Held], None]:
    """What generation starts with: the prompts are read once, and only the last token's logits are kept."""

    @torch.no_grad()
    def work(model: Any, _held: Held) -> None:
        ids = _ids_without_data(model, rows, length)
        with machine.autocast():
            model(input_ids=ids, attention_mask=ids == 0, use_cache=True, logits_to_keep=1)

    return work


def decoding(rows: int, length: int, machine: Machine, sizes: list[int]) -> Callable[[Any, Held], None]:
    """One step of generation that makes the rows' cache `length` tokens long; the cache's bytes are put in `sizes`."""

    @torch.no_grad()
    def work(model: Any, held: Held) -> None:
        with machine.autocast():
            ids = _ids_without_data(model, rows, length)
            cache = cache_of(model(input_ids=ids[:, 1:], use_cache=True, logits_to_keep=1))
            held.restart()
            given = {"attention_mask": ids == 0, cache_word(model): cache}
            out = model(input_ids=ids[:, :1], use_cache=True, logits_to_keep=1, **given)
        kept = [each for layer in cache_of(out).layers for each in vars(layer).values() if isinstance(each, Tensor)]
        sizes.append(sum(each.nbytes for each in kept))

    return work


def policy_model(config: PPOConfig, source: ModelSource, machine: Machine, lora: LoraConfig | None = None) -> Any:
    """The policy without data. `lora`: another adapter than the run's own, of the critic on a shared base."""
    return _trained(AutoModelForCausalLM, source, config, machine, TaskType.CAUSAL_LM, lora)


def critic_model(config: PPOConfig, source: ModelSource, machine: Machine) -> Any:
    """A critic with weights of its own, without data and without its head."""
    return backbone(_trained(AutoModelForSequenceClassification, source, config, machine, TaskType.FEATURE_EXTRACTION))


def reward_model(source: ModelSource) -> Any:
    """A reward model with weights of its own, without data."""
    with torch.device("meta"):
        return AutoModelForSequenceClassification.from_config(_config(source)).requires_grad_(False)


def _trained(
    loader: Any,
    source: ModelSource,
    config: PPOConfig,
    machine: Machine,
    task: TaskType,
    lora: LoraConfig | None = None,
) -> Any:
    is_lora = config.adapter == "lora"
    with torch.device("meta"):
        model = loader.from_config(_config(source), dtype=machine.frozen_dtype if is_lora else torch.float32).eval()
        if not is_lora:
            return model
        return attach(model.requires_grad_(False), lora or lora_config(config, task, model)).get_base_model()


def _config(source: ModelSource) -> Any:
    config = AutoConfig.from_pretrained(source.place, trust_remote_code=False)
    config.num_labels = 1
    return config


def _trunk(model: Any, shape: MicroBatch, machine: Machine) -> Trunk:
    return Trunk(backbone(model), machine, shares_prompts=bool(shape.together))


def _policy(config: PPOConfig, model: Any, shape: MicroBatch, machine: Machine) -> Policy:
    text = model.config.get_text_config()
    is_plain = not any(getattr(text, name, None) for name in _SCALES_OR_CAPS)
    return Policy(_trunk(model, shape, machine), model, config.sampling.temperature, has_plain_head=is_plain)


def _value_head(model: Any, machine: Machine) -> nn.Linear:
    """The critic's head, without data as the model's weights are."""
    with next(model.parameters()).fake_mode:
        return nn.Linear(model.config.get_text_config().hidden_size, 1, device=machine.device)


def _minibatch(shape: MicroBatch, machine: Machine) -> Minibatch:
    """A minibatch that is one micro-batch, which is the least that is held beside it."""
    batch = shape.batch(machine.device)
    of_tokens = [each.name for each in fields(Minibatch) if each.name != "batch"]
    return Minibatch(batch, **{name: torch.zeros(batch.mask.shape, device=machine.device) for name in of_tokens})


def _scratch_of(machine: Machine) -> Tensor:
    """As much as kernels take for themselves, to be held beside the rest."""
    is_taken = machine.is_bf16 and machine.device.type == "cpu"
    return torch.empty(SCRATCH * torch.get_num_threads() if is_taken else 0, dtype=torch.uint8)


def _ids_without_data(model: Any, rows: int, length: int) -> Tensor:
    """(rows, length) int: nothing that the model does can depend on which texts are padded, and how far."""
    made: Tensor = next(model.parameters()).new_zeros(rows, length, dtype=torch.long)
    return made


def _shares(whole: int, n: int) -> list[int]:
    """n numbers that differ by 1 at most and sum to `whole`, if it is not less than n; each is at least 1."""
    return [max(1, (whole + place) // n) for place in range(n)]


def _key(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
