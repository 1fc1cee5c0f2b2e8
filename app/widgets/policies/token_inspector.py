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

from app.actions.context import home, store
from app.widgets.base.components import register
from app.widgets.base.page import ShownErrors
from app.widgets.policies.distributions import show_distributions
from app.widgets.policies.response_list import choose_response, k3
from app.widgets.runs.overlay import choice_label
from app.words.values import run_name
from data.files.rollouts import HELD_OUT, TOKEN_COLUMNS, TRAIN, read_rollout, recorded_iterations
from data.records import Run, RunKind
from data.runs.state import list_runs

LABELS = {
    "logprob": "log-probability",
    "ref_logprob": "reference log-probability",
    "log_ratio": "log-ratio to the reference",
    "k3": "k3",
    "kl_penalty": "KL penalty",
    "reward": "reward",
    "value": "value",
    "td_error": "TD error",
    "advantage": "advantage",
    "return": "return",
    "ratio": "log-ratio of the update",
    "probability": "probability",
    "ref_probability": "reference probability",
}
SAME_SCALE = (
    ("logprob", "ref_logprob"), ("reward", "value", "td_error", "return", "kl_penalty"),
    ("probability", "ref_probability"),
)  # fmt: skip
NOT_SUMMED = ("probability", "ref_probability")
SIDES = {TRAIN: "Rollouts", HELD_OUT: "Fixed held-out prompts"}
BRIEF = ("prompt_key", "prompt", "response", "score", "kl", "ended")
MAX_CHANGES = 25
MAX_BESIDE, MAX_RUNS = 3, 200
Rows = list[dict[str, Any]]
Panels = list[tuple[str, dict[str, Any], str | None]]  # title, response, the measure that it keeps to

mount = register(
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
        chosen = st.segmented_control(
            "Responses", sides, default=sides[0], required=True, format_func=SIDES.__getitem__, key=f"{key}.side"
        )
        side = chosen or sides[0]
        iteration = _choose_iteration(recorded_iterations(folder, side), f"{key}.iteration.{side}")
    with ShownErrors():
        rows = read_rollout(folder, side, iteration)
        start = start_scores(folder) if side == HELD_OUT else {}
        with st.expander("How they are spread", icon=":material/bar_chart:", key=f"{key}.spread.{side}"):
            show_distributions(rows, start, f"{key}.spread.{side}")
        index = choose_response(rows, start, f"{key}.list.{side}")
        if index is None:
            return
        if side == HELD_OUT:
            _held_out(run, iteration, rows, index, f"{key}.held_out")
        else:
            _draw(rows, [(f"Response {index + 1}", rows[index], None)], f"{key}.view", rows[index])


def _choose_iteration(iterations: list[int], key: str) -> int:
    """A slider over what is recorded, the newest at first; the arrow keys go from one to the next."""
    if len(iterations) == 1:  # a slider needs two ends
        st.text(f"Iteration {iterations[0]}")
        return iterations[0]
    return int(st.select_slider("Iteration", iterations, value=iterations[-1], key=key))


def start_scores(folder: Path) -> dict[str, float]:
    """What the first evaluation's answers scored, by prompt; of its file only these two columns are read."""
    first = recorded_iterations(folder, HELD_OUT)[0]
    rows = read_rollout(folder, HELD_OUT, first, ("prompt_key", "score"))
    return {row["prompt_key"]: row["score"] for row in rows}


def _draw(rows: Rows, panels: Panels, key: str, row: dict[str, Any]) -> None:
    st.caption("Prompt")
    st.text(row["prompt"])
    is_beside = st.toggle("Policy and reference side by side", key=f"{key}.beside")
    if is_beside:
        panels = [
            (f"{title}: {side}", each, measure)
            for title, each, _ in panels
            for side, measure in (("policy", "logprob"), ("reference", "ref_logprob"))
        ]
    mount(key=key, data=component_data(rows, panels))


def component_data(rows: Rows, panels: Panels) -> dict[str, Any]:
    """What the component draws. `rows`: all of the update, which the scales are made for; `panels`: what is shown."""
    limits = scale_limits([*rows, *(row for _, row, _ in panels)])
    return {
        "measures": [{"name": name, "label": label, "limit": limits[name]} for name, label in LABELS.items()],
        "panels": [panel_data(*panel) for panel in panels],
    }


def panel_data(title: str, row: dict[str, Any], measure: str | None) -> dict[str, Any]:
    """One response: its tokens, its numbers, and their sums."""
    values = measured(row)
    sums = {name: math.fsum(each) for name, each in values.items() if name not in NOT_SUMMED}
    panel = {"title": title, "tokens": row["tokens"], "clipped": row["clipped"], "values": values, "sums": sums}
    return panel | ({"measure": measure} if measure else {})


def measured(row: dict[str, Any]) -> dict[str, list[float]]:
    """The numbers of a response, each with 0 in the middle of its scale: of the ratio the logarithm.

    Beside what is recorded, what follows from it: the log-ratio to the reference, k3 and the probabilities.
    """
    columns = {name: [float(value) for value in row[name]] for name in TOKEN_COLUMNS}
    columns["ratio"] = [math.log(max(value, 1e-30)) for value in columns["ratio"]]
    columns["log_ratio"] = [own - ref for own, ref in zip(columns["logprob"], columns["ref_logprob"], strict=True)]
    columns["k3"] = [k3(-value) for value in columns["log_ratio"]]
    for name, of in (("probability", "logprob"), ("ref_probability", "ref_logprob")):
        columns[name] = [math.exp(min(value, 0.0)) for value in columns[of]]
    return columns


def scale_limits(rows: Rows) -> dict[str, float]:
    """The largest size of each measure over all rows; measures in the same unit share one."""
    sizes = dict.fromkeys(LABELS, 0.0)
    for row in rows:
        for name, values in measured(row).items():
            sizes[name] = max([sizes[name], *(abs(value) for value in values if math.isfinite(value))])
    for names in SAME_SCALE:
        sizes |= dict.fromkeys(names, max(sizes[name] for name in names))
    return {name: size or 1.0 for name, size in sizes.items()}


def _held_out(run: Run, iteration: int, rows: Rows, place: int, key: str) -> None:
    """A fixed prompt: the start's response and other runs' beside this one, and how it changed over the iterations."""
    folder, row = home().run_folder(run.id), rows[place]
    every = recorded_iterations(folder, HELD_OUT)
    panels: Panels = [(f"After iteration {iteration}", row, None)]
    first = _answer(folder, every[0], row["prompt_key"])
    if first and iteration != every[0]:
        panels.insert(0, ("At the start", first, None))
    panels += _of_other_runs(run, iteration, row["prompt_key"], key)
    _draw([row], panels, f"{key}.view", row)
    st.caption("How the response to this prompt changed")
    st.dataframe(
        changes_frame(folder, every, row["prompt_key"]),
        hide_index=True,
        key=f"{key}.changes",
        column_config={"response": st.column_config.TextColumn("response", width="large")},
        alt="The responses to this prompt by iteration",
    )


def _answer(folder: Path, iteration: int, prompt_key: str) -> dict[str, Any] | None:
    """What was answered to a fixed prompt, with all its numbers."""
    return next((row for row in read_rollout(folder, HELD_OUT, iteration) if row["prompt_key"] == prompt_key), None)


def _of_other_runs(run: Run, iteration: int, prompt_key: str, key: str) -> Panels:
    """Answers of further PPO runs of the project to the same prompt, where some are chosen: after the same iteration,
    or the nearest one that they have recorded."""
    with store().read() as tx:
        runs = list_runs(tx, project_id=run.project_id, kinds=(RunKind.PPO,), limit=MAX_RUNS) if run.project_id else []
    others = {other.id: other for other in runs if other.id != run.id and _evaluations(other)}
    if not others:
        return []
    chosen = st.multiselect(
        "Other runs beside it", list(others), format_func=lambda run_id: choice_label(others[run_id]),
        max_selections=MAX_BESIDE, placeholder=f"Up to {MAX_BESIDE} PPO runs of this project", key=f"{key}.runs",
    )  # fmt: skip
    panels: Panels = []
    for run_id in chosen:
        nearest = min(_evaluations(others[run_id]), key=lambda there: abs(there - iteration))
        answer = _answer(home().run_folder(run_id), nearest, prompt_key)
        if answer is None:
            st.caption(f"{run_name(others[run_id])} has not recorded an answer to this prompt.")
        else:
            panels.append((f"{run_name(others[run_id])} after iteration {nearest}", answer, None))
    return panels


def _evaluations(run: Run) -> list[int]:
    return recorded_iterations(home().run_folder(run.id), HELD_OUT)


def changes_frame(folder: Path, iterations: list[int], prompt_key: str) -> pd.DataFrame:
    """One row for each recorded iteration (at most MAX_CHANGES, evenly spread), with only the columns it needs read."""
    step = max(1, -(-len(iterations) // MAX_CHANGES))
    kept = sorted({*iterations[::step], iterations[-1]})
    rows = [
        (iteration, row["response"], row["score"], row["kl"], row["ended"])
        for iteration in kept
        for row in read_rollout(folder, HELD_OUT, iteration, BRIEF)
        if row["prompt_key"] == prompt_key
    ]
    return pd.DataFrame(rows, columns=["iteration", "response", "score", "KL", "ended"]).round(3)
