"""Projects: what is ranked, by how many people, under which guidelines; and which project the other pages work on."""

from __future__ import annotations

import streamlit as st

from app.actions.context import PROJECT_KEY, current_project, require, store
from app.widgets.base.page import ShownErrors, empty_state, go_to, nonce, page_head, renew_nonce, say_after_rerun
from app.widgets.base.problems import plain
from app.widgets.forms.config_form import config_form
from app.widgets.labels.pauses import pauses_panel
from app.words.values import count
from data.fields import from_dict, to_dict
from data.label_settings import LabelSettings
from data.labels.pauses import count_paused
from data.labels.projects import (
    DEFAULT_GUIDELINES,
    DEFAULT_SKIP_REASONS,
    MAX_K,
    MIN_K,
    get_project,
    list_projects,
    project_counts,
)
from data.records import Project, Role
from labeling.projects import change_project, new_project

FORM = "projects.new"


def render() -> None:
    require(Role.RESEARCHER)
    head = page_head("Projects")
    with store().read() as tx:
        projects = [(each, project_counts(tx, each.id)) for each in reversed(list_projects(tx))]
        n_paused = {each.id: count_paused(tx, each.id) for each, _ in projects}
    if not projects:
        text = "A project holds prompts, the responses sampled for them, and people's rankings."
        with empty_state("folder_open", "No project yet", text, "projects.empty"):
            if st.button("New project", icon=":material/add:", type="primary", key="projects.first"):
                _new_project()
        return
    if head.button("New project", icon=":material/add:", type="primary", key="projects.open_new"):
        _new_project()
    chosen = current_project()
    projects.sort(key=lambda each: chosen is None or each[0].id != chosen.id)  # the current one first
    with st.grid(2, min_column_width=300, key="projects.cards"):
        for project, counts in projects:
            _card(project, counts, n_paused[project.id], is_current=chosen is not None and chosen.id == project.id)


def _card(project: Project, counts: dict[str, int], n_paused: int, *, is_current: bool) -> None:
    with st.container(border=True, height="stretch", key=f"projects.card.{project.id}"):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.header(plain(project.name), anchor=False)
            if is_current:
                st.badge("current", icon=":material/check:", color="green")
        done, wanted = counts["slots_done"], counts["slots"]
        words = f"{done:,} of {count(wanted, 'ranking')} done" if wanted else "nothing to rank yet"
        st.progress(done / wanted if wanted else 0.0, text=words)
        st.caption(
            f"{count(counts['prompts'], 'prompt')} · {count(counts['responses'], 'response')} · "
            f"{count(counts['skips'], 'skip')} · {project.k} responses per prompt, "
            f"{count(project.overlap, 'annotator')} each"
        )
        if counts["tasks_set_aside"]:
            st.caption(f":material/block: {count(counts['tasks_set_aside'], 'task')} set aside after repeated skips")
        if n_paused and st.button(
            f"{count(n_paused, 'annotator')} paused",
            icon=":material/pause_circle:",
            key=f"projects.paused.{project.id}",
        ):
            _show_pauses(project.id)
        with st.container(horizontal=True):
            _lead_on(project, counts, is_current=is_current)
            if st.button("Settings", icon=":material/tune:", key=f"projects.settings.{project.id}"):
                _edit_settings(project.id)
            if st.button("Guidelines", icon=":material/edit_note:", key=f"projects.guidelines.{project.id}"):
                _edit_guidelines(project.id)


def _lead_on(project: Project, counts: dict[str, int], *, is_current: bool) -> None:
    """The one button that goes on from here: to work on this project, or to its next step."""
    if not is_current:
        st.button(
            "Choose", icon=":material/check:", key=f"projects.choose.{project.id}", on_click=_choose, args=(project.id,)
        )
        return
    screen, label = next_step(counts)
    if st.button(label, icon=":material/arrow_forward:", icon_position="right", key=f"projects.next.{project.id}"):
        go_to(screen)


def next_step(counts: dict[str, int]) -> tuple[str, str]:
    """The screen where a project's work goes on, and what to do there."""
    if not counts["prompts"]:
        return "prompts", "Import prompts"
    if not counts["tasks"]:
        return "prompts", "Sample responses"
    if not counts["rankings"]:
        return "rank", "Rank responses"
    return "snapshots", "Freeze a snapshot"


def _choose(project_id: str) -> None:
    st.session_state[PROJECT_KEY] = project_id


@st.dialog("New project", width="medium", icon=":material/add:")
def _new_project() -> None:
    project_form()


def project_form() -> None:
    """The form that makes a project."""
    who = require(Role.RESEARCHER)  # a dialog runs without its page
    key = nonce(FORM)
    with st.form(FORM, border=False):
        name = st.text_input("Name", max_chars=80, key=f"{FORM}.name")
        left, right = st.columns(2)
        k = left.number_input(
            "Responses per prompt",
            MIN_K,
            MAX_K,
            4,
            key=f"{FORM}.k",
            help="K: how many responses are sampled and ranked",
        )
        overlap = right.number_input(
            "Annotators per task", 1, 100, 1, key=f"{FORM}.overlap", help="Two or more let you measure agreement"
        )
        guidelines = st.text_area("Guidelines for annotators", DEFAULT_GUIDELINES, height=120, key=f"{FORM}.guidelines")
        reasons = st.text_area(
            "Reasons to skip, one a line", "\n".join(DEFAULT_SKIP_REASONS), height=120, key=f"{FORM}.reasons"
        )
        if not st.form_submit_button("Create project", type="primary", key=f"{FORM}.create.{key}"):
            return
    lines = _lines(reasons)
    made = None
    with ShownErrors():
        made = new_project(
            store(),
            who,
            name or "",
            k=int(k),
            overlap=int(overlap),
            guidelines=guidelines or "",
            skip_reasons=lines or DEFAULT_SKIP_REASONS,
            nonce=key,
        )
    if made is not None:
        _choose(made.id)
        renew_nonce(FORM)
        say_after_rerun("Project created")
        st.rerun()


@st.dialog("Guidelines", width="medium", icon=":material/edit_note:")
def _edit_guidelines(project_id: str) -> None:
    guidelines_form(project_id)


def guidelines_form(project_id: str) -> None:
    """The form that changes a project's guidelines; each change is a new version, which rankings name."""
    who = require(Role.RESEARCHER)  # a dialog runs without its page
    with store().read() as tx:
        project = get_project(tx, project_id)
    key = f"projects.edit.{project.id}.{project.guidelines_version}"
    with st.form(key, border=False):
        text = st.text_area("What annotators read", project.guidelines, height=280, key=f"{key}.text")
        st.caption(
            f"Version {project.guidelines_version}. A change makes a new version; each ranking records the version "
            "that its annotator saw."
        )
        if not st.form_submit_button("Save guidelines", type="primary", key=f"{key}.save"):
            return
    changed = None
    with ShownErrors():
        changed = change_project(store(), who, project.id, guidelines=text or "")
    if changed is not None:
        say_after_rerun(f"Guidelines saved as version {changed.guidelines_version}")
        st.rerun()


@st.dialog("Paused annotators", width="medium", icon=":material/pause_circle:")
def _show_pauses(project_id: str) -> None:
    pauses_panel(project_id)


@st.dialog("Settings for labelling", width="large", icon=":material/tune:")
def _edit_settings(project_id: str) -> None:
    settings_form(project_id)


def settings_form(project_id: str) -> None:
    """The form that changes what a project asks of its annotators. What was answered before stays as it is."""
    who = require(Role.RESEARCHER)  # a dialog runs without its page
    with store().read() as tx:
        project = get_project(tx, project_id)
    key = f"projects.set.{project.id}"
    with st.form(key, border=False):
        values = config_form(LabelSettings, key, initial=to_dict(project.settings))
        left, right = st.columns(2)
        flags = left.text_area(
            "Flags for responses, one a line", "\n".join(project.flags), height=160, key=f"{key}.flags"
        )
        reasons = right.text_area(
            "Reasons to skip, one a line", "\n".join(project.skip_reasons), height=160, key=f"{key}.reasons"
        )
        if not st.form_submit_button("Save settings", type="primary", key=f"{key}.save"):
            return
    changed = None
    with ShownErrors():
        settings = from_dict(LabelSettings, values)
        changed = change_project(
            store(), who, project.id, settings=settings, flags=_lines(flags), skip_reasons=_lines(reasons)
        )
    if changed is not None:
        say_after_rerun("Settings saved")
        st.rerun()


def _lines(text: str | None) -> tuple[str, ...]:
    return tuple(line.strip() for line in (text or "").splitlines() if line.strip())


if __name__ == "__main__":
    render()
