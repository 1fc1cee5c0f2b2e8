"""Who may do what: asked where the write happens, not only on the screen that leads there."""

from __future__ import annotations

from data.errors import NotAllowed
from data.records import Person, Role


def require(person: Person, role: Role) -> None:
    """Raises NotAllowed unless the person's role covers `role`."""
    if person.disabled_at is not None or not person.role.covers(role):
        raise NotAllowed(f"{person.name} is {person.role}; this needs the role {role}")
