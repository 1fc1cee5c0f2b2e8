"""The PPO run around the loop: load the roles, check before the start, resume, save policy and critic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from data.errors import InvalidInput
from data.files.prompt_rows import read_prompts, told
from data.files.rows import Problem
from data.records import Messages, Split
from training.jobs.inputs import kept_file, snapshot_prompts
from training.jobs.left_out import LeftOut
from training.jobs.reporter import Reporter
from training.launch.config import (
    BaselinesConfig,
    EvaluatedConfig,
    PPOConfig,
    RLOOConfig,
    critic_learning_rate,
    peak_learning_rate,
)
from training.lm.encoding import Encoder
from training.lm.models import (
    MODEL_FOLDER,
    Machine,
    encoder_of_run,
    find_model,
    load_tokenizer,
    longest_prompt,
    set_up_machine,
    versions,
)
from training.lm.scorer import read_reward_info
from training.ppo.build_roles import build_roles, readings_of, second_reward_models
from training.ppo.evaluation import Evaluation, best_result, held_out_prompts
from training.ppo.learner import Learner, resume
from training.ppo.loop import ADAM_BETAS, ADAM_EPS, train
from training.ppo.ptx import ptx_examples
from training.ppo.reward_scores import check_shared_reward_model
from training.ppo.roles import Reading, Roles
from training.ppo.rollout import PromptItem
from training.ppo.save_roles import save_critic, save_policy
from training.ppo.sharing import check_shared_roles

CRITIC_FOLDER = "critic"


def run(config: PPOConfig, reporter: Reporter) -> dict[str, Any]:
    """Train a policy against the run's reward model and save it so that plain transformers loads it."""
    machine = set_up_machine(config.machine)
    reporter.versions(versions(machine))
    source = find_model(config.model, reporter.home, reporter)
    encoder = encoder_of_run(source, reporter)
    roles = build_roles(config, reporter, machine, source, encoder)
    readings = readings_of(config, reporter, source, encoder)
    prompts = load_prompts(config, reporter, encoder, roles.context, readings)
    check_shared_reward_model(reporter, roles, machine, prompts, encoder)
    share_prompts(config, reporter, roles, prompts, encoder)
    learner = make_learner(config, reporter, roles, encoder)
    report_cut_scores(config, reporter, prompts)
    reporter.event("first_prompt", tokens=len(prompts[0].ids), text=encoder.show(prompts[0].ids)[:2000])
    tokenizer = load_tokenizer(source)
    evaluation = make_evaluation(config, reporter, machine, encoder, roles, tokenizer, readings)
    resume(learner, reporter)  # after all models are known: a checkpoint holds the run to them
    train(config, learner, prompts, encoder, machine, reporter, evaluation)
    save_policy(roles.policy, tokenizer, reporter.folder / MODEL_FOLDER, encoder)
    save_critic(roles.critic, tokenizer, reporter.folder / CRITIC_FOLDER, encoder)
    result = {"model": source.name, "revision": source.revision, "iterations": learner.iteration}
    return result | {"prompts": len(prompts)} | best_result(learner.watch)


def share_prompts(
    config: PPOConfig, reporter: Reporter, roles: Roles, prompts: Sequence[PromptItem], encoder: Encoder
) -> None:
    """Let the responses to a prompt share it in forward passes, and leave out padding, where the models give the same
    numbers that way."""
    if not config.machine.share_prompts:
        return
    longest = max(len(prompt.ids) for prompt in prompts) + config.sampling.max_new_tokens
    found = check_shared_roles(roles, prompts, encoder, longest)
    roles.share_prompts(wanted=found.holds)
    reporter.event("shared_prompts" if found.holds else "prompts_not_shared", **found._asdict())


def make_evaluation(
    config: PPOConfig,
    reporter: Reporter,
    machine: Machine,
    encoder: Encoder,
    roles: Roles,
    tokenizer: Any,
    readings: Mapping[str, Reading],
) -> Evaluation | None:
    """What measures the policy on held-out prompts; None where the snapshot has none or none are asked for."""
    held_out = load_held_out(config, reporter, encoder, roles.context, readings)
    if not held_out:
        return None
    seconds = second_reward_models(config, reporter, machine, encoder)
    return Evaluation(config, held_out, encoder, machine, reporter, tokenizer, seconds)


def load_held_out(
    config: PPOConfig | BaselinesConfig | EvaluatedConfig,
    reporter: Reporter,
    encoder: Encoder,
    context: int,
    readings: Mapping[str, Reading],
) -> list[PromptItem]:
    """The held-out prompts that policy and reward models read; those that a reward model refuses are counted."""
    counts = Counter[str](used=0)
    items = []
    for item in held_out_prompts(config, reporter, encoder, context) if config.evaluation.prompts else []:
        refuser = refused_by(readings, item.messages, item.facts)
        counts[f"refused_by_{refuser}" if refuser else "used"] += 1
        if refuser is None:
            items.append(item)
    if len(counts) > 1:
        reporter.event("held_out_prompts_refused", **counts)
        lost = {name: n for name, n in counts.items() if name != "used"}
        LeftOut.counted("held-out prompts that fit", lost, len(items)).note(reporter)
    return items


def load_prompts(
    config: PPOConfig | RLOOConfig,
    reporter: Reporter,
    encoder: Encoder,
    context: int,
    readings: Mapping[str, Reading],
    counts: Counter[str] | None = None,
) -> list[PromptItem]:
    """The prompts to sample from: a file's, or those on the training side of the run's snapshot, ranked or not.

    Prompts that are too long, or refused by the template of the policy or of a reward model, are counted (in `counts`
    too) and left out. context: how many tokens the models read. Raises InvalidInput if none is left.
    """
    limit = longest_prompt(config.sampling, context)
    counts = Counter[str]() if counts is None else counts
    counts.update(used=0, too_long=0, refused_by_policy=0, **{f"refused_by_{name}": 0 for name in readings})
    items = []
    given = _prompts_of_file(config, reporter) if config.prompts_file else _prompts_of_snapshot(reporter)
    for key, messages, facts in given:
        try:
            ids = encoder.prompt_ids(messages)
        except InvalidInput:
            counts["refused_by_policy"] += 1
            continue
        if len(ids) > limit:
            counts["too_long"] += 1
        elif refuser := refused_by(readings, messages, facts):
            counts[f"refused_by_{refuser}"] += 1
        else:
            counts["used"] += 1
            items.append(PromptItem(key, messages, ids, facts))
    reporter.event("prompts", **counts)
    LeftOut.counted("prompts", {name: n for name, n in counts.items() if name != "used"}, len(items)).note(reporter)
    if not items:
        found = in_words(counts)
        raise InvalidInput(f"no prompt is left to sample from ({found}); import prompts, or raise max_prompt_tokens")
    return items


def refused_by(readings: Mapping[str, Reading], messages: Messages, facts: str) -> str | None:
    """Which reward model refuses the prompt; None if all of them read it."""
    return next((name for name, reading in readings.items() if reading.refuses(messages, facts)), None)


def in_words(counts: Mapping[str, int]) -> str:
    """Counts of prompts for a person."""
    return ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in counts.items())


def report_cut_scores(config: PPOConfig, reporter: Reporter, prompts: list[PromptItem]) -> None:
    """Say in an event how many prompts the reward model will see without their beginning if the response is long."""
    longest = read_reward_info(reporter.home.run_folder(reporter.run.reward_run_id or "")).max_length
    n_cut = sum(len(prompt.ids) + config.sampling.max_new_tokens + 1 > longest for prompt in prompts)
    if n_cut:
        reporter.event("prompts_cut_for_the_reward_model", prompts=n_cut, reward_max_length=longest)


def make_learner(config: PPOConfig, reporter: Reporter, roles: Roles, encoder: Encoder) -> Learner:
    """Optimizers for what is trained, the scale of the scores, and the texts where PPO-ptx wants some."""
    info = read_reward_info(reporter.home.run_folder(reporter.run.reward_run_id or ""))
    options: dict[str, Any] = {"betas": ADAM_BETAS, "eps": ADAM_EPS, "weight_decay": 0.0}
    policy = torch.optim.AdamW(list(roles.policy_parameters.values()), lr=peak_learning_rate(config), **options)
    critic = torch.optim.AdamW(list(roles.critic_parameters.values()), lr=critic_learning_rate(config), **options)
    learner = Learner(roles, policy, critic, kl_coef=config.kl.coef)
    if config.advantages.score_scale == "sft":
        if info.std <= 0:
            raise InvalidInput("score_scale = 'sft': the reward model gives every SFT response the same score")
        learner.score_scale = info.std
    if config.optimiser.ptx_coef:
        learner.best_of = ptx_examples(config, reporter, encoder, roles.context)
    return learner


def _prompts_of_file(config: PPOConfig | RLOOConfig, reporter: Reporter) -> Iterator[tuple[str, Messages, str]]:
    """The file's prompts. What is no prompt is counted in an event, with the first lines and what is wrong there."""
    problems: list[Problem] = []
    n_good = 0
    for row in read_prompts(kept_file("prompts_file", config.prompts_file, reporter)):
        if isinstance(row, Problem):
            problems.append(row)
        else:
            n_good += 1
            yield f"line {row.line}", row.messages, row.facts
    if problems:
        reporter.event("prompt_rows_left_out", rows=len(problems), first=told(problems))
        LeftOut("rows of prompts_file", n_good + len(problems), len(problems), told(problems[:1])).note(reporter)


def _prompts_of_snapshot(reporter: Reporter) -> Iterator[tuple[str, Messages, str]]:
    for prompt in snapshot_prompts(reporter):
        if prompt.split is Split.TRAIN:
            yield prompt.prompt_id, prompt.messages, prompt.facts
