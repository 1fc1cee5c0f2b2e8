"""Selection by the instant reward model, on both databases: what the head is unsure of comes first, and the report
knows what it had foreseen."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import factories as make
import numpy as np
import pytest
from cli_runner import Cli
from instant_maker import planted_project, read, waiting

from app.actions.instant_selection import Ready, look, select_by_instant
from data.errors import InvalidInput
from data.files.paths import Home
from data.labels.roles import OPERATOR
from data.labels.scores import arms_of, save_scores
from data.labels.slots import claim_slots
from data.records import Project, RunKind
from data.store import Store
from labeling.review.selection import RANDOM, By, SelectionConfig, apply_selection
from labeling.review.selection_report import selection_report

DISTANCES = (3.0, 0.02, 4.0, -0.01, 5.0, 0.03, -3.0, 0.0, -4.0, 0.01, -5.0, -0.02)


def selected_order(store: Store, project: Project) -> list[str]:
    """The tasks in the order in which people get them, without the control arm."""
    with store.begin() as tx:
        arms = {task_id: each.name for task_id, each in arms_of(tx, project.id).items()}
        handed = [each.task.id for each in claim_slots(tx, project.id, make.make_person(tx).id, 50)]
    return [task_id for task_id in handed if arms.get(task_id, RANDOM) != RANDOM]


@pytest.mark.parametrize(("by", "settled"), [("auto", By.DISAGREEMENT), ("low_margin", By.LOW_MARGIN)])
def test_what_the_head_is_unsure_of_comes_first(by: str, settled: By, store: Store, home: Home) -> None:
    project = planted_project(store, home)
    tasks = waiting(store, home, project, DISTANCES)
    made = select_by_instant(store, OPERATOR, home, project.id, SelectionConfig(by=by, control=0.25))
    assert made.by is settled
    assert made.counts == {"tasks": 12, "random": 3, "selected": 9, "without_features": 0}
    distance = {task.id: abs(each) for task, each in zip(tasks, DISTANCES, strict=True)}
    task_ids = selected_order(store, project)
    order = [distance[task_id] for task_id in task_ids]
    unsure = [each for each in order if each < 1]
    assert len(order) == 9 and 3 <= len(unsure) < 9
    assert all(each < 1 for each in order[: len(unsure)])
    if settled is By.LOW_MARGIN:
        with store.read() as tx:
            kept = arms_of(tx, project.id)
        margins = [abs(kept[task_id].scores[0] - kept[task_id].scores[1]) for task_id in task_ids]
        assert margins == sorted(margins)


def test_the_heads_are_unsure_of_what_no_ranking_has_shown(store: Store, home: Home) -> None:
    """The further two responses are apart in a direction that rankings say nothing of, the more the heads differ;
    where they are the same, nothing is learnt, though the margin is 0."""
    project = planted_project(store, home)
    tasks = [make.make_task(store, project, "one", "two", prompt=f"waits {n}") for n in range(8)]
    read(home, tasks, [np.array([[0.0, float(n), 0, 0], [0, 0, 0, 0]]) for n in range(8)])
    select_by_instant(store, OPERATOR, home, project.id, SelectionConfig(control=0.05))
    order = selected_order(store, project)
    places = [order.index(task.id) for task in tasks if task.id in order]
    assert places == sorted(places, reverse=True)
    assert len(order) == 7


def test_what_has_no_features_is_counted_and_stays_behind(store: Store, home: Home) -> None:
    project = planted_project(store, home)
    tasks = waiting(store, home, project, DISTANCES[:4])
    unread = waiting(store, home, project, (1.0, 2.0, 3.0), model=None)
    assert look(store, home, project.id) == Ready(60, 0, 7, 3)
    made = select_by_instant(store, OPERATOR, home, project.id, SelectionConfig())
    assert made.counts == {"tasks": 7, "random": 1, "selected": 3, "without_features": 3}
    with store.begin() as tx:
        handed = [each.task.id for each in claim_slots(tx, project.id, make.make_person(tx).id, 50)]
        assert set(arms_of(tx, project.id)) == {task.id for task in tasks}
    assert set(handed[:4]) == {task.id for task in tasks} and set(handed[4:]) == {task.id for task in unread}


def test_what_can_not_be_selected_by_is_refused(store: Store, home: Home) -> None:
    few = planted_project(store, home, 9)
    waiting(store, home, few, (1.0,))
    with pytest.raises(InvalidInput, match=r"needs 10 rankings .* there are 9, and 0 that it has not read"):
        select_by_instant(store, OPERATOR, home, few.id, SelectionConfig())
    project = planted_project(store, home, 10)
    waiting(store, home, project, (1.0, 2.0), model=None)
    with pytest.raises(InvalidInput, match=r"2 tasks wait .* `rankloop features` reads them"):
        select_by_instant(store, OPERATOR, home, project.id, SelectionConfig())
    with store.read() as tx:
        assert arms_of(tx, project.id) == {}


def test_features_of_two_models_are_never_mixed(store: Store, home: Home) -> None:
    """Rankings read by one model and waiting tasks by another: nothing can be said."""
    project = planted_project(store, home)
    waiting(store, home, project, (1.0, 2.0), model="other")
    assert look(store, home, project.id) == Ready(60, 0, 2, 2)
    with pytest.raises(InvalidInput, match="of none has the frozen model read"):
        select_by_instant(store, OPERATOR, home, project.id, SelectionConfig())


def test_the_report_holds_people_against_what_the_head_had_foreseen(store: Store, home: Home) -> None:
    """People agree with the planted preference but for the unsure ones, which they have the other way round."""
    project, person = planted_project(store, home), make.make_person(store)
    distances = [4.0 - 0.1 * n for n in range(12)] + [2.0 + 0.01 * n for n in range(12)]
    tasks = waiting(store, home, project, distances)
    select_by_instant(store, OPERATOR, home, project.id, SelectionConfig(by="low_margin", control=0.5))
    with store.read() as tx:
        arms = arms_of(tx, project.id)
    assert {each.reward_run_ids for each in arms.values()} == {()}
    by_distance = sorted(zip(distances, tasks, strict=True), key=lambda each: each[0])
    margins = [arms[task.id].scores[0] - arms[task.id].scores[1] for _, task in by_distance]
    assert margins == sorted(margins) and margins[0] > 0
    for task in tasks:
        make.make_ranking(store, task, person, [2, 1] if arms[task.id].name == "low_margin" else [1, 2])
    report = selection_report(store, project.id)
    ours, control = report.arms
    assert (ours.name, ours.n_tasks, ours.accuracy, control.accuracy) == ("low_margin", 12, 0.0, 1.0)
    assert ours.mean_margin is not None and report.reward_run_ids == ()
    assert report.difference == -1.0


def test_a_selection_by_a_reward_run_forgets_the_scores_of_the_head(store: Store, home: Home) -> None:
    project = planted_project(store, home)
    tasks = waiting(store, home, project, (1.0, 2.0))
    select_by_instant(store, OPERATOR, home, project.id, SelectionConfig())
    run = make.make_finished_run(store, RunKind.REWARD, [])
    with store.begin() as tx:
        save_scores(tx, run.id, {response.id: 1.0 for task in tasks for response in task.responses})
    apply_selection(store, OPERATOR, project.id, [run.id], SelectionConfig())
    with store.read() as tx:
        assert {(each.reward_run_ids, each.scores) for each in arms_of(tx, project.id).values()} == {((run.id,), ())}


def test_the_command_selects_and_says_what_is_left(
    sqlite_store: Store, home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    planted = planted_project(sqlite_store, home, name="Planted")
    waiting(sqlite_store, home, planted, DISTANCES)
    waiting(sqlite_store, home, planted, (1.0, 2.0), model=None)
    cli = Cli(Path(home.root), capsys)
    made = cli.make("selection", "apply", "Planted", "--instant", "--control", "0.5")
    assert made["by"] == "disagreement"
    assert made["counts"] == {"tasks": 14, "random": 6, "selected": 6, "without_features": 2}
    said = cli("selection", "apply", "Planted", "--instant", "--by", "low_margin").out
    assert "in order by low_margin of the instant reward model" in said
    assert "2 waiting tasks have no cached features: `rankloop features` reads them" in said
    assert "low_margin" in cli("selection", "report", "Planted").out
    assert "not allowed with" in cli.refuse("selection", "apply", "Planted", "--instant", "--reward-run", "x")


def test_nothing_of_it_loads_torch() -> None:
    lines = (
        "import sys, app.actions.instant_selection; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", lines], check=False).returncode == 0
