"""Open a store: the one door to the database for every process and every test."""

from __future__ import annotations

from collections.abc import Callable

from data.engine import Store, Tx
from data.errors import StoreUnavailable
from data.migrate import upgrade

__all__ = ["Store", "Tx", "open_store"]


def open_store(url: str, clock: Callable[[], float] | None = None, *, migrate: bool = True) -> Store:
    """Open the store at `url` and bring its tables up to date.

    `url`: `sqlite:///path` or `postgresql+psycopg://...`. `clock`: a stand-in for the database's clock, for tests.
    Raises StoreUnavailable (also: unknown kind of URL), and StoreTooNew if a newer program wrote the store.
    """
    if not url.startswith(("sqlite:///", "postgresql+psycopg://")):
        raise StoreUnavailable(f"store {url!r}: the address must start with sqlite:/// or postgresql+psycopg://")
    store = Store(url, clock)
    try:
        if migrate:
            upgrade(store)
        else:
            with store.read() as tx:
                tx.now()
    except BaseException:
        store.close()
        raise
    return store
