"""Selection on both databases: scores, order, arms, and the report beside what people said."""

from __future__ import annotations

from dataclasses import replace

import factories as make
import pytest
import sqlalchemy as sa

from data.errors import InvalidInput
from data.label_settings import LabelSettings, TaskOrder
from data.labels.check_slots import claim_repeat
from data.labels.gold import set_gold
from data.labels.projects import set_settings
from data.labels.rankings import save_ranking
from data.labels.roles import OPERATOR
from data.labels.scores import arms_of, heads_of_tasks, save_scores, scores_of_tasks, untouched_tasks, without_scores
from data.labels.slots import claim_slots
from data.records import NewRanking, Person, Project, RankingStatus, Run, RunKind, RunStatus, Task
from data.runs.state import claim_run, create_run, finish_run, get_run
from data.store import Store
from data.store.tables import slot
from labeling.review.selection import RANDOM, By, SelectionConfig, apply_selection, disagreement
from labeling.review.selection_report import selection_report


def reward_run(store: Store, status: RunStatus = RunStatus.SUCCEEDED) -> Run:
    with store.begin() as tx:
        queued = create_run(tx, RunKind.REWARD, {})
        claimed = claim_run(tx, "test")
        assert claimed is not None and claimed.id == queued.id
        finish_run(tx, claimed.id, claimed.epoch, status)
        return get_run(tx, queued.id)


def tasks_with_margins(store: Store, project: Project, run: Run, margins: list[float]) -> list[Task]:
    """A task of two responses for each margin; the model puts the first response that much above the second."""
    tasks = [make.make_task(store, project, "first", "second", prompt=f"question {n}") for n in range(len(margins))]
    score(store, run, tasks, margins)
    return tasks


def score(store: Store, run: Run, tasks: list[Task], margins: list[float]) -> None:
    with store.begin() as tx:
        for task, margin in zip(tasks, margins, strict=True):
            first, second = task.responses
            save_scores(tx, run.id, {first.id: margin, second.id: 0.0})


def handed_out(store: Store, project: Project, person: Person, n: int) -> list[str]:
    with store.begin() as tx:
        return [each.task.id for each in claim_slots(tx, project.id, person.id, n)]


def arms(store: Store, project: Project) -> dict[str, str]:
    with store.read() as tx:
        return {task_id: each.name for task_id, each in arms_of(tx, project.id).items()}


def test_scores_are_kept_by_model_and_replaced(store: Store) -> None:
    project, run, other = make.make_project(store), reward_run(store), reward_run(store)
    one, two = tasks_with_margins(store, project, run, [1.5, 2.5])
    score(store, run, [one], [0.5])
    with store.begin() as tx:
        save_scores(tx, other.id, {one.responses[0].id: 9.0})
    with store.read() as tx:
        found = scores_of_tasks(tx, [one.id, two.id])
        assert found == {one.id: {run.id: (0.5, 0.0)}, two.id: {run.id: (2.5, 0.0)}}  # half a task has no scores
        assert without_scores(tx, [one.id, two.id], other.id) == [one.id, two.id]
        assert without_scores(tx, [one.id, two.id], run.id) == []


def test_only_what_nobody_has_touched_is_put_in_order(store: Store) -> None:
    project, run = make.make_project(store, overlap=2), reward_run(store)
    tasks = tasks_with_margins(store, project, run, [0.1, 0.2, 0.3, 0.4])
    make.make_ranking(store, tasks[0], make.make_person(store), [1, 2])
    make.lease(store, tasks[1], make.make_person(store))
    unscored = make.make_task(store, project, "a", "b")
    with store.read() as tx:
        assert untouched_tasks(tx, project.id) == [tasks[2].id, tasks[3].id, unscored.id]
    made = apply_selection(store, OPERATOR, project.id, [run.id], SelectionConfig(control=0.5))
    assert made.by is By.LOW_MARGIN
    assert made.counts == {"tasks": 3, "random": 1, "selected": 1, "without_scores": 1}
    assert set(arms(store, project)) == {tasks[2].id, tasks[3].id}


def test_the_least_sure_tasks_come_first_and_new_ones_after_them(store: Store) -> None:
    project, run, person = make.make_project(store), reward_run(store), make.make_person(store)
    margins = [float(number) for number in (7, 3, 9, 1, 5, 8, 2, 6, 4, 10, 12, 11)]
    tasks = tasks_with_margins(store, project, run, margins)
    apply_selection(store, OPERATOR, project.id, [run.id], SelectionConfig(control=0.25))
    new = make.make_task(store, project, "later", "latest")
    order, found = handed_out(store, project, person, 20), arms(store, project)
    assert order[-1] == new.id and len(order) == 13
    by_task = {task.id: margin for task, margin in zip(tasks, margins, strict=True)}
    selected = [by_task[task_id] for task_id in order[:-1] if found[task_id] != RANDOM]
    assert len(selected) == 9 and selected == sorted(selected)
    assert [found[task_id] for task_id in order[:4]].count(RANDOM) == 1


@pytest.mark.parametrize("order", list(TaskOrder))
def test_a_selection_goes_before_any_order_of_the_project(order: TaskOrder, store: Store) -> None:
    project, run, person = make.make_project(store), reward_run(store), make.make_person(store)
    with store.begin() as tx:
        set_settings(tx, project.id, settings=LabelSettings(task_order=order.value))
    unscored = [make.make_task(store, project, "a", "b") for _ in range(3)]
    tasks = tasks_with_margins(store, project, run, [3.0, 1.0, 2.0])
    apply_selection(store, OPERATOR, project.id, [run.id], SelectionConfig())
    order_now = handed_out(store, project, person, 6)
    assert set(order_now[:3]) == {task.id for task in tasks}
    assert set(order_now[3:]) == {task.id for task in unscored}


def test_selecting_again_draws_anew_and_forgets_what_has_no_scores(store: Store) -> None:
    project, one, two = make.make_project(store), reward_run(store), reward_run(store)
    tasks = tasks_with_margins(store, project, one, [1.0, 2.0, 3.0, 4.0])
    apply_selection(store, OPERATOR, project.id, [one.id], SelectionConfig())
    score(store, two, tasks[:3], [3.0, -2.0, 3.0])
    made = apply_selection(
        store, OPERATOR, project.id, [one.id, two.id], SelectionConfig(by="disagreement", control=0.3)
    )
    assert made.counts == {"tasks": 4, "random": 1, "selected": 2, "without_scores": 1}
    found = arms(store, project)
    assert tasks[3].id not in found and set(found.values()) == {RANDOM, "disagreement"}
    with store.read() as tx:
        turns = {row.task_id: row.turn for row in tx.rows(sa.select(slot.c.task_id, slot.c.turn))}
        assert {each.reward_run_ids for each in arms_of(tx, project.id).values()} == {(one.id, two.id)}
    assert turns[tasks[3].id] == 0.0 and all(turns[task.id] < 0 for task in tasks[:3])


def test_what_can_not_be_selected_by_is_refused(store: Store) -> None:
    project, run, failed = make.make_project(store), reward_run(store), reward_run(store, RunStatus.FAILED)
    make.make_task(store, project, "a", "b")
    with pytest.raises(InvalidInput, match="1 tasks wait to be ranked, none with scores of this reward model"):
        apply_selection(store, OPERATOR, project.id, [run.id], SelectionConfig())
    with pytest.raises(InvalidInput, match="a selection needs a reward run"):
        apply_selection(store, OPERATOR, project.id, [], SelectionConfig())
    with pytest.raises(InvalidInput, match="a finished reward run is needed"):
        apply_selection(store, OPERATOR, project.id, [failed.id], SelectionConfig())
    with pytest.raises(InvalidInput, match="nothing has been selected in this project yet"):
        selection_report(store, project.id)
    tasks_with_margins(store, project, run, [1.0])
    with pytest.raises(InvalidInput, match=r"disagreement needs .* several heads .* or two reward runs or more"):
        apply_selection(store, OPERATOR, project.id, [run.id, run.id], SelectionConfig(by=By.DISAGREEMENT.value))
    assert arms(store, project) == {}


def test_an_ensemble_puts_first_what_its_heads_disagree_on(store: Store) -> None:
    """The margins would have it the other way round."""
    project, run, person = make.make_project(store), reward_run(store), make.make_person(store)
    tasks = [make.make_task(store, project, "first", "second", prompt=f"question {n}") for n in range(6)]
    with store.begin() as tx:
        for number, task in enumerate(tasks):
            first, second = task.responses
            spread = 0.5 * number
            heads = {first.id: (number + spread, number - spread), second.id: (0.0, 0.0)}
            save_scores(tx, run.id, {first.id: float(number), second.id: 0.0}, heads)
    with store.read() as tx:
        assert heads_of_tasks(tx, [tasks[2].id]) == {tasks[2].id: {run.id: ((3.0, 0.0), (1.0, 0.0))}}
        assert scores_of_tasks(tx, [tasks[2].id]) == {tasks[2].id: {run.id: (2.0, 0.0)}}
    made = apply_selection(store, OPERATOR, project.id, [run.id], SelectionConfig(control=0.05))
    assert made.by is By.DISAGREEMENT
    found = arms(store, project)
    assert set(found.values()) == {RANDOM, "disagreement"}
    order = [task_id for task_id in handed_out(store, project, person, 6) if found[task_id] != RANDOM]
    scores = {task.id: [(1.5 * n, 0.0), (0.5 * n, 0.0)] for n, task in enumerate(tasks)}
    doubts = [disagreement(scores[task_id]) for task_id in order]
    assert len(order) == 5 and doubts == sorted(doubts, reverse=True) and order[0] != tasks[0].id


def test_gold_is_not_selected_and_no_check_is_counted(store: Store) -> None:
    """A gold task has scores like any other; an answer to one, or a repeat, would be in the report by its task."""
    project, run, ann = make.make_project(store), reward_run(store), make.make_person(store)
    tasks = tasks_with_margins(store, project, run, [0.1, 1.0, 2.0, 3.0])
    with store.begin() as tx:
        set_gold(tx, tasks[0].id, [1, 2])
    with store.read() as tx:
        assert untouched_tasks(tx, project.id) == [task.id for task in tasks[1:]]
    assert apply_selection(store, OPERATOR, project.id, [run.id], SelectionConfig()).counts["tasks"] == 3
    assert set(arms(store, project)) == {task.id for task in tasks[1:]}
    make.make_ranking(store, tasks[1], ann, [1, 2])
    with store.begin() as tx:
        (again,) = claim_repeat(tx, project.id, ann.id, after=0)
        second = NewRanking(tasks[1].id, ann.id, "again", RankingStatus.RANKED, (2, 1), (0, 1), is_repeat=True)
        save_ranking(tx, replace(second, lease_token=again.lease_token))
    make.make_ranking(store, tasks[0], ann, [1, 2])
    report = selection_report(store, project.id)
    assert sum(arm.n_ranked for arm in report.arms) == 1
    (arm,) = (arm for arm in report.arms if arm.n_ranked)
    assert (arm.accuracy, arm.n_prompts) == (1.0, 1)  # the repeat was against the model
    with store.begin() as tx:
        set_gold(tx, tasks[1].id, [1, 2])
    report = selection_report(store, project.id)
    assert sum(arm.n_tasks for arm in report.arms) == 2 and sum(arm.n_ranked for arm in report.arms) == 0


def ranked_project(store: Store, right_when_sure: int, right_when_unsure: int) -> Project:
    """40 tasks, half of them with close scores; people agree with the model on so many of each twenty."""
    project, run, person = make.make_project(store), reward_run(store), make.make_person(store)
    tasks = tasks_with_margins(store, project, run, [5.0] * 20 + [0.1] * 20)
    apply_selection(store, OPERATOR, project.id, [run.id], SelectionConfig(control=0.5))
    found = arms(store, project)
    seen = {RANDOM: 0, "low_margin": 0}
    for task in tasks:
        arm = found[task.id]
        wanted = right_when_sure if arm == RANDOM else right_when_unsure
        make.make_ranking(store, task, person, [1, 2] if seen[arm] < wanted else [2, 1])
        seen[arm] += 1
    return project


def test_a_clear_difference_is_told_with_its_interval(store: Store) -> None:
    found = selection_report(store, ranked_project(store, right_when_sure=19, right_when_unsure=8).id)
    selected, control = found.arms
    assert (selected.name, selected.n_tasks, selected.n_ranked, selected.n_prompts) == ("low_margin", 20, 20, 20)
    assert control.name == RANDOM
    assert (selected.accuracy, control.accuracy) == (0.4, 0.95)
    assert found.difference == pytest.approx(-0.55)
    # the standard error of the difference is sqrt(.4 * .6 / 20 + .95 * .05 / 20) = 0.12
    assert found.interval == pytest.approx((-0.55 - 1.96 * 0.12, -0.55 + 1.96 * 0.12), abs=0.04)
    assert found.verdict.startswith("Selection found pairs that the model has wrong more often than random ones")


def test_no_difference_is_no_evidence(store: Store) -> None:
    found = selection_report(store, ranked_project(store, right_when_sure=14, right_when_unsure=13).id)
    assert found.verdict.startswith("No evidence that selection beat random")
    assert found.interval is not None and found.interval[0] < 0 < found.interval[1]


def test_the_report_by_hand(store: Store) -> None:
    """One task in each arm: a tie and a skip among the answers, two people of one task averaged."""
    project, run = make.make_project(store, overlap=2), reward_run(store)
    tasks = [make.make_task(store, project, "x", "y", "z", prompt=f"q {n}") for n in range(2)]
    with store.begin() as tx:
        for task in tasks:
            save_scores(
                tx, run.id, {each.id: value for each, value in zip(task.responses, (3.0, 1.0, 1.0), strict=True)}
            )
    apply_selection(store, OPERATOR, project.id, [run.id], SelectionConfig(control=0.5))
    found = arms(store, project)
    selected = next(task for task in tasks if found[task.id] != RANDOM)
    one, two, three = (make.make_person(store) for _ in range(3))
    make.make_ranking(store, selected, one, [1, 2, 3])  # right, right, and equal scores: half
    make.make_ranking(store, selected, two, [2, 1, 2])  # a tie; of two pairs one is wrong, one has equal scores
    control = next(task for task in tasks if found[task.id] == RANDOM)
    make.make_ranking(store, control, three)
    report = selection_report(store, project.id)
    ours, theirs = report.arms
    assert ours.accuracy == pytest.approx(((1 + 1 + 0.5) / 3 + (0 + 0.5) / 2) / 2)
    assert (ours.n_prompts, ours.interval, ours.seconds) == (1, None, 1.0)
    assert ours.tie_share == pytest.approx(1 / 6)
    assert ours.mean_margin == pytest.approx((2 + 2 + 0) / 3)
    assert (ours.skip_share, theirs.skip_share) == (0.0, 1.0)
    assert (theirs.accuracy, theirs.tie_share, theirs.seconds, theirs.mean_margin) == (None, None, None, None)
    assert (report.difference, report.interval, report.reward_run_ids) == (None, None, (run.id,))
    assert report.verdict.startswith("Too early to say")
