"""One ranking, as it was given: where reports and tables lead that name it. Annotators go by their pseudonyms."""

from __future__ import annotations

import streamlit as st

from app.actions.context import require, store
from app.widgets.base.page import ShownErrors, empty_state, go_to, page_head
from app.widgets.labels.one_ranking import show_decided, show_ranking
from data.labels.adjudications import find_adjudication
from data.labels.projects import export_key
from data.labels.rankings import find_ranking, later_version
from data.labels.tasks import get_task
from data.records import Adjudication, Role
from labeling.snapshot.freeze import pseudonym

KEY = "ranking"


def render() -> None:
    require(Role.RESEARCHER)
    head = page_head("Ranking")
    ids = [each for each in st.query_params.get("id", "").split(",") if each]
    run_id = st.query_params.get("run")
    if run_id and head.button("Back to the run", icon=":material/arrow_back:", key=f"{KEY}.back"):
        go_to("runs", run=run_id)
    if not ids:
        text = "A run's report leads here from its worst disagreements."
        empty_state("swap_vert", "No ranking is named", text, f"{KEY}.empty")
    if len(ids) > 1:
        st.caption(f"The {len(ids)} rankings of one task that the snapshot merged.")
    for ranking_id in ids:
        with ShownErrors():
            _one(ranking_id)


def _one(ranking_id: str) -> None:
    """A ranking, or the decision of a researcher, which a snapshot uses like one. Raises NotFound for neither."""
    with store().read() as tx:
        answer = find_adjudication(tx, ranking_id) or find_ranking(tx, ranking_id)
        task = get_task(tx, answer.task_id)
        key = export_key(tx, task.project_id)
        later = later_version(tx, ranking_id)
    if isinstance(answer, Adjudication):
        show_decided(answer, task, pseudonym(key, answer.decided_by))
        if st.button("Open the case", icon=":material/gavel:", type="tertiary", key=f"{KEY}.to_case.{ranking_id}"):
            go_to("adjudicate", task=task.id)
    else:
        show_ranking(answer, task, pseudonym(key, answer.annotator_id))
        if later is not None:
            st.caption("The annotator has replaced this version; snapshots made since then use the later one.")
            if st.button("Open the later one", icon=":material/update:", type="tertiary", key=f"{KEY}.later.{later}"):
                go_to("one_ranking", id=later)
    if st.button(
        "Open its prompt", icon=":material/open_in_new:", type="tertiary", key=f"{KEY}.to_prompt.{ranking_id}"
    ):
        go_to("prompts", prompt=task.prompt_id)


if __name__ == "__main__":
    render()
