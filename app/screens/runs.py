"""Runs: the list of a project's runs, and one run (its id is in the address) with all that it reports."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from app.context import home, require, store
from app.widgets.metric_chart import live_curves
from app.widgets.page import ShownErrors, empty_state, go_to, link, need_project, page_head, times
from app.widgets.run_details import show_config, show_events, show_log, show_notes, show_results, show_samples
from app.widgets.run_status import BADGES, REFRESH_S, look, run_status
from app.widgets.words import KIND_WORDS, run_name, short_id
from data.records import Project, Role, Run, RunKind, RunStatus
from data.runs import get_run, list_runs

KEY = "runs"
TABS = ("Curves", "Samples", "Events", "Configuration", "Log")
COLOURS = ["gray", "blue", "green", "red", "orange"]  # of queued, running, succeeded, failed, cancelled
WRITERS = (RunKind.PPO, RunKind.SFT, RunKind.DPO)


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
    with store().read() as tx:
        runs = list_runs(tx, project_id=project.id)
    event = st.dataframe(
        runs_frame(runs),
        hide_index=True,
        on_select="rerun",
        selection_mode="single-row",
        key=f"{KEY}.table.{project.id}",
        column_config={
            "run": "Run",
            "kind": "Kind",
            "status": st.column_config.MultiselectColumn("Status", options=list(BADGES), color=COLOURS),
            "progress": st.column_config.ProgressColumn("Progress", min_value=0, max_value=1, format="percent"),
            "step": "Step",
            "started": st.column_config.DatetimeColumn("Queued", format="distance"),
            "learns from": "Learns from",
            "problem": st.column_config.TextColumn("Problem", width="medium"),
        },
        alt="Runs of the project, the newest first",
    )
    st.caption("Tick a run to open it.")
    if rows := event["selection"]["rows"]:
        st.query_params["run"] = runs[rows[0]].id
        st.rerun()


def runs_frame(runs: list[Run]) -> pd.DataFrame:
    """The list of runs as a table."""
    return pd.DataFrame(
        {
            "run": [short_id(run.id) for run in runs],
            "kind": [KIND_WORDS[run.kind] for run in runs],
            "status": [[run.status.value] for run in runs],
            "progress": [_share(run) for run in runs],
            "step": [f"{run.step:,} of {run.total_steps:,}" if run.total_steps else f"{run.step:,}" for run in runs],
            "started": times([run.created_at for run in runs]),
            "learns from": [_source(run) for run in runs],
            "problem": [run.error_message or "" for run in runs],
        }
    )


def _share(run: Run) -> float:
    if run.status is RunStatus.SUCCEEDED:
        return 1.0
    return min(run.step / run.total_steps, 1.0) if run.total_steps else 0.0


def _source(run: Run) -> str:
    if run.reward_run_id is not None:
        return f"reward model {short_id(run.reward_run_id)}"
    return f"snapshot {short_id(run.snapshot_id)}" if run.snapshot_id else ""


def _one(run_id: str) -> None:
    with store().read() as tx:
        run = get_run(tx, run_id)
    st.button("All runs", icon=":material/arrow_back:", type="tertiary", key=f"{KEY}.back", on_click=_close)
    head = page_head(run_name(run))
    with head:
        _next_steps(run)
    _lineage(run)
    run_status(run.id, f"{KEY}.status")
    show_notes(run.id)
    show_results(run)
    _tabs(run)


def _tabs(run: Run) -> None:
    tabs = dict(zip(TABS, st.tabs(TABS, key=f"{KEY}.tab", bind="query-params"), strict=True))
    open_tab = next(name for name, tab in tabs.items() if tab.open)
    is_active = not look(run.id).run.status.is_final
    with tabs[open_tab]:
        if open_tab == "Curves":
            live_curves(run.id, f"{KEY}.curves.{run.id}", is_active=is_active)
        elif open_tab == "Samples":
            show_samples(run.id, f"{KEY}.samples.{run.id}", is_active=is_active)
        elif open_tab == "Events":
            show_events(run.id)
        elif open_tab == "Configuration":
            show_config(run)
        else:
            show_log(run.id, is_active=is_active)


def _close() -> None:
    st.query_params.pop("run", None)


def _next_steps(run: Run) -> None:
    """What can be done with a run that has succeeded."""
    if run.status is not RunStatus.SUCCEEDED:
        return
    if (home().run_folder(run.id) / "model").is_dir():
        st.link_button(
            "Download model", f"/download/run/{run.id}/model", icon=":material/download:", key=f"{KEY}.model.{run.id}"
        )
    if run.kind is RunKind.REWARD and st.button("Train a policy", type="primary", key=f"{KEY}.to_ppo"):
        go_to("train", kind=RunKind.PPO.value, reward=run.id, snapshot=run.snapshot_id or "")
    if run.kind in WRITERS and st.button("Compare", type="primary", icon=":material/compare:", key=f"{KEY}.to_compare"):
        go_to("compare", model_b=f"run:{run.id}", reward=run.reward_run_id or "")
    if run.kind is RunKind.SAMPLE and st.button("See responses", type="primary", key=f"{KEY}.to_prompts"):
        go_to("prompts")


def _lineage(run: Run) -> None:
    """Where the run comes from and what was made from it, as links."""
    with store().read() as tx:
        others = list_runs(tx, project_id=run.project_id, limit=200) if run.project_id else []
    models = {str(run.config.get(name)) for name in ("model", "model_a", "model_b")}
    start = [each for each in others if f"run:{each.id}" in models]
    made = [each for each in others if each.reward_run_id == run.id or f"run:{run.id}" in each.config.values()]
    with st.container(horizontal=True, vertical_alignment="center"):
        if run.snapshot_id:
            name = f"Snapshot {short_id(run.snapshot_id)}"
            link("snapshots", name, icon=":material/inventory_2:", snapshot=run.snapshot_id)
        for each in start:
            link("runs", f"Starts from {run_name(each)}", icon=":material/history:", run=each.id)
        if run.reward_run_id:
            link("runs", f"Reward model {short_id(run.reward_run_id)}", icon=":material/trophy:", run=run.reward_run_id)
        for each in made[:6]:
            link("runs", f"Used by {run_name(each)}", icon=":material/arrow_forward:", run=each.id)


if __name__ == "__main__":
    render()
