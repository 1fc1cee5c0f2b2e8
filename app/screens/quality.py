"""Quality: how far annotators agree, what that means for a reward model, and how each of them works."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import streamlit as st

from app.actions.context import require, store
from app.widgets.base.page import empty_state, go_to, need_project, page_head, remembered
from app.widgets.labels.agreement import agreement_cards, human_mark
from app.words.annotators import notes_of, nothing_words, p_words
from data.labels.adjudications import current_adjudications
from data.labels.projects import export_key, get_project
from data.labels.rankings import count_versions
from data.records import Project, Role
from labeling.snapshot.freeze import pseudonym

if TYPE_CHECKING:
    from labeling.judgement.pair_agreement import PairAgreement
    from labeling.review.adjudication import Disputed
    from labeling.review.agreement import Agreement, Share
    from labeling.work.checks import AnnotatorRow

KEY = "quality"
REFRESH_S = 15.0
Found = tuple["Agreement", list["AnnotatorRow"], list["Disputed"]]


def render() -> None:
    require(Role.RESEARCHER)
    page_head("Quality")
    project = need_project()
    if project is not None:
        st.fragment(_live, run_every=REFRESH_S)(project.id)


def _live(project_id: str) -> None:
    """The whole page, looked at again from time to time; it is computed anew when there are new answers."""
    require(Role.RESEARCHER)  # a fragment runs without its page
    with store().read() as tx:
        project = get_project(tx, project_id)
        n_versions = count_versions(tx, project.id)
        decisions = current_adjudications(tx, project.id)
    if not n_versions:
        text = "Agreement and the annotators' ways of working stand here as soon as somebody has ranked."
        empty_state("fact_check", "Nothing has been ranked yet", text, f"{KEY}.empty")
        return
    signature = (project.id, project.settings.adjudicate_below, n_versions, *(each.id for each in decisions))
    agreement, rows, waiting = remembered(f"{KEY}.found", signature, lambda: _compute(project.id))
    st.header("Agreement", anchor=False)
    agreement_cards(agreement)
    st.header("The mark for reward models", anchor=False)
    human_mark(project, agreement)
    st.header("Disputed tasks", anchor=False)
    _disputed(project, agreement, len(waiting), {each.task_id for each in decisions})
    st.header("Annotators", anchor=False)
    _annotators(agreement, _chosen(project, rows), len(rows))


def _compute(project_id: str) -> Found:
    from labeling.review.adjudication import disputed_tasks  # these load SciPy and evalica, which no other page needs
    from labeling.review.agreement import project_agreement
    from labeling.work.checks import annotator_table

    return (
        project_agreement(store(), project_id),
        annotator_table(store(), project_id),
        disputed_tasks(store(), project_id),
    )


def _disputed(project: Project, agreement: Agreement, n_waiting: int, decided: set[str]) -> None:
    below = project.settings.adjudicate_below
    st.caption(
        f"Waiting for a decision, with an agreement below {below:.0%} or split on whether any response is acceptable: "
        f"{n_waiting:,}. Decided: {len(decided):,}."
    )
    if st.button("Adjudicate", icon=":material/gavel:", key=f"{KEY}.adjudicate", disabled=not (n_waiting or decided)):
        go_to("adjudicate")
    if not agreement.worst_tasks:
        st.caption("No task divides its annotators.")
        return
    table = pd.DataFrame(
        {
            "agreement": [round(each.agreement or 0.0, 3) for each in agreement.worst_tasks],
            "comparisons": [each.n for each in agreement.worst_tasks],
            "decided": [each.name in decided for each in agreement.worst_tasks],
            "prompt": [" ".join(agreement.prompts[each.name].split())[:300] for each in agreement.worst_tasks],
        }
    )
    event = st.dataframe(
        table,
        hide_index=True,
        on_select="rerun",
        selection_mode="single-row",
        key=f"{KEY}.worst",
        column_config={
            "agreement": st.column_config.NumberColumn("Agreement", format="percent"),
            "comparisons": "Comparisons",
            "decided": st.column_config.CheckboxColumn("Decided"),
            "prompt": "Prompt",
        },
        alt="The tasks on which annotators agree least",
    )
    if rows := event["selection"]["rows"]:
        go_to("adjudicate", task=agreement.worst_tasks[rows[0]].name)


def _chosen(project: Project, rows: list[AnnotatorRow]) -> list[AnnotatorRow]:
    """The one annotator whom the address names by the pseudonym that reports and exports use, or all."""
    wanted = st.query_params.get("annotator")
    if not wanted:
        return rows
    with store().read() as tx:
        key = export_key(tx, project.id)
    chosen = [row for row in rows if pseudonym(key, row.annotator_id) == wanted]
    if chosen:
        st.text(f"Annotator {wanted} of reports and exports")
    else:
        st.text(f"Nobody who ranks in {project.name!r} goes by {wanted} in reports and exports; all are shown.")
    if st.button("All annotators", icon=":material/group:", type="tertiary", key=f"{KEY}.all"):
        st.query_params.pop("annotator", None)
        st.rerun()
    return chosen or rows


def _annotators(found: Agreement, rows: list[AnnotatorRow], n_annotators: int) -> None:
    shares = {each.name: each for each in found.annotators}
    st.dataframe(
        pd.DataFrame([_work(row) for row in rows]),
        hide_index=True,
        key=f"{KEY}.work",
        column_config={"Median s": st.column_config.NumberColumn("Median s", format="%.1f")},
        alt="How much and how fast each annotator works",
    )
    st.dataframe(
        pd.DataFrame([_habits(row, shares.get(row.name)) for row in rows]),
        hide_index=True,
        key=f"{KEY}.habits",
        column_config={
            name: st.column_config.NumberColumn(name, format="percent")
            for name in ("Agrees with others", "Prefers longer")
        },
        alt="How far each annotator agrees with others, and what they favour",
    )
    st.caption(
        "Gold: pair agreement with what was expected, on so many tasks. Self: with their own ranking of a task that "
        "came twice. Hasty: answered faster than the texts can be read. Per minute: the most answers within one "
        "minute. Place p: of rank 1 falling so unevenly on the places of the screen by chance. Prefers longer: share "
        "of rankings whose longer responses won more pairs than they lost; its p by a sign test. Annotators never see "
        "this table."
    )
    noted = [(row, notes) for row in rows if (notes := notes_of(row, shares.get(row.name), n_annotators))]
    if not noted:
        whose = "this annotator's" if len(rows) < n_annotators else "anybody's"
        st.success(nothing_words(rows, whose), icon=":material/check_circle:")
    for row, notes in noted:
        with st.container(border=True, key=f"{KEY}.notes.{row.annotator_id}"):
            st.text(row.name)
            for note in notes:
                st.caption(f":material/flag: {note}")


def _work(row: AnnotatorRow) -> dict[str, Any]:
    return {
        "Annotator": row.name,
        "Ranked": row.n_ranked,
        "Unacceptable": row.n_unacceptable,
        "Skipped": row.n_skipped,
        "Late": row.n_late,
        "Median s": row.median_seconds,
        "Hasty": f"{row.n_hasty} of {row.n_timed}",
        "Per minute": row.busiest_minute,
        "Paused": row.is_paused,
    }


def _checked(found: PairAgreement) -> str:
    return "no task" if found.value is None else f"{found.value:.0%} on {found.n_items}"


def _habits(row: AnnotatorRow, share: Share | None) -> dict[str, Any]:
    length = row.length
    return {
        "Annotator": row.name,
        "Agrees with others": None if share is None or share.agreement is None else round(share.agreement, 3),
        "Comparisons": share.n if share else 0,
        "Gold": _checked(row.gold),
        "Self": _checked(row.consistency),
        "Place p": f"{p_words(row.position.p_value)}, n {row.position.n}",
        "Prefers longer": None if length.share is None else round(length.share, 3),
        "95 %": "undefined" if length.low is None else f"{length.low:.0%} to {length.high:.0%}",
        "Longer p": f"{p_words(length.p_value)}, n {length.n}",
    }


if __name__ == "__main__":
    render()
