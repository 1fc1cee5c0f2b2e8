"""What an open page can still do when its session has ended: nothing, over a real server and its stream."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cli_runner import run
from factories import make_person, make_session
from open_page import open_page
from web_server import PASSWORD, WebServer, refused_status, with_password

from data.labels.people import disable_person, get_person, set_password, set_role
from data.records import Person, Role
from data.store import Store

End = Callable[[WebServer, Store, Person, str], object]


def test_a_disabled_admin_can_do_nothing_more_over_the_old_stream(server: WebServer, server_store: Store) -> None:
    """A callback runs before its page has asked for the role."""
    ada, ben, eve = (make_person(server_store, role) for role in (Role.ADMIN, Role.ADMIN, Role.ANNOTATOR))
    token = make_session(server_store, ada)
    with open_page(server, token, "people") as one, open_page(server, token, "people") as two:
        with server_store.begin() as tx:
            disable_person(tx, ada.id)
        one.send_choice(f"people.role.{eve.id}", "admin")
        two.send_press(f"people.disable_now.{ben.id}")
        assert (one.wait_until_closed(), two.wait_until_closed()) == (1008, 1008)
    with server_store.read() as tx:
        assert get_person(tx, eve.id).role is Role.ANNOTATOR
        assert get_person(tx, ben.id).disabled_at is None


def by_command(server: WebServer, _store: Store, person: Person, _token: str) -> object:
    return run(server.home.root, "user", "disable", person.name)


def by_role(_server: WebServer, store: Store, person: Person, _token: str) -> None:
    with store.begin() as tx:
        set_role(tx, person.id, Role.ADMIN)


def by_password(_server: WebServer, store: Store, person: Person, _token: str) -> None:
    with store.begin() as tx:
        set_password(tx, person.id, "another hash")


def by_signing_out(server: WebServer, _store: Store, _person: Person, token: str) -> None:
    server.request("POST", "/signout", {}, token=token)


@pytest.mark.parametrize("end", [by_command, by_role, by_password, by_signing_out])
def test_the_end_of_a_session_closes_its_streams(server: WebServer, server_store: Store, end: End) -> None:
    """Written by whoever, in whichever process. The streams of other people stay."""
    person, other = make_person(server_store, Role.RESEARCHER), make_person(server_store, Role.RESEARCHER)
    token, of_other = make_session(server_store, person), make_session(server_store, other)
    origin = {"Origin": server.url}
    with open_page(server, token, "projects") as page, open_page(server, of_other, "projects") as stays:
        end(server, server_store, person, token)
        assert page.wait_until_closed() == 1008
        stays.run()
        assert "Projects" in stays.texts
    assert refused_status(server, token=token, headers=origin) == 403
    with server.websocket(of_other, origin):
        pass


def test_signing_out_leaves_other_sessions_of_the_person(server: WebServer, server_store: Store) -> None:
    person = with_password(server_store, Role.RESEARCHER)
    here, there = (server.token_of(server.sign_in(person.name, PASSWORD)) for _ in range(2))
    with open_page(server, here, "projects") as page, open_page(server, there, "projects") as other:
        server.request("POST", "/signout", {}, token=here)
        assert page.wait_until_closed() == 1008
        other.run()
        assert other.texts


def test_the_sign_in_page_says_why_one_is_there(server: WebServer) -> None:
    assert "You are signed out" in server.page("/signin?ended=1&next=%2Fpeople").text
    assert "You are signed out" not in server.page("/signin").text
