"""The command line as a whole: help, statuses, `--json`, one line for an error, and foreign packages."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Callable
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

import factories
import pytest
from cli_runner import ROOT, Cli, run, start

from app.cli import build_parser, main
from app.commands import doctor
from data.files.paths import Home
from data.labels.people import invited_person
from data.records import Role, RunKind
from data.store import Store

WORDS = (
    "serve", "worker", "demo", "project", "import", "sample", "snapshot", "export", "train", "runs", "score", "user",
    "agreement", "annotators", "adjudicate", "backup", "baselines", "comparison", "doctor", "features", "gold", "pause",
    "selection",
)  # fmt: skip


@pytest.fixture
def cli(home: Home, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(home.root, capsys)


def test_help_names_every_word_and_the_statuses(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0
    page = capsys.readouterr().out
    assert [word for word in WORDS if not re.search(rf"\n    {word}\s", page)] == []
    assert "Exit status: 0 done; 1 the work failed; 2 the words or the input are wrong" in page
    assert "run:ID/best (the best policy a PPO run kept)" in page


def said_of_the_version(capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert stopped.value.code == 0
    return capsys.readouterr().out


def test_it_says_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    written = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert said_of_the_version(capsys) == f"rankloop {written}\n"


def test_a_checkout_that_is_not_installed_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Distribution, "discover", lambda **_words: iter(()))
    assert said_of_the_version(capsys) == "rankloop (version unknown: a checkout that is not installed)\n"


def test_every_word_takes_home_store_and_json() -> None:
    seen = []
    parsers = [([], build_parser())]
    while parsers:
        words, parser = parsers.pop()
        groups = [action for action in parser._actions if isinstance(action.choices, dict)]
        for group in groups:
            parsers += [([*words, name], each) for name, each in group.choices.items()]
        if not groups:
            seen.append(words)
            assert {"--home", "--store", "--json"} <= set(parser._option_string_actions), words
            assert parser.get_default("handler") is not None, words
    assert len(seen) == 46
    assert {words[0] for words in seen} == set(WORDS)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "the following arguments are required: WORD; `rankloop --help`"),
        (["dance"], "invalid choice: 'dance'"),
        (["project"], "the following arguments are required: WORD; `rankloop project --help`"),
        (["project", "list", "--jsn"], "unrecognized arguments: --jsn"),
        (["runs", "list", "--ho", "x"], "unrecognized arguments: --ho x"),
        (["serve", "--port", "eighty"], "'eighty' is not a port; a number up to 65535 is needed"),
        (["serve", "--port", "70000"], "'70000' is not a port"),
        (["demo", "--minutes", "0"], "'0': a number of minutes above 0 is needed"),
    ],
)
def test_wrong_words_give_status_2_and_one_line(
    capsys: pytest.CaptureFixture[str], words: list[str], expected: str
) -> None:
    assert main(words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert expected in said.err
    assert len(said.err.splitlines()) == 1
    assert main([*words, "--json"]) == 2
    said = capsys.readouterr()
    assert json.loads(said.out)["status"] == 2
    assert expected.partition(";")[0] in json.loads(said.out)["error"]


def every_word(store: Store, home: Home, tmp_path: Path) -> list[list[str]]:
    """A way to say each word that works, or that fails as it should."""
    snapshot = factories.make_snapshot(store, home)
    with store.read() as tx:
        project = tx.connection.exec_driver_sql("select name from project").scalar_one()
        task = tx.connection.exec_driver_sql("select id from task order by seq").first()[0]
    factories.make_person(store, Role.ADMIN, "Ada")
    factories.make_person(store, Role.ANNOTATOR, "Bo")
    queued, stopped = factories.make_run(store), factories.make_run(store, RunKind.SAMPLE)
    (tmp_path / "p.jsonl").write_text('{"prompt": "new"}\n')
    (tmp_path / "r.jsonl").write_text('{"prompt": "new", "responses": ["a", "b"], "ranks": [1, 2]}\n')
    return [
        ["project", "create", "Another"], ["project", "list"], ["project", "show", project],
        ["annotators", project], ["adjudicate", "list", project],
        ["adjudicate", "show", project, task], ["adjudicate", "decide", project, task, "--by", "Ada", "--ranks",
                                                "1,2,2", "--reason", "two are alike"],
        ["import", "prompts", str(tmp_path / "p.jsonl"), "--project", project],
        ["import", "responses", str(tmp_path / "r.jsonl"), "--project", project],
        ["import", "rankings", str(tmp_path / "r.jsonl"), "--project", project],
        ["sample", "--project", project],
        ["snapshot", "create", "--project", project], ["snapshot", "create", "--project", project, "--dry-run"],
        ["snapshot", "list"], ["snapshot", "show", snapshot.id],
        ["export", snapshot.id, "--format", "kwise", "--out", str(tmp_path / "out")],
        ["train", "reward", "--snapshot", snapshot.id], ["train", "sft", "--snapshot", snapshot.id],
        ["train", "dpo", "--snapshot", snapshot.id],
        ["train", "ppo", "--snapshot", snapshot.id, "--reward-run", queued.id],
        ["score", str(tmp_path / "r.jsonl"), "--reward-run", queued.id],
        ["runs", "list"], ["runs", "show", queued.id], ["runs", "cancel", stopped.id], ["runs", "resume", stopped.id],
        ["user", "add", "Cy", "--role", "reviewer"], ["user", "list"], ["user", "role", "Bo", "reviewer"],
        ["user", "invite", "Bo"], ["user", "disable", "Bo"],
        ["backup", str(tmp_path / "backup.db")], ["doctor"],
    ]  # fmt: skip


def test_json_is_one_document_and_nothing_else(
    cli: Cli, sqlite_store: Store, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "ASK_TORCH", "")
    failing = {"ppo": 2, "score": 2, "doctor": 1}
    for words in every_word(sqlite_store, home, tmp_path):
        said = cli(*words, "--json")
        expected = next((status for word, status in failing.items() if word in words[:2]), 0)
        assert said.status == expected, (words, said)
        document = said.document
        makes_something = {"create", "add", "reward", "sft", "dpo", "sample"} & set(words[:2])
        if makes_something and "--dry-run" not in words:
            assert isinstance(document["id"], str), words
        assert said.out.isascii()


def test_without_json_people_get_lines(cli: Cli, sqlite_store: Store, home: Home, tmp_path: Path) -> None:
    for words in every_word(sqlite_store, home, tmp_path):
        if words[0] == "doctor":
            continue
        said = cli(*words)
        assert said.status in (0, 2), (words, said)
        printed = said.err if said.status else said.out
        assert printed.strip(), words
        assert "{" not in said.out.replace("{'step'", ""), words
        assert "Traceback" not in said.err


def test_options_may_stand_before_the_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--home", str(tmp_path / "h"), "--json", "project", "create", "Trial"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "Trial"
    assert (tmp_path / "h" / "rankloop.db").is_file()


def test_control_characters_of_names_do_not_reach_the_terminal(cli: Cli, tmp_path: Path) -> None:
    guidelines = tmp_path / "g.txt"
    guidelines.write_text("look \x1b[2J\x1b]0;owned\x07 here \u202eesrever")
    cli.make("project", "create", "Trial", "--guidelines", guidelines)
    shown = cli("project", "show", "Trial").out
    assert "\\x1b[2J\\x1b]0;owned\\x07 here \\u202eesrever" in shown
    assert "\x1b" not in shown
    assert cli.make("project", "show", "Trial")["guidelines"].startswith("look \x1b[2J")


def test_a_full_disk_while_writing_is_work_that_failed(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(*_arguments: object) -> None:
        raise OSError(28, "No space left on device", str(tmp_path / "copy.db"))

    monkeypatch.setattr("app.commands.upkeep.backup", full)
    assert cli.refuse("backup", tmp_path / "copy.db", status=1) == (
        f"rankloop: {tmp_path / 'copy.db'}: No space left on device"
    )


# From here on the command is a process of its own.


def test_the_words_work_as_a_process(tmp_path: Path) -> None:
    home = tmp_path / "home"
    made = run(home, "project", "create", "Prüfung", "--json")
    assert (made.status, made.err) == (0, "")
    listed = run(home, "project", "list", "--json")
    assert [each["id"] for each in listed.document] == [made.document["id"]]
    refused = run(home, "project", "create", "Prüfung")
    assert (refused.status, refused.out) == (2, "")
    assert refused.err == "rankloop: a project named 'Prüfung' exists already; choose another name\n"


def test_a_terminal_without_the_letters_gets_escapes(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "app", "project", "create", "Prüfung", "--home", str(tmp_path)]
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Pr\\xfcfung" in done.stdout


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    with start(tmp_path, "train", "ppo", "--help") as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        err = process.stderr.read()
    assert "Traceback" not in err
    assert "BrokenPipe" not in err


def test_the_command_line_starts_without_torch_and_streamlit(tmp_path: Path) -> None:
    code = "import sys; from app.cli import main; status = main(['project', 'list']); print(sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=os.environ | {"RANKLOOP_HOME": str(tmp_path)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    for heavy in ("torch", "transformers", "trl", "streamlit", "pandas"):
        assert f"'{heavy}'" not in done.stdout


def test_a_worker_ends_when_nothing_is_queued(home: Home, sqlite_store: Store) -> None:
    said = run(home.root, "worker", "--once", "--json")
    assert (said.status, said.document) == (0, {"runs_done": 0})


def test_a_worker_ends_at_a_signal(home: Home, sqlite_store: Store) -> None:
    with start(home.root, "worker", "--json", stdin=subprocess.DEVNULL) as process:
        wait_until(lambda: "SigCgt" in catches_interrupt(process.pid))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, json.loads(out)) == (0, {"runs_done": 0})
    assert "Traceback" not in err


def catches_interrupt(pid: int) -> str:
    """The line of /proc that says that the process has a handler of its own for SIGTERM, or nothing."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigCgt") and int(line.split()[1], 16) & (1 << (signal.SIGTERM - 1)):
            return line
    return ""


def wait_until(is_so: Callable[[], Any], patience_s: float = 20.0) -> Any:
    import time

    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        if found := is_so():
            return found
        time.sleep(0.05)
    return pytest.fail("it did not come about")


def test_serving_prints_the_address_and_the_first_admin_s_link(home: Home, sqlite_store: Store) -> None:
    with start(home.root, "serve", "--port", "0", "--no-worker", "--json") as process:
        try:
            assert process.stdout is not None
            text = ""
            while not text.endswith("}\n"):
                line = process.stdout.readline()
                assert line, process.stderr and process.stderr.read()
                text += line
            document = json.loads(text)
            with urllib.request.urlopen(f"{document['address']}/_stcore/health", timeout=20) as answer:
                assert answer.read() == b"ok"
            with sqlite_store.read() as tx:
                assert invited_person(tx, document["setup"].partition("token=")[2]) == (True, None)
        finally:
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, "")
    assert f"rankloop is at {document['address']}" in err
    assert "Traceback" not in err


def test_a_port_in_use_is_named(home: Home, sqlite_store: Store) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = run(home.root, "serve", "--port", str(port))
    assert said.status == 2
    assert said.err == f"rankloop: port {port} is in use on 127.0.0.1; choose another with --port\n"


@pytest.mark.parametrize("name", ["data", "labeling", "training"])
@pytest.mark.parametrize("kind", ["package", "folder"])
def test_somebody_else_s_package_is_noticed(tmp_path: Path, name: str, kind: str) -> None:
    foreign = tmp_path / "elsewhere" / name
    foreign.mkdir(parents=True)
    if kind == "package":
        (foreign / "__init__.py").touch()
    environment = os.environ | {"PYTHONPATH": f"{foreign.parent}{os.pathsep}{ROOT}", "RANKLOOP_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "app", "project", "list"], env=environment, cwd=tmp_path,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if kind == "folder":  # ours has an __init__.py, which a bare folder can't hide
        assert done.returncode == 0, done.stderr
        return
    assert done.returncode == 2
    assert f"package '{name}'" in done.stderr
    assert str(foreign) in done.stderr
    assert len(done.stderr.splitlines()) == 1
