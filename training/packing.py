"""Rankings to forward passes: one sequence per prompt with all of its responses, and lots within a budget of tokens.

    ids        prompt     response 1     response 2    ...   padding
    positions  0 .. P-1   P, P+1, ...    P, P+1, ...         0
    segments   0          1              2                   -1

A token sees what stands before it in its own segment and in segment 0, so every response sees its prompt and itself,
as if it stood alone: P + sum of R tokens in place of K (P + R). Whether a model really gives the same numbers is asked
by `training.shared_prompts`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from training.dataset import EncodedGroup
from training.encoding import Sequences


class Row(NamedTuple):
    """A prompt with responses that follow it. `places`: where the responses' scores belong, among the lot's."""

    prompt: list[int]
    responses: list[list[int]]
    places: list[int]

    @property
    def n_tokens(self) -> int:
        return len(self.prompt) + sum(map(len, self.responses))


class Packed(NamedTuple):
    """A batch of rows, padded on the right. ids, positions, segments: (B, S) int. rows, ends: (N,) int: the row and
    the place of the last token of each response, in the order of the rows' `places`."""

    ids: Tensor
    positions: Tensor
    segments: Tensor
    rows: Tensor
    ends: Tensor

    def mask(self) -> Tensor:
        """(B, 1, S, S) bool, True where a token is seen. Padding sees itself, so that no softmax is empty."""
        seen, seeing = self.segments[:, None, :], self.segments[:, :, None]
        size = self.ids.shape[1]
        causal = torch.ones(size, size, dtype=torch.bool, device=self.ids.device).tril()
        return (causal & ((seen == 0) | (seen == seeing)))[:, None]

    def before_tokens(self, batch: Sequences) -> tuple[Tensor, Tensor]:
        """The row and the place, (M,) each, before every response token that counts in `batch`, which was packed here.

        Before a response's first token stands the prompt's last one, wherever the response lies in its row.
        """
        response, token = batch.mask.nonzero(as_tuple=True)
        inside = self.ends[response] - batch.mask.sum(1)[response] + token
        return self.rows[response], torch.where(token == 0, batch.prompt_lengths[response] - 1, inside)

    def to(self, device: torch.device) -> Packed:
        return Packed(*(each.to(device) for each in self))


def rows_of(groups: Sequence[EncodedGroup]) -> list[Row]:
    """The rows of some rankings. Responses share a row where their prompts were cut alike, or not at all."""
    rows: list[Row] = []
    place = 0
    for group in groups:
        of_prompt: dict[tuple[int, ...], Row] = {}
        for sequence, length in zip(group.sequences, group.prompt_lengths, strict=True):
            row = of_prompt.setdefault(tuple(sequence[:length]), Row(sequence[:length], [], []))
            row.responses.append(sequence[length:])
            row.places.append(place)
            place += 1
        rows += of_prompt.values()
    return rows


def rows_of_texts(texts: Iterable[tuple[list[int], list[int]]]) -> list[Row]:
    """The rows of prompts with a response each: those to the same prompt share one."""
    rows: dict[tuple[int, ...], Row] = {}
    for place, (prompt, response) in enumerate(texts):
        row = rows.setdefault(tuple(prompt), Row(prompt, [], []))
        row.responses.append(response)
        row.places.append(place)
    return list(rows.values())


def rows_of_batch(batch: Sequences) -> list[Row]:
    """The same of a batch."""
    starts, ends = batch.prompt_lengths.tolist(), batch.attention.sum(1).tolist()
    ids = batch.ids.tolist()
    return rows_of_texts((each[:start], each[start:end]) for each, start, end in zip(ids, starts, ends, strict=True))


def pack_rows(rows: Sequence[Row], pad_id: int) -> Packed:
    """One batch of the rows. Every place from 0 must be named once by some row."""
    n, size = sum(len(row.places) for row in rows), max(row.n_tokens for row in rows)
    ids = torch.full((len(rows), size), pad_id, dtype=torch.long)
    positions, segments = torch.zeros_like(ids), torch.full_like(ids, -1)
    row_of, ends = torch.zeros(n, dtype=torch.long), torch.zeros(n, dtype=torch.long)
    for number, row in enumerate(rows):
        start = len(row.prompt)
        ids[number, :start] = torch.tensor(row.prompt)
        positions[number, :start], segments[number, :start] = torch.arange(start), 0
        for segment, (response, place) in enumerate(zip(row.responses, row.places, strict=True), start=1):
            end = start + len(response)
            ids[number, start:end] = torch.tensor(response)
            positions[number, start:end] = torch.arange(len(row.prompt), len(row.prompt) + len(response))
            segments[number, start:end] = segment
            row_of[place], ends[place] = number, end - 1
            start = end
    return Packed(ids, positions, segments, row_of, ends)


def cut_in_lots(groups: Sequence[EncodedGroup], budget: int, *, is_shared: bool) -> list[list[int]]:
    """Places of the groups, in lots of similar length that take at most `budget` tokens each, padding included.

    A group is never cut: one that needs more than the budget is a lot of its own.
    """
    shapes = [_shape(group, is_shared=is_shared) for group in groups]
    lots: list[list[int]] = []
    n_rows = longest = 0
    for place in sorted(range(len(groups)), key=lambda each: shapes[each][1]):
        rows, length = shapes[place]
        if lots and (n_rows + rows) * max(longest, length) <= budget:
            lots[-1].append(place)
            n_rows, longest = n_rows + rows, max(longest, length)
        else:
            lots.append([place])
            n_rows, longest = rows, length
    return lots


def _shape(group: EncodedGroup, *, is_shared: bool) -> tuple[int, int]:
    """How many rows a group takes, and how long the longest is."""
    if not is_shared:
        return group.n_responses, max(map(len, group.sequences))
    rows = rows_of([group])
    return len(rows), max(row.n_tokens for row in rows)
