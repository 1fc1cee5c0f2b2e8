"""The entry that Streamlit runs: who is looking, which pages they have, what all pages share."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

# This file runs once for every page that is drawn, in many threads: it changes nothing that they share. Only where
# nobody has settled the path before the first of them (`streamlit run app/main.py`), that one does.
if "app" not in sys.modules:
    import_module("script_folder").settle()

import streamlit as st
from streamlit.navigation.page import Page

from app.actions.context import PROJECT_KEY, current_project, find_person, store
from app.widgets.base.account import account, signed_out
from app.widgets.base.problems import show_kept_problem, show_problem
from data.errors import ProjectError
from data.labels.projects import list_projects
from data.records import Person, Role

_APP = Path(__file__).resolve().parent
_SCREENS = _APP / "screens"
_ICON = str(_APP / "static" / "icon.png")  # a file: Streamlit would fetch a named one from another site
# Section, file, title, icon, the role that it takes.
_PAGES = (
    ("Annotate", "rank", "Rank", ":material/swap_vert:", Role.ANNOTATOR),
    ("Data", "projects", "Projects", ":material/folder:", Role.RESEARCHER),
    ("Data", "prompts", "Prompts and responses", ":material/chat:", Role.RESEARCHER),
    ("Data", "quality", "Quality", ":material/fact_check:", Role.RESEARCHER),
    ("Data", "adjudicate", "Adjudicate", ":material/gavel:", Role.RESEARCHER),
    ("Data", "snapshots", "Snapshots", ":material/inventory_2:", Role.RESEARCHER),
    ("Training", "train", "Train", ":material/model_training:", Role.RESEARCHER),
    ("Training", "runs", "Runs", ":material/monitoring:", Role.RESEARCHER),
    ("Training", "compare", "Compare", ":material/compare:", Role.RESEARCHER),
    ("Admin", "people", "People", ":material/group:", Role.ADMIN),
)


def _pages(who: Person) -> dict[str, list[Page]]:
    """The pages of a role. Each screen asks for the role again: what is not listed here is not yet closed."""
    sections: dict[str, list[Page]] = {
        "": [st.Page(_SCREENS / "home.py", title="Home", url_path="home", default=True, visibility="hidden")]
    }
    if who.role.covers(Role.RESEARCHER):  # other pages lead to it
        sections[""].append(
            st.Page(_SCREENS / "one_ranking.py", title="Ranking", url_path="ranking", visibility="hidden")
        )
    for section, name, title, icon, role in _PAGES:
        file = _SCREENS / f"{name}.py"
        if who.role.covers(role) and file.is_file():
            sections.setdefault(section, []).append(st.Page(file, title=title, icon=icon, url_path=name))
    return sections


def _choose_project() -> None:
    """The project chooser: what is chosen is kept in the session and in the address."""
    chosen = current_project()
    if chosen is None:
        return
    with store().read() as tx:
        names = {project.id: project.name for project in list_projects(tx)}
    key = "main.project"
    st.session_state[key] = chosen.id

    def keep() -> None:
        st.session_state[PROJECT_KEY] = st.session_state[key]

    st.selectbox("Project", list(names), format_func=lambda project_id: names[project_id], key=key, on_change=keep)
    if st.query_params.get("project") != chosen.id:
        st.query_params["project"] = chosen.id


def _render() -> None:
    st.set_page_config(page_title="rankloop", page_icon=_ICON, layout="wide")
    st.logo(_ICON, size="large")
    who = find_person()
    if who is None:
        signed_out()
        show_kept_problem()
        return
    page = st.navigation(_pages(who))
    with st.sidebar:
        _choose_project()
        account(who)
    show_kept_problem()
    page.run()


try:
    _render()
except ProjectError as error:
    show_problem(error)
