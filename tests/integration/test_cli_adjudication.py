"""Adjudication on the command line."""

from __future__ import annotations

import factories as make
import pytest
from cli_runner import Cli

from data.files.paths import Home
from data.labels.adjudications import adjudication_of
from data.records import RankingStatus, Role
from data.store import Store


@pytest.fixture
def cli(home: Home, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(home.root, capsys)


def test_from_the_queue_to_a_decision(cli: Cli, sqlite_store: Store) -> None:
    project = make.make_project(sqlite_store, overlap=2)
    task = make.make_task(sqlite_store, project, "first text", "second text", prompt="which one?")
    ann, bob = make.make_person(sqlite_store), make.make_person(sqlite_store)
    make.make_person(sqlite_store, Role.RESEARCHER, "Ada")
    one = make.make_ranking(sqlite_store, task, ann, [1, 2], comment="shorter")
    make.make_ranking(sqlite_store, task, bob, [2, 1])
    assert (
        f"{task.id}  0.00       1            2         0             which one?"
        in cli("adjudicate", "list", project.name).out
    )
    split = make.make_task(sqlite_store, project, "a", "b", prompt="any good?")
    make.make_ranking(sqlite_store, split, ann, [1, 2])
    make.make_ranking(sqlite_store, split, bob, status=RankingStatus.UNACCEPTABLE)
    line = f"{split.id}  -          0            1         1             any good?"
    assert line in cli("adjudicate", "list", project.name).out
    assert "no response is acceptable: 1 of 2 say so" in cli("adjudicate", "show", project.name, split.id).out
    shown = cli("adjudicate", "show", project.name, task.id).out
    assert f"ranking {one.id}: A > B: shorter\n" in shown
    assert "response B:\nsecond text\n" in shown
    words = ("adjudicate", "decide", project.name, task.id, "--reason", "it is true", "--by")
    refusal = f"{ann.name} is annotator; this needs the role researcher"
    assert refusal in cli.refuse(*words, ann.name, "--like", one.id)
    assert "no person 'Eve'" in cli.refuse(*words, "Eve", "--like", one.id)
    assert "'1,x': one number for each response" in cli.refuse(*words, "Ada", "--ranks", "1,x")
    assert "not allowed with argument" in cli.refuse(*words, "Ada", "--ranks", "1,2", "--like", one.id)
    made = cli.make(*words, "Ada", "--like", one.id)
    with sqlite_store.read() as tx:
        stored = adjudication_of(tx, task.id)
    assert stored is not None
    assert (made["id"], stored.ranks, stored.chosen_id, stored.reason) == (stored.id, (1, 2), one.id, "it is true")
    cli.make("adjudicate", "decide", project.name, split.id, "--reason", "none", "--by", "Ada", "--ranks", "1,1")
    assert "no task waits: none has an agreement below 0.5" in cli("adjudicate", "list", project.name).out
    again = cli(*words, "Ada", "--ranks", "1,1").out
    assert again.startswith("decided: A = B (id ")
    assert "decided: A = B, because: it is true" in cli("adjudicate", "show", project.name, task.id).out
