"""The word `user`: who may sign in, and as what. Whoever can run this owns the store; it asks for no password."""

from __future__ import annotations

import argparse
from typing import Any

from app.actions import people as use
from app.commands.base.common import Context, Outcome, add_group, add_word, as_document, table
from data.errors import InvalidInput
from data.labels.people import INVITATION_DAYS, has_open_link, list_people, person_by_name
from data.labels.roles import OPERATOR
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
    person, token = use.add(context.store, OPERATOR, arguments.name, role)
    link = _link(token)
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
    person = use.disable(context.store, OPERATOR, _named(arguments, context).id)
    return Outcome(as_document(person), [f"{person.name} can't sign in any more; their rankings stay"])


def change_role(arguments: argparse.Namespace, context: Context) -> Outcome:
    role = _role(arguments.role)
    person = _named(arguments, context)
    had_link = _has_link(context, person)
    person = use.change_role(context.store, OPERATOR, person.id, role)
    is_spent = had_link and not _has_link(context, person)
    more = "; the link that they had is good no more, `rankloop user invite` makes a new one" if is_spent else ""
    return Outcome(as_document(person), [f"{person.name} is {person.role} now{more}"])


def _has_link(context: Context, person: Person) -> bool:
    with context.store.read() as tx:
        return has_open_link(tx, person.id)


def invite_again(arguments: argparse.Namespace, context: Context) -> Outcome:
    person = _named(arguments, context)
    link = _link(use.new_link(context.store, OPERATOR, person.id))
    return Outcome(as_document(person) | {"invitation": link}, _link_lines(link))


def _named(arguments: argparse.Namespace, context: Context) -> Person:
    with context.store.read() as tx:
        return person_by_name(tx, arguments.name)


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
