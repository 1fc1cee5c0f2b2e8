"""The test scaffolding itself: each guard fails what it guards against."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import factories
import pytest

ROOT = Path(__file__).resolve().parents[2]


def run_tests(folder: Path, code: str, **environment: str) -> str:
    """Run test code in a pytest of its own under our conftest; return what it prints."""
    (folder / "test_it.py").write_text(textwrap.dedent(code))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "conftest", "-p", "no:cacheprovider", "-rs", "-c",
         str(ROOT / "pyproject.toml"), f"--rootdir={folder}", str(folder / "test_it.py")],
        env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"} | environment,
        cwd=folder, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


def test_a_connection_to_another_machine_fails_the_test_even_if_the_error_is_caught(tmp_path: Path) -> None:
    code = """
        import contextlib, socket
        def test_it():
            with contextlib.suppress(OSError):
                socket.create_connection(("192.0.2.1", 80), timeout=1)
    """
    assert "the test tried to reach ('192.0.2.1', 80)" in run_tests(tmp_path, code)


def test_a_connection_to_this_machine_is_allowed(tmp_path: Path) -> None:
    code = """
        import socket
        def test_it():
            with socket.create_server(("127.0.0.1", 0)) as server:
                socket.create_connection(server.getsockname(), timeout=1).close()
    """
    assert "1 passed" in run_tests(tmp_path, code)


def test_a_child_process_left_behind_fails_the_test_and_is_ended(tmp_path: Path) -> None:
    code = """
        import subprocess
        kept = []
        def test_it():
            kept.append(subprocess.Popen(["sleep", "60"]))
        def test_next():
            assert kept[0].wait(timeout=5) == -9
    """
    found = run_tests(tmp_path, code)
    assert "the test left child processes" in found
    assert "2 passed, 1 error" in found


def test_an_open_transaction_fails_the_test_and_names_where_it_began(tmp_path: Path) -> None:
    code = """
        kept = []
        def test_it(sqlite_store):
            opened = sqlite_store.read()
            kept.append((opened, opened.__enter__()))
    """
    found = run_tests(tmp_path, code)
    assert "the test left a transaction open" in found
    assert "kept.append((opened, opened.__enter__()))" in found


def test_a_skip_is_a_failure_where_skips_are_forbidden(tmp_path: Path) -> None:
    code = """
        import factories
        def test_it():
            factories.skip("no browser")
    """
    assert "1 skipped" in run_tests(tmp_path, code, RANKLOOP_FORBID_SKIPS="")
    assert "a skip is forbidden here: no browser" in run_tests(tmp_path, code, RANKLOOP_FORBID_SKIPS="1")


def test_the_absence_of_real_data_fails_nothing(tmp_path: Path) -> None:
    code = """
        import factories
        def test_it():
            factories.real_data("no-such-folder", "no-such-file")
    """
    found = run_tests(tmp_path, code, RANKLOOP_FORBID_SKIPS="1")
    assert "1 skipped" in found
    assert "no no-such-folder/no-such-file under RANKLOOP_TEST_DATA" in found


def test_the_environment_of_the_user_does_not_reach_a_test(tmp_path: Path) -> None:
    code = """
        import os
        def test_it():
            assert "RANKLOOP_HOME" not in os.environ
            assert "HF_TOKEN" not in os.environ
            assert os.environ["HF_HUB_OFFLINE"] == "1"
    """
    assert "1 passed" in run_tests(tmp_path, code, RANKLOOP_HOME="/nowhere", HF_TOKEN="secret")


def test_a_missing_server_is_a_skip_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    import postgres_server

    monkeypatch.setattr(postgres_server, "_programs", lambda: None)
    monkeypatch.setattr(factories, "skip", lambda reason: (_ for _ in ()).throw(LookupError(reason)))
    with pytest.raises(LookupError, match="found neither on PATH"), postgres_server.start_postgres():
        pass
