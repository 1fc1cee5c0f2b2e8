"""Everything that can be checked of a PPO run before it starts, in one go: a `check` run, whose result is the report.

A check that fails turns the report red and says what to do; what needs it is then not reached.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from data.errors import Fenced, InvalidInput, ProjectError
from training.check.memory_plan import Models, Part, Workload, find_models, peak, plan, step_peak
from training.check.role_checks import Start, check_saving, compare_with_models, numbers_at_start
from training.check.sample import Shown, show_sample
from training.check.weightless import MicroBatch
from training.jobs.reporter import Cancelled, Reporter
from training.launch.config import PPOConfig
from training.lm.adapters import not_adapted
from training.lm.encoding import Encoder, pack
from training.lm.machine_memory import available_memory, in_use, peak_in_use, reset_peak
from training.lm.models import (
    Machine,
    ModelSource,
    encoder_of_run,
    find_model,
    load_tokenizer,
    longest_prompt,
    set_up_machine,
)
from training.lm.models import versions as versions_of
from training.lm.scorer import RewardInfo, read_reward_info
from training.ppo.build_roles import build_roles, context_of_roles, readings_of, second_reward_models, shares_base
from training.ppo.learner import Learner
from training.ppo.loop import check_first_ratio
from training.ppo.roles import RewardModel, Roles, ScoredRow
from training.ppo.rollout import Credit, PromptItem, Rollout, minibatch_of
from training.ppo.run import in_words, load_held_out, load_prompts, make_learner, share_prompts
from training.ppo.update import RATIO_DEVIATION, update_minibatch

MB = 1e6
SAFE_SHARE = 0.9  # of the available memory that the predicted peak may take
GREEN, RED, NOT_REACHED = "ok", "failed", "not reached"
log = logging.getLogger(__name__)


@dataclass
class CheckReport:
    """What the checks found, in their order; the rest is shown beside them."""

    checks: list[dict[str, str]] = field(default_factory=list)
    memory: dict[str, Any] = field(default_factory=dict)
    step: dict[str, float] = field(default_factory=dict)
    samples: list[Shown] = field(default_factory=list)

    @property
    def is_green(self) -> bool:
        return all(check["state"] == GREEN for check in self.checks)

    def check(self, name: str, look: Callable[[], str]) -> bool:
        """Add a check: what `look` returns, or what it raises. Once one has failed, the later ones are not reached.

        Any error is a finding: the run would meet it too. What stops the check itself is passed on.
        """
        if not self.is_green:
            self.checks.append({"name": name, "state": NOT_REACHED, "words": ""})
            return False
        try:
            words, state = look(), GREEN
        except (Cancelled, Fenced):
            raise
        except ProjectError as error:
            words, state = str(error), RED
        except (torch.OutOfMemoryError, MemoryError):
            words, state = "there is not enough memory for it; see the table for the largest part", RED
        except Exception as error:
            log.exception("check %r", name)
            words, state = unexpected(error), RED
        self.checks.append({"name": name, "state": state, "words": words})
        return state == GREEN


def run(config: PPOConfig, reporter: Reporter) -> dict[str, Any]:
    """Check everything; the run succeeds whatever is found, and its result says whether all is green."""
    report = Preflight(config, reporter).look()
    return {"ok": report.is_green, **asdict(report)}


class Preflight:
    """The checks in their order: cheap ones first, then what needs the models, then one step."""

    machine: Machine
    source: ModelSource
    encoder: Encoder
    info: RewardInfo
    prompts: list[PromptItem]
    n_held_out: int
    models: Models
    parts: list[Part]
    work: Workload
    before: int | None  # what the process held when nothing of the models was loaded
    roles: Roles
    learner: Learner
    start: Start
    seconds: list[RewardModel]

    def __init__(self, config: PPOConfig, reporter: Reporter) -> None:
        self.config, self.reporter, self.report = config, reporter, CheckReport()

    def look(self) -> CheckReport:
        checks = (
            ("Sizes divide", self.sizes), ("Model and machine", self.model), ("End and padding", self.tokens),
            ("The reward model's zero", self.shift), ("Context and prompts", self.context),
            ("Memory", self.memory), ("Policy equals reference", self.reference),
            ("One step at the worst length", self.step), ("Roles give their models' numbers", self.numbers),
            ("Saved and loaded again", self.saving),
        )  # fmt: skip
        for number, (name, look) in enumerate(checks, start=1):
            self.reporter.raise_if_stopping()
            self.report.check(name, look)
            self.reporter.step(number, len(checks))
        return self.report

    def sizes(self) -> str:
        config = self.config
        sampling = config.sampling
        rows = f"{sampling.prompts_per_iteration} prompts x {sampling.responses_per_prompt} responses"
        return (
            f"{rows} = {sampling.responses_per_iteration} responses, in {config.optimiser.minibatches} minibatches of "
            f"{config.minibatch_size}, {config.optimiser.ppo_epochs} times"
        )

    def model(self) -> str:
        self.machine = set_up_machine(self.config.machine)
        self.reporter.versions(versions_of(self.machine))
        self.source = find_model(self.config.model, self.reporter.home, self.reporter)
        precision = "bf16 over fp32 weights" if self.machine.is_bf16 else "fp32"
        return f"{self.source.name}, revision {self.source.revision}, on {self.machine.device}, {precision}"

    def tokens(self) -> str:
        self.encoder = encoder = encoder_of_run(self.source, self.reporter)
        others = ", ".join(_named(encoder, each) for each in sorted(encoder.stop_ids - {encoder.end_id}))
        ends = " ".join(_named(encoder, each) for each in encoder.end_ids)
        ends += f", sampling also stops at {others}" if others else ""
        ends += f"; the template sees the date {encoder.date}" if encoder.is_dated else ""
        shared = "; texts may hold it too, every mask here comes from lengths" if encoder.is_pad_shared else ""
        return f"responses end with {ends}; padding is {_named(encoder, encoder.pad_id)}{shared}"

    def shift(self) -> str:
        self.info = info = read_reward_info(self.reporter.home.run_folder(self.reporter.run.reward_run_id or ""))
        if not (math.isfinite(info.shift) and math.isfinite(info.std)):
            raise InvalidInput("the reward model's zero is not a finite number; train the reward model again")
        reads = "the same tokens" if info.vocabulary_hash == self.encoder.vocabulary_hash else "text, encoded again"
        return (
            f"{info.shift:.4f} is taken from every score, the mean of {info.n} SFT responses, whose scores spread by "
            f"{info.std:.4f}; it reads {reads}"
        )

    def context(self) -> str:
        config, counts = self.config, Counter[str]()
        context = context_of_roles(config, self.reporter, self.source, self.encoder)
        readings = readings_of(config, self.reporter, self.source, self.encoder)
        self.prompts = load_prompts(config, self.reporter, self.encoder, context, readings, counts)
        self.n_held_out = len(load_held_out(config, self.reporter, self.encoder, context, readings))
        self.report.samples = show_sample(config, self.reporter, self.encoder, readings, self.prompts)
        lengths = [len(prompt.ids) for prompt in self.prompts]
        reads = f"{context} tokens" if context < 2**30 else "texts of any length"
        left_out = {name: n for name, n in counts.items() if n and name != "used"}
        cut = f"; the reward model reads {self.info.max_length}, so the longest prompts lose their beginning" if (
            max(lengths) + config.sampling.max_new_tokens + 1 > self.info.max_length
        ) else ""  # fmt: skip
        return (
            f"policy and critic read {reads}: prompts of up to {longest_prompt(config.sampling, context)} and "
            f"responses of up to {config.sampling.max_new_tokens}; {len(lengths)} prompts of {min(lengths)} to "
            f"{max(lengths)} tokens, "
            f"{in_words(left_out) or 'none'} left out; {self.n_held_out} held-out prompts{cut}"
        )

    @property
    def evaluating(self) -> tuple[str, ...]:
        """The second reward runs whose models the run will load: all, where it has held-out prompts."""
        return self.config.second_reward_runs if self.n_held_out else ()

    def memory(self) -> str:
        folder = self.reporter.home.run_folder(self.reporter.run.reward_run_id or "")
        is_shared = shares_base(self.config, self.info, self.source)
        shares_ids = self.info.vocabulary_hash == self.encoder.vocabulary_hash
        seconds = [self.reporter.home.run_folder(each) for each in self.evaluating]
        self.models = find_models(
            self.config, self.machine, self.source, folder, is_shared=is_shared, shares_ids=shares_ids,
            second_folders=seconds,
        )  # fmt: skip
        lengths = [len(prompt.ids) for prompt in self.prompts]
        self.parts, self.work = plan(self.config, self.models, self.machine, lengths)
        predicted, free = peak(self.parts), available_memory(self.machine)
        table = [
            {name: size if name == "name" else size / MB for name, size in asdict(part).items()} for part in self.parts
        ]
        self.report.memory = {"parts_mb": table, "predicted_mb": predicted / MB, "available_mb": free / MB}
        message = f"{predicted / MB:,.0f} MB at the peak by prediction, {free / MB:,.0f} MB are free"
        if self.work.rule:
            message += f"; activations and cache by a rule of thumb, as the model can't be tried: {self.work.rule}"
        if predicted > SAFE_SHARE * free:
            raise InvalidInput(f"{message}: {smaller(self.config)}")
        return message

    def reference(self) -> str:
        self.before = in_use(self.machine)
        self.roles = build_roles(self.config, self.reporter, self.machine, self.source, self.encoder)
        share_prompts(self.config, self.reporter, self.roles, self.prompts, self.encoder)
        self.learner = make_learner(self.config, self.reporter, self.roles, self.encoder)
        if self.evaluating:  # kept, as the run keeps them: they are part of what is measured
            self.seconds = second_reward_models(self.config, self.reporter, self.machine, self.encoder)
        batch = pack([self.prompts[0].ids], [[*self.prompts[0].ids[:4], self.encoder.end_id]], self.encoder.pad_id)
        batch = batch.to(self.machine.device)
        with torch.no_grad():
            pair = [role.token_scores(batch).logprobs for role in (self.roles.policy, self.roles.reference)]
        apart = float((pair[0] - pair[1]).abs().max())
        if apart > 0:
            raise InvalidInput(f"they differ by {apart:.2g} nats before the first update; report this")
        self.start = numbers_at_start(self.roles, self.prompts, self.encoder)
        words = "the same log-probabilities to the last bit, so the KL starts at 0"
        left = not_adapted(self.roles.policy.language_model) if self.config.adapter == "lora" else None
        return f"{words}; {left.words}" if left and left.numbers else words

    def step(self) -> str:
        rollout = worst_rollout(self)
        rows, mask = len(rollout.rows), rollout.batch.mask
        advantages = torch.where(mask, torch.linspace(-1, 1, mask.shape[1], device=mask.device), 0.0)
        for optimizer in (self.learner.policy_optimizer, self.learner.critic_optimizer):
            make_states(optimizer)
        has_peak, started = reset_peak(self.machine), time.perf_counter()
        credit = Credit(rollout.scores, advantages, advantages, advantages, returns=rollout.old_values + advantages)
        minibatch = minibatch_of(rollout, credit, torch.arange(rows), self.config.optimiser.loss_mean)
        figures = update_minibatch(self.config, self.learner, minibatch, number=0, trains_policy=True)
        seconds = time.perf_counter() - started
        check_first_ratio(figures[RATIO_DEVIATION], self.machine)
        spoilt = sorted(name for name, value in figures.items() if not math.isfinite(value))
        if spoilt:
            raise InvalidInput(f"{', '.join(spoilt)} is not a finite number; use precision=fp32 or another model")
        return (
            f"{rows} responses of {rollout.batch.ids.shape[1]} tokens with their prompts in {seconds:.2f} s; first "
            f"ratio off by {figures[RATIO_DEVIATION]:.1g}; {self.compare(rollout, seconds, has_peak=has_peak)}"
        )

    def numbers(self) -> str:
        return compare_with_models(self.start, self.roles, self.config, self.reporter, self.source, self.machine)

    def saving(self) -> str:
        return check_saving(
            self.roles, load_tokenizer(self.source), self.encoder, self.start, self.reporter.folder,
            is_half=self.machine.is_bf16,
        )  # fmt: skip

    def compare(self, rollout: Rollout, seconds: float, *, has_peak: bool) -> str:
        """The memory of the step: what was predicted for it, beside the most that was held since `before`."""
        shape = MicroBatch.of(rollout.batch, is_shared=self.roles.shares_prompts)
        top = peak_in_use(self.machine) if has_peak else None
        predicted = step_peak(
            self.config, self.models, self.machine, self.parts, shape, is_by_rule=bool(self.work.rule)
        ) / MB  # fmt: skip
        self.report.step = {
            "responses": len(rollout.rows),
            "tokens": float(shape.rows * shape.length),
            "seconds": seconds,
        }
        self.report.memory["predicted_step_mb"] = predicted
        if top is None or self.before is None:
            return f"{predicted:,.0f} MB predicted, not measured on this machine"
        self.report.memory["measured_step_mb"] = measured = (top - self.before) / MB
        return f"{predicted:,.0f} MB predicted, {measured:,.0f} MB measured"


def _named(encoder: Encoder, token: int) -> str:
    return f"{encoder.show([token])!r} ({token})"


def unexpected(error: Exception) -> str:
    """An error that nobody foresaw, in one sentence."""
    words = " ".join(str(error).split())[:300]
    return f"the run would stop here with {type(error).__name__}: {words}; see the log of the check, and report this"


def make_states(optimizer: torch.optim.Optimizer) -> None:
    """Let an optimizer make its states, as every step but the first finds them. Gradients of 0 change no weight."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def smaller(config: PPOConfig) -> str:
    """The change that saves the most, first."""
    if config.adapter == "full":
        return "use adapter=lora, with a reward model that was trained with adapters from the same model"
    tokens, sampling = config.machine.micro_batch_tokens, config.sampling
    if tokens > sampling.max_prompt_tokens + sampling.max_new_tokens:
        return f"lower machine.micro_batch_tokens from {tokens}, or sampling.batch_size from {sampling.batch_size}"
    return "use a smaller model or shorter texts (max_prompt_tokens, max_new_tokens)"


@torch.no_grad()
def worst_rollout(flight: Preflight) -> Rollout:
    """The longest prompt with the longest response, as often as one micro-batch holds it, as if it were sampled."""
    config, roles, device = flight.config, flight.roles, flight.machine.device
    longest = max(flight.prompts, key=lambda prompt: len(prompt.ids))
    ids, size = longest.ids, config.sampling.max_new_tokens
    response = (ids * (size // len(ids) + 1))[:size]
    together = config.sampling.responses_per_prompt if roles.shares_prompts else 1
    fitting = config.machine.micro_batch_tokens // (len(ids) + together * size) * together
    n = max(1, min(config.minibatch_size, fitting or (config.machine.micro_batch_tokens - len(ids)) // size))
    prompts = [[*ids[place // together :], *ids[: place // together]] for place in range(n)]  # shared as in a rollout
    text = flight.encoder.decode(response)
    rows = [ScoredRow(longest.messages, prompt, response, text, longest.facts) for prompt in prompts]
    batch = pack(prompts, [response] * n, flight.encoder.pad_id).to(device)
    token_scores = roles.policy.token_scores(batch, with_entropy=True)
    reference, values = roles.reference.token_scores(batch).logprobs, roles.critic.values(batch)
    scores, ended = roles.reward_model.score(rows).to(device), torch.zeros(n, dtype=torch.bool, device=device)
    return Rollout(rows, batch, ended, scores, token_scores.logprobs, reference, values, token_scores.entropy, {})
