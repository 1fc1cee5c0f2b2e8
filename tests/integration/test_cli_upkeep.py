"""The words `backup` and `doctor`, and stores and home folders that can't be used."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import sqlite3
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import factories
import pytest
import sqlalchemy as sa
from cli_runner import Cli, run

from app.commands import doctor
from data.files.paths import Home
from data.labels.projects import list_projects, project_counts
from data.store import Store, open_store
from data.store.migrate import current_revision, upgrade


@pytest.fixture
def cli(home: Home, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(home.root, capsys)


@pytest.fixture
def no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spare the seconds that the child process needs to import torch."""
    monkeypatch.setattr(doctor, "ASK_TORCH", 'print("""{"torch": "9.9", "threads": 1, "gpus": [], "mps": false, '
                        '"demo_model": null}""")')  # fmt: skip


def test_a_backup_can_be_opened_and_holds_everything(cli: Cli, sqlite_store: Store, tmp_path: Path) -> None:
    factories.make_ranked_project(sqlite_store, n_prompts=3)
    target = tmp_path / "copies" / "monday.db"
    made = cli.make("backup", target)
    assert made["file"] == str(target)
    assert made["rows"]["ranking"] == 3
    copy = open_store(f"sqlite:///{target}")
    with copy.read() as tx:
        (project,) = list_projects(tx)
        assert project_counts(tx, project.id)["rankings"] == 3
    copy.close()
    assert "exists already; name a new file" in cli.refuse("backup", target)


@pytest.mark.usefixtures("no_torch")
def test_the_doctor_finds_nothing(cli: Cli, sqlite_store: Store) -> None:
    made = cli.make("doctor")
    assert made["ok"]
    found = {finding["name"]: finding for finding in made["findings"]}
    assert list(found) == ["Python", "packages", "home folder", "disk", "SQLite", "store", "torch", "demo model"]
    assert "schema 0009, intact" in found["store"]["found"]
    assert "torch " in found["packages"]["found"]
    said = cli("doctor")
    assert (said.status, said.err) == (0, "")
    assert said.out.endswith("all is well\n")


def test_the_doctor_asks_a_child_process_about_torch(home: Home) -> None:
    said = run(home.root, "doctor", "--json")
    assert said.status == 0, said.err
    (torch,) = [finding for finding in said.document["findings"] if finding["name"] == "torch"]
    assert importlib.metadata.version("torch") in torch["found"]


@pytest.mark.usefixtures("no_torch")
def test_the_doctor_keeps_this_process_free_of_torch(cli: Cli) -> None:
    before = set(sys.modules)
    cli("doctor")
    assert "torch" not in set(sys.modules) - before


def test_the_doctor_reports_an_old_sqlite_and_a_missing_torch(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    old = SimpleNamespace(sqlite_version="3.40.1", sqlite_version_info=(3, 40, 1), __name__="sqlite3")
    monkeypatch.setattr(doctor, "sqlite_module", lambda: old)
    monkeypatch.setattr(doctor, "ASK_TORCH", "import torch_is_not_here")
    monkeypatch.setattr(doctor, "PACKAGES", ("streamlit", "rankloop-is-not-there"))
    monkeypatch.setattr(doctor, "LOW_DISK_BYTES", 10**18)
    said = cli("doctor")
    assert said.status == 1
    assert "warning  SQLite: 3.40.1 (by sqlite3)" in said.out
    assert "before 3.51.3 a write-ahead log can be corrupted" in said.out
    assert "problem  torch: ModuleNotFoundError: No module named 'torch_is_not_here'" in said.out
    assert "problem  packages: missing: rankloop-is-not-there" in said.out
    assert "warning  disk:" in said.out
    assert said.err == "rankloop: there is a problem with: packages, torch\n"


@pytest.mark.parametrize(
    ("first_byte", "expected"), [(8192, "is damaged"), (-4096, "fails SQLite's check")], ids=["all pages", "one page"]
)
@pytest.mark.usefixtures("no_torch")
def test_the_doctor_sees_a_damaged_store(
    cli: Cli, sqlite_store: Store, home: Home, first_byte: int, expected: str
) -> None:
    factories.make_ranked_project(sqlite_store, n_prompts=30)
    sqlite_store.close()
    file = home.root / "rankloop.db"
    content = bytearray(file.read_bytes())
    content[first_byte:] = bytes(reversed(content[first_byte:]))
    file.write_bytes(content)
    said = cli("doctor", "--json")
    assert said.status == 1
    (store,) = [finding for finding in said.document["findings"] if finding["name"] == "store"]
    assert store["verdict"] == "problem"
    assert str(file) in store["found"]
    assert expected in store["found"]


def test_a_store_newer_than_the_program_is_left_alone(cli: Cli, sqlite_store: Store, home: Home) -> None:
    sqlite_store.close()
    file = home.root / "rankloop.db"
    with sqlite3.connect(file) as connection:
        connection.execute("update alembic_version set version_num = '9999'")
    connection.close()
    message = cli.refuse("project", "create", "Trial")
    assert "was written by a newer rankloop (its schema is '9999', this program knows up to '0009')" in message
    assert message.endswith("update rankloop")
    connection = sqlite3.connect(file)
    assert connection.execute("select count(*) from project").fetchone() == (0,)
    connection.close()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("mysql://x/y", "'mysql' is not known; write sqlite:///FILE or postgresql+psycopg://"),
        ("sqlite:////nowhere/at/all.db", "can't be opened"),
        ("postgresql+psycopg://me:secret@127.0.0.1:1/db", "can't be opened"),
    ],
)
def test_a_store_that_can_not_be_opened(cli: Cli, url: str, expected: str) -> None:
    message = cli.refuse("project", "list", "--store", url)
    assert expected in message
    assert "secret" not in message


def test_a_file_that_is_no_store_is_left_alone(cli: Cli, home: Home) -> None:
    file = home.root / "notes.db"
    file.write_text("these are my notes, and not a database\n" * 100)
    assert "is not a SQLite file; move it away or name another store" in cli.refuse(
        "project", "list", "--store", f"sqlite:///{file}"
    )
    assert file.read_text().startswith("these are my notes")


def test_a_home_folder_that_can_not_be_written(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "a file"
    file.write_text("mine")
    said = cli("project", "list", home=file / "below")
    assert said.status == 2
    assert (
        f"the home folder {file / 'below'} can't be written (Not a directory); choose another with --home" in said.err
    )
    assert "RANKLOOP_HOME" in said.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere; the test above stands for it there")
def test_a_read_only_home_folder(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "read only"
    folder.mkdir(mode=0o500)
    said = cli("project", "list", home=folder)
    assert (said.status, "can't be written (Permission denied)" in said.err) == (2, True)


@pytest.mark.postgres
def test_the_words_work_on_postgresql(cli: Cli, postgres_store: Store, tmp_path: Path) -> None:
    words = ("--store", postgres_store.url)
    cli.make("project", "create", "Trial", *words)
    (listed,) = cli.make("project", "list", *words)
    assert listed["name"] == "Trial"
    assert not (cli.home / "rankloop.db").exists()
    assert "back it up with pg_dump" in cli.refuse("backup", tmp_path / "copy.db", *words)


def test_the_environment_names_home_and_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from app.cli import main

    monkeypatch.setenv("RANKLOOP_HOME", str(tmp_path / "from environment"))
    assert main(["project", "create", "Trial"]) == 0
    assert (tmp_path / "from environment" / "rankloop.db").is_file()
    monkeypatch.setenv("RANKLOOP_STORE", f"sqlite:///{tmp_path / 'elsewhere.db'}")
    assert main(["project", "create", "Trial"]) == 0
    assert (tmp_path / "elsewhere.db").is_file()


@pytest.mark.usefixtures("no_torch")
def test_the_doctor_makes_nothing_and_migrates_nothing(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that was mistyped made a store, and all was well with it."""
    said = cli("doctor", home=tmp_path / "typo")
    assert said.status == 1 and not (tmp_path / "typo").exists()
    assert f"problem  home folder: there is no folder {tmp_path / 'typo'}" in said.out
    empty = tmp_path / "empty"
    empty.mkdir(mode=0o700)
    said = cli("doctor", home=empty)
    assert said.status == 0 and list(empty.iterdir()) == []
    assert f"warning  store: there is no file {empty / 'rankloop.db'}" in said.out
    old = open_store(f"sqlite:///{empty / 'rankloop.db'}", migrate=False)
    upgrade(old, "0008")
    old.close()
    said = cli("doctor", home=empty)
    assert "warning  store: SQLite" in said.out and "schema 0008, intact" in said.out
    with contextlib.closing(open_store(f"sqlite:///{empty / 'rankloop.db'}", migrate=False)) as store:
        assert current_revision(store) == "0008"


@pytest.mark.usefixtures("no_torch")
def test_what_others_can_read_is_told(cli: Cli, sqlite_store: Store, home: Home) -> None:
    (home.root / "rankloop.db").chmod(0o644)
    said = cli("doctor")
    assert "others on this machine can read it; close it: chmod 600" in said.out


def test_a_store_and_its_copies_are_their_owners_alone(cli: Cli, tmp_path: Path) -> None:
    """In a home that was there before, and open, they were for all of the machine to read."""
    folder, before = tmp_path / "open", os.umask(0o022)
    try:
        folder.mkdir(mode=0o755)
        assert cli("project", "create", "Trial", home=folder).status == 0
        assert cli("backup", str(folder / "copy.db"), home=folder).status == 0
    finally:
        os.umask(before)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"rankloop.db", "copy.db"}
    assert {path.name: oct(path.stat().st_mode & 0o777) for path in files} == {path.name: "0o600" for path in files}
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.iterdir() if path.is_dir())


def test_opening_a_store_does_not_wait_for_whoever_writes(sqlite_store: Store, home: Home) -> None:
    """Commands that only read, and runs, ended with "database is locked" while an import ran."""
    with sqlite_store.begin() as tx:
        tx.execute(sa.text("update project set name = name"))
        started = time.monotonic()
        with contextlib.closing(open_store(home.store_url)) as other, other.read() as reading:
            list_projects(reading)
        assert time.monotonic() - started < 5
