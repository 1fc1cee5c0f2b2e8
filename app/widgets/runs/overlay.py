"""Several runs over each other: further runs of the same kind are chosen, and what differs in their settings is told.

The choice stands in the address, so that a comparison can be sent to somebody and outlives a reload.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import streamlit as st

from app.actions.context import store
from app.widgets.runs.metric_chart import live_curves
from app.words.values import count, run_name, short_id, utc
from data.fields import describe
from data.records import Run
from data.runs.state import list_runs
from training.launch.kinds import CONFIGS, TRAINED, settings

PARAM = "over"
MAX_FURTHER = 4  # as many as the component has colours for, less the run's own
MAX_CHOICES = 200
NOT_THERE = "not set"


def show_curves(run: Run, key: str) -> None:
    """The curves of a run; of a run that trains, with further runs of its kind and project over them."""
    further = _choose(run) if run.kind in TRAINED else []
    runs = [run, *further]
    if further:
        _show_differences(runs, f"{key}.differences")
    live_curves(runs, key, is_active=any(not each.status.is_final for each in runs))


def _choose(run: Run) -> list[Run]:
    """The further runs that the researcher has chosen, or that the address names."""
    with store().read() as tx:
        found = list_runs(tx, project_id=run.project_id, kinds=(run.kind,), limit=MAX_CHOICES) if run.project_id else []
    others = {each.id: each for each in found if each.id != run.id}
    named = [word for word in st.query_params.get(PARAM, "").split(",") if word]
    usable = [word for word in dict.fromkeys(named) if word in others][:MAX_FURTHER]
    if not others:
        return []
    chosen = st.multiselect(
        "Lay further runs over this one",
        list(others),
        default=usable,
        max_selections=MAX_FURTHER,
        format_func=lambda each: choice_label(others[each]),
        placeholder=f"Up to {MAX_FURTHER} runs of the same kind",
        key=f"runs.over.{run.id}",
    )
    if lost := len(named) - len(usable):
        st.caption(
            f"{count(lost, 'run')} that the address names can't be laid over this one: only {MAX_FURTHER} others of "
            "its kind and project can."
        )
    if chosen:
        st.query_params[PARAM] = ",".join(chosen)
    else:
        st.query_params.pop(PARAM, None)
    return [others[each] for each in chosen]


def choice_label(run: Run) -> str:
    """A run in one line of a list. It never changes: the browser sends it back to say what was chosen."""
    return f"{run_name(run)}, queued {utc(run.created_at)}"


def _show_differences(runs: Sequence[Run], key: str) -> None:
    rows = differences(runs)
    if not rows:
        st.caption("These runs have the same configuration and learn from the same.")
        return
    st.caption(f"What differs in their configurations: {count(len(rows), 'field')}. All others are equal.")
    st.dataframe(
        pd.DataFrame(rows),
        hide_index=True,
        key=key,
        column_config={"field": "Field", **{run.id: run_name(run) for run in runs}},
        alt="What differs in the configurations of the runs",
    )


def differences(runs: Sequence[Run]) -> list[dict[str, str]]:
    """One row for each field whose values are not all equal: the field, and by a run's id what that run has."""
    settings = [_settings(run) for run in runs]
    names = list(dict.fromkeys(name for each in settings for name in each))
    return [
        {"field": name, **{run.id: str(each.get(name, NOT_THERE)) for run, each in zip(runs, settings, strict=True)}}
        for name in names
        if any(name not in each or each[name] != settings[0].get(name) for each in settings)
    ]


def _settings(run: Run) -> dict[str, Any]:
    """What a run was told: what it learns from, and its configuration in the order of its fields."""
    of = {"snapshot": run.snapshot_id, "reward model": run.reward_run_id}
    asked = settings(run)
    known = [info.name for info in describe(CONFIGS[run.kind]) if info.name in asked]
    names = known + [name for name in asked if name not in known]
    return {name: short_id(value) if value else "none" for name, value in of.items()} | {
        name: asked[name] for name in names
    }
