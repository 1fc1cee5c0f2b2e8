"""The demo's gold rule and its simulated annotators."""

from __future__ import annotations

import random

import pytest

from app.demo.judge import (
    BEST_LENGTH,
    END_BONUS,
    LAPSE,
    STEP,
    TOKEN_COST,
    gold_score,
    judge,
    rank_everything,
    simulated_annotators,
)
from data.labels.projects import create_project
from data.labels.prompts import prompt_id_of
from data.labels.rankings import current_rankings
from data.labels.tasks import add_task, get_tasks
from data.records import Assignment, NewPrompt, NewResponse, Project, Response, Role, Task
from data.store import Store


def test_the_rule_is_best_in_the_middle_and_for_answers_that_end() -> None:
    assert gold_score(BEST_LENGTH, ended=True) == END_BONUS
    assert gold_score(BEST_LENGTH, ended=False) == 0
    assert gold_score(BEST_LENGTH + 10, ended=True) == gold_score(BEST_LENGTH - 10, ended=True)
    assert gold_score(BEST_LENGTH + 10, ended=True) == pytest.approx(END_BONUS - 10 * TOKEN_COST)
    assert gold_score(1, ended=True) < gold_score(15, ended=True) < gold_score(20, ended=True)


def an_assignment(lengths: list[int], order: tuple[int, ...]) -> Assignment:
    responses = tuple(
        Response(str(place), "p", f"text {place}", "m", {"n_tokens": n, "finish_reason": "eos"})
        for place, n in enumerate(lengths)
    )
    task = Task("t", "j", "p", ({"role": "user", "content": "?"},), responses)
    return Assignment("slot", task, "annotator", "lease", 0.0, order, None)


def test_ranks_are_by_the_place_on_the_screen_and_follow_the_rule() -> None:
    lengths, order = [60, 20, 40], (2, 0, 1)  # shown: 40 tokens, 60, 20
    rng, right, n = random.Random(0), 0, 400
    for number in range(n):
        answer = judge(an_assignment(lengths, order), rng, number)
        assert answer["display_order"] == [2, 0, 1]
        right += answer["ranks"] == [2, 3, 1]
    # All but the lapses; at n = 400 and a rate of .05 more than 45 of them would be six standard errors away.
    assert n - right <= 45
    assert right < n, "annotators who never err teach nothing of noise"
    assert 0 < LAPSE < 0.2


def test_answers_that_are_nearly_alike_are_tied() -> None:
    rng = random.Random(1)
    ranks = [judge(an_assignment([20, 20], (0, 1)), rng, number)["ranks"] for number in range(300)]
    assert sum(each == [1, 1] for each in ranks) > 100
    assert STEP > 0


def sampled_project(store: Store, n_tasks: int = 12) -> Project:
    with store.begin() as tx:
        project = create_project(tx, "sampled", k=3, overlap=2)
        for number in range(n_tasks):
            prompt_id = prompt_id_of(tx, project.id, NewPrompt(({"role": "user", "content": f"q{number}"},)))
            responses = [
                NewResponse(
                    f"answer {number} of {n}", "m", {"n_tokens": n, "finish_reason": "eos" if n < 60 else "length"}
                )
                for n in (20, 40, 60)
            ]
            add_task(tx, project.id, prompt_id, responses, slots=2)
    return project


def test_simulated_annotators_are_made_once_and_can_not_sign_in(sqlite_store: Store) -> None:
    first, again = simulated_annotators(sqlite_store, 2), simulated_annotators(sqlite_store, 3)
    assert [person.id for person in again[:2]] == [person.id for person in first]
    assert all(person.role is Role.ANNOTATOR and person.is_external for person in again)


def test_everything_is_ranked_by_everybody_and_the_best_is_mostly_first(sqlite_store: Store) -> None:
    project, people = sampled_project(sqlite_store), simulated_annotators(sqlite_store, 2)
    assert rank_everything(sqlite_store, project.id, people, seed=0) == 24
    assert rank_everything(sqlite_store, project.id, people, seed=0) == 0
    with sqlite_store.read() as tx:
        rankings = [ranking for ranking, _ in current_rankings(tx, project.id)]
        tasks = {task.id: task for task in get_tasks(tx, list({ranking.task_id for ranking in rankings}))}
    assert len(rankings) == 24
    best = 0
    for ranking in rankings:
        assert ranking.ranks is not None
        shortest = min(range(3), key=lambda place: tasks[ranking.task_id].responses[place].provenance["n_tokens"])
        best += ranking.ranks[shortest] == 1
    assert best >= 20
