"""The word `user`: people, roles, and links that work once."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_runner import Cli

from data.labels.people import invited_person, use_invitation
from data.store import open_store


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(tmp_path / "home", capsys)


def spend(cli: Cli, link: str) -> str:
    """Choose a password through the link, as the browser does; returns whose it is."""
    store = open_store(f"sqlite:///{cli.home / 'rankloop.db'}")
    try:
        with store.begin() as tx:
            return use_invitation(tx, link.removeprefix("/invite?token="), "a hash").name
    finally:
        store.close()


def is_good(cli: Cli, link: str) -> bool:
    store = open_store(f"sqlite:///{cli.home / 'rankloop.db'}")
    try:
        with store.read() as tx:
            return invited_person(tx, link.removeprefix("/invite?token="))[0]
    finally:
        store.close()


def test_a_person_is_added_with_a_link_that_works_once(cli: Cli) -> None:
    made = cli.make("user", "add", "Ada", "--role", "researcher")
    assert (made["name"], made["role"], made["has_password"]) == ("Ada", "researcher", False)
    assert made["invitation"].startswith("/invite?token=")
    assert is_good(cli, made["invitation"])
    assert spend(cli, made["invitation"]) == "Ada"
    assert not is_good(cli, made["invitation"])
    (listed,) = cli.make("user", "list")
    assert (listed["id"], listed["has_password"]) == (made["id"], True)
    assert "Ada   researcher  active" in cli("user", "list").out


def test_people_are_told_what_to_do_with_the_link(cli: Cli) -> None:
    said = cli("user", "add", "Bo", "--role", "annotator")
    assert "Bo is added as annotator" in said.out
    assert "/invite?token=" in said.out
    assert "it works once, within 7 days" in said.out


def test_a_new_invitation_replaces_a_lost_password(cli: Cli) -> None:
    first = cli.make("user", "add", "Ada", "--role", "admin")["invitation"]
    again = cli.make("user", "invite", "Ada")
    assert again["name"] == "Ada"
    assert again["invitation"] != first
    assert not is_good(cli, first), "whoever kept the first one must not come in by it"
    assert spend(cli, again["invitation"]) == "Ada"


def test_roles_change_and_accounts_close(cli: Cli) -> None:
    cli.make("user", "add", "Ada", "--role", "admin")
    cli.make("user", "add", "Bo", "--role", "annotator")
    link = cli.make("user", "invite", "Bo")["invitation"]
    assert cli.make("user", "role", "Bo", "reviewer")["role"] == "reviewer"
    assert not is_good(cli, link)
    assert cli("user", "role", "Bo", "reviewer").out == "Bo is reviewer now\n"
    cli.make("user", "invite", "Bo")
    assert "the link that they had is good no more" in cli("user", "role", "Bo", "annotator").out
    assert cli.make("user", "disable", "Bo")["disabled_at"] is not None
    assert "disabled" in cli("user", "list").out
    assert "the account is closed" in cli.refuse("user", "invite", "Bo")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["add", "Bo", "--role", "boss"], "role 'boss': one of annotator, reviewer, researcher, admin is needed"),
        (["add", "Bo"], "the following arguments are required: --role"),
        (["add", "Ada", "--role", "annotator"], "a person named 'Ada' exists already"),
        (["add", " ", "--role", "annotator"], "1 to 80 printable characters"),
        (["role", "Ada", "boss"], "role 'boss'"),
        (["role", "Ada", "annotator"], "this is the only admin"),
        (["disable", "Ada"], "this is the only admin"),
        (["disable", "Bo"], "no person 'Bo'; `rankloop user list` shows them all"),
        (["invite", "Bo"], "no person 'Bo'"),
    ],
)
def test_what_is_wrong_is_refused_in_one_line(cli: Cli, words: list[str], expected: str) -> None:
    cli.make("user", "add", "Ada", "--role", "admin")
    assert expected in cli.refuse("user", *words)
    assert [person["name"] for person in cli.make("user", "list")] == ["Ada"]
