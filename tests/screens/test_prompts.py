"""Prompts and responses: browsing in pages, hostile texts, imports with their dry run, sampling."""

from __future__ import annotations

import json
from typing import Any

from factories import make_person, make_project, make_ranking, make_task
from hostile import HOSTILE, markdown_of

from data.files.paths import Home
from data.labels.projects import project_counts
from data.labels.prompts import add_prompts, list_prompts
from data.records import NewPrompt, Project, Role, RunKind, RunStatus
from data.runs.state import list_runs
from data.store import Store
from labeling.work.gold import list_gold

TAB = "prompts.tab"


def test_an_annotator_is_refused(sqlite_store: Store, run_lines: Any) -> None:
    app = run_lines(make_person(sqlite_store), "from app.screens.prompts import render\nrender()")
    assert "needs the role researcher" in app.exception[0].message


def test_without_a_project_the_page_leads_to_projects(sqlite_store: Store, open_app: Any) -> None:
    app = open_app(make_person(sqlite_store, Role.RESEARCHER), "prompts")
    assert not app.exception
    assert app.get_by_key("page.to_projects").label == "Go to projects"


def test_an_empty_project_leads_to_the_import(sqlite_store: Store, open_app: Any) -> None:
    make_project(sqlite_store)
    app = open_app(make_person(sqlite_store, Role.RESEARCHER), "prompts")
    app.get_by_key("prompts.to_import").click().run()
    assert not app.exception
    assert app.session_state[TAB] == "Import"
    assert [uploader.label for uploader in app.file_uploader] == ["File"]


def test_prompts_come_in_pages(sqlite_store: Store, open_app: Any) -> None:
    project = make_project(sqlite_store)
    with sqlite_store.begin() as tx:
        add_prompts(tx, project.id, [_prompt(f"question {number:03}") for number in range(300)])
    app = open_app(make_person(sqlite_store, Role.RESEARCHER), "prompts")
    assert not app.exception
    table = app.dataframe[0].value
    assert list(table["prompt"]) == [f"question {number:03}" for number in range(12)]
    app.get_by_key("prompts.search").set_value("question 29").run()
    assert list(app.dataframe[0].value["prompt"]) == [f"question 29{number}" for number in range(10)]


def test_texts_are_shown_as_they_are(sqlite_store: Store, open_app: Any) -> None:
    project = make_project(sqlite_store)
    task = make_task(sqlite_store, project, *HOSTILE, prompt=HOSTILE[0])
    app = open_app(make_person(sqlite_store, Role.RESEARCHER), "prompts")
    app.query_params["prompt"] = task.prompt_id
    app.run()
    assert not app.exception
    shown = {text.value for text in app.text}
    assert shown >= set(HOSTILE)
    for text in HOSTILE:
        assert text not in markdown_of(app)


def test_a_prompt_of_another_project_is_not_shown(sqlite_store: Store, open_app: Any) -> None:
    other = make_task(sqlite_store, make_project(sqlite_store), prompt="of the other project")
    make_task(sqlite_store, make_project(sqlite_store), prompt="of this project")
    app = open_app(make_person(sqlite_store, Role.RESEARCHER), "prompts")
    app.query_params["prompt"] = other.prompt_id
    app.run()
    assert not app.exception
    assert "of the other project" not in {text.value for text in app.text}


def test_an_import_is_tried_before_it_is_done(sqlite_store: Store, home: Home, open_app: Any) -> None:
    project = make_project(sqlite_store)
    app = _import_page(sqlite_store, open_app)
    rows = ['{"prompt": "one"}', '{"prompt": "two"}', '{"text_of_it": 1}', '{"prompt": "one"}', "{broken"]
    _upload(app, "my prompts.jsonl", "\n".join(rows).encode())
    assert not app.exception
    assert _metrics(app) == {"Rows read": "5", "New prompts": "2", "Known already": "1", "Refused": "2"}
    assert list(app.dataframe[0].value["line"]) == [3, 5]
    assert "not JSON" in app.dataframe[0].value["problem"][1]
    assert {text.value for text in app.text} >= {"one", "two"}
    assert _n_prompts(sqlite_store, project) == 0
    assert len(list(home.uploads.iterdir())) == 1
    _go(app)
    assert not app.exception
    assert _n_prompts(sqlite_store, project) == 2
    assert "2 new prompts, 1 known already; 2 rows refused" in app.success[0].value.replace("\\", "")
    assert not list(home.uploads.iterdir()), "the upload is done with"
    app.get_by_key("prompts.import.to_sample").click().run()
    assert not app.exception
    assert app.session_state[TAB] == "Sample responses"


def test_the_field_with_the_prompt_can_be_chosen(sqlite_store: Store, open_app: Any) -> None:
    project = make_project(sqlite_store)
    app = _import_page(sqlite_store, open_app)
    _upload(app, "p.csv", b"number,aufgabe\n1,Nenne drei Fluesse\n2,Zaehle bis drei\n")
    assert _metrics(app)["Refused"] == "2"
    app.get_by_key("prompts.import.field").set_value("aufgabe").run()
    assert _metrics(app)["New prompts"] == "2"
    _go(app)
    with sqlite_store.read() as tx:
        texts = [prompt.messages[0]["content"] for prompt in list_prompts(tx, project.id)]
    assert texts == ["Nenne drei Fluesse", "Zaehle bis drei"]


def test_finished_rankings_are_imported_from_another_format(sqlite_store: Store, open_app: Any) -> None:
    project = make_project(sqlite_store)
    app = _import_page(sqlite_store, open_app)
    app.get_by_key("prompts.import.kind").set_value("rankings").run()
    row = {"prompt": "Name a river.", "chosen": "The Rhine.", "rejected": "No."}
    _upload(app, "pairs.jsonl", json.dumps(row).encode())
    assert _metrics(app)["Refused"] == "1"
    app.get_by_key("prompts.import.format").set_value("trl").run()
    assert _metrics(app)["New rankings"] == "1"
    _go(app)
    with sqlite_store.read() as tx:
        assert project_counts(tx, project.id)["rankings"] == 1


def test_every_count_of_an_import_has_its_words(sqlite_store: Store, open_app: Any) -> None:
    """A file with gold in it, for one, ended in an error on the page."""
    project = make_project(sqlite_store)
    with sqlite_store.begin() as tx:
        add_prompts(tx, project.id, [_prompt("one")])
    said = {"responses": ["a", "b"], "ranks": [1, 2], "annotator": "ann"}
    rows = [
        said | {"prompt": "one", "split": "eval", "left_out": "extra"},
        said | {"prompt": "two", "expected": {"ranks": [1, 2]}, "left_out": "gold"},
        said | {"prompt": "two", "expected": {"ranks": [2, 1]}, "annotator": "bob"},
        said | {"prompt": "three", "left_out": "overruled"},
        said | {"prompt": "three", "adjudicated": True, "annotator": "researcher"},
        said | {"prompt": "three"},
    ]
    app = _import_page(sqlite_store, open_app)
    app.get_by_key("prompts.import.kind").set_value("rankings").run()
    _upload(app, "answers.jsonl", "\n".join(map(json.dumps, rows)).encode())
    assert not app.exception
    assert _metrics(app) == {
        "Rows read": "6", "New rankings": "5", "New skips": "0", "Known already": "1", "Doubles left out": "0",
        "New gold tasks": "1", "Answers to gold that is kept as it is here": "1",
        "Rows whose prompt keeps its side": "1", "Answers beyond those wanted there": "1",
        "Answers overruled there": "1", "Decisions taken in as answers": "1", "Refused": "0",
    }  # fmt: skip
    _go(app)
    assert not app.exception
    assert "5 new rankings, 1 known already" in app.success[0].value.replace("\\", "")


def test_finished_responses_become_tasks(sqlite_store: Store, open_app: Any) -> None:
    project = make_project(sqlite_store)
    app = _import_page(sqlite_store, open_app)
    app.get_by_key("prompts.import.kind").set_value("responses").run()
    _upload(app, "r.jsonl", json.dumps({"prompt": "Hi", "responses": ["a", "b", "b "]}).encode())
    assert _metrics(app) == {
        "Rows read": "1", "New tasks": "1", "Known already": "0", "New responses": "2", "Doubles left out": "1",
        "Refused": "0",
    }  # fmt: skip
    _go(app)
    with sqlite_store.read() as tx:
        assert project_counts(tx, project.id)["tasks"] == 1


def test_a_file_that_cannot_be_read_is_one_clear_error(sqlite_store: Store, open_app: Any) -> None:
    make_project(sqlite_store)
    app = _import_page(sqlite_store, open_app)
    _upload(app, "latin.jsonl", "\ufeff{}".encode("utf-16"))
    assert not app.exception
    assert "UTF-16" in app.error[0].value.replace("\\", "")


def test_a_name_of_a_file_is_no_path(sqlite_store: Store, home: Home, open_app: Any) -> None:
    make_project(sqlite_store)
    app = _import_page(sqlite_store, open_app)
    _upload(app, "../../../evil.jsonl", b'{"prompt": "one"}')
    assert not app.exception
    (saved,) = home.uploads.iterdir()
    assert saved.suffix == ".jsonl"
    assert "evil" not in saved.name


def test_sampling_is_queued_once(sqlite_store: Store, open_app: Any) -> None:
    project = make_project(sqlite_store, k=5)
    with sqlite_store.begin() as tx:
        add_prompts(tx, project.id, [_prompt("one")])
    app = open_app(make_person(sqlite_store, Role.RESEARCHER), "prompts")
    app.query_params[TAB] = "Sample responses"
    app.run()
    assert any("fetched the first time" in caption.value for caption in app.caption)
    nonce = app.session_state["prompts.sample.nonce"]
    app.get_by_key(f"prompts.sample.{project.id}.temperature").set_value(0.7)
    _start(app)
    assert not app.exception
    app.session_state["prompts.sample.nonce"] = nonce
    app.run()
    _start(app)
    with sqlite_store.read() as tx:
        (run,) = list_runs(tx, project_id=project.id)
    assert (run.kind, run.status) == (RunKind.SAMPLE, RunStatus.QUEUED)
    assert (run.config["k"], run.config["sampling.temperature"], run.config["model"]) == (5, 0.7, "demo")


def test_a_setting_that_does_not_fit_is_said_and_nothing_is_queued(sqlite_store: Store, open_app: Any) -> None:
    project = make_project(sqlite_store)
    with sqlite_store.begin() as tx:
        add_prompts(tx, project.id, [_prompt("one")])
    app = open_app(make_person(sqlite_store, Role.RESEARCHER), "prompts")
    app.query_params[TAB] = "Sample responses"
    app.run()
    app.get_by_key(f"prompts.sample.{project.id}.k").set_value(1)
    _start(app)
    assert "at least 2 responses" in app.error[0].value
    with sqlite_store.read() as tx:
        assert not list_runs(tx)


def _prompt(text: str) -> NewPrompt:
    return NewPrompt(({"role": "user", "content": text},))


def _import_page(store: Store, open_app: Any) -> Any:
    app = open_app(make_person(store, Role.RESEARCHER), "prompts")
    app.query_params[TAB] = "Import"
    return app.run()


def _upload(app: Any, name: str, content: bytes) -> None:
    app.file_uploader[0].upload(name, content, "application/octet-stream").run()


def _metrics(app: Any) -> dict[str, str]:
    return {metric.label: metric.value for metric in app.metric}


def _go(app: Any) -> None:
    next(button for button in app.button if button.key and button.key.startswith("prompts.import.go.")).click().run()


def _start(app: Any) -> None:
    next(button for button in app.button if button.key and button.key.startswith("prompts.sample.start.")).click().run()


def _n_prompts(store: Store, project: Project) -> int:
    with store.read() as tx:
        return project_counts(tx, project.id)["prompts"]


def test_a_task_is_made_gold_by_the_researcher_s_own_ranking(sqlite_store: Store, open_app: Any) -> None:
    researcher, project = make_person(sqlite_store, Role.RESEARCHER), make_project(sqlite_store)
    task = make_task(sqlite_store, project)
    app = open_app(researcher, "prompts")
    app.query_params["prompt"] = task.prompt_id
    app.run()
    assert any("rank it on the Rank page first" in each.value for each in app.caption)
    make_ranking(sqlite_store, task, researcher, [2, 1, 3])
    app.run()
    app.get_by_key(f"gold.make.{task.id}").click().run()
    assert not app.exception
    assert any("ranks 2, 1, 3" in each.value for each in app.caption)
    assert [each.ranks for each in list_gold(sqlite_store, project.id)] == [(2, 1, 3)]
    app.get_by_key(f"gold.unmake.{task.id}").click().run()
    assert list_gold(sqlite_store, project.id) == []
