"""Blind comparison on the command line."""

from __future__ import annotations

import factories as make
import pytest
from cli_runner import Cli

from data.files.paths import Home
from data.labels.tasks import get_tasks, list_task_ids
from data.records import RunKind
from data.store import Store


@pytest.fixture
def cli(home: Home, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(home.root, capsys)


def test_a_comparison_is_made_and_shown(cli: Cli, sqlite_store: Store) -> None:
    rows = [
        {"messages": [{"role": "user", "content": f"prompt {n}"}], "model": model, "response": f"{model} {n}"}
        for model in ("sft", "ppo") for n in range(4)
    ]  # fmt: skip
    run = make.make_finished_run(sqlite_store, RunKind.COMPARE, rows, make.make_project(sqlite_store))
    made = cli.make("comparison", "create", "Blind", "--runs", run.id)
    assert (made["models"], made["counts"]) == (["sft", "ppo"], {"tasks": 4})
    assert "nothing to compare yet" in cli("comparison", "show", "Blind").out
    with sqlite_store.read() as tx:
        tasks = get_tasks(tx, list_task_ids(tx, made["id"]))
    ann = make.make_person(sqlite_store)
    for task, ranks in zip(tasks, ([2, 1], [2, 1], [2, 1], [1, 1]), strict=True):
        make.make_ranking(sqlite_store, task, ann, ranks)
    (rate,) = cli.make("comparison", "show", "Blind")["rates"]["rates"]
    assert (rate["first"], rate["second"], rate["rate"], rate["n_prompts"]) == ("ppo", "sft", 0.875, 4)
    shown = cli("comparison", "show", made["id"]).out
    assert "ppo    sft      75.0%  25.0%  0.0%    87.5%" in shown
    assert "4 rankings, 0 without an acceptable response, 0 skips; 0 prompts" in shown


def test_a_wrong_comparison_is_refused_in_one_line(cli: Cli, sqlite_store: Store) -> None:
    run = make.make_finished_run(sqlite_store, RunKind.REWARD, [], make.make_project(sqlite_store))
    assert "a finished comparison run is needed" in cli.refuse("comparison", "create", "New", "--runs", run.id)
    assert "no project 'New'" in cli.refuse("comparison", "show", "New")
