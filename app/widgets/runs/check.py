"""The check of a PPO run before its start: what was looked at, memory by part, and a sample as the models read it."""

from __future__ import annotations

from typing import Any, Literal

import pandas as pd
import streamlit as st

from app.actions.context import require, store
from app.widgets.base.problems import plain
from data.records import Role, Run, RunStatus
from data.runs.state import get_run

REFRESH_S = 1.0
SHORT = 800  # characters of a text that is shown at its full height
ICONS = {"ok": ":green[:material/check_circle:]", "failed": ":red[:material/error:]"}
NOT_REACHED = ":gray[:material/radio_button_unchecked:]"


def show_check(run_id: str, key: str) -> None:
    """Draw a check run, and follow it while it works."""
    with store().read() as tx:
        is_active = not get_run(tx, run_id).status.is_final
    st.fragment(_draw, run_every=REFRESH_S if is_active else None)(run_id, key, is_active)


def _draw(run_id: str, key: str, was_active: bool) -> None:
    require(Role.RESEARCHER)  # a fragment runs without its page
    with store().read() as tx:
        run = get_run(tx, run_id)
    if was_active and run.status.is_final:
        st.rerun()
    with st.container(border=True, key=f"{key}.panel"):
        st.subheader("Check before the start", anchor=False)
        st.caption(status_words(run))
        if run.status is RunStatus.SUCCEEDED and run.result:
            _report(run.result, key)


def status_words(run: Run) -> str:
    """Where the check is, in one sentence."""
    if run.status is RunStatus.SUCCEEDED:
        is_green = bool(run.result and run.result.get("ok"))
        return (
            "All is green: the run can start." if is_green else "Something has to be mended before the run can start."
        )
    if run.status is RunStatus.RUNNING:
        return f"At work: {run.step} of {run.total_steps or 10} checks done."
    if run.status is RunStatus.QUEUED:
        return "Waiting for a worker."
    return plain(f"The check {run.status}: {run.error_message or 'as asked'}")


def _report(report: dict[str, Any], key: str) -> None:
    for check in report["checks"]:
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f"{ICONS.get(check['state'], NOT_REACHED)} **{check['name']}**", width="content")
            st.text(check["words"] or "not reached")
    if parts := report["memory"].get("parts_mb"):
        st.dataframe(
            memory_frame(parts), hide_index=True, key=f"{key}.memory", alt="Memory of the run by role and part, in MB"
        )
        st.caption(memory_words(report["memory"]))
    if texts := report.get("samples"):
        _sample(texts)


def _sample(texts: list[dict[str, Any]]) -> None:
    """What the policy and, beside it, the reward models read of one prompt with a response."""
    st.caption("One sample, exactly as each model reads it: prompt, response and end, special tokens included")
    for column, shown in zip(st.columns(len(texts)), texts, strict=True):
        with column:
            st.markdown(f"**{shown['reader'].capitalize()}**")
            height: int | Literal["content"] = "content" if len(shown["text"]) <= SHORT else 320
            st.code(shown["text"], language=None, wrap_lines=True, height=height)
            st.caption(plain(sample_words(shown)))


def sample_words(shown: dict[str, Any]) -> str:
    """How long a text of the sample is, and what was done to it."""
    return f"{shown['tokens']:,} tokens; {shown['notes'] or 'nothing is cut'}"


def memory_frame(parts: list[dict[str, Any]]) -> pd.DataFrame:
    """Memory by role and part, with sums, in MB."""
    frame = pd.DataFrame(parts)
    frame["sum"] = frame.drop(columns="name").sum(axis=1)
    total = {"name": "all", **frame.drop(columns="name").sum().to_dict()}
    frame = pd.concat([frame, pd.DataFrame([total])], ignore_index=True).round(1)
    return frame.rename(columns={"name": "role"})


def memory_words(memory: dict[str, Any]) -> str:
    """Prediction against what is free, and against what one step took."""
    words = f"MB. At the peak {memory['predicted_mb']:,.0f} predicted, {memory['available_mb']:,.0f} free."
    if "measured_step_mb" in memory:
        words += (
            f" One step at the worst length: {memory['predicted_step_mb']:,.0f} predicted, "
            f"{memory['measured_step_mb']:,.0f} measured."
        )
    return words
