"""The token inspector: a recorded response of a PPO run, token by token, coloured by any number that the loop had.

Only the file of the chosen iteration is read, and only the chosen response is sent to the browser. Model text goes to
our own component, which shows it as text, and to table cells.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from app.context import home
from app.widgets.components import register
from app.widgets.page import ShownErrors
from data.records import Run
from data.rollouts import HELD_OUT, TOKEN_COLUMNS, TRAIN, read_rollout, recorded_iterations

LABELS = {
    "logprob": "log-probability",
    "ref_logprob": "reference log-probability",
    "kl_penalty": "KL penalty",
    "reward": "reward",
    "value": "value",
    "td_error": "TD error",
    "advantage": "advantage",
    "return": "return",
    "ratio": "log ratio",
}
SAME_SCALE = (("logprob", "ref_logprob"), ("reward", "value", "td_error", "return", "kl_penalty"))
SIDES = {TRAIN: "Rollouts", HELD_OUT: "Fixed held-out prompts"}
BRIEF = ("prompt_key", "prompt", "response", "score", "kl", "ended")
MAX_CHANGES = 25
Rows = list[dict[str, Any]]

_mount = register(
    "tokens", "tokens.js", "tokens.css", '<div class="measures"></div><div class="panels"></div><p class="facts"></p>'
)


def has_rollouts(run: Run) -> bool:
    """Whether any update of the run was recorded, on this machine."""
    return any(recorded_iterations(home().run_folder(run.id), side) for side in SIDES)


def token_inspector(run: Run) -> None:
    """Choose a side, an iteration and a response, and draw it."""
    folder, key = home().run_folder(run.id), f"runs.tokens.{run.id}"
    sides = [side for side in SIDES if recorded_iterations(folder, side)]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        side = st.segmented_control(
            "Responses", sides, default=sides[0], required=True, format_func=SIDES.__getitem__, key=f"{key}.side"
        )
        iterations = recorded_iterations(folder, side or sides[0])[::-1]
        iteration = st.selectbox("Iteration", iterations, key=f"{key}.iteration.{side}", width=140)
    with ShownErrors():
        rows = read_rollout(folder, side or sides[0], iteration)
        place = _choose_row(rows, f"{key}.row.{side}")
        if side == HELD_OUT:
            _held_out(folder, iteration, rows[place], f"{key}.held_out")
        else:
            _draw(rows, [("This response", rows[place], None)], f"{key}.view", rows[place])


def _choose_row(rows: Rows, key: str) -> int:
    return st.selectbox(
        "Response",
        range(len(rows)),
        format_func=lambda place: row_label(rows[place], place),
        key=key,
    )


def row_label(row: dict[str, Any], place: int) -> str:
    """A response in one line: its number, score, KL, and how its prompt begins."""
    words = " ".join(row["prompt"].split())
    return f"{place + 1}. score {row['score']:.3g}, KL {row['kl']:.3g}: {words[:60]}"


def _draw(rows: Rows, panels: list[tuple[str, dict[str, Any], str | None]], key: str, row: dict[str, Any]) -> None:
    st.caption("Prompt")
    st.text(row["prompt"])
    is_beside = st.toggle("Policy and reference side by side", key=f"{key}.beside")
    if is_beside:
        panels = [
            (f"{title}: {side}", each, measure)
            for title, each, _ in panels
            for side, measure in (("policy", "logprob"), ("reference", "ref_logprob"))
        ]
    _mount(key=key, data=component_data(rows, panels))


def component_data(rows: Rows, panels: list[tuple[str, dict[str, Any], str | None]]) -> dict[str, Any]:
    """What the component draws. `rows`: all of the update, which the scales are made for; `panels`: what is shown."""
    limits = scale_limits([*rows, *(row for _, row, _ in panels)])
    return {
        "measures": [{"name": name, "label": LABELS[name], "limit": limits[name]} for name in TOKEN_COLUMNS],
        "panels": [panel_data(*panel) for panel in panels],
    }


def panel_data(title: str, row: dict[str, Any], measure: str | None) -> dict[str, Any]:
    """One response: its tokens, its numbers, and their sums."""
    values = measured(row)
    sums = {name: math.fsum(each) for name, each in values.items()}
    panel = {"title": title, "tokens": row["tokens"], "clipped": row["clipped"], "values": values, "sums": sums}
    return panel | ({"measure": measure} if measure else {})


def measured(row: dict[str, Any]) -> dict[str, list[float]]:
    """The numbers of a response, each with 0 in the middle of its scale: of the ratio the logarithm."""
    found = {name: [float(value) for value in row[name]] for name in TOKEN_COLUMNS}
    found["ratio"] = [math.log(max(value, 1e-30)) for value in found["ratio"]]
    return found


def scale_limits(rows: Rows) -> dict[str, float]:
    """The largest size of each measure over all rows; measures in the same unit share one."""
    sizes = dict.fromkeys(TOKEN_COLUMNS, 0.0)
    for row in rows:
        for name, values in measured(row).items():
            sizes[name] = max([sizes[name], *(abs(value) for value in values if math.isfinite(value))])
    for names in SAME_SCALE:
        sizes |= dict.fromkeys(names, max(sizes[name] for name in names))
    return {name: size or 1.0 for name, size in sizes.items()}


def _held_out(folder: Path, iteration: int, row: dict[str, Any], key: str) -> None:
    """A fixed prompt: the start's response beside this one, and how it changed over the iterations."""
    every = recorded_iterations(folder, HELD_OUT)
    panels: list[tuple[str, dict[str, Any], str | None]] = [(f"After iteration {iteration}", row, None)]
    first = [each for each in read_rollout(folder, HELD_OUT, every[0]) if each["prompt_key"] == row["prompt_key"]]
    if first and iteration != every[0]:
        panels.insert(0, ("At the start", first[0], None))
    _draw([row], panels, f"{key}.view", row)
    st.caption("How the response to this prompt changed")
    st.dataframe(
        changes_frame(folder, every, row["prompt_key"]),
        hide_index=True,
        key=f"{key}.changes",
        column_config={"response": st.column_config.TextColumn("response", width="large")},
        alt="The responses to this prompt by iteration",
    )


def changes_frame(folder: Path, iterations: list[int], prompt_key: str) -> pd.DataFrame:
    """One row for each recorded iteration (at most MAX_CHANGES, evenly spread), with only the columns it needs read."""
    step = max(1, -(-len(iterations) // MAX_CHANGES))
    kept = sorted({*iterations[::step], iterations[-1]})
    found = [
        (iteration, row["response"], row["score"], row["kl"], row["ended"])
        for iteration in kept
        for row in read_rollout(folder, HELD_OUT, iteration, BRIEF)
        if row["prompt_key"] == prompt_key
    ]
    return pd.DataFrame(found, columns=["iteration", "response", "score", "KL", "ended"]).round(3)
