"""What a PPO run carries from one iteration to the next, and how a checkpoint holds it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from training.jobs.reporter import Reporter
from training.lm.checkpoint import (
    State,
    newest_checkpoint,
    pack_optimizer,
    pack_random_state,
    restore,
    save_checkpoint,
    unpack_optimizer,
    unpack_random_state,
)
from training.maths.spread import RunningSpread
from training.ppo.roles import Roles
from training.ppo.unfinished import Unfinished, read_unfinished


@dataclass
class Watch:
    """What the guards remember. `first`: the first iteration's figures; `evaluations`: on held-out prompts, in order;
    `raised`: the alarms that are on; `best`: the evaluation with the best figure; `by_prompt`: of the start and of the
    two best evaluations, by iteration, what that figure is the mean of."""

    first: dict[str, float] = field(default_factory=dict)
    evaluations: list[dict[str, float]] = field(default_factory=list)
    raised: list[str] = field(default_factory=list)
    best: dict[str, float] = field(default_factory=dict)
    by_prompt: dict[str, list[float]] = field(default_factory=dict)


@dataclass
class Learner:
    """What training changes: two sets of parameters, their optimizers, and the numbers that adapt."""

    roles: Roles
    policy_optimizer: torch.optim.Optimizer
    critic_optimizer: torch.optim.Optimizer
    kl_coef: float
    update_kl_coef: float = 1.0  # of KL(old, new), in the surrogate with a penalty
    score_scale: float = 1.0  # scores are divided by it
    score_spread: RunningSpread = field(default_factory=RunningSpread)  # of all scores so far
    iteration: int = 0  # how many are done
    watch: Watch = field(default_factory=Watch)
    unfinished: Unfinished | None = None  # an update that was stopped on the way
    best_of: list[tuple[list[int], list[int]]] = field(default_factory=list)  # prompt and best response, for PPO-ptx


def save(learner: Learner, reporter: Reporter) -> None:
    """A checkpoint between two optimizer steps: both models, both optimizers, what adapts, the random states, and the
    update that they are in the middle of, if they are."""
    roles = learner.roles
    policy_state, policy_values = pack_optimizer(learner.policy_optimizer)
    critic_state, critic_values = pack_optimizer(learner.critic_optimizer)
    random_state, random_values = pack_random_state()
    unfinished = learner.unfinished
    state = State(
        step=learner.iteration,
        tensors={
            "policy": dict(roles.policy_parameters),
            "critic": dict(roles.critic_parameters),
            "policy_optimizer": policy_state,
            "critic_optimizer": critic_state,
            "random": random_state,
            **({} if unfinished is None else {"unfinished": unfinished.tensors()}),
        },
        values={
            "policy_optimizer": policy_values,
            "critic_optimizer": critic_values,
            "random": random_values,
            "kl_coef": learner.kl_coef,
            "update_kl_coef": learner.update_kl_coef,
            "score_spread": list(learner.score_spread),
            "score_scale": learner.score_scale,
            "unfinished": None if unfinished is None else unfinished.values(),
            "watch": vars(learner.watch),
        },
    )
    save_checkpoint(reporter, state)


def resume(learner: Learner, reporter: Reporter) -> None:
    """Restore the newest good checkpoint, if there is one, and say what was restored."""
    state = newest_checkpoint(reporter)
    if state is None:
        return
    for name, parameters in (("policy", learner.roles.policy_parameters), ("critic", learner.roles.critic_parameters)):
        restore(parameters, state.tensors[name], name)
    for name, optimizer in (("policy", learner.policy_optimizer), ("critic", learner.critic_optimizer)):
        unpack_optimizer(optimizer, state.tensors[f"{name}_optimizer"], state.values[f"{name}_optimizer"])
    unpack_random_state(state.tensors["random"], state.values["random"])
    adapted = restore_numbers(learner, state.values)
    if state.values.get("unfinished") is not None:
        device = learner.roles.policy.trunk.machine.device
        learner.unfinished = read_unfinished(state.tensors["unfinished"], state.values["unfinished"], device)
    learner.iteration = state.step
    reporter.resumed_from(state.step, [*sorted(state.tensors), *adapted, "iteration"])


def restore_numbers(learner: Learner, values: dict[str, Any]) -> list[str]:
    """Take over the numbers that adapt; return their names."""
    learner.kl_coef, learner.score_scale = values["kl_coef"], values["score_scale"]
    learner.update_kl_coef = values["update_kl_coef"]
    n, mean, squares = values["score_spread"]
    learner.score_spread = RunningSpread(int(n), mean, squares)
    learner.watch = Watch(**values["watch"])
    return ["kl_coef", "update_kl_coef", "score_scale", "score_spread", "watch"]
