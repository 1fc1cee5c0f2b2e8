"""A researcher's decision on a task whose annotators disagree: the form, and what was decided before."""

from __future__ import annotations

import streamlit as st

from app.actions.context import store
from app.widgets.base.page import ShownErrors, nonce, renew_nonce
from app.widgets.base.problems import plain
from app.widgets.labels.case import annotator_name
from app.words.values import ago, order_words
from data.records import Adjudication, Person
from labeling.review.adjudication import MAX_REASON, Case, decide

OWN = "own"


def show_decision(decision: Adjudication, name: str, now: float, key: str) -> None:
    """What was decided, why, by whom and when."""
    with st.container(border=True, key=f"{key}.decision"):
        st.caption(f"Decided by {plain(name)}, {ago(now - decision.created_at)}")
        st.text(order_words(decision.ranks, decision.unplaced))
        st.text(decision.reason)


def decision_form(project_id: str, who: Person, case: Case, key: str) -> bool:
    """The form that decides on a case; returns whether that was done.

    It decides on what was drawn: if an annotator or another researcher was faster, the decision is refused.
    """
    st.subheader("Decide again" if case.decision else "Decide", anchor=False)
    options = {
        each.id: f"{annotator_name(case, each)}: {order_words(each.ranks or (), each.detail.unplaced)}"
        for each in case.rankings
    }
    options[OWN] = "A ranking of my own"
    choice = st.radio(
        "Which ranking is right?", list(options), index=None, format_func=options.__getitem__, key=f"{key}.how"
    )
    submission, ranks = nonce(key), None
    with st.form(f"{key}.form", border=False, enter_to_submit=False):
        if choice == OWN:
            ranks = _own_ranks(len(case.task.responses), key)
        reason = st.text_area("Reason", max_chars=MAX_REASON, key=f"{key}.reason.{submission}", height=100)
        is_sent = st.form_submit_button(
            "Decide", type="primary", icon=":material/gavel:", key=f"{key}.send.{submission}"
        )
    drawn = (case.seen, case.decision.id if case.decision else None)
    seen, supersedes_id = st.session_state.get(f"{key}.drawn", drawn) if is_sent else drawn
    st.session_state[f"{key}.drawn"] = drawn
    if not is_sent:
        return False
    with ShownErrors():
        decide(
            store(),
            who,
            project_id,
            case.task.id,
            reason=reason or "",
            submission_key=submission,
            seen=seen,
            supersedes_id=supersedes_id,
            chosen_id=None if choice == OWN else choice,
            ranks=ranks,
        )
        renew_nonce(key)
        return True
    return False


def _own_ranks(k: int, key: str) -> list[int]:
    """One number for each response; what was left empty is 0, which is no rank."""
    st.caption("1 is best; the same number twice is a tie. All equal leaves the task out of snapshots.")
    with st.grid(4, min_column_width=120):
        given = [
            st.number_input(f"Rank of {chr(65 + place)}", 1, k, None, placeholder="none yet", key=f"{key}.rank.{place}")
            for place in range(k)
        ]
    return [int(each or 0) for each in given]
