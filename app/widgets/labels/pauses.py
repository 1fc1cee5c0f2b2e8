"""Who is paused in a project, why; and the button that lets them go on."""

from __future__ import annotations

from datetime import UTC, datetime

import streamlit as st

from app.actions.context import require, store
from app.widgets.base.page import ShownErrors, say_after_rerun
from app.widgets.base.problems import plain
from app.words.values import share_with_reach
from data.labels.pauses import Pause
from data.records import Person, Role
from labeling.work.alarms import lift, pauses


def pauses_panel(project_id: str) -> None:
    """The pauses of a project: those that hold now, each with its way out, then those that were lifted."""
    who = require(Role.RESEARCHER)  # a dialog runs without its page
    with ShownErrors():
        all_pauses = pauses(store(), project_id)
        current = [each for each in all_pauses if each.lifted_at is None]
        if not current:
            st.caption("Nobody is paused in this project.")
        for each in current:
            _current(each, who)
        if lifted := [each for each in all_pauses if each.lifted_at is not None]:
            with st.expander(f"Lifted before: {len(lifted)}"):
                for each in lifted:
                    st.text(f"{each.annotator}: {why(each)}, {_day(each.created_at)} to {_day(each.lifted_at)}")
                    if each.note:
                        st.text(each.note)


def why(pause: Pause) -> str:
    """What the alarm was about, in words."""
    value, threshold, n = (pause.figures[name] for name in ("value", "threshold", "n"))
    share = share_with_reach(value, pause.figures.get("low"), pause.figures.get("high"))
    if pause.reason == "gold":
        return f"pair agreement with gold {share} on {n} tasks, below {threshold:.0%}"
    return f"{share} of {n} answers faster than their texts can be read, above {threshold:.0%}"


def _current(pause: Pause, who: Person) -> None:
    with st.container(border=True, key=f"pauses.{pause.id}"):
        st.markdown(f"**{plain(pause.annotator)}**")
        st.caption(f"{why(pause).capitalize()}. Paused since {_day(pause.created_at)}.")
        note = st.text_input("Note for the record", max_chars=500, key=f"pauses.note.{pause.id}")
        if st.button("Let them go on", type="primary", key=f"pauses.lift.{pause.id}"):
            lift(store(), who, pause.project_id, pause.annotator_id, note or "")
            say_after_rerun(f"{plain(pause.annotator)} may go on")
            st.rerun()


def _day(seconds: float | None) -> str:
    return datetime.fromtimestamp(seconds or 0.0, UTC).strftime("%Y-%m-%d %H:%M UTC")
