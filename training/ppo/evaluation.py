"""The policy on fixed held-out prompts, with the same random numbers each time: what the best checkpoint is told by."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from data.errors import InvalidInput
from data.files.rollouts import HELD_OUT, write_rollout
from data.files.snapshots import read_groups
from data.records import Split
from data.runs.best_policy import BEST_EVENT, STANDING_EVENT, START, standing, standing_detail
from data.runs.held_out import trained_on
from data.text import messages_fingerprint
from training.jobs.left_out import LeftOut
from training.jobs.reporter import Reporter
from training.launch.config import BaselinesConfig, EvaluatedConfig, PPOConfig
from training.lm.encoding import Encoder
from training.lm.generation import Generated, generate
from training.lm.models import Machine, longest_prompt, write_json
from training.maths.advantages import gae, token_rewards
from training.maths.kl import kl_estimate
from training.measures.equal_kl import KL, PROMPTS_EVENT, SCORE
from training.ppo.learner import Learner, Watch
from training.ppo.roles import Policy, RewardModel
from training.ppo.rollout import (
    Credit,
    PromptItem,
    Rollout,
    logprobs_of,
    micro_batches_of,
    numbered_keys,
    pack_rows_of,
    sample_responses,
    sample_rollout,
    scores_of_rows,
)
from training.ppo.save_roles import save_policy
from training.ppo.token_rows import token_rows
from training.ppo.update import Metrics

BEST_FOLDER, BEST_FILE = "best", "best.json"
MICRO_BATCH_TOKENS = PPOConfig.micro_batch_tokens  # where the configuration has none
SAME_NUMBERS = -1  # in place of an iteration: the same random numbers at each evaluation

# What the best checkpoint is told by: the first of these that was measured.
TELLING = (
    "held_out/second_sure_score_mean", "held_out/second_score_mean", "held_out/sure_score_mean", "held_out/objective",
)  # fmt: skip


@dataclass(frozen=True)
class Evaluation:
    """Measures the policy on held-out prompts and keeps the best. `seconds`: reward models that PPO does not see."""

    config: PPOConfig
    prompts: list[PromptItem]
    encoder: Encoder
    machine: Machine
    reporter: Reporter
    tokenizer: Any
    seconds: Sequence[RewardModel] = ()

    def is_due(self, iteration: int) -> bool:
        return iteration % self.config.eval_every == 0 or iteration == self.config.iterations

    def measure(self, learner: Learner, by: Callable[..., list[Generated]] = generate) -> Metrics:
        """The held-out figures of the policy; its responses are recorded, and it is saved if it is the best.

        `by`: what samples.
        """
        config = replace(self.config, responses_per_prompt=1, prompts_per_iteration=len(self.prompts), minibatches=1)
        rollout = sample_rollout(
            learner.roles, self.prompts, config, self.encoder, self.machine, SAME_NUMBERS,
            check=self.reporter.raise_if_stopping, by=by,
        )  # fmt: skip
        figures = figures_of(
            rollout.batch.mask, rollout.ended, rollout.scores, rollout.old_logprobs, rollout.ref_logprobs
        )
        score, kl = figures[SCORE], max(figures[KL], 0.0)  # by chance it is below 0
        figures["held_out/objective"] = score - learner.score_scale * self.config.kl_coef * kl
        second = self.second_scores(rollout)
        spread = self.spread_of_heads(learner, rollout) if second is None else None
        figures |= spread_figures(spread, score) | ({} if second is None else second_figures(second))
        self.record(learner, rollout, second)
        weight = learner.score_scale * self.config.kl_coef if figures[KL] > 0 else 0.0
        self.keep_if_best(learner, figures, values_by_prompt(rollout, weight, second, spread))
        return figures

    def second_scores(self, rollout: Rollout) -> Tensor | None:
        """What the reward models say that PPO does not see, (B, m); None without any."""
        if not self.seconds:
            return None
        scores = torch.zeros(len(rollout.rows), len(self.seconds))
        for index in self.micro_batches(rollout):
            rows = [rollout.rows[place] for place in index]
            scores[index] = torch.stack([model.score(rows) for model in self.seconds], dim=1).float().cpu()
        return scores

    def spread_of_heads(self, learner: Learner, rollout: Rollout) -> Tensor | None:
        """Of an ensemble the spread of its heads for each response, (B,)."""
        spreads = torch.zeros(len(rollout.rows))
        for index in self.micro_batches(rollout):
            spread = learner.roles.reward_model.spread([rollout.rows[place] for place in index])
            if spread is None:
                return None
            spreads[index] = spread.float().cpu()
        return spreads

    def micro_batches(self, rollout: Rollout) -> Iterator[list[int]]:
        """The rows of each micro-batch, after a look whether the run is to stop."""
        for index in micro_batches_of(rollout.batch, self.config.micro_batch_tokens):
            self.reporter.raise_if_stopping()
            yield index.tolist()

    def record(self, learner: Learner, rollout: Rollout, second: Tensor | None) -> None:
        """Keep the responses token by token, with what second reward models make of each."""
        config, mask = self.config, rollout.batch.mask
        kl = kl_estimate(rollout.old_logprobs, rollout.ref_logprobs, "k1")
        scores = rollout.scores / learner.score_scale
        rewards = token_rewards(scores, kl, mask, learner.kl_coef if config.kl_place == "reward" else 0.0)
        advantages, returns = gae(rewards, rollout.old_values, mask, config.gamma, config.gae_lambda)
        credit = Credit(scores, kl, rewards, advantages, returns)
        rows = token_rows(rollout, credit, config, self.encoder, learner.kl_coef, config.token_rows)
        for row, prompt in zip(rows, self.prompts, strict=False):
            row["prompt_key"] = prompt.key
        for row, scores in zip(rows, () if second is None else second, strict=False):
            row["second_score"] = scores.mean().item()
            row["second_spread"] = scores.std(correction=0).item() if len(scores) > 1 else None
        if rows:
            write_rollout(self.reporter.folder, HELD_OUT, learner.iteration, rows)

    def keep_if_best(self, learner: Learner, figures: Metrics, by_prompt: Sequence[float]) -> None:
        """Remember the evaluation, and save the policy beside the run's last one if none was better.

        by_prompt: what the telling figure is the mean of.
        """
        name = next(each for each in TELLING if each in figures)
        entry = {"score": figures[SCORE], "iteration": float(learner.iteration), "prompts": float(len(by_prompt))}
        if name != "held_out/objective":
            entry["second"] = figures[name]
        watch = learner.watch
        watch.evaluations = [*watch.evaluations, entry]
        if not watch.best or figures[name] > watch.best["figure"]:
            watch.best = {"iteration": float(learner.iteration), "figure": figures[name]}
            self.reporter.event(BEST_EVENT, iteration=learner.iteration, told_by=name, figure=figures[name])
            if learner.iteration:
                save_policy(learner.roles.policy, self.tokenizer, self.reporter.folder / BEST_FOLDER, self.encoder)
                write_json(self.reporter.folder / BEST_FOLDER / BEST_FILE, watch.best | {"told_by": name})
        self.tell_standing(learner, by_prompt)

    def tell_standing(self, learner: Learner, by_prompt: Sequence[float]) -> None:
        """Say by how much the best is better than the start and than the next best, once this evaluation changes it."""
        watch, best = learner.watch, int(learner.watch.best["iteration"])
        values = {int(each): kept for each, kept in watch.by_prompt.items()} | {learner.iteration: list(by_prompt)}
        if best not in values:  # an older release had measured it
            return
        measured = standing(best, values, len(watch.evaluations))
        kept = {START, best, measured.next_iteration}
        watch.by_prompt = {str(each): values[each] for each in values if each in kept}
        if learner.iteration in kept:
            self.reporter.event(STANDING_EVENT, iteration=best, **standing_detail(measured))


@torch.no_grad()
def measure(
    policy: Policy,
    start: Policy,
    reward_model: RewardModel,
    prompts: Sequence[PromptItem],
    config: EvaluatedConfig,
    encoder: Encoder,
    machine: Machine,
    check: Callable[[], None],
) -> Metrics:
    """The held-out figures of a policy that TRL trains, of one response to each prompt, drawn with the random numbers
    that PPO's are drawn with. `check` may raise to stop."""
    policy.trunk.activate()
    keys = numbered_keys(SAME_NUMBERS, len(prompts), 1)
    rows, ended = sample_responses(policy.language_model, prompts, 1, keys, config, encoder, machine, check)
    batch = pack_rows_of(rows, encoder, machine)
    micro_batches = list(micro_batches_of(batch, MICRO_BATCH_TOKENS))
    here, there = (logprobs_of(each, batch, micro_batches, check) for each in (policy, start))
    return figures_of(batch.mask, ended, scores_of_rows(reward_model, rows, micro_batches, check), here, there)


def figures_of(mask: Tensor, ended: Tensor, scores: Tensor, logprobs: Tensor, start_logprobs: Tensor) -> Metrics:
    """What is said of a policy's responses (B,), (B, T) to held-out prompts; KL in nats per response."""
    return {
        SCORE: scores.mean().item(),
        KL: kl_estimate(logprobs, start_logprobs, "k1").sum(1).mean().item(),
        "held_out/length_mean": mask.sum(1).float().mean().item(),
        "held_out/ended_share": ended.float().mean().item(),
    }


def values_by_prompt(rollout: Rollout, weight: float, second: Tensor | None, spread: Tensor | None) -> list[float]:
    """What the telling figure is the mean of, (B,): second scores less their spread, else scores less the spread of an
    ensemble's heads, else scores less `weight` times the KL."""
    if second is not None:
        found = second.mean(1) - (second.std(1, correction=0) if second.shape[1] > 1 else 0.0)
    elif spread is not None:
        found = rollout.scores.cpu() - spread
    else:
        kl = kl_estimate(rollout.old_logprobs, rollout.ref_logprobs, "k1").sum(1)
        found = (rollout.scores - weight * kl).cpu()
    return [float(each) for each in found.tolist()]


def best_result(watch: Watch) -> dict[str, Any]:
    """The best evaluation, with by how much it is better than the others; nothing without evaluations."""
    if not watch.best:
        return {}
    best = int(watch.best["iteration"])
    values = {int(each): kept for each, kept in watch.by_prompt.items()}
    told = standing_detail(standing(best, values, len(watch.evaluations))) if best in values else None
    return {"best_iteration": best, "best_standing": told}


def spread_figures(spread: Tensor | None, score: float) -> Metrics:
    """Of an ensemble the mean spread of its heads, and the score less that."""
    if spread is None:
        return {}
    mean = spread.mean().item()
    return {"held_out/spread_mean": mean, "held_out/sure_score_mean": score - mean}


def second_figures(scores: Tensor) -> Metrics:
    """What models that PPO does not see say of the responses, scores (B, m); of several, less their spread as well.

    The spread is the standard deviation of a response's scores between the models, each from its own zero.
    """
    mean = scores.mean().item()
    if scores.shape[1] == 1:
        return {"held_out/second_score_mean": mean}
    spread = scores.std(1, correction=0).mean().item()
    return {
        "held_out/second_score_mean": mean,
        "held_out/second_spread_mean": spread,
        "held_out/second_sure_score_mean": mean - spread,
    }


def held_out_prompts(
    config: PPOConfig | BaselinesConfig | EvaluatedConfig, reporter: Reporter, encoder: Encoder, context: int
) -> list[PromptItem]:
    """The first prompts of the snapshot's held-out side that fit, and that nothing behind the run was trained on; the
    rest is counted in an event."""
    limit, counts = longest_prompt(config, context), Counter[str](used=0, too_long=0, refused=0, trained_on=0)
    with reporter.store.read() as tx:
        known = trained_on(tx, reporter.home, runs=[reporter.run.id])
    prompts: dict[str, PromptItem] = {}
    left_out = set[str]()
    for group in read_groups(reporter.home.snapshot_folder(reporter.run.snapshot_id or "")):
        if len(prompts) >= config.eval_prompts:
            break
        if group.split is not Split.EVAL or group.prompt_id in prompts or group.prompt_id in left_out:
            continue
        left_out.add(group.prompt_id)
        if not known.holds_out(messages_fingerprint(group.messages)):
            counts["trained_on"] += 1
            continue
        try:
            ids = encoder.prompt_ids(group.messages)
        except InvalidInput:
            counts["refused"] += 1
            continue
        if len(ids) > limit:
            counts["too_long"] += 1
            continue
        counts["used"] += 1
        prompts[group.prompt_id] = PromptItem(group.prompt_id, group.messages, ids, group.facts)
    if config.eval_prompts:
        keys = "\n".join(messages_fingerprint(each.messages) for each in prompts.values())
        unsure = {"not_known": known.unknown} if known.unknown else {}
        lost = {name: n for name, n in counts.items() if name != "used"}
        LeftOut.counted("held-out prompts", lost, len(prompts)).note(reporter)
        reporter.event(PROMPTS_EVENT, **counts, **unsure, sha256=hashlib.sha256(keys.encode()).hexdigest())
    return list(prompts.values())
