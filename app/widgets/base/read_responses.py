"""The offer to have a frozen model read what it has not read yet: what the instant reward model stands on."""

from __future__ import annotations

import streamlit as st

from app.actions.context import person, store
from app.actions.runs import queue_run
from app.widgets.base.page import ShownErrors, nonce, renew_nonce, say_after_rerun
from data.records import Project, RunKind
from training.launch.kinds import CONFIGS


def offer_reading(project: Project, words: str, key: str) -> None:
    """Say in words what has not been read, with the button for the run that reads it."""
    st.caption(words)
    once = nonce(key)
    if st.button("Read responses", icon=":material/auto_stories:", key=f"{key}.read.{once}"):
        run = None
        with ShownErrors():
            config = CONFIGS[RunKind.FEATURES]()
            run = queue_run(store(), person(), RunKind.FEATURES, config, project_id=project.id, nonce=once)
        if run is not None:
            renew_nonce(key)
            say_after_rerun("A run reads the responses; this page follows it")
            st.rerun()
