"""Open a store: the one door to the database for every process and every test."""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sa

from data.errors import StoreUnavailable
from data.store.engine import Store, Tx

__all__ = ["Store", "Tx", "open_store"]


def open_store(url: str, clock: Callable[[], float] | None = None, *, migrate: bool = True) -> Store:
    """Open the store at `url` and bring its tables up to date.

    `url`: `sqlite:///path` or `postgresql+psycopg://...`. `clock`: a stand-in for the database's clock, for tests.
    Raises StoreUnavailable (also: unknown kind of URL), and StoreTooNew if a newer program wrote the store.
    """
    _check_address(url)
    store = Store(url, clock)
    try:
        if migrate:
            from data.store.migrate import (
                upgrade,  # Alembic: 11 MB that a process with a store up to date has no use for
            )

            upgrade(store)
        else:
            with store.read() as tx:
                tx.now()
    except BaseException:
        store.close()
        raise
    return store


def _check_address(url: str) -> None:
    """Refuse an address that can't be one of ours. What is wrong with it is said without it: it may hold a password."""
    kinds = "sqlite:///FILE or postgresql+psycopg://USER:PASSWORD@HOST/DATABASE"
    try:
        parts = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        raise StoreUnavailable(
            f"the store's address can't be read; write {kinds}, with signs like @ : / in a password as %40 %3A %2F"
        ) from None
    if parts.drivername not in ("sqlite", "postgresql+psycopg"):
        raise StoreUnavailable(f"a store of the kind {parts.drivername!r} is not known; write {kinds}")
    if parts.drivername == "sqlite" and parts.database in (None, "", ":memory:"):
        raise StoreUnavailable("a store in memory would be lost; name a file: sqlite:///FILE")
