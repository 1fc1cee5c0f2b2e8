"""One update of PPO: the optimizer steps of the policy and of the critic on a rollout."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from training.launch.config import PPOConfig
from training.lm.encoding import pack
from training.lm.generation import Generate, generate
from training.maths.kl import kl_loss
from training.maths.losses import PolicyStats, penalised_policy_loss, policy_loss, value_loss
from training.maths.masked import token_weights
from training.ppo.learner import Learner
from training.ppo.rollout import Rollout, micro_batches

RATIO_DEVIATION = "ratio_deviation"
Metrics = dict[str, float]


def update_minibatch(
    config: PPOConfig,
    learner: Learner,
    rollout: Rollout,
    advantages: Tensor,
    returns: Tensor,
    index: Tensor,
    *,
    number: int,
    trains_policy: bool,
    check: Callable[[], None] = lambda: None,
) -> Metrics:
    """One optimizer step of the critic and, where asked, of the policy, on the rows in `index`.

    Losses are sums under weights made for the whole minibatch, so cutting it into micro-batches changes nothing.
    `number`: which step of the iteration it is. `check` is called before each micro-batch and may raise to stop; no
    weight has changed then.
    """
    mask = rollout.batch.mask
    policy_weights, value_weights = torch.zeros(mask.shape).to(advantages), torch.zeros(mask.shape).to(advantages)
    policy_weights[index] = token_weights(mask[index], config.loss_mean)
    value_weights[index] = token_weights(mask[index], "token")
    learner.policy_optimizer.zero_grad(set_to_none=True)
    learner.critic_optimizer.zero_grad(set_to_none=True)
    totals: Metrics = defaultdict(float)
    roles = learner.roles
    lots = list(micro_batches(rollout.batch, config.micro_batch_tokens, index, is_shared=roles.shares_prompts))
    for lot in lots:
        check()
        backward_critic(config, learner, rollout, returns, value_weights, lot, totals)
    if trains_policy:
        for lot in lots:
            check()
            backward_policy(config, learner, rollout, advantages, policy_weights, lot, totals)
        if config.ptx_coef:
            totals["ptx/loss"] = backward_ptx(config, learner, len(index), number, check)
        totals["policy/grad_norm"] = step(learner.policy_optimizer, roles.policy_parameters, config.max_grad_norm)
    totals["value/grad_norm"] = step(learner.critic_optimizer, roles.critic_parameters, config.max_grad_norm)
    return totals


def backward_policy(
    config: PPOConfig,
    learner: Learner,
    rollout: Rollout,
    advantages: Tensor,
    all_weights: Tensor,
    index: Tensor,
    totals: Metrics,
) -> None:
    """Add one micro-batch's gradient of the policy's loss, and its figures to `totals`."""
    batch = rollout.batch.rows(index)
    width = batch.mask.shape[1]
    weights = all_weights[index, :width]
    scored = learner.roles.policy.token_scores(batch, with_entropy=config.entropy_coef > 0)
    old, advantage = rollout.old_logprobs[index, :width], advantages[index, :width]
    loss, stats = surrogate(config, learner, scored.logprobs, old, advantage, weights)
    if config.kl_place == "loss":
        estimate = kl_loss(scored.logprobs, rollout.ref_logprobs[index, :width], config.kl_estimator)
        loss = loss + learner.kl_coef * (weights * estimate).sum()
    loss = loss - config.entropy_coef * (weights * scored.entropy).sum()
    torch.autograd.backward(loss)
    totals["policy/loss"] += loss.item()
    totals["policy/clip_fraction"] += stats.clip_fraction.item()
    totals["policy/approx_kl"] += stats.approx_kl.item()
    totals["policy/ratio"] += stats.ratio.item()
    totals[RATIO_DEVIATION] = max(totals[RATIO_DEVIATION], stats.max_ratio_deviation.item())


def surrogate(
    config: PPOConfig, learner: Learner, logprobs: Tensor, old: Tensor, advantages: Tensor, weights: Tensor
) -> tuple[Tensor, PolicyStats]:
    """The policy's loss in the form that was asked for."""
    if config.surrogate == "penalty":
        return penalised_policy_loss(logprobs, old, advantages, weights, learner.update_kl_coef)
    return policy_loss(logprobs, old, advantages, weights, config.clip_range)


def backward_critic(
    config: PPOConfig,
    learner: Learner,
    rollout: Rollout,
    returns: Tensor,
    all_weights: Tensor,
    index: Tensor,
    totals: Metrics,
) -> None:
    """Add one micro-batch's gradient of the critic's loss, and its figures to `totals`."""
    batch = rollout.batch.rows(index)
    width = batch.mask.shape[1]
    values = learner.roles.critic.values(batch)
    loss, clipped = value_loss(
        values,
        rollout.old_values[index, :width],
        returns[index, :width],
        all_weights[index, :width],
        config.value_clip_range,
    )
    torch.autograd.backward(loss)
    totals["value/loss"] += loss.item()
    totals["value/clip_fraction"] += clipped.item()


def backward_ptx(
    config: PPOConfig, learner: Learner, n: int, number: int, check: Callable[[], None] = lambda: None
) -> float:
    """PPO-ptx: add the gradient of a language-model loss on n best-ranked responses; return the loss.

    Each step of each iteration draws its own. Source: Ouyang et al. 2022, eq. 2, with demonstrations in the place of
    pretraining text.
    """
    generator = torch.Generator().manual_seed((config.seed * 100_003 + learner.iteration) * 1_009 + number)
    places = torch.randint(len(learner.best_of), (n,), generator=generator).tolist()
    device = next(iter(learner.roles.policy_parameters.values())).device
    pairs = [learner.best_of[place] for place in places]
    batch = pack([prompt for prompt, _ in pairs], [response for _, response in pairs], pad_id=0).to(device)
    weights, total = token_weights(batch.mask, "token"), 0.0
    for index in micro_batches(batch, config.micro_batch_tokens, is_shared=learner.roles.shares_prompts):
        check()
        part = batch.rows(index)
        logprobs = learner.roles.policy.token_scores(part).logprobs
        loss = -(weights[index, : part.mask.shape[1]] * logprobs).sum()
        torch.autograd.backward(config.ptx_coef * loss)
        total += loss.item()
    return total


def step(optimizer: torch.optim.Optimizer, parameters: dict[str, nn.Parameter], max_norm: float) -> float:
    """Clip the gradient and take a step; return the gradient's norm before clipping."""
    norm = nn.utils.clip_grad_norm_(list(parameters.values()), max_norm)
    optimizer.step()
    return float(norm)


class Update(Protocol):
    """Does one optimizer step of the critic and, where asked, of the policy, on the rows in `index`; returns figures.

    `check` may raise to stop before anything has changed. `ratio_deviation`, of the ratio from 1, has to be there.
    """

    def __call__(
        self,
        config: PPOConfig,
        learner: Learner,
        rollout: Rollout,
        advantages: Tensor,
        returns: Tensor,
        index: Tensor,
        *,
        number: int,
        trains_policy: bool,
        check: Callable[[], None],
    ) -> Metrics: ...


class Seams(NamedTuple):
    """What of the loop another engine can stand in for: sampling and the optimizer step; ours unless others are named.

    `train(..., seams=Seams(generate=by_a_server))` samples elsewhere. Scoring is `roles.RewardModel`, a part of the
    roles. The loop checks what comes of them as it does its own: responses need an id at least, and the first ratio has
    to be 1, which it measures itself, whoever sampled.
    """

    generate: Generate = generate
    update: Update = update_minibatch
