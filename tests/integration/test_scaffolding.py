"""The test scaffolding itself: each guard fails what it guards against."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from xml.etree import ElementTree

import factories
import pytest
from kept_results import HEAD

ROOT = Path(__file__).resolve().parents[2]


def run_tests(folder: Path, *, forbids_skips: bool) -> dict[str, tuple[list[str], str]]:
    """Run the cases below in a pytest of its own under our conftest, as somebody whose environment is full: by case,
    what became of each of its tests, and all that was said of them."""
    for name, code in CASES.items():
        (folder / f"test_{name}.py").write_text(textwrap.dedent(code))
    theirs = {"RANKLOOP_HOME": "/nowhere", "HF_TOKEN": "secret", "RANKLOOP_FORBID_SKIPS": "1" if forbids_skips else ""}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "conftest", "-p", "no:cacheprovider", "--junitxml=report.xml", "-c",
         str(ROOT / "pyproject.toml"), f"--rootdir={folder}", str(folder)],
        env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"} | theirs,
        cwd=folder, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (folder / "report.xml").is_file(), done.stdout + done.stderr
    found: dict[str, tuple[list[str], str]] = {name: ([], "") for name in CASES}
    for test in ElementTree.parse(folder / "report.xml").iter("testcase"):
        name = test.attrib["classname"].removeprefix("test_")
        ends, said = found[name]
        words = "".join(f"{each.get('message')}\n{each.text}\n" for each in test)
        found[name] = ([*ends, *([each.tag for each in test] or ["passed"])], said + words)
    return found


Found = dict[str, tuple[list[str], str]]
CASES = {
    "connection_elsewhere": """
        import contextlib, socket
        def test_it():
            with contextlib.suppress(OSError):
                socket.create_connection(("192.0.2.1", 80), timeout=1)
    """,
    "connection_here": """
        import socket
        def test_it():
            with socket.create_server(("127.0.0.1", 0)) as server:
                socket.create_connection(server.getsockname(), timeout=1).close()
    """,
    "child": """
        import subprocess
        kept = []
        def test_it():
            kept.append(subprocess.Popen(["sleep", "60"]))
        def test_next():
            assert kept[0].wait(timeout=5) == -9
    """,
    "transaction": """
        kept = []
        def test_it(sqlite_store):
            opened = sqlite_store.read()
            kept.append((opened, opened.__enter__()))
    """,
    "skip": """
        import factories
        def test_it():
            factories.skip("no browser")
    """,
    "real_data": """
        import factories
        def test_it():
            factories.real_data("no-such-folder", "no-such-file")
    """,
    "environment": """
        import os
        def test_it():
            assert "RANKLOOP_HOME" not in os.environ
            assert "HF_TOKEN" not in os.environ
            assert os.environ["HF_HUB_OFFLINE"] == "1"
    """,
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """What became of the cases where skips are forbidden."""
    return run_tests(tmp_path_factory.mktemp("cases"), forbids_skips=True)


def test_a_connection_to_another_machine_fails_the_test_even_if_the_error_is_caught(found: Found) -> None:
    ends, said = found["connection_elsewhere"]
    assert ends == ["error"]
    assert "the test tried to reach ('192.0.2.1', 80)" in said


def test_a_connection_to_this_machine_is_allowed(found: Found) -> None:
    assert found["connection_here"] == (["passed"], "")


def test_a_child_process_left_behind_fails_the_test_and_is_ended(found: Found) -> None:
    ends, said = found["child"]
    assert ends == ["error", "passed"]
    assert "the test left child processes" in said


def test_an_open_transaction_fails_the_test_and_names_where_it_began(found: Found) -> None:
    _, said = found["transaction"]
    assert "the test left a transaction open" in said
    assert "kept.append((opened, opened.__enter__()))" in said


def test_a_skip_is_a_failure_where_skips_are_forbidden(found: Found, tmp_path: Path) -> None:
    assert run_tests(tmp_path, forbids_skips=False)["skip"][0] == ["skipped"]
    ends, said = found["skip"]
    assert ends == ["failure"]
    assert "a skip is forbidden here: no browser" in said


def test_the_absence_of_real_data_fails_nothing(found: Found) -> None:
    ends, said = found["real_data"]
    assert ends == ["skipped"]
    assert "no no-such-folder/no-such-file under RANKLOOP_TEST_DATA" in said


def test_the_environment_of_the_user_does_not_reach_a_test(found: Found) -> None:
    assert found["environment"] == (["passed"], "")


def test_a_missing_server_is_a_skip_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    import postgres_server

    monkeypatch.setattr(postgres_server, "_programs", lambda: None)
    monkeypatch.setattr(factories, "skip", lambda reason: (_ for _ in ()).throw(LookupError(reason)))
    with pytest.raises(LookupError, match="found neither on PATH"), postgres_server.start_postgres():
        pass


def test_the_result_of_long_tests_is_one_row_however_many_processes(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Results\n\n{HEAD}| older |\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "--numprocesses", "2", "-m", "not slow", f"--keep-result={page}",
               "-p", "no:cacheprovider", "tests/unit/test_intervals.py", "tests/unit/test_progress.py"]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    *_, new, older = page.read_text(encoding="utf-8").splitlines()
    assert older == "| older |"
    assert re.fullmatch(
        r"\| \d{4}-\d\d-\d\d \| \S+( with changes)? \| `not slow` \| .+ \| \d+ passed, in \d+ min \d+ s \|", new
    )
    assert page.read_text(encoding="utf-8").count("passed") == 1
