"""The table of a baselines run: every policy at its KL beside best-of-n there, and all of them at one KL."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pandas as pd
import streamlit as st

from app.widgets.policies.frontier import COLUMNS, best_of_frame, frontier_chart, root
from app.words.values import count, field_label
from data.intervals import LEAST_PROMPTS, Told
from data.records import Run

BEST, EQUAL = "best_of_n_at_its_kl", "score_at_equal_kl"
GAIN_REACH, START = "gain_interval", "start"
NAMES = {
    "model": "policy", "kl": "KL", "score": "score", "score_error": "error", "second_score": "second score",
    "second_spread": "its spread", "tokens": "tokens", BEST: "best of n at its KL", "gain_over_best_of_n": "gain",
    GAIN_REACH: "gain, 95 %",
}  # fmt: skip


def show_baselines(run: Run) -> None:
    """The table of a baselines run, and the plot of score over KL with each policy as a point."""
    result = run.result or {}
    if not result.get("policies"):
        return
    st.dataframe(
        policies_frame(result),
        hide_index=True,
        key=f"runs.baselines.{run.id}",
        alt="Policies at their KL and at one KL",
    )
    st.caption(
        f"{count(result['prompts'], 'held-out prompt')}, {count(result['responses'], 'response')} each. The gain is "
        "the score less what best-of-n from the start gets at the same KL, where its curve goes that far; the error is "
        f"one standard error over prompts. {gain_words(result)} {equal_kl_words(result)}"
    )
    policies = [(0, root(row["kl"]), row["score"], row["model"]) for row in result["policies"]]
    chart = frontier_chart(pd.DataFrame(policies, columns=COLUMNS), best_of_frame(result))
    st.altair_chart(chart, alt="Score of each policy over the root of its KL")


def policies_frame(result: dict[str, Any]) -> pd.DataFrame:
    """The table: the greatest score at equal KL first, then the greatest gain."""
    rows = sorted(result["policies"], key=lambda row: (_last(row[EQUAL]), _last(row["gain_over_best_of_n"])))
    frame = pd.DataFrame(rows)
    ends = f"beyond the curve (ends at {result['best_of_n_ends_at_kl']:.2f} nats)"
    frame[BEST] = [_number_or(row[BEST], ends) for row in rows]
    frame["gain_over_best_of_n"] = frame["gain_over_best_of_n"].astype(
        float
    )  # without any it would be a column of text
    frame[GAIN_REACH] = [gain_reach(row, result["prompts"]) for row in rows]
    frame = frame[[name for name in NAMES if name in frame]].rename(columns=NAMES).round(3)
    if result["equal_kl"] is not None:
        words = [_number_or(row[EQUAL], row["why_no_score_at_equal_kl"]) for row in rows]
        frame.insert(1, f"score at {result['equal_kl']:.2f} nats", words)
    return frame


def gain_reach(row: dict[str, Any], prompts: int) -> str:
    """The interval of a gain, or why there is none."""
    if row.get("gain_low") is None:
        return "" if row["gain_over_best_of_n"] is None else "not known"
    if prompts < LEAST_PROMPTS:
        return "too few prompts"
    return f"{row['gain_low']:.3f} to {row['gain_high']:.3f}"


def gain_words(result: dict[str, Any]) -> str:
    """Which policies beat best-of-n at their KL, as far as it can be told."""
    n = result["prompts"]
    if n < LEAST_PROMPTS:
        return (
            f"Whether a policy beats best-of-n can't be told yet: {count(n, 'prompt')}, and {LEAST_PROMPTS} are needed."
        )
    told = Counter(row.get("gain_told") for row in result["policies"] if row["model"] != START)
    return (
        f"By paired 95 % intervals over {count(n, 'prompt')}, {told[Told.MORE]} of {told.total()} beat best-of-n at "
        f"their KL, {told[Told.LESS]} fall short of it; of the others it can't be told."
    )


def equal_kl_words(result: dict[str, Any]) -> str:
    """How the policies were brought to one KL, and what stands in the way of a fair comparison."""
    if result["equal_kl"] is None:
        return "No policy's run has held-out evaluations to compare the policies with each other at equal KL."
    words = (
        f"At {result['equal_kl']:.2f} nats, the least KL that a run with held-out evaluations ended at, policies stand "
        "beside each other: the score is from the run's own evaluations, straight between two over the root of the KL. "
        "It has no interval, so the order of scores that lie close together says nothing."
    )
    if result["evaluations_differ_in"]:
        names = ", ".join(field_label(name) for name in result["evaluations_differ_in"])
        words += f" These were not made alike: the runs differ in {names}."
    return words


def _number_or(value: float | None, words: str) -> str:
    return words if value is None else f"{value:.3f}"


def _last(value: float | None) -> float:
    return float("inf") if value is None else -value
