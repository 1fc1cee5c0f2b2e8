"""Adjudicate: tasks whose annotators disagree, one after the other; a researcher decides, and says why."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from app.actions.context import require, store
from app.widgets.base.page import (
    ShownErrors,
    empty_state,
    go_to,
    need_project,
    page_head,
    remembered,
    say_after_rerun,
    times,
)
from app.widgets.labels.case import show_case
from app.widgets.labels.decision_form import decision_form, show_decision
from app.words.values import count, order_words
from data.labels.adjudications import current_adjudications
from data.labels.people import get_person
from data.labels.rankings import count_versions, prompt_beginnings
from data.records import Adjudication, Person, Project, Role
from labeling.review.adjudication import Case, Disputed, disputed_tasks, open_case

KEY = "adjudicate"
MAX_LISTED = 500


def render() -> None:
    who = require(Role.RESEARCHER)
    head = page_head("Adjudicate")
    project = need_project()
    if project is None:
        return
    if head.button("Quality", icon=":material/fact_check:", key=f"{KEY}.to_quality"):
        go_to("quality")
    with store().read() as tx:
        n_versions, decided = count_versions(tx, project.id), current_adjudications(tx, project.id)
        names = {each.decided_by: get_person(tx, each.decided_by).name for each in decided}
    below = project.settings.adjudicate_below
    st.caption(
        f"Tasks whose annotators agree on less than {below:.0%} of their comparisons (a setting of the project), or of "
        "whom some rank and others say that no response is acceptable, wait here. Snapshots use what you decide in "
        "place of the annotators' answers, which stay stored as they are. Annotators never see it."
    )
    signature = (project.id, below, n_versions, decided[0].id if decided else None)
    waiting = remembered(f"{KEY}.queue", signature, lambda: disputed_tasks(store(), project.id))
    wanted = st.query_params.get("task")
    task_id = wanted or (waiting[0].task_id if waiting else None)
    if task_id is None:
        _nothing_waits(project)
    else:
        _list_waiting(waiting, task_id)
        case = None
        with ShownErrors():
            case = open_case(store(), project.id, task_id)
        if case is None:
            st.query_params.pop("task", None)  # of another project, say: the next rerun shows what waits here
        else:
            _case(project, who, case, names, is_named=wanted is not None)
    if decided:
        _list_decided(decided, names)


def _nothing_waits(project: Project) -> None:
    text = "Every task that two or more people ranked is decided, or agreed on well enough."
    if project.settings.adjudicate_below == 0:
        text = "The project asks for no adjudication: its setting is 0 %."
    elif project.overlap == 1:
        text = "The project asks for one annotator per task: where nobody else ranks it, nobody can disagree."
    empty_state("balance", "Nothing to decide", text, f"{KEY}.empty")


def _prompts(task_ids: list[str]) -> list[str]:
    with store().read() as tx:
        found = prompt_beginnings(tx, task_ids)
    return [found[each] for each in task_ids]


def _list_waiting(waiting: list[Disputed], task_id: str) -> None:
    if not waiting:
        st.caption("No task waits.")
        return
    with st.expander(f"{count(len(waiting), 'task')} waiting, the least agreed first", key=f"{KEY}.waiting"):
        shown = waiting[:MAX_LISTED]
        table = pd.DataFrame(
            {
                "agreement": [each.agreement for each in shown],
                "comparisons": [each.n for each in shown],
                "rankings": [each.n_rankings for each in shown],
                "unacceptable": [each.n_unacceptable for each in shown],
                "prompt": _prompts([each.task_id for each in shown]),
                "again": [each.is_again for each in shown],
            }
        )
        event = st.dataframe(
            table,
            hide_index=True,
            on_select="rerun",
            selection_mode="single-row",
            key=f"{KEY}.waiting.{len(waiting)}.{task_id}",
            column_config={
                "agreement": st.column_config.NumberColumn("Agreement", format="percent"),
                "comparisons": "Comparisons",
                "rankings": "Rankings",
                "unacceptable": st.column_config.NumberColumn("None acceptable", help="so many say so"),
                "prompt": "Prompt",
                "again": st.column_config.CheckboxColumn("Changed since decided"),
            },
            alt="Tasks that wait for a decision",
        )
        if rows := event["selection"]["rows"]:
            _look_at(shown[rows[0]].task_id)


def _look_at(task_id: str) -> None:
    st.query_params["task"] = task_id
    st.rerun()


def _case(project: Project, who: Person, case: Case, names: dict[str, str], *, is_named: bool) -> None:
    words = "undefined" if case.agreement is None else f"{case.agreement:.0%} of {count(case.n, 'comparison')}"
    with st.container(horizontal=True, vertical_alignment="center"):
        st.header("This task", anchor=False)
        st.badge(f"agreement: {words}", color="orange" if case.decision is None else "gray")
        if case.n_unacceptable:
            st.badge(f"no response is acceptable: {case.n_unacceptable} of {len(case.seen)} say so", color="orange")
        if is_named and st.button("Next waiting", icon=":material/skip_next:", key=f"{KEY}.next"):
            st.query_params.pop("task", None)
            st.rerun()
    key = f"{KEY}.case.{case.task.id}"
    show_case(case, key)
    if case.decision is not None:
        with store().read() as tx:
            now = tx.now()
        show_decision(case.decision, names.get(case.decision.decided_by, ""), now, key)
    if decision_form(project.id, who, case, key):
        st.query_params.pop("task", None)
        say_after_rerun("Decided; snapshots use it from now on")
        st.rerun()


def _list_decided(decided: list[Adjudication], names: dict[str, str]) -> None:
    st.header("Decided", anchor=False)
    shown = decided[:MAX_LISTED]
    table = pd.DataFrame(
        {
            "when": times([each.created_at for each in shown]),
            "by": [names[each.decided_by] for each in shown],
            "decision": [order_words(each.ranks, each.unplaced) for each in shown],
            "reason": [each.reason for each in shown],
            "prompt": _prompts([each.task_id for each in shown]),
        }
    )
    event = st.dataframe(
        table,
        hide_index=True,
        on_select="rerun",
        selection_mode="single-row",
        key=f"{KEY}.decided.{len(decided)}.{st.query_params.get('task', '')}",
        column_config={
            "when": st.column_config.DatetimeColumn("When", format="distance"),
            "by": "By",
            "decision": "Decision",
            "reason": "Reason",
            "prompt": "Prompt",
        },
        alt="Decisions, the newest first",
    )
    if rows := event["selection"]["rows"]:
        _look_at(shown[rows[0]].task_id)


if __name__ == "__main__":
    render()
