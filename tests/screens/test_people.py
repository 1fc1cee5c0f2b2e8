"""The admin's page: who may open it, and what the store holds after each click."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from factories import make_person, make_session
from streamlit.testing.v1 import AppTest

from app.screens import people
from app.web.passwords import hash_password
from data.labels.people import (
    disable_person,
    get_person,
    invited_person,
    list_people,
    person_by_name,
    session_person,
    set_password,
    token_hash,
)
from data.records import Person, Role
from data.store import Store


@pytest.fixture
def admin(sqlite_store: Store) -> Person:
    person = make_person(sqlite_store, Role.ADMIN, "Ada")
    with sqlite_store.begin() as tx:
        set_password(tx, person.id, hash_password("correct horse"))
    return person


def link_shown(app: AppTest) -> str:
    (code,) = app.code
    return str(code.value)


@pytest.mark.parametrize("role", [Role.ANNOTATOR, Role.REVIEWER, Role.RESEARCHER])
def test_only_admins_have_the_page(sqlite_store: Store, open_app: Any, role: Role) -> None:
    person = make_person(sqlite_store, role)
    with pytest.raises(ValueError, match=r"people\.py"):
        open_app(person, "people")


def test_the_page_itself_asks_for_the_role(sqlite_store: Store, open_app: Any) -> None:
    """A page that is not listed for somebody is not thereby closed."""
    person = make_person(sqlite_store, Role.RESEARCHER)
    open_app(person)
    app = AppTest.from_file(str(Path(people.__file__)))
    app.user = {"session": token_hash(make_session(sqlite_store, person))}
    app.run()
    assert "needs the role admin" in app.exception[0].message
    assert not app.text_input


def test_adding_somebody_shows_their_link_once(sqlite_store: Store, admin: Person, open_app: Any) -> None:
    app = open_app(admin, "people")
    app.text_input("people.new_name").input("Ben")
    app.selectbox("people.new_role").select(Role.RESEARCHER)
    next(button for button in app.button if button.label == "Add").click().run()
    assert not app.exception
    token = link_shown(app).split("/invite?token=")[1]
    with sqlite_store.read() as tx:
        ben = person_by_name(tx, "Ben")
        assert ben.role is Role.RESEARCHER
        assert invited_person(tx, token) == (True, ben)
    app.button("people.link_done").click().run()
    assert not app.code
    app.run()
    assert not app.code


def test_a_taken_or_empty_name_is_refused(sqlite_store: Store, admin: Person, open_app: Any) -> None:
    app = open_app(admin, "people")
    for name, words in (("Ada", "exists already"), (" ", "1 to 80")):
        app.text_input("people.new_name").input(name)
        next(button for button in app.button if button.label == "Add").click().run()
        assert words in app.error[0].value.replace("\\", "")
    with sqlite_store.read() as tx:
        assert len(list_people(tx)) == 1


def test_an_open_page_of_somebody_disabled_changes_nobody(sqlite_store: Store, admin: Person, open_app: Any) -> None:
    """Its callbacks run before it asks who is looking."""
    ben, eve = make_person(sqlite_store, Role.ADMIN, "Ben"), make_person(sqlite_store, Role.ANNOTATOR, "Eve")
    pages = [open_app(ben, "people") for _ in range(2)]
    with sqlite_store.begin() as tx:
        disable_person(tx, ben.id)
    pages[0].selectbox(f"people.role.{eve.id}").select(Role.ADMIN).run()
    pages[1].button(f"people.disable_now.{eve.id}").click().run()
    for page in pages:
        assert not page.exception
        assert "you are signed out, so nothing was changed" in page.error[0].value.replace("\\", "")
        assert not page.selectbox
    with sqlite_store.read() as tx:
        assert get_person(tx, eve.id) == eve


def test_another_role_signs_them_out(sqlite_store: Store, admin: Person, open_app: Any) -> None:
    ben = make_person(sqlite_store, Role.ANNOTATOR, "Ben")
    token = make_session(sqlite_store, ben)
    app = open_app(admin, "people")
    app.selectbox(f"people.role.{ben.id}").select(Role.RESEARCHER).run()
    with sqlite_store.read() as tx:
        assert session_person(tx, token) is None
        assert get_person(tx, ben.id).role is Role.RESEARCHER


def test_roles_change_but_never_the_last_admin(sqlite_store: Store, admin: Person, open_app: Any) -> None:
    ben = make_person(sqlite_store, Role.ANNOTATOR, "Ben")
    app = open_app(admin, "people")
    app.selectbox(f"people.role.{ben.id}").select(Role.REVIEWER).run()
    assert not app.error
    with sqlite_store.read() as tx:
        assert get_person(tx, ben.id).role is Role.REVIEWER
    app.selectbox(f"people.role.{admin.id}").select(Role.ANNOTATOR).run()
    assert "only admin" in app.error[0].value
    assert app.selectbox(f"people.role.{admin.id}").value == Role.ADMIN
    with sqlite_store.read() as tx:
        assert get_person(tx, admin.id).role is Role.ADMIN


def test_a_new_link_and_closing_an_account(sqlite_store: Store, admin: Person, open_app: Any) -> None:
    ben = make_person(sqlite_store, Role.ANNOTATOR, "Ben")
    app = open_app(admin, "people")
    app.button(f"people.link.{ben.id}").click().run()
    token = link_shown(app).split("token=")[1]
    with sqlite_store.read() as tx:
        assert invited_person(tx, token) == (True, ben)
    app.button(f"people.link.{ben.id}").click().run()
    newer = link_shown(app).split("token=")[1]
    app.selectbox(f"people.role.{ben.id}").select(Role.REVIEWER).run()
    with sqlite_store.read() as tx:
        assert [invited_person(tx, each)[0] for each in (token, newer)] == [False, False]
    assert not app.code
    assert "The link for Ben was used, or was ended" in app.info[0].value.replace("\\", "")
    assert not app.run().info
    app.button(f"people.disable_now.{ben.id}").click().run()
    with sqlite_store.read() as tx:
        assert get_person(tx, ben.id).disabled_at is not None
    assert "disabled" in [caption.value for caption in app.caption]
    app.button(f"people.disable_now.{admin.id}").click().run()
    assert "only admin" in app.error[0].value


def test_a_name_is_only_text(sqlite_store: Store, admin: Person, open_app: Any) -> None:
    name = "![x](https://evil.example) :red[x] $a$ <b>"
    make_person(sqlite_store, Role.ANNOTATOR, name)
    app = open_app(admin, "people")
    assert name in [text.value for text in app.text]
    assert not any(name in markdown.value for markdown in app.markdown)
