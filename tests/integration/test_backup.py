"""Backups: whole while others write, checked, and never on top of something."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import factories as make
import pytest
import sqlalchemy as sa
from spawned import spawning

from data.errors import StoreUnavailable
from data.store import Store, open_store
from data.store.backup import backup, problem_of_store
from data.store.columns import metadata
from data.store.engine import sqlite_module
from data.store.tables import ranking


def counts_of(store: Store) -> dict[str, int]:
    with store.read() as tx:
        return {
            name: tx.scalar(sa.select(sa.func.count()).select_from(table)) for name, table in metadata.tables.items()
        }


def test_a_copy_opens_as_a_store_and_has_every_row(sqlite_store: Store, tmp_path: Path) -> None:
    make.make_ranked_project(sqlite_store, n_prompts=3)
    target = tmp_path / "deep" / "copy 100%.db"
    report = backup(sqlite_store, target)
    assert report["file"] == str(target)
    assert report["bytes"] == target.stat().st_size
    assert {path.name for path in target.parent.iterdir()} == {target.name}
    rows: Any = report["rows"]
    assert {name: number for name, number in rows.items() if name != "alembic_version"} == counts_of(sqlite_store)
    copy = open_store(sa.URL.create("sqlite", database=str(target)).render_as_string())
    assert counts_of(copy) == counts_of(sqlite_store)
    assert problem_of_store(copy) is None
    copy.close()


def _write_on(url: str, folder: str, name: str) -> None:
    """Rank one task after the other until told to stop; write down each ranking that was acknowledged."""
    store = open_store(url, migrate=False)
    person = make.make_person(store, name=name)
    project = make.make_project(store, name=name)
    with Path(folder, name).open("w") as file:
        while not Path(folder, "stop").exists():
            made = make.make_ranking(store, make.make_task(store, project), person, [1, 2, 3])
            print(made.id, time.time(), file=file, flush=True)
    store.close()


def test_a_copy_under_load_is_whole(sqlite_store: Store, tmp_path: Path) -> None:
    """Three processes write. Nothing acknowledged before a copy began is missing in it, and nothing is half there."""
    folder = tmp_path / "acknowledged"
    folder.mkdir()
    names = ("w1", "w2", "w3")
    with spawning() as processes:
        writers = [processes.Process(target=_write_on, args=(sqlite_store.url, str(folder), name)) for name in names]
        for writer in writers:
            writer.start()
    while not all((folder / name).exists() and (folder / name).stat().st_size > 200 for name in names):
        assert all(writer.is_alive() for writer in writers)
        time.sleep(0.05)
    copies = []
    for number in range(4):
        copies.append((time.time(), tmp_path / f"copy-{number}.db"))
        backup(sqlite_store, copies[-1][1])
    (folder / "stop").touch()
    for writer in writers:
        writer.join(timeout=60)
    assert [writer.exitcode for writer in writers] == [0] * 3
    acknowledged = [line.split() for name in names for line in (folder / name).read_text().splitlines()]
    for began_at, path in copies:
        copy = open_store(f"sqlite:///{path}")
        assert problem_of_store(copy) is None
        with copy.read() as tx:
            stored = {row.id for row in tx.rows(sa.select(ranking.c.id))}
            halves = tx.scalar(sa.text("select count(*) from slot where status = 'leased'"))
        copy.close()
        earlier = {ranking_id for ranking_id, at in acknowledged if float(at) < began_at}
        assert earlier
        assert earlier <= stored
        assert halves == 0  # a ranking and its slot are one transaction


def test_a_file_that_is_there_is_not_overwritten(sqlite_store: Store, tmp_path: Path) -> None:
    target = tmp_path / "mine.db"
    target.write_text("mine")
    with pytest.raises(StoreUnavailable, match=r"mine.db exists already; name a new file"):
        backup(sqlite_store, target)
    assert target.read_text() == "mine"


def test_a_target_that_can_not_be_written_is_named(sqlite_store: Store, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for target in (tmp_path / "file" / "copy.db", Path("/proc/rankloop/copy.db")):
        with pytest.raises(StoreUnavailable, match=f"{target} can't be written"):
            backup(sqlite_store, target)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".copy")]


def test_a_server_is_left_to_its_own_tools(postgres_store: Store, tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="pg_dump"):
        backup(postgres_store, tmp_path / "copy.db")
    assert problem_of_store(postgres_store) is None


def test_a_damaged_store_is_told_and_not_copied(sqlite_store: Store, tmp_path: Path) -> None:
    make.make_ranked_project(sqlite_store, n_prompts=60)
    assert sqlite_store.file is not None
    sqlite_store.close()
    connection = sqlite_module().connect(sqlite_store.file)
    root = connection.execute("select rootpage from sqlite_master where name = 'ix_response_prompt_id'").fetchone()[0]
    size = connection.execute("PRAGMA page_size").fetchone()[0]
    connection.close()
    with sqlite_store.file.open("rb+") as file:
        file.seek((root - 1) * size)
        file.write(os.urandom(size))
    with pytest.raises(StoreUnavailable, match="the store is damaged"):
        backup(sqlite_store, tmp_path / "copy.db")
    assert not (tmp_path / "copy.db").exists()
    damaged = Store(sqlite_store.url)
    assert "fails SQLite's check" in str(problem_of_store(damaged))
    damaged.close()
