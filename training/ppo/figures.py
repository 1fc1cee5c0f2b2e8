"""What a rollout of PPO says: its metrics and its samples. Each metric is defined in docs/metrics.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from training.maths.advantages import centred_explained_variance, explained_variance
from training.maths.kl import kl_estimate
from training.maths.masked import masked_mean
from training.ppo.learner import Learner
from training.ppo.rollout import Credit, Rollout
from training.ppo.update import RATIO_DEVIATION, Metrics


def mean_of_steps(steps: Sequence[Metrics]) -> Metrics:
    """Each figure's mean over the optimizer steps of an iteration."""
    return {name: sum(each[name] for each in steps) / len(steps) for name in steps[0] if name != RATIO_DEVIATION}


def rollout_metrics(rollout: Rollout, credit: Credit, learner: Learner, kl_coef: float) -> Metrics:
    """What the rollout itself says. Each metric is defined in docs/metrics.md."""
    mask = rollout.batch.mask
    k3 = kl_estimate(rollout.old_logprobs, rollout.ref_logprobs, "k3")
    lengths = mask.sum(1).float()
    figures = {
        "reward/score_mean": rollout.scores.mean(),
        "reward/score_std": rollout.scores.std(correction=0),
        "reward/score_after_penalty_mean": credit.scores.mean(),
        "reward/total_mean": credit.rewards.sum(1).mean(),
        "kl/k1_mean": credit.kl.sum(1).mean(),
        "kl/k3_token_mean": masked_mean(k3, mask),
        "policy/entropy": masked_mean(rollout.entropy, mask),
        "value/mean": masked_mean(rollout.old_values, mask),
        "value/explained_variance": explained_variance(rollout.old_values, credit.returns, mask),
        "value/centred_explained_variance": centred_explained_variance(rollout.old_values, credit.returns, mask),
        "response/length_mean": lengths.mean(),
        "response/ended_share": rollout.ended.float().mean(),
    }
    n_tokens = int(mask.sum())
    timing = {f"time/{name}_s": seconds for name, seconds in rollout.seconds.items()}
    timing |= {f"time/{name}_tokens_per_s": n_tokens / max(each, 1e-9) for name, each in rollout.seconds.items()}
    given = {
        "kl/coef": kl_coef,
        "policy/learning_rate": learner.policy_optimizer.param_groups[0]["lr"],
        "value/learning_rate": learner.critic_optimizer.param_groups[0]["lr"],
    }
    return {name: float(value) for name, value in figures.items()} | given | timing


def samples(rollout: Rollout, credit: Credit, n: int) -> list[dict[str, Any]]:
    """The first n responses of a rollout, for people to read."""
    return [
        {
            "prompt": row.messages[-1]["content"],
            "response": row.text,
            "score": float(rollout.scores[place]),
            "score_after_penalty": float(credit.scores[place]),
            "kl": float(credit.kl[place].sum()),
            "n_tokens": len(row.response),
            "ended": bool(rollout.ended[place]),
        }
        for place, row in enumerate(rollout.rows[:n])
    ]
