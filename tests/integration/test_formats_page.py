"""docs/formats.md as it stands: every example goes in as it says, and comes out as it says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import factories as make
import pytest

from data.files.language_texts import LanguageText, read_texts
from data.files.paths import Home
from data.files.rows import SUFFIXES
from data.files.snapshots import GROUP_COLUMNS, OTHER_COLUMNS, PAIR_COLUMNS, read_parquet
from data.labels.roles import OPERATOR
from data.runs.frozen_prompts import PROMPT_COLUMNS
from data.store import Store
from labeling.files.imports import import_prompts, import_rankings, import_responses
from labeling.files.readers import READERS
from labeling.snapshot.export import FORMATS, export_snapshot
from labeling.snapshot.freeze import SnapshotConfig, freeze_snapshot

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")


class Example(NamedTuple):
    suffix: str
    words: list[str]
    text: str


EXAMPLES = [
    Example(head.split()[0], head.split()[1:], text)
    for head, text in re.findall(r"^```(.+?)\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
]
IMPORTS = [each for each in EXAMPLES if each.words[0] not in ("export", "texts")]
TEXTS = [each for each in EXAMPLES if each.words[0] == "texts"]
EXPORTS = [each for each in EXAMPLES if each.words[0] == "export"]


def bring_in(store: Store, project_id: str, example: Example, folder: Path) -> dict[str, int]:
    path = folder / f"example.{example.suffix}"
    path.write_text(example.text, encoding="utf-8")
    kind = example.words[0]
    if kind == "rankings":
        report = import_rankings(store, OPERATOR, project_id, path, format_name=example.words[1])
    else:
        report = {"prompts": import_prompts, "responses": import_responses}[kind](store, OPERATOR, project_id, path)
    assert report.problems == []
    return {name: number for name, number in report.counts.items() if number}


@pytest.mark.parametrize("example", IMPORTS, ids=lambda each: "-".join(each.words[:2]))
def test_an_example_goes_in_as_the_page_says(sqlite_store: Store, tmp_path: Path, example: Example) -> None:
    said = {name: int(number) for word in example.words if "=" in word for name, number in [word.split("=")]}
    assert said
    assert bring_in(sqlite_store, make.make_project(sqlite_store).id, example, tmp_path) == said


def test_texts_for_ptx_are_read_as_the_page_says(tmp_path: Path) -> None:
    (example,) = TEXTS
    (tmp_path / "texts.jsonl").write_text(example.text, encoding="utf-8")
    found = [each for each in read_texts(tmp_path / "texts.jsonl") if isinstance(each, LanguageText)]
    plain = sum(each.messages is None for each in found)
    assert example.words[1:] == [f"plain={plain}", f"responses={len(found) - plain}"]
    assert len(found) == len(example.text.splitlines())


@pytest.mark.parametrize("example", EXPORTS, ids=lambda each: each.words[1])
def test_an_example_comes_out_as_the_page_says(
    sqlite_store: Store, home: Home, tmp_path: Path, example: Example
) -> None:
    project = make.make_project(sqlite_store)
    bring_in(sqlite_store, project.id, next(each for each in IMPORTS if "native" in each.words), tmp_path)
    frozen = freeze_snapshot(sqlite_store, OPERATOR, home, project.id, SnapshotConfig(eval_share=0))
    name = example.words[1]
    export_snapshot(home, frozen, name, tmp_path / "out")
    path = tmp_path / "out" / f"train{FORMATS[name].suffix}"
    rows: list[dict[str, Any]] = (
        [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        if path.suffix == ".jsonl"
        else list(read_parquet(path))
    )
    first = {column: value for column, value in rows[0].items() if column in FORMATS[name].columns}
    wanted = json.loads(example.text)
    if wanted.get("annotator") == "~":  # a pseudonym, another one in every project
        wanted["annotator"] = first["annotator"]
    assert first == wanted
    assert set(rows[0]) - set(first) == set(ids_said_of(name))


def ids_said_of(format_name: str) -> list[str]:
    table = PAGE.split("columns of ids and weights |")[1].split("The manifest")[0]
    cells = [line.split("|") for line in table.splitlines() if line.startswith("| `")]
    return next(re.findall(r"`(\w+)`", row[2]) for row in cells if f"`{format_name}`" in row[1])


def test_every_kind_of_file_and_every_format_has_its_place_on_the_page() -> None:
    assert all(f"`{suffix}`" in PAGE for suffix in SUFFIXES)
    assert {each.words[1] for each in IMPORTS if each.words[0] == "rankings"} == set(READERS)
    assert {each.words[1] for each in EXPORTS} == set(FORMATS)


def test_the_columns_of_a_snapshot_and_the_keys_of_a_manifest_are_the_real_ones(
    sqlite_store: Store, home: Home, tmp_path: Path
) -> None:
    for name, columns in (
        ("groups.parquet", GROUP_COLUMNS),
        ("pairs.parquet", PAIR_COLUMNS),
        ("prompts.parquet", PROMPT_COLUMNS),
    ):
        line = next(line for line in PAGE.splitlines() if line.startswith(f"| `{name}`"))
        assert re.findall(r"`(\w+)`", line.split("|")[2]) == columns.names
    line = next(line for line in PAGE.splitlines() if line.startswith("| `others.parquet`"))
    assert re.findall(r"`(\w+)`", line)[-4:] == OTHER_COLUMNS.names[-4:]
    assert OTHER_COLUMNS.names[:-4] == GROUP_COLUMNS.names
    manifest = export_snapshot(home, make.make_snapshot(sqlite_store, home), "trl", tmp_path / "out")
    table = PAGE.split("The manifest:")[1]
    keys = [
        key
        for line in table.splitlines()
        if line.startswith("| `")
        for key in re.findall(r"`(\w+)`", line.split("|")[1])
    ]
    assert sorted(keys) == sorted(manifest)
