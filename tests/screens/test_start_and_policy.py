"""The SFT model's answers to held-out prompts beside the policy's: what is read, what is shown, and what is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from factories import make_person, make_project
from hostile import HOSTILE, markdown_of
from run_makers import report, running

import app.widgets.policies.start_and_policy as widget
from data.files.paths import Home
from data.files.rollouts import HELD_OUT, TOKEN_COLUMNS, TRAIN, write_rollout
from data.records import Role, Run, RunKind
from data.store import Store


def row(key: str, response: str, score: float, kl: float = 0.0, prompt: str = "Why?") -> dict[str, Any]:
    return {
        "prompt_key": key, "prompt": prompt, "response": response, "score": score, "score_after_penalty": score,
        "kl": kl, "ended": True, "ids": [1], "tokens": ["x"], "clipped": [False],
        **{name: [0.0] for name in TOKEN_COLUMNS},
    }  # fmt: skip


def test_answers_meet_by_their_prompt_whatever_their_order() -> None:
    start = [row("a", "old a", 1.0), row("b", "old b", -2.0), row("gone", "old", 0.0)]
    first, second, third = widget.paired(start, [row("b", "new b", 1.5, 3.0), row("a", "new a", 0.5), row("c", "c", 9)])
    assert first == {
        "prompt": "Why?", "sft_response": "old b", "policy_response": "new b", "sft_score": -2.0, "policy_score": 1.5,
        "gain": 3.5, "kl": 3.0,
    }  # fmt: skip
    assert (second["sft_response"], second["gain"]) == ("old a", -0.5)
    assert (third["sft_response"], third["sft_score"], third["gain"], third["policy_score"]) == (None, None, None, 9)


def test_the_page_reads_the_start_and_the_chosen_evaluation(
    sqlite_store: Store, home: Home, open_app: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = running(sqlite_store, RunKind.PPO, make_project(sqlite_store))
    report(sqlite_store, run, 1, samples=[{"prompt": "p", "response": "of a rollout", "score": 1.0}])
    folder = home.run_folder(run.id)
    write_rollout(folder, TRAIN, 30, [row("0", "train", 0.0)])
    for iteration in (0, 10, 20):
        rows = [row("a", f"{HOSTILE[0]} {iteration}", iteration / 10, 0.5, HOSTILE[1]), row("b", f"two {iteration}", 0)]
        write_rollout(folder, HELD_OUT, iteration, rows if not iteration else rows[::-1])
    read: list[tuple[int, Any]] = []
    original = widget.read_rollout

    def spy(folder: Path, side: str, iteration: int, columns: Any = None) -> Any:
        read.append((iteration, columns))
        return original(folder, side, iteration, columns)

    monkeypatch.setattr(widget, "read_rollout", spy)
    app = _open(sqlite_store, open_app, run)
    assert read == [(0, widget.COLUMNS), (20, widget.COLUMNS)]
    table = app.dataframe[0].value
    assert list(table["sft_response"]) == ["two 0", f"{' '.join(HOSTILE[0].split())} 0"]
    assert table["policy_response"].iloc[0] == "two 20"
    assert table[["sft_score", "policy_score", "gain", "kl"]].iloc[1].tolist() == [0.0, 2.0, 2.0, 0.5]
    app.get_by_key(f"runs.start.{run.id}.evaluation").set_value("10").run()
    assert not app.exception
    assert read[2:] == [(0, widget.COLUMNS), (10, widget.COLUMNS)]
    assert app.dataframe[0].value["policy_response"].iloc[0] == "two 10"
    assert {"two 0", "two 10"} <= {text.value for text in app.text}, "the first row stands in full below"
    assert app.dataframe[1].value["response"].tolist() == ["of a rollout"]
    assert not any(text in markdown_of(app) for text in HOSTILE[:2])


def test_a_prompt_without_a_start_is_counted(sqlite_store: Store, home: Home, open_app: Any) -> None:
    run = running(sqlite_store, RunKind.PPO, make_project(sqlite_store))
    write_rollout(home.run_folder(run.id), HELD_OUT, 10, [row("a", "new", 1.0), row("b", "new", 1.0)])
    app = _open(sqlite_store, open_app, run)
    assert any("Of 2 of 2 prompts" in each.value for each in app.caption)
    assert "not recorded" in {text.value for text in app.text}


@pytest.mark.parametrize(
    ("changes", "recorded", "words"),
    [
        ({"eval_prompts": 0}, [], "(evaluation.prompts is 0)"),
        ({"token_rows": 0}, [], "(evaluation.token_rows is 0)"),
        ({}, [], "has not come to an evaluation"),
        ({}, [0], "only the SFT model's answers"),
    ],
)
def test_where_nothing_is_recorded_the_reason_is_said(
    changes: dict[str, int], recorded: list[int], words: str, sqlite_store: Store, home: Home, open_app: Any
) -> None:
    run = running(sqlite_store, RunKind.PPO, make_project(sqlite_store), **changes)
    for iteration in recorded:
        write_rollout(home.run_folder(run.id), HELD_OUT, iteration, [row("a", "x", 1.0)])
    app = _open(sqlite_store, open_app, run)
    assert any(words in each.value for each in app.caption)
    assert not app.dataframe


def test_a_spoilt_file_is_told_and_the_page_stays(sqlite_store: Store, home: Home, open_app: Any) -> None:
    run = running(sqlite_store, RunKind.PPO, make_project(sqlite_store))
    report(sqlite_store, run, 1, samples=[{"response": "of a rollout"}])
    write_rollout(home.run_folder(run.id), HELD_OUT, 0, [row("a", "x", 1.0)]).write_bytes(b"not parquet")
    write_rollout(home.run_folder(run.id), HELD_OUT, 10, [row("a", "x", 1.0)])
    app = _open(sqlite_store, open_app, run)
    assert "can't be read" in app.error[0].value.replace("\\", "")
    assert "of a rollout" in {text.value for text in app.text}


def test_runs_of_other_kinds_have_no_such_table(sqlite_store: Store, open_app: Any) -> None:
    run = running(sqlite_store, RunKind.RLOO, make_project(sqlite_store))
    assert not [each for each in _open(sqlite_store, open_app, run).header if "SFT" in each.value]


def _open(store: Store, open_app: Any, run: Run) -> Any:
    app = open_app(make_person(store, Role.RESEARCHER), "runs")
    app.query_params["run"] = run.id
    app.query_params["runs.tab"] = "Samples"
    app.run()
    assert not app.exception
    return app
