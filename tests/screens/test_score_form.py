"""Score a file on the page of a reward run: an upload becomes a run, once, and what is wrong is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from factories import make_person, make_snapshot
from run_makers import ended

from app.words.values import short_id
from data.files.paths import Home
from data.labels.projects import get_project
from data.records import Role, Run, RunKind, RunStatus
from data.runs.state import claim_run, finish_run, list_runs
from data.store import Store

ROW = json.dumps({"prompt": "Name a prime.", "responses": ["7", "9"]}) + "\n"


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


def test_several_models_may_score_and_their_mean_and_spread_are_shown(
    sqlite_store: Store, home: Home, open_app: Any
) -> None:
    app, reward = opened(sqlite_store, home, open_app)
    with sqlite_store.read() as tx:
        project = get_project(tx, str(reward.project_id))
    other = ended(sqlite_store, RunKind.REWARD, project)
    app.file_uploader[0].upload("rows.jsonl", ROW.encode(), "application/octet-stream").run()
    (more,) = [each for each in app.multiselect if each.label == "More reward models"]
    assert len(more.options) == 1 and short_id(other.id) in more.options[0], "not itself"
    more.select(more.options[0]).run()
    next(each for each in app.button if each.label == "Score").click().run()
    assert not app.exception
    with sqlite_store.begin() as tx:
        (run,) = list_runs(tx, kinds=(RunKind.SCORE,))
        assert (run.reward_run_id, run.config["beside"]) == (reward.id, other.id)
        claimed = claim_run(tx, "test worker")
        assert claimed is not None
        finish_run(
            tx, run.id, claimed.epoch, RunStatus.SUCCEEDED, result={"rows": 2, "beside": {other.id: {"rows": 2}}}
        )
    known = {"messages": [{"role": "user", "content": "Name a prime."}], "responses": ["7", "9"]}
    rows = [known | {"scores": [1.5, -0.5], "stds": [0.25, 1.0]}, known | {"scores": None, "problem": "refused"}]
    home.run_folder(run.id).mkdir(parents=True)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (home.run_folder(run.id) / "scores.jsonl").write_text(lines, encoding="utf-8")
    app.run()
    (table,) = [each.value for each in app.dataframe if "spread" in each.value.columns]
    assert table["score"].tolist()[:2] == [1.5, -0.5] and table["spread"].tolist()[:2] == [0.25, 1.0]
    assert table["problem"].tolist()[2:] == ["refused"] * 2 and table["score"].isna().tolist()[2:] == [True, True]
    named = f"mean of reward models {short_id(reward.id)}, {short_id(other.id)}"
    assert any(named in each.value for each in app.caption)
    assert [each.label for each in app.metric] == ["Rows"]


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
