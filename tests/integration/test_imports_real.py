"""Imports of real data that is not in the repository (see `factories.real_data` for where it is looked for)."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path

import factories as make

from data.projects import project_counts
from data.prompts import list_prompts
from data.rankings import current_rankings
from data.roles import OPERATOR
from data.store import Store
from data.tasks import get_tasks
from labeling.imports import import_prompts, import_rankings
from labeling.snapshots import SnapshotConfig, plan_snapshot


def test_175_seed_tasks_of_self_instruct(store: Store) -> None:
    project, path = make.make_project(store), make.real_data("self-instruct", "seed_tasks.jsonl")
    rehearsed = import_prompts(store, OPERATOR, project.id, path, dry_run=True)
    report = import_prompts(store, OPERATOR, project.id, path)
    assert rehearsed.counts == report.counts == Counter(new=175, known=0)
    assert (report.n_rows, report.n_problems) == (175, 0)
    assert import_prompts(store, OPERATOR, project.id, path).counts == Counter(new=0, known=175)
    with store.read() as tx:
        first = list_prompts(tx, project.id)[0]
    assert first.messages[0]["content"].startswith("Is there anything I can eat for a breakfast")
    assert set(first.meta) == {"name", "instances", "is_classification"}


def test_180_prompts_of_koala_the_longest_included(store: Store) -> None:
    project = make.make_project(store)
    report = import_prompts(store, OPERATOR, project.id, make.real_data("koala", "koala_test_set.jsonl"))
    assert (report.counts["new"], report.n_problems) == (180, 0)
    with store.read() as tx:
        lengths = [len(each.messages[0]["content"]) for each in list_prompts(tx, project.id, limit=200)]
    assert max(lengths) == 18_598


def test_xstest_prompts_of_a_csv(sqlite_store: Store) -> None:
    project = make.make_project(sqlite_store)
    report = import_prompts(sqlite_store, OPERATOR, project.id, make.real_data("xstest", "xstest_prompts.csv"))
    assert (report.n_rows, report.counts["new"] + report.counts["known"], report.n_problems) == (450, 450, 0)


def test_ranked_groups_of_open_assistant(store: Store) -> None:
    """212 ranked groups with K = 2 to 9, which make 754 pairs."""
    project, path = make.make_project(store), make.real_data("oasst-en-trees", "en_100_tree.jsonl")
    report = import_rankings(store, OPERATOR, project.id, path, format_name="oasst")
    assert (report.counts["rankings"], report.counts["doubles"], report.n_problems) == (212, 0, 0)
    with store.read() as tx:
        found = [ranking for ranking, _ in current_rankings(tx, project.id)]
        tasks = get_tasks(tx, [each.task_id for each in found])
    assert Counter(len(task.responses) for task in tasks) == {2: 57, 3: 117, 4: 27, 5: 3, 6: 6, 8: 1, 9: 1}
    assert all(task.messages[-1]["role"] == "user" for task in tasks)
    counts = plan_snapshot(store, project.id, SnapshotConfig()).counts
    assert (counts["rankings_used"], counts["pairs"], counts["ties"]) == (212, 754, 0)
    assert 57 * 1 + 117 * 3 + 27 * 6 + 3 * 10 + 6 * 15 + 28 + 36 == 754


def test_pairs_of_hh(sqlite_store: Store, tmp_path: Path) -> None:
    packed = make.real_data("hh-rlhf-harmless-test", "test.jsonl.gz")
    path = tmp_path / "test.jsonl"
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    lines = path.read_text().splitlines()[:300]
    path.write_text("\n".join(lines))
    project = make.make_project(sqlite_store)
    report = import_rankings(sqlite_store, OPERATOR, project.id, path, format_name="hh")
    assert report.counts["rankings"] + report.counts["known"] + report.n_problems == 300
    assert [problem.line for problem in report.problems] == [87]  # its two transcripts differ in an earlier turn
    with sqlite_store.read() as tx:
        assert project_counts(tx, project.id)["rankings"] == report.counts["rankings"]
