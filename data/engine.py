"""Engines and transactions. SQLite and PostgreSQL; nothing is opened at import. `data.store` opens them.

SQLite: write-ahead log, `synchronous=FULL`, writes through an engine that begins with BEGIN IMMEDIATE and one lock per
process, plain reads through another engine. Measured: a deferred transaction that reads and then writes gets "database
is locked" under load, however long it waits; SQLite's own waiting is unfair, which the lock mends.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError

from data.errors import Conflict, StoreUnavailable
from data.ids import new_id

BUSY_TIMEOUT_MS = 30_000
FIXED_SQLITE = (3, 51, 3)  # older ones can corrupt a write-ahead log when two connections checkpoint at once
_PRAGMAS = (
    f"busy_timeout={BUSY_TIMEOUT_MS}",
    "journal_mode=WAL",
    "synchronous=FULL",
    "foreign_keys=ON",
    "trusted_schema=OFF",
)
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
        yield from self._connection.execution_options(yield_per=batch).execute(statement)

    def insert_ignoring(self, table: sa.Table, values: dict[str, Any] | list[dict[str, Any]]) -> int:
        """Insert what breaks no rule of uniqueness; return how many rows went in."""
        build = sqlite.insert if self.dialect == "sqlite" else postgresql.insert
        return self._connection.execute(build(table).on_conflict_do_nothing(), values).rowcount

    def upsert(self, table: sa.Table, values: dict[str, Any], keys: list[str]) -> None:
        """Insert a row, or update the one that has the same keys."""
        build = sqlite.insert if self.dialect == "sqlite" else postgresql.insert
        statement = build(table).values(values)
        changed = {name: statement.excluded[name] for name in values if name not in keys}
        self._connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=changed))

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
        self._write_lock = threading.Lock() if self.is_sqlite else contextlib.nullcontext()
        self.write_engine = _make_engine(url, begin="BEGIN IMMEDIATE")
        self.read_engine = _make_engine(url, begin="BEGIN") if self.is_sqlite else self.write_engine

    @contextlib.contextmanager
    def begin(self) -> Iterator[Tx]:
        """A transaction that may write; it commits at the end of the block and rolls back on an exception."""
        with self._write_lock, _as_store_errors(self.url), self.write_engine.begin() as connection:
            yield Tx(connection, self._clock)

    @contextlib.contextmanager
    def rehearse(self) -> Iterator[Tx]:
        """A transaction that may write, and is taken back at the end of the block: what a dry run does."""
        with self._write_lock, _as_store_errors(self.url), self.write_engine.connect() as connection:
            transaction = connection.begin()
            try:
                yield Tx(connection, self._clock)
            finally:
                transaction.rollback()

    @contextlib.contextmanager
    def read(self) -> Iterator[Tx]:
        """A transaction for reading: one consistent view, never waits for a writer on SQLite."""
        with _as_store_errors(self.url), self.read_engine.connect() as connection:
            if not self.is_sqlite:
                connection.execution_options(isolation_level="REPEATABLE READ")
            with connection.begin():
                yield Tx(connection, self._clock)

    def close(self) -> None:
        self.write_engine.dispose()
        self.read_engine.dispose()

    @property
    def file(self) -> Path | None:
        """The SQLite file, or None for a server."""
        name = self.write_engine.url.database
        return Path(name) if self.is_sqlite and name else None

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


def _make_engine(url: str, begin: str) -> sa.Engine:
    if not url.startswith("sqlite"):
        return sa.create_engine(url, pool_size=5, max_overflow=20, pool_pre_ping=True)
    engine = sa.create_engine(
        url, module=sqlite_module(), connect_args={"timeout": BUSY_TIMEOUT_MS / 1000}, pool_size=5, max_overflow=40
    )

    @sa.event.listens_for(engine, "connect")
    def _set_up(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # the driver must not begin transactions of its own
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine


@contextlib.contextmanager
def _as_store_errors(url: str) -> Iterator[None]:
    """Turn the driver's errors into ours: a broken rule of uniqueness, or trouble with the database as a whole."""
    try:
        yield
    except IntegrityError as error:
        raise Conflict(f"somebody else stored the same thing just now ({error.orig}); try again") from error
    except OperationalError as error:
        raise StoreUnavailable(f"the store {_without_password(url)} does not answer: {error.orig}") from error
    except DBAPIError as error:
        if "file is not a database" in str(error.orig) or "malformed" in str(error.orig):
            raise StoreUnavailable(
                f"the store {_without_password(url)} is damaged or no SQLite file ({error.orig}); restore a backup"
            ) from error
        raise


def _without_password(url: str) -> str:
    return sa.engine.make_url(url).render_as_string(hide_password=True)
