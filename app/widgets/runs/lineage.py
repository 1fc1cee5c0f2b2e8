"""The line from a policy to the gestures it was made of, and back: reward model, snapshot, rankings, prompts."""

from __future__ import annotations

from itertools import islice

import pandas as pd
import streamlit as st

from app.actions.context import home, store
from app.widgets.base.page import ShownErrors, go_to
from app.widgets.base.problems import plain
from app.words.values import count, run_name, short_id
from data.errors import InvalidInput
from data.files.snapshots import GROUPS
from data.records import Run
from data.runs.lineage import Source, ancestors, by_annotator, descendants, snapshots_with, sources_of

MOST_SHOWN = 500
KEY = "lineage"


def show_lineage(run: Run) -> None:
    """Everything that went into a run: runs and snapshots as links, then people, rankings and prompts."""
    with store().read() as tx:
        line = ancestors(tx, run.id)
    st.caption("What this run was made of, the nearest first. Each opens its own page.")
    with st.container(horizontal=True):
        for ancestor in line.runs[1:]:
            name = f"{run_name(ancestor)}, best" if ancestor.id in line.by_best else run_name(ancestor)
            if st.button(name, icon=":material/arrow_back:", key=f"{KEY}.run.{ancestor.id}"):
                go_to("runs", run=ancestor.id)
        for each_id in line.snapshot_ids:
            name = f"Snapshot {short_id(each_id)}"
            if st.button(name, icon=":material/inventory_2:", key=f"{KEY}.snapshot.{each_id}"):
                go_to("snapshots", snapshot=each_id)
    for snapshot_id in line.snapshot_ids:
        with ShownErrors():
            _snapshot(snapshot_id)


def _snapshot(snapshot_id: str) -> None:
    if not (home().snapshot_folder(snapshot_id) / GROUPS).is_file():
        raise InvalidInput(f"the files of snapshot {snapshot_id} are not on this machine")
    people = by_annotator(home(), snapshot_id)
    st.header(f"Snapshot {short_id(snapshot_id)}", anchor=False)
    st.caption(f"{count(people.total(), 'ranking')} by {count(len(people), 'annotator')}")
    table = pd.DataFrame(people.most_common(), columns=["annotator", "rankings"])
    st.dataframe(table, hide_index=True, key=f"{KEY}.people.{snapshot_id}", alt="Rankings by annotator")
    sources = list(islice(sources_of(home(), snapshot_id), MOST_SHOWN))
    event = st.dataframe(
        sources_frame(sources),
        hide_index=True,
        on_select="rerun",
        selection_mode=("single-row", "single-cell"),
        key=f"{KEY}.rankings.{snapshot_id}",
        column_config={"prompt": st.column_config.TextColumn("prompt", width="large")},
        alt="Rankings of the snapshot",
    )
    more = f" The first {MOST_SHOWN:,} are shown." if people.total() > MOST_SHOWN else ""
    st.caption(f"Click a ranking to open its prompt, with what people said of it.{more}")
    rows = [*event["selection"]["rows"], *(row for row, _ in event["selection"]["cells"])]
    if rows and rows[0] < len(sources):
        go_to("prompts", prompt=sources[rows[0]].prompt_id)


def sources_frame(sources: list[Source]) -> pd.DataFrame:
    """Rankings as a table."""
    rows = [
        (", ".join(map(short_id, each.ranking_ids)), ", ".join(each.annotators), each.split,
         " ".join(map(str, each.ranks)), " ".join(each.prompt.split())[:300])
        for each in sources
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["ranking", "annotator", "side", "ranks (1 is best)", "prompt"])


def show_made_from_snapshot(project_id: str, snapshot_id: str) -> None:
    """The other direction: every run that a snapshot went into."""
    with store().read() as tx:
        runs = descendants(tx, project_id, snapshot_id)
    if not runs:
        st.caption("No run has learnt from it yet.")
        return
    st.caption("Made from it, the oldest first")
    with st.container(horizontal=True):
        for run in runs[:40]:
            if st.button(run_name(run), icon=":material/arrow_forward:", key=f"{KEY}.made.{run.id}"):
                go_to("runs", run=run.id)


def show_made_from_prompt(project_id: str, prompt_id: str) -> None:
    """The other direction for a prompt: the snapshots that hold a ranking of it; each leads on to its runs."""
    with store().read() as tx:
        snapshot_ids = snapshots_with(tx, home(), project_id, prompt_id)
    if not snapshot_ids:
        return
    st.caption("Its rankings are in")
    with st.container(horizontal=True):
        for snapshot_id in snapshot_ids[:20]:
            label = plain(f"Snapshot {short_id(snapshot_id)}")
            if st.button(label, icon=":material/inventory_2:", key=f"{KEY}.holds.{snapshot_id}"):
                go_to("snapshots", snapshot=snapshot_id)
