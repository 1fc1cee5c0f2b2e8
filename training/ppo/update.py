"""One update of PPO: the optimizer steps of the policy and of the critic on a rollout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from training.ppo.roles import Critic, Policy
from training.ppo.rollout import Minibatch, micro_batches_of

RATIO_DEVIATION = "ratio_deviation"
Metrics = dict[str, float]


def update_minibatch(
    config: PPOConfig,
    learner: Learner,
    minibatch: Minibatch,
    *,
    number: int,
    trains_policy: bool,
    check: Callable[[], None] = lambda: None,
) -> Metrics:
    """One optimizer step of the critic and, where asked, of the policy; returns its figures.

    `number`: which step of the iteration it is. `check` is called before each micro-batch and may raise to stop; no
    weight has changed then.
    """
    roles = learner.roles
    learner.policy_optimizer.zero_grad(set_to_none=True)
    learner.critic_optimizer.zero_grad(set_to_none=True)
    micro_batches = list(
        micro_batches_of(minibatch.batch, config.machine.micro_batch_tokens, is_shared=roles.shares_prompts)
    )
    parts: list[Metrics] = []
    for index in micro_batches:
        check()
        parts.append(backward_critic(config, learner, minibatch.rows(index)))
    figures = total(parts)
    if trains_policy:
        parts = []
        for index in micro_batches:
            check()
            parts.append(backward_policy(config, learner, minibatch.rows(index)))
        figures |= total(parts)
        if config.optimiser.ptx_coef:
            figures["ptx/loss"] = backward_ptx(config, learner, len(minibatch.batch.ids), number, check)
        figures["policy/grad_norm"] = step(
            learner.policy_optimizer, roles.policy_parameters, config.optimiser.max_grad_norm
        )
    figures["value/grad_norm"] = step(learner.critic_optimizer, roles.critic_parameters, config.optimiser.max_grad_norm)
    return figures


def total(parts: Sequence[Metrics]) -> Metrics:
    """The figures of a minibatch: those of its micro-batches add up; of the ratio's deviation the largest counts."""
    sums = {name: sum(part[name] for part in parts) for name in parts[0]}
    if RATIO_DEVIATION in sums:
        sums[RATIO_DEVIATION] = max(part[RATIO_DEVIATION] for part in parts)
    return sums


def backward_policy(config: PPOConfig, learner: Learner, rows: Minibatch) -> Metrics:
    """Add the gradient of the policy's loss on some rows of a minibatch; return its part of the figures."""
    loss, stats = loss_of_policy(config, learner.roles.policy, rows, learner.kl_coef, learner.update_kl_coef)
    torch.autograd.backward(loss)
    return {
        "policy/loss": loss.item(),
        "policy/clip_fraction": stats.clip_fraction.item(),
        "policy/approx_kl": stats.approx_kl.item(),
        "policy/ratio": stats.ratio.item(),
        RATIO_DEVIATION: stats.max_ratio_deviation.item(),
    }


def loss_of_policy(
    config: PPOConfig, policy: Policy, rows: Minibatch, kl_coef: float, update_kl_coef: float
) -> tuple[Tensor, PolicyStats]:
    """The surrogate that was asked for, with the KL to the reference where it stands in the loss, and entropy."""
    weights, entropy_coef = rows.policy_weights, config.optimiser.entropy_coef
    scored = policy.token_scores(rows.batch, with_entropy=entropy_coef > 0)
    recorded = (scored.logprobs, rows.old_logprobs, rows.advantages, weights)
    if config.limits.surrogate == "penalty":
        loss, stats = penalised_policy_loss(*recorded, update_kl_coef)
    else:
        loss, stats = policy_loss(*recorded, config.limits.clip_range)
    if config.kl.place == "loss":
        estimate = kl_loss(scored.logprobs, rows.ref_logprobs, config.kl.estimator)
        loss = loss + kl_coef * (weights * estimate).sum()
    return loss - entropy_coef * (weights * scored.entropy).sum(), stats


def backward_critic(config: PPOConfig, learner: Learner, rows: Minibatch) -> Metrics:
    """Add the gradient of the critic's loss on some rows of a minibatch; return its part of the figures."""
    loss, clipped = loss_of_critic(config, learner.roles.critic, rows)
    torch.autograd.backward(loss)
    return {"value/loss": loss.item(), "value/clip_fraction": clipped.item()}


def loss_of_critic(config: PPOConfig, critic: Critic, rows: Minibatch) -> tuple[Tensor, Tensor]:
    """The clipped squared error of the values, and the share of tokens where it was clipped."""
    values, clip_range = critic.values(rows.batch), config.limits.value_clip_range
    return value_loss(values, rows.old_values, rows.returns, rows.value_weights, clip_range)


def backward_ptx(
    config: PPOConfig, learner: Learner, n: int, number: int, check: Callable[[], None] = lambda: None
) -> float:
    """PPO-ptx: add the gradient of a language-model loss on n best-ranked responses; return the loss.

    Each step of each iteration draws its own. Source: Ouyang et al. 2022, eq. 2, with demonstrations in the place of
    pretraining text.
    """
    generator = torch.Generator().manual_seed((config.machine.seed * 100_003 + learner.iteration) * 1_009 + number)
    places = torch.randint(len(learner.best_of), (n,), generator=generator).tolist()
    device = next(iter(learner.roles.policy_parameters.values())).device
    pairs = [learner.best_of[place] for place in places]
    batch = pack([prompt for prompt, _ in pairs], [response for _, response in pairs], pad_id=0).to(device)
    weights, total_loss = token_weights(batch.mask, "token"), 0.0
    for index in micro_batches_of(batch, config.machine.micro_batch_tokens, is_shared=learner.roles.shares_prompts):
        check()
        part = batch.rows(index)
        logprobs = learner.roles.policy.token_scores(part).logprobs
        loss = -(weights[index, : part.mask.shape[1]] * logprobs).sum()
        torch.autograd.backward(config.optimiser.ptx_coef * loss)
        total_loss += loss.item()
    return total_loss


def step(optimizer: torch.optim.Optimizer, parameters: dict[str, nn.Parameter], max_norm: float) -> float:
    """Clip the gradient and take a step; return the gradient's norm before clipping."""
    norm = nn.utils.clip_grad_norm_(list(parameters.values()), max_norm)
    optimizer.step()
    return float(norm)


class Update(Protocol):
    """Does one optimizer step of the critic and, where asked, of the policy; returns its figures.

    `check` may raise to stop before anything has changed. `ratio_deviation`, of the ratio from 1, has to be there.
    """

    def __call__(
        self,
        config: PPOConfig,
        learner: Learner,
        minibatch: Minibatch,
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
