"""The one way to score a text by a reward model: in training, for files, in a comparison, and in PPO."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from data.errors import InvalidInput
from data.files.paths import Home
from data.records import Messages
from training.lm.block_attention import attention_in_blocks
from training.lm.dataset import EncodedGroup
from training.lm.encoding import Encoder, Fitted, fit, with_facts
from training.lm.models import (
    ADAPTER_FOLDER,
    MODEL_FOLDER,
    REWARD_FILE,
    Machine,
    ModelSource,
    load_classifier,
    weights_hash,
)
from training.lm.models import load_encoder as _load_encoder
from training.lm.packing import Packed, PackedRow, cut_in_micro_batches, pack_rows, rows_of

HEADS_FILE = "heads.safetensors"
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RewardInfo:
    """What is stored beside a reward model: its zero, its scale, and what its texts must look like.

    shift: mean raw score of the SFT responses, taken from every score. std: their standard deviation. reads_facts: it
    was trained to see a prompt's reference facts. n_heads: of the ensemble, whose mean is the model's head.
    """

    shift: float
    std: float
    n: int
    max_length: int
    template_hash: str
    vocabulary_hash: str
    base_model: str
    base_revision: str
    has_adapter: bool
    reads_facts: bool = False
    n_heads: int = 1


def read_reward_info(folder: Path) -> RewardInfo:
    """Raises InvalidInput if the file is missing or spoilt: scores without their zero would mean something else."""
    path = folder / MODEL_FOLDER / REWARD_FILE
    if not path.is_file():
        raise InvalidInput(f"{path} is missing: the reward model's zero is not known; train the reward model again")
    try:
        return RewardInfo(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"{path} can't be used ({error}); train the reward model again") from error


def read_heads(folder: Path, info: RewardInfo) -> tuple[Tensor, Tensor]:
    """An ensemble's heads (m, d) and the zero of each (m,), float32. Raises InvalidInput for other contents."""
    path = folder / MODEL_FOLDER / HEADS_FILE
    try:
        saved = {name: each.float() for name, each in load_file(path).items()}
    except (OSError, SafetensorError) as error:
        raise InvalidInput(f"{path} can't be used ({error}); train the reward model again") from error
    n, shapes = info.n_heads, {name: tuple(each.shape) for name, each in saved.items()}
    if shapes.keys() != {"heads", "shifts"} or shapes["heads"][:-1] != (n,) or shapes["shifts"] != (n,):
        raise InvalidInput(
            f"{path} holds {shapes}; expected are 'heads' ({n}, width) and 'shifts' ({n},): train the model again"
        )
    return saved["heads"], saved["shifts"]


def pooled_scores(classifier: Any, ids: Tensor, attention: Tensor) -> Tensor:
    """Raw scores (N,) float32, or (N, m) of m heads, read at each row's last attended token.

    ids, attention: (N, S), padded on the right. The place comes from the mask, not from the ids, and the head computes
    in float32: in bf16 close scores become ties. Gradients flow. Raises ValueError for a row without a token.
    """
    lengths = attention.sum(1)
    if int(lengths.min()) == 0:
        raise ValueError("a text without a token has no score")
    inner = bare(classifier)
    hidden = inner.base_model(input_ids=ids, attention_mask=attention, use_cache=False).last_hidden_state
    return _read(inner, hidden[torch.arange(len(ids), device=ids.device), lengths - 1])


def packed_scores(classifier: Any, packed: Packed) -> Tensor:
    """The same for a batch in which the responses to a prompt share it: raw scores (N,) float32. Gradients flow."""
    inner = bare(classifier)
    with attention_in_blocks(inner, packed.blocks):
        hidden = inner.base_model(
            input_ids=packed.ids, position_ids=packed.positions, use_cache=False
        ).last_hidden_state
    return _read(inner, hidden[0, packed.ends])


def group_scores(classifier: Any, groups: Sequence[EncodedGroup], pad_id: int, *, is_shared: bool) -> Tensor:
    """Raw scores (N,) float32 of all responses of some rankings, in one forward pass. Gradients flow."""
    device = next(classifier.parameters()).device
    if is_shared:
        return packed_scores(classifier, pack_rows(rows_of(groups)).to(device))
    ids, attention = pad_right([sequence for group in groups for sequence in group.sequences], pad_id)
    return pooled_scores(classifier, ids.to(device), attention.to(device))


def bare(classifier: Any) -> Any:
    """The classifier without the wrapper of its adapters, which stay in it."""
    return classifier.get_base_model() if hasattr(classifier, "get_base_model") else classifier


def _read(inner: Any, hidden: Tensor) -> Tensor:
    with torch.autocast(hidden.device.type, enabled=False):
        scores: Tensor = inner.score(hidden.float())
    return scores.squeeze(-1) if scores.shape[-1] == 1 else scores


def pad_right(sequences: Sequence[Sequence[int]], pad_id: int) -> tuple[Tensor, Tensor]:
    """(ids, attention), both (N, S), padded on the right."""
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    ids = torch.full((len(sequences), int(lengths.max())), pad_id)
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence)] = torch.tensor(sequence)
    return ids, torch.arange(ids.shape[1])[None] < lengths[:, None]


@torch.no_grad()
def score_sequences(
    classifier: Any, sequences: Sequence[Sequence[int]], pad_id: int, machine: Machine, batch_size: int
) -> Tensor:
    """Raw scores (N,) float32, or (N, m) of m heads, of token sequences, in batches of similar length."""
    parts: list[Tensor] = [torch.zeros(0)]
    order = sorted(range(len(sequences)), key=lambda place: len(sequences[place]))
    for start in range(0, len(order), batch_size):
        places = order[start : start + batch_size]
        ids, attention = pad_right([sequences[place] for place in places], pad_id)
        with machine.autocast():
            batch = pooled_scores(classifier, ids.to(machine.device), attention.to(machine.device))
        parts.append(batch.cpu())
    together = torch.cat(parts[1:] or parts)
    scores = torch.empty_like(together)
    scores[order] = together
    return scores


@torch.no_grad()
def score_groups(
    classifier: Any, groups: Sequence[EncodedGroup], pad_id: int, machine: Machine, budget: int, *, is_shared: bool
) -> list[Tensor]:
    """Raw scores of each ranking's responses, (K,) float32 each, in lots of at most `budget` tokens."""
    by_group: list[Tensor] = [torch.empty(0)] * len(groups)
    for micro_batch in cut_in_micro_batches(groups, budget, is_shared=is_shared):
        chosen = [groups[place] for place in micro_batch]
        with machine.autocast():
            scores = group_scores(classifier, chosen, pad_id, is_shared=is_shared).cpu()
        for place, part in zip(micro_batch, torch.split(scores, [each.n_responses for each in chosen]), strict=True):
            by_group[place] = part
    return by_group


class Scorer:
    """A finished reward model: texts in, scores with mean 0 on the SFT responses out."""

    def __init__(self, home: Home, run_id: str, machine: Machine, batch_size: int = 16) -> None:
        """Load the model of a reward run. Raises InvalidInput if its files are missing."""
        folder = home.run_folder(run_id)
        self.info = read_reward_info(folder)
        self.folder, self.machine, self.batch_size = folder, machine, batch_size
        place = folder / MODEL_FOLDER
        self.source = ModelSource(f"run:{run_id}", str(place), weights_hash(place))
        self.encoder: Encoder = _load_encoder(self.source)
        self.model = load_classifier(self.source, torch.float32).to(machine.device)

    @property
    def adapter_folder(self) -> Path | None:
        """The low-rank adapter that the model was made with, where it was."""
        return self.folder / ADAPTER_FOLDER if self.info.has_adapter else None

    def encode(self, messages: Messages, response: str, facts: str = "") -> Fitted:
        """A prompt with a response as the model reads it. Raises InvalidInput if the template refuses the messages."""
        read = with_facts(messages, facts) if self.info.reads_facts else messages
        return fit(self.encoder.prompt_ids(read), self.encoder.response_ids(response), self.info.max_length)

    def score_ids(self, sequences: Sequence[Sequence[int]]) -> Tensor:
        """Scores (N,) of token sequences that end with the end token."""
        cut = [sequence[-self.info.max_length :] for sequence in sequences]
        raw = score_sequences(self.model, cut, self.encoder.pad_id, self.machine, self.batch_size)
        return raw - self.info.shift

    @torch.no_grad()
    def score_together(self, rows: Sequence[PackedRow]) -> Tensor:
        """Scores (N,) of responses that share their prompts, in one forward pass, in the order of the rows' places."""
        packed = pack_rows(rows).to(self.machine.device)
        with self.machine.autocast():
            return packed_scores(self.model, packed).cpu() - self.info.shift

    def score(self, texts: Sequence[tuple[Messages, str]], facts: Sequence[str] = ()) -> Tensor:
        """Scores (N,) of responses to prompts; `facts` of each prompt, for a model that reads them."""
        known = facts or [""] * len(texts)
        fitted = [self.encode(*text, each) for text, each in zip(texts, known, strict=True)]
        return self.score_ids([each.prompt + each.response for each in fitted])

    def head_scores(self, sequences: Sequence[Sequence[int]]) -> Tensor | None:
        """What each head says, (N, m), from its own zero; None for a model with one head."""
        if self.info.n_heads == 1:
            return None
        heads, shifts = read_heads(self.folder, self.info)
        single = self.model.score
        self.model.score = torch.nn.Linear(heads.shape[1], heads.shape[0], bias=False)
        self.model.score.weight.data = heads
        try:
            cut = [sequence[-self.info.max_length :] for sequence in sequences]
            raw = score_sequences(
                self.model.to(self.machine.device), cut, self.encoder.pad_id, self.machine, self.batch_size
            )
        finally:
            self.model.score = single
        return raw - shifts

    def spread_ids(self, sequences: Sequence[Sequence[int]]) -> Tensor | None:
        """Standard deviation (N,) of the heads' scores; None for a model with one head."""
        found = self.head_scores(sequences)
        return None if found is None else found.std(1, correction=0)
