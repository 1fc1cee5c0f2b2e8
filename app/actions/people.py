"""Who may sign in, and as what: the admin's use cases, for the People page and the word `user`."""

from __future__ import annotations

from data.errors import Conflict
from data.labels.people import add_person, disable_person, get_person, invite, set_role
from data.labels.roles import Actor, acting
from data.records import Person, Role
from data.store import Store


def add(store: Store, who: Actor, name: str, role: Role) -> tuple[Person, str]:
    """Add a person; returns them with the token of the link by which they choose a password.

    Raises NotAllowed, and as `add_person`.
    """
    with acting(store, who, Role.ADMIN) as tx:
        person = add_person(tx, name, role)
        return person, invite(tx, person.id)


def new_link(store: Store, who: Actor, person_id: str) -> str:
    """The token of a new link by which somebody chooses a password. Raises NotAllowed, NotFound, Conflict."""
    with acting(store, who, Role.ADMIN) as tx:
        person = get_person(tx, person_id)
        if person.disabled_at is not None or person.is_external:
            raise Conflict(f"{person.name} can't sign in: the account is closed, or came with an import")
        return invite(tx, person.id)


def change_role(store: Store, who: Actor, person_id: str, role: Role) -> Person:
    """Change a role, which signs them out everywhere. Raises NotAllowed, NotFound; Conflict for the last admin."""
    with acting(store, who, Role.ADMIN) as tx:
        set_role(tx, get_person(tx, person_id).id, role)
        return get_person(tx, person_id)


def disable(store: Store, who: Actor, person_id: str) -> Person:
    """Close an account, which signs them out everywhere. Raises NotAllowed, NotFound; Conflict for the last admin."""
    with acting(store, who, Role.ADMIN) as tx:
        disable_person(tx, get_person(tx, person_id).id)
        return get_person(tx, person_id)
