"""What of the loop another engine can stand in for: sampling, scoring, and the optimizer step.

Scoring is `roles.RewardModel`, a part of the roles. The loop takes the other two as functions, for example

    train(..., seams=Seams(generate=by_a_server))

and checks what comes of them as it does its own: responses need an id at least, and the first ratio has to be 1, which
the loop measures itself, whoever sampled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from training.config import GenerationConfig, PPOConfig
from training.generation import Generated, generate
from training.learner import Learner
from training.models import Machine
from training.ppo_update import Metrics, update_minibatch
from training.rollout import Rollout


class Generate(Protocol):
    """Samples n responses for each prompt from the policy as it is; response j of prompt i is at place i * n + j.

    `uniform`: random numbers in [0, 1), a row for each response, so that a resumed run draws the same.
    """

    def __call__(
        self,
        model: Any,
        prompts: Sequence[Sequence[int]],
        n: int,
        config: GenerationConfig,
        uniform: Tensor,
        *,
        stop_ids: frozenset[int],
        pad_id: int,
        machine: Machine,
        check: Callable[[], None],
    ) -> list[Generated]: ...


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
    """The two functions; ours unless others are named."""

    generate: Generate = generate
    update: Update = update_minibatch
