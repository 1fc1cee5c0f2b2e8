"""One rollout: sample responses, score them, and record what the policy, the reference and the critic say of them.

No gradient flows through anything here. The policy's log-probabilities come from the same forward pass that training
uses, at the sampling temperature, never from the generator; so the ratio of the first update is 1.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from data.records import Messages
from training.launch.config import GenerationConfig, PPOConfig
from training.lm.encoding import Encoder, Sequences, pack
from training.lm.generation import Generated, generate, random_numbers
from training.lm.models import Machine
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
    old, values, entropy = (torch.zeros(batch.mask.shape, device=machine.device) for _ in range(3))
    started = time.perf_counter()
    lots = list(micro_batches(batch, config.micro_batch_tokens, is_shared=roles.shares_prompts))
    # One role after the other, each over all rows: a shared base then switches its adapters four times in all.
    for index in lots:
        check()
        part = roles.policy.token_scores(batch.rows(index), with_entropy=True)
        width = part.logprobs.shape[1]
        old[index, :width], entropy[index, :width] = part.logprobs, part.entropy
    ref = logprobs_of(roles.reference, batch, lots, check)
    for index in lots:
        check()
        found = roles.critic.values(batch.rows(index))
        values[index, : found.shape[1]] = found
    scores = scores_of_rows(roles.reward_model, rows, lots, check)
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
def logprobs_of(policy: Policy, batch: Sequences, lots: Sequence[Tensor], check: Callable[[], None]) -> Tensor:
    """Log-probabilities of the response tokens under a policy, (B, T), 0 at padding. `lots`: rows that go together."""
    logprobs = torch.zeros(batch.mask.shape, device=batch.mask.device)
    for index in lots:
        check()
        part = policy.token_scores(batch.rows(index)).logprobs
        logprobs[index, : part.shape[1]] = part
    return logprobs


def scores_of_rows(
    reward_model: RewardModel, rows: Sequence[ScoredRow], lots: Sequence[Tensor], check: Callable[[], None]
) -> Tensor:
    """Scores (B,) of responses. `lots`: rows that go together."""
    scores = torch.zeros(len(rows), device=lots[0].device)
    for index in lots:
        check()
        scores[index] = reward_model.score([rows[place] for place in index.tolist()]).to(scores)
    return scores


@torch.no_grad()
def logprobs_after(
    roles: Roles, rollout: Rollout, index: Tensor, budget: int, check: Callable[[], None] = lambda: None
) -> Tensor:
    """Log-probabilities of some rows under the policy as it is now, (len(index), T), 0 at padding.

    `check` is called between forward passes and may raise to stop.
    """
    logprobs = torch.zeros(len(index), rollout.batch.mask.shape[1], device=rollout.batch.mask.device)
    places = {row: place for place, row in enumerate(index.tolist())}
    for rows in micro_batches(rollout.batch, budget, index, is_shared=roles.shares_prompts):
        check()
        part = roles.policy.token_scores(rollout.batch.rows(rows)).logprobs
        logprobs[[places[row] for row in rows.tolist()], : part.shape[1]] = part
    return logprobs


def micro_batches(
    batch: Sequences, tokens: int, index: Tensor | None = None, *, is_shared: bool = False
) -> Iterator[Tensor]:
    """Cut rows (all, or those in `index`) into lots of similar length whose size stays within `tokens`.

    A single row that is longer than that is a lot of its own. is_shared: the responses to a prompt count it once, and
    no row is padded; else padding counts.
    """
    device = batch.attention.device
    places = list(range(len(batch.ids)) if index is None else index.tolist())
    chosen: list[int] = []
    n_sequences = size = 0
    for length, rows in sorted(_sequences(batch, places, tokens, is_shared=is_shared), key=lambda each: each[0]):
        if chosen and (size + length if is_shared else (n_sequences + 1) * length) > tokens:
            yield torch.tensor(chosen, device=device)
            chosen, n_sequences, size = [], 0, 0
        chosen += rows
        n_sequences, size = n_sequences + 1, size + length
    if chosen:
        yield torch.tensor(chosen, device=device)


def _sequences(batch: Sequences, rows: list[int], tokens: int, *, is_shared: bool) -> list[tuple[int, list[int]]]:
    """What lies in one sequence of a forward pass, and its length: a row, or those of a prompt as far as they fit."""
    lengths, prompts = batch.attention.sum(1).tolist(), batch.prompt_lengths.tolist()
    if not is_shared:
        return [(lengths[row], [row]) for row in rows]
    ids = batch.ids.tolist()
    sequences: list[tuple[int, list[int]]] = []
    newest: dict[tuple[int, ...], int] = {}  # where the sequence with a prompt's last responses is
    for row in rows:
        prompt, response = tuple(ids[row][: prompts[row]]), lengths[row] - prompts[row]
        number = newest.get(prompt)
        if number is None or sequences[number][0] + response > tokens:
            newest[prompt] = len(sequences)
            sequences.append((lengths[row], [row]))
        else:
            length, others = sequences[number]
            sequences[number] = (length + response, [*others, row])
    return sequences
