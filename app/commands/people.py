"""The word `user`: who may sign in, and as what. Whoever can run this owns the store; it asks for no password."""

from __future__ import annotations

import argparse
from typing import Any

from app.commands.common import Context, Outcome, add_group, add_word, as_document, table
from data.errors import InvalidInput
from data.people import (
    INVITATION_DAYS,
    add_person,
    disable_person,
    get_person,
    has_open_link,
    invite,
    list_people,
    person_by_name,
    set_role,
)
from data.records import Person, Role


def add_words(words: Any) -> None:
    group = add_group(words, "user", "say who may sign in, and as what")
    parser = add_word(group, "add", add, "add a person, and print the link with which they choose a password")
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--role", required=True, metavar="|".join(Role))
    add_word(group, "list", list_all, "list people by name")
    disabled = add_word(group, "disable", disable, "close an account; its rankings stay")
    invited = add_word(group, "invite", invite_again, "print a new link with which a person chooses a password")
    changed = add_word(group, "role", change_role, "change a person's role")
    for parser in (disabled, invited, changed):
        parser.add_argument("name", metavar="NAME")
    changed.add_argument("role", metavar="|".join(Role))


def add(arguments: argparse.Namespace, context: Context) -> Outcome:
    role = _role(arguments.role)
    with context.store.begin() as tx:
        person = add_person(tx, arguments.name, role)
        link = _link(invite(tx, person.id))
    return Outcome(
        as_document(person) | {"invitation": link}, [f"{person.name} is added as {role}", *_link_lines(link)]
    )


def list_all(_arguments: argparse.Namespace, context: Context) -> Outcome:
    with context.store.read() as tx:
        people = list_people(tx)
    rows = [(each.name, each.role, _state(each), each.id) for each in people]
    none = ["nobody yet; `rankloop serve` prints the link that makes the first admin"]
    return Outcome(as_document(people), table(rows, ("NAME", "ROLE", "STATE", "ID")) if rows else none)


def disable(arguments: argparse.Namespace, context: Context) -> Outcome:
    with context.store.begin() as tx:
        person = person_by_name(tx, arguments.name)
        disable_person(tx, person.id)
        person = get_person(tx, person.id)
    return Outcome(as_document(person), [f"{person.name} can't sign in any more; their rankings stay"])


def change_role(arguments: argparse.Namespace, context: Context) -> Outcome:
    role = _role(arguments.role)
    with context.store.begin() as tx:
        person = person_by_name(tx, arguments.name)
        had_link = has_open_link(tx, person.id)
        set_role(tx, person.id, role)
        person = get_person(tx, person.id)
        is_spent = had_link and not has_open_link(tx, person.id)
    more = "; the link that they had is good no more, `rankloop user invite` makes a new one" if is_spent else ""
    return Outcome(as_document(person), [f"{person.name} is {person.role} now{more}"])


def invite_again(arguments: argparse.Namespace, context: Context) -> Outcome:
    with context.store.begin() as tx:
        person = person_by_name(tx, arguments.name)
        link = _link(invite(tx, person.id))
    return Outcome(as_document(person) | {"invitation": link}, _link_lines(link))


def _role(word: str) -> Role:
    if word not in list(Role):
        raise InvalidInput(f"role {word!r}: one of {', '.join(Role)} is needed")
    return Role(word)


def _link(token: str) -> str:
    return f"/invite?token={token}"


def _link_lines(link: str) -> list[str]:
    how = f"it works once, within {INVITATION_DAYS} days, and ends the links before it"
    return [f"  {link}", f"  put the server's address before it; {how}"]


def _state(person: Person) -> str:
    if person.disabled_at is not None:
        return "disabled"
    return "active" if person.has_password else "invited"
