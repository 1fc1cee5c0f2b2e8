"""A rollout as rows to keep: every number that the loop has for each response token."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from training.launch.config import PPOConfig
from training.lm.encoding import Encoder
from training.ppo.rollout import Credit, Rollout


def td_errors(rewards: Tensor, values: Tensor, mask: Tensor, gamma: float) -> Tensor:
    """reward_t + gamma * V_{t+1} - V_t, where V after the last token is 0; (B, T), 0 where mask is False."""
    values = torch.where(mask, values, 0)
    after = torch.cat([values[:, 1:], torch.zeros_like(values[:, :1])], dim=1)
    return torch.where(mask, rewards + gamma * after - values, 0)


def token_rows(
    rollout: Rollout, credit: Credit, config: PPOConfig, encoder: Encoder, kl_coef: float, n: int
) -> list[dict[str, Any]]:
    """The first n responses with all their numbers, for `data.files.rollouts`."""
    mask = rollout.batch.mask
    penalty = -kl_coef * credit.kl if config.kl_place == "reward" else torch.zeros_like(credit.kl)
    ratio = torch.ones_like(credit.kl)
    if credit.new_logprobs is not None:
        kept = credit.new_logprobs.shape
        ratio[: kept[0], : kept[1]] = (credit.new_logprobs - rollout.old_logprobs[: kept[0], : kept[1]]).exp()
    columns = {
        "logprob": rollout.old_logprobs,
        "ref_logprob": rollout.ref_logprobs,
        "kl_penalty": penalty,
        "reward": credit.rewards,
        "value": rollout.old_values,
        "td_error": td_errors(credit.rewards, rollout.old_values, mask, config.gamma),
        "advantage": credit.advantages,
        "return": credit.returns,
        "ratio": ratio,
    }
    beyond = (ratio - 1) * torch.sign(credit.advantages) > config.clip_range
    clipped = beyond if config.surrogate == "clip" else torch.zeros_like(beyond)
    rows = []
    for number, row in enumerate(rollout.rows[:n]):
        length = len(row.response)
        rows.append(
            {
                "prompt_key": str(number),
                "prompt": row.messages[-1]["content"],
                "response": row.text,
                "score": float(rollout.scores[number]),
                "score_after_penalty": float(credit.scores[number]),
                "kl": float(credit.kl[number].sum()),
                "ended": bool(rollout.ended[number]),
                "ids": row.response,
                "tokens": [encoder.show([token]) for token in row.response],
                **{name: values[number, :length].tolist() for name, values in columns.items()},
                "clipped": clipped[number, :length].tolist(),
            }
        )
    return rows
