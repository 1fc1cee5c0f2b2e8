"""Admins add people, change roles, close accounts, and hand out the links with which passwords are chosen."""

from __future__ import annotations

from urllib.parse import urlsplit

import streamlit as st

from app.actions import people as use
from app.actions.context import require, signed_in, store
from app.widgets.base.page import ShownErrors
from app.widgets.base.problems import keep_problem, plain
from data.errors import ProjectError
from data.labels.people import invited_person, list_people
from data.records import Person, Role

LINK_KEY = "people.link"
_ROLES = {
    Role.ANNOTATOR: "annotator: ranks",
    Role.REVIEWER: "reviewer: ranks, and sees how others ranked",
    Role.RESEARCHER: "researcher: everything but people",
    Role.ADMIN: "admin: everything",
}


def render() -> None:
    you = require(Role.ADMIN)
    st.title("People", anchor=False)
    _show_link()
    _add_form(you)
    with store().read() as tx:
        people = list_people(tx)
    for person in sorted(people, key=lambda each: each.disabled_at is not None):
        _row(person, you)


def _add_form(you: Person) -> None:
    with st.form("people.add", clear_on_submit=True):
        name_box, role_box, button = st.columns([3, 3, 1], vertical_alignment="bottom")
        name = name_box.text_input("Name", key="people.new_name", placeholder="Who is to be added?")
        role = role_box.selectbox("Role", list(_ROLES), format_func=lambda each: _ROLES[each], key="people.new_role")
        if button.form_submit_button("Add", type="primary", width="stretch"):
            with ShownErrors():
                person, token = use.add(store(), you, name or "", role)
                st.session_state[LINK_KEY] = (person.name, token)
                st.rerun()


def _row(person: Person, you: Person) -> None:
    with st.container(border=True, horizontal=True, vertical_alignment="center", key=f"people.row.{person.id}"):
        with st.container(gap=None):
            st.text(person.name + (" (you)" if person.id == you.id else ""))
            st.caption(_state(person))
        if person.disabled_at is not None:
            return
        key = f"people.role.{person.id}"
        st.session_state.setdefault(key, person.role)
        st.selectbox(
            "Role",
            list(Role),
            format_func=str,
            key=key,
            on_change=_change_role,
            args=(person,),
            label_visibility="collapsed",
            width=160,
            help="A change signs them out everywhere",
        )
        if st.button("New link", key=f"people.link.{person.id}", help="A link with which they choose a new password"):
            with ShownErrors():
                st.session_state[LINK_KEY] = (person.name, use.new_link(store(), you, person.id))
                st.rerun()
        with st.popover("Disable", key=f"people.disable.{person.id}"):
            st.text(f"{person.name} can't sign in any more, and their open pages close. What they have ranked stays.")
            st.button("Disable this account", key=f"people.disable_now.{person.id}", on_click=_disable, args=(person,))


def _state(person: Person) -> str:
    if person.disabled_at is not None:
        return "disabled"
    return "can sign in" if person.has_password else "has not chosen a password yet"


def _show_link() -> None:
    """The link that was just made. It is stored nowhere, so it can't be shown again later."""
    if LINK_KEY not in st.session_state:
        return
    name, token = st.session_state[LINK_KEY]
    with store().read() as tx:
        is_good, _ = invited_person(tx, token)
    if not is_good:
        del st.session_state[LINK_KEY]
        spent = "was used, or was ended by a newer link, a change of role or the end of the account"
        st.info(plain(f"The link for {name} {spent}."), icon=":material/info:")
        return
    address = urlsplit(st.context.url or "http://localhost")
    with st.container(border=True, key="people.new_link"):
        st.text(
            f"Send this link to {name}. It works once, within seven days, and is not shown again. "
            "No earlier link of theirs works any more; a change of role ends this one too."
        )
        st.code(f"{address.scheme}://{address.netloc}/invite?token={token}", language=None)
        if st.button("Done", key="people.link_done"):
            del st.session_state[LINK_KEY]
            st.rerun()


def _change_role(person: Person) -> None:
    key = f"people.role.{person.id}"
    chosen = Role(st.session_state[key])
    try:
        use.change_role(store(), signed_in(), person.id, chosen)
    except ProjectError as error:
        st.session_state[key] = person.role
        keep_problem(error)


def _disable(person: Person) -> None:
    try:
        use.disable(store(), signed_in(), person.id)
    except ProjectError as error:
        keep_problem(error)


if __name__ == "__main__":
    render()
