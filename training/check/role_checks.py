"""Does each role of a PPO run give the numbers of the model that it stands for, and what is saved of it those of it?

Adapters on a shared base, merged weights and files are other ways to the same numbers. What rounding can't explain is
an error: a run against a wrong reward model learns well, and the wrong thing.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from training.jobs.reporter import Reporter
from training.launch.config import PPOConfig
from training.lm.checkpoint import kept_random_state
from training.lm.encoding import Encoder, Sequences, pack
from training.lm.models import Machine, ModelSource, backbone, load_classifier, load_language_model
from training.lm.recorded_scores import difference
from training.lm.scorer import Scorer
from training.maths.losses import selected_logprobs
from training.ppo.roles import Critic, Roles, ScoredRow, SeparateRewardModel
from training.ppo.rollout import PromptItem
from training.ppo.save_roles import CRITIC_FILE, save_critic, save_policy

_PROMPTS, _PROMPT_TOKENS, _RESPONSE_TOKENS = 4, 24, 4
_STIRRED = 0.05  # standard deviation of what is put in adapters that have learnt nothing
_CPU = Machine(torch.device("cpu"), is_bf16=False)


class Start(NamedTuple):
    """What the roles say of a few short texts before the first update, in their own layout."""

    rows: list[ScoredRow]
    batch: Sequences
    scores: Tensor  # (B,)
    reference: Tensor  # (M,) log-probabilities
    values: Tensor  # (B,) before the last token


@torch.no_grad()
def numbers_at_start(roles: Roles, prompts: Sequence[PromptItem], encoder: Encoder) -> Start:
    """What the roles say of the beginnings of some prompts, followed by a few of their own tokens."""
    rows = []
    for prompt in prompts[:_PROMPTS]:
        response = [*prompt.ids[:_RESPONSE_TOKENS], encoder.end_id]
        asked = prompt.ids[:_PROMPT_TOKENS]
        rows.append(ScoredRow(prompt.messages, asked, response, encoder.decode(response), prompt.facts))
    batch = pack([row.prompt for row in rows], [row.response for row in rows], encoder.pad_id)
    batch = batch.to(roles.policy.trunk.machine.device)
    last = batch.mask.sum(1) - 1
    values = roles.critic.values(batch)[torch.arange(len(rows)), last]
    reference = roles.reference.token_scores(batch).logprobs[batch.mask]
    return Start(rows, batch, roles.reward_model.score(rows), reference, values)


def compare_with_models(
    start: Start, roles: Roles, config: PPOConfig, reporter: Reporter, source: ModelSource, machine: Machine
) -> str:
    """Compare that with the models by themselves: reward model, the policy that training starts from, critic.

    They are loaded on the CPU, one after the other. Raises InvalidInput.
    """
    is_half, judge = machine.is_bf16, roles.reward_model
    scorer = (
        judge.scorer
        if isinstance(judge, SeparateRewardModel)
        else Scorer(reporter.home, reporter.run.reward_run_id or "", _CPU)
    )
    wanted = scorer.score_ids([judge.reading.text(row).ids for row in start.rows])
    of_scores = difference("the reward model against its scorer", start.scores, wanted, is_half=is_half)
    scale = scorer.info.std if config.advantages.score_scale == "sft" and scorer.info.std > 0 else 1.0
    before = scorer.score_ids([[*row.prompt, *row.response[:-1]] for row in start.rows]) / scale
    if not judge.reading.shares_ids:
        before = torch.zeros_like(before)
    of_values = difference("the critic against the reward model", start.values, before, is_half=is_half)
    del scorer
    model = load_language_model(source, machine.frozen_dtype if config.adapter == "lora" else torch.float32)
    wanted = plain_logprobs(model, start.batch, config.sampling.temperature)
    of_reference = difference("the reference against its model", start.reference, wanted, is_half=is_half)
    return (
        f"on {len(start.rows)} texts the scores are off by {of_scores:.1g}, the critic's first values by "
        f"{of_values:.1g}, the reference's log-probabilities by {of_reference:.1g} nats"
    )


def check_saving(roles: Roles, tokenizer: Any, encoder: Encoder, start: Start, folder: Path, *, is_half: bool) -> str:
    """Save policy and critic, load them with plain transformers and compare; the files are removed again.

    Adapters are filled with noise first: one that has learnt nothing would be saved well by leaving it out. So nothing
    can be learnt with the roles afterwards. Raises InvalidInput.
    """
    batch, (policy, critic) = start.batch, (roles.policy, roles.critic)
    _stir({**roles.policy_parameters, **roles.critic_parameters})
    with torch.no_grad():
        logprobs, values = policy.token_scores(batch).logprobs[batch.mask], critic.values(batch)[batch.mask]
        without = None
        if critic.trunk.switch is not None:
            without = Critic(replace(critic.trunk, adapter=None), critic.head).values(batch)[batch.mask]
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".saved-", dir=folder) as name:
        saved = Path(name)
        save_policy(policy, tokenizer, saved / "policy", encoder)
        model = load_language_model(ModelSource("the saved policy", str(saved / "policy"), ""), torch.float32)
        wanted, bare = (
            plain_logprobs(model, batch, policy.temperature),
            start.reference if without is not None else None,
        )
        del model
        what = "the saved policy against the one in memory"
        of_policy = difference(what, wanted, logprobs, is_half=is_half, bare=bare)
        save_critic(critic, tokenizer, saved / "critic", encoder)
        wanted, what = plain_values(saved / "critic", batch), "the saved critic against the one in memory"
        of_critic = difference(what, wanted, values, is_half=is_half, bare=without)
        written = sum(path.stat().st_size for path in saved.rglob("*") if path.is_file())
    return (
        f"loaded by plain transformers the policy's log-probabilities are off by {of_policy:.1g} nats, the critic's "
        f"values by {of_critic:.1g}; {written / 1e6:,.0f} MB were written, and removed"
    )


@torch.no_grad()
def plain_logprobs(model: Any, batch: Sequences, temperature: float) -> Tensor:
    """Log-probabilities (M,) of the response tokens, by a forward pass that nothing of ours is in."""
    ids, attention = batch.ids.to(model.device), batch.attention.to(model.device)
    logits = model(input_ids=ids, attention_mask=attention, use_cache=False).logits
    return selected_logprobs(logits[_before(batch)], batch.response_tokens().to(model.device), temperature)


@torch.no_grad()
def plain_values(folder: Path, batch: Sequences) -> Tensor:
    """Values (M,) before the response tokens, of a saved critic."""
    model = load_classifier(ModelSource("the saved critic", str(folder), ""), torch.float32)
    ids, attention = batch.ids.cpu(), batch.attention.cpu()
    states = backbone(model)(input_ids=ids, attention_mask=attention, use_cache=False).last_hidden_state
    bias: float = json.loads((folder / CRITIC_FILE).read_text(encoding="utf-8"))["bias"]
    values: Tensor = model.score(states[_before(batch)]).squeeze(-1) + bias
    return values


def _before(batch: Sequences) -> tuple[Tensor, Tensor]:
    """Row and place of what predicts each response token, on the CPU."""
    row, token = batch.mask.cpu().nonzero(as_tuple=True)
    return row, batch.prompt_lengths.cpu()[row] + token - 1


def _stir(parameters: Mapping[str, nn.Parameter]) -> None:
    with torch.no_grad(), kept_random_state():
        for name, each in parameters.items():
            if ".lora_B." in name:
                each.normal_(0, _STIRRED)
