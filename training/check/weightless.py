"""What a model holds while it works, found by running it on tensors that have a shape and no data.

The model is made from its configuration, with its adapters and its precision, and every operation of a forward and
backward pass is done on it; each storage that appears counts for as long as something refers to it. So attention's own
buffers, what adapters keep, the casts of mixed precision, logits that are computed twice and gradients on their way are
in it, whatever the architecture. What a kernel takes inside itself is not.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from peft import LoraConfig, TaskType
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification

from training.launch.config import PPOConfig
from training.lm.adapters import attach
from training.lm.block_attention import Blocks, attention_in_blocks
from training.lm.encoding import Sequences
from training.lm.generation import cache_of, cache_word
from training.lm.models import Machine, ModelSource, backbone
from training.lm.packing import rows_of_batch
from training.lm.trl_trainer import lora_config
from training.maths.losses import entropy, selected_logprobs
from training.ppo.roles import LOGITS

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

    def ids(self, device: torch.device) -> Tensor:
        shape = (1, self.rows * self.length) if self.together else (self.rows, self.length)
        return torch.zeros(shape, dtype=torch.long, device=device)

    def blocks(self, device: torch.device) -> Blocks:
        """Of packed rows whose responses are all as long as in the mean."""
        n = self.rows * self.together
        response = max(1, min(self.scored // n, (self.length - 1) // self.together))
        return Blocks.of_shape(self.rows, self.length - self.together * response, n, response, device)

    def before(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Row and place of what predicts each response token; only their number matters here."""
        row, place = (torch.zeros(self.scored, dtype=torch.long, device=device) for _ in range(2))
        return row, place

    def spread_out(self, values: Tensor) -> Tensor:
        """Values of the response tokens at their places among the padding, of which there is none here."""
        mask = torch.ones(self.scored, dtype=torch.bool, device=values.device)
        return torch.zeros_like(values).masked_scatter(mask, values)


class Held(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of what operations make, while it is referred to. `most`: the most at one time."""

    def __init__(self, known: list[Tensor]) -> None:
        """`known`: what was there before and does not count."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._sizes = {_key(each): 0 for each in known}
        self.now = self.most = 0

    def restart(self) -> None:
        """Forget the highest mark; what is held now stays counted."""
        self.most = self.now

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor) and _key(tensor) not in self._sizes:
                storage = tensor.untyped_storage()
                self._sizes[_key(tensor)] = storage.nbytes()
                self.now += storage.nbytes()
                weakref.finalize(storage, self._let_go, _key(tensor))
        self.most = max(self.most, self.now)
        return out

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
    caller = _Caller(model)
    with FakeTensorMode():
        weights = {}
        for name, weight in [*caller.named_parameters(), *caller.named_buffers()]:
            weights[name] = torch.empty(weight.shape, dtype=weight.dtype, device=machine.device)
            weights[name].requires_grad_(weight.requires_grad)
            if has_gradients and weight.requires_grad:
                weights[name].grad = torch.empty_like(weights[name])
        gradients = [each.grad for each in weights.values() if each.grad is not None]
        held = Held([*weights.values(), *gradients])
        with held:
            torch.func.functional_call(caller, weights, (lambda made: work(made, held),))
    return held.most


def policy_update(shape: MicroBatch, machine: Machine) -> Callable[[Any, Held], None]:
    """Forward and backward pass of the policy on a micro-batch, as `roles.Policy` does them."""

    def work(model: Any, _held: Held) -> None:
        torch.autograd.backward(shape.spread_out(_logprobs(model, shape, machine, with_entropy=False)).sum())

    return work


def policy_scoring(shape: MicroBatch, machine: Machine) -> Callable[[Any, Held], None]:
    """The pass over a rollout, without gradients."""

    @torch.no_grad()
    def work(model: Any, _held: Held) -> None:
        _logprobs(model, shape, machine, with_entropy=True)

    return work


def critic_update(shape: MicroBatch, machine: Machine) -> Callable[[Any, Held], None]:
    """Forward and backward pass of the critic on a micro-batch, as `roles.Critic` does them."""

    def work(model: Any, _held: Held) -> None:
        states = _hidden(model, shape, machine)[shape.before(machine.device)]
        head = torch.empty(1, states.shape[1], device=machine.device, requires_grad=True)
        values = nn.functional.linear(states.float(), head).squeeze(-1)
        torch.autograd.backward(shape.spread_out(values).sum())

    return work


def reading_prompts(rows: int, length: int, machine: Machine) -> Callable[[Any, Held], None]:
    """What generation starts with: the prompts are read once, and only the last token's logits are kept."""

    @torch.no_grad()
    def work(model: Any, _held: Held) -> None:
        ids = torch.zeros(rows, length, dtype=torch.long, device=machine.device)
        with machine.autocast():
            model(input_ids=ids, attention_mask=ids == 0, use_cache=True, logits_to_keep=1)

    return work


def decoding(rows: int, length: int, machine: Machine, sizes: list[int]) -> Callable[[Any, Held], None]:
    """One step of generation that makes the rows' cache `length` tokens long; the cache's bytes are put in `sizes`."""

    @torch.no_grad()
    def work(model: Any, held: Held) -> None:
        with machine.autocast():
            ids = torch.zeros(rows, length, dtype=torch.long, device=machine.device)
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


def _hidden(model: Any, shape: MicroBatch, machine: Machine) -> Tensor:
    ids, inner = shape.ids(machine.device), backbone(model)
    with machine.autocast():
        if not shape.together:
            states: Tensor = inner(input_ids=ids, use_cache=False).last_hidden_state
            return states
        with attention_in_blocks(inner, shape.blocks(machine.device)):
            packed: Tensor = inner(input_ids=ids, position_ids=torch.zeros_like(ids), use_cache=False).last_hidden_state
    return packed


def _logprobs(model: Any, shape: MicroBatch, machine: Machine, *, with_entropy: bool) -> Tensor:
    before, head = shape.before(machine.device), model.get_output_embeddings()
    is_plain = not any(getattr(model.config.get_text_config(), name, None) for name in _SCALES_OR_CAPS)
    if is_plain:
        states = _hidden(model, shape, machine)[before]
    else:
        with machine.autocast():
            states = model(input_ids=shape.ids(machine.device), use_cache=False).logits[before]
    chosen = torch.zeros(shape.scored, dtype=torch.long, device=machine.device)

    def score(piece: Tensor, tokens: Tensor) -> Tensor:
        with machine.autocast():
            logits = head(piece) if is_plain else piece
        logprobs = selected_logprobs(logits, tokens, 1.0)
        return logprobs + entropy(logits, 1.0) if with_entropy else logprobs

    at_once = max(1, LOGITS // len(head.weight))
    pieces = list(zip(torch.split(states, at_once), torch.split(chosen, at_once), strict=True))
    if len(pieces) > 1 and torch.is_grad_enabled():
        return torch.cat([checkpoint(score, *piece, use_reentrant=False) for piece in pieces])
    return torch.cat([score(*piece) for piece in pieces])


def _key(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
