"""A store that can't be opened, read or written: one clear sentence each, and never a password."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import factories as make
import pytest
import sqlalchemy as sa

import data.store.engine
from data.errors import Conflict, InvalidInput, StoreUnavailable
from data.labels.people import list_people
from data.records import Role
from data.store import Store, open_store
from data.store.tables import person

SECRET = "s3cret"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (f"postgresql+psycopg://u:{SECRET}@127.0.0.1:1/db", "can't be opened: connection"),
        (f"postgresql+psycopg://127.0.0.1:1/db?user=u&password={SECRET}", "can't be opened"),
        (
            f"postgres://u:{SECRET}@h/db",
            "a store of the kind 'postgres' is not known; write sqlite:///FILE or postgresql",
        ),
        (f"postgresql://u:{SECRET}@h/db", "a store of the kind 'postgresql' is not known"),
        (f"mysql://u:{SECRET}@h/db", "is not known"),
        (f"postgresql+psycopg://u:{SECRET}@@h:x/db", "the store's address can't be read"),
        (SECRET, "the store's address can't be read"),
        ("sqlite://", "a store in memory would be lost; name a file"),
        ("sqlite:///:memory:", "a store in memory would be lost"),
    ],
)
def test_an_address_that_can_not_be_opened_is_told_without_its_password(url: str, message: str) -> None:
    with pytest.raises(StoreUnavailable) as caught:
        open_store(url)
    assert message in str(caught.value)
    seen: BaseException | None = caught.value
    assert SECRET not in str(seen)


def test_a_server_that_goes_away_is_told_and_found_again(postgres_store: Store) -> None:
    make.make_person(postgres_store, name="ann")
    of_others = "from pg_stat_activity where pid <> pg_backend_pid() and datname = current_database()"

    def lose_the_connection(tx: data.store.engine.Tx) -> None:
        with postgres_store.begin() as other:
            other.execute(sa.text(f"select pg_terminate_backend(pid) {of_others}"))
        list_people(tx)

    with pytest.raises(StoreUnavailable, match="can't be used"), postgres_store.begin() as tx:
        lose_the_connection(tx)
    with postgres_store.read() as tx:
        assert [each.name for each in list_people(tx)] == ["ann"]


def test_a_database_in_another_encoding(postgres_store: Store) -> None:
    with postgres_store.write_engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("create database latin encoding 'LATIN1' template template0")
    url = postgres_store.write_engine.url.set(database="latin").render_as_string(hide_password=False)
    with pytest.raises(StoreUnavailable, match="the database has the encoding LATIN1; make one with"):
        open_store(url)
    with postgres_store.write_engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("drop database latin")


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    path.write_text("these are my notes\n" * 100)
    for migrate in (True, False):
        with pytest.raises(StoreUnavailable, match="SQLite file"):
            open_store(f"sqlite:///{path}", migrate=migrate)
    assert path.read_text().startswith("these are my notes")


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """A folder of somebody who may not write everywhere (root may); the test runs as that user."""
    with tempfile.TemporaryDirectory() as folder:
        nobody = 65534
        if os.geteuid() == 0:
            os.chown(folder, nobody, nobody)
            os.seteuid(nobody)
        yield Path(folder)
        if os.getuid() == 0:
            os.seteuid(0)
        os.chmod(folder, stat.S_IRWXU)


def test_a_folder_that_can_not_be_written(unprivileged: Path) -> None:
    unprivileged.chmod(0o555)
    with pytest.raises(StoreUnavailable, match=r"rankloop.db can't be opened: unable to open database file"):
        open_store(f"sqlite:///{unprivileged / 'rankloop.db'}")


def test_a_file_that_can_not_be_written(unprivileged: Path) -> None:
    url = f"sqlite:///{unprivileged / 'rankloop.db'}"
    open_store(url).close()
    (unprivileged / "rankloop.db").chmod(0o444)
    unprivileged.chmod(0o555)
    with pytest.raises(StoreUnavailable, match=r"rankloop.db can't be (used|opened)"):
        open_store(url)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="unable to open database file"):
        open_store(f"sqlite:///{tmp_path / 'missing' / 'rankloop.db'}")


def test_a_full_disk_at_a_write_takes_back_that_write_only(sqlite_store: Store) -> None:
    make.make_person(sqlite_store, name="ann")
    with sqlite_store.write_engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count={pages + 2}")
        connection.rollback()

    def fill_up() -> None:
        for number in range(1000):
            make.make_person(sqlite_store, name=f"{number} {'x' * 60}")

    with pytest.raises(StoreUnavailable, match="database or disk is full"):
        fill_up()
    with sqlite_store.read() as tx:
        assert list_people(tx)[-1].name == "ann"


def test_reading_can_not_write(store: Store) -> None:
    values = {"id": "x", "name": "x", "role": "annotator", "created_at": 1.0}
    with pytest.raises((StoreUnavailable, sa.exc.DBAPIError)), store.read() as tx:
        tx.execute(sa.insert(person).values(**values))
    with store.read() as tx:
        assert list_people(tx) == []
    make.make_person(store)  # and the same connection writes again where it may


def test_an_exception_takes_back_the_whole_transaction(store: Store) -> None:
    def add_two_and_fail(tx: data.store.engine.Tx) -> None:
        for name in ("ann", "bob"):
            make.make_person(tx, Role.ANNOTATOR, name)
        raise LookupError

    with pytest.raises(LookupError), store.begin() as tx:
        add_two_and_fail(tx)
    with store.read() as tx:
        assert list_people(tx) == []


def test_a_savepoint_takes_back_its_block_only(store: Store) -> None:
    with store.begin() as tx:
        make.make_person(tx, name="ann")
        with contextlib.suppress(LookupError), tx.savepoint():
            make.make_person(tx, name="bob")
            raise LookupError
        make.make_person(tx, name="cat")
    with store.read() as tx:
        assert [each.name for each in list_people(tx)] == ["ann", "cat"]


def test_reading_sees_one_moment(store: Store) -> None:
    make.make_person(store, name="ann")
    with store.read() as tx:
        assert len(list_people(tx)) == 1
        make.make_person(store, name="bob")
        assert len(list_people(tx)) == 1
    with store.read() as tx:
        assert len(list_people(tx)) == 2


def test_a_rehearsal_sees_what_it_wrote_and_leaves_nothing(store: Store, tmp_path: Path) -> None:
    make.make_person(store, name="ann")
    with store.rehearse() as tx:
        make.make_person(tx, name="bob")
        assert len(list_people(tx)) == 2
    with store.read() as tx:
        assert [each.name for each in list_people(tx)] == ["ann"]
    assert not list(tmp_path.glob(".rehearsal*"))
    with pytest.raises(Conflict, match="a person named 'ann' exists already"), store.rehearse() as tx:
        make.make_person(tx, name="ann")
    assert not list(tmp_path.glob(".rehearsal*"))


@pytest.mark.parametrize("text", ["a\ud800b"])
def test_a_value_that_can_not_be_stored_is_our_own_error(store: Store, text: str) -> None:
    statement = sa.insert(person).values(id="x", name=text, role="annotator", created_at=1.0)
    with pytest.raises(InvalidInput, match="a value can't be stored"), store.begin() as tx:
        tx.execute(statement)


def test_a_writer_that_waits_too_long_is_told(sqlite_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that waits for itself: a transaction inside a transaction would hang for ever."""
    monkeypatch.setattr(data.store.engine, "BUSY_TIMEOUT_MS", 100)
    with sqlite_store.begin(), pytest.raises(StoreUnavailable, match="another part of this process is writing"):
        make.make_person(sqlite_store)
    make.make_person(sqlite_store)


def test_many_threads_read_and_write_one_store(store: Store) -> None:
    errors: list[Exception] = []

    def work(number: int) -> None:
        try:
            for round_number in range(5):
                make.make_person(store, name=f"{number} {round_number}")
                with store.read() as tx:
                    list_people(tx)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    with store.read() as tx:
        assert len(list_people(tx)) == 100


def test_the_settings_that_were_measured_are_on(sqlite_store: Store) -> None:
    for engine, query_only in ((sqlite_store.write_engine, 0), (sqlite_store.read_engine, 1)):
        with engine.connect() as connection:
            found = {
                name: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
                for name in (
                    "journal_mode",
                    "synchronous",
                    "busy_timeout",
                    "foreign_keys",
                    "trusted_schema",
                    "query_only",
                )
            }
        assert found == {
            "journal_mode": "wal", "synchronous": 2, "busy_timeout": 30_000, "foreign_keys": 1, "trusted_schema": 0,
            "query_only": query_only,
        }  # fmt: skip


def test_the_clock_is_the_database_s(store: Store) -> None:
    import time

    with store.read() as tx:
        assert abs(tx.now() - time.time()) < 60
    assert store.engine_version.startswith(("SQLite 3.", "PostgreSQL "))
