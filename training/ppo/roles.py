"""The four roles of PPO: policy, critic, reward model, reference. What each computes from a batch of sequences.

Two layouts. Full: four models. Low-rank: one frozen base with an adapter for each trained role; the reference is the
base with the adapters off, so it is the policy that training starts from, to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import torch
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from data.errors import InvalidInput
from data.records import Messages
from training.lm.block_attention import attention_in_blocks
from training.lm.encoding import Encoder, Fitted, Sequences, fit, with_facts
from training.lm.models import Machine, context_length
from training.lm.packing import Packed, pack_rows, rows_of_batch, rows_of_texts
from training.lm.scorer import RewardInfo, Scorer, pad_right
from training.maths.losses import entropy, selected_logprobs

LOGITS = 2**24  # logits held at once (64 MB in float32); more are computed in pieces, and again for gradients


class TokenScores(NamedTuple):
    """Log-probabilities of the response tokens, in nats, and the entropy there; both (B, T), 0 at padding."""

    logprobs: Tensor
    entropy: Tensor


class RewardModel(Protocol):
    """Scores whole responses, with mean 0 on the SFT responses."""

    model: Any
    reading: Reading

    def share_prompts(self, *, wanted: bool) -> None:
        """Whether responses to the same prompt share it when they are scored."""

    def score(self, rows: list[ScoredRow]) -> Tensor:
        """Scores (B,) float32."""

    def spread(self, rows: list[ScoredRow]) -> Tensor | None:
        """Standard deviation (B,) of an ensemble's scores; None for a model with one head."""


class Heads(NamedTuple):
    """An ensemble's heads (m, d) and the zero of each (m,)."""

    weights: Tensor
    shifts: Tensor


@dataclass(frozen=True)
class ScoredRow:
    """A response as the policy wrote it: ids (with the end token where it ended), and as text.

    facts: for a reward model that reads them; neither the policy nor the critic does.
    """

    messages: Messages
    prompt: list[int]
    response: list[int]
    text: str
    facts: str = ""


@dataclass(frozen=True)
class Reading:
    """What a reward model reads of the policy's responses; its weights are not needed for that.

    encoder: with the end and the date that it was trained with. policy: the encoder of the policy's ids.
    shares_ids: its vocabulary and template are the policy's, so it reads ids; else text, encoded again.
    """

    encoder: Encoder
    info: RewardInfo
    policy: Encoder
    shares_ids: bool

    @property
    def shares_prompts(self) -> bool:
        """Whether it reads the ids of the policy's prompts; not where its template was given another date."""
        return self.shares_ids and self.encoder.template_hash == self.policy.template_hash

    def prompt_ids(self, messages: Messages, facts: str) -> list[int]:
        """A prompt, with the reference facts where it was trained with them. Raises InvalidInput if it is refused."""
        return self.encoder.prompt_ids(with_facts(messages, facts) if self.info.reads_facts else messages)

    def refuses(self, messages: Messages, facts: str) -> bool:
        """Whether it can't read a prompt that the policy reads."""
        if self.shares_prompts and not (self.info.reads_facts and facts):
            return False  # it reads the policy's ids
        try:
            self.prompt_ids(messages, facts)
        except InvalidInput:
            return True
        return False

    def text(self, row: ScoredRow) -> Fitted:
        """Prompt and response as in its training: with its end token, and cut where they are too long."""
        if not self.shares_ids:
            prompt = self.prompt_ids(row.messages, row.facts)
            return fit(prompt, self.encoder.response_ids(row.text), self.info.max_length)
        if not self.shares_prompts or (self.info.reads_facts and row.facts):
            row = replace(row, prompt=self.prompt_ids(row.messages, row.facts))
        return ended_text(row, self.policy.stop_ids, self.encoder.end_ids, self.info.max_length)


class AdapterSwitch:
    """Turns one of a model's adapters on, or all off, and keeps the trained ones trainable.

    PEFT's own switch freezes every adapter but the active one, and makes the active one trainable, also a frozen one.
    """

    def __init__(self, model: nn.Module, trained: Iterable[str]) -> None:
        self._layers = [module for module in model.modules() if isinstance(module, BaseTunerLayer)]
        self._trained = tuple(trained)
        self._parameters = {name: parameter for name, parameter in model.named_parameters() if ".lora_" in name}
        self._active: str | None = None
        self._set(None)

    def use(self, adapter: str | None) -> None:
        """Make `adapter` the active one; None: the bare model."""
        if adapter != self._active:
            self._set(adapter)

    def parameters(self, adapter: str) -> dict[str, nn.Parameter]:
        """The parameters of one adapter, by name."""
        return {name: each for name, each in self._parameters.items() if f".{adapter}." in name}

    def _set(self, adapter: str | None) -> None:
        for layer in self._layers:
            layer.enable_adapters(enabled=adapter is not None)
            if adapter is not None:
                layer.set_adapter([adapter])
        for name, parameter in self._parameters.items():
            parameter.requires_grad_(any(f".{trained}." in name for trained in self._trained))
        self._active = adapter


@dataclass
class Trunk:
    """A transformer without its head, under one adapter of a shared base or by itself.

    shares_prompts: responses to the same prompt share it in a forward pass; for models that were asked whether they
    give the same numbers that way (`training.lm.sharing`).
    """

    model: Any
    machine: Machine
    switch: AdapterSwitch | None = None
    adapter: str | None = None
    shares_prompts: bool = False

    def activate(self) -> None:
        if self.switch is not None:
            self.switch.use(self.adapter)

    def hidden(self, ids: Tensor) -> Tensor:
        """Hidden states (B, S, d) of ids (B, S) padded on the right: with causal attention no token that counts sees
        the padding, so no mask is needed."""
        self.activate()
        with self.machine.autocast():
            states: Tensor = self.model(input_ids=ids, use_cache=False).last_hidden_state
        return states

    def before_tokens(self, batch: Sequences) -> Tensor:
        """Hidden states (M, d) before each response token that counts, row by row: what predicts it."""
        rows = rows_of_batch(batch) if self.shares_prompts else []
        if rows and sum(row.n_tokens for row in rows) < batch.ids.numel():
            packed = pack_rows(rows).to(batch.ids.device)
            return self._packed(packed)[packed.before_tokens(batch)]
        row, token = batch.mask.nonzero(as_tuple=True)
        return self.hidden(batch.ids)[row, batch.prompt_lengths[row] + token - 1]

    def last_states(self, texts: list[Fitted], pad_id: int) -> Tensor:
        """The hidden state (B, d) at the last token of each text."""
        if self.shares_prompts:
            rows = rows_of_texts((text.prompt, text.response) for text in texts)
            packed = pack_rows(rows).to(self.machine.device)
            return self._packed(packed)[packed.ends]
        ids, attention = pad_right([text.ids for text in texts], pad_id)
        states = self.hidden(ids.to(self.machine.device))
        return states[torch.arange(len(ids)), attention.sum(1) - 1]

    def _packed(self, packed: Packed) -> Tensor:
        """Hidden states (T, d)."""
        self.activate()
        with self.machine.autocast(), attention_in_blocks(self.model, packed.blocks):
            states: Tensor = self.model(
                input_ids=packed.ids, position_ids=packed.positions, use_cache=False
            ).last_hidden_state
        return states[0]


class Policy:
    """A language model: log-probabilities of responses. Also the reference, under no adapter."""

    def __init__(
        self, trunk: Trunk, language_model: Any, temperature: float, *, has_plain_head: bool | None = None
    ) -> None:
        """`has_plain_head`: as it is known already, of a model that has no data; None: the model is asked."""
        self.trunk, self.language_model, self.temperature = trunk, language_model, temperature
        self._head = language_model.get_output_embeddings()
        self.has_plain_head = self._check_head() if has_plain_head is None else has_plain_head

    def token_scores(self, batch: Sequences, *, with_entropy: bool = False) -> TokenScores:
        """Log-probabilities of the response tokens at the sampling temperature. Gradients flow through them."""
        states = self._before_each_token(batch)
        chosen = batch.response_tokens()
        parts, at_once = [], max(1, LOGITS // len(self._head.weight))
        for start in range(0, len(chosen), at_once):
            piece = (states[start : start + at_once], chosen[start : start + at_once], with_entropy)
            if len(chosen) > at_once and torch.is_grad_enabled():
                parts.append(checkpoint(self._score, *piece, use_reentrant=False, preserve_rng_state=False))
            else:
                parts.append(self._score(*piece))
        logprobs, entropies = (torch.cat(each) for each in zip(*parts, strict=True))
        return TokenScores(_scatter(logprobs, batch.mask), _scatter(entropies, batch.mask))

    def _before_each_token(self, batch: Sequences) -> Tensor:
        """What predicts each response token: hidden states (M, d), or logits (M, V) where the head is not plain."""
        if self.has_plain_head:
            return self.trunk.before_tokens(batch)
        row, token = batch.mask.nonzero(as_tuple=True)
        self.trunk.activate()
        with self.trunk.machine.autocast():
            logits: Tensor = self.language_model(input_ids=batch.ids, use_cache=False).logits
        return logits[row, batch.prompt_lengths[row] + token - 1]

    def _score(self, states: Tensor, chosen: Tensor, with_entropy: bool) -> tuple[Tensor, Tensor]:
        with self.trunk.machine.autocast():
            logits = self._head(states) if self.has_plain_head else states
        logprobs = selected_logprobs(logits, chosen, self.temperature)
        return logprobs, entropy(logits, self.temperature) if with_entropy else torch.zeros_like(logprobs)

    @torch.no_grad()
    def _check_head(self) -> bool:
        """Whether the head alone gives the model's logits; some models scale or cap them afterwards.

        The head's output is made large for this, so that a cap shows that small logits would not reach.
        """
        ids = torch.arange(1, 9, device=self.trunk.machine.device)[None]
        self.trunk.activate()
        hook = self._head.register_forward_hook(lambda _head, _given, logits: 100 * logits)
        try:
            with self.trunk.machine.autocast():
                whole = self.language_model(input_ids=ids, use_cache=False).logits
                bare = self._head(self.trunk.hidden(ids))
        finally:
            hook.remove()
        return torch.allclose(whole.float(), bare.float(), atol=1e-3, rtol=1e-4)


class Critic:
    """Values: what the rest of the response is expected to bring, before each of its tokens."""

    def __init__(self, trunk: Trunk, head: nn.Linear) -> None:
        self.trunk, self.head = trunk, head

    def values(self, batch: Sequences) -> Tensor:
        """(B, T) float32, 0 at padding. Gradients flow."""
        states = self.trunk.before_tokens(batch)
        with torch.autocast(states.device.type, enabled=False):
            return _scatter(self.head(states.float()).squeeze(-1), batch.mask)


class SharedRewardModel:
    """A reward model that is an adapter of the shared base, with its head and its zero. `heads`: of an ensemble."""

    def __init__(self, trunk: Trunk, head: nn.Linear, reading: Reading, heads: Heads | None = None) -> None:
        self.trunk, self.head, self.reading, self._heads = trunk, head, reading, heads
        self.model = trunk.model

    def share_prompts(self, *, wanted: bool) -> None:
        self.trunk.shares_prompts = wanted

    @property
    def shift(self) -> float:
        """What is taken from every raw score."""
        return self.reading.info.shift

    @torch.no_grad()
    def raw_scores(self, texts: Sequence[Sequence[int]]) -> Tensor:
        """Scores (B,) of token sequences as they are, before the zero is taken from them; one pass each."""
        states = [self.trunk.hidden(torch.tensor([text], device=self.trunk.machine.device))[0, -1] for text in texts]
        with torch.autocast(states[0].device.type, enabled=False):
            scores: Tensor = self.head(torch.stack(states).float()).squeeze(-1)
        return scores

    @torch.no_grad()
    def score(self, rows: list[ScoredRow]) -> Tensor:
        """Scores of token sequences."""
        last = self._last_states(rows)
        with torch.autocast(last.device.type, enabled=False):
            scores: Tensor = self.head(last).squeeze(-1) - self.reading.info.shift
        return scores

    @torch.no_grad()
    def spread(self, rows: list[ScoredRow]) -> Tensor | None:
        """Standard deviation of the heads' scores, each from its own zero."""
        if self._heads is None:
            return None
        last = self._last_states(rows)
        with torch.autocast(last.device.type, enabled=False):
            raw = last @ self._heads.weights.to(last).T - self._heads.shifts.to(last)
        return raw.std(1, correction=0)

    def _last_states(self, rows: list[ScoredRow]) -> Tensor:
        """(B, d) float32: the state at each text's last token."""
        texts = [self.reading.text(row) for row in rows]
        return self.trunk.last_states(texts, self.reading.encoder.pad_id).float()


class SeparateRewardModel:
    """A reward model with weights of its own, and perhaps a tokenizer and template of its own."""

    def __init__(self, scorer: Scorer, policy: Encoder, shares_ids: bool) -> None:
        self.scorer, self.model, self._shares_prompts = scorer, scorer.model, False
        self.reading = Reading(scorer.encoder, scorer.info, policy, shares_ids)

    def share_prompts(self, *, wanted: bool) -> None:
        self._shares_prompts = wanted

    def score(self, rows: list[ScoredRow]) -> Tensor:
        """Scores (B,) of what it reads of the responses."""
        texts = [self.reading.text(row) for row in rows]
        if self._shares_prompts:
            return self.scorer.score_together(rows_of_texts((text.prompt, text.response) for text in texts))
        return self.scorer.score_ids([text.ids for text in texts])

    def spread(self, rows: list[ScoredRow]) -> Tensor | None:
        return self.scorer.spread_ids([self.reading.text(row).ids for row in rows])


class Roles(NamedTuple):
    """All four, and what is trained of each: named parameters, in a fixed order."""

    policy: Policy
    reference: Policy
    critic: Critic
    reward_model: RewardModel
    policy_parameters: dict[str, nn.Parameter]
    critic_parameters: dict[str, nn.Parameter]

    @property
    def shares_prompts(self) -> bool:
        """Whether responses to the same prompt share it in forward passes."""
        return self.policy.trunk.shares_prompts

    def share_prompts(self, *, wanted: bool) -> None:
        for trunk in (self.policy.trunk, self.reference.trunk, self.critic.trunk):
            trunk.shares_prompts = wanted
        self.reward_model.share_prompts(wanted=wanted)

    @property
    def context(self) -> int:
        """The longest text that both policy and critic read, in tokens."""
        models = (self.policy.language_model, self.critic.trunk.model)
        return min(context_length(model.config) for model in models)


def ended_text(row: ScoredRow, stop_ids: frozenset[int], end_ids: Sequence[int], max_length: int) -> Fitted:
    """Prompt and response as the reward model's training texts are: with what ends them, whatever the response ended
    with and whether it did, and cut as they are where they are too long."""
    if row.response[-1] == end_ids[-1]:
        return fit(row.prompt, row.response, max_length)
    words = row.response[:-1] if row.response[-1] in stop_ids else row.response
    return fit(row.prompt, [*words, *end_ids], max_length)


def _scatter(values: Tensor, mask: Tensor) -> Tensor:
    """Put values (M,) at the True places of mask (B, T), 0 elsewhere."""
    return torch.zeros(mask.shape, dtype=values.dtype, device=values.device).masked_scatter(mask, values)
