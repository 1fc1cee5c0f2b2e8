"""Score a file on the page of a reward run: an upload becomes a run, once, and what is wrong is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from factories import make_person, make_snapshot
from run_makers import ended

from data.paths import Home
from data.records import Role, Run, RunKind
from data.runs import list_runs
from data.store import Store


def opened(store: Store, home: Home, open_app: Any) -> tuple[Any, Run]:
    run = ended(store, RunKind.REWARD, snapshot=make_snapshot(store, home))
    app = open_app(make_person(store, Role.RESEARCHER), "runs")
    app.query_params["run"] = run.id
    app.query_params["runs.tab"] = "Score a file"
    app.run()
    assert not app.exception
    return app, run


def uploaded(app: Any, content: str) -> Any:
    app.file_uploader[0].upload("rows.jsonl", content.encode(), "application/octet-stream").run()
    button = next(each for each in app.button if each.label == "Score")
    button.click().run()
    return app


def test_an_upload_becomes_a_scoring_run(sqlite_store: Store, home: Home, open_app: Any) -> None:
    app, reward = opened(sqlite_store, home, open_app)
    row = {"prompt": "Name a prime.", "responses": ["7", "9"]}
    app = uploaded(app, json.dumps(row) + "\nnot a row\n")
    assert not app.exception
    with sqlite_store.read() as tx:
        (run,) = list_runs(tx, kinds=(RunKind.SCORE,))
    assert (run.reward_run_id, run.project_id) == (reward.id, reward.project_id)
    lines = Path(str(run.config["input_file"])).read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["responses"] for line in lines] == [["7", "9"]]
    assert [path.name for path in home.uploads.iterdir()] == [Path(str(run.config["input_file"])).name]


@pytest.mark.parametrize(
    ("content", "words"), [("", "is empty"), ('{"prompt": "no responses"}\n', "no row can be used")]
)
def test_a_file_without_a_row_starts_nothing(
    content: str, words: str, sqlite_store: Store, home: Home, open_app: Any
) -> None:
    app, _ = opened(sqlite_store, home, open_app)
    app = uploaded(app, content)
    assert words in app.error[0].value.replace("\\", "")
    with sqlite_store.read() as tx:
        assert not list_runs(tx, kinds=(RunKind.SCORE,))
    assert not list(home.uploads.iterdir())
