"""Score against the root of the KL: what a policy gained for how far it went, beside best-of-n from its start."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import streamlit as st

from app.context import store
from app.widgets.problems import plain
from data.metrics import metrics_of
from data.records import MetricPoint, Run, RunKind, RunStatus
from data.runs import list_runs

ROLLOUT, HELD_OUT, SECOND = "rollouts", "held-out prompts", "second figure, held-out"
SERIES = {
    ROLLOUT: ("kl/k1_mean", "reward/score_mean"),
    HELD_OUT: ("held_out/kl_mean", "held_out/score_mean"),
    SECOND: ("held_out/kl_mean", "held_out/second_score_mean"),
}
BEST_OF = "best of n, from the start"
CAPTION = (
    "A score that rises while the KL hardly does is cheap. Where it bends down, or where the second figure falls while "
    "the score rises, the score is being gamed. Best-of-n is what PPO has to beat at the same KL."
)
COLUMNS = ["iteration", "root of KL", "score", "of"]


def show_frontier(run: Run) -> None:
    """Draw a PPO run's iterations and evaluations as points, with the newest curve of best-of-n of its reward model."""
    with store().read() as tx:
        names = tuple({name for pair in SERIES.values() for name in pair})
        frame = frontier_frame(metrics_of(tx, run.id, names=names))
        found = baselines_of(list_runs(tx, project_id=run.project_id, kinds=(RunKind.BASELINES,)), run.reward_run_id)
    if len(frame) < 2:
        return
    curve = best_of_frame(found.result if found else None)
    with st.container(border=True, key=f"runs.frontier.{run.id}"):
        st.header("Score against KL", anchor=False)
        st.caption(CAPTION)
        st.altair_chart(frontier_chart(frame, curve), alt="Mean score over the root of the KL to the reference")


def show_baselines(run: Run) -> None:
    """The table of a baselines run, and the same plot with each policy as a point."""
    result = run.result or {}
    if not result.get("policies"):
        return
    st.dataframe(
        policies_frame(result), hide_index=True, key=f"runs.baselines.{run.id}", alt="Policies at their KL, by gain"
    )
    st.caption(
        f"{result['prompts']} held-out prompts, {result['responses']} responses each. The gain is the score less what "
        "best-of-n from the start gets at the same KL; the error is one standard error over prompts."
    )
    policies = [(0, _root(row["kl"]), row["score"], plain(row["model"])) for row in result["policies"]]
    chart = frontier_chart(pd.DataFrame(policies, columns=COLUMNS), best_of_frame(result))
    st.altair_chart(chart, alt="Score of each policy over the root of its KL")


def baselines_of(runs: list[Run], reward_run_id: str | None) -> Run | None:
    """The newest table that was made with the same reward model."""
    done = [run for run in runs if run.status is RunStatus.SUCCEEDED and run.reward_run_id == reward_run_id]
    return done[0] if done else None


def frontier_frame(points: list[MetricPoint]) -> pd.DataFrame:
    """One row for each iteration and series that has both numbers."""
    known = {(point.step, point.name): point.value for point in points if point.value is not None}
    rows = []
    for series, (kl, score) in SERIES.items():
        steps = sorted(step for step, name in known if name == score and (step, kl) in known)
        rows += [(step, _root(known[step, kl]), known[step, score], series) for step in steps]
    return pd.DataFrame(rows, columns=COLUMNS)


def best_of_frame(result: dict[str, Any] | None) -> pd.DataFrame:
    """The curve of best-of-n."""
    rows = [(each["n"], _root(each["kl"]), each["score"], BEST_OF) for each in (result or {}).get("best_of_n", [])]
    return pd.DataFrame(rows, columns=["n", *COLUMNS[1:]])


def policies_frame(result: dict[str, Any]) -> pd.DataFrame:
    """The table, the greatest gain first."""
    names = {
        "model": "policy", "kl": "KL", "score": "score", "score_error": "error", "second_score": "second score",
        "tokens": "tokens", "best_of_n_at_its_kl": "best of n at its KL", "gain_over_best_of_n": "gain",
    }  # fmt: skip
    frame = pd.DataFrame(result["policies"])
    frame = frame[[name for name in names if name in frame]].rename(columns=names)
    return frame.sort_values("gain", ascending=False).round(3)


def frontier_chart(frame: pd.DataFrame, curve: pd.DataFrame) -> Any:
    """Points by what they are of, and the curve of best-of-n as a dashed line."""
    import altair as alt

    x = alt.X("root of KL", title="Root of the KL to the reference (nats per response)")
    y = alt.Y("score", title="Mean score", scale=alt.Scale(zero=False))
    tips = [alt.Tooltip("root of KL", format=".3f"), alt.Tooltip("score", format=".3f")]
    chart = alt.Chart(frame).mark_circle(size=50, opacity=0.7)
    points = chart.encode(x=x, y=y, color=alt.Color("of", title=None), tooltip=["of", "iteration", *tips])
    if curve.empty:
        return points.properties(height=300)
    line = alt.Chart(curve).mark_line(strokeDash=[4, 4], point=True, color="gray")
    return (points + line.encode(x=x, y=y, tooltip=["of", "n", *tips])).properties(height=300)


def _root(kl: float) -> float:
    return math.sqrt(max(0.0, kl))
