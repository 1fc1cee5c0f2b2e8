"""What a scoring run gave: each response's score, and where several models scored it, the mean and their spread."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from app.actions.context import home
from app.words.values import prompt_text, short_id
from data.files.rows import Row, read_rows
from data.records import Run

SCORES = "scores.jsonl"
MOST_SHOWN = 500


def show_scores(run: Run) -> None:
    """The scores of a finished run over a file, in the file's order; the table sorts them."""
    path = home().run_folder(run.id) / SCORES
    if not path.is_file():
        return
    rows: list[tuple[Any, ...]] = []
    for row in read_rows(path):
        if len(rows) >= MOST_SHOWN:
            break
        if isinstance(row, Row):
            rows += _of_each_response(row.value)
    frame = pd.DataFrame(rows[:MOST_SHOWN], columns=["prompt", "response", "score", "spread", "problem"])
    frame = frame.drop(columns=[name for name in ("spread", "problem") if frame[name].isna().all()])
    names = ", ".join(map(short_id, [run.reward_run_id or "", *run.result.get("beside", {})]))
    words = f"Scores by reward model {names}"
    if "beside" in run.result:
        words = f"Scores are the mean of reward models {names}; the spread is the standard deviation between them"
    elif "spread" in frame:
        words += "; the spread is the standard deviation between its heads"
    first = f" The first {MOST_SHOWN:,} responses are shown." if len(rows) >= MOST_SHOWN else ""
    st.caption(f"{words}.{first}")
    wide = st.column_config.TextColumn(width="large")
    st.dataframe(
        frame,
        hide_index=True,
        key=f"runs.scores.{run.id}",
        column_config={"response": wide, "score": _figure("score"), "spread": _figure("spread")},
        alt="Scores of the responses",
    )


def _of_each_response(row: dict[str, Any]) -> list[tuple[Any, ...]]:
    """(prompt, response, score, spread, problem) of each response; a refused row has no scores."""
    n = len(row["responses"])
    prompt = " ".join(prompt_text(row["messages"]).split())
    scores, stds = row.get("scores") or [None] * n, row.get("stds") or [None] * n
    return [
        (prompt, " ".join(text.split()), score, std, row.get("problem"))
        for text, score, std in zip(row["responses"], scores, stds, strict=True)
    ]


def _figure(name: str) -> Any:
    return st.column_config.NumberColumn(name, format="%.3f")
