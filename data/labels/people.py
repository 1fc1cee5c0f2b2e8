"""People, their sessions, and the one-time links with which they choose a password.

Passwords are hashed by the caller (`app.web.passwords`); what is stored of a session or a link is the SHA-256 of its
token.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from data.errors import Conflict, InvalidInput, NotFound
from data.records import Person, Role
from data.store.engine import Tx
from data.store.tables import invitation, person, web_session
from data.text import clean_text

SESSION_DAYS = 14
_SESSIONS_AT_ONCE = 500
INVITATION_DAYS = 7
MAX_NAME_LENGTH = 80


def add_person(tx: Tx, name: str, role: Role, *, is_external: bool = False) -> Person:
    """Add a person without a password. Raises InvalidInput for a bad name, Conflict for one that is taken."""
    name = clean_text(name).strip()
    if not name or len(name) > MAX_NAME_LENGTH or any(char < " " for char in name):
        raise InvalidInput(f"name {name!r}: 1 to {MAX_NAME_LENGTH} printable characters are allowed")
    now = tx.now()
    new_id = tx.new_id()
    values = {"id": new_id, "name": name, "role": role.value, "is_external": is_external, "created_at": now}
    if not tx.insert_ignoring(person, values, ["name"]):
        raise Conflict(f"a person named {name!r} exists already; choose another name")
    return get_person(tx, new_id)


def get_person(tx: Tx, person_id: str) -> Person:
    """Raises NotFound."""
    return _found(tx, person.c.id == person_id, person_id)


def person_by_name(tx: Tx, name: str) -> Person:
    """Raises NotFound."""
    return _found(tx, person.c.name == name, name)


def list_people(tx: Tx, *, with_external: bool = False) -> list[Person]:
    """People by name; the authors of imported rankings only where asked for."""
    statement = sa.select(person).order_by(person.c.name)
    if not with_external:
        statement = statement.where(~person.c.is_external)
    return [_as_person(row) for row in tx.rows(statement)]


def external_annotator(tx: Tx, project_id: str, name: str) -> str:
    """Return the id of the person who stands for an annotator named in an imported file, making one if needed."""
    found = find_external(tx, project_id, name)
    return found or add_person(tx, _name_of_external(project_id, name), Role.ANNOTATOR, is_external=True).id


def find_external(tx: Tx, project_id: str, name: str) -> str | None:
    """The id of the person who stands for an annotator named in an imported file, if there is one yet."""
    found = tx.scalar(sa.select(person.c.id).where(person.c.name == _name_of_external(project_id, name)))
    return None if found is None else str(found)


def _name_of_external(project_id: str, name: str) -> str:
    ending = f" (imported, {project_id[-6:]})"
    shown = " ".join(clean_text(name).split()) or "unnamed"
    room = MAX_NAME_LENGTH - len(ending)
    if len(shown) > room:  # two long names that begin alike are still two people
        shown = f"{shown[: room - 9]}~{hashlib.sha256(shown.encode()).hexdigest()[:8]}"
    return shown + ending


def password_hash(tx: Tx, name: str) -> tuple[str, str] | None:
    """Return (person id, password hash) of somebody who may sign in, or None."""
    statement = sa.select(person.c.id, person.c.password_hash).where(
        person.c.name == name, person.c.disabled_at.is_(None), person.c.password_hash.is_not(None)
    )
    found = tx.row(statement)
    return None if found is None else (found.id, found.password_hash)


def set_password(tx: Tx, person_id: str, new_hash: str) -> None:
    """Store a new password hash, end all sessions of the person, and spend their link."""
    tx.execute(sa.update(person).where(person.c.id == person_id).values(password_hash=new_hash))
    spend_links(tx, person_id)
    _end_sessions(tx, person_id)


def set_role(tx: Tx, person_id: str, role: Role) -> None:
    """Change a role, end the person's sessions (their open pages were drawn for the role before) and spend their link.

    Raises NotFound; Conflict if no admin would be left who can sign in. The same role again changes nothing.
    """
    _one_link_at_a_time(tx)
    if get_person(tx, person_id).role is role:
        return
    if role is not Role.ADMIN:
        _refuse_last_admin(tx, person_id)
    tx.execute(sa.update(person).where(person.c.id == person_id).values(role=role.value))
    spend_links(tx, person_id)
    _end_sessions(tx, person_id)


def disable_person(tx: Tx, person_id: str) -> None:
    """Close an account, end its sessions and spend its link; its rankings stay.

    Raises Conflict if no admin would be left who can sign in.
    """
    _one_link_at_a_time(tx)
    _refuse_last_admin(tx, person_id)
    tx.execute(sa.update(person).where(person.c.id == person_id).values(disabled_at=tx.now()))
    spend_links(tx, person_id)
    _end_sessions(tx, person_id)


def has_admin(tx: Tx) -> bool:
    """Whether somebody can sign in as an admin: if not, the set-up link is still needed."""
    statement = sa.select(person.c.id).where(
        person.c.role == Role.ADMIN.value, person.c.disabled_at.is_(None), person.c.password_hash.is_not(None)
    )
    return tx.row(statement.limit(1)) is not None


def open_session(tx: Tx, person_id: str) -> str:
    """Start a session and return its token, which is stored nowhere."""
    token, now = secrets.token_urlsafe(32), tx.now()
    tx.execute(sa.delete(web_session).where(web_session.c.expires_at < now))
    values = {"token_hash": token_hash(token), "person_id": person_id, "created_at": now}
    tx.execute(sa.insert(web_session).values(**values, expires_at=now + SESSION_DAYS * 86_400))
    return token


def session_person(tx: Tx, token: str | None) -> Person | None:
    """Whose session the token belongs to; None if it is unknown, too old, or its person was disabled."""
    return session_person_by_hash(tx, token_hash(token)) if token else None


def session_person_by_hash(tx: Tx, hashed: str) -> Person | None:
    """The same by the token's hash: what an open page asks before each of its runs, so that signing out reaches it."""
    statement = (
        sa.select(person)
        .join(web_session, web_session.c.person_id == person.c.id)
        .where(
            web_session.c.token_hash == hashed,
            web_session.c.expires_at > tx.now(),
            person.c.disabled_at.is_(None),
        )
    )
    found = tx.row(statement)
    return None if found is None else _as_person(found)


def ended_sessions(tx: Tx, hashes: Sequence[str]) -> set[str]:
    """Which of these sessions, by the hashes of their tokens, are over: closed, too old, or their person disabled."""
    is_open = (web_session.c.expires_at > tx.now(), person.c.disabled_at.is_(None))
    living = sa.select(web_session.c.token_hash).join(person, web_session.c.person_id == person.c.id).where(*is_open)
    ended = set(hashes)
    for start in range(0, len(hashes), _SESSIONS_AT_ONCE):
        lot = web_session.c.token_hash.in_(hashes[start : start + _SESSIONS_AT_ONCE])
        ended.difference_update(row.token_hash for row in tx.rows(living.where(lot)))
    return ended


def close_session(tx: Tx, token: str) -> None:
    tx.execute(sa.delete(web_session).where(web_session.c.token_hash == token_hash(token)))


def invite(tx: Tx, person_id: str | None) -> str:
    """Make a one-time token to choose a password, the only one that is good for this person from now on.

    `person_id` None makes the set-up token of the first admin. Raises NotFound, and Conflict for somebody who can't
    sign in.
    """
    _one_link_at_a_time(tx)
    if person_id is not None:
        who = get_person(tx, person_id)
        if who.disabled_at is not None or who.is_external:
            raise Conflict(f"{who.name} can't sign in: the account is closed, or came with an import")
    tx.execute(sa.update(invitation).where(_open_link_of(person_id)).values(used_at=tx.now()))
    token, now = secrets.token_urlsafe(24), tx.now()
    values = {"token_hash": token_hash(token), "person_id": person_id, "created_at": now}
    tx.execute(sa.insert(invitation).values(**values, expires_at=now + INVITATION_DAYS * 86_400))
    return token


def spend_links(tx: Tx, person_id: str) -> None:
    """Let the person's open link be good for nothing; the set-up link too, once an admin can sign in."""
    tx.execute(sa.update(invitation).where(_open_link_of(person_id)).values(used_at=tx.now()))
    if has_admin(tx):
        tx.execute(sa.update(invitation).where(_open_link_of(None)).values(used_at=tx.now()))


def has_open_link(tx: Tx, person_id: str) -> bool:
    """Whether somebody could choose this person's password by a link now."""
    statement = sa.select(invitation.c.token_hash).where(_open_link_of(person_id), invitation.c.expires_at > tx.now())
    return tx.row(statement) is not None


def invited_person(tx: Tx, token: str) -> tuple[bool, Person | None]:
    """Return (is the token good, whom it is for). A good token for nobody is the set-up token."""
    invited = tx.row(sa.select(invitation.c.person_id).where(_is_good(tx, token)))
    if invited is None or (invited.person_id is None and has_admin(tx)):
        return False, None
    return True, None if invited.person_id is None else get_person(tx, invited.person_id)


def use_invitation(tx: Tx, token: str, new_hash: str, admin_name: str | None = None) -> Person:
    """Spend a token: set the person's password, or make the first admin, named `admin_name`.

    Raises NotFound for a bad token, InvalidInput and Conflict as `add_person`, Conflict if an admin exists already.
    """
    _one_link_at_a_time(tx)
    statement = sa.update(invitation).where(_is_good(tx, token)).values(used_at=tx.now())
    spent = tx.execute(statement.returning(invitation.c.person_id)).first()
    if spent is None:
        raise NotFound(
            "this link was used already or is too old, or a newer link or another role has ended it; ask for a new one"
        )
    if spent.person_id is None:
        if has_admin(tx):
            raise Conflict("an admin exists already; sign in, or ask the admin for an invitation")
        new_id = add_person(tx, admin_name or "", Role.ADMIN).id
    else:
        new_id = spent.person_id
    set_password(tx, new_id, new_hash)
    return get_person(tx, new_id)


def _one_link_at_a_time(tx: Tx) -> None:
    """Links are made, used and spent one after the other, in whichever transactions: else two could be open at once,
    and two people could become the first admin. First thing in a transaction, so that nobody waits in a circle."""
    tx.lock_table(invitation)


def _open_link_of(person_id: str | None) -> sa.ColumnElement[bool]:
    return sa.and_(invitation.c.person_id.is_not_distinct_from(person_id), invitation.c.used_at.is_(None))


def _is_good(tx: Tx, token: str) -> sa.ColumnElement[bool]:
    return sa.and_(
        invitation.c.token_hash == token_hash(token), invitation.c.used_at.is_(None), invitation.c.expires_at > tx.now()
    )


def _end_sessions(tx: Tx, person_id: str) -> None:
    tx.execute(sa.delete(web_session).where(web_session.c.person_id == person_id))


def _refuse_last_admin(tx: Tx, person_id: str) -> None:
    """Raises Conflict where without this person nobody could sign in as an admin, who now can, or none would be left.

    The admins' rows are locked first: two who demote each other at once must not both see the other one there.
    """
    of_admins = (person.c.role == Role.ADMIN.value, person.c.disabled_at.is_(None))
    for row in tx.rows(sa.select(person.c.id).where(*of_admins).order_by(person.c.id)):
        tx.lock_row(person, row.id)
    found = tx.rows(sa.select(person.c.id, person.c.password_hash).where(*of_admins))
    admins = {row.id: row.password_hash for row in found}
    if person_id not in admins:
        return
    can_sign_in = admins.pop(person_id) is not None
    if not admins:
        raise Conflict("this is the only admin; make somebody else an admin first")
    if can_sign_in and not any(admins.values()):
        raise Conflict("this is the only admin who can sign in; another one has to choose a password first")


def _found(tx: Tx, condition: sa.ColumnElement[bool], wanted: str) -> Person:
    row = tx.row(sa.select(person).where(condition))
    if row is None:
        raise NotFound(f"no person {wanted!r}; `rankloop user list` shows them all")
    return _as_person(row)


def _as_person(row: sa.Row[Any]) -> Person:
    return Person(
        id=row.id,
        name=row.name,
        role=Role(row.role),
        is_external=bool(row.is_external),
        has_password=row.password_hash is not None,
        created_at=row.created_at,
        disabled_at=row.disabled_at,
    )


def token_hash(token: str) -> str:
    """What is stored of a token."""
    return hashlib.sha256(token.encode()).hexdigest()
