"""The table of baselines: every policy on the same held-out prompts, and best-of-n from the model they started from.

KL is measured, so policies are compared at equal KL: with what best-of-n scores at theirs, as far as its curve goes,
and with each other where their own evaluations passed the same KL.
"""

from __future__ import annotations

import math
from statistics import fmean, pstdev
from typing import Any

import torch

from data.errors import InvalidInput
from data.intervals import paired
from data.runs.best_policy import run_of
from data.runs.state import get_run
from training.jobs.left_out import LeftOut
from training.jobs.reporter import Reporter
from training.launch.config import BaselinesConfig, second_names
from training.lm.encoding import Encoder
from training.lm.models import (
    Machine,
    ModelSource,
    backbone,
    context_of,
    encoder_of_run,
    find_model,
    load_encoder,
    load_language_model,
    set_up_machine,
    versions,
)
from training.measures.equal_kl import Path, equal_kl, path_of, row_at, score_at, settings_that_differ
from training.measures.figures import best_of
from training.ppo.build_roles import REWARD_MODEL, load_reward_model, second_reward_models
from training.ppo.roles import Policy, Reading, ScoredRow, Trunk
from training.ppo.rollout import PromptItem, logprobs_of, micro_batches_of, pack_rows_of, sample_responses
from training.ppo.run import load_held_out

START = "start"  # its name in the table


def run(config: BaselinesConfig, reporter: Reporter) -> dict[str, Any]:
    """Sample and score the start and every named policy; the result is the table and the curve of best-of-n."""
    machine = set_up_machine(config)
    reporter.versions(versions(machine))
    source = find_model(config.model, reporter.home, reporter)
    encoder = encoder_of_run(source, reporter)
    scorers = Scorers(config, reporter, machine, encoder)
    prompts = load_held_out(config, reporter, encoder, context_of(source), scorers.readings)
    if not prompts:
        raise InvalidInput(
            "the snapshot has no held-out prompt that fits and that nothing behind the policies and the reward models "
            "was trained on (the run's event held_out_prompts has the numbers); freeze one with eval_share above 0, or "
            "name prompts as held out when they are imported"
        )
    names = [name for name in config.models.replace(",", " ").split() if name]
    judge = Judge(config, reporter, machine, encoder, prompts, scorers)
    total = len(names) + 1
    curve = judge.curve_of_best(source)
    reporter.step(1, total)
    rows = [judge.row(START, source, source)]
    left_out = LeftOut("policies", len(names))
    for number, name in enumerate(names, start=2):
        policy = find_model(name, reporter.home, reporter)
        if load_encoder(policy).vocabulary_hash != encoder.vocabulary_hash:
            reason = "it has other tokens than the start, so no KL to it"
            reporter.event("policy_left_out", model=name, reason=reason)
            left_out.add(f"{name}: {reason}")
        else:
            rows.append(judge.row(name, policy, source))
        reporter.step(number, total)
    left_out.report(reporter, "Name policies that were trained from the start")
    table = {"prompts": len(prompts), "responses": config.responses, "policies": rows, "best_of_n": curve}
    table |= compare_at_equal_kl(rows, curve, reporter)
    for row in rows:
        row.update(judge.gain_interval(row))
    return table


def compare_at_equal_kl(
    rows: list[dict[str, Any]], curve: list[dict[str, float]], reporter: Reporter
) -> dict[str, Any]:
    """Add to each policy's line what best-of-n scores at its KL, and what it had itself at the KL that all have
    reached; return what is said of the table as a whole."""
    for row in rows:
        best = score_at([(each["kl"], each["score"]) for each in curve], row["kl"])
        row["best_of_n_at_its_kl"] = best
        row["gain_over_best_of_n"] = None if best is None else row["score"] - best
    names = [str(row["model"]) for row in rows]
    with reporter.store.read() as tx:
        runs = {name: get_run(tx, run_id) for name in names if (run_id := run_of(name))}
        paths = {name: path_of(tx, run, reporter.run) for name, run in runs.items()}
    kl = equal_kl(paths)
    for row in rows:
        other = Path(why_not="the start" if row["model"] == START else "it is no run of this store")
        row.update(row_at(paths.get(row["model"], other), kl))
    with reporter.store.read() as tx:
        differ = settings_that_differ(tx, [run for name, run in runs.items() if paths[name].points])
    return {"best_of_n_ends_at_kl": curve[-1]["kl"], "equal_kl": kl, "evaluations_differ_in": differ}


class Scorers:
    """The reward model of the run, and second ones where they are named."""

    def __init__(self, config: BaselinesConfig, reporter: Reporter, machine: Machine, encoder: Encoder) -> None:
        self.first = load_reward_model(reporter.run.reward_run_id or "", reporter, machine, encoder)
        self.seconds = second_reward_models(config, reporter, machine, encoder)

    @property
    def readings(self) -> dict[str, Reading]:
        """What each reads, by its name in counts."""
        names = second_names(len(self.seconds))
        seconds = {name: model.reading for name, model in zip(names, self.seconds, strict=True)}
        return {REWARD_MODEL: self.first.reading} | seconds

    def second_figures(self, rows: list[ScoredRow]) -> dict[str, float]:
        """The mean score of the second ones, and of several the mean of each response's spread between them."""
        if not self.seconds:
            return {}
        scores = torch.stack([model.score(rows) for model in self.seconds], dim=1)
        figures = {"second_score": float(scores.mean())}
        if len(self.seconds) > 1:
            figures["second_spread"] = float(scores.std(1, correction=0).mean())
        return figures


class Judge:
    """Samples a model on the held-out prompts, scores it and measures its KL to the start."""

    def __init__(
        self,
        config: BaselinesConfig,
        reporter: Reporter,
        machine: Machine,
        encoder: Encoder,
        prompts: list[PromptItem],
        scorers: Scorers,
    ) -> None:
        self.config, self.reporter, self.machine = config, reporter, machine
        self.encoder, self.prompts, self.scorers = encoder, prompts, scorers
        self.means: dict[str, list[float]] = {}  # of each policy, by prompt
        self.groups: list[list[float]] = []  # scores of the start's responses to each prompt

    def row(self, name: str, policy: ModelSource, start: ModelSource) -> dict[str, Any]:
        """A policy's line of the table. The standard error is over prompts."""
        rows = self.sample(policy, self.config.responses)
        here = self.logprobs(policy, rows)
        kl = 0.0 if policy == start else float((here - self.logprobs(start, rows)).mean())
        scores = self.scorers.first.score(rows).tolist()
        n = self.config.responses
        means = [fmean(scores[place : place + n]) for place in range(0, len(scores), n)]
        self.means[name] = means
        error = pstdev(means) / math.sqrt(max(1, len(means) - 1))
        found: dict[str, Any] = {"model": name, "kl": kl, "score": fmean(scores), "score_error": error}
        found["tokens"] = fmean(len(row.response) for row in rows)
        return found | self.scorers.second_figures(rows)

    def curve_of_best(self, start: ModelSource) -> list[dict[str, float]]:
        """Best-of-n by the reward model, n = 1, 2, 4, ...: mean score over all ways to draw n, and its KL."""
        most = self.config.best_of
        scores = self.scorers.first.score(self.sample(start, most)).tolist()
        self.groups = [scores[place : place + most] for place in range(0, len(scores), most)]
        return [
            {"n": n, "kl": kl_of_best(n), "score": fmean(best_of(group, group, n) for group in self.groups)}
            for n in self.sizes
        ]

    @property
    def sizes(self) -> list[int]:
        most = self.config.best_of
        return [2**power for power in range(most.bit_length()) if 2**power <= most]

    def gain_interval(self, row: dict[str, Any]) -> dict[str, Any]:
        """The 95 % interval of a policy's gain over best-of-n at its KL, paired by prompt, and what it says."""
        if row["gain_over_best_of_n"] is None:
            return {"gain_low": None, "gain_high": None, "gain_told": None}
        curves = ([(kl_of_best(n), best_of(group, group, n)) for n in self.sizes] for group in self.groups)
        theirs = [score_at(curve, row["kl"]) or 0.0 for curve in curves]  # not None: the KL lies within the curve
        found = paired(self.means[row["model"]], theirs)
        return {"gain_low": found.low, "gain_high": found.high, "gain_told": found.told.value}

    def sample(self, source: ModelSource, n: int) -> list[ScoredRow]:
        """n responses to each prompt, with the same random numbers for every model."""
        model = load_language_model(source, self.machine.frozen_dtype).to(self.machine.device)
        keys = [f"{item.key}:{each}" for item in self.prompts for each in range(n)]
        config, check = self.config, self.reporter.raise_if_stopping
        rows, _ = sample_responses(model, self.prompts, n, keys, config, self.encoder, self.machine, check)
        return rows

    def logprobs(self, source: ModelSource, rows: list[ScoredRow]) -> torch.Tensor:
        """Log-probability of each response under a model, (B,), at the sampling temperature."""
        model = load_language_model(source, torch.float32).to(self.machine.device)
        policy = Policy(Trunk(backbone(model), self.machine), model, self.config.temperature)
        batch = pack_rows_of(rows, self.encoder, self.machine)
        micro_batches = list(micro_batches_of(batch, self.config.micro_batch_tokens))
        return logprobs_of(policy, batch, micro_batches, self.reporter.raise_if_stopping).sum(1).double().cpu()


def kl_of_best(n: int) -> float:
    """KL of best-of-n to the model it draws from, in nats: at most ln n - (n - 1) / n (Beirami et al. 2024)."""
    return math.log(n) - (n - 1) / n
