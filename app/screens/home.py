"""Where everybody arrives: leads a newcomer to a first project, and everybody else to the page of their role."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from app.actions.context import PROJECT_KEY, current_project, person, store
from app.demo.project import create_demo_project
from data.records import Person, Role

_HERE = Path(__file__).parent


def render() -> None:
    who = person()
    if current_project() is None:
        _first_steps(who)
        return
    page = _HERE / "projects.py"
    leads = who.role.covers(Role.RESEARCHER) and page.is_file()
    st.switch_page(page if leads else _HERE / "rank.py")


def _first_steps(who: Person) -> None:
    st.title("Welcome to rankloop", anchor=False)
    if not who.role.covers(Role.RESEARCHER):
        st.info("There is no project yet. As soon as a researcher has made one, you can rank here.")
        return
    st.text(
        "Rank responses of a language model, train a reward model on the rankings, and let PPO improve the model by it."
    )
    demo, own = st.columns(2)
    with demo.container(border=True, height="stretch"):
        st.subheader("Look around first", anchor=False)
        st.text("Everyday prompts with four responses each, sampled from a small open model. Nothing is downloaded.")
        if st.button("Start with the demo project", type="primary", key="home.demo"):
            st.session_state[PROJECT_KEY] = create_demo_project(store(), who).id
            st.switch_page(_HERE / "rank.py")
    with own.container(border=True, height="stretch"):
        st.subheader("Bring your own prompts", anchor=False)
        st.text("Make a project, import prompts, and sample responses from your own model or import them too.")
        if (_HERE / "projects.py").is_file() and st.button("New project", key="home.new"):
            st.switch_page(_HERE / "projects.py")


if __name__ == "__main__":
    render()
