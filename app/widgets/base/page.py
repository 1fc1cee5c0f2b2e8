"""What every page shares: its head, its empty state, links to the other pages, and the nonce of a form."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import pandas as pd
import streamlit as st

from app.actions.context import current_project
from app.widgets.base.problems import show_problem
from data.errors import ProjectError
from data.records import Project

SCREENS = Path(__file__).parents[2] / "screens"
TOAST_KEY = "page.toast"
T = TypeVar("T")


def screen(name: str) -> str:
    """The page file that Streamlit knows a screen by."""
    return str(SCREENS / f"{name}.py")


def page_head(title: str) -> Any:
    """Draw the title; returns the place at its right for the page's one main button."""
    _show_toast()
    row = st.container(horizontal=True, vertical_alignment="bottom", key=f"head.{title}")
    row.title(title, anchor=False)
    row.space("stretch")
    return row


def say_after_rerun(text: str) -> None:
    """Show a short message after the next rerun: what was done is stored before anything is drawn."""
    st.session_state[TOAST_KEY] = text


def go_to(name: str, **params: str) -> None:
    """Open another screen."""
    st.switch_page(screen(name), query_params=params)


def empty_state(icon: str, title: str, text: str, key: str) -> Any:
    """A framed place that says what would be here; returns it, for the button that leads on."""
    box = st.container(border=True, horizontal_alignment="center", key=key)
    box.space("small")
    box.markdown(f":material/{icon}: **{title}**", text_alignment="center")
    box.caption(text, text_alignment="center")
    return box


def need_project() -> Project | None:
    """The project that the page works on, or None after leading to where one is made."""
    project = current_project()
    if project is None:
        _show_toast()
        with empty_state("folder_open", "No project yet", "A project holds prompts, responses and rankings.", "none"):
            if st.button("Go to projects", type="primary", key="page.to_projects"):
                go_to("projects")
    return project


def nonce(key: str) -> str:
    """What makes a form's submission the same however often its button is pressed; part of the button's key."""
    return str(st.session_state.setdefault(f"{key}.nonce", uuid.uuid4().hex))


def renew_nonce(key: str) -> None:
    """The form was used: the next submission is another one."""
    st.session_state.pop(f"{key}.nonce", None)


def remembered(key: str, signature: Any, compute: Callable[[], T]) -> T:
    """What `compute` gives, computed anew only when the signature of what it depends on changes."""
    known = st.session_state.get(key)
    if known is None or known[0] != signature:
        with st.spinner("Counting"):
            known = (signature, compute())
        st.session_state[key] = known
    found: T = known[1]
    return found


class ShownErrors:
    """`with ShownErrors():` shows what a person can mend in its place, and goes on with the page."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _where: TracebackType | None) -> bool:
        if not isinstance(error, ProjectError):
            return False
        show_problem(error)
        return True


def from_address(key: str, name: str, options: list[str]) -> None:
    """Let the address preset a widget the first time it is drawn."""
    wanted = st.query_params.get(name)
    if key not in st.session_state and wanted in options:
        st.session_state[key] = wanted


def times(seconds: list[float | None]) -> Any:
    """Times of the store for a table."""
    return pd.to_datetime(pd.Series(seconds, dtype="float64"), unit="s", utc=True)


def _show_toast() -> None:
    if text := st.session_state.pop(TOAST_KEY, None):
        st.toast(text, icon=":material/check_circle:")
