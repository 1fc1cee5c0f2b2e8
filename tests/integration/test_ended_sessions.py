"""What an open page can still do when the account behind it is closed: nothing, over a real server and its stream."""

from __future__ import annotations

from factories import make_person, make_session
from open_page import open_page
from web_server import WebServer

from data.people import disable_person, get_person
from data.records import Role
from data.store import Store


def test_a_disabled_admin_can_do_nothing_more_over_the_old_stream(server: WebServer, server_store: Store) -> None:
    ada, ben, eve = (make_person(server_store, role) for role in (Role.ADMIN, Role.ADMIN, Role.ANNOTATOR))
    token = make_session(server_store, ada)
    with open_page(server, token, "people") as one, open_page(server, token, "people") as two:
        with server_store.begin() as tx:
            disable_person(tx, ada.id)
        one.choose(f"people.role.{eve.id}", "admin")
        two.press(f"people.disable_now.{ben.id}")
    with server_store.read() as tx:
        assert get_person(tx, eve.id).role is Role.ANNOTATOR
        assert get_person(tx, ben.id).disabled_at is None
