"""Policies that TRL trains, measured on held-out prompts as PPO's are, so that their points stand beside them.

The start, for the KL: with adapters the model without them, else a frozen copy (the trainer's own where it has one).
Training never notices: no random number is taken from it, and the model is left as it was.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import TrainerCallback

from data.runs.metrics import metrics_of
from training.jobs.reporter import Cancelled, Reporter
from training.launch.config import EvaluatedConfig
from training.lm.checkpoint import kept_random_state
from training.lm.encoding import Encoder
from training.lm.models import Machine, ModelSource, backbone, context_of, load_language_model
from training.measures.equal_kl import KL
from training.ppo.build_roles import REWARD_MODEL, adapted_policy, load_reward_model
from training.ppo.evaluation import measure
from training.ppo.roles import Policy, RewardModel, Trunk
from training.ppo.rollout import PromptItem
from training.ppo.run import load_held_out

ADAPTER = "default"  # what PEFT calls the only one


def evaluate_on_the_way(
    trainer: Any,
    config: EvaluatedConfig,
    reporter: Reporter,
    machine: Machine,
    source: ModelSource,
    encoder: Encoder,
    reward_model: RewardModel | None = None,
) -> None:
    """Let a trainer measure its policy at the start, every so often and at the end, with the run's reward model.

    Nothing is measured in a run without one, or where the snapshot holds no prompt out. `reward_model`: where it is
    loaded already.
    """
    run_id = reporter.run.reward_run_id
    if run_id is None or not config.evaluation.prompts:
        return
    with kept_random_state():
        judge = reward_model or load_reward_model(run_id, reporter, machine, encoder)
        prompts = load_held_out(config, reporter, encoder, context_of(source), {REWARD_MODEL: judge.reading})
        if not prompts:
            return
        policy, start = policy_and_start(trainer, source, machine, config.sampling.temperature)
    trainer.add_callback(HeldOutEvaluation(config, reporter, machine, encoder, prompts, judge, policy, start))


def policy_and_start(trainer: Any, source: ModelSource, machine: Machine, temperature: float) -> tuple[Policy, Policy]:
    """The policy that a trainer holds, and what it started from."""
    if hasattr(trainer.model, "peft_config"):
        policy, start, _ = adapted_policy(trainer.model, ADAPTER, machine, temperature)
        policy.trunk.activate()
        return policy, start
    frozen = getattr(trainer, "ref_model", None)
    if frozen is None:
        frozen = load_language_model(source, torch.float32).to(machine.device).requires_grad_(False)
    policy, start = (Policy(Trunk(backbone(each), machine), each, temperature) for each in (trainer.model, frozen))
    return policy, start


class HeldOutEvaluation(TrainerCallback):  # type: ignore[misc]
    """Measures the policy of a trainer and reports it, once at each step where that is due."""

    def __init__(
        self,
        config: EvaluatedConfig,
        reporter: Reporter,
        machine: Machine,
        encoder: Encoder,
        prompts: list[PromptItem],
        reward_model: RewardModel,
        policy: Policy,
        start: Policy,
    ) -> None:
        self.config, self.reporter, self.machine, self.encoder = config, reporter, machine, encoder
        self.prompts, self.reward_model, self.policy, self.start = prompts, reward_model, policy, start
        self._is_broken_off = False

    def on_train_begin(self, _args: Any, state: Any, _control: Any, **_words: Any) -> None:
        self._evaluate_if_due(state)

    def on_step_end(self, _args: Any, state: Any, _control: Any, **_words: Any) -> None:
        """Asked to stop on the way, the trainer saves what it has learnt, as at any step; the run is resumed with the
        evaluation."""
        try:
            self._evaluate_if_due(state)
        except Cancelled:
            self._is_broken_off = True

    def on_train_end(self, _args: Any, _state: Any, _control: Any, **_words: Any) -> None:
        """At the last step nothing else would see that somebody has asked to stop."""
        if self._is_broken_off:
            self.reporter.raise_if_stopping()

    def _evaluate_if_due(self, state: Any) -> None:
        step, total = int(state.global_step), int(state.max_steps)
        if (step % self.config.evaluation.every and step != total) or self._is_done(step):
            return
        language_model = self.policy.language_model
        was_training = language_model.training
        language_model.eval()
        try:
            with kept_random_state():
                figures = measure(
                    self.policy, self.start, self.reward_model, self.prompts, self.config, self.encoder, self.machine,
                    self.reporter.raise_if_stopping,
                )  # fmt: skip
        finally:
            self.policy.trunk.activate()
            language_model.train(was_training)
        self.reporter.step(step, total, figures)

    def _is_done(self, step: int) -> bool:
        """Whether it was measured before the run was resumed: what came after its checkpoint is forgotten."""
        with self.reporter.store.read() as tx:
            return any(
                point.step == step for point in metrics_of(tx, self.reporter.run.id, after=step - 1, names=(KL,))
            )
