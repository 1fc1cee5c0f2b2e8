"""Attention for packed texts: a prompt sees itself, a response its prompt and itself; nothing else is computed.

A mask over the whole row would compute, and throw away, what the responses to a prompt have to do with each other; the
cost of K responses would grow with their square. Here it grows with K.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

NAME = "rankloop_blocks"


class Blocks(NamedTuple):
    """Which of a pass's T tokens stand in which block.

    prompts: (B, P) int, the places of each prompt's tokens. responses: (N, R) int, those of each response. Both are
    padded by some other place. owners: (N,) int, the prompt of each response. seen: (N, 1, R, P + R) bool, what its
    tokens see of the prompt and of itself. home: (T,) int, where each token lies among the B * P + N * R of the blocks.
    """

    prompts: Tensor
    responses: Tensor
    owners: Tensor
    seen: Tensor
    home: Tensor

    def to(self, device: torch.device) -> Blocks:
        return Blocks(*(each.to(device) for each in self))


_blocks: ContextVar[Blocks | None] = ContextVar("blocks", default=None)


@contextmanager
def attention_in_blocks(model: Any, blocks: Blocks) -> Iterator[None]:
    """Let a model's attention follow `blocks` in the forward passes within; the batch is one row of all T tokens."""
    config = model.config.get_text_config()
    usual, token = config._attn_implementation, _blocks.set(blocks)
    config._attn_implementation = NAME
    try:
        yield
    finally:
        config._attn_implementation = usual
        _blocks.reset(token)


def attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **words: Any
) -> tuple[Tensor, None]:
    """Attention of one row, (1, H, T, D) each: first the prompts, then the responses. Returns (1, T, H, D).

    Raises ValueError for a model that weighs tokens by more than what they hold, as by their distance.
    """
    blocks = _blocks.get()
    if blocks is None or len(query) != 1 or attention_mask is not None or words.pop("position_bias", None) is not None:
        raise ValueError("this model's attention needs more than blocks of tokens")
    words.pop("is_causal", None)
    queries, keys, values = (each[0].transpose(0, 1) for each in (query, key, value))  # (T, H, D)
    read = torch.cat([blocks.prompts[blocks.owners], blocks.responses], 1)  # (N, P + R), as wide as `seen`
    sides = (
        (blocks.prompts, blocks.prompts, None, True),
        (blocks.responses, read, blocks.seen, False),
    )
    outputs = []
    for asking, asked, seen, is_causal in sides:
        # A prompt's padding comes after its tokens, so with causal attention none of them sees it.
        picked = (_pick(queries, asking), _pick(keys, asked), _pick(values, asked))
        out, _ = sdpa_attention_forward(module, *picked, seen, is_causal=is_causal, **words)
        outputs.append(out.flatten(0, 1))  # (B * P, H, D), then (N * R, H, D): what `home` counts through
    return torch.cat(outputs).index_select(0, blocks.home)[None], None  # padding is no token's home


def _pick(rows: Tensor, places: Tensor) -> Tensor:
    """Rows (T, H, D) at places (n, L), as (n, H, L, D)."""
    return rows.index_select(0, places.flatten()).view(*places.shape, *rows.shape[1:]).transpose(1, 2)


AttentionInterface.register(NAME, attend)
