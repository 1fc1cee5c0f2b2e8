"""The app's script without a browser: `open_app(person, page)` runs the entry as that person, on the test's store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import streamlit as st
from factories import make_session
from streamlit.testing.v1 import AppTest

from app.actions import context
from data.files.paths import HOME_VARIABLE, STORE_VARIABLE, Home
from data.labels.people import token_hash
from data.records import Person
from data.store import Store

MAIN = Path(__file__).resolve().parents[2] / "app" / "main.py"
OpenApp = Callable[..., AppTest]


@pytest.fixture
def open_app(sqlite_store: Store, home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenApp]:
    """`page` is the name of a file in app/screens; without one, the page where everybody arrives."""
    monkeypatch.setenv(HOME_VARIABLE, str(home.root))
    monkeypatch.setenv(STORE_VARIABLE, sqlite_store.url)

    def open_page(person: Person, page: str | None = None) -> AppTest:
        app = AppTest.from_file(str(MAIN), default_timeout=30)
        session = token_hash(make_session(sqlite_store, person))
        app.user = {"id": person.id, "role": person.role.value, "session": session}
        app.run()
        if page is not None:
            app.switch_page(f"screens/{page}.py").run()
        return app

    yield open_page
    context.opened_store(sqlite_store.url).close()
    st.cache_resource.clear()


@pytest.fixture
def run_lines(open_app: OpenApp, sqlite_store: Store) -> Callable[[Person, str], AppTest]:
    """Run some lines of Python as the person: for what the entry does not reach, such as the form in a dialog."""
    assert open_app  # it has set the environment, and clears up

    def run(person: Person, lines: str) -> AppTest:
        app = AppTest.from_string(lines, default_timeout=30)
        session = token_hash(make_session(sqlite_store, person))
        app.user = {"id": person.id, "role": person.role.value, "session": session}
        return app.run()

    return run
