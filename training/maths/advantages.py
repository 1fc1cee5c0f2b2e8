"""Rewards per token, advantages and returns."""

from __future__ import annotations

import torch
from torch import Tensor


def token_rewards(scores: Tensor, kl: Tensor, mask: Tensor, kl_coef: float) -> Tensor:
    """Join the reward model's score and the KL penalty into one reward per token.

    scores: (B,), any range. kl: (B, T), nats, estimate of KL(policy || reference).
    mask: (B, T) bool, True where a response token counts; each row has at least one True.
    Returns (B, T): -kl_coef * kl where mask, plus the score at each row's last True; 0 elsewhere.
    No gradient is expected to flow. Raises ValueError if a row of mask has no True.
    Source: Ziegler et al. 2019, eq. 2; spread over the tokens as in their code.
    """
    if not bool(mask.any(dim=1).all()):
        raise ValueError("a response without a token has no place for its score")
    places = torch.arange(mask.shape[1], device=mask.device)
    last = torch.where(mask, places, -1).amax(dim=1)
    rewards = torch.where(mask, -kl_coef * kl, 0)
    rewards[torch.arange(len(scores), device=mask.device), last] += scores.to(rewards.dtype)
    return rewards


def gae(rewards: Tensor, values: Tensor, mask: Tensor, gamma: float, lam: float) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimation over response tokens that start each row.

    rewards, values: (B, T). mask: (B, T) bool, True where a token counts. What stands at other places never leaks in.
    Returns (advantages, returns), both (B, T) and 0 where mask is False; returns = advantages + values.
    Source: Schulman et al. 2016, eq. 16, from the last token to the first.
    """
    rewards, values = torch.where(mask, rewards, 0), torch.where(mask, values, 0)
    advantages = torch.zeros_like(rewards)
    carried = torch.zeros_like(rewards[:, 0])
    next_value = torch.zeros_like(carried)
    for t in reversed(range(rewards.shape[1])):
        delta = rewards[:, t] + gamma * next_value - values[:, t]
        carried = torch.where(mask[:, t], delta + gamma * lam * carried, 0)
        advantages[:, t] = carried
        next_value = values[:, t]
    return advantages, torch.where(mask, advantages + values, 0)


def explained_variance(values: Tensor, returns: Tensor, mask: Tensor) -> Tensor:
    """1 - mean squared error / variance of the returns, over the True places of `mask`; 0 where they do not vary.

    Unlike the form with the variance of the error, it sees a critic that is off by a constant.
    """
    counted = returns[mask]
    variance = counted.var(correction=0) if counted.numel() else torch.zeros(())
    if not bool(variance > 0):
        return torch.zeros((), dtype=returns.dtype)
    return 1 - (values[mask] - counted).square().mean() / variance


def centred_explained_variance(values: Tensor, returns: Tensor, mask: Tensor) -> Tensor:
    """1 - variance of the error / variance of the returns: the form of most programs, blind to a constant error."""
    error = torch.where(mask, values - returns, 0)
    return explained_variance(values - error[mask].mean() if mask.any() else values, returns, mask)
