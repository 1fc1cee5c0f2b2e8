"""What went wrong, in words: the one place where an error becomes something on the screen."""

from __future__ import annotations

import logging
import re
import secrets

import streamlit as st

from data.errors import ProjectError

_KEPT = "problems.kept"
log = logging.getLogger(__name__)
_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")


def plain(text: str) -> str:
    """Text for the places of Streamlit that read Markdown (messages, labels): every sign of it escaped."""
    return _PUNCTUATION.sub(r"\\\1", text)


def show_problem(error: ProjectError) -> None:
    """Show an error that a person can do something about."""
    st.error(plain(str(error)), icon=":material/error:")


def keep_problem(error: ProjectError) -> None:
    """Keep what a callback met for the run that follows: a callback runs before its page, and must draw nothing."""
    st.session_state[_KEPT] = str(error)


def show_kept_problem() -> None:
    """Show what a callback met, once."""
    if problem := st.session_state.pop(_KEPT, None):
        st.error(plain(problem), icon=":material/error:")


def show_unexpected(error: Exception) -> bool:
    """Show an error that no screen caught: ours as it is, any other one by a number that the server's log has too.

    Streamlit calls this, also for what runs in a fragment; True keeps it from showing the error itself.
    """
    if isinstance(error, ProjectError):
        show_problem(error)
        return True
    number = secrets.token_hex(3)
    log.error("error %s on a screen", number, exc_info=error)
    st.error(f"Something went wrong. The server's log has the details under error {number}.", icon=":material/error:")
    return True
