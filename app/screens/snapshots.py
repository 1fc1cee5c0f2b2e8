"""Snapshots and export: see what a snapshot would hold, freeze it, write it out for other libraries."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from app.actions.context import home, require, store
from app.widgets.base.models import snapshot_label
from app.widgets.base.page import (
    ShownErrors,
    empty_state,
    go_to,
    need_project,
    nonce,
    page_head,
    renew_nonce,
    say_after_rerun,
    times,
)
from app.widgets.base.problems import plain
from app.widgets.forms.config_form import config_form
from app.widgets.runs.details import facts_table
from app.widgets.runs.lineage import show_made_from_snapshot
from app.words.values import count, field_label, flatten, number, short_id
from data.fields import from_dict
from data.files.snapshots import list_snapshots
from data.labels.adjudications import current_adjudications
from data.labels.projects import project_counts
from data.records import Person, Project, Role, Snapshot
from labeling.snapshot.export import COLUMN_NOTES, FORMATS, export_snapshot
from labeling.snapshot.freeze import Plan, SnapshotConfig, freeze_snapshot, plan_snapshot

KEY = "snapshots"
MAIN_COUNTS = ("rankings_used", "pairs", "prompts", "annotators", "ties", "prompts_eval", "pairs_eval", "rankings_late")
LEFT_OUT_WORDS = {
    "skipped": "skipped by the annotator",
    "unacceptable": "in which no response is acceptable",
    "overruled": "of tasks on which a researcher has decided",
    "all_tied": "with all responses tied, so without a pair",
    "evenly_split": "of tasks whose annotators are evenly split on every pair",
    "extra": "that came after the task had all its annotators",
    "gold": "given to gold tasks",
    "repeat": "silent repeats",
    "replaced_by_an_edit": "replaced by a later edit",
}


def render() -> None:
    who = require(Role.RESEARCHER)
    page_head("Snapshots and export")
    project = need_project()
    if project is None:
        return
    with store().read() as tx:
        snapshots = list_snapshots(tx, project.id)
        counts = project_counts(tx, project.id)
        decided = [each.id for each in current_adjudications(tx, project.id)]
        now = tx.now()
    if not counts["rankings"] and not snapshots:
        text = "A snapshot freezes rankings and the preference pairs in them, for training and for export."
        with empty_state("inventory_2", "Nothing has been ranked yet", text, f"{KEY}.empty"):
            if st.button("Rank responses", type="primary", key=f"{KEY}.to_rank"):
                go_to("rank")
        return
    with st.container(border=True, key=f"{KEY}.plan"):
        st.header("New snapshot", anchor=False)
        _plan(project, counts, decided, who)
    st.header("Snapshots", anchor=False)
    if not snapshots:
        st.caption("None yet. A snapshot never changes; every run names the one it learnt from.")
        return
    chosen = _table(snapshots)
    with st.container(border=True, key=f"{KEY}.details"):
        _details(chosen, snapshot_label(chosen, now))


def _plan(project: Project, counts: dict[str, int], decided: list[str], who: Person) -> None:
    """The dry run, made anew when its settings, the number of rankings or the decisions change; and the button that
    freezes it."""
    values = config_form(SnapshotConfig, f"{KEY}.config.{project.id}")
    with ShownErrors():
        config = from_dict(SnapshotConfig, values)
        signature = (project.id, config, counts["rankings"], counts["skips"], *decided)
        known = st.session_state.get(f"{KEY}.planned")
        if known is None or known[0] != signature:
            with st.spinner("Counting"):
                known = (signature, plan_snapshot(store(), project.id, config))
            st.session_state[f"{KEY}.planned"] = known
        plan: Plan = known[1]
        show_counts(plan.counts)
        _examples(plan)
        key = nonce(KEY)
        with st.container(horizontal=True):
            is_sent = st.button(
                "Freeze snapshot",
                type="primary",
                icon=":material/ac_unit:",
                key=f"{KEY}.freeze.{key}",
                disabled=not plan.counts["pairs"],
            )
            if st.button("Count again", icon=":material/refresh:", key=f"{KEY}.again"):
                st.session_state.pop(f"{KEY}.planned")
                st.rerun()
        if is_sent:
            with st.spinner("Freezing"):
                made = freeze_snapshot(store(), who, home(), project.id, config, nonce=key)
            renew_nonce(KEY)
            say_after_rerun(f"Snapshot {short_id(made.id)} frozen")
            st.query_params["snapshot"] = made.id
            st.rerun()


def show_counts(counts: dict[str, Any]) -> None:
    """Everything that is kept, and everything that is left out with its reason."""
    with st.grid(4, min_column_width=150):
        for name in MAIN_COUNTS:
            st.metric(field_label(name.replace("_eval", "_held_out")), number(counts.get(name, 0)), border=True)
    st.caption(sizes_words(counts))
    words = left_out_words(counts)
    if words:
        st.warning(words, icon=":material/filter_alt:")
    else:
        st.caption("No ranking is left out.")


def left_out_words(counts: dict[str, Any]) -> str:
    """The rankings that a snapshot leaves out, by reason; empty if there are none."""
    left_out = counts.get("left_out", {})
    names = [name for name in (*LEFT_OUT_WORDS, *left_out) if left_out.get(name)]
    parts = [f"{left_out[name]:,} {LEFT_OUT_WORDS.get(name, name.replace('_', ' '))}" for name in dict.fromkeys(names)]
    return f"Rankings left out: {'; '.join(parts)}." if parts else ""


def sizes_words(counts: dict[str, Any]) -> str:
    """How many responses the rankings are of, and how many pairs nobody compared."""
    sizes = counts.get("responses_per_ranking", {})
    parts = [f"{count(how_many, 'ranking')} of {k} responses" for k, how_many in sizes.items()]
    if adjudicated := counts.get("adjudicated"):
        parts.append(f"{adjudicated:,} of them a researcher's decision on a task")
    if not_compared := counts.get("not_compared"):
        parts.append(f"{count(not_compared, 'pair')} within a rest that was left in no order, so not compared")
    if evenly_split := counts.get("evenly_split"):
        parts.append(f"{count(evenly_split, 'pair')} on which annotators are evenly split")
    if (accuracy := counts.get("human_pair_accuracy")) is not None:
        parts.append(f"on the held-out side one person has {accuracy:.1%} of another's pairs right")
    return "; ".join(parts)


def _examples(plan: Plan) -> None:
    if not plan.examples:
        return
    with st.expander(f"{count(len(plan.examples), 'pair')} as an example", key=f"{KEY}.examples"):
        for place, example in enumerate(plan.examples):
            with st.container(border=True, key=f"{KEY}.example.{place}"):
                st.caption("Prompt")
                st.text(example["prompt"])
                for column, side in zip(st.columns(2), ("chosen", "rejected"), strict=True):
                    column.caption(side.capitalize())
                    column.text(example[side])


def _table(snapshots: list[Snapshot]) -> Snapshot:
    """The list of snapshots; returns the one that is open: chosen here, named in the address, or the newest."""
    table = pd.DataFrame(
        {
            "snapshot": [short_id(each.id) for each in snapshots],
            "created": times([each.created_at for each in snapshots]),
            "rankings": [each.counts.get("rankings_used") for each in snapshots],
            "pairs": [each.counts.get("pairs") for each in snapshots],
            "held out": [each.counts.get("prompts_eval") for each in snapshots],
            "left out": [sum(each.counts.get("left_out", {}).values()) for each in snapshots],
            "hash": [each.content_hash[:12] for each in snapshots],
        }
    )
    event = st.dataframe(
        table,
        hide_index=True,
        on_select="rerun",
        selection_mode="single-row",
        key=f"{KEY}.table.{len(snapshots)}",
        column_config={
            "snapshot": "Snapshot",
            "created": st.column_config.DatetimeColumn("Created", format="distance"),
            "rankings": "Rankings",
            "pairs": "Pairs",
            "held out": st.column_config.NumberColumn("Prompts held out"),
            "left out": st.column_config.NumberColumn("Left out"),
            "hash": st.column_config.TextColumn("Content hash"),
        },
        alt="Snapshots of the project",
    )
    by_id = {each.id: each for each in snapshots}
    if rows := event["selection"]["rows"]:
        st.query_params["snapshot"] = snapshots[rows[0]].id
    return by_id.get(st.query_params.get("snapshot", ""), snapshots[0])


def _details(snapshot: Snapshot, label: str) -> None:
    st.header(f"Snapshot {label}", anchor=False)
    st.caption(f"{sizes_words(snapshot.counts)}. {left_out_words(snapshot.counts)}")
    with st.container(horizontal=True):
        if st.button("Train on it", icon=":material/model_training:", key=f"{KEY}.train.{snapshot.id}"):
            go_to("train", snapshot=snapshot.id)
        st.link_button(
            "Download files", f"/download/snapshot/{snapshot.id}/", icon=":material/download:", key=f"{KEY}.files"
        )
    with st.expander("All counts, settings and hash", key=f"{KEY}.facts"):
        facts = {"id": snapshot.id, "content hash": snapshot.content_hash, **snapshot.config}
        facts_table(facts | flatten(snapshot.counts), f"{KEY}.facts.{snapshot.id}")
    show_made_from_snapshot(snapshot.project_id, snapshot.id)
    _export(snapshot)


def _export(snapshot: Snapshot) -> None:
    st.header("Export for other libraries", anchor=False)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        format_name = st.selectbox("Format", list(FORMATS), key=f"{KEY}.format", width=220)
        key = nonce(f"{KEY}.export.{snapshot.id}.{format_name}")
        name = f"{snapshot.id}-{format_name}-{key[:6]}"
        target = home().exports / name
        if not target.exists() and st.button("Export", icon=":material/ios_share:", key=f"{KEY}.export.{name}"):
            with ShownErrors(), st.spinner("Writing"):
                export_snapshot(home(), snapshot, format_name, target)
        if target.exists():
            st.link_button(
                "Download export", f"/download/export/{name}", icon=":material/download:", key=f"{KEY}.get.{name}"
            )
    st.caption(plain(COLUMN_NOTES[format_name]))


if __name__ == "__main__":
    render()
