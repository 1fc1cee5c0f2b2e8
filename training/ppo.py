"""PPO against a reward model, as in InstructGPT (Ouyang et al. 2022), top to bottom in one file.

`train` is the loop; the maths is in `training.maths`, what the roles compute in `training.roles`, sampling in
`training.rollout`. Devices, storage and cancelling come in through `roles` and `reporter`.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from data.errors import WorkFailed
from training.checkpoint import State, pack_optimizer, pack_random_state, save_checkpoint
from training.config import PPOConfig
from training.encoding import Encoder, pack
from training.maths.advantages import explained_variance, gae, token_rewards
from training.maths.kl import adapted_kl_coef, kl_estimate, kl_loss
from training.maths.losses import policy_loss, value_loss
from training.maths.masked import masked_mean, token_weights, whiten
from training.models import Machine
from training.reporter import Cancelled, Reporter
from training.roles import Roles
from training.rollout import PromptItem, Rollout, micro_batches, sample_rollout

MAX_FIRST_DEVIATION = 1e-3  # of the ratio from 1 in the first minibatch; bf16 rounds, see below
MAX_FIRST_DEVIATION_BF16 = 0.05
ADAM_BETAS, ADAM_EPS = (0.9, 0.95), 1e-5
RATIO_DEVIATION = "ratio_deviation"
Metrics = dict[str, float]


@dataclass
class Learner:
    """What training changes: two sets of parameters, their optimizers, and the weight of the KL."""

    roles: Roles
    policy_optimizer: torch.optim.Optimizer
    critic_optimizer: torch.optim.Optimizer
    kl_coef: float
    score_scale: float = 1.0  # scores are divided by it
    iteration: int = 0  # how many are done
    best_of: list[tuple[list[int], list[int]]] = field(default_factory=list)  # prompt and best response, for PPO-ptx


def train(
    config: PPOConfig,
    learner: Learner,
    prompts: Sequence[PromptItem],
    encoder: Encoder,
    machine: Machine,
    reporter: Reporter,
) -> None:
    """Train the policy. For each iteration:

    1. sample responses with the policy       5. advantages and returns, whitened over the whole rollout
    2. score them with the reward model       6. update policy and critic, in epochs of minibatches
    3. record log-probabilities and values    7. adapt the weight of the KL
    4. rewards: score minus KL penalty        8. report, checkpoint, stop if asked

    Raises Cancelled when asked to stop, with a checkpoint; WorkFailed if the first ratio is not 1.
    """
    roles = learner.roles
    for iteration in range(learner.iteration, config.iterations):
        # 1-3. Nothing is changed yet: whoever asks to stop now loses only this rollout.
        chosen = prompts_of_iteration(prompts, config, iteration)
        try:
            rollout = sample_rollout(
                roles, chosen, config, encoder, machine, iteration, check=reporter.raise_if_stopping
            )
        except Cancelled:
            save(learner, reporter)
            raise
        mask = rollout.batch.mask

        # 4. The KL is in the reward of each token, the score at the last one.
        scores = final_scores(rollout, config, learner.score_scale)
        kl = kl_estimate(rollout.old_logprobs, rollout.ref_logprobs, "k1")
        penalty = learner.kl_coef if config.kl_place == "reward" else 0.0
        rewards = token_rewards(scores, kl, mask, penalty)

        # 5. What stands in padding never leaks in.
        if iteration == 0:
            rollout = with_centred_critic(learner, rollout, scores)
        advantages, returns = gae(rewards, rollout.old_values, mask, config.gamma, config.gae_lambda)
        advantages = whiten(advantages, mask)

        # 6. The critic may start first; its values decide what counts as better than expected.
        started = time.perf_counter()
        trains_policy = iteration >= config.critic_warmup
        steps: list[Metrics] = []
        for epoch in range(config.ppo_epochs):
            for index in minibatches(config, iteration, epoch, len(rollout.rows)):
                learnt = (rollout, advantages, returns, index)
                steps.append(update_minibatch(config, learner, *learnt, number=len(steps), trains_policy=trains_policy))
                if len(steps) == 1 and trains_policy:
                    check_first_ratio(steps[0][RATIO_DEVIATION], machine)
            if config.max_update_kl is not None and steps[-1].get("policy/approx_kl", 0) > config.max_update_kl:
                reporter.event("update_stopped_early", iteration=iteration, **{"kl": steps[-1]["policy/approx_kl"]})
                break
        learner.iteration = iteration + 1
        rollout.seconds["update"] = time.perf_counter() - started

        # 7. Towards the target, by the mean KL per response.
        kl_per_response = float(kl.sum(1).mean())
        used_kl_coef = learner.kl_coef
        if config.kl_target is not None:
            learner.kl_coef = adapted_kl_coef(
                learner.kl_coef, kl_per_response, config.kl_target, len(rollout.rows), config.kl_horizon
            )

        # 8. One transaction; a number that is not finite stops the run before it can spoil a checkpoint.
        metrics = mean_of_steps(steps)
        if trains_policy:
            metrics["policy/first_ratio_deviation"] = steps[0][RATIO_DEVIATION]
        metrics |= rollout_metrics(rollout, scores, rewards, returns, kl, used_kl_coef)
        reporter.step(learner.iteration, config.iterations, metrics, samples(rollout, scores, kl, config.sample_rows))
        is_stopping = reporter.should_stop() and learner.iteration < config.iterations
        if is_stopping or learner.iteration % config.checkpoint_every == 0 or learner.iteration == config.iterations:
            save(learner, reporter)
        if is_stopping:
            reporter.raise_if_stopping()


def with_centred_critic(learner: Learner, rollout: Rollout, scores: Tensor) -> Rollout:
    """Shift the critic, once, so that its mean over the first rollout is the mean score.

    It starts as the reward model, which was trained at the end of a text only; in the middle it is off by a constant
    that the clipped value loss would take many iterations to remove (cf. Yuan et al. 2025, VC-PPO).
    """
    mask = rollout.batch.mask
    shift = scores.mean() - masked_mean(rollout.old_values, mask)
    with torch.no_grad():
        learner.roles.critic.head.bias.add_(shift)
    return replace(rollout, old_values=torch.where(mask, rollout.old_values + shift, 0))


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
) -> Metrics:
    """One optimizer step of the critic and, where asked, of the policy, on the rows in `index`.

    Losses are sums under weights made for the whole minibatch, so cutting it into micro-batches changes nothing.
    `number`: which step of the iteration it is.
    """
    mask = rollout.batch.mask
    policy_weights, value_weights = torch.zeros(mask.shape).to(advantages), torch.zeros(mask.shape).to(advantages)
    policy_weights[index] = token_weights(mask[index], config.loss_mean)
    value_weights[index] = token_weights(mask[index], "token")
    learner.policy_optimizer.zero_grad(set_to_none=True)
    learner.critic_optimizer.zero_grad(set_to_none=True)
    totals: Metrics = defaultdict(float)
    roles, lots = learner.roles, list(micro_batches(rollout.batch, config.micro_batch_tokens, index))
    for lot in lots:
        backward_critic(config, learner, rollout, returns, value_weights, lot, totals)
    if trains_policy:
        for lot in lots:
            backward_policy(config, learner, rollout, advantages, policy_weights, lot, totals)
        if config.ptx_coef:
            totals["ptx/loss"] = backward_ptx(config, learner, len(index), number)
        totals["policy/grad_norm"] = step(learner.policy_optimizer, roles.policy_parameters, config.max_grad_norm)
    totals["value/grad_norm"] = step(learner.critic_optimizer, roles.critic_parameters, config.max_grad_norm)
    return totals


def backward_policy(
    config: PPOConfig,
    learner: Learner,
    rollout: Rollout,
    advantages: Tensor,
    all_weights: Tensor,
    lot: Tensor,
    totals: Metrics,
) -> None:
    """Add one micro-batch's gradient of the policy's loss, and its figures to `totals`."""
    batch = rollout.batch.rows(lot)
    width = batch.mask.shape[1]
    weights = all_weights[lot, :width]
    found = learner.roles.policy.token_scores(batch, with_entropy=config.entropy_coef > 0)
    old, advantage = rollout.old_logprobs[lot, :width], advantages[lot, :width]
    loss, stats = policy_loss(found.logprobs, old, advantage, weights, config.clip_range)
    if config.kl_place == "loss":
        estimate = kl_loss(found.logprobs, rollout.ref_logprobs[lot, :width], config.kl_estimator)
        loss = loss + learner.kl_coef * (weights * estimate).sum()
    loss = loss - config.entropy_coef * (weights * found.entropy).sum()
    torch.autograd.backward(loss)
    totals["policy/loss"] += loss.item()
    totals["policy/clip_fraction"] += stats.clip_fraction.item()
    totals["policy/approx_kl"] += stats.approx_kl.item()
    totals["policy/ratio"] += stats.ratio.item()
    totals[RATIO_DEVIATION] = max(totals[RATIO_DEVIATION], stats.max_ratio_deviation.item())


def backward_critic(
    config: PPOConfig,
    learner: Learner,
    rollout: Rollout,
    returns: Tensor,
    all_weights: Tensor,
    lot: Tensor,
    totals: Metrics,
) -> None:
    """Add one micro-batch's gradient of the critic's loss, and its figures to `totals`."""
    batch = rollout.batch.rows(lot)
    width = batch.mask.shape[1]
    values = learner.roles.critic.values(batch)
    loss, clipped = value_loss(
        values,
        rollout.old_values[lot, :width],
        returns[lot, :width],
        all_weights[lot, :width],
        config.value_clip_range,
    )
    torch.autograd.backward(loss)
    totals["value/loss"] += loss.item()
    totals["value/clip_fraction"] += clipped.item()


def backward_ptx(config: PPOConfig, learner: Learner, n: int, number: int) -> float:
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
    for lot in micro_batches(batch, config.micro_batch_tokens):
        part = batch.rows(lot)
        logprobs = learner.roles.policy.token_scores(part).logprobs
        loss = -(weights[lot, : part.mask.shape[1]] * logprobs).sum()
        torch.autograd.backward(config.ptx_coef * loss)
        total += loss.item()
    return total


def mean_of_steps(steps: Sequence[Metrics]) -> Metrics:
    """Each figure's mean over the optimizer steps of an iteration."""
    return {name: sum(each[name] for each in steps) / len(steps) for name in steps[0] if name != RATIO_DEVIATION}


def step(optimizer: torch.optim.Optimizer, parameters: dict[str, nn.Parameter], max_norm: float) -> float:
    """Clip the gradient and take a step; return the gradient's norm before clipping."""
    norm = nn.utils.clip_grad_norm_(list(parameters.values()), max_norm)
    optimizer.step()
    return float(norm)


def final_scores(rollout: Rollout, config: PPOConfig, score_scale: float) -> Tensor:
    """Scores (B,) over their scale, minus the penalty for responses that did not end."""
    return rollout.scores / score_scale - config.missing_eos_penalty * (~rollout.ended).to(rollout.scores.dtype)


def prompts_of_iteration(prompts: Sequence[PromptItem], config: PPOConfig, iteration: int) -> list[PromptItem]:
    """The prompts of an iteration: each pass over all prompts is a new order, told by the seed and the pass alone."""
    first = iteration * config.prompts_per_iteration
    orders: dict[int, list[int]] = {}
    chosen = []
    for number in range(first, first + config.prompts_per_iteration):
        turn, place = divmod(number, len(prompts))
        if turn not in orders:
            generator = torch.Generator().manual_seed(config.seed * 1_000_003 + turn)
            orders[turn] = torch.randperm(len(prompts), generator=generator).tolist()
        chosen.append(prompts[orders[turn][place]])
    return chosen


def minibatches(config: PPOConfig, iteration: int, epoch: int, n_rows: int) -> Iterator[Tensor]:
    """The rows of a rollout in a new order, cut into equal minibatches."""
    generator = torch.Generator().manual_seed((config.seed * 100_003 + iteration) * 101 + epoch)
    size = n_rows // config.minibatches
    yield from torch.split(torch.randperm(n_rows, generator=generator), size)


def check_first_ratio(deviation: float, machine: Machine) -> None:
    """Before the first step the policy is the one that sampled, so every ratio is 1. Raises WorkFailed if not."""
    allowed = MAX_FIRST_DEVIATION_BF16 if machine.is_bf16 else MAX_FIRST_DEVIATION
    if deviation > allowed:
        raise WorkFailed(
            f"the first ratio is off by {deviation:.4f}, at most {allowed} is rounding: the log-probabilities of the "
            "rollout and of the update disagree; use precision=fp32, and report this if it stays"
        )


def rollout_metrics(
    rollout: Rollout, scores: Tensor, rewards: Tensor, returns: Tensor, kl: Tensor, kl_coef: float
) -> Metrics:
    """What the rollout itself says. Each metric is defined in docs/metrics.md."""
    mask = rollout.batch.mask
    k3 = kl_estimate(rollout.old_logprobs, rollout.ref_logprobs, "k3")
    lengths = mask.sum(1).float()
    figures = {
        "reward/score_mean": rollout.scores.mean(),
        "reward/score_std": rollout.scores.std(correction=0),
        "reward/score_after_penalty_mean": scores.mean(),
        "reward/total_mean": rewards.sum(1).mean(),
        "kl/k1_mean": kl.sum(1).mean(),
        "kl/k3_token_mean": masked_mean(k3, mask),
        "policy/entropy": masked_mean(rollout.entropy, mask),
        "value/mean": masked_mean(rollout.old_values, mask),
        "value/explained_variance": explained_variance(rollout.old_values, returns, mask),
        "response/length_mean": lengths.mean(),
        "response/ended_share": rollout.ended.float().mean(),
    }
    timing = {f"time/{name}_s": seconds for name, seconds in rollout.seconds.items()}
    return {name: float(value) for name, value in figures.items()} | {"kl/coef": kl_coef} | timing


def samples(rollout: Rollout, scores: Tensor, kl: Tensor, n: int) -> list[dict[str, Any]]:
    """The first n responses of a rollout, for people to read."""
    return [
        {
            "prompt": row.messages[-1]["content"],
            "response": row.text,
            "score": float(rollout.scores[place]),
            "score_after_penalty": float(scores[place]),
            "kl": float(kl[place].sum()),
            "n_tokens": len(row.response),
            "ended": bool(rollout.ended[place]),
        }
        for place, row in enumerate(rollout.rows[:n])
    ]


def save(learner: Learner, reporter: Reporter) -> None:
    """A checkpoint between two iterations: both models, both optimizers, the KL weight, the random states."""
    roles = learner.roles
    policy_state, policy_values = pack_optimizer(learner.policy_optimizer)
    critic_state, critic_values = pack_optimizer(learner.critic_optimizer)
    random_state, random_values = pack_random_state()
    state = State(
        step=learner.iteration,
        tensors={
            "policy": dict(roles.policy_parameters),
            "critic": dict(roles.critic_parameters),
            "policy_optimizer": policy_state,
            "critic_optimizer": critic_state,
            "random": random_state,
        },
        values={
            "policy_optimizer": policy_values,
            "critic_optimizer": critic_values,
            "random": random_values,
            "kl_coef": learner.kl_coef,
        },
    )
    save_checkpoint(reporter, state)
