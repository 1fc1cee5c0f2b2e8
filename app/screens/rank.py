"""The page on which annotators rank. All of it is one component, so that nothing jumps while they work."""

from __future__ import annotations

import streamlit as st

from app.actions.context import current_project, require
from app.widgets.labels.ranker import ask_with_drafts, ranker
from data.records import Role


def render() -> None:
    require(Role.ANNOTATOR)
    project = current_project()
    if project is None:
        st.info("There is no project yet, so there is nothing to rank.")
        return
    ask_with_drafts()
    ranker(project.id)


if __name__ == "__main__":
    render()
