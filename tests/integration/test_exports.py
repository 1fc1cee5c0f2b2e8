"""Exports, loaded by the libraries that they are made for."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import factories as make
import pytest
from trl.data_utils import extract_prompt, is_conversational

from data.errors import Conflict, InvalidInput, NotFound
from data.files.paths import Home
from data.files.snapshots import GROUPS, PAIRS, read_parquet
from data.labels.prompts import list_prompts, prompt_id_of
from data.labels.rankings import current_rankings
from data.labels.roles import OPERATOR
from data.labels.tasks import add_task, get_task
from data.records import Detail, NewPrompt, NewResponse, Project, Snapshot, Split
from data.store import Store
from labeling.files.imports import import_rankings
from labeling.snapshot.export import COLUMN_NOTES, FORMATS, export_snapshot
from labeling.snapshot.freeze import SnapshotConfig, freeze_snapshot

PROMPT = "Say \u4f60\u597d \u0645\u0631\u062d\u0628\u0627 \U0001f600 \u202e caf\u00e9 \u2028 end"
BEST, MIDDLE, WORST = "best \u00e9\n\nHuman: no turn", "middle \u4f60", "worst \U0001f600"
Load = Callable[..., datasets.DatasetDict]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """What `datasets` makes of the files of an export."""
    datasets.disable_progress_bars()

    def read(folder: Path) -> datasets.DatasetDict:
        files = {path.stem: str(path) for path in folder.iterdir() if path.name != "manifest.json"}
        kind = "json" if all(name.endswith(".jsonl") for name in files.values()) else "parquet"
        return datasets.load_dataset(kind, data_files=files, cache_dir=str(tmp_path / "cache"))

    return read


@pytest.fixture
def frozen(sqlite_store: Store, home: Home) -> Snapshot:
    """Six prompts with a strict ranking, one of them held out; one with ties; one with two annotators."""
    project = make.make_project(sqlite_store, overlap=2)
    ann, bob = make.make_person(sqlite_store), make.make_person(sqlite_store)
    for number in range(6):
        side = Split.EVAL if number == 5 else Split.TRAIN
        task = make.make_task(sqlite_store, project, MIDDLE, BEST, WORST, prompt=f"{PROMPT} {number}", split=side)
        make.make_ranking(sqlite_store, task, ann, [2, 1, 3])
    make.make_ranking(sqlite_store, task, bob, [1, 2, 3])
    tied = make.make_task(sqlite_store, project, "t1", "t2", "t3", prompt="tied", split=Split.TRAIN)
    make.make_ranking(sqlite_store, tied, ann, [1, 1, 3])
    return freeze_snapshot(sqlite_store, OPERATOR, home, project.id, SnapshotConfig())


def exported(home: Home, frozen: Snapshot, format_name: str) -> tuple[Path, dict[str, Any]]:
    folder = home.exports / format_name
    return folder, export_snapshot(home, frozen, format_name, folder)


def freeze(store: Store, home: Home, project: Project) -> Snapshot:
    return freeze_snapshot(store, OPERATOR, home, project.id, SnapshotConfig(eval_share=0))


def pairs_in(frozen: Snapshot, home: Home, side: str) -> list[tuple[str, str, str]]:
    rows = read_parquet(home.snapshot_folder(frozen.id) / PAIRS)
    return [(row["messages"][-1]["content"], row["chosen"], row["rejected"]) for row in rows if row["split"] == side]


@pytest.mark.parametrize("format_name", ["trl-chat", "openrlhf"])
def test_conversational_pairs(home: Home, frozen: Snapshot, load: Load, format_name: str) -> None:
    folder, manifest = exported(home, frozen, format_name)
    sides = load(folder)
    for side in ("train", "eval"):
        rows = list(sides[side])
        assert is_conversational(rows[0])
        assert all([each["role"] for each in row["prompt"]] == ["user"] for row in rows)
        assert all(row[name][0]["role"] == "assistant" for row in rows for name in ("chosen", "rejected"))
        found = [tuple(row[name][-1]["content"] for name in ("prompt", "chosen", "rejected")) for row in rows]
        assert found == pairs_in(frozen, home, side)
        assert len(rows) == manifest["rows"][side] > 0


def test_conversational_pairs_make_an_implicit_prompt_and_back(home: Home, frozen: Snapshot, load: Load) -> None:
    """TRL itself finds the prompt again in prompt + response."""
    row = load(exported(home, frozen, "trl-chat")[0])["train"][0]
    whole = {side: row["prompt"] + row[side] for side in ("chosen", "rejected")}
    assert extract_prompt(whole) == {name: row[name] for name in ("prompt", "chosen", "rejected")}


def test_pairs_as_texts(home: Home, frozen: Snapshot, load: Load) -> None:
    rows = list(load(exported(home, frozen, "trl")[0])["train"])
    assert not is_conversational(rows[0])
    assert rows[0]["prompt"] == f"\n\nHuman: {PROMPT} 0\n\nAssistant:"
    assert (rows[0]["chosen"], rows[0]["rejected"]) == (f" {BEST}", f" {MIDDLE}")
    found = [
        (row["prompt"][len("\n\nHuman: ") : -len("\n\nAssistant:")], row["chosen"][1:], row["rejected"][1:])
        for row in rows
    ]
    assert found == pairs_in(frozen, home, "train")


def test_whole_rankings(home: Home, frozen: Snapshot, load: Load) -> None:
    rows = list(load(exported(home, frozen, "kwise")[0])["train"])
    assert is_conversational({"prompt": rows[0]["prompt"]})
    assert rows[0]["responses"] == [MIDDLE, BEST, WORST]
    assert rows[0]["ranks"] == [2, 1, 3]
    assert rows[-1]["ranks"] == [1, 1, 3]
    groups = list(read_parquet(home.snapshot_folder(frozen.id) / GROUPS))
    assert [row["ranking_id"] for row in rows] == [row["ranking_id"] for row in groups if row["split"] == "train"]


def test_unpaired_responses(home: Home, frozen: Snapshot, load: Load) -> None:
    folder, manifest = exported(home, frozen, "unpaired")
    rows = list(load(folder)["train"])
    assert is_conversational(rows[0])
    labels = Counter((row["completion"][0]["content"], row["label"]) for row in rows)
    assert labels == {(BEST, True): 5, (WORST, False): 5, ("t1", True): 1, ("t2", True): 1, ("t3", False): 1}
    assert manifest["left_out"] == {"responses between the first and the last rank": 5 + 2}


def test_what_was_called_acceptable_counts_before_the_rank(sqlite_store: Store, home: Home, load: Load) -> None:
    project, ann = make.make_project(sqlite_store), make.make_person(sqlite_store)
    task = make.make_task(sqlite_store, project, "a", "b", "c", "d", "e", prompt="p")
    said = Detail(acceptable=(None, True, False, None, None))
    make.make_ranking(sqlite_store, task, ann, [1, 2, 3, 4, 5], detail=said)
    folder, manifest = exported(home, freeze(sqlite_store, home, project), "unpaired")
    labels = {row["completion"][0]["content"]: row["label"] for row in load(folder)["train"]}
    assert labels == {"a": True, "b": True, "c": False, "e": False}
    assert manifest["left_out"] == {"responses between the first and the last rank": 1}


def test_what_was_said_beside_the_ranks_comes_back_too(sqlite_store: Store, home: Home, tmp_path: Path) -> None:
    """Export, import elsewhere, export: the same rows, but for ids and names."""
    first, ann = make.make_project(sqlite_store), make.make_person(sqlite_store)
    with sqlite_store.begin() as tx:
        prompt = NewPrompt(({"role": "user", "content": "p"},), facts="two is even")
        prompt_id = prompt_id_of(tx, first.id, prompt)
        made = add_task(tx, first.id, prompt_id, [NewResponse(text) for text in "abcd"], slots=1)
        task = get_task(tx, made.task_id)
    said = Detail((1, 3), (True, None, False, None), (("rude",), (), ("x", "y"), ()), (7, None, 1, 2), 4)
    make.make_ranking(sqlite_store, task, ann, [1, 3, 2, 3], detail=said, comment="because")
    plain = make.make_task(sqlite_store, first, "a", "b")
    make.make_ranking(sqlite_store, plain, ann, [1, 2], detail=Detail(acceptable=(None, None)))
    second, rows = make.make_project(sqlite_store), []
    for project, target in ((first, tmp_path / "1"), (second, tmp_path / "2")):
        export_snapshot(home, freeze(sqlite_store, home, project), "kwise", target)
        rows.append(list(read_parquet(target / "train.parquet")))
        if project is first:
            assert import_rankings(sqlite_store, OPERATOR, second.id, target / "train.parquet").n_problems == 0
    columns = FORMATS["kwise"].columns
    assert [{name: row[name] for name in columns} for row in rows[0]] == [
        {name: row[name] for name in columns} for row in rows[1]
    ]
    assert (rows[0][0]["facts"], rows[0][0]["comment"], rows[0][0]["unplaced"]) == ("two is even", "because", [1, 3])
    assert rows[0][0]["flags"] == [["rude"], [], ["x", "y"], []]
    with sqlite_store.read() as tx:
        assert [each.facts for each in list_prompts(tx, second.id)] == ["two is even", ""]
        assert next(each.detail for each, _ in current_rankings(tx, second.id)) == said
        fingerprints = [[each.fingerprint for each in list_prompts(tx, one.id)] for one in (first, second)]
    assert fingerprints[0] == fingerprints[1]


@pytest.mark.parametrize("format_name", [name for name in FORMATS if name not in ("kwise", "answers")])
def test_facts_are_in_no_export_that_models_learn_from(sqlite_store: Store, home: Home, format_name: str) -> None:
    project, ann = make.make_project(sqlite_store), make.make_person(sqlite_store)
    with sqlite_store.begin() as tx:
        prompt_id_of(tx, project.id, NewPrompt(({"role": "user", "content": "p"},), facts="SECRET"))
    task = make.make_task(sqlite_store, project, "a", "b", prompt="p")
    make.make_ranking(sqlite_store, task, ann, [1, 2], comment="SECRET")
    assert (task.facts, task.messages[-1]["content"]) == ("SECRET", "p")
    folder, _ = exported(home, freeze(sqlite_store, home, project), format_name)
    path = folder / f"train{FORMATS[format_name].suffix}"
    text = path.read_text(encoding="utf-8") if path.suffix == ".jsonl" else str(list(read_parquet(path)))
    assert "'p'" in text.replace('"', "'") or "Human: p" in text
    assert "SECRET" not in text


@pytest.mark.parametrize("format_name", FORMATS)
def test_rank_1_is_chosen_in_every_format(home: Home, frozen: Snapshot, load: Load, format_name: str) -> None:
    """The direction, by what people said and nothing else: BEST was ranked first, WORST last."""
    for row in load(exported(home, frozen, format_name)[0])["train"]:
        if "chosen" in row:
            chosen, rejected = ((row[side] if isinstance(row[side], str) else row[side][0]["content"]).strip()
                                for side in ("chosen", "rejected"))  # fmt: skip
            assert WORST not in chosen
            assert rejected != BEST
        elif "ranks" in row:
            assert row["responses"][row["ranks"].index(1)] in (BEST, "t1")
        else:
            assert row["label"] == (row["completion"][0]["content"] in (BEST, "t1", "t2"))


@pytest.mark.parametrize("format_name", FORMATS)
def test_the_manifest_says_what_it_is_and_checks_the_files(home: Home, frozen: Snapshot, format_name: str) -> None:
    folder, manifest = exported(home, frozen, format_name)
    assert json.loads((folder / "manifest.json").read_text(encoding="utf-8")) == manifest
    assert (manifest["format"], manifest["schema_version"]) == (format_name, 2)
    assert (manifest["statement"], manifest["split"]) == ("rank 1 is best", "by prompt")
    assert manifest["columns"] == COLUMN_NOTES[format_name]
    assert manifest["snapshot"]["content_hash"] == frozen.content_hash
    assert manifest["snapshot"]["counts"] == frozen.counts
    assert set(manifest["files"]) == {path.name for path in folder.iterdir()} - {"manifest.json"}
    for name, facts in manifest["files"].items():
        assert facts["sha256"] == hashlib.sha256((folder / name).read_bytes()).hexdigest()
    example = manifest["examples"][0]
    assert (example["best (rank 1)"], example["worst (last rank)"]) == (BEST, WORST)
    if "chosen" in FORMATS[format_name].columns:
        assert sum(manifest["rows"].values()) == frozen.counts["pairs"]
    if format_name == "kwise":
        assert sum(manifest["rows"].values()) == frozen.counts["rankings_used"]


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_side_without_rows_has_no_file(sqlite_store: Store, home: Home, load: Load, format_name: str) -> None:
    """`datasets` can't load an empty file, and would refuse the other side with it."""
    frozen = make.make_snapshot(sqlite_store, home, n_prompts=2, eval_share=0.0)
    folder, manifest = exported(home, frozen, format_name)
    assert manifest["rows"]["eval"] == 0
    assert list(load(folder)) == ["train"]
    assert load(folder)["train"].num_rows == manifest["rows"]["train"] > 0


def test_what_is_exported_as_whole_rankings_comes_back_as_it_was(
    sqlite_store: Store, home: Home, frozen: Snapshot
) -> None:
    """Export, import into another project, freeze: the same judgements, by the same number of people."""
    folder, _ = exported(home, frozen, "kwise")
    project = make.make_project(sqlite_store)
    for side in ("train", "eval"):
        report = import_rankings(sqlite_store, OPERATOR, project.id, folder / f"{side}.parquet")
        assert report.n_problems == 0
    again = freeze_snapshot(sqlite_store, OPERATOR, home, project.id, SnapshotConfig())
    same = ("rankings_used", "pairs", "ties", "prompts", "annotators", "responses_per_ranking")
    assert {name: again.counts[name] for name in same} == {name: frozen.counts[name] for name in same}
    texts = [
        sorted((row["messages"][-1]["content"], tuple(row["responses"]), tuple(row["ranks"])) for row in read_parquet(
            home.snapshot_folder(each.id) / GROUPS)) for each in (frozen, again)
    ]  # fmt: skip
    assert texts[0] == texts[1]


def test_a_folder_that_holds_something_is_not_touched(home: Home, frozen: Snapshot, tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for target in (full, tmp_path / "file"):
        with pytest.raises(Conflict, match=f"{target} is not empty; name a new folder"):
            export_snapshot(home, frozen, "trl", target)
    assert [path.name for path in full.iterdir()] == ["mine.txt"]
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".part")]


def test_an_empty_folder_is_filled_the_working_directory_too(
    home: Home, frozen: Snapshot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    export_snapshot(home, frozen, "trl", Path())
    assert sorted(path.name for path in empty.iterdir()) == ["eval.parquet", "manifest.json", "train.parquet"]
    assert Path("manifest.json").is_file()


def test_what_can_not_be_exported_is_refused_and_leaves_nothing(home: Home, frozen: Snapshot, tmp_path: Path) -> None:
    with pytest.raises(
        InvalidInput, match="format 'csv': one of trl, trl-chat, kwise, unpaired, openrlhf, answers is needed"
    ):
        export_snapshot(home, frozen, "csv", tmp_path / "out")
    with pytest.raises(InvalidInput, match=r"/proc/out can't be written"):
        export_snapshot(home, frozen, "trl", Path("/proc/out"))
    (home.snapshot_folder(frozen.id) / PAIRS).rename(tmp_path / "moved")
    with pytest.raises(NotFound, match=r"pairs.parquet is missing"):
        export_snapshot(home, frozen, "trl", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".part")]


def test_exports_say_how_far_they_are(home: Home, frozen: Snapshot, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    export_snapshot(home, frozen, "trl", tmp_path / "out", on_row=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (frozen.counts["pairs"], frozen.counts["pairs"])
