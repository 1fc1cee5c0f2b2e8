"""What every screen needs: the store, the home folder, who is looking; and the names of session keys.

The server sets the environment; nothing mutable lives at module level, because all sessions share the modules.
"""

from __future__ import annotations

import os
from typing import NoReturn

import streamlit as st

from data.errors import NotAllowed
from data.files.paths import HOME_VARIABLE, STORE_VARIABLE, Home, open_home
from data.labels.people import session_person_by_hash
from data.labels.projects import list_projects
from data.records import Person, Project, Role
from data.store import Store, open_store

PROJECT_KEY = "context.project_id"


@st.cache_resource
def opened_store(url: str) -> Store:
    return open_store(url, migrate=False)


@st.cache_resource
def opened_home(root: str | None) -> Home:
    return open_home(root)


def home() -> Home:
    """The home folder of this server."""
    return opened_home(os.environ.get(HOME_VARIABLE))


def store() -> Store:
    """The store of this server: one for all sessions."""
    return opened_store(os.environ.get(STORE_VARIABLE) or home().store_url)


def person() -> Person:
    """Who is looking, asked of the store anew at each run: signing out and disabling reach open pages at once."""
    who = find_person()
    if who is None:
        _signed_out()
    return who


def find_person() -> Person | None:
    """The same, or None for somebody whose session has ended. Draws nothing, so that a callback may ask."""
    hashed = st.user.get("session")
    if not hashed:
        return None
    with store().read() as tx:
        return session_person_by_hash(tx, str(hashed))


def signed_in() -> Person:
    """Who acts, for a callback, which runs before its page: draws nothing. Raises NotAllowed."""
    who = find_person()
    if who is None:
        raise NotAllowed("you are signed out, so nothing was changed; sign in again")
    return who


def require(role: Role) -> Person:
    """Who is looking, if their role covers `role`. Raises NotAllowed."""
    who = person()
    if not who.role.covers(role):
        raise NotAllowed(f"this page needs the role {role}; you are {who.role}")
    return who


def current_project() -> Project | None:
    """The project that the screens work on: chosen in the side bar, kept in the address."""
    with store().read() as tx:
        projects = {project.id: project for project in list_projects(tx)}
    if not projects:
        return None
    chosen = st.session_state.get(PROJECT_KEY) or st.query_params.get("project")
    if chosen not in projects:
        chosen = next(reversed(projects))
    st.session_state[PROJECT_KEY] = chosen
    return projects[chosen]


def _signed_out() -> NoReturn:
    st.warning("You are signed out.")
    st.link_button("Sign in", "/signin")
    st.stop()
