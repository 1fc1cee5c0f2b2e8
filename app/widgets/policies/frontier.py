"""Score against the root of the KL: what a policy gained for how far it went, beside best-of-n from its start."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd
import streamlit as st

from app.actions.context import require, store
from app.words.values import count, number, run_name
from data.records import MetricPoint, Role, Run, RunKind, RunStatus
from data.runs.metrics import metrics_of
from data.runs.state import get_run, list_runs
from training.launch.kinds import WRITERS, settings

ROLLOUT, HELD_OUT = "rollouts", "held-out prompts"
SECOND, SURE = "second figure, held-out", "score less the spread, held-out"
SECOND_SURE = "second figure less its spread, held-out"
SERIES = {
    ROLLOUT: ("kl/k1_mean", "reward/score_mean"),
    HELD_OUT: ("held_out/kl_mean", "held_out/score_mean"),
    SECOND: ("held_out/kl_mean", "held_out/second_score_mean"),
    SECOND_SURE: ("held_out/kl_mean", "held_out/second_sure_score_mean"),
    SURE: ("held_out/kl_mean", "held_out/sure_score_mean"),
}
BEST_OF = "best of n, from the start"
CAPTION = (
    "A score that rises while the KL hardly does is cheap. Where it bends down, or where the second figure (or the "
    "score less the spread of an ensemble) falls while the score rises, the score is being gamed. Best-of-n, dashed, "
    "is what a policy has to beat at the same KL. RLOO, DPO and SFT runs have evaluations alone."
)
COLUMNS = ["iteration", "root of KL", "score", "of"]
REFRESH_S = 4.0
MOST_RUNS = 7  # beside the run of the page
MOST_POINTS = 300  # of one series of one run
COLOURS = ["#4c6ef5", "#e8590c", "#2f9e44", "#ae3ec9", "#1098ad", "#c2255c", "#f08c00", "#868e96"]  # on light and dark
KEY = "runs.frontier"
WEIGHTS = {"kl.coef": "KL coef", "kl.beta": "Beta"}  # what holds a policy near its start, and its name in the plot


def show_frontier(run: Run) -> None:
    """Draw a run's evaluations, and PPO's iterations, as points, over those of other runs, and follow those that go
    on."""
    with store().read() as tx:
        others = list_runs(tx, project_id=run.project_id, kinds=WRITERS, limit=1_000)
    offered = {each.id: each for each in others if each.id != run.id and is_comparable(each, run)}
    is_active = any(not each.status.is_final for each in (run, *offered.values()))
    with st.container(border=True, key=f"{KEY}.{run.id}"):
        st.header("Score against KL", anchor=False)
        st.caption(CAPTION)
        chosen: list[str] = []
        if offered:
            chosen = st.multiselect(
                "Over it",
                list(offered),
                format_func=lambda run_id: label(offered[run_id]),
                max_selections=MOST_RUNS,
                key=f"{KEY}.over.{run.id}",
                placeholder="Further runs",
                help="Runs of this project with the same reward model and the same start: their scores and their KL "
                "mean the same.",
            )
        st.fragment(_draw, run_every=REFRESH_S if is_active else None)(run.id, tuple(chosen))


def is_comparable(other: Run, run: Run) -> bool:
    """Whether the scores and the KL of two runs are by the same reward model and to the same start."""
    return (other.reward_run_id, other.config.get("model")) == (run.reward_run_id, run.config.get("model"))


def is_evaluated(run: Run) -> bool:
    """Whether a run makes a policy that a reward model scores on the way; SFT and DPO runs may have none."""
    return run.kind in WRITERS and run.reward_run_id is not None


def label(run: Run) -> str:
    """A run as the plot names it, with what holds it near its start."""
    asked = settings(run)
    weights = [f"{words} {number(asked[name])}" for name, words in WEIGHTS.items() if name in asked]
    return ", ".join([run_name(run), *weights])


def _draw(run_id: str, others: tuple[str, ...]) -> None:
    require(Role.RESEARCHER)  # a fragment runs without its page
    names = tuple({name for pair in SERIES.values() for name in pair})
    with store().read() as tx:
        run = get_run(tx, run_id)
        runs = [run, *(get_run(tx, each) for each in others)]
        points = {label(each): metrics_of(tx, each.id, names=names) for each in runs}
        baselines = baselines_of(list_runs(tx, project_id=run.project_id, kinds=(RunKind.BASELINES,)), run)
    frame = frames_of(points)
    if frame.empty:
        st.caption("Points appear here with the first iteration or evaluation.")
        return
    drawn = thinned(frame)
    chart = frontier_chart(drawn, best_of_frame(baselines.result if baselines else None))
    alt = "Mean score over the root of the KL to the reference"
    st.altair_chart(chart, key=f"{KEY}.chart.{run_id}", alt=alt)
    whole = count(len(frame), "point") if len(drawn) == len(frame) else f"{len(drawn):,} of {len(frame):,} points"
    st.caption(f"{whole} of {count(len(runs), 'run')}")


def baselines_of(runs: list[Run], run: Run) -> Run | None:
    """The newest table that was made with a run's reward model and from its start."""
    done = [each for each in runs if each.status is RunStatus.SUCCEEDED and is_comparable(each, run)]
    return done[0] if done else None


def frames_of(runs: Mapping[str, list[MetricPoint]]) -> pd.DataFrame:
    """The points of several runs, each with the name of its run."""
    frames = [frontier_frame(points).assign(run=name) for name, points in runs.items()]
    filled = [frame for frame in frames if not frame.empty]
    return pd.concat(filled, ignore_index=True) if filled else pd.DataFrame(columns=[*COLUMNS, "run"])


def frontier_frame(points: list[MetricPoint]) -> pd.DataFrame:
    """One row for each iteration and series that has both numbers."""
    known = {(point.step, point.name): point.value for point in points if point.value is not None}
    rows = []
    for series, (kl, score) in SERIES.items():
        steps = sorted(step for step, name in known if name == score and (step, kl) in known)
        rows += [(step, root(known[step, kl]), known[step, score], series) for step in steps]
    return pd.DataFrame(rows, columns=COLUMNS)


def thinned(frame: pd.DataFrame) -> pd.DataFrame:
    """At most MOST_POINTS and one rows of each series: every n-th, and the last."""
    kept = []
    for _, rows in frame.groupby(["run", "of"], sort=False):
        every = -(-len(rows) // MOST_POINTS)
        kept += [*rows.index[:-1:every], rows.index[-1]]
    return frame.loc[sorted(kept)]


def best_of_frame(result: dict[str, Any] | None) -> pd.DataFrame:
    """The curve of best-of-n."""
    rows = [(each["n"], root(each["kl"]), each["score"], BEST_OF) for each in (result or {}).get("best_of_n", [])]
    return pd.DataFrame(rows, columns=["n", *COLUMNS[1:]])


def frontier_chart(frame: pd.DataFrame, curve: pd.DataFrame) -> Any:
    """Points by what they are of, evaluations joined in their order, and the curve of best-of-n as a dashed line.

    Of several runs the colour tells the run and the shape what a point is of.
    """
    import altair as alt

    x = alt.X("root of KL", title="Root of the KL to the reference (nats per response)")
    y = alt.Y("score", title="Mean score", scale=alt.Scale(zero=False))
    tips = [alt.Tooltip("root of KL", format=".3f"), alt.Tooltip("score", format=".3f")]
    is_of_runs = "run" in frame and frame["run"].nunique() > 1
    legend = alt.Legend(orient="bottom", columns=2, labelLimit=0)
    scale = alt.Scale(range=COLOURS)
    colour = alt.Color("run" if is_of_runs else "of", title=None, legend=legend, scale=scale)
    shape = {"shape": alt.Shape("of", title=None, legend=legend)} if is_of_runs else {}
    told = ["run", "of", "iteration"] if "run" in frame else ["of", "iteration"]
    marks = alt.Chart(frame).mark_point(filled=True, size=50, opacity=0.7)
    layers = [marks.encode(x=x, y=y, color=colour, tooltip=[*told, *tips], **shape)]
    if "run" in frame:
        joined = alt.Chart(frame[frame["of"] != ROLLOUT]).mark_line(opacity=0.5)
        layers.insert(0, joined.encode(x=x, y=y, color=colour, detail=["run", "of"], order="iteration"))
    if not curve.empty:
        line = alt.Chart(curve).mark_line(strokeDash=[4, 4], point={"color": "gray"}, color="gray")
        layers.append(line.encode(x=x, y=y, tooltip=["of", "n", *tips]))
    return alt.layer(*layers).properties(height=360 if is_of_runs else 320)


def root(kl: float) -> float:
    """The root of a KL; one below 0, which is chance, counts as 0."""
    return math.sqrt(max(0.0, kl))
