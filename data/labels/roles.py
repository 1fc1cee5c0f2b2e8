"""Who may do what: asked of the store in the very transaction that writes.

A use case is a function that writes on somebody's behalf. It takes who acts after the store, and opens its transaction
by `acting`: what a page read of a person before may be out of date, for they may have been disabled or demoted since.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from data.errors import NotAllowed, NotFound
from data.labels.people import get_person
from data.records import Person, Role
from data.store.engine import Store, Tx


@dataclass(frozen=True)
class Operator:
    """Whoever runs the program itself, such as on the command line: the store is theirs, so nothing is asked."""

    id: None = None


OPERATOR = Operator()
Actor = Person | Operator


def require(tx: Tx, who: Actor, role: Role) -> None:
    """Raises NotAllowed unless the role that the store has for them now covers `role`, and their account is open."""
    if isinstance(who, Operator):
        return
    try:
        account = get_person(tx, who.id)
    except NotFound:
        raise NotAllowed(f"there is no account of {who.name} any more; sign in again") from None
    if account.disabled_at is not None:
        raise NotAllowed(f"the account of {account.name} is closed; an admin can say why")
    if not account.role.covers(role):
        raise NotAllowed(f"{account.name} is {account.role}; this needs the role {role}")


@contextlib.contextmanager
def acting(store: Store, who: Actor, role: Role) -> Iterator[Tx]:
    """A transaction that writes on somebody's behalf, if their role covers `role`. Raises NotAllowed."""
    with store.begin() as tx:
        require(tx, who, role)
        yield tx
