"""One rollout: sample responses, score them, and record what the policy, the reference and the critic say of them.

No gradient flows through anything here. The policy's log-probabilities come from the same forward pass that training
uses, at the sampling temperature, never from the generator; so the ratio of the first update is 1.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from data.records import Messages
from training.config import PPOConfig
from training.encoding import Encoder, Sequences, pack
from training.generation import Generated, generate, random_numbers
from training.models import Machine
from training.roles import Roles, ScoredRow


@dataclass(frozen=True)
class PromptItem:
    """A prompt that PPO samples from, as token ids."""

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
    rows, ended = _sample(roles, prompts, config, encoder, machine, iteration, check, by)
    seconds["generate"] = time.perf_counter() - started
    batch = pack([row.prompt for row in rows], [row.response for row in rows], encoder.pad_id).to(machine.device)
    shape, device = batch.mask.shape, machine.device
    old, ref, values, entropy = (torch.zeros(shape, device=device) for _ in range(4))
    scores = torch.zeros(len(rows), device=device)
    started = time.perf_counter()
    lots = list(micro_batches(batch, config.micro_batch_tokens, is_shared=roles.shares_prompts))
    # One role after the other, each over all rows: a shared base then switches its adapters four times in all.
    for index in lots:
        check()
        part = roles.policy.token_scores(batch.rows(index), with_entropy=True)
        width = part.logprobs.shape[1]
        old[index, :width], entropy[index, :width] = part.logprobs, part.entropy
    for index in lots:
        check()
        part = roles.reference.token_scores(batch.rows(index))
        ref[index, : part.logprobs.shape[1]] = part.logprobs
    for index in lots:
        check()
        found = roles.critic.values(batch.rows(index))
        values[index, : found.shape[1]] = found
    for index in lots:
        check()
        scores[index] = roles.reward_model.score([rows[place] for place in index.tolist()]).to(device)
    seconds["score"] = time.perf_counter() - started
    return Rollout(rows, batch, ended.to(device), scores, old, ref, values, entropy, seconds)


@torch.no_grad()
def logprobs_after(
    roles: Roles, rollout: Rollout, index: Tensor, budget: int, check: Callable[[], None] = lambda: None
) -> Tensor:
    """Log-probabilities of some rows under the policy as it is now, (len(index), T), 0 at padding.

    `check` is called between forward passes and may raise to stop.
    """
    found = torch.zeros(len(index), rollout.batch.mask.shape[1], device=rollout.batch.mask.device)
    places = {row: place for place, row in enumerate(index.tolist())}
    for lot in micro_batches(rollout.batch, budget, index, is_shared=roles.shares_prompts):
        check()
        part = roles.policy.token_scores(rollout.batch.rows(lot)).logprobs
        found[[places[row] for row in lot.tolist()], : part.shape[1]] = part
    return found


def micro_batches(
    batch: Sequences, tokens: int, index: Tensor | None = None, *, is_shared: bool = False
) -> Iterator[Tensor]:
    """Cut rows (all, or those in `index`) into lots of similar length whose size stays within `tokens`.

    A single row that is longer than that is a lot of its own. is_shared: the responses to a prompt count it once, and
    no row is padded; else padding counts.
    """
    device = batch.attention.device
    places = list(range(len(batch.ids)) if index is None else index.tolist())
    lot: list[int] = []
    n_sequences = size = 0
    for length, rows in sorted(_sequences(batch, places, tokens, is_shared=is_shared), key=lambda each: each[0]):
        if lot and (size + length if is_shared else (n_sequences + 1) * length) > tokens:
            yield torch.tensor(lot, device=device)
            lot, n_sequences, size = [], 0, 0
        lot += rows
        n_sequences, size = n_sequences + 1, size + length
    if lot:
        yield torch.tensor(lot, device=device)


def _sequences(batch: Sequences, rows: list[int], tokens: int, *, is_shared: bool) -> list[tuple[int, list[int]]]:
    """What lies in one sequence of a forward pass, and its length: a row, or those of a prompt as far as they fit."""
    lengths, prompts = batch.attention.sum(1).tolist(), batch.prompt_lengths.tolist()
    if not is_shared:
        return [(lengths[row], [row]) for row in rows]
    ids = batch.ids.tolist()
    found: list[tuple[int, list[int]]] = []
    newest: dict[tuple[int, ...], int] = {}  # where the sequence with a prompt's last responses is
    for row in rows:
        prompt, response = tuple(ids[row][: prompts[row]]), lengths[row] - prompts[row]
        place = newest.get(prompt)
        if place is None or found[place][0] + response > tokens:
            newest[prompt] = len(found)
            found.append((lengths[row], [row]))
        else:
            length, others = found[place]
            found[place] = (length + response, [*others, row])
    return found


def _sample(
    roles: Roles,
    prompts: Sequence[PromptItem],
    config: PPOConfig,
    encoder: Encoder,
    machine: Machine,
    iteration: int,
    check: Callable[[], None],
    by: Callable[..., list[Generated]],
) -> tuple[list[ScoredRow], Tensor]:
    roles.policy.trunk.activate()
    n = config.responses_per_prompt
    drawn: list[Generated] = []
    for start in range(0, len(prompts), config.batch_size):
        lot = prompts[start : start + config.batch_size]
        keys = [f"{iteration}:{start + place}:{each}" for place in range(len(lot)) for each in range(n)]
        drawn += by(
            roles.policy.language_model,
            [prompt.ids for prompt in lot],
            n,
            config,
            random_numbers(config.seed, keys, config.max_new_tokens),
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
    return rows, torch.tensor([each.has_ended for each in drawn])
