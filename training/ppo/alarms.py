"""What goes wrong in PPO, told while it does: alarms, each with what to do about it.

They are hints to look at the samples, not proofs. A pure function of figures, so each rule can be tested by itself.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from training.launch.config import PPOConfig
from training.ppo.learner import Watch

COLLAPSED_ENTROPY = 0.3  # of the first iteration's
AT_THE_CAP = 0.95  # of max_new_tokens, as the mean length
FEW_END = 0.1  # of the share that ended in the first iteration
FALLING_FOR = 3  # evaluations in a row
OVER_OPTIMISED = "over_optimised"


class TrainingAlarm(NamedTuple):
    """One thing that is wrong: a word for the event, what was seen, what to do."""

    kind: str
    seen: str
    advice: str


def look(config: PPOConfig, watch: Watch, figures: dict[str, float]) -> list[TrainingAlarm]:
    """The alarms that go on with this iteration's figures. An alarm is told once until it has gone off again."""
    if not watch.first:
        watch.first = {name: figures[name] for name in ("policy/entropy", "response/length_mean",
                                                        "response/ended_share")}  # fmt: skip
    found = alarms(config, watch.first, figures, watch.evaluations)
    new = [alarm for alarm in found if alarm.kind not in watch.raised]
    watch.raised = [alarm.kind for alarm in found]
    return new


def alarms(
    config: PPOConfig, first: dict[str, float], now: dict[str, float], evaluations: list[dict[str, float]]
) -> list[TrainingAlarm]:
    """All that is wrong. `first`, `now`: figures of the first and of this iteration. `evaluations`: in their order."""
    raised = []
    kl, length = now["kl/k1_mean"], now["response/length_mean"]
    if config.limits.max_kl is not None and kl > config.limits.max_kl:
        raised.append(
            TrainingAlarm(
                "kl_above_ceiling",
                f"KL to the reference {kl:.1f} nats per response, max_kl = {config.limits.max_kl:g}",
                "raise kl_coef or set kl_target, lower learning_rate; take the best policy, run:ID/best, not the last",
            )
        )
    if now["policy/entropy"] < COLLAPSED_ENTROPY * first["policy/entropy"]:
        raised.append(
            TrainingAlarm(
                "entropy_collapsed",
                f"entropy {now['policy/entropy']:.3f} nats per token, {first['policy/entropy']:.3f} at the start",
                "read the samples for one repeated answer; raise kl_coef or entropy_coef, lower learning_rate",
            )
        )
    raised += _length_alarms(config, first, length, now["response/ended_share"])
    if is_over_optimised(evaluations):
        raised.append(_over_optimised(evaluations))
    return raised


def look_at_evaluations(watch: Watch) -> list[TrainingAlarm]:
    """The alarm that goes on with the last evaluation, after which no iteration comes."""
    if not is_over_optimised(watch.evaluations) or OVER_OPTIMISED in watch.raised:
        return []
    watch.raised = [*watch.raised, OVER_OPTIMISED]
    return [_over_optimised(watch.evaluations)]


def is_over_optimised(evaluations: list[dict[str, float]]) -> bool:
    """Whether the second figure fell at each of the last evaluations while the score rose (Gao et al. 2023)."""
    last = evaluations[-FALLING_FOR - 1 :]
    if len(last) <= FALLING_FOR or "second" not in last[0]:
        return False
    return all(b["score"] > a["score"] and b["second"] < a["second"] for a, b in pairwise(last))


def _over_optimised(evaluations: list[dict[str, float]]) -> TrainingAlarm:
    n = f"{int(evaluations[-1]['prompts']):,} " if "prompts" in evaluations[-1] else ""
    return TrainingAlarm(
        OVER_OPTIMISED,
        f"on {n}held-out prompts the score rose in {FALLING_FOR} evaluations in a row while the second figure fell: "
        f"{evaluations[-1]['score']:.3f} and {evaluations[-1]['second']:.3f} now",
        "compare its samples with those of the best policy (run:ID/best); rank its responses, train the reward model "
        "again, or raise kl_coef",
    )


def _length_alarms(config: PPOConfig, first: dict[str, float], length: float, ended: float) -> list[TrainingAlarm]:
    raised = []
    if first["response/ended_share"] > 0 and ended < FEW_END * first["response/ended_share"]:
        raised.append(
            TrainingAlarm(
                "responses_no_longer_end",
                f"{ended:.0%} of the responses end by themselves, {first['response/ended_share']:.0%} at the start",
                "raise missing_eos_penalty or max_new_tokens; look whether the reward model likes length",
            )
        )
    is_grown = first["response/length_mean"] < AT_THE_CAP * config.sampling.max_new_tokens
    if is_grown and length >= AT_THE_CAP * config.sampling.max_new_tokens:
        raised.append(
            TrainingAlarm(
                "length_at_the_cap",
                f"{length:.1f} tokens in the mean, max_new_tokens = {config.sampling.max_new_tokens}",
                "the score may be gamed by length: compare it with the length in the reward run's report",
            )
        )
    if length < 2 <= first["response/length_mean"] / 2:
        raised.append(
            TrainingAlarm(
                "responses_are_empty",
                f"{length:.1f} tokens in the mean, {first['response/length_mean']:.1f} at the start",
                "the reward model scores an empty answer higher than a poor one; raise kl_coef, rank such answers",
            )
        )
    return raised
