"""Load the four roles for a PPO run, in the layout that its configuration and its reward model allow."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from peft import TaskType
from torch import Tensor, nn

from training.jobs.reporter import Reporter
from training.launch.config import BaselinesConfig, PPOConfig, second_names
from training.lm.adapters import attach, fill_adapter, report_not_adapted, saved_adapter, saved_weights
from training.lm.encoding import Encoder
from training.lm.models import (
    ADAPTER_FOLDER,
    MODEL_FOLDER,
    Machine,
    ModelSource,
    adapter_hash,
    backbone,
    context_of,
    load_classifier,
    load_encoder,
    load_language_model,
    stored_turn,
)
from training.lm.scorer import RewardInfo, Scorer, read_heads, read_reward_info
from training.lm.trl_trainer import lora_config
from training.ppo.roles import (
    AdapterSwitch,
    Critic,
    Heads,
    Policy,
    Reading,
    RewardModel,
    Roles,
    SeparateRewardModel,
    SharedRewardModel,
    Trunk,
)

POLICY, CRITIC, REWARD = "policy", "critic", "reward"
REWARD_MODEL = "reward_model"  # among what reads the prompts


def build_roles(
    config: PPOConfig, reporter: Reporter, machine: Machine, source: ModelSource, encoder: Encoder
) -> Roles:
    """Load policy, critic, reward model and reference, and say in an event how they lie in memory."""
    reward_run = reporter.run.reward_run_id or ""
    folder = reporter.home.run_folder(reward_run)
    info = read_reward_info(folder)
    is_shared = shares_base(config, info, source)
    if is_shared:
        roles = _shared(config, machine, source, encoder, folder, info)
        reporter.models[f"run:{reward_run}"] = adapter_hash(folder)
    else:
        scorer = Scorer(reporter.home, reward_run, machine)
        roles = _separate(config, reporter, machine, source, encoder, scorer)
        reporter.models[f"run:{reward_run}"] = _revision(scorer)
    layout = "one base, an adapter for each role" if is_shared else f"separate models, {config.adapter} training"
    trained = sum(each.numel() for each in [*roles.policy_parameters.values(), *roles.critic_parameters.values()])
    reporter.event("roles", layout=layout, trained_parameters=trained)
    if config.adapter == "lora":
        report_not_adapted(roles.policy.language_model, reporter)
    return roles


def shares_base(config: PPOConfig, info: RewardInfo, source: ModelSource) -> bool:
    """Whether one base can carry all four roles: adapters on both sides, made for the same weights."""
    return config.adapter == "lora" and info.has_adapter and info.base_revision == source.revision


def critic_start(
    config: PPOConfig, info: RewardInfo, source: ModelSource, encoder: Encoder, reward_source: ModelSource
) -> ModelSource:
    """The model that the critic starts from: the reward model where it reads the policy's tokens, else the policy."""
    starts_apart = not shares_base(config, info, source) and info.vocabulary_hash == encoder.vocabulary_hash
    return reward_source if starts_apart else source


def context_of_roles(config: PPOConfig, reporter: Reporter, source: ModelSource, encoder: Encoder) -> int:
    """`Roles.context` before the models are loaded."""
    run_id = reporter.run.reward_run_id or ""
    folder = reporter.home.run_folder(run_id)
    reward_source = ModelSource(f"run:{run_id}", str(folder / MODEL_FOLDER), "")
    critic = critic_start(config, read_reward_info(folder), source, encoder, reward_source)
    return min(context_of(source), context_of(critic))


def readings_of(config: PPOConfig, reporter: Reporter, source: ModelSource, encoder: Encoder) -> dict[str, Reading]:
    """What the reward model, and the second ones where they are named, will read, before they are loaded."""
    seconds = config.second_reward_runs
    run_ids = {REWARD_MODEL: reporter.run.reward_run_id or ""}
    run_ids |= dict(zip(second_names(len(seconds)), seconds, strict=True))
    readings = {}
    for name, run_id in run_ids.items():
        folder = reporter.home.run_folder(run_id)
        info = read_reward_info(folder)
        if name == REWARD_MODEL and shares_base(config, info, source):
            readings[name] = shared_reading(encoder, info, folder)
        else:
            own = load_encoder(ModelSource(f"run:{run_id}", str(folder / MODEL_FOLDER), ""))
            readings[name] = Reading(own, info, encoder, info.vocabulary_hash == encoder.vocabulary_hash)
    return readings


def shared_reading(encoder: Encoder, info: RewardInfo, folder: Path) -> Reading:
    """What a reward model on the policy's own base reads: its ids, with the end and the date of its own training."""
    turn = stored_turn(folder / MODEL_FOLDER, encoder.tokenizer) or encoder.turn
    return Reading(encoder.as_in(turn), info, encoder, shares_ids=True)


def _shared(
    config: PPOConfig, machine: Machine, source: ModelSource, encoder: Encoder, folder: Path, info: RewardInfo
) -> Roles:
    language_model = load_language_model(source, machine.frozen_dtype).to(machine.device).requires_grad_(False)
    policy_lora = lora_config(config, TaskType.CAUSAL_LM, language_model)
    saved, (weights, head) = saved_adapter(folder / ADAPTER_FOLDER), saved_weights(folder / ADAPTER_FOLDER)
    if saved.target_parameters:  # all adapters of a base have to be on the same ones
        policy_lora.target_parameters = saved.target_parameters
    model = attach(language_model, policy_lora, POLICY)
    for adapter in (REWARD, CRITIC):
        fill_adapter(attach(model, copy.deepcopy(saved), adapter), adapter, weights)
    switch = AdapterSwitch(model, trained=(POLICY, CRITIC))
    inner = model.get_base_model()

    def trunk(adapter: str | None) -> Trunk:
        return Trunk(backbone(inner), machine, switch, adapter)

    reward_head = _linear(head, machine)
    critic = Critic(trunk(CRITIC), _value_head(reward_head.weight, config, info, machine))
    return Roles(
        policy=Policy(trunk(POLICY), inner, config.sampling.temperature),
        reference=Policy(trunk(None), inner, config.sampling.temperature),
        critic=critic,
        reward_model=SharedRewardModel(
            trunk(REWARD), reward_head, shared_reading(encoder, info, folder), _heads(folder, info)
        ),
        policy_parameters=switch.parameters(POLICY),
        critic_parameters=switch.parameters(CRITIC) | _named_head(critic.head),
    )


def _separate(
    config: PPOConfig,
    reporter: Reporter,
    machine: Machine,
    source: ModelSource,
    encoder: Encoder,
    scorer: Scorer,
) -> Roles:
    shares_ids = scorer.info.vocabulary_hash == encoder.vocabulary_hash
    policy, reference, policy_parameters = _policy_and_reference(config, machine, source)
    is_lora = config.adapter == "lora"
    critic_source = critic_start(config, scorer.info, source, encoder, scorer.source)
    if not shares_ids:
        reason = "the reward model reads other tokens than the policy"
        reporter.event("critic_starts_from_policy", reason=reason)
    classifier = load_classifier(critic_source, machine.frozen_dtype if is_lora else torch.float32).to(machine.device)
    head = _value_head(classifier.score.weight, config, scorer.info if shares_ids else None, machine)
    trunk, critic_parameters = _critic_trunk(classifier, config, machine)
    return Roles(
        policy=policy,
        reference=reference,
        critic=Critic(trunk, head),
        reward_model=SeparateRewardModel(scorer, encoder, shares_ids),
        policy_parameters=policy_parameters,
        critic_parameters=critic_parameters | _named_head(head),
    )


def _policy_and_reference(
    config: PPOConfig, machine: Machine, source: ModelSource
) -> tuple[Policy, Policy, dict[str, nn.Parameter]]:
    if config.adapter == "lora":
        model = load_language_model(source, machine.frozen_dtype).to(machine.device).requires_grad_(False)
        model = attach(model, lora_config(config, TaskType.CAUSAL_LM, model), POLICY)
        return adapted_policy(model, POLICY, machine, config.sampling.temperature)
    # The reference has the policy's precision: a bf16 copy would be 0.02 nats away before the first update.
    trained = load_language_model(source, torch.float32).to(machine.device)
    frozen = load_language_model(source, torch.float32).to(machine.device).requires_grad_(False)
    policy = Policy(Trunk(backbone(trained), machine), trained, config.sampling.temperature)
    reference = Policy(Trunk(backbone(frozen), machine), frozen, config.sampling.temperature)
    return policy, reference, dict(trained.named_parameters())


def adapted_policy(
    model: Any, adapter: str, machine: Machine, temperature: float
) -> tuple[Policy, Policy, dict[str, nn.Parameter]]:
    """A model under one adapter, the same with its adapters off, and the adapter's parameters."""
    switch, inner = AdapterSwitch(model, trained=(adapter,)), model.get_base_model()
    trunks = (Trunk(backbone(inner), machine, switch, each) for each in (adapter, None))
    policy, reference = (Policy(trunk, inner, temperature) for trunk in trunks)
    return policy, reference, switch.parameters(adapter)


def _critic_trunk(classifier: Any, config: PPOConfig, machine: Machine) -> tuple[Trunk, dict[str, nn.Parameter]]:
    if config.adapter == "lora":
        classifier.requires_grad_(False)
        model = attach(classifier, lora_config(config, TaskType.FEATURE_EXTRACTION, classifier), CRITIC)
        switch = AdapterSwitch(model, trained=(CRITIC,))
        return Trunk(backbone(model.get_base_model()), machine, switch, CRITIC), switch.parameters(CRITIC)
    trunk = backbone(classifier)
    return Trunk(trunk, machine), {f"trunk.{name}": each for name, each in trunk.named_parameters()}


def _value_head(weight: Tensor, config: PPOConfig, info: RewardInfo | None, machine: Machine) -> nn.Linear:
    """A head that starts by predicting the score itself, in the score's own zero and scale.

    Without a reward model that reads the policy's tokens (`info` None) it starts at 0.
    """
    head = nn.Linear(weight.shape[1], 1)
    scale = info.std if info is not None and config.advantages.score_scale == "sft" and info.std > 0 else 1.0
    with torch.no_grad():
        if info is None:
            head.weight.zero_()
            head.bias.zero_()
        else:
            head.weight.copy_(weight.float().cpu() / scale)
            head.bias.fill_(-info.shift / scale)
    return head.to(machine.device)


def _named_head(head: nn.Linear) -> dict[str, nn.Parameter]:
    return {f"head.{name}": parameter for name, parameter in head.named_parameters()}


def _heads(folder: Path, info: RewardInfo) -> Heads | None:
    if info.n_heads == 1:
        return None
    return Heads(*read_heads(folder, info))


def second_reward_models(
    config: PPOConfig | BaselinesConfig, reporter: Reporter, machine: Machine, encoder: Encoder
) -> list[RewardModel]:
    """The reward models that PPO does not train against, where some are named."""
    return [load_reward_model(each, reporter, machine, encoder) for each in config.second_reward_runs]


def load_reward_model(run_id: str, reporter: Reporter, machine: Machine, encoder: Encoder) -> RewardModel:
    """A finished run's reward model with weights of its own, for responses in the policy's tokens."""
    scorer = Scorer(reporter.home, run_id, machine)
    reporter.models.setdefault(f"run:{run_id}", _revision(scorer))
    return SeparateRewardModel(scorer, encoder, scorer.info.vocabulary_hash == encoder.vocabulary_hash)


def _revision(scorer: Scorer) -> str:
    """What a checkpoint holds the run to: the reward model's weights with their zero."""
    return f"{scorer.source.revision}-{adapter_hash(scorer.folder)}"


def _linear(weight: Tensor, machine: Machine) -> nn.Linear:
    head = nn.Linear(weight.shape[1], 1, bias=False)
    with torch.no_grad():
        head.weight.copy_(weight)
    return head.to(machine.device).requires_grad_(False)
