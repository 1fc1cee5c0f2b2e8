"""Answers to the fixed held-out prompts, before and after: the SFT model that PPO started from beside the policy.

They are the recorded rollouts of an evaluation: same prompts, same random numbers. Only the files of the start and of
the chosen evaluation are read, and of them only the columns that are shown.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from app.actions.context import home, require
from app.widgets.base.page import ShownErrors
from app.widgets.policies.distributions import gain_words
from app.words.values import count, number
from data.files.rollouts import HELD_OUT, read_rollout, recorded_iterations
from data.records import Role, Run
from training.launch.kinds import settings

REFRESH_S = 5.0
START = 0  # the evaluation before the first update
COLUMNS = ("prompt_key", "prompt", "response", "score", "kl")
TEXTS = {"prompt": "Prompt", "sft_response": "SFT response", "policy_response": "Policy response"}
NUMBERS = {"sft_score": "SFT score", "policy_score": "Policy score", "gain": "Gain", "kl": "KL"}
Rows = list[dict[str, Any]]


def start_and_policy(run: Run, key: str, *, is_active: bool) -> None:
    """The table of an evaluation, which can be chosen, and one of its rows in full."""
    st.header("Held-out prompts: SFT model and policy", anchor=False)
    st.fragment(_draw, run_every=REFRESH_S if is_active else None)(run, key)


def _draw(run: Run, key: str) -> None:
    require(Role.RESEARCHER)  # a fragment runs without its page
    folder = home().run_folder(run.id)
    recorded = recorded_iterations(folder, HELD_OUT)
    evaluations = [each for each in recorded if each != START][::-1]
    if not evaluations:
        st.caption(why_none(run, has_start=START in recorded))
        return
    newest = f"newest (iteration {evaluations[0]})"
    chosen = st.selectbox("Evaluation", [newest, *map(str, evaluations[1:])], key=f"{key}.evaluation", width=220)
    iteration = evaluations[0] if chosen in (newest, None) else int(chosen)
    with ShownErrors():
        start = read_rollout(folder, HELD_OUT, START, COLUMNS) if START in recorded else []
        rows = paired(start, read_rollout(folder, HELD_OUT, iteration, COLUMNS))
        _show(rows, iteration, f"{key}.table")


def why_none(run: Run, *, has_start: bool) -> str:
    """Why there is nothing to compare."""
    asked = settings(run)
    for field, what in (
        ("evaluation.prompts", "no held-out prompts"),
        ("evaluation.token_rows", "none of its responses"),
    ):
        if asked.get(field) == 0:
            return f"Nothing is recorded: this run was told to keep {what} ({field} is 0)."
    if has_start:
        return "So far only the SFT model's answers are recorded; the policy's come with the next evaluation."
    return (
        "Nothing is recorded: the run has not come to an evaluation, its snapshot has no held-out prompts that fit and "
        "that nothing behind the run was trained on, or its folder lies on another machine."
    )


def paired(start: Rows, policy: Rows) -> Rows:
    """Each of the policy's answers with the SFT model's answer to the same prompt, or None where there is none."""
    first = {row["prompt_key"]: row for row in start}
    rows = []
    for row in policy:
        old = first.get(row["prompt_key"])
        rows.append(
            {
                "prompt": row["prompt"],
                "sft_response": old["response"] if old else None,
                "policy_response": row["response"],
                "sft_score": old["score"] if old else None,
                "policy_score": row["score"],
                "gain": row["score"] - old["score"] if old else None,
                "kl": row["kl"],
            }
        )
    return rows


def table_of(rows: Rows) -> pd.DataFrame:
    """The rows as cells: texts in one line, numbers rounded."""
    cells = [
        {name: None if row[name] is None else " ".join(row[name].split()) for name in TEXTS}
        | {name: row[name] for name in NUMBERS}
        for row in rows
    ]
    frame = pd.DataFrame(cells, columns=[*TEXTS, *NUMBERS])
    return frame.astype(dict.fromkeys(NUMBERS, float)).round(3)


def _show(rows: Rows, iteration: int, key: str) -> None:
    st.caption(
        f"{count(len(rows), 'prompt')}, each answered with the same random numbers by the SFT model that the run "
        f"started from, and by the policy after iteration {iteration}. "
        "KL: how much more likely the policy's answer is now than at the start, in nats."
    )
    if gains := [row["gain"] for row in rows if row["gain"] is not None]:
        st.caption(f"Of the scores: {gain_words(gains)}")
    if lost := sum(row["sft_response"] is None for row in rows):
        st.caption(f"Of {lost} of {count(len(rows), 'prompt')}, the SFT model's answer is not recorded.")
    event = st.dataframe(
        table_of(rows),
        hide_index=True,
        on_select="rerun",
        selection_mode=("single-row", "single-cell"),
        key=key,
        column_config={
            **{name: st.column_config.TextColumn(label, width=135) for name, label in TEXTS.items()},
            **{name: st.column_config.NumberColumn(label, format="%.3f", width=85) for name, label in NUMBERS.items()},
        },
        alt=f"Answers of the SFT model and of the policy after iteration {iteration}",
    )
    places = [*event["selection"]["rows"], *(row for row, _ in event["selection"]["cells"])]
    chosen = [place for place in places if place < len(rows)]
    if rows:
        _in_full(rows[chosen[0] if chosen else 0])


def _in_full(row: dict[str, Any]) -> None:
    with st.container(border=True):
        st.caption(TEXTS["prompt"])
        st.text(row["prompt"])
        for column, name, score in zip(
            st.columns(2), ("sft_response", "policy_response"), ("sft_score", "policy_score"), strict=True
        ):
            with column:
                st.caption(TEXTS[name])
                st.text("not recorded" if row[name] is None else row[name])
                st.text(f"Score: {number(row[score])}")
        st.text(f"Gain: {number(row['gain'])}   KL: {number(row['kl'])}")
