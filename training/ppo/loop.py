"""PPO against a reward model, as in InstructGPT (Ouyang et al. 2022), top to bottom in one file.

`train` is the loop; the maths is in `training.maths`, what the roles compute in `training.ppo.roles`, sampling in
`training.ppo.rollout`. Devices, storage and cancelling come in through `roles` and `reporter`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from data.errors import WorkFailed
from data.files.rollouts import TRAIN, write_rollout
from training.jobs.reporter import Cancelled, Reporter
from training.launch.config import PPOConfig
from training.lm.encoding import Encoder, Sequences
from training.lm.models import Machine
from training.maths.advantages import gae, token_rewards
from training.maths.kl import adapted_kl_coef, adapted_update_kl_coef, kl_estimate
from training.maths.masked import masked_mean, whiten
from training.ppo.alarms import TrainingAlarm, look, look_at_evaluations
from training.ppo.evaluation import Evaluation
from training.ppo.figures import mean_of_steps, rollout_metrics, samples
from training.ppo.learner import Learner, save
from training.ppo.rollout import (
    Credit,
    PromptItem,
    Rollout,
    logprobs_of,
    micro_batches_of,
    minibatch_of,
    sample_rollout,
)
from training.ppo.token_rows import token_rows
from training.ppo.unfinished import Unfinished
from training.ppo.update import RATIO_DEVIATION, Metrics, Seams

MAX_FIRST_DEVIATION = 1e-3  # of the ratio from 1 in the first minibatch; bf16 rounds, see below
MAX_FIRST_DEVIATION_BF16 = 0.05
ADAM_BETAS, ADAM_EPS = (0.9, 0.95), 1e-5
OURS = Seams()


def train(
    config: PPOConfig,
    learner: Learner,
    prompts: Sequence[PromptItem],
    encoder: Encoder,
    machine: Machine,
    reporter: Reporter,
    evaluation: Evaluation | None = None,
    seams: Seams = OURS,
) -> None:
    """Train the policy. For each iteration:

    1. sample responses with the policy       6. advantages and returns, whitened over the whole rollout
    2. score them with the reward model       7. update policy and critic, in epochs of minibatches
    3. record log-probabilities and values    8. adapt the weights of the KL
    4. adapt the scale of the scores          9. report, look for trouble, checkpoint, stop if asked
    5. rewards: score minus KL penalty

    `evaluation` measures the policy on held-out prompts before some iterations and after the last. `seams`: what
    another engine may stand in for. Raises Cancelled when asked to stop, with a checkpoint; WorkFailed if the first
    ratio is not 1, or at an alarm that stops the run.
    """
    roles, check = learner.roles, reporter.raise_if_stopping
    for iteration in range(learner.iteration, config.iterations):
        work = learner.unfinished
        if work is None:
            # 1-3. Nothing is changed yet: whoever asks to stop now loses only this rollout.
            chosen = prompts_of_iteration(prompts, config, iteration)
            with saved_if_cancelled(learner, reporter):
                evaluate_if_due(evaluation, learner, reporter, seams)
                rollout = sample_rollout(roles, chosen, config, encoder, machine, iteration, check, seams.generate)
            mask = rollout.batch.mask

            # 4. What the scores are divided by moves with them, where that is asked.
            adapt_score_scale(config, learner, rollout.scores)

            # 5. The KL is in the reward of each token, the score at the last one.
            scores = final_scores(rollout, config, learner.score_scale)
            kl = kl_estimate(rollout.old_logprobs, rollout.ref_logprobs, "k1")
            penalty = learner.kl_coef if config.kl_place == "reward" else 0.0
            rewards = token_rewards(scores, kl, mask, penalty)
            if config.whiten_rewards:
                rewards = whiten(rewards, mask, keeps_mean=True)

            # 6. What stands in padding never leaks in.
            if iteration == 0:
                rollout = with_centred_critic(learner, rollout, scores)
            advantages, returns = gae(rewards, rollout.old_values, mask, config.gamma, config.gae_lambda)
            advantages = whiten(advantages, mask)
            work = Unfinished(rollout, Credit(scores, kl, rewards, advantages, returns))

        # 7. The critic may start first; its values decide what counts as better than expected.
        rollout, credit, steps = work.rollout, work.credit, work.steps
        started, before = time.perf_counter(), rollout.seconds.get("update", 0.0)
        trains_policy, learner.unfinished = iteration >= config.critic_warmup, work
        with saved_if_cancelled(learner, reporter):
            for index in minibatches_to_do(config, iteration, work):
                minibatch = minibatch_of(rollout, credit, index, config.loss_mean)
                steps.append(
                    seams.update(
                        config, learner, minibatch, number=len(steps), trains_policy=trains_policy, check=check
                    )
                )
                rollout.seconds["update"] = before + time.perf_counter() - started
                if len(steps) == 1 and trains_policy:
                    check_first_ratio(steps[0][RATIO_DEVIATION], machine)
                if has_gone_too_far(config, steps):
                    reporter.event("update_stopped_early", iteration=iteration, kl=steps[-1]["policy/approx_kl"])
                    break

            # 8. Towards the targets: by the mean KL per response to the reference, per token to the policy of before.
            used_kl_coef = learner.kl_coef
            metrics = mean_of_steps(steps)
            metrics |= adapt_weights(config, learner, work, trains_policy=trains_policy, check=check)
        learner.iteration, learner.unfinished = iteration + 1, None

        # 9. One transaction; a number that is not finite stops the run before it can spoil a checkpoint.
        if trains_policy:
            metrics["policy/first_ratio_deviation"] = steps[0][RATIO_DEVIATION]
        metrics |= rollout_metrics(rollout, credit, learner, used_kl_coef)
        record_tokens(config, learner, rollout, credit, encoder, reporter, used_kl_coef)
        reporter.step(learner.iteration, config.iterations, metrics, samples(rollout, credit, config.sample_rows))
        end_iteration(config, learner, look(config, learner.watch, metrics), reporter)
    with saved_if_cancelled(learner, reporter):
        evaluate_if_due(evaluation, learner, reporter, seams)


@contextmanager
def saved_if_cancelled(learner: Learner, reporter: Reporter) -> Iterator[None]:
    """Write a checkpoint where somebody asks to stop, with the update that is unfinished."""
    try:
        yield
    except Cancelled:
        save(learner, reporter)
        raise


def evaluate_if_due(evaluation: Evaluation | None, learner: Learner, reporter: Reporter, seams: Seams = OURS) -> None:
    """Measure the policy on held-out prompts and report it, unless it was done before the run was resumed."""
    if evaluation is None or not evaluation.is_due(learner.iteration):
        return
    done = learner.watch.evaluations
    if done and done[-1]["iteration"] == learner.iteration:
        return
    config, figures = evaluation.config, evaluation.measure(learner, seams.generate)
    reporter.step(learner.iteration, config.iterations, figures)
    if learner.iteration == config.iterations:  # no iteration follows that would look at it
        for alarm in look_at_evaluations(learner.watch):
            reporter.event(alarm.kind, iteration=learner.iteration, seen=alarm.seen, advice=alarm.advice)


def end_iteration(config: PPOConfig, learner: Learner, alarms: Sequence[TrainingAlarm], reporter: Reporter) -> None:
    """Record the alarms, write a checkpoint where one is due, and stop if somebody or an alarm wants that."""
    for alarm in alarms:
        reporter.event(alarm.kind, iteration=learner.iteration, seen=alarm.seen, advice=alarm.advice)
    is_last = learner.iteration == config.iterations
    is_stopping = reporter.should_stop() and not is_last
    is_alarmed = bool(alarms) and config.on_alarm == "stop"
    if is_stopping or is_alarmed or is_last or learner.iteration % config.checkpoint_every == 0:
        save(learner, reporter)
    if is_alarmed:
        words = "; ".join(f"{alarm.kind}: {alarm.seen}. {alarm.advice}" for alarm in alarms)
        raise WorkFailed(f"stopped at an alarm, as on_alarm=stop asks. {words}. Resume the run to go on regardless")
    if is_stopping:
        reporter.raise_if_stopping()


def adapt_weights(
    config: PPOConfig, learner: Learner, work: Unfinished, *, trains_policy: bool, check: Callable[[], None]
) -> Metrics:
    """Move the weight of the KL to the reference, and that of KL(old, new) where the surrogate has it; return what
    was measured and used for the second (Schulman et al. 2017, section 4). `check` may raise before anything moves."""
    rollout, figures = work.rollout, Metrics()
    if config.surrogate == "penalty" and trains_policy:
        new = logprobs_now(config, learner, rollout.batch, check)
        log_ratio = new - rollout.old_logprobs
        moved = masked_mean(torch.expm1(log_ratio) - log_ratio, rollout.batch.mask).item()
        used = learner.update_kl_coef
        learner.update_kl_coef = adapted_update_kl_coef(used, moved, config.update_kl_target)
        figures = {"policy/update_kl": moved, "policy/update_kl_coef": used}
    if config.kl_target is not None:
        kl = float(work.credit.kl.sum(1).mean())
        learner.kl_coef = adapted_kl_coef(learner.kl_coef, kl, config.kl_target, len(rollout.rows), config.kl_horizon)
    return figures


def record_tokens(
    config: PPOConfig,
    learner: Learner,
    rollout: Rollout,
    credit: Credit,
    encoder: Encoder,
    reporter: Reporter,
    kl_coef: float,
) -> None:
    """Keep the first responses of the rollout token by token, with the ratios after the update."""
    n = min(config.token_rows, len(rollout.rows))
    if n:
        new = logprobs_now(config, learner, rollout.batch.rows(torch.arange(n)))
        rows = token_rows(rollout, replace(credit, new_logprobs=new), config, encoder, kl_coef, n)
        write_rollout(reporter.folder, TRAIN, learner.iteration, rows)


def logprobs_now(
    config: PPOConfig, learner: Learner, batch: Sequences, check: Callable[[], None] = lambda: None
) -> Tensor:
    """Log-probabilities of response tokens under the policy as it is after the update, (B, T), 0 at padding."""
    roles = learner.roles
    micro_batches = list(micro_batches_of(batch, config.micro_batch_tokens, is_shared=roles.shares_prompts))
    return logprobs_of(roles.policy, batch, micro_batches, check)


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


def adapt_score_scale(config: PPOConfig, learner: Learner, scores: Tensor) -> None:
    """With `running_scores`, divide this rollout's scores (B,) and all later ones by the spread of all so far."""
    if config.running_scores:
        learner.score_spread = learner.score_spread.with_values(scores)
        learner.score_scale = learner.score_spread.std


def final_scores(rollout: Rollout, config: PPOConfig, score_scale: float) -> Tensor:
    """Scores (B,) over their scale, cut to `score_clip`, minus the penalty for responses that did not end."""
    scores = rollout.scores / score_scale
    if config.score_clip is not None:
        scores = scores.clamp(-config.score_clip, config.score_clip)
    return scores - config.missing_eos_penalty * (~rollout.ended).to(scores.dtype)


def prompts_of_iteration(prompts: Sequence[PromptItem], config: PPOConfig, iteration: int) -> list[PromptItem]:
    """The prompts of an iteration: each pass over all prompts is a new order, told by the seed and the pass alone."""
    first = iteration * config.prompts_per_iteration
    orders: dict[int, list[int]] = {}
    chosen = []
    for number in range(first, first + config.prompts_per_iteration):
        turn, position = divmod(number, len(prompts))
        if turn not in orders:
            generator = torch.Generator().manual_seed(config.seed * 1_000_003 + turn)
            orders[turn] = torch.randperm(len(prompts), generator=generator).tolist()
        chosen.append(prompts[orders[turn][position]])
    return chosen


def minibatches_to_do(config: PPOConfig, iteration: int, work: Unfinished) -> Iterator[Tensor]:
    """The minibatches of a rollout that are not done yet, pass by pass."""
    n_done = len(work.steps)
    if has_gone_too_far(config, work.steps):
        return
    for epoch in range(config.ppo_epochs):
        for place, index in enumerate(minibatches(config, iteration, epoch, len(work.rollout.rows))):
            if epoch * config.minibatches + place >= n_done:
                yield index


def has_gone_too_far(config: PPOConfig, steps: Sequence[Metrics]) -> bool:
    """Whether KL(old, new) is beyond its limit at the end of a pass."""
    if config.max_update_kl is None or not steps or len(steps) % config.minibatches:
        return False
    return steps[-1].get("policy/approx_kl", 0.0) > config.max_update_kl


def minibatches(config: PPOConfig, iteration: int, epoch: int, n_rows: int) -> Iterator[Tensor]:
    """The rows of a rollout in a new order, cut into equal minibatches; the responses to a prompt stay together where
    whole prompts can be dealt out evenly."""
    generator = torch.Generator().manual_seed((config.seed * 100_003 + iteration) * 101 + epoch)
    together = 1 if config.prompts_per_iteration % config.minibatches else config.responses_per_prompt
    prompts = torch.randperm(n_rows // together, generator=generator)
    rows = (prompts[:, None] * together + torch.arange(together)).flatten()
    yield from torch.split(rows, n_rows // config.minibatches)


def check_first_ratio(deviation: float, machine: Machine) -> None:
    """Before the first step the policy is the one that sampled, so every ratio is 1. Raises WorkFailed if not."""
    allowed = MAX_FIRST_DEVIATION_BF16 if machine.is_bf16 else MAX_FIRST_DEVIATION
    if deviation > allowed:
        raise WorkFailed(
            f"the first ratio is off by {deviation:.4f}, at most {allowed} is rounding: the log-probabilities of the "
            "rollout and of the update disagree; use precision=fp32, and report this if it stays"
        )
