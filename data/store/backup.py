"""Copies of a SQLite store that are whole even while others write, and checks of them.

Copying the file with `cp` loses what lies in the write-ahead log and may be malformed; SQLite's own backup is neither.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

from data.errors import StoreUnavailable
from data.store.disk import sync_file, sync_folder
from data.store.engine import Store, copy_pages, make_private, sqlite_module


def backup(store: Store, target: Path) -> dict[str, object]:
    """Write a checked copy of the store to `target`, which must not exist; return its size, hash and row counts.

    Raises StoreUnavailable for a server (its own tools make better copies), a target that exists, or a failed check.
    """
    if store.file is None:
        raise StoreUnavailable("this store is a PostgreSQL server: back it up with pg_dump")
    if target.exists():
        raise StoreUnavailable(f"{target} exists already; name a new file")
    counts = copy_sqlite(store.file, target)
    return {"file": str(target), "bytes": target.stat().st_size, "sha256": _sha256(target), "rows": counts}


def copy_sqlite(source: Path, target: Path) -> dict[str, int]:
    """Copy a SQLite file through SQLite's backup, check the copy, and move it into place; return its row counts.

    Raises StoreUnavailable if the target can't be written, or if the copy fails SQLite's check.
    """
    staged = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        staged.unlink(missing_ok=True)
        make_private(staged)
        copy_pages(source, staged)
        counts = _checked_counts(staged, source)
        sync_file(staged)
        staged.replace(target)
        sync_folder(target.parent)
    except OSError as error:
        raise StoreUnavailable(f"{target} can't be written ({error.strerror}); name another file") from error
    finally:
        with contextlib.suppress(OSError):
            staged.unlink(missing_ok=True)
    return counts


def _checked_counts(copy: Path, source: Path) -> dict[str, int]:
    with contextlib.closing(sqlite_module().connect(copy)) as connection:
        problem = connection.execute("PRAGMA integrity_check").fetchone()[0]
        if problem != "ok":
            raise StoreUnavailable(f"the copy of {source} fails SQLite's check ({problem}); the store is damaged")
        names = [row[0] for row in connection.execute("select name from sqlite_master where type = 'table'")]
        return {name: connection.execute(f'select count(*) from "{name}"').fetchone()[0] for name in names}


def problem_of_store(store: Store) -> str | None:
    """What the database's own check finds wrong with a SQLite store; None if nothing, or if it is a server."""
    if store.file is None:
        return None
    with store.read() as tx:
        problem = tx.connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar_one()
        if problem != "ok":
            return f"{store.file} fails SQLite's check: {problem}"
        broken = tx.connection.exec_driver_sql("PRAGMA foreign_key_check").first()
    return None if broken is None else f"{store.file} has a row in {broken[0]} that points nowhere"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
