"""One rollout: sample responses, score them, and record what the policy, the reference and the critic say of them; and
the minibatches that are taken from it.

No gradient flows through anything here. The policy's log-probabilities come from the same forward pass that training
uses, at the sampling temperature, never from the generator; so the ratio of the first update is 1.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from data.records import Messages
from training.launch.config import GenerationConfig, PPOConfig
from training.lm.encoding import Encoder, Sequences, pack
from training.lm.generation import Generated, generate, random_numbers
from training.lm.models import Machine
from training.maths.masked import token_weights
from training.ppo.roles import Policy, RewardModel, Roles, ScoredRow


@dataclass(frozen=True)
class PromptItem:
    """A prompt that is sampled from, as token ids."""

    key: str
    messages: Messages
    ids: list[int]
    facts: str = ""


@dataclass(frozen=True)
class Rollout:
    """Everything recorded of one batch of responses: (B,) per response, (B, T) per response token, 0 at padding.

    scores: what the reward model says, before any penalty. ended: (B,) bool, ended by itself.
    """

    rows: list[ScoredRow]
    batch: Sequences
    ended: Tensor
    scores: Tensor
    old_logprobs: Tensor
    ref_logprobs: Tensor
    old_values: Tensor
    entropy: Tensor
    seconds: dict[str, float]


@dataclass(frozen=True)
class Credit:
    """What the loop made of a rollout's scores: (B,) scores after penalties, and (B, T) of each token.

    advantages: as the loss has them. new_logprobs: after the update, of the first rows; None where there was none.
    """

    scores: Tensor
    kl: Tensor
    rewards: Tensor
    advantages: Tensor
    returns: Tensor
    new_logprobs: Tensor | None = None


@dataclass(frozen=True)
class Minibatch:
    """What one optimizer step learns from: (B, T) per response token, 0 at padding.

    policy_weights, value_weights: they sum to 1 over the minibatch, so that losses are sums, and cutting it into
    micro-batches changes nothing.
    """

    batch: Sequences
    old_logprobs: Tensor
    ref_logprobs: Tensor
    old_values: Tensor
    advantages: Tensor
    returns: Tensor
    policy_weights: Tensor
    value_weights: Tensor

    def rows(self, index: Tensor) -> Minibatch:
        """Some of the rows, with their share of the weights, without the padding that only the others needed."""
        batch = self.batch.rows(index)
        width = batch.mask.shape[1]
        of_tokens = [each.name for each in fields(self) if each.name != "batch"]
        return Minibatch(batch, **{name: getattr(self, name)[index, :width] for name in of_tokens})


def minibatch_of(rollout: Rollout, credit: Credit, index: Tensor, loss_mean: str) -> Minibatch:
    """The rows in `index`. loss_mean: what the policy's loss is the mean over, "token" or "response"."""
    batch = rollout.batch.rows(index)
    width = batch.mask.shape[1]
    recorded = (rollout.old_logprobs, rollout.ref_logprobs, rollout.old_values, credit.advantages, credit.returns)
    weights = (token_weights(batch.mask, over).to(credit.advantages) for over in (loss_mean, "token"))
    return Minibatch(batch, *(each[index, :width] for each in recorded), *weights)


@torch.no_grad()
def sample_rollout(
    roles: Roles,
    prompts: Sequence[PromptItem],
    config: PPOConfig,
    encoder: Encoder,
    machine: Machine,
    iteration: int,
    check: Callable[[], None],
    by: Callable[..., list[Generated]] = generate,
) -> Rollout:
    """Steps 1 to 3 of the loop: sample, score, and record log-probabilities and values.

    `check` is called between tokens and between forward passes and may raise to stop. `by`: what samples.
    """
    seconds, started = {}, time.perf_counter()
    roles.policy.trunk.activate()
    n, keys = config.responses_per_prompt, numbered_keys(iteration, len(prompts), config.responses_per_prompt)
    rows, ended = sample_responses(roles.policy.language_model, prompts, n, keys, config, encoder, machine, check, by)
    seconds["generate"] = time.perf_counter() - started
    batch = pack_rows_of(rows, encoder, machine)
    started = time.perf_counter()
    micro_batches = list(micro_batches_of(batch, config.micro_batch_tokens, is_shared=roles.shares_prompts))
    # One role after the other, each over all rows: a shared base then switches its adapters four times in all.
    old, entropy = on_rows(batch, micro_batches, check, lambda rows: roles.policy.token_scores(rows, with_entropy=True))
    ref = logprobs_of(roles.reference, batch, micro_batches, check)
    (values,) = on_rows(batch, micro_batches, check, lambda rows: (roles.critic.values(rows),))
    scores = scores_of_rows(roles.reward_model, rows, micro_batches, check)
    seconds["score"] = time.perf_counter() - started
    return Rollout(rows, batch, ended, scores, old, ref, values, entropy, seconds)


def numbered_keys(iteration: int, n_prompts: int, n: int) -> list[str]:
    """What the random numbers of an iteration's responses are told by, n to each of its prompts."""
    return [f"{iteration}:{place}:{each}" for place in range(n_prompts) for each in range(n)]


def sample_responses(
    model: Any,
    prompts: Sequence[PromptItem],
    n: int,
    keys: Sequence[str],
    config: GenerationConfig,
    encoder: Encoder,
    machine: Machine,
    check: Callable[[], None],
    by: Callable[..., list[Generated]] = generate,
) -> tuple[list[ScoredRow], Tensor]:
    """n responses to each prompt, each drawn by the random numbers of its key, and (B,) bool: which ended by
    themselves. `by`: what samples."""
    drawn: list[Generated] = []
    for start in range(0, len(prompts), config.batch_size):
        batch = prompts[start : start + config.batch_size]
        drawn += by(
            model,
            [prompt.ids for prompt in batch],
            n,
            config,
            random_numbers(config.seed, keys[start * n : (start + len(batch)) * n], config.max_new_tokens),
            stop_ids=encoder.stop_ids,
            pad_id=encoder.pad_id,
            machine=machine,
            check=check,
        )
    owners = [prompt for prompt in prompts for _ in range(n)]
    rows = [
        ScoredRow(prompt.messages, prompt.ids, each.ids, encoder.decode(each.ids), prompt.facts)
        for prompt, each in zip(owners, drawn, strict=True)
    ]
    return rows, torch.tensor([each.has_ended for each in drawn], device=machine.device)


def pack_rows_of(rows: Sequence[ScoredRow], encoder: Encoder, machine: Machine) -> Sequences:
    """Responses with their prompts as one batch on the run's device."""
    return pack([row.prompt for row in rows], [row.response for row in rows], encoder.pad_id).to(machine.device)


@torch.no_grad()
def on_rows(
    batch: Sequences,
    micro_batches: Sequence[Tensor],
    check: Callable[[], None],
    compute: Callable[[Sequences], Sequence[Tensor]],
) -> list[Tensor]:
    """What `compute` says of every row, each (B, T), 0 at padding; it is asked of one micro-batch after the other.

    `check` is called before each and may raise to stop.
    """
    whole: list[Tensor] = []
    for index in micro_batches:
        check()
        parts = compute(batch.rows(index))
        whole = whole or [torch.zeros(batch.mask.shape, device=batch.mask.device) for _ in parts]
        for values, part in zip(whole, parts, strict=True):
            values[index, : part.shape[1]] = part
    return whole


def logprobs_of(
    policy: Policy, batch: Sequences, micro_batches: Sequence[Tensor], check: Callable[[], None] = lambda: None
) -> Tensor:
    """Log-probabilities of the response tokens under a policy, as it is now, (B, T), 0 at padding."""
    return on_rows(batch, micro_batches, check, policy.token_scores)[0]


def scores_of_rows(
    reward_model: RewardModel, rows: Sequence[ScoredRow], micro_batches: Sequence[Tensor], check: Callable[[], None]
) -> Tensor:
    """Scores (B,) of responses."""
    scores = torch.zeros(len(rows), device=micro_batches[0].device)
    for index in micro_batches:
        check()
        scores[index] = reward_model.score([rows[place] for place in index.tolist()]).to(scores)
    return scores


def micro_batches_of(batch: Sequences, tokens: int, *, is_shared: bool = False) -> Iterator[Tensor]:
    """Cut the rows into micro-batches of similar length whose size stays within `tokens`; (b,) int, which rows.

    A single row that is longer than that is one of its own. is_shared: the responses to a prompt count it once, and
    no row is padded; else padding counts.
    """
    device = batch.attention.device
    chosen: list[int] = []
    n_sequences = size = 0
    for length, rows in sorted(_sequences(batch, tokens, is_shared=is_shared), key=lambda sequence: sequence[0]):
        if chosen and (size + length if is_shared else (n_sequences + 1) * length) > tokens:
            yield torch.tensor(chosen, device=device)
            chosen, n_sequences, size = [], 0, 0
        chosen += rows
        n_sequences, size = n_sequences + 1, size + length
    if chosen:
        yield torch.tensor(chosen, device=device)


def _sequences(batch: Sequences, tokens: int, *, is_shared: bool) -> list[tuple[int, list[int]]]:
    """What lies in one sequence of a forward pass, and its length: a row, or those of a prompt as far as they fit."""
    lengths, prompts = batch.attention.sum(1).tolist(), batch.prompt_lengths.tolist()
    if not is_shared:
        return [(length, [row]) for row, length in enumerate(lengths)]
    ids = batch.ids.tolist()
    sequences: list[tuple[int, list[int]]] = []
    newest: dict[tuple[int, ...], int] = {}  # where the sequence with a prompt's last responses is
    for row in range(len(lengths)):
        prompt, response = tuple(ids[row][: prompts[row]]), lengths[row] - prompts[row]
        number = newest.get(prompt)
        if number is None or sequences[number][0] + response > tokens:
            newest[prompt] = len(sequences)
            sequences.append((lengths[row], [row]))
        else:
            length, others = sequences[number]
            sequences[number] = (length + response, [*others, row])
    return sequences
