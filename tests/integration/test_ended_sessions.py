"""What an open page can still do when the account behind it is closed: nothing, over a real server and its stream."""

from __future__ import annotations

import contextlib

import pytest
from factories import make_person, make_session
from open_page import open_page
from web_server import WebServer
from websockets.exceptions import ConnectionClosed

from app.streams import ENDED
from data.people import close_session, disable_person, get_person, set_password, set_role
from data.records import Role
from data.store import Store


def test_a_disabled_admin_can_do_nothing_more_over_the_old_stream(server: WebServer, server_store: Store) -> None:
    ada, ben, eve = (make_person(server_store, role) for role in (Role.ADMIN, Role.ADMIN, Role.ANNOTATOR))
    token = make_session(server_store, ada)
    with open_page(server, token, "people") as one, open_page(server, token, "people") as two:
        with server_store.begin() as tx:
            disable_person(tx, ada.id)
        with contextlib.suppress(ConnectionClosed):
            one.choose(f"people.role.{eve.id}", "admin")
        with contextlib.suppress(ConnectionClosed):
            two.press(f"people.disable_now.{ben.id}")
    with server_store.read() as tx:
        assert get_person(tx, eve.id).role is Role.ANNOTATOR
        assert get_person(tx, ben.id).disabled_at is None


@pytest.mark.parametrize("how", ["disabled", "another role", "another password", "signed out"])
def test_a_stream_ends_with_the_session_that_opened_it(server: WebServer, server_store: Store, how: str) -> None:
    ada, ben = (make_person(server_store, Role.ADMIN) for _ in range(2))
    token, other = make_session(server_store, ada), make_session(server_store, ben)
    with open_page(server, token, "people") as ended, open_page(server, other, "people") as kept:
        with server_store.begin() as tx:
            if how == "disabled":
                disable_person(tx, ada.id)
            elif how == "another role":
                set_role(tx, ada.id, Role.ANNOTATOR)
            elif how == "another password":
                set_password(tx, ada.id, "hash")
            else:
                close_session(tx, token)
        assert ended.wait_until_closed() == ENDED
        kept.run()  # nobody else's ends
        assert kept.texts
