"""The recorded responses of one update: put in order, searched, and one of them chosen.

On the held-out side each stands beside what the start, which is the reference, said to the same prompt with the same
random numbers: the gap between their scores is what training has gained there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from app.words.values import count

Row = dict[str, Any]
Rows = list[Row]
RECORDED = "as recorded"
# Order -> (figure, whether the largest comes first). A row without the figure comes last.
ORDERS = {
    RECORDED: ("", False),
    "highest score": ("score", True),
    "lowest score": ("score", False),
    "largest gap": ("gap", True),
    "smallest gap": ("gap", False),
    "highest KL": ("kl", True),
    "most tokens": ("tokens", True),
    "fewest tokens": ("tokens", False),
    "most clipped": ("clipped", True),
    "lowest second score": ("second", False),
    "widest spread": ("spread", True),
}
NUMBERS = {
    "score": "Score", "start": "Start", "gap": "Gap", "second": "Second", "spread": "Spread", "kl": "KL", "k3": "k3",
    "clipped": "Clipped",
}  # fmt: skip
NOT_ALWAYS = ("start", "gap", "second", "spread")  # there only where something was measured for them
Figures = dict[str, float | None]


def choose_response(rows: Rows, start: Mapping[str, float], key: str) -> int | None:
    """Draw the list and return the place of the chosen row in `rows`; None where the search finds nothing.

    `start`: the start's score by prompt. What was chosen stays so in other iterations, until order or search change.
    """
    figures = [figures_of(row, start.get(row["prompt_key"])) for row in rows]
    forget = partial(st.session_state.pop, f"{key}.chosen", None)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        missing = {name for name in NOT_ALWAYS if all(each[name] is None for each in figures)}
        usable = [name for name, (figure, _) in ORDERS.items() if figure not in missing]
        order = st.selectbox("Order", usable, key=f"{key}.order", width=180, on_change=forget)
        words = st.text_input("Search", key=f"{key}.search", placeholder="in prompts and responses", on_change=forget)
    places = ordered(figures, searched(rows, words or ""), order or RECORDED)
    if not places:
        st.caption(f"None of {count(len(rows), 'response')} has it.")
        return None
    event = st.dataframe(
        table_of(rows, figures, places),
        hide_index=True,
        height=min(38 + 35 * len(places), 300),
        on_select="rerun",
        selection_mode=("single-row", "single-cell"),
        key=f"{key}.table",
        column_config={
            "no": st.column_config.NumberColumn("No.", width=50),
            "prompt": st.column_config.TextColumn("Prompt", width=130),
            "response": st.column_config.TextColumn("Response", width=220),
            **{name: st.column_config.NumberColumn(label, format="%.3f") for name, label in NUMBERS.items()},
            "tokens": "Tokens",
            "ended": "Ended",
        },
        alt="The recorded responses of the update",
    )
    st.caption(f"{len(places):,} of {count(len(rows), 'recorded response')}. Click one to see its tokens.")
    clicked = [*event["selection"]["rows"], *(row for row, _ in event["selection"]["cells"])]
    if clicked and clicked[0] < len(places):
        st.session_state[f"{key}.chosen"] = rows[places[clicked[0]]]["prompt_key"]
    chosen = st.session_state.get(f"{key}.chosen")
    return next((place for place in places if rows[place]["prompt_key"] == chosen), places[0])


def figures_of(row: Row, start: float | None) -> Figures:
    """What a response is put in order by. k3 is the KL's estimate that is never negative, over its tokens."""
    gaps = [ref - own for own, ref in zip(row["logprob"], row["ref_logprob"], strict=True)]
    n = len(row["ids"])
    return {
        "score": row["score"],
        "start": start,
        "gap": None if start is None else row["score"] - start,
        "second": row.get("second_score"),  # files of older runs have none
        "spread": row.get("second_spread"),
        "kl": row["kl"],
        "k3": math.fsum(k3(gap) for gap in gaps),
        "tokens": n,
        "clipped": sum(row["clipped"]) / max(n, 1),
    }


def k3(gap: float) -> float:
    """exp(gap) - 1 - gap, where gap = log ref - log policy (Schulman 2020)."""
    return math.expm1(min(gap, 700.0)) - gap


def searched(rows: Rows, words: str) -> list[int]:
    """The places of the rows whose prompt or response has these words, in whatever case."""
    wanted = words.casefold().strip()
    return [
        place
        for place, row in enumerate(rows)
        if wanted in row["prompt"].casefold() or wanted in row["response"].casefold()
    ]


def ordered(figures: list[Figures], places: list[int], order: str) -> list[int]:
    """The places in this order; rows without the figure, or with none that is finite, come last."""
    name, is_down = ORDERS[order]
    if not name:
        return places

    def rank(place: int) -> tuple[bool, float]:
        value = figures[place][name]
        if value is None or not math.isfinite(value):
            return True, 0.0
        return False, -value if is_down else value

    return sorted(places, key=rank)


def table_of(rows: Rows, figures: list[Figures], places: list[int]) -> pd.DataFrame:
    """One line for each response; without the columns for which nothing was measured."""
    lines = [
        {
            "no": place + 1,
            "prompt": " ".join(rows[place]["prompt"].split()),
            "response": " ".join(rows[place]["response"].split()),
            **figures[place],
            "ended": rows[place]["ended"],
        }
        for place in places
    ]
    frame = pd.DataFrame(lines)
    missing = [name for name in NOT_ALWAYS if frame[name].isna().all()]
    return frame.drop(columns=missing).round(3)
