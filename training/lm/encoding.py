"""Text to token ids and back: one way for sampling, training, scoring and PPO.

A response is followed by what ends a turn (`training.lm.turns`), always. The template is applied once, and sees the
date that it is given, not the clock's. What a person wrote stays text: a template's special token inside a message is
encoded as the characters it is made of.
"""

from __future__ import annotations

import copy
import datetime
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from data.errors import InvalidInput
from data.records import Message, Messages
from data.text import clean_text
from training.lm.turns import DEFAULT_DATE, Turn, end_of_turn, is_dated, render

PADDING = "<|padding|>"  # what a reward model's tokenizer gets where it has no token that could stand for padding
_MARK = "\ue000{}\ue001"  # private-use characters: they stand for a piece of text while the template is rendered
_MARKS = re.compile("\ue000(\\d+)\ue001")


class Sequences(NamedTuple):
    """Prompts with responses, padded on the right, so that padding never comes before a token that counts.

    ids: (B, S) int. attention: (B, S) bool. prompt_lengths: (B,) int. mask: (B, T) bool, True where a response token
    counts; token t of response i stands at ids[i, prompt_lengths[i] + t].
    """

    ids: Tensor
    attention: Tensor
    prompt_lengths: Tensor
    mask: Tensor

    def rows(self, index: Tensor) -> Sequences:
        """Some of the rows, without the padding that only the others needed."""
        # Rows count from their left end, in both, so the longest of them says how much is needed.
        lengths = self.attention[index].sum(1)  # (b,)
        attention = self.attention[index, : int(lengths.max())]  # (b, s)
        mask = self.mask[index, : int(self.mask[index].sum(1).max())]  # (b, t)
        return Sequences(self.ids[index, : attention.shape[1]], attention, self.prompt_lengths[index], mask)

    def response_tokens(self) -> Tensor:
        """The counted response tokens, (M,) int, row by row."""
        row, place = self.mask.nonzero(as_tuple=True)
        return self.ids[row, self.prompt_lengths[row] + place]

    def to(self, device: torch.device) -> Sequences:
        return Sequences(*(each.to(device) for each in self))


@dataclass(frozen=True)
class Fitted:
    """A prompt with a response, cut to a length. The prompt is cut on the left; the response only if it must be."""

    prompt: list[int]
    response: list[int]
    is_prompt_cut: bool
    is_response_cut: bool

    @property
    def ids(self) -> list[int]:
        return self.prompt + self.response


class Encoder:
    """A tokenizer with its template, and the padding and end tokens that are right for it.

    end_ids: what every response that is learnt from or scored ends with; the last of them is `end_id`. stop_ids: what
    ends a sampled response: `end_id`, the tokenizer's end token (`eos_id`), and all that the model's settings list.
    """

    def __init__(
        self,
        tokenizer: Any,
        *,
        extra_stop_ids: Sequence[int] = (),
        end_ids: Sequence[int] = (),
        date: datetime.date = DEFAULT_DATE,
    ) -> None:
        """`extra_stop_ids`: further tokens that end a response, as a model's generation settings may list them.
        `end_ids`: as stored with a model; else what the template puts behind a response. `date`: that templates see.

        Raises InvalidInput for a tokenizer without an end token.
        """
        if tokenizer.eos_token_id is None:
            raise InvalidInput("the model's tokenizer has no end token (eos_token); a response could never end")
        self.tokenizer = tokenizer
        self.eos_id: int = tokenizer.eos_token_id
        self.date = date
        self.end_ids = tuple(end_ids) or end_of_turn(tokenizer, extra_stop_ids)
        self.stop_ids = frozenset({self.end_id, self.eos_id, *extra_stop_ids})
        self.pad_id, self.is_pad_shared = _padding_id(tokenizer, self.stop_ids)
        special = [re.escape(str(token)) for token in tokenizer.added_tokens_decoder.values() if token.special]
        self._must_stay_text = re.compile("|".join([*sorted(special, key=len, reverse=True), _MARKS.pattern]))
        blank = tokenizer("", add_special_tokens=True)["input_ids"]
        self._starts_with_bos = bool(blank) and blank[0] == tokenizer.bos_token_id

    @property
    def end_id(self) -> int:
        """The token that ends a response."""
        return self.end_ids[-1]

    @property
    def turn(self) -> Turn:
        """What is stored with a model that learns from texts which were encoded like this."""
        return Turn(self.end_ids, self.date if self.is_dated else None)

    @property
    def is_dated(self) -> bool:
        """Whether the template asks for the date."""
        return is_dated(self.tokenizer)

    def as_in(self, turn: Turn) -> Encoder:
        """The same, with the end and the date that another model was trained with."""
        other = copy.copy(self)
        other.end_ids, other.date = turn.end_ids, turn.date or DEFAULT_DATE
        return other

    @property
    def template_hash(self) -> str:
        """A hash of the template, with its date if it asks for one, for the record of a response and of a reward
        model: the same hash, the same ids."""
        digest = self._template_digest()
        if self.is_dated:
            digest.update(f"\n{self.date.isoformat()}".encode())
        return str(digest.hexdigest()[:16])

    def _template_digest(self) -> Any:
        return hashlib.sha256((self.tokenizer.chat_template or "plain").encode())

    @property
    def vocabulary_hash(self) -> str:
        """A hash of the vocabulary, but for PADDING, and the template, whatever its date: models with the same one may
        share token ids."""
        pairs = sorted(self.tokenizer.get_vocab().items(), key=lambda pair: pair[1])
        pairs = [pair for pair in pairs if pair[0] != PADDING]
        digest = hashlib.sha256(repr(pairs).encode())
        digest.update(self._template_digest().hexdigest()[:16].encode())
        return digest.hexdigest()[:16]

    def prompt_ids(self, messages: Messages) -> list[int]:
        """A prompt's ids, up to where the response starts.

        Without a chat template the contents are joined by blank lines, as a plain language model expects.
        Raises InvalidInput if the template refuses the messages, or if no token comes of them.
        """
        if self.tokenizer.chat_template:
            ids = self._templated(messages)
        else:
            start = [self.tokenizer.bos_token_id] if self._starts_with_bos else []
            ids = start + self._as_text("\n\n".join(each["content"] for each in messages))
        if not ids:
            raise InvalidInput("the model's tokenizer makes no token of the prompt")
        return ids

    def response_ids(self, text: str) -> list[int]:
        """A response's ids, with what ends it."""
        return [*self._as_text(text), *self.end_ids]

    def text_ids(self, text: str) -> list[int]:
        """A plain text's ids, without any template: with the start token where the tokenizer sets one, and its end
        token, which is that of documents."""
        start = [self.tokenizer.bos_token_id] if self._starts_with_bos else []
        return [*start, *self._as_text(text), self.eos_id]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of a response's ids; what ends it is left out."""
        kept = [token for token in ids if token not in self.stop_ids]
        text = str(self.tokenizer.decode(kept, skip_special_tokens=True))
        if ids and ids[-1] == self.end_id:
            text = text.removesuffix(str(self.tokenizer.decode(self.end_ids[:-1], skip_special_tokens=True)))
        return clean_text(text)

    def show(self, ids: Sequence[int]) -> str:
        """The exact token string, special tokens included: what a model really reads."""
        return clean_text(self.tokenizer.decode(ids, skip_special_tokens=False))

    def _templated(self, messages: Messages) -> list[int]:
        """The template's ids. A special token that a message holds is out of the way while the template is rendered."""
        kept: list[str] = []

        def mark(found: re.Match[str]) -> str:
            kept.append(found[0])
            return _MARK.format(len(kept) - 1)

        marked = [each | {"content": self._must_stay_text.sub(mark, each["content"])} for each in messages]
        ids: list[int] = []
        for place, part in enumerate(_MARKS.split(self._render(marked))):
            ids += self._as_text(kept[int(part)]) if place % 2 else self._as_template(part)
        return ids

    def _render(self, messages: Sequence[Message]) -> str:
        try:
            return render(self.tokenizer, messages, self.date)
        except Exception as error:  # a template is a program of its own and may raise anything
            raise InvalidInput(f"the model's chat template refuses the messages: {error}") from error

    def _as_template(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _as_text(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"])


def with_facts(messages: Messages, facts: str) -> Messages:
    """A prompt as a reward model reads it that is to know the reference facts (Sun et al. 2023, LLaVA-RLHF)."""
    if not facts:
        return messages
    *before, last = messages
    return (*before, last | {"content": f"{last['content']}\n\nReference facts:\n{facts}"})


def fit(prompt: list[int], response: list[int], max_length: int) -> Fitted:
    """Cut a prompt, on its left, so that prompt and response have at most `max_length` tokens, of which the prompt
    keeps at least one; a response that is longer by itself is cut on its right and keeps its end token."""
    is_response_cut = len(response) > max_length - 1
    if is_response_cut:
        response = [*response[: max_length - 2], response[-1]]
    room = max_length - len(response)
    return Fitted(prompt[-room:], response, len(prompt) > room, is_response_cut)


def pack(prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]], pad_id: int) -> Sequences:
    """Put prompts with their responses into one batch, padded on the right. Raises ValueError for an empty response."""
    if not all(responses):
        raise ValueError("a response needs at least one token")
    n_tokens = [len(prompt) + len(response) for prompt, response in zip(prompts, responses, strict=True)]
    lengths = torch.tensor(n_tokens)  # (B,)
    ids = torch.full((len(prompts), int(lengths.max())), pad_id, dtype=torch.long)  # (B, S)
    for row, (prompt, response) in enumerate(zip(prompts, responses, strict=True)):
        ids[row, : len(prompt) + len(response)] = torch.tensor([*prompt, *response])
    response_lengths = torch.tensor([len(response) for response in responses])  # (B,)
    return Sequences(
        ids=ids,
        attention=torch.arange(ids.shape[1])[None] < lengths[:, None],  # (B, S)
        prompt_lengths=torch.tensor([len(prompt) for prompt in prompts]),
        mask=torch.arange(int(response_lengths.max()))[None] < response_lengths[:, None],  # (B, T)
    )


def _padding_id(tokenizer: Any, stop_ids: frozenset[int]) -> tuple[int, bool]:
    """Return a token for padding that ends nothing, and whether texts may hold it too.

    The tokenizer's own, else an unused special token, else any other token. Every mask here comes from lengths, so a
    token that texts may hold does no harm here; but a classifier that looks for the last token before the padding, as
    plain transformers does, needs one of its own.
    """
    own = tokenizer.pad_token_id
    if own is not None and own not in stop_ids:
        return int(own), False
    unwanted = stop_ids | {tokenizer.bos_token_id}
    template = tokenizer.chat_template or ""
    special = {int(place): str(token) for place, token in tokenizer.added_tokens_decoder.items() if token.special}
    unused = [place for place, token in special.items() if place not in unwanted and token not in template]
    if unused:
        return min(unused), False
    return next(place for place in range(len(tokenizer)) if place not in stop_ids), True
