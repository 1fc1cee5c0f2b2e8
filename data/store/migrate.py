"""Bring a store's tables up to date, with a copy first and a count of rows before and after.

A batch migration on SQLite with foreign keys on and a cascade once "succeeded" and deleted every ranking; so foreign
keys are off while tables are rebuilt, they are checked afterwards, and no table may lose a row.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from data.errors import StoreTooNew, StoreUnavailable
from data.store.backup import copy_sqlite
from data.store.engine import Store, without_password

_LOCK_NUMBER = 7_286_713  # PostgreSQL's advisory lock: two processes must not migrate at once


def upgrade(store: Store, target: str = "head") -> None:
    """Run the migrations that the store has not seen.

    Raises StoreTooNew if it has seen one that this program does not know.
    """
    script = ScriptDirectory.from_config(alembic_config())
    wanted = script.get_current_head() if target == "head" else target
    if known_revision(store) == wanted:  # as nearly always: then nobody waits for whoever is writing
        return
    with _connect(store) as connection:
        _check_encoding(connection)
        current = MigrationContext.configure(connection).get_current_revision()
        if current == wanted:
            return
        if current is not None and store.file is not None:
            copy_sqlite(store.file, store.file.with_name(f"{store.file.stem}.before-{wanted}.db"))
        _migrate(connection, target)


def known_revision(store: Store) -> str | None:
    """The newest migration that the store has seen; None for an empty one. Raises StoreTooNew for one that this program
    does not know."""
    script, current = ScriptDirectory.from_config(alembic_config()), current_revision(store)
    if current is not None and current not in {revision.revision for revision in script.walk_revisions()}:
        raise StoreTooNew(
            f"the store {without_password(store.url)} was written by a newer rankloop "
            f"(its schema is {current!r}, this program knows up to {script.get_current_head()!r}); update rankloop"
        )
    return current


def newest_revision() -> str:
    """The newest migration that this program knows."""
    return str(ScriptDirectory.from_config(alembic_config()).get_current_head())


def current_revision(store: Store) -> str | None:
    """The name of the newest migration that the store has seen; it waits for nobody who writes."""
    with _connect(store, is_reading=True) as connection:
        return MigrationContext.configure(connection).get_current_revision()


def _migrate(connection: sa.Connection, target: str) -> None:
    is_sqlite = connection.dialect.name == "sqlite"
    connection.rollback()
    if is_sqlite:
        _foreign_keys(connection, "OFF")
    try:
        with connection.begin():
            if not is_sqlite:
                connection.exec_driver_sql(f"select pg_advisory_xact_lock({_LOCK_NUMBER})")
            before = _row_counts(connection)
            config = alembic_config()
            config.attributes["connection"] = connection
            command.upgrade(config, target)
            _check(connection, before)
    finally:
        if is_sqlite:
            _foreign_keys(connection, "ON")


def _foreign_keys(connection: sa.Connection, state: str) -> None:
    """Switch the keys on or off. On the driver's own connection: inside a transaction SQLite ignores the word."""
    driver: Any = connection.connection.dbapi_connection
    driver.execute(f"PRAGMA foreign_keys={state}")


def _check_encoding(connection: sa.Connection) -> None:
    """A PostgreSQL database in another encoding would refuse most of the world's texts, one by one."""
    if connection.dialect.name == "postgresql":
        encoding = connection.exec_driver_sql("show server_encoding").scalar_one()
        if encoding != "UTF8":
            raise StoreUnavailable(
                f"the database has the encoding {encoding}; make one with: create database NAME encoding 'UTF8' "
                "template template0"
            )


def _check(connection: sa.Connection, before: dict[str, int]) -> None:
    after = _row_counts(connection)
    lost = [
        f"{name} ({count} rows, then {after[name]})" for name, count in before.items() if after.get(name, 0) < count
    ]
    if connection.dialect.name == "sqlite" and connection.exec_driver_sql("PRAGMA foreign_key_check").first():
        lost.append("a foreign key that points nowhere")
    if lost:
        raise StoreUnavailable(f"the migration would lose data: {', '.join(lost)}; nothing was changed")


def _row_counts(connection: sa.Connection) -> dict[str, int]:
    names = [name for name in sa.inspect(connection).get_table_names() if name != "alembic_version"]
    return {
        name: connection.execute(sa.select(sa.func.count()).select_from(sa.table(name))).scalar_one() for name in names
    }


@contextlib.contextmanager
def _connect(store: Store, *, is_reading: bool = False) -> Iterator[sa.Connection]:
    try:
        with (store.read_engine if is_reading else store.write_engine).connect() as connection:
            yield connection
    except sa.exc.OperationalError as error:
        raise StoreUnavailable(f"the store {without_password(store.url)} can't be opened: {error.orig}") from error
    except sa.exc.DatabaseError as error:
        if "malformed" in str(error.orig):
            raise StoreUnavailable(f"the store {store.file} is damaged ({error.orig}); restore a backup") from error
        if "file is not a database" not in str(error.orig):
            raise
        raise StoreUnavailable(f"{store.file} is not a SQLite file; move it away or name another store") from error


def alembic_config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
