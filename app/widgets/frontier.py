"""Score against KL: what a policy gained for how far it went from where it started."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from app.context import store
from data.metrics import metrics_of
from data.records import MetricPoint

SCORE, KL = "reward/score_mean", "kl/k1_mean"


def show_frontier(run_id: str) -> None:
    """Draw a PPO run's iterations as points: score over KL, the later the darker."""
    with store().read() as tx:
        frame = frontier_frame(metrics_of(tx, run_id, names=(SCORE, KL)))
    if len(frame) < 2:
        return
    import altair as alt

    chart = (
        alt.Chart(frame)
        .mark_circle(size=45)
        .encode(
            x=alt.X("KL", title="KL to the reference, nats per response"),
            y=alt.Y("score", title="Mean score", scale=alt.Scale(zero=False)),
            color=alt.Color("iteration", scale=alt.Scale(scheme="blues"), title="Iteration"),
            tooltip=["iteration", alt.Tooltip("KL", format=".3f"), alt.Tooltip("score", format=".3f")],
        )
        .properties(height=280)
    )
    with st.container(border=True, key=f"runs.frontier.{run_id}"):
        st.header("Score against KL", anchor=False)
        st.caption(
            "A score that rises while the KL hardly does is cheap. Where it bends down, the score is being gamed."
        )
        st.altair_chart(chart, alt="Mean score of each iteration over its KL to the reference")


def frontier_frame(points: list[MetricPoint]) -> pd.DataFrame:
    """One row for each iteration that has both numbers."""
    rows: dict[int, dict[str, float]] = {}
    for point in points:
        if point.value is not None:
            rows.setdefault(point.step, {})[point.name] = point.value
    whole = [(step, row[KL], row[SCORE]) for step, row in sorted(rows.items()) if len(row) == 2]
    return pd.DataFrame(whole, columns=["iteration", "KL", "score"])
