"""Imports of real data that is not in the repository (see `factories.real_data` for where it is looked for)."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import factories as make
import pytest

from data.files.paths import Home
from data.labels.projects import project_counts
from data.labels.prompts import list_prompts
from data.labels.rankings import current_rankings
from data.labels.roles import OPERATOR
from data.labels.tasks import get_tasks
from data.store import Store
from labeling.files.imports import import_prompts, import_rankings
from labeling.review.agreement import project_agreement
from labeling.snapshot.export import export_snapshot
from labeling.snapshot.freeze import SnapshotConfig, freeze_snapshot, plan_snapshot


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


@pytest.mark.parametrize(
    "store", ["sqlite", pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.long])], indirect=True
)
def test_an_export_of_three_annotators_of_pandalm_comes_back_as_known(store: Store, home: Home, tmp_path: Path) -> None:
    """Its own project stays as it is, pair agreement and all; another one gets the same sides."""
    path, rows = tmp_path / "rows.jsonl", []
    for row in json.loads(make.real_data("pandalm", "testset-v1.json").read_text(encoding="utf-8"))[:150]:
        said = {"prompt": f"{row['instruction']}\n{row['input']}", "responses": [row["response1"], row["response2"]]}
        ranks = {0: [1, 1], 1: [1, 2], 2: [2, 1]}
        rows += [
            said | {"annotator": name, "ranks": ranks[int(row[name])]}
            for name in ("annotator1", "annotator2", "annotator3")
        ]
    path.write_text("\n".join(map(json.dumps, rows)))
    project, other = make.make_project(store), make.make_project(store)
    whole = [row for row in rows if all(text.strip() for text in row["responses"])]
    apart = {(row["prompt"].strip(), frozenset(row["responses"]), row["annotator"]) for row in whole}
    first = import_rankings(store, OPERATOR, project.id, path)
    assert (len(rows), len(whole), len(apart)) == (450, 441, 399)  # nine have an empty response, 42 say the same again
    assert (first.counts["rankings"], first.counts["known"], first.n_problems) == (399, 42, 9)
    agreed, config = project_agreement(store, project.id), SnapshotConfig(eval_share=0.3)
    frozen = freeze_snapshot(store, OPERATOR, home, project.id, config)
    export_snapshot(home, frozen, "answers", tmp_path / "out")
    for side in ("train", "eval"):
        for here, counted in ((project, "known"), (other, "rankings")):
            report = import_rankings(store, OPERATOR, here.id, tmp_path / "out" / f"{side}.jsonl")
            assert (report.counts[counted], report.n_problems) == (report.n_rows, 0)
    assert project_agreement(store, project.id) == agreed
    assert len(agreed.annotators) == len(project_agreement(store, other.id).annotators) == 3
    there = plan_snapshot(store, other.id, SnapshotConfig(eval_share=0.0, seed=1)).counts
    assert (there["pairs_train"], there["pairs_eval"]) == (frozen.counts["pairs_train"], frozen.counts["pairs_eval"])


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
