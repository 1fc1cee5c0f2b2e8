"""Runs: the list of a project's runs, and one run (its id is in the address) with all that it reports."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from app.actions.context import current_project, require, store
from app.widgets.base.page import ShownErrors, empty_state, go_to, need_project, page_head, times
from app.widgets.base.problems import plain
from app.widgets.run_page.panels import KEY, NEXT_STEPS, RESULTS, TABS, has_succeeded, panels_of
from app.widgets.runs.details import show_notes
from app.widgets.runs.overlay import PARAM
from app.widgets.runs.status import BADGES, REFRESH_S, run_status
from app.words.values import run_name, short_id
from data.labels.projects import get_project
from data.records import Project, Role, Run, RunKind, RunStatus
from data.runs.best_policy import best_name
from data.runs.lineage import parents_of, starts_of
from data.runs.state import get_run, list_runs
from training.launch.kinds import KINDS

COLOURS = ["gray", "blue", "green", "red", "orange"]  # of queued, running, succeeded, failed, cancelled


def render() -> None:
    require(Role.RESEARCHER)
    wanted = st.query_params.get("run")
    if wanted:
        with ShownErrors():
            _one(wanted)
        return
    head = page_head("Runs")
    project = need_project()
    if project is None:
        return
    if head.button("New run", icon=":material/add:", type="primary", key=f"{KEY}.new"):
        go_to("train")
    with store().read() as tx:
        runs = list_runs(tx, project_id=project.id)
    if not runs:
        text = "Sampling, training and comparing are runs. Each keeps its settings, its curves and its log."
        with empty_state("monitoring", "No runs yet", text, f"{KEY}.empty"):
            if st.button("Sample responses", type="primary", key=f"{KEY}.to_sample"):
                go_to("prompts", **{"prompts.tab": "Sample responses"})
        return
    is_active = any(not run.status.is_final for run in runs)
    st.fragment(_table, run_every=REFRESH_S if is_active else None)(project)


def _table(project: Project) -> None:
    require(Role.RESEARCHER)  # a fragment runs without its page
    with store().read() as tx:
        runs = list_runs(tx, project_id=project.id)
    event = st.dataframe(
        runs_frame(runs),
        hide_index=True,
        on_select="rerun",
        selection_mode=("single-row", "single-cell"),
        key=f"{KEY}.table.{project.id}",
        column_config={
            "run": "Run",
            "kind": "Kind",
            "status": st.column_config.MultiselectColumn("Status", options=list(BADGES), color=COLOURS),
            "progress": st.column_config.ProgressColumn("Progress", min_value=0, max_value=100, format="%.0f%%"),
            "step": "Step",
            "started": st.column_config.DatetimeColumn("Queued", format="distance"),
            "learns from": "Learns from",
        },
        alt="Runs of the project, the newest first",
    )
    st.caption("Click a run to open it.")
    chosen = [*event["selection"]["rows"], *(row for row, _ in event["selection"]["cells"])]
    if chosen and chosen[0] < len(runs):
        st.query_params["run"] = runs[chosen[0]].id
        st.rerun()


def runs_frame(runs: list[Run]) -> pd.DataFrame:
    """The list of runs as a table."""
    return pd.DataFrame(
        {
            "run": [short_id(run.id) for run in runs],
            "kind": [KINDS[run.kind].title for run in runs],
            "status": [[run.status.value] for run in runs],
            "progress": [100 * _share(run) for run in runs],
            "step": [f"{run.step:,} of {run.total_steps:,}" if run.total_steps else f"{run.step:,}" for run in runs],
            "started": times([run.created_at for run in runs]),
            "learns from": [_source(run) for run in runs],
        }
    )


def _share(run: Run) -> float:
    if run.status is RunStatus.SUCCEEDED:
        return 1.0
    return min(run.step / run.total_steps, 1.0) if run.total_steps else 0.0


def _source(run: Run) -> str:
    if run.reward_run_id is not None and not KINDS[run.kind].may_be_evaluated:
        return f"reward model {short_id(run.reward_run_id)}"
    return f"snapshot {short_id(run.snapshot_id)}" if run.snapshot_id else ""


def _one(run_id: str) -> None:
    with store().read() as tx:
        run = get_run(tx, run_id)
    st.button("All runs", icon=":material/arrow_back:", type="tertiary", key=f"{KEY}.back", on_click=_close)
    head = page_head(run_name(run))
    with head:
        for panel in panels_of(NEXT_STEPS, run).values() if has_succeeded(run) else ():
            panel.show(run)
    _say_if_elsewhere(run)
    _lineage(run)
    run_status(run.id, f"{KEY}.status")
    show_notes(run.id)
    for panel in panels_of(RESULTS, run).values():
        panel.show(run)
    _tabs(run)


def _tabs(run: Run) -> None:
    panels = panels_of(TABS, run)
    tabs = dict(zip(panels, st.tabs(list(panels), key=f"{KEY}.tab", bind="query-params"), strict=True))
    open_tab = next(name for name, tab in tabs.items() if tab.open)
    with tabs[open_tab]:
        panels[open_tab].show(run)


def _say_if_elsewhere(run: Run) -> None:
    chosen = current_project()
    if run.project_id is not None and chosen is not None and chosen.id != run.project_id:
        with store().read() as tx:
            name = get_project(tx, run.project_id).name
        st.caption(f"Of another project: {plain(name)}")


def _close() -> None:
    for name in ("run", PARAM):
        st.query_params.pop(name, None)


def _lineage(run: Run) -> None:
    """Where the run comes from and what was made from it, as links."""
    with store().read() as tx:
        others = list_runs(tx, project_id=run.project_id, limit=200) if run.project_id else []
    names, before = starts_of(run), set(parents_of(run)) - {run.reward_run_id}
    start = [each for each in others if each.id in before]
    users = [each for each in others if run.id in parents_of(each)]
    with st.container(horizontal=True, vertical_alignment="center"):
        if run.snapshot_id:
            name = f"Snapshot {short_id(run.snapshot_id)}"
            _leads_to("snapshots", "snapshot", run.snapshot_id, name, ":material/inventory_2:")
        for other in start:
            role = "Compares" if KINDS[run.kind].compares else "Starts from"
            role = "Also scored by" if other.kind is RunKind.REWARD else role
            label = f"{role} {run_name(other)}{', best' if best_name(other.id) in names else ''}"
            _leads_to("runs", "run", other.id, label, ":material/history:")
        if run.reward_run_id:
            name = f"Reward model {short_id(run.reward_run_id)}"
            _leads_to("runs", "run", run.reward_run_id, name, ":material/trophy:")
        for each in users[:6]:
            label = f"{'Best used' if best_name(run.id) in starts_of(each) else 'Used'} by {run_name(each)}"
            _leads_to("runs", "run", each.id, label, ":material/arrow_forward:")


def _leads_to(screen: str, param: str, wanted_id: str, label: str, icon: str) -> None:
    if st.button(label, icon=icon, type="tertiary", key=f"{KEY}.to.{param}.{wanted_id}"):
        go_to(screen, **{param: wanted_id})


if __name__ == "__main__":
    render()
