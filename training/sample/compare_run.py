"""The comparison run: two models answer the same prompts; a reward model, where one is named, scores both."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from data.errors import InvalidInput
from data.intervals import paired
from data.records import Messages, Prompt
from data.runs.held_out import Choice, TrainedOn, choose_prompts, trained_on
from data.text import messages_fingerprint
from training.jobs.left_out import LeftOut
from training.jobs.reporter import Reporter
from training.launch.config import CompareConfig
from training.lm.models import Machine, find_model, set_up_machine, versions
from training.lm.scorer import Scorer
from training.sample.run import Sampler


def run(config: CompareConfig, reporter: Reporter) -> dict[str, Any]:
    """Sample both models with the same random numbers, score them, and show the texts side by side."""
    machine = set_up_machine(config.machine)
    reporter.versions(versions(machine))
    choice = wanted_prompts(config, reporter)
    scorer = Scorer(reporter.home, reporter.run.reward_run_id, machine) if reporter.run.reward_run_id else None
    sides = {"a": config.model_a, "b": config.model_b}
    rows: dict[str, list[dict[str, Any]]] = {}
    for number, (side, name) in enumerate(sides.items(), start=1):
        rows[side] = answers(config, reporter, machine, side, name, choice, scorer)
        reporter.step(number, len(sides), samples=[row for found in rows.values() for row in found])
    result: dict[str, Any] = said_of(choice) | {f"model_{side}": name for side, name in sides.items()}
    result["prompts_compared"] = len(compared := _answered_by_both(rows))
    if scorer is not None:
        for side, found in rows.items():
            result[f"score_{side}"] = fmean(row["score"] for row in found if _key(row) in compared)
        result["score_b_less_a"] = score_difference(rows["a"], rows["b"])
    return result


def score_difference(a: list[dict[str, Any]], b: list[dict[str, Any]]) -> dict[str, Any] | None:
    """By how much B's mean score is above A's on prompts that both answered, paired by prompt; None without one."""
    means = []
    for rows in (b, a):
        by_prompt: dict[str, list[float]] = {}
        for row in rows:
            by_prompt.setdefault(_key(row), []).append(row["score"])
        means.append({prompt: fmean(scores) for prompt, scores in by_prompt.items()})
    both = [prompt for prompt in means[0] if prompt in means[1]]
    mine, other = ([of[prompt] for prompt in both] for of in means)
    return paired(mine, other).as_dict() if both else None


def _answered_by_both(rows: dict[str, list[dict[str, Any]]]) -> set[str]:
    """The prompts to which both models have answered: means over others would compare different prompts.

    Raises InvalidInput if there is none.
    """
    compared = set.intersection(*({_key(row) for row in found} for found in rows.values()))
    if not compared:
        raise InvalidInput("no prompt can be read by both models; each reads some: the events say why others are not")
    return compared


def _key(row: dict[str, Any]) -> str:
    return messages_fingerprint(row["messages"])


def wanted_prompts(config: CompareConfig, reporter: Reporter) -> Choice:
    """The prompt that was typed, or prompts of the project that are held out of all that went into both models and the
    reward model; with `prompts = any` others where those are too few. Raises InvalidInput without one."""
    with reporter.store.read() as tx:
        if config.prompt.strip():
            choice = _typed(config.prompt, trained_on(tx, reporter.home, runs=[reporter.run.id]))
        else:
            project_id, is_any = reporter.run.project_id or "", config.prompts == "any"
            choice = choose_prompts(
                tx, reporter.home, project_id, config.limit, models=(), runs=[reporter.run.id], with_trained=is_any
            )
    of_project = {} if config.prompt.strip() else {"held_out": choice.n_held_out, "trained_on": choice.n_trained}
    reporter.event("prompts", **said_of(choice), **of_project)
    return choice


def _typed(text: str, known: TrainedOn) -> Choice:
    messages: Messages = ({"role": "user", "content": text},)
    prompt = Prompt("typed", "", messages, None, messages_fingerprint(messages), {}, 0.0)
    is_held_out = known.holds_out(prompt.fingerprint)
    trained = frozenset(() if is_held_out else (prompt.fingerprint,))
    return Choice([prompt], trained, int(is_held_out), int(not is_held_out), known.unknown)


def said_of(choice: Choice) -> dict[str, Any]:
    """How many prompts were taken, on how many of them something behind a model was trained, and of what that is not
    known."""
    unsure = {"held_out_not_known": "; ".join(choice.unknown)} if choice.unknown else {}
    return {"prompts": len(choice.prompts), "prompts_trained_on": len(choice.trained), **unsure}


def answers(
    config: CompareConfig,
    reporter: Reporter,
    machine: Machine,
    side: str,
    name: str,
    choice: Choice,
    scorer: Scorer | None,
) -> list[dict[str, Any]]:
    """One model's answers, as rows to show. The prompts that do not fit are counted in events.

    Raises InvalidInput if none does.
    """
    sampler = Sampler(
        config.sampling, config.machine.seed, find_model(name, reporter.home, reporter), machine, reporter
    )
    usable, left_out = [], LeftOut(f"prompts of model {side}", len(choice.prompts))
    for prompt in choice.prompts:
        ids, reason = sampler.encode(prompt)
        if ids is None:
            reporter.event("prompt_skipped", prompt_id=prompt.id, side=side, reason=reason)
            left_out.add(reason)
        else:
            usable.append((prompt, ids))
    left_out.report(reporter, "Take a model that reads them, or other prompts")
    rows = []
    for start in range(0, len(usable), config.sampling.batch_size):
        reporter.raise_if_stopping()
        batch = usable[start : start + config.sampling.batch_size]
        keys = [f"{prompt.fingerprint}:{place}" for prompt, _ in batch for place in range(config.k)]
        drawn = sampler.draw([ids for _, ids in batch], keys, config.k)
        texts = [sampler.encoder.decode(generated.ids) for generated in drawn]
        owners = [prompt for prompt, _ in batch for _ in range(config.k)]
        pairs = [(prompt.messages, text) for prompt, text in zip(owners, texts, strict=True)]
        facts = [prompt.facts for prompt in owners]
        scores = scorer.score(pairs, facts).tolist() if scorer is not None else [None] * len(pairs)
        for prompt, generated, text, score in zip(owners, drawn, texts, scores, strict=True):
            row: dict[str, Any] = {
                "prompt": prompt.messages[-1]["content"],
                "side": side,
                "model": name,
                "response": text,
            }
            row |= {"messages": list(prompt.messages), "revision": sampler.source.revision}
            row["trained_on"] = prompt.fingerprint in choice.trained
            rows.append(row | {"score": score, "n_tokens": len(generated.ids), "ended": generated.has_ended})
    return rows
