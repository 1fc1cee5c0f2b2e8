"""Texts to forward passes: each prompt once, followed by all of its responses, without padding; and lots of rankings
within a budget of tokens.

    ids        prompt     response 1     response 2    ...   the next prompt   ...
    positions  0 .. P-1   P, P+1, ...    P, P+1, ...         0 ..

Every response sees its prompt and itself, as if it stood alone (`training.lm.block_attention`): P + sum of R tokens in
place of K (P + R). Whether a model really gives the same numbers is asked by `training.lm.sharing`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from training.lm.block_attention import Blocks
from training.lm.dataset import EncodedGroup
from training.lm.encoding import Sequences


class PackedRow(NamedTuple):
    """A prompt with responses that follow it. `places`: where the responses' scores belong, among the lot's."""

    prompt: list[int]
    responses: list[list[int]]
    places: list[int]

    @property
    def n_tokens(self) -> int:
        return len(self.prompt) + sum(map(len, self.responses))


class Packed(NamedTuple):
    """Rows one after the other, T tokens in all, without padding. ids, positions: (1, T) int. prompt_ends, ends: (N,)
    int, the places of the last token of each response's prompt and of the response, in the order of the rows' `places`.
    """

    ids: Tensor
    positions: Tensor
    prompt_ends: Tensor
    ends: Tensor
    blocks: Blocks

    def before_tokens(self, batch: Sequences) -> Tensor:
        """The place, (M,), before every response token that counts in `batch`, which was packed here.

        Before a response's first token stands the prompt's last one, wherever the response lies in its row.
        """
        response, token = batch.mask.nonzero(as_tuple=True)
        # A response of n tokens begins at end - n + 1; what stands before its token t is one place less.
        inside = self.ends[response] - batch.mask.sum(1)[response] + token  # (M,)
        return torch.where(token == 0, self.prompt_ends[response], inside)

    def to(self, device: torch.device) -> Packed:
        ids, positions, prompt_ends, ends = (each.to(device) for each in self[:4])
        return Packed(ids, positions, prompt_ends, ends, self.blocks.to(device))


def rows_of(groups: Sequence[EncodedGroup]) -> list[PackedRow]:
    """The rows of some rankings. Responses share a row where their prompts were cut alike, or not at all."""
    rows: list[PackedRow] = []
    place = 0
    for group in groups:
        of_prompt: dict[tuple[int, ...], PackedRow] = {}
        for sequence, length in zip(group.sequences, group.prompt_lengths, strict=True):
            row = of_prompt.setdefault(tuple(sequence[:length]), PackedRow(sequence[:length], [], []))
            row.responses.append(sequence[length:])
            row.places.append(place)
            place += 1
        rows += of_prompt.values()
    return rows


def rows_of_texts(texts: Iterable[tuple[list[int], list[int]]]) -> list[PackedRow]:
    """The rows of prompts with a response each: those to the same prompt share one."""
    rows: dict[tuple[int, ...], PackedRow] = {}
    for index, (prompt, response) in enumerate(texts):
        row = rows.setdefault(tuple(prompt), PackedRow(prompt, [], []))
        row.responses.append(response)
        row.places.append(index)
    return list(rows.values())


def rows_of_batch(batch: Sequences) -> list[PackedRow]:
    """The same of a batch."""
    starts, ends = batch.prompt_lengths.tolist(), batch.attention.sum(1).tolist()
    ids = batch.ids.tolist()
    return rows_of_texts((each[:start], each[start:end]) for each, start, end in zip(ids, starts, ends, strict=True))


def pack_rows(rows: Sequence[PackedRow]) -> Packed:
    """One pass over the rows. Every place from 0 must be named once by some row."""
    n, longest = sum(len(row.places) for row in rows), max(len(row.prompt) for row in rows)
    most = max(len(response) for row in rows for response in row.responses)
    ids: list[int] = []
    prompts = torch.zeros(len(rows), longest, dtype=torch.long)  # (B, P)
    responses = torch.zeros(n, most, dtype=torch.long)  # (N, R)
    owners, prompt_ends, ends = (torch.zeros(n, dtype=torch.long) for _ in range(3))  # (N,)
    positions, home = [], []
    for number, row in enumerate(rows):
        start, size = len(ids), len(row.prompt)
        ids += row.prompt
        prompts[number, :size] = torch.arange(start, start + size)
        positions.append(torch.arange(size))
        home.append(number * longest + torch.arange(size))  # the blocks are as wide as the longest prompt
        for response, place in zip(row.responses, row.places, strict=True):
            within = torch.arange(len(response))
            responses[place, : len(response)] = len(ids) + within
            positions.append(size + within)  # as if it followed its prompt alone
            home.append(len(rows) * longest + place * most + within)  # behind all prompts' blocks
            ids += response
            owners[place], prompt_ends[place], ends[place] = number, start + size - 1, len(ids) - 1
    lengths = torch.tensor([len(row.prompt) for row in rows])[owners]  # (N,)
    of_prompt = (torch.arange(longest) < lengths[:, None])[:, None].expand(n, most, longest)  # (N, R, P)
    of_itself = torch.ones(most, most, dtype=torch.bool).tril().expand(n, most, most)  # (N, R, R)
    blocks = Blocks(prompts, responses, owners, torch.cat([of_prompt, of_itself], 2)[:, None], torch.cat(home))
    return Packed(torch.tensor([ids]), torch.cat(positions)[None], prompt_ends, ends, blocks)


def cut_in_micro_batches(groups: Sequence[EncodedGroup], budget: int, *, is_shared: bool) -> list[list[int]]:
    """Places of the groups, in lots of similar length that take at most `budget` tokens each.

    Separate passes count their padding; shared prompts have none. A group is never cut: one that needs more than the
    budget is a lot of its own.
    """
    lots: list[list[int]] = []
    tokens = n = longest = 0
    shapes = [_shape(group, is_shared=is_shared) for group in groups]
    for place in sorted(range(len(groups)), key=lambda each: shapes[each][1]):
        n_rows, length = shapes[place]
        together = tokens + length if is_shared else (n + n_rows) * max(longest, length)
        if lots and together <= budget:
            lots[-1].append(place)
            tokens, n, longest = together, n + n_rows, max(longest, length)
        else:
            lots.append([place])
            tokens, n, longest = length, n_rows, length
    return lots


def _shape(group: EncodedGroup, *, is_shared: bool) -> tuple[int, int]:
    """How many rows a group takes, and how long the longest is; where prompts are shared, the tokens of all."""
    if not is_shared:
        return group.n_responses, max(map(len, group.sequences))
    rows = rows_of([group])
    return len(rows), sum(row.n_tokens for row in rows)
