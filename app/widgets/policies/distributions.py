"""How the scores, the gaps to the start and the KL of an update's recorded responses are spread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt
import pandas as pd
import streamlit as st

from app.words.values import count, number
from data.intervals import LEAST_PROMPTS, Told, paired

HEIGHT, BINS = 220, 20
BLUE, ORANGE, GRAY = "#4c78dd", "#e8793a", "#8a90a0"
POLICY, START = "policy", "start"
Rows = list[dict[str, Any]]


def show_distributions(rows: Rows, start: Mapping[str, float], key: str) -> None:
    """Histograms of an update: scores (with the start's where they are known), gaps, KL of each response."""
    scores = scores_frame(rows, start)
    drawn = [(scores_chart(scores), "Histogram of scores", f"{count(len(rows), 'recorded response')}")]
    if start:
        gaps = gaps_of(rows, start)
        drawn.append((gaps_chart(gaps), "Histogram of the gaps to the start's scores", gap_words(gaps)))
    kl = pd.DataFrame({"kl": [row["kl"] for row in rows]})
    drawn.append(
        (kl_chart(kl), "Histogram of the log-ratio summed over each response", "Each response's own log-ratio")
    )
    for place, (chart, alt_text, words) in zip(st.columns(len(drawn)), drawn, strict=True):
        with place:
            st.altair_chart(chart, key=f"{key}.{alt_text}", alt=alt_text)
            st.caption(words)


def scores_frame(rows: Rows, start: Mapping[str, float]) -> pd.DataFrame:
    """Scores by whose they are; of the start only those to prompts that are here."""
    own = [(POLICY, row["score"]) for row in rows]
    first = [(START, start[row["prompt_key"]]) for row in rows if row["prompt_key"] in start]
    return pd.DataFrame(own + first, columns=["of", "score"])


def gaps_of(rows: Rows, start: Mapping[str, float]) -> list[float]:
    """The policy's score less the start's, prompt by prompt."""
    return [row["score"] - start[row["prompt_key"]] for row in rows if row["prompt_key"] in start]


def gap_words(gaps: list[float]) -> str:
    """How many prompts are better answered than at the start, and how many worse."""
    better, worse = sum(gap > 0 for gap in gaps), sum(gap < 0 for gap in gaps)
    counted = f"{count(len(gaps), 'prompt')}: {better} scored higher than at the start, {worse} lower"
    return f"{counted}. {gain_words(gaps)}" if gaps else counted


def gain_words(gaps: list[float]) -> str:
    """Whether the mean score has risen since the start, with n and interval."""
    gain = paired(gaps, [0.0] * len(gaps))
    n = count(gain.n, "prompt")
    if gain.told is Told.TOO_FEW:
        return f"Whether the mean rose can't be told: {n}, and {LEAST_PROMPTS} are needed."
    reach = f"{number(gain.value)} ({number(gain.low)} to {number(gain.high)}, 95 %, {n})"
    said = {Told.MORE: "The mean rose by", Told.LESS: "The mean fell, by"}
    return f"{said.get(gain.told, 'Whether the mean rose can not be told:')} {reach}."


def scores_chart(frame: pd.DataFrame) -> Any:
    colour = alt.Color(
        "of:N",
        title=None,
        legend=alt.Legend(orient="top") if frame["of"].nunique() > 1 else None,
        scale=alt.Scale(domain=[POLICY, START], range=[BLUE, GRAY]),
    )
    return _bars(frame, "score", "Score").encode(color=colour)


def gaps_chart(gaps: list[float]) -> Any:
    """Orange where the start was better."""
    frame = pd.DataFrame({"gap": gaps, "of": ["worse" if gap < 0 else "not worse" for gap in gaps]})
    scale = alt.Scale(domain=["not worse", "worse"], range=[BLUE, ORANGE])
    return _bars(frame, "gap", "Score less the start's").encode(color=alt.Color("of:N", legend=None, scale=scale))


def kl_chart(frame: pd.DataFrame) -> Any:
    return _bars(frame, "kl", "Log-ratio to the reference (nats)").encode(color=alt.value(BLUE))


def _bars(frame: pd.DataFrame, name: str, title: str) -> Any:
    x = alt.X(f"{name}:Q", title=title, bin=alt.Bin(maxbins=BINS))
    y = alt.Y("count()", title="Responses", stack=None, axis=alt.Axis(tickMinStep=1, format="d"))
    tips = [alt.Tooltip(f"{name}:Q", bin=alt.Bin(maxbins=BINS), title=title), alt.Tooltip("count()", title="responses")]
    return alt.Chart(frame).mark_bar(opacity=0.6).encode(x=x, y=y, tooltip=tips).properties(height=HEIGHT)
