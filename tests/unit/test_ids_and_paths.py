"""Ids that sort by time; where things lie, whatever the folder is called."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

import pytest

from data.errors import StoreUnavailable
from data.files.paths import HOME_VARIABLE, Home, default_home, open_home
from data.store import open_store
from data.store.engine import Store, sqlite_url, without_password
from data.store.ids import ID_LENGTH, new_id
from training.launch.process import module_path


def test_ids_sort_by_the_time_they_were_made() -> None:
    times = [0.0, 0.001, 1.0, 1_800_000_000.0, 1_800_000_000.001, 4_000_000_000.0]
    ids = [new_id(time) for time in times]
    assert ids == sorted(ids)
    assert all(len(each) == ID_LENGTH and each.isalnum() and each == each.lower() for each in ids)


def test_ids_of_one_moment_differ() -> None:
    assert len({new_id(1_800_000_000.0) for _ in range(10_000)}) == 10_000


@pytest.mark.parametrize("name", ["plain", "sp ace", "\u00fcn\u00ef", "a%20b", "h#sh", "q?x=1", "c:d@e"])
def test_a_home_folder_of_any_name_holds_its_store(tmp_path: Path, name: str) -> None:
    home = open_home(tmp_path / name)
    open_store(home.store_url).close()
    assert (tmp_path / name / "rankloop.db").is_file()
    assert [path.name for path in tmp_path.iterdir()] == [name]  # and nothing beside it


def test_the_home_folder_is_made_whole_and_for_its_owner_only(tmp_path: Path) -> None:
    home = open_home(tmp_path / "deep" / "home")
    assert stat.S_IMODE(home.root.stat().st_mode) == 0o700
    for folder in (
        home.exports,
        home.uploads,
        home.backups,
        home.run_folder("x").parent,
        home.model_folder("x").parent,
    ):
        assert folder.is_dir()
    assert open_home(home.root) == home


def test_a_home_folder_that_can_not_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for folder in (tmp_path / "file", tmp_path / "file" / "deeper", Path("/proc/rankloop")):
        with pytest.raises(
            StoreUnavailable, match=rf"home folder {folder} can't be written \(.*--home or RANKLOOP_HOME"
        ):
            open_home(folder)


def test_the_environment_names_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    assert default_home() == tmp_path
    monkeypatch.delenv(HOME_VARIABLE)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert default_home().name == "rankloop"


def test_making_a_home_makes_no_folder(tmp_path: Path) -> None:
    assert not Home(tmp_path / "home").root.exists()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql+psycopg://u:secret@h/db", "postgresql+psycopg://u:***@h/db"),
        ("postgresql+psycopg://h/db?user=u&password=secret", "postgresql+psycopg://h/db?user=u"),
        ("sqlite:////a/b.db", "sqlite:////a/b.db"),
    ],
)
def test_an_address_is_shown_without_its_password(url: str, shown: str) -> None:
    assert without_password(url) == shown


def test_a_child_that_works_in_another_folder_finds_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs work in the home folder: a store or a module path that is named from here on is written out for them."""
    monkeypatch.chdir(tmp_path)
    with contextlib.closing(Store("sqlite:///mine.db")) as store:
        assert store.whole_url == sqlite_url(tmp_path / "mine.db")
    address = "postgresql+psycopg://somebody@localhost/x"
    with contextlib.closing(Store(address)) as store:
        assert store.whole_url == address
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["more", "", "/whole"]))
    ours, *others = module_path().split(os.pathsep)
    assert (Path(ours) / "training" / "jobs" / "worker.py").is_file()
    assert others == [str(tmp_path / "more"), "/whole"]
