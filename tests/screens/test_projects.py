"""Projects: the list, making one, its guidelines, choosing the one to work on."""

from __future__ import annotations

from typing import Any

import pytest
from factories import make_person, make_project, make_ranked_project, make_task

from app.actions.context import PROJECT_KEY
from app.screens.projects import next_step
from data.label_settings import LabelSettings
from data.labels.pauses import pause_annotator
from data.labels.projects import get_project, list_projects, project_counts
from data.records import Role
from data.store import Store
from labeling.work.alarms import pauses

FORM = "from app.screens.projects import project_form\nproject_form()"


def test_an_annotator_is_refused(sqlite_store: Store, open_app: Any, run_lines: Any) -> None:
    make_project(sqlite_store)
    ann = make_person(sqlite_store)
    with pytest.raises(ValueError, match="projects"):
        open_app(ann, "projects")
    app = run_lines(ann, "from app.screens.projects import render\nrender()")
    assert "needs the role researcher" in app.exception[0].message


def test_an_empty_store_leads_to_the_first_project(sqlite_store: Store, open_app: Any) -> None:
    app = open_app(make_person(sqlite_store, Role.RESEARCHER), "projects")
    assert not app.exception
    assert [button.key for button in app.button if button.key and button.key.startswith("projects.")] == [
        "projects.first"
    ]


def test_the_form_makes_a_project(sqlite_store: Store, run_lines: Any) -> None:
    app = run_lines(make_person(sqlite_store, Role.RESEARCHER), FORM)
    app.get_by_key("projects.new.name").set_value("Helpful <b>v1</b>")
    app.get_by_key("projects.new.k").set_value(6)
    app.get_by_key("projects.new.overlap").set_value(2)
    app.get_by_key("projects.new.reasons").set_value("Too long\n\n  Wrong language ")
    _create(app).click().run()
    assert not app.exception
    with sqlite_store.read() as tx:
        (made,) = list_projects(tx)
    assert (made.name, made.k, made.overlap) == ("Helpful <b>v1</b>", 6, 2)
    assert made.skip_reasons == ("Too long", "Wrong language")
    assert app.session_state[PROJECT_KEY] == made.id


def test_two_clicks_make_one_project(sqlite_store: Store, run_lines: Any) -> None:
    app = run_lines(make_person(sqlite_store, Role.RESEARCHER), FORM)
    nonce = app.session_state["projects.new.nonce"]
    app.get_by_key("projects.new.name").set_value("Once")
    _create(app).click().run()
    app.session_state["projects.new.nonce"] = nonce  # the second click left before the first one's answer came
    app.run()
    app.get_by_key("projects.new.name").set_value("Once")
    _create(app).click().run()
    assert not app.exception
    assert not app.error
    with sqlite_store.read() as tx:
        assert [each.name for each in list_projects(tx)] == ["Once"]


def test_a_name_that_is_taken_is_said_in_the_form(sqlite_store: Store, run_lines: Any) -> None:
    make_project(sqlite_store, "Taken")
    app = run_lines(make_person(sqlite_store, Role.RESEARCHER), FORM)
    app.get_by_key("projects.new.name").set_value("Taken")
    _create(app).click().run()
    assert "exists already" in app.error[0].value
    assert app.get_by_key("projects.new.name").value == "Taken"


def test_settings_are_changed_in_their_form(sqlite_store: Store, run_lines: Any) -> None:
    project = make_project(sqlite_store)
    lines = f"from app.screens.projects import settings_form\nsettings_form({project.id!r})"
    app = run_lines(make_person(sqlite_store, Role.RESEARCHER), lines)
    key = f"projects.set.{project.id}"
    app.get_by_key(f"{key}.allow_partial").set_value(True)
    app.get_by_key(f"{key}.task_order").set_value("random")
    app.get_by_key(f"{key}.reasons").set_value("Rude\n\n Too long ")
    app.get_by_key(f"{key}.flags").set_value("Wrong\n\n Off topic ")
    app.get_by_key(f"{key}.save").click().run()
    assert not app.exception
    with sqlite_store.read() as tx:
        changed = get_project(tx, project.id)
    assert changed.settings == LabelSettings(allow_partial=True, task_order="random")
    assert changed.skip_reasons == ("Rude", "Too long")
    assert changed.flags == ("Wrong", "Off topic")


def test_settings_without_a_reason_to_skip_are_refused_and_change_nothing(sqlite_store: Store, run_lines: Any) -> None:
    project = make_project(sqlite_store)
    lines = f"from app.screens.projects import settings_form\nsettings_form({project.id!r})"
    app = run_lines(make_person(sqlite_store, Role.RESEARCHER), lines)
    key = f"projects.set.{project.id}"
    app.get_by_key(f"{key}.allow_partial").set_value(True)
    app.get_by_key(f"{key}.reasons").set_value("  ")
    app.get_by_key(f"{key}.save").click().run()
    assert "there must be a reason to skip" in app.error[0].value
    with sqlite_store.read() as tx:
        assert get_project(tx, project.id) == project


def test_new_guidelines_are_a_new_version(sqlite_store: Store, run_lines: Any) -> None:
    project = make_project(sqlite_store)
    lines = f"from app.screens.projects import guidelines_form\nguidelines_form({project.id!r})"
    app = run_lines(make_person(sqlite_store, Role.RESEARCHER), lines)
    app.get_by_key(f"projects.edit.{project.id}.1.text").set_value("Judge the facts alone.")
    app.get_by_key(f"projects.edit.{project.id}.1.save").click().run()
    assert not app.exception
    with sqlite_store.read() as tx:
        (changed,) = list_projects(tx)
    assert (changed.guidelines, changed.guidelines_version) == ("Judge the facts alone.", 2)


def test_the_list_shows_progress_and_lets_choose(sqlite_store: Store, open_app: Any) -> None:
    done, fresh = make_ranked_project(sqlite_store, 4), make_project(sqlite_store, "![x](http://example.org/x.png)")
    app = open_app(make_person(sqlite_store, Role.RESEARCHER), "projects")
    assert not app.exception
    assert any("4 of 4 rankings done" in str(part.proto) for part in app.get("progress"))
    assert not any("![x](http" in part.value for part in app.header), "a name must not be read as Markdown"
    assert app.session_state[PROJECT_KEY] == fresh.id
    app.get_by_key(f"projects.choose.{done.id}").click().run()
    assert app.session_state[PROJECT_KEY] == done.id


def test_each_state_of_a_project_has_its_next_step(sqlite_store: Store) -> None:
    project, person = make_project(sqlite_store), make_person(sqlite_store)
    assert person.id
    steps = [_next(sqlite_store, project.id)]
    make_task(sqlite_store, project)
    steps.append(_next(sqlite_store, project.id))
    steps.append(_next(sqlite_store, make_ranked_project(sqlite_store, 2).id))
    assert steps == ["prompts", "rank", "snapshots"]


def _next(store: Store, project_id: str) -> str:
    with store.read() as tx:
        return next_step(project_counts(tx, project_id))[0]


def _create(app: Any) -> Any:
    return next(button for button in app.button if button.key and button.key.startswith("projects.new.create."))


def test_a_paused_annotator_is_shown_and_let_go_on(sqlite_store: Store, open_app: Any, run_lines: Any) -> None:
    project, ann = make_project(sqlite_store), make_person(sqlite_store, name="Ann *bold*")
    researcher = make_person(sqlite_store, Role.RESEARCHER)
    with sqlite_store.begin() as tx:
        pause_annotator(tx, project.id, ann.id, "gold", {"value": 0.25, "threshold": 0.7, "n": 6})
    assert open_app(researcher, "projects").get_by_key(f"projects.paused.{project.id}").label == "1 annotator paused"
    panel = f"from app.widgets.labels.pauses import pauses_panel\npauses_panel({project.id!r})"
    assert "needs the role researcher" in run_lines(ann, panel).exception[0].message
    app = run_lines(researcher, panel)
    assert any("Pair agreement with gold 25% on 6 tasks, below 70%" in each.value for each in app.caption)
    [found] = pauses(sqlite_store, project.id)
    app.get_by_key(f"pauses.note.{found.id}").set_value("we talked")
    app.get_by_key(f"pauses.lift.{found.id}").click().run()
    [found] = pauses(sqlite_store, project.id)
    assert (found.lifted_by, found.note) == (researcher.id, "we talked")
    assert "Nobody is paused" in app.caption[0].value
