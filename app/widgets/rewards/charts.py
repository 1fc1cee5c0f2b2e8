"""The charts of a reward run's report. Data in, Altair out; what they mean stands where they are shown."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

HEIGHT = 260
GRAY, BLUE, ORANGE = "#8a90a0", "#4c78dd", "#e8793a"


def share_chart(rows: dict[str, dict[str, Any]], title: str) -> Any:
    """Shares as points with their intervals, and a line at chance."""
    frame = pd.DataFrame(
        [
            {
                "of": name,
                "share": row["value"],
                "low": row["value"] if row["low"] is None else row["low"],
                "high": row["value"] if row["high"] is None else row["high"],
            }
            for name, row in rows.items()
        ]
    )
    base = alt.Chart(frame).properties(height=50 + 34 * len(rows))
    scale = alt.Scale(domain=[min(0.4, float(frame["low"].min())), 1])
    y = alt.Y("of:N", title=None, sort=None, axis=alt.Axis(labelLimit=200))
    x = alt.X("low:Q", title=title, scale=scale, axis=alt.Axis(format="%"))
    facts = ["of", *(alt.Tooltip(name, format=".1%") for name in ("share", "low", "high"))]
    bars = base.mark_rule(strokeWidth=3, color=GRAY).encode(x=x, x2="high:Q", y=y)
    points = base.mark_point(filled=True, size=110, opacity=1).encode(x="share:Q", y=y, tooltip=facts)
    chance = alt.Chart(pd.DataFrame({"share": [0.5]})).mark_rule(strokeDash=[4, 4], color=GRAY).encode(x="share:Q")
    return chance + bars + points


def reliability_chart(bins: list[dict[str, Any]]) -> Any:
    """How often the preferred response won over how sure the model is, with the line where the two are equal."""
    frame = pd.DataFrame(bins)
    ideal = pd.DataFrame({"confidence": [0.5, 1.0], "accuracy": [0.5, 1.0]})
    x = alt.X("confidence:Q", title="Probability given", scale=alt.Scale(domain=[0.5, 1]), axis=alt.Axis(format="%"))
    y = alt.Y(
        "accuracy:Q", title="Share that people preferred", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%")
    )
    line = alt.Chart(ideal).mark_line(strokeDash=[4, 4], color=GRAY).encode(x=x, y=y)
    facts = [alt.Tooltip("confidence", format=".1%"), alt.Tooltip("accuracy", format=".1%"),
             alt.Tooltip("share", format=".1%"), "n"]  # fmt: skip
    base = alt.Chart(frame).encode(x=x, y=y)
    points = base.mark_point(filled=True, opacity=1).encode(
        size=alt.Size("share:Q", legend=None, scale=alt.Scale(range=[30, 400])), tooltip=facts
    )
    return (line + base.mark_line() + points).properties(height=HEIGHT)


def score_chart(scores: dict[str, Any]) -> Any:
    """Histograms of the scores of responses ranked first and last, as shares of each."""
    edges, rows = scores["edges"], []
    for name, label in (("last", "ranked last"), ("first", "ranked first")):
        total = max(sum(scores[name]["counts"]), 1)
        rows += [
            {"of": label, "from": low, "to": high, "share": n / total}
            for low, high, n in zip(edges, edges[1:], scores[name]["counts"], strict=False)
        ]
    chart = alt.Chart(pd.DataFrame(rows)).mark_bar(opacity=0.55, binSpacing=0)
    return chart.encode(
        x=alt.X("from:Q", title="Score", bin="binned"),
        x2="to:Q",
        y=alt.Y("share:Q", stack=None, title="Share of responses", axis=alt.Axis(format="%")),
        color=alt.Color(
            "of:N",
            title=None,
            legend=alt.Legend(orient="top"),
            scale=alt.Scale(domain=["ranked first", "ranked last"], range=[BLUE, ORANGE]),
        ),
        tooltip=["of", alt.Tooltip("from", format=".2f"), alt.Tooltip("share", format=".1%")],
    ).properties(height=HEIGHT)


def best_of_chart(points: list[dict[str, Any]]) -> Any:
    """What the best-scored of n responses is worth."""
    return _band(
        [{"x": each["n_samples"], **_reach(each, "value")} for each in points],
        alt.X("x:Q", title="Responses to choose from", axis=alt.Axis(tickMinStep=1, format="d")),
        "Share of the others beaten",
    )


def learning_chart(curve: dict[str, Any]) -> Any:
    """Accuracy by the number of rankings, and where it would be at twice as many."""
    rows = [{"x": each["rankings"], **_reach(each, "accuracy")} for each in curve["points"]]
    x = alt.X("x:Q", title="Rankings", scale=alt.Scale(zero=False))
    twice = curve["at_twice"]
    ahead = pd.DataFrame([rows[-1], {"x": twice["rankings"], **_reach(twice, "accuracy")}])
    base = alt.Chart(ahead).encode(x=x)
    dashed = base.mark_line(strokeDash=[4, 4]).encode(y="value:Q")
    area = base.mark_area(opacity=0.1).encode(y="low:Q", y2="high:Q")
    return _band(rows, x, "Pair accuracy") + area + dashed


def _reach(row: dict[str, Any], name: str) -> dict[str, float]:
    value = row[name]
    return {"value": value, "low": value if row["low"] is None else row["low"],
            "high": value if row["high"] is None else row["high"]}  # fmt: skip


def _band(rows: list[dict[str, float]], x: Any, title: str) -> Any:
    base = alt.Chart(pd.DataFrame(rows)).encode(x=x)
    scale = alt.Scale(zero=False)
    area = base.mark_area(opacity=0.2).encode(
        y=alt.Y("low:Q", title=title, scale=scale, axis=alt.Axis(format="%")), y2="high:Q"
    )
    facts = ["x", *(alt.Tooltip(name, format=".1%") for name in ("value", "low", "high"))]
    line = base.mark_line(point=True).encode(y="value:Q", tooltip=facts)
    return (area + line).properties(height=HEIGHT)
