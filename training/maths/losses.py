"""Losses. Each returns the scalar to minimise and, where there is something to watch, detached statistics.

Token losses take `weights` (B, T) that sum to 1 over the whole minibatch (`masked.token_weights`): the sum over
micro-batches is then the minibatch's mean, however it is cut.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class RankingLoss(NamedTuple):
    """`loss`: scalar. `pair_accuracy`: mean over groups of the share of pairs in the right order, equal scores half."""

    loss: Tensor
    pair_accuracy: Tensor
    n_groups: int


class PolicyStats(NamedTuple):
    """Detached sums over the micro-batch, each weighted by the token weights, so that they add up to means."""

    clip_fraction: Tensor
    approx_kl: Tensor
    ratio: Tensor
    max_ratio_deviation: Tensor


def ranking_loss(
    scores: Tensor,
    ranks: Tensor,
    groups: Tensor,
    weights: Tensor | None = None,
    centring: float = 0.0,
    preferences: Tensor | None = None,
    margins: Tensor | None = None,
) -> RankingLoss:
    """Pairwise ranking loss over whole rankings: -mean over pairs of log sigmoid(r_w - r_l), mean over groups.

    scores: (N,), one forward pass per response. ranks: (N,) int, 1 is best. groups: (N,) int, which ranking a response
    belongs to, from 0. weights: (G,), 1 in the mean over the data set; None: all 1. A tie gives no pair; a group
    without a pair gives no term. centring: weight of each group's squared mean score.
    preferences: (N, N), how sure it is that response i is better than j, in place of what the ranks say: the loss of a
    pair is then the cross-entropy with that as target, and it counts in pair_accuracy if one side is surer. Both
    directions sum to 1, or are 0 where there is no pair; 0 between groups. Every group with a pair needs a sure one.
    margins: (N, N), by how much r_i - r_j should be more than 0: taken from it (Touvron et al. 2023, eq. 2).
    Raises ValueError if no group has a pair. Source: Ouyang et al. 2022, eq. 1.
    """
    scores = _at_least_float32(scores)
    if preferences is None:
        better = (groups[:, None] == groups[None, :]) & (ranks[:, None] < ranks[None, :])  # (N, N)
        is_pair, target = better, better.to(scores.dtype)
    else:
        target = preferences.to(scores.dtype)
        # `target` names a pair in both directions, so its upper triangle counts it once.
        better, is_pair = target > target.T, (target + target.T > 0).triu()  # (N, N)
    n_groups = int(groups.max()) + 1
    nothing = torch.zeros(n_groups, dtype=scores.dtype, device=scores.device)
    # A pair lies within a group, so the sum of row i belongs to the group of response i.
    sure_of_group = nothing.index_add(0, groups, better.sum(1).to(scores.dtype))  # (G,)
    pairs_of_group = nothing.index_add(0, groups, is_pair.sum(1).to(scores.dtype))  # (G,)
    differences = scores[:, None] - scores[None, :]  # (N, N)
    missing = -differences if margins is None else margins.to(scores.dtype) - differences
    share = (1 / pairs_of_group.clamp(min=1))[groups][:, None] * target  # (N, N), sums to 1 in a group with a pair
    losses = nothing.index_add(0, groups, (F.softplus(missing) * share).sum(1))  # (G,)
    right = (differences.detach() > 0).to(scores.dtype) + 0.5 * (differences.detach() == 0)
    judged = (1 / sure_of_group.clamp(min=1))[groups][:, None] * better  # (N, N)
    accuracy = nothing.index_add(0, groups, (right * judged).sum(1))  # (G,)
    return _over_groups(losses + centring * _squared_means(scores, groups, n_groups), accuracy, sure_of_group, weights)


def plackett_luce_loss(
    scores: Tensor, ranks: Tensor, groups: Tensor, weights: Tensor | None = None, centring: float = 0.0
) -> RankingLoss:
    """-log likelihood of choosing the responses one by one, the best first, each with probability softmax of the scores
    of those that are left; mean over the choices of a ranking, mean over groups. For two responses it is the pairwise
    loss. Arguments and result as of `ranking_loss`.

    Equal ranks are choices from one and the same rest, those chosen included (Breslow); the last rank is no choice.
    Raises ValueError if no group has a pair. Sources: Plackett 1975; Breslow 1974.
    """
    scores = _at_least_float32(scores)
    same = groups[:, None] == groups[None, :]  # (N, N)
    better, left = same & (ranks[:, None] < ranks[None, :]), same & (ranks[:, None] <= ranks[None, :])
    rest = torch.where(left, scores[None, :], -torch.inf).logsumexp(1)  # (N,); each is in its own rest
    is_choice = better.any(1).to(scores.dtype)  # (N,)
    n_groups = int(groups.max()) + 1
    nothing = torch.zeros(n_groups, dtype=scores.dtype, device=scores.device)
    choices = nothing.index_add(0, groups, is_choice)  # (G,)
    losses = nothing.index_add(0, groups, (rest - scores) * is_choice) / choices.clamp(min=1)  # (G,)
    differences = scores.detach()[:, None] - scores.detach()[None, :]  # (N, N)
    right = ((differences > 0).to(scores.dtype) + 0.5 * (differences == 0)) * better
    pairs = nothing.index_add(0, groups, better.sum(1).to(scores.dtype))  # (G,)
    accuracy = nothing.index_add(0, groups, right.sum(1)) / pairs.clamp(min=1)  # (G,)
    return _over_groups(losses + centring * _squared_means(scores, groups, n_groups), accuracy, pairs, weights)


def _squared_means(scores: Tensor, groups: Tensor, n_groups: int) -> Tensor:
    nothing = torch.zeros(n_groups, dtype=scores.dtype, device=scores.device)
    sizes = nothing.index_add(0, groups, torch.ones_like(scores))  # (G,)
    return (nothing.index_add(0, groups, scores) / sizes.clamp(min=1)).square()


def _over_groups(losses: Tensor, accuracy: Tensor, pairs: Tensor, weights: Tensor | None) -> RankingLoss:
    """Means over the groups that have a pair."""
    has_pair = pairs > 0
    if not bool(has_pair.any()):
        raise ValueError("all ranks are tied in every ranking of the batch: there is no pair to learn from")
    factor = torch.ones_like(losses) if weights is None else weights.to(losses.dtype)
    return RankingLoss((losses * factor)[has_pair].mean(), accuracy[has_pair].mean(), int(has_pair.sum()))


def policy_loss(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, weights: Tensor, clip_range: float
) -> tuple[Tensor, PolicyStats]:
    """Clipped surrogate: -sum of weights * min(ratio * A, clip(ratio, 1 - eps, 1 + eps) * A).

    All arguments (B, T); weights are 0 at padding. Gradients flow through `logprobs` only.
    Source: Schulman et al. 2017, eq. 7.
    """
    log_ratio = torch.where(weights > 0, logprobs - old_logprobs, 0)
    advantages = torch.where(weights > 0, advantages, 0)
    ratio = log_ratio.exp()
    unclipped = ratio * advantages
    clipped = ratio.clamp(1 - clip_range, 1 + clip_range) * advantages
    loss = -(weights * torch.minimum(unclipped, clipped)).sum()
    with torch.no_grad():
        stats = PolicyStats(
            clip_fraction=(weights * (clipped < unclipped)).sum(),
            approx_kl=(weights * (torch.expm1(log_ratio) - log_ratio)).sum(),
            ratio=(weights * ratio).sum(),
            max_ratio_deviation=((ratio - 1).abs() * (weights > 0)).max(),
        )
    return loss, stats


def penalised_policy_loss(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, weights: Tensor, kl_coef: float
) -> tuple[Tensor, PolicyStats]:
    """The other surrogate: -sum of weights * (ratio * A - kl_coef * KL(old, new)). Arguments as of `policy_loss`.

    KL(old, new) at a token that old has drawn is estimated by ratio - 1 - log ratio, whose gradient is right too.
    Source: Schulman et al. 2017, eq. 8.
    """
    log_ratio = torch.where(weights > 0, logprobs - old_logprobs, 0)
    ratio = log_ratio.exp()
    kl = torch.expm1(log_ratio) - log_ratio
    loss = -(weights * (ratio * torch.where(weights > 0, advantages, 0) - kl_coef * kl)).sum()
    with torch.no_grad():
        deviation = ((ratio - 1).abs() * (weights > 0)).max()
        stats = PolicyStats(torch.zeros_like(loss), (weights * kl).sum(), (weights * ratio).sum(), deviation)
    return loss, stats


def value_loss(
    values: Tensor, old_values: Tensor, returns: Tensor, weights: Tensor, clip_range: float | None
) -> tuple[Tensor, Tensor]:
    """1/2 * sum of weights * max((V - R)^2, (clip(V, V_old - c, V_old + c) - R)^2); c None: plain squared error.

    All tensors (B, T); weights are 0 at padding. Returns (loss, share of tokens where the clipped term was larger).
    Source: Schulman et al. 2017, as in OpenAI's code.
    """
    error = torch.where(weights > 0, values - returns, 0).square()
    if clip_range is None:
        return 0.5 * (weights * error).sum(), torch.zeros((), device=values.device)
    clipped = old_values + (values - old_values).clamp(-clip_range, clip_range)
    clipped_error = torch.where(weights > 0, clipped - returns, 0).square()
    loss = 0.5 * (weights * torch.maximum(error, clipped_error)).sum()
    return loss, (weights * (clipped_error > error)).sum().detach()


def selected_logprobs(logits: Tensor, chosen: Tensor, temperature: float) -> Tensor:
    """Log-probability of the chosen tokens at the sampling temperature, in nats.

    logits: (M, V), any precision. chosen: (M,) int. Returns (M,), float32 at least. Gradients flow.
    """
    logprobs = torch.log_softmax(_at_least_float32(logits) / temperature, dim=-1)
    return logprobs.gather(-1, chosen[:, None]).squeeze(-1)  # gather wants as many dimensions as (M, V) has


def entropy(logits: Tensor, temperature: float) -> Tensor:
    """Entropy of the next-token distribution at the sampling temperature, in nats. logits: (M, V); returns (M,)."""
    logprobs = torch.log_softmax(_at_least_float32(logits) / temperature, dim=-1)
    return -(logprobs.exp() * logprobs).sum(-1)


def _at_least_float32(values: Tensor) -> Tensor:
    return values.to(torch.promote_types(values.dtype, torch.float32))
