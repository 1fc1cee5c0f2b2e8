"""Agreement of a project, of real annotators against an independent script, and on the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import factories as make
import pytest
from cli_runner import Cli

from data.files.paths import Home
from data.records import RankingStatus
from data.store import Store
from labeling.review.agreement import Answer, agreement, project_agreement

SCRIPT = Path(__file__).resolve().parents[1] / "independent" / "pandalm_agreement.py"
RANKS = {0: (1, 1), 1: (1, 2), 2: (2, 1)}


def test_three_annotators_of_pandalm_as_an_independent_script_has_them() -> None:
    path = make.real_data("pandalm", "testset-v1.json")
    rows = json.loads(path.read_text(encoding="utf-8"))
    said = subprocess.run([sys.executable, str(SCRIPT), str(path)], capture_output=True, text=True, check=True)
    wanted = json.loads(said.stdout)
    assert len(rows) == wanted["n_pairs"] / 3 > 900
    found = agreement(
        Answer(row["instruction"] + row["input"], str(row["idx"]), str(person),
               (str(row["response1"]), str(row["response2"])), RANKS[row[f"annotator{person}"]])
        for row in rows for person in (1, 2, 3)
    )  # fmt: skip
    for name in ("pairs_with_ties", "pairs_without_ties", "alpha", "tau", "human_accuracy"):
        figure = getattr(found, name)
        assert figure.value == pytest.approx(wanted[name], abs=1e-12), name
        assert figure.low < figure.value < figure.high
    assert (found.pairs_with_ties.n, found.tau.n) == (wanted["n_pairs"], wanted["n_strict"])
    assert found.human_accuracy.n == wanted["n_guesses"]


def test_a_project_s_agreement_counts_every_kind_of_answer(store: Store) -> None:
    project = make.make_project(store, overlap=2)
    ann, bob = make.make_person(store, name="Ann"), make.make_person(store, name="Bob")
    for ranks in ([1, 2, 3], [1, 3, 2]):
        task = make.make_task(store, project)
        make.make_ranking(store, task, ann, [1, 2, 3])
        make.make_ranking(store, task, bob, ranks)
    other = make.make_task(store, project)
    make.make_ranking(store, other, ann, status=RankingStatus.UNACCEPTABLE)
    make.make_ranking(store, other, bob)
    found = project_agreement(store, project.id)
    assert (found.n_units, found.n_tasks, found.n_skipped, found.n_unacceptable) == (6, 2, 1, 1)
    assert found.pairs_with_ties.value == pytest.approx(5 / 6)
    assert {(each.name, each.agreement, each.n) for each in found.annotators} == {("Ann", 5 / 6, 6), ("Bob", 5 / 6, 6)}
    assert [each.name for each in found.worst_tasks] == [task.id]
    assert found.prompts == {task.id: task.messages[-1]["content"]}


def test_the_word_agreement(sqlite_store: Store, home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    cli = Cli(home.root, capsys)
    words = ("--store", sqlite_store.url)
    project = make.make_ranked_project(sqlite_store)
    said = cli("agreement", project.name, *words)
    assert said.status == 0
    assert "pair agreement, ties included: undefined (no interval, n = 0 on 0 prompts)" in said.out
    assert cli.make("agreement", project.name, *words)["pairs_with_ties"] == {
        "value": None, "low": None, "high": None, "n": 0, "n_prompts": 0,
    }  # fmt: skip
