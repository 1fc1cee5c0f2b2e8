"""Signing in and out, the set-up link, invitations, over real HTTP."""

from __future__ import annotations

import pytest
from factories import make_person, make_session
from web_server import (
    PASSWORD,
    WebServer,
    pages_seen,
    refused_status,
    with_password,
)

from app.web.passwords import MAX_FAILURES
from data.files.paths import Home
from data.labels.people import disable_person, has_admin, invite, person_by_name
from data.records import Role
from data.store import Store


def test_sign_in_and_out(server: WebServer, server_store: Store) -> None:
    person = with_password(server_store)
    answer = server.sign_in(person.name, PASSWORD)
    assert (answer.status, answer.location) == (303, "/")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    assert "secure" not in cookie
    token = server.token_of(answer)
    assert server.page("/", token=token).status == 200
    assert server.page("/signin", token=token).location == "/"
    with server.websocket(token, {"Origin": server.url}):
        pass
    assert server.request("GET", "/signout", token=token).status != 303, "a link must not sign anybody out"
    assert server.request("POST", "/signout", {}, token=token).location == "/signin"
    assert server.page("/", token=token).status == 303
    assert refused_status(server, token=token, headers={"Origin": server.url}) == 403


def test_the_cookie_is_secure_behind_https(server: WebServer, server_store: Store) -> None:
    person = with_password(server_store)
    form = {"name": person.name, "password": PASSWORD}
    answer = server.request("POST", "/signin", form, headers={"X-Forwarded-Proto": "https"})
    assert "secure" in answer.headers["set-cookie"].lower()


def test_wrong_passwords_are_slowed_down(server: WebServer, server_store: Store) -> None:
    person, other = with_password(server_store), with_password(server_store)
    for _ in range(MAX_FAILURES):
        answer = server.sign_in(person.name, "not the password")
        assert answer.status == 401
        assert "set-cookie" not in answer.headers
    late = server.sign_in(person.name, PASSWORD)
    assert late.status == 429
    assert 0 < int(late.headers["retry-after"]) <= 300
    assert server.sign_in(other.name, PASSWORD).status == 303, "others are not held up"


def test_nobody_signs_in_without_a_password_or_when_disabled(server: WebServer, server_store: Store) -> None:
    without, closed = make_person(server_store), with_password(server_store)
    assert server.sign_in(without.name, "").status == 401
    token = make_session(server_store, closed)
    with server_store.begin() as tx:
        disable_person(tx, closed.id)
    assert server.sign_in(closed.name, PASSWORD).status == 401
    assert server.page("/", token=token).status == 303
    unknown, wrong = server.sign_in("nobody at all", "x"), server.sign_in(closed.name, "x")
    assert unknown.text.replace("nobody at all", "N") == wrong.text.replace(closed.name, "N")


@pytest.mark.parametrize("name", ["", "x" * 5000, "'; drop table person; --", '"><script>alert(1)</script>', "\ud83d"])
def test_odd_names_are_only_wrong(server: WebServer, name: str) -> None:
    answer = server.request("POST", "/signin", {"name": name.encode("utf-8", "replace").decode(), "password": "x"})
    assert answer.status == 401
    assert "<script" not in answer.text


def test_a_flood_is_read_no_further(server: WebServer) -> None:
    assert server.request("POST", "/signin", {"name": "x" * 2_000_000, "password": "x"}).status == 401


def test_sign_in_leads_back_to_a_page_of_ours_only(server: WebServer, server_store: Store) -> None:
    person = with_password(server_store)
    assert server.page("/runs?run=abc").location == "/signin?next=%2Fruns%3Frun%3Dabc"
    for wanted, to in (
        ("/runs?run=abc", "/runs?run=abc"),
        ("//evil.example", "/"),
        ("https://evil.example", "/"),
        ("/\\evil.example", "/"),
        ("/a/../b", "/"),
        ("/x\r\nSet-Cookie: a=b", "/"),
    ):
        form = {"name": person.name, "password": PASSWORD, "next": wanted}
        assert server.request("POST", "/signin", form).location == to


def test_the_set_up_link_works_once(home: Home) -> None:
    with WebServer(home) as server:
        link = server.set_up_path
        token = link.split("token=")[1]
        assert server.page(link).status == 200
        chosen = {"token": token, "name": "Ada", "password": PASSWORD, "again": PASSWORD}
        too_short = server.request("POST", "/setup", chosen | {"password": "short", "again": "short"})
        assert (too_short.status, "10 to" in too_short.text, 'value="Ada"' in too_short.text) == (422, True, True)
        differ = server.request("POST", "/setup", chosen | {"again": PASSWORD + "!"})
        assert (differ.status, "differ" in differ.text) == (422, True)
        nameless = server.request("POST", "/setup", chosen | {"name": " "})
        assert (nameless.status, "1 to 80" in nameless.text) == (422, True)
        done = server.request("POST", "/setup", chosen)
        assert (done.status, done.location) == (303, "/")
        assert server.page("/", token=server.token_of(done)).status == 200
        assert server.page(link).status == 410
        assert server.request("POST", "/setup", chosen | {"name": "Eve"}).status == 410
        assert server.sign_in("Ada", PASSWORD).status == 303
        server.stop()
        server.start()
        assert server.log.read_text().count("/setup?token=") == 1, "with an admin there, no link is printed"
        store = server.store()
        with store.read() as tx:
            assert has_admin(tx)
            assert person_by_name(tx, "Ada").role is Role.ADMIN
        store.close()


def test_an_invitation_works_once(server: WebServer, server_store: Store) -> None:
    person = make_person(server_store, Role.RESEARCHER)
    with server_store.begin() as tx:
        token = invite(tx, person.id)
        set_up = invite(tx, None)
    page = server.page(f"/invite?token={token}")
    assert (page.status, person.name in page.text) == (200, True)
    chosen = {"token": token, "password": PASSWORD, "again": PASSWORD}
    assert server.request("POST", "/invite", chosen | {"again": "something else"}).status == 422
    assert server.request("POST", "/setup", chosen | {"name": "Eve"}).status == 410, "it is no set-up link"
    assert server.request("POST", "/invite", chosen | {"token": set_up}).status == 410, "nor the other way round"
    done = server.request("POST", "/invite", chosen)
    assert done.location == "/"
    assert "people" not in pages_seen(server, server.token_of(done))
    assert server.page(f"/invite?token={token}").status == 410
    assert server.request("POST", "/invite", chosen).status == 410


def test_an_earlier_link_does_not_take_the_account_over(server: WebServer, server_store: Store) -> None:
    """A link that was sent to the wrong address, and replaced, was good for another seven days."""
    person = make_person(server_store, Role.ADMIN)
    with server_store.begin() as tx:
        first = invite(tx, person.id)
        second = invite(tx, person.id)
    chosen = {"token": second, "password": PASSWORD, "again": PASSWORD}
    assert server.request("POST", "/invite", chosen).status == 303
    for token in (first, second):
        assert server.page(f"/invite?token={token}").status == 410
        stolen = server.request("POST", "/invite", {"token": token, "password": "x" * 20, "again": "x" * 20})
        assert (stolen.status, "a newer link" in stolen.text) == (410, True)
    assert server.sign_in(person.name, PASSWORD).status == 303


def test_a_new_password_ends_old_sessions(server: WebServer, server_store: Store) -> None:
    person = with_password(server_store)
    old = server.token_of(server.sign_in(person.name, PASSWORD))
    with server_store.begin() as tx:
        token = invite(tx, person.id)
    other = "another password, longer"
    server.request("POST", "/invite", {"token": token, "password": other, "again": other})
    assert server.page("/", token=old).status == 303
    assert server.sign_in(person.name, PASSWORD).status == 401
    assert server.sign_in(person.name, other).status == 303


def test_the_link_of_a_closed_account_is_dead(server: WebServer, server_store: Store) -> None:
    person = with_password(server_store)
    with server_store.begin() as tx:
        token = invite(tx, person.id)
        disable_person(tx, person.id)
    assert server.page(f"/invite?token={token}").status == 410
