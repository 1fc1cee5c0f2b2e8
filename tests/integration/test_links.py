"""One open link per person: what spends a link, in every order, and by several at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import factories as make
import pytest
import sqlalchemy as sa

from data.errors import Conflict, NotFound
from data.labels.people import (
    add_person,
    disable_person,
    has_admin,
    invite,
    invited_person,
    list_people,
    password_hash,
    set_password,
    set_role,
    use_invitation,
)
from data.records import Person, Role
from data.store import Store, Tx
from data.store.tables import invitation
from data.store.tables import person as person_table


def n_open(store: Store) -> int:
    with store.read() as tx:
        return len(tx.rows(sa.select(invitation.c.token_hash).where(invitation.c.used_at.is_(None))))


def assert_dead(store: Store, token: str) -> None:
    with store.read() as tx:
        assert invited_person(tx, token) == (False, None)
    with pytest.raises((NotFound, Conflict)), store.begin() as tx:
        use_invitation(tx, token, "stolen", "Eve")


SPENDS: dict[str, Callable[[Tx, Person], object]] = {
    "a new link": lambda tx, person: invite(tx, person.id),
    "the use of a newer link": lambda tx, person: use_invitation(tx, invite(tx, person.id), "new"),
    "a password": lambda tx, person: set_password(tx, person.id, "new"),
    "a higher role": lambda tx, person: set_role(tx, person.id, Role.ADMIN),
    "a lower role": lambda tx, person: set_role(tx, person.id, Role.ANNOTATOR),
    "disabling": lambda tx, person: disable_person(tx, person.id),
}


@pytest.mark.parametrize("what", SPENDS)
def test_a_link_is_spent_by(store: Store, what: str) -> None:
    make.make_person(store, Role.ADMIN)  # so that nobody here is the last one
    person, other = make.make_person(store, Role.RESEARCHER), make.make_person(store)
    with store.begin() as tx:
        token, others = invite(tx, person.id), invite(tx, other.id)
    with store.begin() as tx:
        SPENDS[what](tx, person)
    assert_dead(store, token)
    with store.read() as tx:
        assert invited_person(tx, others) == (True, other), "somebody else's link is left alone"
        assert "stolen" not in str(password_hash(tx, person.name))


def test_a_role_that_stays_spends_nothing(store: Store) -> None:
    person = make.make_person(store, Role.RESEARCHER)
    with store.begin() as tx:
        token = invite(tx, person.id)
        set_role(tx, person.id, Role.RESEARCHER)
        assert invited_person(tx, token) == (True, person)


@pytest.mark.parametrize("how", ["the set-up link", "an invitation", "a role", "a password"])
def test_no_set_up_link_is_good_once_there_is_an_admin(store: Store, how: str) -> None:
    """Nor afterwards, when that admin is gone: whoever kept it must not come in again."""
    with store.begin() as tx:
        if how == "a role":
            ann = add_person(tx, "Ann", Role.RESEARCHER)
            set_password(tx, ann.id, "hash")
        elif how != "the set-up link":
            ann = add_person(tx, "Ann", Role.ADMIN)
        kept = invite(tx, None)
        assert invited_person(tx, kept) == (True, None)
        if how == "the set-up link":
            ann = use_invitation(tx, kept, "hash", "Ann")
        elif how == "an invitation":
            use_invitation(tx, invite(tx, ann.id), "hash")
        elif how == "a role":
            set_role(tx, ann.id, Role.ADMIN)
        else:
            set_password(tx, ann.id, "hash")
        assert has_admin(tx)
    assert_dead(store, kept)
    with store.begin() as tx:
        # by no way of ours: the last admin who can sign in can't be disabled
        tx.execute(sa.update(person_table).where(person_table.c.id == ann.id).values(disabled_at=1.0))
        assert not has_admin(tx)
    assert_dead(store, kept)


@pytest.mark.parametrize("closed", ["disabled", "imported"])
def test_who_can_not_sign_in_gets_no_link(store: Store, closed: str) -> None:
    """Asked where the link is made: an open page may not know yet that somebody was disabled."""
    with store.begin() as tx:
        person = add_person(tx, "Ann", Role.ANNOTATOR, is_external=closed == "imported")
        if closed == "disabled":
            disable_person(tx, person.id)
    with pytest.raises(Conflict, match="the account is closed, or came with an import"), store.begin() as tx:
        invite(tx, person.id)
    assert n_open(store) == 0


def at_once(store: Store, *changes: Callable[[Tx], object]) -> list[object]:
    """What came of each change, all of them begun together, each in its own transaction."""
    barrier = threading.Barrier(len(changes))
    found: list[object] = [None] * len(changes)

    def work(place: int) -> None:
        barrier.wait()
        try:
            with store.begin() as tx:
                found[place] = changes[place](tx)
        except (NotFound, Conflict) as error:
            found[place] = error

    threads = [threading.Thread(target=work, args=(place,)) for place in range(len(changes))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.parametrize("for_whom", ["a person", "the first admin"])
def test_links_made_at_once_leave_one_open(store: Store, for_whom: str) -> None:
    person_id = make.make_person(store).id if for_whom == "a person" else None
    tokens = at_once(store, *[lambda tx: invite(tx, person_id)] * 6)
    assert all(isinstance(each, str) for each in tokens), tokens
    with store.read() as tx:
        assert sum(invited_person(tx, str(token))[0] for token in tokens) == 1
    assert n_open(store) == 1


def test_two_set_up_links_and_an_invitation_used_at_once_make_one_admin(store: Store) -> None:
    """Two links as two servers could have printed them in an older release."""
    with store.begin() as tx:
        ann = add_person(tx, "Ann", Role.ADMIN)
        invited, first = invite(tx, ann.id), invite(tx, None)
        hidden = sa.update(invitation).where(invitation.c.person_id.is_(None)).values(used_at=1.0)
        tx.execute(hidden)
        second = invite(tx, None)
        tx.execute(sa.update(invitation).where(invitation.c.person_id.is_(None)).values(used_at=None))
    came = at_once(
        store,
        lambda tx: use_invitation(tx, first, "hash", "Eve"),
        lambda tx: use_invitation(tx, second, "hash", "Mallory"),
        lambda tx: use_invitation(tx, invited, "hash"),
    )
    with store.read() as tx:
        admins = [each for each in list_people(tx) if each.role is Role.ADMIN and each.has_password]
    assert len(admins) - sum(each.name == "Ann" for each in admins) <= 1, "at most one by a set-up link"
    assert sum(isinstance(each, Person) for each in came) == len(admins)


@pytest.mark.parametrize("end", ["a new link", "a higher role", "disabling"])
def test_a_use_and_what_ends_the_link_at_once_agree(store: Store, end: str) -> None:
    """Either the link was used first, or it was spent: never a password by a spent link. Nobody waits for ever."""
    make.make_person(store, Role.ADMIN)
    for number in range(5):
        person = make.make_person(store)
        with store.begin() as tx:
            token = invite(tx, person.id)
        use = partial(use_invitation, token=token, new_hash="by the link")
        used, ended = at_once(store, use, partial(SPENDS[end], person=person))
        assert not isinstance(ended, Exception), (number, ended)
        assert isinstance(used, Person | NotFound), (number, used)
        assert_dead(store, token)
        with store.read() as tx:
            has_password = next(each.has_password for each in list_people(tx) if each.id == person.id)
        assert has_password == isinstance(used, Person)
