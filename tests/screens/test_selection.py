"""What comes next: nothing without a model; score and put in order, or let the instant model; and see how it went."""

from __future__ import annotations

from typing import Any

from factories import make_person, make_ranking, make_snapshot, make_task
from instant_maker import planted_project, waiting
from run_makers import ended

from app.actions.context import PROJECT_KEY
from app.widgets.forms.import_form import SELECT, TAB
from data.files.paths import Home
from data.labels.projects import get_project
from data.labels.roles import OPERATOR
from data.labels.scores import arms_of, save_scores
from data.records import Project, Role, Run, RunKind, Task
from data.runs.state import list_runs
from data.store import Store
from labeling.review.selection import RANDOM, SelectionConfig, apply_selection


def open_panel(store: Store, open_app: Any, project: Project) -> Any:
    app = open_app(make_person(store, Role.RESEARCHER), "prompts")
    app.session_state[PROJECT_KEY] = project.id
    app.session_state[TAB] = SELECT
    app.run()
    assert not app.exception
    return app


def reward_run(store: Store, home: Home) -> tuple[Run, Project]:
    snapshot = make_snapshot(store, home)
    with store.read() as tx:
        return ended(store, RunKind.REWARD, snapshot=snapshot), get_project(tx, snapshot.project_id)


def waiting_tasks(store: Store, project: Project, n: int) -> list[Task]:
    return [make_task(store, project, "one", "two", prompt=f"waits {number}") for number in range(n)]


def score(store: Store, run: Run, tasks: list[Task]) -> None:
    with store.begin() as tx:
        for number, task in enumerate(tasks):
            save_scores(tx, run.id, {task.responses[0].id: float(number + 1), task.responses[1].id: 0.0})


def press(app: Any, name: str) -> None:
    button = next(each for each in app.button if (each.key or "").startswith(f"selection.{name}."))
    button.click().run()
    assert not app.exception


def test_without_a_reward_model_and_features_nothing_can_be_selected(
    sqlite_store: Store, home: Home, open_app: Any
) -> None:
    snapshot = make_snapshot(sqlite_store, home)
    with sqlite_store.read() as tx:
        project = get_project(tx, snapshot.project_id)
    waiting_tasks(sqlite_store, project, 4)
    app = open_panel(sqlite_store, open_app, project)
    assert "there are 0, and 6 that it has not read" in app.info[0].value
    assert "Or train a reward model" in app.info[0].value
    assert all(each.disabled for each in app.button if each.label == "Put in order")


def test_what_waits_is_scored_once_however_often_the_button_is_pressed(
    sqlite_store: Store, home: Home, open_app: Any
) -> None:
    run, project = reward_run(sqlite_store, home)
    waiting_tasks(sqlite_store, project, 4)
    app = open_panel(sqlite_store, open_app, project)
    assert "To be ranked: 4 tasks" in " ".join(each.value for each in app.caption)
    nonce = app.session_state["selection.nonce"]
    press(app, "score")
    app.session_state["selection.nonce"] = nonce
    app.run()
    press(app, "score")
    with sqlite_store.read() as tx:
        (queued,) = list_runs(tx, kinds=(RunKind.SCORE,))
    assert (queued.project_id, queued.reward_run_id, queued.config["unranked"]) == (project.id, run.id, True)


def test_scored_tasks_are_put_in_order(sqlite_store: Store, home: Home, open_app: Any) -> None:
    run, project = reward_run(sqlite_store, home)
    tasks = waiting_tasks(sqlite_store, project, 8)
    score(sqlite_store, run, tasks)
    app = open_panel(sqlite_store, open_app, project)
    press(app, "apply")
    with sqlite_store.read() as tx:
        found = [each.name for each in arms_of(tx, project.id).values()]
    assert (found.count(RANDOM), found.count("low_margin")) == (2, 6)
    assert "Too early to say" in app.info[0].value
    table = app.dataframe[0].value
    assert list(table["arm"]) == ["low margin", "random"] and list(table["tasks"]) == [6, 2]


def test_the_report_says_plainly_that_there_is_no_evidence(sqlite_store: Store, home: Home, open_app: Any) -> None:
    run, project = reward_run(sqlite_store, home)
    tasks, person = waiting_tasks(sqlite_store, project, 24), make_person(sqlite_store)
    score(sqlite_store, run, tasks)
    apply_selection(sqlite_store, OPERATOR, project.id, [run.id], SelectionConfig(control=0.5))
    for number, task in enumerate(tasks):
        make_ranking(sqlite_store, task, person, [1, 2] if number % 2 else [2, 1])
    app = open_panel(sqlite_store, open_app, project)
    assert "No evidence that selection beat random" in app.info[0].value


def test_the_instant_model_selects_where_there_is_no_reward_run(sqlite_store: Store, home: Home, open_app: Any) -> None:
    project = planted_project(sqlite_store, home)
    waiting(sqlite_store, home, project, [4.0, 0.1, -4.0, 0.2, 5.0, -0.1, -5.0, 0.3])
    waiting(sqlite_store, home, project, [1.0, 2.0], model=None)
    app = open_panel(sqlite_store, open_app, project)
    said = " ".join(each.value for each in app.caption)
    assert "To be ranked: 10 tasks" in said and "It learns from 60 rankings" in said
    assert "2 of 10 waiting tasks have responses without cached features" in said
    assert "rankloop features" in said
    press(app, "apply")
    with sqlite_store.read() as tx:
        found = [each.name for each in arms_of(tx, project.id).values()]
    assert (found.count(RANDOM), found.count("disagreement")) == (2, 6)
    assert "6 selected by disagreement, 2 drawn by lot, 2 without features" in app.toast[0].value
    assert list(app.dataframe[0].value["arm"]) == ["disagreement", "random"]


def test_what_the_frozen_model_has_not_read_can_be_read(sqlite_store: Store, home: Home, open_app: Any) -> None:
    project = planted_project(sqlite_store, home)
    waiting(sqlite_store, home, project, [1.0, 2.0], model=None)
    app = open_panel(sqlite_store, open_app, project)
    button = next(each for each in app.button if (each.key or "").startswith("selection.apply."))
    assert button.disabled
    next(each for each in app.button if each.label == "Read responses").click().run()
    assert not app.exception
    with sqlite_store.read() as tx:
        (run,) = list_runs(tx, project_id=project.id)
    assert run.kind is RunKind.FEATURES


def test_beside_reward_runs_the_instant_model_can_be_chosen(sqlite_store: Store, home: Home, open_app: Any) -> None:
    _, project = reward_run(sqlite_store, home)
    waiting_tasks(sqlite_store, project, 4)
    app = open_panel(sqlite_store, open_app, project)
    assert app.multiselect
    app.segmented_control(key="selection.way").set_value("Instant reward model").run()
    assert not app.exception and not app.multiselect
    assert "there are 0, and 6 that it has not read" in app.info[0].value
    assert "train a reward model" not in app.info[0].value
