"""From comparison runs to a project that is ranked blind, and from its rankings to win rates, on both databases."""

from __future__ import annotations

from typing import Any

import factories as make
import pytest

from data.errors import InvalidInput
from data.files.paths import Home
from data.labels.prompts import list_prompts
from data.labels.roles import OPERATOR
from data.labels.tasks import get_tasks, list_task_ids
from data.records import Detail, Project, RankingStatus, Run, RunKind, Split, Task
from data.store import Store
from labeling.review.comparison import comparison_report, create_comparison


def compared(store: Store, answers: dict[str, list[str]], project: Project | None = None, **more: Any) -> Run:
    """A comparison run: model -> its answers to prompt 0, 1, ..."""
    rows = [
        {"messages": [{"role": "user", "content": f"prompt {n}"}], "prompt": f"prompt {n}", "side": side,
         "model": model, "response": text, "ended": True, "n_tokens": 3, "revision": "x"} | more
        for side, (model, texts) in zip("ab", answers.items(), strict=True) for n, text in enumerate(texts)
    ]  # fmt: skip
    return make.make_finished_run(store, RunKind.COMPARE, rows, project or make.make_project(store))


def tasks_of(store: Store, project: Project) -> list[Task]:
    with store.read() as tx:
        return get_tasks(tx, list_task_ids(tx, project.id))


def test_each_prompt_gets_one_response_of_each_model(store: Store, home: Home) -> None:
    run = compared(store, {"sft": ["one", "same", "three"], "ppo": ["eins", "same ", "drei"]})
    made = create_comparison(store, OPERATOR, home, [run.id], "sft or ppo", overlap=2)
    assert made.models == ["sft", "ppo"]
    assert made.counts == {"tasks": 2, "same_answer": 1}
    tasks = tasks_of(store, made.project)
    assert [[(each.model, each.text) for each in task.responses] for task in tasks] == [
        [("sft", "one"), ("ppo", "eins")], [("sft", "three"), ("ppo", "drei")],
    ]  # fmt: skip
    with store.read() as tx:
        assert [each.split for each in list_prompts(tx, made.project.id)] == [Split.EVAL] * 3
    assert comparison_report(store, home, made.project.id).n_same == 1


def test_two_runs_make_one_comparison_of_three_models(store: Store, home: Home) -> None:
    first = compared(store, {"sft": ["one", "two"], "ppo": ["eins", "zwei"]})
    second = compared(store, {"sft": ["another one", "another two"], "dpo": ["un", "zwei"]})
    made = create_comparison(store, OPERATOR, home, [first.id, second.id], "three")
    assert (made.models, made.project.k) == (["sft", "ppo", "dpo"], 3)
    one, two = tasks_of(store, made.project)
    assert [each.text for each in one.responses] == ["one", "eins", "un"]
    # what two models said stands there once, and counts for both
    assert [(each.text, each.provenance["models"]) for each in two.responses] == [
        ("two", ["sft"]), ("zwei", ["ppo", "dpo"]),
    ]  # fmt: skip
    make.make_ranking(store, two, make.make_person(store), [2, 1])
    rates = {
        (each.first, each.second): each.rate for each in comparison_report(store, home, made.project.id).rates.rates
    }
    assert rates == {("dpo", "ppo"): 0.5, ("dpo", "sft"): 1.0, ("ppo", "sft"): 1.0}


def test_win_rates_of_what_people_ranked(store: Store, home: Home) -> None:
    run = compared(store, {"sft": [f"sft {n}" for n in range(5)], "ppo": [f"ppo {n}" for n in range(5)]})
    made = create_comparison(store, OPERATOR, home, [run.id], "blind", overlap=2)
    ann, bob = make.make_person(store), make.make_person(store)
    tasks = tasks_of(store, made.project)
    for task, ranks in zip(tasks, ([2, 1], [2, 1], [1, 1], [1, 2]), strict=False):
        make.make_ranking(store, task, ann, ranks)
    make.make_ranking(store, tasks[0], bob, [1, 2])  # prompt 0: one for each
    make.make_ranking(store, tasks[1], bob)  # a skip
    make.make_ranking(store, tasks[4], bob, status=RankingStatus.UNACCEPTABLE)
    report = comparison_report(store, home, made.project.id)
    (rate,) = report.rates.rates
    assert (rate.first, rate.second, rate.n_prompts) == ("ppo", "sft", 5)
    assert (rate.wins, rate.ties, rate.losses) == pytest.approx((1.5 / 5, 2 / 5, 1.5 / 5))
    assert (report.n_rankings, report.n_unacceptable, report.n_skipped) == (5, 1, 1)
    assert report.rates.strengths[0].value == pytest.approx(0, abs=1e-6)


def test_within_an_unordered_rest_nothing_is_compared(store: Store, home: Home) -> None:
    project = make.make_project(store, k=3)
    task = make.make_task(store, project)  # all three of one model without a name: nothing to compare
    make.make_ranking(store, task, make.make_person(store), [1, 2, 2], detail=Detail(unplaced=(1, 2)))
    assert comparison_report(store, home, project.id).rates.rates == []
    first = compared(store, {"sft": ["one"], "ppo": ["eins"]})
    second = compared(store, {"sft": ["one"], "dpo": ["un"]})
    made = create_comparison(store, OPERATOR, home, [first.id, second.id], "rest")
    (task,) = tasks_of(store, made.project)
    make.make_ranking(store, task, make.make_person(store), [1, 2, 2], detail=Detail(unplaced=(1, 2)))
    found = [
        (each.first, each.second, each.rate) for each in comparison_report(store, home, made.project.id).rates.rates
    ]
    assert found == [("dpo", "sft", 0.0), ("ppo", "sft", 0.0)]


def test_what_can_not_be_compared_is_refused_and_leaves_no_project(store: Store, home: Home) -> None:
    project = make.make_project(store)
    same = compared(store, {"sft": ["one"], "ppo": ["one"]}, project)
    with pytest.raises(InvalidInput, match="1 prompts have the same answer of every model"):
        create_comparison(store, OPERATOR, home, [same.id], "new")
    with pytest.raises(InvalidInput, match="is reward, succeeded"):
        create_comparison(store, OPERATOR, home, [make.make_finished_run(store, RunKind.REWARD, [], project).id], "new")
    run = compared(store, {"sft": ["one"], "ppo": ["two"]}, project)
    with pytest.raises(InvalidInput, match="is compare, queued; a finished comparison run is needed"):
        create_comparison(store, OPERATOR, home, [make.make_run(store, RunKind.COMPARE, project).id], "new")
    create_comparison(store, OPERATOR, home, [run.id], "new")  # the name is still free


def test_a_click_twice_makes_one_project(store: Store, home: Home) -> None:
    run = compared(store, {"sft": ["one"], "ppo": ["two"]})
    first = create_comparison(store, OPERATOR, home, [run.id], "new", nonce="click")
    again = create_comparison(store, OPERATOR, home, [run.id], "new", nonce="click")
    assert (again.project.id, again.counts) == (first.project.id, {"known": 1})


def test_same_answers_are_ties_in_a_line_of_their_own(store: Store, home: Home) -> None:
    run = compared(store, {"sft": ["one", "two", "same", "both"], "ppo": ["eins", "zwei", "same", "both"]})
    made = create_comparison(store, OPERATOR, home, [run.id], "blind")
    assert comparison_report(store, home, made.project.id).rates_with_same == []  # nothing is ranked yet
    person = make.make_person(store)
    for task in tasks_of(store, made.project):
        make.make_ranking(store, task, person, [2, 1])
    report = comparison_report(store, home, made.project.id)
    (rate,), (with_same,) = report.rates.rates, report.rates_with_same
    assert (rate.rate, rate.n_prompts, report.n_same) == (1.0, 2, 2)
    assert (with_same.wins, with_same.ties, with_same.losses) == (0.5, 0.5, 0.0)
    assert (with_same.rate, with_same.n_prompts) == (0.75, 4)
