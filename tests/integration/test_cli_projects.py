"""From nothing to an export on the command line: `project`, `import`, `snapshot`, `export`, and their bad input."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from cli_runner import Cli

from data.files.snapshots import read_parquet
from labeling.snapshot.export import FORMATS


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(tmp_path / "home", capsys)


@pytest.fixture
def project(cli: Cli) -> dict[str, Any]:
    made: dict[str, Any] = cli.make("project", "create", "Trial", "--k", "3")
    return made


def write_rows(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def rankings(tmp_path: Path, n: int = 8) -> Path:
    rows = [
        {"prompt": f"question {number}", "responses": ["good", "fair", "poor"], "ranks": [1, 2, 3], "annotator": "a1"}
        for number in range(n)
    ]
    return write_rows(tmp_path / "rankings.jsonl", rows)


def test_a_project_is_made_listed_and_shown(cli: Cli, tmp_path: Path) -> None:
    guidelines = tmp_path / "guidelines.md"
    guidelines.write_text("Prefer the shorter one. Größe zählt nicht.", encoding="utf-8")
    made = cli.make("project", "create", "Café", "--k", "5", "--overlap", "2", "--guidelines", guidelines)
    assert (made["name"], made["k"], made["overlap"]) == ("Café", 5, 2)
    assert made["guidelines"] == "Prefer the shorter one. Größe zählt nicht."
    (listed,) = cli.make("project", "list")
    assert listed["id"] == made["id"]
    assert listed["counts"]["prompts"] == 0
    assert cli.make("project", "show", "Café")["id"] == made["id"]
    assert cli.make("project", "show", made["id"])["name"] == "Café"
    assert "Prefer the shorter one" in cli("project", "show", "Café").out


def test_a_list_of_nothing_says_what_to_do(cli: Cli) -> None:
    assert cli.make("project", "list") == []
    assert "rankloop project create" in cli("project", "list").out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["create", "One", "--k", "1"], "k = 1: a ranking needs 2 to 12 responses"),
        (["create", "One", "--k", "four"], "argument --k: invalid int value: 'four'"),
        (["create", " "], "1 to 80 printable characters"),
        (["create", "Trial"], "'Trial' exists already; choose another name"),
        (["create", "One", "--guidelines", "nowhere.md"], "nowhere.md: there is no such file"),
        (["show", "Tria"], "no project 'Tria'; there are: 'Trial'"),
    ],
)
@pytest.mark.usefixtures("project")
def test_a_wrong_project_is_refused_in_one_line(cli: Cli, words: list[str], expected: str) -> None:
    assert expected in cli.refuse("project", *words)


def test_prompts_come_in_once(cli: Cli, project: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "prompts.csv"
    file.write_text("task,note\nWrite a poem,x\nAdd 2 and 3,y\n", encoding="utf-8")
    words = ("import", "prompts", file, "--project", "Trial", "--prompt-field", "task")
    dry = cli.make(*words, "--dry-run")
    assert (dry["dry_run"], dry["new"]) == (True, 2)
    assert cli.make("project", "show", "Trial")["counts"]["prompts"] == 0
    done = cli.make(*words)
    assert (done["project_id"], done["new"], done["refused"]) == (project["id"], 2, 0)
    again = cli.make(*words)
    assert (again["new"], again["known"]) == (0, 2)


@pytest.mark.usefixtures("project")
def test_one_broken_line_in_ten_thousand_costs_no_other(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "many.jsonl"
    lines = [json.dumps({"prompt": f"question {number}"}) for number in range(1, 10_001)]
    lines[6_542] = '{"prompt": "broken'
    file.write_text("\n".join(lines), encoding="utf-8")
    report = cli.make("import", "prompts", file, "--project", "Trial")
    assert (report["rows"], report["new"], report["refused"]) == (10_000, 9_999, 1)
    (problem,) = report["problems"]
    assert problem["line"] == 6_543
    assert problem["message"].startswith("not JSON: ")
    assert cli.make("project", "show", "Trial")["counts"]["prompts"] == 9_999


@pytest.mark.usefixtures("project")
def test_a_prompt_without_text_is_named_and_the_rest_goes_in(cli: Cli, tmp_path: Path) -> None:
    file = write_rows(tmp_path / "p.jsonl", [{"prompt": "one"}, {"prompt": "  "}, {"note": "no prompt"}])
    said = cli("import", "prompts", file, "--project", "Trial")
    assert said.status == 0
    assert "1 new" in said.out
    assert "line 2: the prompt is empty" in said.out
    assert "line 3: no field of" in said.out


@pytest.mark.usefixtures("project")
def test_a_file_of_which_nothing_can_be_used_is_wrong_input(cli: Cli, tmp_path: Path) -> None:
    file = write_rows(tmp_path / "p.jsonl", [{"prompt": ""}, {"prompt": " "}])
    said = cli("import", "prompts", file, "--project", "Trial")
    assert said.status == 2
    assert said.err == "rankloop: p.jsonl: nothing in it can be used; 2 rows, 2 refused (line 1: the prompt is empty)\n"
    as_json = cli("import", "prompts", file, "--project", "Trial", "--json")
    assert (as_json.status, as_json.document["refused"]) == (2, 2)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("empty.jsonl", b"", "empty.jsonl: the file is empty"),
        ("blank.jsonl", b"\n\n", "blank.jsonl: the file has no rows"),
        ("wide.jsonl", '{"prompt": "x"}'.encode("utf-16"), "wide.jsonl: the file is UTF-16; save it as UTF-8"),
        ("latin.jsonl", '{"prompt": "café"}'.encode("latin-1"), "line 1: the line is not UTF-8"),
        ("latin.json", '[{"prompt": "café"}]'.encode("latin-1"), "byte 0xe9 is not UTF-8 (perhaps Latin-1"),
        ("table.xlsx", b"PK", "unknown kind of file; one of .jsonl"),
        ("fake.parquet", b"no parquet", "fake.parquet: not a Parquet file"),
    ],
)
@pytest.mark.usefixtures("project")
def test_a_file_that_can_not_be_read_is_refused(
    cli: Cli, tmp_path: Path, name: str, content: bytes, expected: str
) -> None:
    (tmp_path / name).write_bytes(content)
    said = cli("import", "prompts", tmp_path / name, "--project", "Trial")
    assert said.status == 2
    assert expected in said.err
    assert len(said.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["prompts", "FILE", "--project", "Trail"], "no project 'Trail'; there are: 'Trial'"),
        (["prompts", "nowhere.jsonl", "--project", "Trial"], "nowhere.jsonl: there is no such file"),
        (["rankings", "FILE", "--project", "Trial", "--format", "excel"], "format 'excel': one of native, trl"),
        (["prompts", "FILE", "--project", "Trial", "--format", "trl"], "are read for rankings, not prompts"),
        (["responses", "FILE", "--project", "Trial", "--prompt-field", "x"], "--prompt-field is for prompts"),
        (["labels", "FILE", "--project", "Trial"], "invalid choice: 'labels'"),
        (["prompts", "FILE"], "the following arguments are required: --project"),
    ],
)
@pytest.mark.usefixtures("project")
def test_wrong_words_of_an_import_are_refused(cli: Cli, tmp_path: Path, words: list[str], expected: str) -> None:
    file = write_rows(tmp_path / "p.jsonl", [{"prompt": "one"}])
    assert expected in cli.refuse("import", *[str(file) if word == "FILE" else word for word in words])


@pytest.mark.usefixtures("project")
def test_responses_become_tasks_and_a_single_one_can_not(cli: Cli, tmp_path: Path) -> None:
    rows = [{"prompt": "one", "responses": ["a", "b", "c"]}, {"prompt": "two", "responses": ["alone"]}]
    report = cli.make("import", "responses", write_rows(tmp_path / "r.jsonl", rows), "--project", "Trial")
    assert (report["tasks"], report["responses"], report["refused"]) == (1, 3, 1)
    assert report["problems"][0]["line"] == 2
    assert "1 distinct responses (of 1): a ranking needs 2 to 12" in report["problems"][0]["message"]


@pytest.mark.usefixtures("project")
def test_rankings_of_another_tool_come_in(cli: Cli, tmp_path: Path) -> None:
    rows = [{"prompt": "one", "chosen": "yes", "rejected": "no"}]
    file = write_rows(tmp_path / "trl.jsonl", rows)
    report = cli.make("import", "rankings", file, "--project", "Trial", "--format", "trl")
    assert (report["rankings"], report["refused"]) == (1, 0)


def test_a_snapshot_is_counted_first_then_frozen_and_exported(
    cli: Cli, project: dict[str, Any], tmp_path: Path
) -> None:
    cli.make("import", "rankings", rankings(tmp_path), "--project", "Trial")
    dry = cli.make("snapshot", "create", "--project", "Trial", "--dry-run", "--set", "eval_share=0.25", "seed=3")
    assert dry["dry_run"]
    assert dry["config"]["eval_share"] == 0.25
    assert dry["counts"]["pairs"] == 24
    assert cli.make("snapshot", "list") == []

    said = cli("snapshot", "create", "--project", "Trial", "--set", "eval_share=0.25", "seed=3")
    assert said.status == 0
    assert said.out.index("a snapshot would hold:") < said.out.index("frozen as snapshot")
    assert "pairs: 24" in said.out
    (listed,) = cli.make("snapshot", "list", "--project", "Trial")
    assert listed["id"] in said.out
    shown = cli.make("snapshot", "show", listed["id"])
    assert shown["counts"] == dry["counts"]
    assert shown["project_id"] == project["id"]
    assert (Path(shown["folder"]) / "pairs.parquet").is_file()
    assert "pairs: 24" in cli("snapshot", "show", listed["id"]).out


@pytest.mark.parametrize("format_name", list(FORMATS))
@pytest.mark.usefixtures("project")
def test_a_snapshot_is_exported_in_every_format(cli: Cli, tmp_path: Path, format_name: str) -> None:
    cli.make("import", "rankings", rankings(tmp_path), "--project", "Trial")
    snapshot = cli.make("snapshot", "create", "--project", "Trial")
    out = tmp_path / "out"
    made = cli.make("export", snapshot["id"], "--format", format_name, "--out", out)
    assert made["folder"] == str(out)
    assert made["snapshot"]["id"] == snapshot["id"]
    assert sum(made["rows"].values()) > 0
    for name in made["files"]:
        rows = list(read_parquet(out / name)) if name.endswith(".parquet") else (out / name).read_text().splitlines()
        assert len(rows) == made["rows"][name.split(".")[0]]


@pytest.mark.usefixtures("project")
def test_a_wrong_snapshot_or_export_is_refused(cli: Cli, tmp_path: Path) -> None:
    assert (
        "there is no pair to freeze: nothing has been ranked yet" in cli("snapshot", "create", "--project", "Trial").err
    )
    cli.make("import", "rankings", rankings(tmp_path), "--project", "Trial")
    snapshot = cli.make("snapshot", "create", "--project", "Trial")["id"]
    message = cli.refuse("snapshot", "create", "--project", "Trial", "--set", "eval_shere=0.1")
    assert "no field 'eval_shere'; did you mean 'eval_share'?" in message
    message = cli.refuse("snapshot", "create", "--project", "Trial", "--set", "eval_share=2")
    assert "eval_share = 2.0: 0.0 to 0.9 is allowed" in message
    assert "no snapshot 'nothing'" in cli.refuse("snapshot", "show", "nothing")
    out = tmp_path / "out"
    assert "no snapshot 'nothing'" in cli.refuse("export", "nothing", "--format", "trl", "--out", out)
    assert "format 'excel': one of trl, trl-chat" in cli.refuse("export", snapshot, "--format", "excel", "--out", out)
    out.mkdir()
    (out / "mine.txt").write_text("keep")
    assert "is not empty; name a new folder" in cli.refuse("export", snapshot, "--format", "trl", "--out", out)
    assert "that is a file" in cli.refuse("export", snapshot, "--format", "trl", "--out", out / "mine.txt")
    assert [path.name for path in out.iterdir()] == ["mine.txt"]


@pytest.mark.usefixtures("project")
def test_a_snapshot_or_an_export_of_nothing_is_no_success(cli: Cli, tmp_path: Path) -> None:
    """Three who disagree in a circle: their merged pairs have directions, but nothing is first or last in it."""
    dry = cli("snapshot", "create", "--project", "Trial", "--dry-run")
    assert (dry.status, "there would be no pair to freeze in 'Trial'" in dry.err) == (2, True)
    circle = ([1, 2, 3], [3, 1, 2], [2, 3, 1])
    rows = [{"prompt": "p", "responses": ["a", "b", "c"], "ranks": ranks, "annotator": str(ranks)} for ranks in circle]
    cli.make("import", "rankings", write_rows(tmp_path / "circle.jsonl", rows), "--project", "Trial")
    snapshot = cli.make("snapshot", "create", "--project", "Trial", "--set", "merge=soft", "eval_share=0")
    assert cli.make("export", snapshot["id"], "--format", "trl", "--out", tmp_path / "pairs")["rows"]["train"] == 3
    said = cli("export", snapshot["id"], "--format", "unpaired", "--out", tmp_path / "out")
    assert (said.status, "has no row in the format unpaired" in said.err) == (1, True)
    assert "left out: 3 responses between the first and the last rank" in said.out


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.usefixtures("project")
def test_long_work_says_on_a_terminal_how_far_it_is(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    cli.make("import", "rankings", rankings(tmp_path), "--project", "Trial")
    snapshot = cli.make("snapshot", "create", "--project", "Trial")["id"]
    for format_name in ("trl", "kwise"):
        cli.make("export", snapshot, "--format", format_name, "--out", tmp_path / format_name)
    drawn = terminal.getvalue()
    assert "importing rankings.jsonl: 8 of 8 lines" in drawn
    assert "counting: 8 of 8 rankings" in drawn
    assert "freezing: 8 of 8 rankings" in drawn
    assert "exporting: 24 of 24 rows" in drawn
    assert "exporting: 8 of 8 rows" in drawn
    assert drawn.endswith("\r\x1b[K")


@pytest.mark.usefixtures("project")
def test_settings_are_changed_and_shown(cli: Cli, tmp_path: Path) -> None:
    reasons = tmp_path / "reasons.txt"
    reasons.write_text("Rude\n\nToo long\n", encoding="utf-8")
    flags = tmp_path / "flags.txt"
    flags.write_text("Wrong\nOff topic\n", encoding="utf-8")
    lists = ("--skip-reasons", reasons, "--flags", flags)
    made = cli.make("project", "set", "Trial", "--set", "allow_partial=true", "task_order=random", *lists)
    assert made["flags"] == ["Wrong", "Off topic"]
    assert (made["settings"]["allow_partial"], made["settings"]["task_order"]) == (True, "random")
    assert made["skip_reasons"] == ["Rude", "Too long"]
    again = cli.make("project", "set", "Trial", "--set", "allow_partial=false")
    assert (again["settings"]["allow_partial"], again["settings"]["task_order"]) == (False, "random")
    shown = cli("project", "show", "Trial").out
    assert "settings that differ from the defaults:\n  task_order: random\n" in shown
    other = cli.make("project", "create", "Other", "--set", "allow_partial=true")
    assert other["settings"]["allow_partial"] is True


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["Trial"], "nothing to change: give --set"),
        (["Trial", "--set", "task_order=best"], "task_order = 'best': one of in_order, random is needed"),
        (["Trial", "--set", "alow_partial=true"], "did you mean 'allow_partial'?"),
        (["Trial", "--skip-reasons", "no-such-file"], "no-such-file"),
    ],
)
def test_wrong_settings_are_refused_in_one_line(cli: Cli, words: list[str], expected: str) -> None:
    assert expected in cli.refuse("project", "set", *words)
