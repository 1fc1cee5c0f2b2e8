"""Engines and transactions. SQLite and PostgreSQL; nothing is opened at import. `data.store` opens them.

SQLite: write-ahead log, `synchronous=FULL`, writes through an engine that begins with BEGIN IMMEDIATE and one lock per
process, plain reads through another engine. Measured: a deferred transaction that reads and then writes gets "database
is locked" under load, however long it waits; SQLite's own waiting is unfair, which the lock mends.

PostgreSQL: writes are READ COMMITTED, so whoever writes by what it has read locks a row first (`Tx.lock_row`).
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from data.errors import Conflict, InvalidInput, StoreUnavailable
from data.store.ids import new_id

BUSY_TIMEOUT_MS = 30_000
CONNECT_TIMEOUT_S = 10
FIXED_SQLITE = (3, 51, 3)  # older ones can corrupt a write-ahead log when two connections checkpoint at once
_PRAGMAS = (
    f"busy_timeout={BUSY_TIMEOUT_MS}",
    "journal_mode=WAL",
    "synchronous=FULL",
    "foreign_keys=ON",
    "trusted_schema=OFF",
)
_READING = ("query_only=ON",)
# An import touches the index of fingerprints all over: 64 MiB of its pages stay at hand, and go to their places once in
# 40 MiB of log. With SQLite's own 2 and 4 MiB an import of a million prompts took half as long again.
_WRITING = ("cache_size=-65536", "wal_autocheckpoint=10000")
_DATABASE_CLOCK = {
    "sqlite": "select (julianday('now') - 2440587.5) * 86400.0",
    "postgresql": "select extract(epoch from clock_timestamp())::double precision",
}


class Tx:
    """An open transaction: the first argument of every function that reads or writes the store."""

    def __init__(self, connection: sa.Connection, clock: Callable[[], float] | None) -> None:
        self._connection = connection
        self._clock = clock
        self.dialect = connection.dialect.name

    def execute(self, statement: sa.Executable, values: Any = None) -> sa.CursorResult[Any]:
        return self._connection.execute(statement, values)

    def rows(self, statement: sa.Executable) -> list[sa.Row[Any]]:
        return list(self._connection.execute(statement).all())

    def row(self, statement: sa.Executable) -> sa.Row[Any] | None:
        return self._connection.execute(statement).first()

    def scalar(self, statement: sa.Executable) -> Any:
        return self._connection.execute(statement).scalar()

    def stream(self, statement: sa.Executable, batch: int = 2000) -> Iterator[sa.Row[Any]]:
        """Yield rows without holding them all in memory."""
        with self._connection.execute(statement, execution_options={"yield_per": batch}) as found:
            yield from found

    def insert_ignoring(
        self, table: sa.Table, values: dict[str, Any] | list[dict[str, Any]], keys: Sequence[str] | None = None
    ) -> int:
        """Insert what is not there yet by its unique `keys` (by any rule of uniqueness, where none are named).

        Returns how many rows went in.
        """
        build = sqlite.insert if self.dialect == "sqlite" else postgresql.insert
        statement = build(table).on_conflict_do_nothing(index_elements=keys)
        return self._connection.execute(statement, values, execution_options={"preserve_rowcount": True}).rowcount

    def upsert(self, table: sa.Table, values: dict[str, Any], keys: list[str], newest_by: str | None = None) -> None:
        """Insert a row, or update the one that has the same keys; with `newest_by`, only where that column grows."""
        build = sqlite.insert if self.dialect == "sqlite" else postgresql.insert
        statement = build(table).values(values)
        changed = {name: statement.excluded[name] for name in values if name not in keys}
        newer = None if newest_by is None else table.c[newest_by] < statement.excluded[newest_by]
        self._connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=changed, where=newer))

    def lock_row(self, table: sa.Table, row_id: str) -> None:
        """Let nobody else past this line with the same row until this transaction ends. Holds on SQLite anyway."""
        if self.dialect == "postgresql":
            statement = sa.select(table.c.id).where(table.c.id == row_id)
            self._connection.execute(statement.with_for_update(key_share=True))

    def lock_table(self, table: sa.Table) -> None:
        """The same for all that write to a small table. Holds on SQLite anyway; who only reads does not wait."""
        if self.dialect == "postgresql":
            self._connection.execute(sa.text(f"lock table {table.name} in share row exclusive mode"))

    @contextlib.contextmanager
    def savepoint(self) -> Iterator[None]:
        """What the block wrote is taken back if it raises; the rest of the transaction stays."""
        with self._connection.begin_nested():
            yield

    def now(self) -> float:
        """The time by the database's clock, so that clocks of workers don't matter (or by the test's clock)."""
        if self._clock is not None:
            return self._clock()
        return float(self._connection.exec_driver_sql(_DATABASE_CLOCK[self.dialect]).scalar_one())

    def new_id(self) -> str:
        return new_id(self._clock() if self._clock else time.time())

    @property
    def connection(self) -> sa.Connection:
        """The bare connection, for migrations and backups in this package."""
        return self._connection


class Store:
    """Two engines on one database. Made by `open_store`; safe to share between threads."""

    def __init__(self, url: str, clock: Callable[[], float] | None = None) -> None:
        self.url = url
        self.is_sqlite = url.startswith("sqlite")
        self._clock = clock
        self._write_lock = threading.Lock()
        if file := sqlite_file(url):
            make_private(file)
        self.write_engine = _make_engine(url, begin="BEGIN IMMEDIATE", more=_WRITING)
        self.read_engine = _make_engine(url, begin="BEGIN", more=_READING) if self.is_sqlite else self.write_engine

    @contextlib.contextmanager
    def begin(self) -> Iterator[Tx]:
        """A transaction that may write; it commits at the end of the block and rolls back on an exception."""
        with self._one_writer(), _as_store_errors(self.url), self.write_engine.begin() as connection:
            yield Tx(connection, self._clock)

    @contextlib.contextmanager
    def rehearse(self) -> Iterator[Tx]:
        """A transaction that may write, and is forgotten at the end of the block: what a dry run does.

        On SQLite it works on a copy: a long rehearsal must not keep everybody else from writing.
        """
        if self.file is None:
            with self._taken_back() as tx:
                yield tx
            return
        with tempfile.TemporaryDirectory(prefix=".rehearsal-", dir=self.file.parent) as folder:
            copy = Path(folder) / "copy.db"
            copy_pages(self.file, copy)
            with contextlib.closing(Store(sqlite_url(copy), self._clock)) as rehearsal, rehearsal._taken_back() as tx:
                yield tx

    @contextlib.contextmanager
    def _taken_back(self) -> Iterator[Tx]:
        with _as_store_errors(self.url), self.write_engine.connect() as connection:
            transaction = connection.begin()
            try:
                yield Tx(connection, self._clock)
            finally:
                transaction.rollback()

    @contextlib.contextmanager
    def read(self) -> Iterator[Tx]:
        """A transaction for reading only: one consistent view, never waits for a writer on SQLite."""
        with _as_store_errors(self.url), self.read_engine.connect() as connection:
            if not self.is_sqlite:
                connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            with connection.begin():
                yield Tx(connection, self._clock)

    @contextlib.contextmanager
    def _one_writer(self) -> Iterator[None]:
        """On SQLite, one writer at a time in this process. One that waits too long is told so, not left hanging."""
        if not self.is_sqlite:
            yield
            return
        if not self._write_lock.acquire(timeout=BUSY_TIMEOUT_MS / 1000):
            raise StoreUnavailable(
                f"the store {without_password(self.url)} has been busy for {BUSY_TIMEOUT_MS // 1000} s: "
                "another part of this process is writing; try again"
            )
        try:
            yield
        finally:
            self._write_lock.release()

    def close(self) -> None:
        self.write_engine.dispose()
        self.read_engine.dispose()

    @property
    def file(self) -> Path | None:
        """The SQLite file, or None for a server."""
        name = self.write_engine.url.database
        return Path(name) if self.is_sqlite and name else None

    @property
    def whole_url(self) -> str:
        """The address for a process that works in another folder."""
        return self.url if self.file is None else sqlite_url(self.file.absolute())

    @property
    def engine_version(self) -> str:
        """The database's own version, for `doctor` and for the record of a run."""
        if self.is_sqlite:
            return f"SQLite {sqlite_module().sqlite_version}"
        with self.read() as tx:
            return f"PostgreSQL {tx.connection.exec_driver_sql('show server_version').scalar_one()}"


def sqlite_module() -> ModuleType:
    """The SQLite that this process uses: pysqlite3 brings a current one, Python's own may be years old."""
    try:
        import pysqlite3
    except ImportError:
        return sqlite3
    return pysqlite3  # type: ignore[no-any-return]


def sqlite_url(file: Path) -> str:
    """The address of a SQLite file, whatever characters its path has."""
    return sa.URL.create("sqlite", database=str(file)).render_as_string()


def sqlite_file(url: str) -> Path | None:
    """The file of an address of SQLite; None for a server, or where there is none."""
    try:
        parts = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        return None
    return Path(parts.database) if parts.drivername == "sqlite" and parts.database else None


def make_private(file: Path) -> None:
    """Make a file that only its owner can read, unless there is one: SQLite itself would let all of a machine read it,
    and its side files follow it. Where that can't be, whoever opens it says so."""
    with contextlib.suppress(OSError):
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def copy_pages(source: Path, target: Path) -> None:
    """Copy a SQLite file to one without side files, through SQLite's backup: whole, even while others write.

    Raises StoreUnavailable.
    """
    sqlite = sqlite_module()
    try:
        with contextlib.closing(sqlite.connect(source)) as origin, contextlib.closing(sqlite.connect(target)) as copy:
            origin.backup(copy)
            copy.execute("PRAGMA journal_mode=DELETE")
    except (sqlite.Error, OSError) as error:
        raise StoreUnavailable(f"{source} can't be copied to {target} ({error})") from error


def _make_engine(url: str, begin: str, more: tuple[str, ...]) -> sa.Engine:
    if not url.startswith("sqlite"):
        waits = {} if "connect_timeout" in sa.make_url(url).query else {"connect_timeout": CONNECT_TIMEOUT_S}
        return sa.create_engine(url, pool_size=5, max_overflow=20, pool_pre_ping=True, connect_args=waits)
    engine = sa.create_engine(
        url, module=sqlite_module(), connect_args={"timeout": BUSY_TIMEOUT_MS / 1000}, pool_size=5, max_overflow=40
    )

    @sa.event.listens_for(engine, "connect")
    def _set_up(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # the driver must not begin transactions of its own
        for pragma in (*_PRAGMAS, *more):
            _set_pragma(connection, pragma)

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine


def _set_pragma(connection: Any, pragma: str) -> None:
    """Turning on the write-ahead log fails at once where others do the same, whatever the busy timeout: try again."""
    end = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            connection.execute(f"PRAGMA {pragma}")
            return
        except sqlite_module().OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > end:
                raise
            time.sleep(0.05)


@contextlib.contextmanager
def _as_store_errors(url: str) -> Iterator[None]:
    """Turn the driver's errors into ours: a broken rule, a value that can't be stored, or trouble with the database."""
    try:
        yield
    except IntegrityError as error:
        raise Conflict(_broken_rule(error)) from error
    except (DataError, UnicodeEncodeError) as error:
        found = getattr(error, "orig", error)
        raise InvalidInput(f"a value can't be stored ({found}); leave out what is not text or out of range") from error
    except (OperationalError, InterfaceError, PoolTimeout) as error:
        found = getattr(error, "orig", None) or error
        raise StoreUnavailable(f"the store {without_password(url)} can't be used: {found}") from error
    except DBAPIError as error:
        if not any(words in str(error.orig) for words in ("file is not a database", "malformed")):
            raise
        raise StoreUnavailable(
            f"the store {without_password(url)} is damaged or no SQLite file ({error.orig}); restore a backup"
        ) from error


def _broken_rule(error: IntegrityError) -> str:
    words = str(error.orig)
    if "foreign key" in words.lower():
        return f"something that this refers to does not exist, or is still in use ({words})"
    if "unique" in words.lower():
        return f"somebody else stored the same thing just now ({words}); try again"
    return f"a rule of the store forbids this ({words})"


def without_password(url: str) -> str:
    """An address of a store as it may be shown."""
    return sa.make_url(url).difference_update_query(["password"]).render_as_string(hide_password=True)
