"""What becomes of each field of an imported file, and of a file of which nothing can be used."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import factories as make
import pytest
from cli_runner import Cli

from data.files.paths import Home
from data.labels.prompts import list_prompts
from data.labels.roles import OPERATOR
from data.store import Store
from labeling.files.field_use import IGNORED, META, REFUSED
from labeling.files.import_report import ImportReport
from labeling.files.imports import import_prompts, import_rankings, import_responses

FOREIGN = Path(__file__).resolve().parents[2].parent / "shared" / "inputs" / "foreign"
SAMPLES = sorted(path.name for path in FOREIGN.glob("*.json*"))
FORMATS = {"ls_": "label-studio", "argilla_": "argilla", "fastchat": "fastchat", "trl_": "trl", "uf_": "trl"}


def written(folder: Path, rows: list[Any], name: str = "rows.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def uses(report: ImportReport) -> dict[str, tuple[str, int]]:
    found = report.fields.as_rows()
    assert len({each["field"] for each in found if each["use"] != REFUSED}) == len(
        [each for each in found if each["use"] != REFUSED]
    ), "a field of these rows has one use"
    return {each["field"]: (each["use"], each["rows"]) for each in found if each["use"] != REFUSED}


ALPACA = [
    {"instruction": "Translate.", "input": "gato", "output": "cat"},
    {"instruction": "Translate.", "input": "perro", "output": "dog"},
    {"instruction": "Name a prime.", "input": "", "output": "7"},
    {"instruction": "", "input": "Only this.", "output": "", "source": "us"},
]


def test_alpaca_rows_keep_their_input(store: Store, tmp_path: Path) -> None:
    """On the release before, `input` was dropped, and rows that differ only there became one prompt."""
    project, path = make.make_project(store), written(tmp_path, ALPACA)
    report = import_prompts(store, OPERATOR, project.id, path)
    assert (report.counts["new"], report.counts["known"], report.n_problems) == (4, 0, 0)
    with store.read() as tx:
        kept = {each.messages[0]["content"]: each.meta for each in list_prompts(tx, project.id)}
    assert kept == {
        "Translate.\n\ngato": {"output": "cat"}, "Translate.\n\nperro": {"output": "dog"},
        "Name a prime.": {"input": "", "output": "7"}, "Only this.": {"output": "", "source": "us"},
    }  # fmt: skip
    assert uses(report) == {
        "instruction": ("the prompt", 3), "input": ("the prompt, behind the instruction", 3), "output": (META, 3),
        "source": (META, 1),
    }  # fmt: skip
    again = import_prompts(store, OPERATOR, project.id, path)
    assert (again.counts["new"], again.counts["known"]) == (0, 4)


def test_an_input_that_is_no_text_is_refused(sqlite_store: Store, tmp_path: Path) -> None:
    project = make.make_project(sqlite_store)
    report = import_prompts(sqlite_store, OPERATOR, project.id, written(tmp_path, [{"instruction": "a", "input": [1]}]))
    assert [each.message for each in report.problems] == [
        "'instruction' and 'input' are joined to one prompt, so both have to be texts"
    ]
    found = sorted(report.fields.as_rows(), key=lambda each: str(each["field"]))
    assert found == [{"field": name, "use": REFUSED, "rows": 1} for name in ("input", "instruction")]


def test_alpaca_rows_with_responses_and_ranks(sqlite_store: Store, tmp_path: Path) -> None:
    rows = [{"instruction": "Add.", "input": f"{n} + 1", "responses": ["a", "b"], "ranks": [1, 2]} for n in range(2)]
    project = make.make_project(sqlite_store)
    report = import_rankings(sqlite_store, OPERATOR, project.id, written(tmp_path, rows))
    assert (report.counts["rankings"], report.n_problems) == (2, 0)
    other = make.make_project(sqlite_store)
    report = import_responses(sqlite_store, OPERATOR, other.id, written(tmp_path, rows))
    assert report.counts["tasks"] == 2
    assert uses(report)["ranks"] == (META, 2)


def test_what_a_format_does_not_read_is_kept_under_meta_or_named(sqlite_store: Store, tmp_path: Path) -> None:
    battle = {
        "question_id": 81, "model_a": "m1", "model_b": "m2", "winner": "model_a", "judge": "j", "tstamp": 5.0,
        "conversation_a": [{"role": "user", "content": "q", "num_tokens": 3}, {"role": "assistant", "content": "a"}],
        "conversation_b": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "b"}], "anony": None,
    }  # fmt: skip
    project = make.make_project(sqlite_store)
    report = import_rankings(sqlite_store, OPERATOR, project.id, written(tmp_path, [battle]), format_name="fastchat")
    with sqlite_store.read() as tx:
        assert list_prompts(tx, project.id)[0].meta == {"question_id": 81, "tstamp": 5.0}
    found = uses(report)
    assert {name: use for name, (use, _) in found.items() if use in (META, IGNORED)} == {
        "question_id": META, "tstamp": META, "conversation_a[].num_tokens": IGNORED,
    }  # fmt: skip
    assert found["winner"] == ("the ranks", 1)
    assert "anony" not in found
    again = battle | {"judge": "k", "tstamp": 6.0}
    report = import_rankings(sqlite_store, OPERATOR, project.id, written(tmp_path, [again]), format_name="fastchat")
    assert (report.counts["rankings"], report.counts["meta_kept"]) == (1, 1)  # the prompt keeps 5.0, and that is said


def test_fields_of_a_response_go_with_it(sqlite_store: Store, tmp_path: Path) -> None:
    row = {"prompt": "q", "responses": [{"text": "a", "model": "m", "seed": 3}, {"text": "b", "meta": {"x": 1}}]}
    project = make.make_project(sqlite_store)
    report = import_responses(sqlite_store, OPERATOR, project.id, written(tmp_path, [row]))
    assert uses(report) == {
        "prompt": ("the prompt", 1), "responses[].text": ("the responses", 1),
        "responses[].model": ("the model of a response", 1), "responses[].seed": (META, 1),
        "responses[].meta": (META, 1),
    }  # fmt: skip


@pytest.mark.parametrize("name", SAMPLES or [""])
def test_every_field_and_every_row_of_a_foreign_file_is_accounted_for(sqlite_store: Store, name: str) -> None:
    """A field that holds something in n rows is counted n times in all; a row goes in, is known, refused, or without a
    ranking."""
    if not name:
        make.skip("the samples of other tools' files are not here")
    format_name = next((each for start, each in FORMATS.items() if name.startswith(start)), "native")
    for what in ("prompts", "rankings"):
        project = make.make_project(sqlite_store)
        do: Callable[..., ImportReport] = import_prompts if what == "prompts" else import_rankings
        words = {} if what == "prompts" else {"format_name": format_name}
        report = do(sqlite_store, OPERATOR, project.id, FOREIGN / name, **words)
        rows = content(FOREIGN / name)
        assert report.n_rows == len(rows)
        filled = Counter(field for row in rows for field, value in row.items() if value not in (None, "", [], {}))
        counted = Counter[str]()
        inner = Counter[str]()
        for each in report.fields.as_rows():
            if each["field"] in filled:
                counted[each["field"]] += each["rows"]
            else:
                top = next(field for field in filled if each["field"].startswith((f"{field}.", f"{field}[].")))
                inner[top] = max(inner[top], each["rows"])
        assert {field for field in filled if not counted[field] and not inner[field]} == set()
        assert all(counted[field] <= n for field, n in filled.items())
        some = report.n_in + report.counts["known"]
        assert some + report.n_problems + report.counts["rows_without_ranking"] >= len(rows)
        assert (report.why_nothing is None) == bool(some)


def content(path: Path) -> list[dict[str, Any]]:
    text = path.read_text(encoding="utf-8")
    return json.loads(text) if path.suffix == ".json" else [json.loads(line) for line in text.splitlines() if line]


@pytest.mark.parametrize(
    ("format_name", "row", "words"),
    [
        ("argilla", {"fields": {"prompt": "q"}, "responses": {"rank": []}}, "1 without a ranking in this format"),
        ("label-studio", {"data": {"prompt": "q"}, "annotations": []}, "1 without a ranking in this format"),
        ("native", {"prompt": "q", "responses": ["a"], "ranks": [1]}, "1 refused (line 1: 1 distinct responses"),
    ],
)
def test_a_file_of_which_nothing_went_in_is_no_success(
    sqlite_store: Store, home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str], format_name: str,
    row: dict[str, Any], words: str,
) -> None:  # fmt: skip
    """On the release before: "0 refused" and exit status 0."""
    project, path = make.make_project(sqlite_store), written(tmp_path, [row])
    for extra in ((), ("--dry-run",)):
        done = Cli(home.root, capsys)(
            "import", "rankings", path, "--project", project.id, "--format", format_name, *extra
        )
        assert done.status == 2, done
        assert f"rows.jsonl: nothing in it can be used; 1 rows, {words}" in done.err


def test_a_file_that_is_known_is_a_success_and_says_so(
    sqlite_store: Store, home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project, path = make.make_project(sqlite_store), written(tmp_path, [{"prompt": "q"}])
    cli = Cli(home.root, capsys)
    assert "was known already" not in cli("import", "prompts", path, "--project", project.id).out
    again = cli("import", "prompts", path, "--project", project.id)
    assert (again.status, "everything in rows.jsonl that can be used was known already" in again.out) == (0, True)
    assert "prompt  the prompt" in again.out
