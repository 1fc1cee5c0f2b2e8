"""People, sessions, invitations and projects: what names are allowed, who stays admin, what a token is worth."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import factories as make
import pytest
import sqlalchemy as sa
from conftest import Clock

from data.errors import Conflict, InvalidInput, NotFound
from data.labels.people import (
    INVITATION_DAYS,
    SESSION_DAYS,
    add_person,
    close_session,
    disable_person,
    ended_sessions,
    external_annotator,
    has_admin,
    invite,
    invited_person,
    list_people,
    open_session,
    password_hash,
    person_by_name,
    session_person,
    set_password,
    set_role,
    token_hash,
    use_invitation,
)
from data.labels.projects import create_project, get_project, list_projects, project_by_name, set_guidelines
from data.records import Role
from data.store import Store
from data.store.tables import invitation, web_session

DAY = 86_400.0


@pytest.mark.parametrize("name", ["", "   ", "a\nb", "x" * 81, "\x1b[31mred", "\x00"])
def test_a_name_that_can_not_be_shown_is_refused(sqlite_store: Store, name: str) -> None:
    with sqlite_store.begin() as tx:
        with pytest.raises(InvalidInput, match="1 to 80 printable characters"):
            add_person(tx, name, Role.ANNOTATOR)
        with pytest.raises(InvalidInput, match="1 to 80 printable characters"):
            create_project(tx, name)


def test_names_are_cleaned_and_unique(store: Store) -> None:
    with store.begin() as tx:
        assert add_person(tx, "  \u0623\u062d\u0645\u062f ", Role.ANNOTATOR).name == "\u0623\u062d\u0645\u062f"
    with pytest.raises(Conflict, match="exists already; choose another name"), store.begin() as tx:
        add_person(tx, "\u0623\u062d\u0645\u062f", Role.ADMIN)
    with store.read() as tx, pytest.raises(NotFound, match="rankloop user list"):
        person_by_name(tx, "nobody")


def test_roles_cover_the_ones_before_them() -> None:
    assert [[role.covers(other) for other in Role] for role in Role] == [
        [True, False, False, False],
        [True, True, False, False],
        [True, True, True, False],
        [True, True, True, True],
    ]


def test_a_session_is_its_token_s_for_so_many_days(store: Store, clock: Any) -> None:
    person = make.make_person(store)
    token = make.make_session(store, person)
    with store.read() as tx:
        assert session_person(tx, token) == person
        for wrong in (None, "", token[:-1], token.upper()):
            assert session_person(tx, wrong) is None
        assert token not in str(tx.rows(sa.select(web_session)))
    clock.advance(SESSION_DAYS * DAY - 1)
    with store.read() as tx:
        assert session_person(tx, token) == person
    clock.advance(2)
    with store.begin() as tx:
        assert session_person(tx, token) is None
        open_session(tx, person.id)  # sweeps what is too old
        assert tx.scalar(sa.select(sa.func.count()).select_from(web_session)) == 1


@pytest.mark.parametrize("how", ["sign out", "new password", "disabled"])
def test_a_session_ends(store: Store, how: str) -> None:
    person, other = make.make_person(store), make.make_person(store)
    token, others = make.make_session(store, person), make.make_session(store, other)
    with store.begin() as tx:
        if how == "sign out":
            close_session(tx, token)
        elif how == "new password":
            set_password(tx, person.id, "hash")
        else:
            disable_person(tx, person.id)
        assert session_person(tx, token) is None
        assert session_person(tx, others) == other


def test_the_set_up_link_makes_the_first_admin_once(store: Store) -> None:
    with store.begin() as tx:
        assert not has_admin(tx)
        old = invite(tx, None)
        token = invite(tx, None)
        assert invited_person(tx, old) == (False, None)  # a new link ends the one before
        assert invited_person(tx, token) == (True, None)
        admin = use_invitation(tx, token, "hash", "root")
        assert (admin.name, admin.role, admin.has_password, has_admin(tx)) == ("root", Role.ADMIN, True, True)
        assert password_hash(tx, "root") == (admin.id, "hash")
        late = invite(tx, None)
    for used in (token, old, "made-up"):
        with pytest.raises(NotFound, match="used already or is too old"), store.begin() as tx:
            use_invitation(tx, used, "hash", "another")
    with pytest.raises(Conflict, match="an admin exists already"), store.begin() as tx:
        use_invitation(tx, late, "hash", "another")


def test_an_invitation_is_for_one_person_once_and_for_so_many_days(store: Store, clock: Any) -> None:
    person, other = make.make_person(store), make.make_person(store)
    with store.begin() as tx:
        token, late = invite(tx, person.id), invite(tx, other.id)
        assert invited_person(tx, token) == (True, person)
        assert use_invitation(tx, token, "hash").has_password
        assert invited_person(tx, token) == (False, None)
        assert token not in str(tx.rows(sa.select(invitation)))
    clock.advance(INVITATION_DAYS * DAY + 1)
    with pytest.raises(NotFound, match="too old"), store.begin() as tx:
        use_invitation(tx, late, "hash")


def test_one_link_used_by_two_at_once_serves_one(store: Store) -> None:
    with store.begin() as tx:
        token = invite(tx, None)
    found: list[Any] = []
    barrier = threading.Barrier(4)

    def use(name: str) -> None:
        barrier.wait()
        try:
            with store.begin() as tx:
                found.append(use_invitation(tx, token, "hash", name))
        except (NotFound, Conflict) as error:
            found.append(error)

    threads = [threading.Thread(target=use, args=(f"root {number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(not isinstance(each, Exception) for each in found) == 1
    with store.read() as tx:
        assert len(list_people(tx)) == 1


def test_the_last_admin_stays(store: Store) -> None:
    admin, other = make.make_person(store, Role.ADMIN), make.make_person(store, Role.RESEARCHER)
    for change in (lambda tx: disable_person(tx, admin.id), lambda tx: set_role(tx, admin.id, Role.ANNOTATOR)):
        with pytest.raises(Conflict, match="the only admin"), store.begin() as tx:
            change(tx)
    with store.begin() as tx:
        set_role(tx, other.id, Role.ADMIN)
        disable_person(tx, admin.id)
        assert {each.name: each.disabled_at is None for each in list_people(tx)} == {
            admin.name: False,
            other.name: True,
        }


def test_an_admin_who_can_sign_in_stays(store: Store) -> None:
    """Another one who has not chosen a password yet may never do so."""
    admin, invited = make.make_person(store, Role.ADMIN), make.make_person(store, Role.ADMIN)
    with store.begin() as tx:
        set_password(tx, admin.id, "hash")
    for change in (lambda tx: disable_person(tx, admin.id), lambda tx: set_role(tx, admin.id, Role.ANNOTATOR)):
        with pytest.raises(Conflict, match="the only admin who can sign in"), store.begin() as tx:
            change(tx)
    with store.begin() as tx:
        disable_person(tx, invited.id)
    other = make.make_person(store, Role.ADMIN)
    with store.begin() as tx:
        set_password(tx, other.id, "hash")
        set_role(tx, admin.id, Role.ANNOTATOR)


def test_two_admins_who_demote_each_other_leave_one(store: Store) -> None:
    one, two = make.make_person(store, Role.ADMIN), make.make_person(store, Role.ADMIN)
    both_have_looked, outcomes = threading.Barrier(2), list[object]()

    def demote(other: str) -> None:
        try:
            with store.begin() as tx:
                with contextlib.suppress(threading.BrokenBarrierError):  # SQLite lets one in at a time
                    both_have_looked.wait(0.5)
                set_role(tx, other, Role.ANNOTATOR)
            outcomes.append("demoted")
        except Conflict as error:
            outcomes.append(error)

    threads = [threading.Thread(target=demote, args=(each.id,)) for each in (one, two)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(each == "demoted" for each in outcomes) == 1
    with store.read() as tx:
        assert [each.role for each in list_people(tx)].count(Role.ADMIN) == 1


def test_what_ends_the_sessions_of_a_person(store: Store, clock: Clock) -> None:
    person, other = make.make_person(store), make.make_person(store, Role.ADMIN)
    theirs = token_hash(make.make_session(store, other))
    changes = {
        "disabled": lambda tx: disable_person(tx, person.id),
        "role": lambda tx: set_role(tx, person.id, Role.REVIEWER),
        "password": lambda tx: set_password(tx, person.id, "hash"),
    }
    for change in reversed(changes.values()):
        mine = token_hash(make.make_session(store, person))
        with store.begin() as tx:
            assert ended_sessions(tx, [mine, theirs, "unknown"]) == {"unknown"}
            change(tx)
            assert ended_sessions(tx, [mine, theirs]) == {mine}
    mine = token_hash(make.make_session(store, other))
    with store.begin() as tx:
        set_role(tx, other.id, Role.ADMIN)
        assert ended_sessions(tx, [mine, theirs]) == set(), "the same role again changes nothing"
        assert ended_sessions(tx, [f"{number}" for number in range(1200)]) == {f"{number}" for number in range(1200)}
    clock.advance(SESSION_DAYS * 86_400)
    with store.read() as tx:
        assert ended_sessions(tx, [mine, theirs]) == {mine, theirs}


def test_who_is_disabled_or_has_no_password_can_not_sign_in(store: Store) -> None:
    person = make.make_person(store)
    with store.begin() as tx:
        assert password_hash(tx, person.name) is None
        set_password(tx, person.id, "hash")
        assert password_hash(tx, person.name) == (person.id, "hash")
        disable_person(tx, person.id)
        assert password_hash(tx, person.name) is None
        assert password_hash(tx, "nobody") is None


def test_authors_of_imported_rankings_are_people_without_a_password(store: Store) -> None:
    project, other = make.make_project(store), make.make_project(store)
    with store.begin() as tx:
        ids = [external_annotator(tx, each.id, name) for each in (project, other) for name in ("ann", " ann\n", "")]
        assert len(set(ids)) == 4  # ann and unnamed in each project; white space makes nobody else
        assert list_people(tx) == []
        assert {each.is_external for each in list_people(tx, with_external=True)} == {True}
    with pytest.raises(Conflict), store.begin() as tx:
        set_password(tx, ids[0], "hash")


def test_a_project_of_its_own_settings(store: Store) -> None:
    with store.begin() as tx:
        made = create_project(tx, "p", k=9, overlap=2, skip_reasons=("\u96e3\u3057\u3044\x00",), max_skips=2)
        assert (made.k, made.overlap, made.skip_reasons, made.max_skips) == (9, 2, ("\u96e3\u3057\u3044",), 2)
        assert project_by_name(tx, "p") == project_by_name(tx, made.id) == get_project(tx, made.id) == made
        for wrong in ({"k": 1}, {"k": 13}, {"overlap": 0}, {"max_skips": 0}):
            with pytest.raises(InvalidInput):
                create_project(tx, "q", **wrong)
        with pytest.raises(NotFound, match="no project 'x'; there are: 'p'"):
            project_by_name(tx, "x")
        with pytest.raises(NotFound):
            set_guidelines(tx, "x", "g")


def test_two_clicks_on_create_make_one_project(store: Store) -> None:
    with store.begin() as tx:
        one = create_project(tx, "p", nonce="click")
        assert create_project(tx, "p", nonce="click") == one
        with pytest.raises(Conflict, match="a project named 'p' exists already"):
            create_project(tx, "p", nonce="another click")
    found: list[str] = []
    barrier = threading.Barrier(4)

    def click() -> None:
        barrier.wait()
        with store.begin() as tx:
            found.append(create_project(tx, "q", nonce="at once").id)

    threads = [threading.Thread(target=click) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(found)) == 1
    with store.read() as tx:
        assert [each.name for each in list_projects(tx)] == ["p", "q"]
