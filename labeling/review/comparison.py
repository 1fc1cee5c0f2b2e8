"""Blind comparison of models: their responses to the same prompts become tasks of a project of its own, which people
rank like any other; the rankings say how often one model's response is preferred to the other's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from data.errors import InvalidInput
from data.files.paths import Home
from data.labels.projects import create_project, get_project
from data.labels.prompts import get_splits, prompt_id_of
from data.labels.rankings import current_rankings
from data.labels.roles import Actor, acting
from data.labels.tasks import add_responses, add_task, get_tasks, list_task_ids, responses_without_task
from data.records import Messages, NewPrompt, NewResponse, Project, RankingStatus, Role, RunKind, Split
from data.runs.held_out import trained_on
from data.runs.metrics import samples_of
from data.runs.state import get_run
from data.store import Store, Tx
from data.text import messages_fingerprint, text_fingerprint
from labeling.judgement.win_rates import PairOutcome, PromptOutcomes, Rate, WinRates, win_rates

MODELS = "models"  # in a response's provenance: every model that gave this text
_PAGE = 500


@dataclass
class Comparison:
    """A project made to compare models. Counts: `tasks`, `same_answer` (prompts to which all models said the same),
    `one_model` (prompts that only one of them answered), `known`; of all prompts `trained_on` are not held out of the
    models. `not_known`: why that can't be told."""

    project: Project
    models: list[str]
    counts: Counter[str] = field(default_factory=Counter)
    not_known: Sequence[str] = ()


@dataclass(frozen=True)
class ComparisonReport:
    """What the rankings of a project say about its models. `n_same`: prompts to which all of them said the same, which
    nobody ranks. `rates_with_same`: the rates with those as ties, empty where there are none. Something behind
    the models was trained on `n_trained_on` of the `n_prompts` of the rates; `not_known`: why that can't be told."""

    rates: WinRates
    rates_with_same: list[Rate]
    n_same: int
    n_rankings: int
    n_unacceptable: int
    n_skipped: int
    n_prompts: int = 0
    n_trained_on: int = 0
    not_known: tuple[str, ...] = ()

    @property
    def held_out_words(self) -> str:
        """Whether the prompts are held out of the models, in a sentence."""
        if self.not_known:
            return f"It is not known whether the prompts are held out: {'; '.join(self.not_known)}."
        behind = "the models, their reward models or what they started from"
        if self.n_trained_on:
            return f"{self.n_trained_on} of {self.n_prompts} prompts were trained on, by {behind}."
        return f"{self.n_prompts} of {self.n_prompts} prompts are held out of {behind}, as far as is known here."


def create_comparison(
    store: Store,
    who: Actor,
    home: Home,
    run_ids: Sequence[str],
    name: str,
    *,
    overlap: int = 1,
    nonce: str | None = None,
) -> Comparison:
    """Make a project in which the responses of finished comparison runs are ranked blind.

    Each prompt gets a task with one response of each model; a text that two models gave stands there once and counts
    for both. Raises InvalidInput if a run is no finished comparison, or nothing is left to rank.
    """
    with acting(store, who, Role.RESEARCHER) as tx:
        answers, messages = _answers(tx, run_ids)
        models = list(dict.fromkeys(model for by_model in answers.values() for model in by_model))
        k = max(2, min(12, len(models)))
        comparison = Comparison(create_project(tx, name, k=k, overlap=overlap, nonce=nonce), models)
        known = trained_on(tx, home, models=models)
        comparison.not_known = known.unknown
        if trained := sum(not known.holds_out(key) for key in answers):
            comparison.counts["trained_on"] = trained
        for key, by_model in answers.items():
            prompt_id = prompt_id_of(tx, comparison.project.id, NewPrompt(messages[key], Split.EVAL))
            responses = _distinct(by_model)
            if len(by_model) < 2:
                comparison.counts["one_model"] += 1
            elif len(responses) == 1:
                add_responses(tx, prompt_id, responses)
                comparison.counts["same_answer"] += 1
            else:
                task = add_task(tx, comparison.project.id, prompt_id, responses, slots=overlap)
                comparison.counts["tasks" if task.is_new else "known"] += 1
        if not comparison.counts["tasks"] + comparison.counts["known"]:
            same, alone = comparison.counts["same_answer"], comparison.counts["one_model"]
            raise InvalidInput(
                f"there is nothing to rank: {same} prompts have the same answer of every model, {alone} were answered "
                "by one model only"
            )
    return comparison


def comparison_report(store: Store, home: Home, project_id: str, *, seed: int = 0) -> ComparisonReport:
    """Win rates between the models of a project, from its current rankings, and on how many of their prompts the
    models, or something behind them, were trained. Raises NotFound."""
    with store.read() as tx:
        get_project(tx, project_id)
        models_of = _models_by_task(tx, project_id)
        counts, prompts = Counter[str](), dict[str, PromptOutcomes]()
        for ranking, prompt_id in current_rankings(tx, project_id):
            counts[ranking.status] += 1
            if ranking.status is RankingStatus.SKIPPED:
                continue
            ranks = ranking.ranks or (1,) * len(models_of[ranking.task_id])  # none acceptable: none is better
            outcomes = _outcomes(models_of[ranking.task_id], ranks, set(ranking.detail.unplaced))
            prompts.setdefault(prompt_id, []).append(outcomes)
        asked = {prompt_id for prompt_id, outcomes in prompts.items() if any(outcomes)}
        known = trained_on(
            tx, home, models=sorted({name for task in models_of.values() for names in task for name in names})
        )
        splits = get_splits(tx, project_id)
        trained = [each for each in asked if not known.holds_out(splits[each][0])]
        alike = [each.provenance.get(MODELS, ()) for each in responses_without_task(tx, project_id)]
    same = [[_outcomes([list(models)], (1,), set())] for models in alike if len(models) > 1]
    judged = list(prompts.values())
    return ComparisonReport(
        rates=win_rates(judged, seed=seed),
        rates_with_same=win_rates([*judged, *same], seed=seed).rates if same and judged else [],
        n_same=len(same),
        n_rankings=counts[RankingStatus.RANKED],
        n_unacceptable=counts[RankingStatus.UNACCEPTABLE],
        n_skipped=counts[RankingStatus.SKIPPED],
        n_prompts=len(asked),
        n_trained_on=len(trained),
        not_known=tuple(known.unknown),
    )


def _answers(tx: Tx, run_ids: Sequence[str]) -> tuple[dict[str, dict[str, NewResponse]], dict[str, Messages]]:
    """The first response of each model to each prompt, by the fingerprint of its messages."""
    answers: dict[str, dict[str, NewResponse]] = {}
    messages: dict[str, Messages] = {}
    for run_id in run_ids:
        run = get_run(tx, run_id)
        if run.kind is not RunKind.COMPARE or not run.status.is_final:
            raise InvalidInput(f"run {run_id} is {run.kind}, {run.status}; a finished comparison run is needed")
        for _, row in samples_of(tx, run_id):
            if "messages" not in row:
                raise InvalidInput(f"run {run_id} is of an older release and keeps no whole prompts; compare again")
            found = tuple(row["messages"])
            key = messages_fingerprint(found)
            messages[key] = found
            answers.setdefault(key, {}).setdefault(str(row["model"]), _response(run_id, row))
    return answers, messages


def _response(run_id: str, row: dict[str, Any]) -> NewResponse:
    reason = "eos" if row.get("ended") else "length"
    provenance = {"source": "compare", "run_id": run_id, "revision": row.get("revision"), "finish_reason": reason}
    return NewResponse(str(row["response"]), str(row["model"]), provenance | {"n_tokens": row.get("n_tokens")})


def _distinct(by_model: dict[str, NewResponse]) -> list[NewResponse]:
    """One response for each text, with the models that gave it."""
    kept: dict[str, NewResponse] = {}
    for model, response in by_model.items():
        first = kept.setdefault(text_fingerprint(response.text), response)
        first.provenance.setdefault(MODELS, []).append(model)
    return list(kept.values())


def _models_by_task(tx: Tx, project_id: str) -> dict[str, list[list[str]]]:
    """For each task, the models behind each of its responses, by position."""
    models = {}
    for offset in range(0, 2**31, _PAGE):
        page = get_tasks(tx, list_task_ids(tx, project_id, limit=_PAGE, offset=offset))
        for task in page:
            models[task.id] = [list(each.provenance.get(MODELS) or [each.model]) for each in task.responses]
        if len(page) < _PAGE:
            break
    return models


def _outcomes(models: list[list[str]], ranks: Sequence[int], unplaced: set[int]) -> list[PairOutcome]:
    """Each pair of models with 1 if the first is preferred, 0.5 for a tie, 0 else. Within an unordered rest: nothing.

    A text of both models is a tie between them; a model is not compared with itself.
    """
    places = sorted((model, place) for place, names in enumerate(models) for model in names if model)
    outcomes = []
    for number, (first, one) in enumerate(places):
        for second, other in places[number + 1 :]:
            if first == second or (one != other and {one, other} <= unplaced):
                continue
            result = 0.5 if ranks[one] == ranks[other] else float(ranks[one] < ranks[other])
            outcomes.append(PairOutcome(first, second, result))
    return outcomes
