"""The sampling run: K distinct responses for each prompt, stored with where they came from, offered to be ranked."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

from data.errors import InvalidInput
from data.hygiene import dropped_for, findings, screen
from data.label_settings import LabelSettings
from data.labels.projects import get_project
from data.labels.prompts import list_prompts
from data.labels.tasks import add_responses, add_task, sampled_prompts
from data.records import NewResponse, Project, Prompt, Split
from data.runs.left_out import LEFT_OUT
from data.runs.state import owned_update
from data.text import text_fingerprint
from training.jobs.left_out import LeftOut
from training.jobs.reporter import Reporter
from training.launch.config import CutSampling, SampleConfig
from training.lm.encoding import Encoder
from training.lm.generation import Generated, generate, random_numbers
from training.lm.models import (
    Machine,
    ModelSource,
    context_length,
    encoder_of_run,
    find_model,
    load_language_model,
    longest_prompt,
    set_up_machine,
    versions,
)

COUNTED = ("prompts", "responses", "tasks", "prompts_without_task", "skipped_prompts", "resampled", "doubles", "ended",
           "tokens")  # fmt: skip
_PAGE = 1000


@dataclass
class Candidate:
    """One place of a prompt's K: what was drawn for it, and at which attempt."""

    place: int
    attempt: int
    drawn: Generated
    text: str


class Sampler:
    """A language model with its encoder, ready to draw responses."""

    def __init__(
        self, sampling: CutSampling, seed: int, source: ModelSource, machine: Machine, reporter: Reporter
    ) -> None:
        self.sampling, self.seed = sampling, seed
        self.source, self.machine, self.reporter = source, machine, reporter
        self.encoder: Encoder = encoder_of_run(source, reporter)
        self.model = load_language_model(source, machine.frozen_dtype).to(machine.device)
        self.longest_prompt = longest_prompt(sampling, context_length(self.model.config))

    def encode(self, prompt: Prompt) -> tuple[list[int] | None, str]:
        """The prompt's ids, or None and the reason why it can't be used."""
        try:
            ids = self.encoder.prompt_ids(prompt.messages)
        except InvalidInput as error:
            return None, str(error)
        if len(ids) > self.longest_prompt:
            return None, f"{len(ids)} tokens, more than the {self.longest_prompt} that leave room for a response"
        return ids, ""

    def draw(self, prompts: list[list[int]], keys: list[str], n: int) -> list[Generated]:
        """n responses for each prompt; `keys`: one for each response, what makes its random numbers its own."""
        return generate(
            self.model,
            prompts,
            n,
            self.sampling,
            random_numbers(self.seed, keys, self.sampling.max_new_tokens),
            stop_ids=self.encoder.stop_ids,
            pad_id=self.encoder.pad_id,
            machine=self.machine,
            check=self.reporter.raise_if_stopping,
        )

    def provenance(self, prompt_ids: list[int], candidate: Candidate) -> dict[str, Any]:
        """Everything needed to draw the same response again, and how it ended."""
        names = ("temperature", "top_k", "top_p", "max_new_tokens")
        dated = {"template_date": self.encoder.date.isoformat()} if self.encoder.is_dated else {}
        return {name: getattr(self.sampling, name) for name in names} | {
            "seed": self.seed,
            "source": "sampled",
            "revision": self.source.revision,
            "template_hash": self.encoder.template_hash,
            "run_id": self.reporter.run.id,
            "place": candidate.place,
            "attempt": candidate.attempt,
            "finish_reason": candidate.drawn.finish_reason,
            "n_prompt_tokens": len(prompt_ids),
            "n_tokens": len(candidate.drawn.ids),
            "bf16": self.machine.is_bf16,
            **dated,
        }


def run(config: SampleConfig, reporter: Reporter) -> dict[str, Any]:
    """Sample for every wanted prompt that the run has not done yet. Returns counts of everything done and left out."""
    machine = set_up_machine(config.machine)
    reporter.versions(versions(machine))
    project_id = reporter.run.project_id or ""
    with reporter.store.read() as tx:
        project = get_project(tx, project_id)
        done = sampled_prompts(tx, reporter.run.id)
    wanted = wanted_prompts(reporter, project_id, config, done)
    if not wanted and not done:
        raise InvalidInput("there is no prompt to sample for: import prompts, or set only_new=false")
    source = find_model(config.model, reporter.home, reporter)
    sampler = Sampler(config.sampling, config.machine.seed, source, machine, reporter)
    reporter.event("model", name=source.name, revision=source.revision)
    counts = counts_so_far(reporter, done)
    total = len(wanted) + len(done)
    left_out = LeftOut("prompts", total)
    reporter.step(len(done), total)
    for start in range(0, len(wanted), config.sampling.batch_size):
        reporter.raise_if_stopping()
        batch = wanted[start : start + config.sampling.batch_size]
        _sample_batch(sampler, config, batch, project, counts, left_out)
        n_done = len(done) + min(start + config.sampling.batch_size, len(wanted))
        reporter.step(n_done, total, _metrics(counts, config.k))
    left_out.report(reporter, "Take a model that reads them, raise max_prompt_tokens, or import other prompts")
    _report_without_task(counts, reporter)
    if any(_is_finding(name) for name in counts):
        reporter.event("sample_hygiene", **{name: number for name, number in counts.items() if _is_finding(name)})
    if counts["doubles"]:
        reporter.event("doubles_left_out", n=counts["doubles"], reason="equal but for white space, after resampling")
    return dict(counts) | {"model": source.name, "revision": source.revision}


def _report_without_task(counts: Counter[str], reporter: Reporter) -> None:
    """A prompt without a task is not ranked by anybody, though what was sampled for it is kept."""
    if n := counts["prompts_without_task"]:
        reason = "fewer than two different responses that may be offered, after resampling; what there is is kept"
        reporter.event(LEFT_OUT, what="tasks to rank", n=n, of=counts["prompts"], first=reason)


def counts_so_far(reporter: Reporter, done: set[str]) -> Counter[str]:
    """What an earlier attempt stored along with its responses; skipped prompts are looked at again, so not counted."""
    counts = Counter[str](dict.fromkeys(COUNTED, 0))
    if done:
        known = {name: number for name, number in reporter.run.result.items() if name in COUNTED or _is_finding(name)}
        counts.update({name: int(number) for name, number in known.items() if name != "skipped_prompts"})
    return counts


def _is_finding(name: str) -> bool:
    return name.startswith(("dropped_", "badge_"))


def wanted_prompts(reporter: Reporter, project_id: str, config: SampleConfig, done: set[str]) -> list[Prompt]:
    """The prompts that the run is for and has not done, in the project's order. A prompt without a named side counts
    as one to train on."""
    split = Split.EVAL if config.split == "eval" else None
    wanted: list[Prompt] = []
    with reporter.store.read() as tx:
        for offset in range(0, 2**31, _PAGE):
            page = list_prompts(tx, project_id, split=split, without_task=config.only_new, limit=_PAGE, offset=offset)
            usable = [prompt for prompt in page if config.split != "train" or prompt.split is not Split.EVAL]
            wanted += [prompt for prompt in usable if prompt.id not in done]
            if len(page) < _PAGE:
                break
    return wanted[: max(0, config.limit - len(done))] if config.limit else wanted


def _sample_batch(
    sampler: Sampler,
    config: SampleConfig,
    prompts: list[Prompt],
    project: Project,
    counts: Counter[str],
    left_out: LeftOut,
) -> None:
    """Draw for a batch of prompts and store the result in one transaction."""
    usable: list[tuple[Prompt, list[int]]] = []
    for prompt in prompts:
        ids, reason = sampler.encode(prompt)
        if ids is None:
            counts["skipped_prompts"] += 1
            left_out.add(reason)
            sampler.reporter.event("prompt_skipped", prompt_id=prompt.id, reason=reason)
        else:
            usable.append((prompt, ids))
    if not usable:
        return
    places = [(prompt, ids, place) for prompt, ids in usable for place in range(config.k)]
    keys = [_key(prompt, place, 0) for prompt, _, place in places]
    drawn = sampler.draw([ids for _, ids in usable], keys, config.k)
    candidates: dict[str, list[Candidate]] = {prompt.id: [] for prompt, _ in usable}
    for (prompt, _, place), each in zip(places, drawn, strict=True):
        candidates[prompt.id].append(Candidate(place, 0, each, sampler.encoder.decode(each.ids)))
    for attempt in range(1, config.max_resamples + 1):
        _draw_again(sampler, usable, candidates, attempt, project.settings, counts)
    _store(sampler, config, usable, candidates, project, counts)


def _draw_again(
    sampler: Sampler,
    usable: list[tuple[Prompt, list[int]]],
    candidates: dict[str, list[Candidate]],
    attempt: int,
    settings: LabelSettings,
    counts: Counter[str],
) -> None:
    """Draw anew for every place whose text the project drops, or which stands at an earlier place already."""
    again = [
        (prompt, ids, candidates[prompt.id][place])
        for prompt, ids in usable
        for place in _spare(prompt, candidates[prompt.id], settings)
    ]
    if not again:
        return
    keys = [_key(prompt, spare.place, attempt) for prompt, _, spare in again]
    drawn = sampler.draw([ids for _, ids, _ in again], keys, 1)
    counts["resampled"] += len(again)
    for (prompt, _, spare), each in zip(again, drawn, strict=True):
        fresh = Candidate(spare.place, attempt, each, sampler.encoder.decode(each.ids))
        candidates[prompt.id][spare.place] = fresh


def _spare(prompt: Prompt, candidates: list[Candidate], settings: LabelSettings) -> dict[int, str]:
    """The places whose text is not to be offered, with the reason: `doubles`, or `dropped_...` by the project."""
    reasons = [candidate.drawn.finish_reason for candidate in candidates]
    problems_of = findings(prompt.messages, [candidate.text for candidate in candidates], reasons)
    seen: set[str] = set()
    spare = {}
    for candidate, problems in zip(candidates, problems_of, strict=True):
        fingerprint = text_fingerprint(candidate.text)
        reason = dropped_for(problems, settings)
        if reason is not None:
            spare[candidate.place] = f"dropped_{reason}"
        elif fingerprint in seen:
            spare[candidate.place] = "doubles"
        seen.add(fingerprint)
    return spare


def _store(
    sampler: Sampler,
    config: SampleConfig,
    usable: list[tuple[Prompt, list[int]]],
    candidates: dict[str, list[Candidate]],
    project: Project,
    counts: Counter[str],
) -> None:
    reporter = sampler.reporter
    with reporter.store.begin() as tx:
        owned_update(tx, reporter.run.id, reporter.run.epoch)
        for prompt, ids in usable:
            spare = _spare(prompt, candidates[prompt.id], project.settings)
            kept = [candidate for candidate in candidates[prompt.id] if candidate.place not in spare]
            counts.update(spare.values())
            if config.make_tasks and len(kept) < 2:
                kept = candidates[prompt.id][:1]
            responses = [
                NewResponse(each.text, sampler.source.name, sampler.provenance(ids, each))
                for each in (kept if config.make_tasks else candidates[prompt.id])
            ]
            if config.make_tasks and len(responses) >= 2:
                responses, found = screen(prompt.messages, responses, project.settings)
                counts.update(found)
            if config.make_tasks and len(responses) >= 2:
                made = add_task(
                    tx, prompt.project_id, prompt.id, responses, slots=project.overlap, run_id=reporter.run.id
                )
                counts["tasks"] += made.is_new
            else:
                add_responses(tx, prompt.id, responses, run_id=reporter.run.id)
                counts["prompts_without_task"] += config.make_tasks
            counts["prompts"] += 1
            counts["responses"] += len(responses)
            counts["ended"] += sum(each.drawn.has_ended for each in candidates[prompt.id])
            counts["tokens"] += sum(len(each.drawn.ids) for each in candidates[prompt.id])
        owned_update(tx, reporter.run.id, reporter.run.epoch, result=json.dumps(counts))


def _key(prompt: Prompt, place: int, attempt: int) -> str:
    return f"{prompt.fingerprint}:{place}:{attempt}"


def _metrics(counts: Counter[str], k: int) -> dict[str, float]:
    n = max(1, counts["prompts"] * k)
    return {
        "sampling/responses": counts["responses"],
        "sampling/doubles": counts["doubles"],
        "sampling/ended_share": counts["ended"] / n,
        "sampling/tokens_mean": counts["tokens"] / n,
    }
