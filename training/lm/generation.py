"""Sample responses: the prompt is read once, its K responses are continued together, finished ones leave the batch.

Nothing of a model's own generation defaults is used. Each response draws from random numbers of its own, so it does
not depend on which others are sampled with it, and a resumed run draws the same.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from training.jobs.reporter import NotFinite
from training.launch.config import SamplingOptions
from training.lm.models import Machine

COMPACT_SHARE = 0.85  # rows are dropped when fewer than this share of them is still unfinished


@dataclass
class Generated:
    """A sampled response: its ids, the end token included where it ended by itself."""

    ids: list[int] = field(default_factory=list)
    has_ended: bool = False

    @property
    def finish_reason(self) -> str:
        return "eos" if self.has_ended else "length"


def random_numbers(seed: int, keys: Sequence[str], length: int) -> Tensor:
    """Uniform numbers in [0, 1), (len(keys), length) float64, each row determined by the seed and its key alone."""
    rows = []
    for key in keys:
        digest = hashlib.sha256(f"{seed}:{key}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:8]) >> 1)
        rows.append(torch.rand(length, generator=generator, dtype=torch.float64))
    return torch.stack(rows)


def choose_tokens(logits: Tensor, uniform: Tensor, temperature: float, top_k: int = 0, top_p: float = 1.0) -> Tensor:
    """Draw a token from each row of logits (R, V) with the numbers `uniform` (R,), by inverting the distribution.

    top_k = 0 and top_p = 1 leave the distribution whole. Returns (R,) int. Raises NotFinite for logits that are not
    numbers, of which no token could be drawn.
    """
    probabilities = torch.softmax(logits.float() / temperature, dim=-1)
    if logits.device.type == "mps":  # has no float64
        probabilities = probabilities.cpu()
    if top_k or top_p < 1:
        probabilities, order = probabilities.sort(dim=-1, descending=True)
        before = probabilities.cumsum(-1) - probabilities
        dropped = before >= top_p
        if top_k:
            dropped[:, top_k:] = True
        probabilities = probabilities.masked_fill(dropped, 0)
    cumulative = probabilities.double().cumsum(-1)
    total = cumulative[:, -1:]
    if not bool(torch.isfinite(total).all()):
        raise NotFinite("the model's logits are not finite numbers; its weights are spoilt, or need precision=fp32")
    target = torch.minimum(uniform.to(total)[:, None] * total, torch.nextafter(total, torch.zeros_like(total)))
    places = torch.searchsorted(cumulative, target, right=True)
    return (order.gather(-1, places) if top_k or top_p < 1 else places).squeeze(-1).to(logits.device)


@torch.no_grad()
def generate(
    model: Any,
    prompts: Sequence[Sequence[int]],
    n: int,
    sampling: SamplingOptions,
    uniform: Tensor,
    *,
    stop_ids: frozenset[int],
    pad_id: int,
    machine: Machine,
    check: Callable[[], None] = lambda: None,
) -> list[Generated]:
    """Sample n responses for each prompt; response j of prompt i is at place i * n + j of the result.

    uniform: (len(prompts) * n, max_new_tokens), one row for each response. `check` is called before each token and may
    raise to stop. The prompts are padded on the left here, and only here.
    """
    lengths = torch.tensor([len(prompt) for prompt in prompts])
    width = int(lengths.max())
    ids = torch.full((len(prompts), width), pad_id)
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :] = torch.tensor(prompt)
    attention = torch.arange(width)[None] >= width - lengths[:, None]
    ids, attention = ids.to(machine.device), attention.to(machine.device)
    positions = (attention.cumsum(-1) - 1).clamp(min=0)
    with machine.autocast():
        out = model(input_ids=ids, attention_mask=attention, position_ids=positions, use_cache=True, logits_to_keep=1)
    cache = cache_of(out)
    logits = out.logits[:, -1]
    if n > 1:
        cache.batch_repeat_interleave(n)
        logits, attention = logits.repeat_interleave(n, 0), attention.repeat_interleave(n, 0)
    return _decode(model, cache, logits, attention, sampling, uniform, stop_ids, machine, check)


def _decode(
    model: Any,
    cache: Any,
    logits: Tensor,
    attention: Tensor,
    sampling: SamplingOptions,
    uniform: Tensor,
    stop_ids: frozenset[int],
    machine: Machine,
    check: Callable[[], None],
) -> list[Generated]:
    word = cache_word(model)
    generated = [Generated() for _ in range(len(logits))]
    rows = list(range(len(logits)))  # which response each row of the batch is
    for t in range(sampling.max_new_tokens):
        check()
        tokens = choose_tokens(logits, uniform[rows, t], sampling.temperature, sampling.top_k, sampling.top_p)
        alive = []
        for position, (row, token) in enumerate(zip(rows, tokens.tolist(), strict=True)):
            if not generated[row].has_ended:
                generated[row].ids.append(token)
                generated[row].has_ended = token in stop_ids
            if not generated[row].has_ended:
                alive.append(position)
        if not alive or t + 1 == sampling.max_new_tokens:
            break
        if len(alive) < COMPACT_SHARE * len(rows):
            index = torch.tensor(alive, device=machine.device)
            cache.batch_select_indices(index)
            attention, tokens, rows = attention[index], tokens[index], [rows[position] for position in alive]
        attention = torch.cat([attention, attention.new_ones(len(rows), 1)], dim=1)
        positions = attention.sum(1, keepdim=True) - 1
        with machine.autocast():
            out = model(
                input_ids=tokens[:, None],
                attention_mask=attention,
                position_ids=positions,
                use_cache=True,
                logits_to_keep=1,
                **{word: cache},
            )
        cache, logits = cache_of(out), out.logits[:, -1]
    return generated


def cache_word(model: Any) -> str:
    """What a model's forward pass calls the cache that it is given."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


def cache_of(out: Any) -> Any:
    """The cache that a forward pass returns; transformers is renaming it from past_key_values to cache."""
    return out["cache"] if "cache" in out else out["past_key_values"]


class Generate(Protocol):
    """Samples n responses for each prompt from the policy as it is; response j of prompt i is at place i * n + j.

    `uniform`: random numbers in [0, 1), a row for each response, so that a resumed run draws the same.
    """

    def __call__(
        self,
        model: Any,
        prompts: Sequence[Sequence[int]],
        n: int,
        sampling: SamplingOptions,
        uniform: Tensor,
        *,
        stop_ids: frozenset[int],
        pad_id: int,
        machine: Machine,
        check: Callable[[], None],
    ) -> list[Generated]: ...
