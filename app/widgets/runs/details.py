"""What a run has reported, standing still: notes, results, samples, events, configuration, log."""

from __future__ import annotations

import shlex
from typing import Any

import pandas as pd
import streamlit as st

from app.actions.context import home, require, store
from app.widgets.base.page import times
from app.widgets.base.problems import plain
from app.words.values import count, field_label, flatten, number, prompt_text, utc
from data.fields import describe
from data.records import Role, Run, RunEvent, RunKind
from data.runs.left_out import LEFT_OUT, left_out_lines
from data.runs.metrics import sample_steps, samples_of
from data.runs.state import events_of
from training.launch.kinds import CONFIGS, KINDS, settings
from training.launch.process import run_log

REFRESH_S = 5.0
ROUTINE = {
    "queued", "started", "checkpoint", "resumed", "resumed_from_checkpoint", "cancel_requested",
    "cancelled", "succeeded", "failed", "worker_lost", "not_finite", "best_compared", LEFT_OUT,
}  # fmt: skip
# Results whose numbers mean something only together: counts of further models, and what is said in words elsewhere.
IN_WORDS = ("beside", "best_standing", "pair_accuracy", "score_b_less_a")
TEXT_KEYS = ("prompt", "response")
MAX_METRICS = 8
MAX_CASES = 3
MAX_EVENTS = 1_000


def show_notes(run_id: str) -> None:
    """Say it beside the status if the run dropped, cut or skipped something: nothing of that may go unseen.

    What it left out of what it was asked for is said openly, all else on demand.
    """
    with store().read() as tx:
        lines, left_out = note_lines(events_of(tx, run_id)), left_out_lines(tx, run_id)
    if left_out:
        st.warning("\n\n".join(plain(each) for each in left_out), icon=":material/filter_alt:")
    if lines:
        label = f"{count(len(lines), 'note')}: what the run chose, cut or left out"
        with st.expander(label, icon=":material/info:", key=f"runs.notes.{run_id}"):
            for line in lines:
                st.text(line)


def note_lines(events: list[RunEvent]) -> list[str]:
    """What is worth knowing of a run's events: one line for each kind, with its number and its first cases."""
    kinds: dict[str, list[str]] = {}
    for event in events:
        if event.kind not in ROUTINE:
            kinds.setdefault(event.kind, []).append(detail_words(event))
    lines = []
    for kind, details in kinds.items():
        often = f" ({len(details):,} times)" if len(details) > 1 else ""
        more = " | ..." if len(details) > MAX_CASES else ""
        lines.append(f"{field_label(kind)}{often}: {' | '.join(details[:MAX_CASES])}{more}")
    return lines


def show_results(run: Run) -> None:
    """The numbers that the run ended with."""
    facts = flatten(run.result)
    numbers = {
        name: value for name, value in facts.items() if isinstance(value, int | float) and not name.startswith(IN_WORDS)
    }
    if numbers:
        with st.grid(4, min_column_width=150):
            for name, value in list(numbers.items())[:MAX_METRICS]:
                st.metric(field_label(name.replace("/", " ").replace(".", " ")), number(value), border=True)
    rest = {name: value for name, value in facts.items() if name not in list(numbers)[:MAX_METRICS]}
    if rest:
        with st.expander("More results", key=f"runs.results.{run.id}"):
            facts_table(rest, f"runs.results.table.{run.id}")


def show_samples(run_id: str, key: str, *, is_active: bool) -> None:
    """The texts of a step: a table to sort, and one of them in full."""
    st.fragment(_samples, run_every=REFRESH_S if is_active else None)(run_id, key)


def _samples(run_id: str, key: str) -> None:
    require(Role.RESEARCHER)  # a fragment runs without its page
    with store().read() as tx:
        steps = sample_steps(tx, run_id)
    if not steps:
        st.caption("This run has shown no texts yet.")
        return
    with st.container(horizontal=True, vertical_alignment="bottom"):
        newest = f"newest (step {steps[-1]})"
        options = [newest, *(str(step) for step in reversed(steps))]
        chosen = st.selectbox("Step", options, key=f"{key}.step", width=220) if len(steps) > 1 else newest
        order = st.segmented_control(
            "Order",
            ["as sampled", "best score", "worst score"],
            default="as sampled",
            required=True,
            key=f"{key}.order",
        )
    with store().read() as tx:
        step = steps[-1] if chosen == newest or chosen is None else int(chosen)
        bodies = [body for _, body in samples_of(tx, run_id, step)]
    bodies = ordered(bodies, order or "")
    frame = samples_frame(bodies)
    event = st.dataframe(
        frame,
        hide_index=True,
        on_select="rerun",
        selection_mode=("single-row", "single-cell"),
        key=f"{key}.table",
        column_config={
            "prompt": st.column_config.TextColumn("Prompt", width=170),
            "response": st.column_config.TextColumn("Response", width=300),
            "score": "Score",
            "kl": "KL",
            "n_tokens": "Tokens",
            "ended": "Ended",
        },
        alt=f"Samples of step {step}",
    )
    chosen_rows = [*event["selection"]["rows"], *(row for row, _ in event["selection"]["cells"])]
    rows = [row for row in chosen_rows if row < len(bodies)]
    _one_sample(bodies[rows[0] if rows else 0])


def ordered(bodies: list[dict[str, Any]], order: str) -> list[dict[str, Any]]:
    """Samples by their score; those without one come last."""
    if order not in ("best score", "worst score"):
        return bodies
    sign = -1.0 if order == "best score" else 1.0

    def place(body: dict[str, Any]) -> tuple[bool, float]:
        score = body.get("score")
        return (True, 0.0) if not isinstance(score, int | float) else (False, sign * score)

    return sorted(bodies, key=place)


def samples_frame(bodies: list[dict[str, Any]]) -> pd.DataFrame:
    """Samples as a table, whatever fields they have: texts first, then what is one number or word."""
    names = list(dict.fromkeys(name for body in bodies for name, value in body.items() if not isinstance(value, dict)))
    names = [name for name in TEXT_KEYS if name in names] + [name for name in names if name not in TEXT_KEYS]
    return pd.DataFrame([{name: _cell(name, body.get(name)) for name in names} for body in bodies], columns=names)


def _cell(name: str, value: Any) -> Any:
    if name in TEXT_KEYS:
        return " ".join(prompt_text(value).split())
    return value if isinstance(value, int | float | bool | None) else str(value)


def _one_sample(body: dict[str, Any]) -> None:
    with st.container(border=True):
        for name in TEXT_KEYS:
            if name in body:
                st.caption(name.capitalize())
                st.text(prompt_text(body[name]))
        facts = {name: value for name, value in flatten(body).items() if name not in TEXT_KEYS}
        st.text("   ".join(f"{field_label(name)}: {number(value)}" for name, value in facts.items()))


def show_events(run_id: str) -> None:
    """Everything that happened to the run, the newest first."""
    with store().read() as tx:
        events = events_of(tx, run_id)[::-1]
    if len(events) > MAX_EVENTS:
        st.caption(f"The newest {MAX_EVENTS:,} of {len(events):,}")
        events = events[:MAX_EVENTS]
    table = pd.DataFrame(
        {
            "when": times([event.at for event in events]),
            "what": [field_label(event.kind) for event in events],
            "detail": [detail_words(event) for event in events],
        }
    )
    st.dataframe(
        table,
        hide_index=True,
        key=f"runs.events.{run_id}",
        column_config={
            "when": st.column_config.DatetimeColumn("When", format="YYYY-MM-DD HH:mm:ss", width="medium"),
            "what": st.column_config.TextColumn("What", width="medium"),
            "detail": st.column_config.TextColumn("Detail", width="large"),
        },
        alt="Events of the run",
    )


def detail_words(event: RunEvent) -> str:
    """An event's detail as one line."""
    parts = []
    for name, value in flatten(event.detail).items():
        words = ", ".join(map(str, value)) if isinstance(value, list) else number(value)
        parts.append(f"{name.replace('_', ' ')} {words}")
    return "; ".join(parts)


def show_config(run: Run) -> None:
    """The exact settings beside their defaults, how to ask for the same again, and with what it computed."""
    rows = config_rows(run)
    changed = [name for name, _, _, is_changed in rows if is_changed]
    st.caption(
        f"{count(len(changed), 'field')} differ from the default." if changed else "All fields have their default."
    )
    only = st.toggle("Only what differs", key=f"runs.config.only.{run.id}")
    shown = [(name, value, default) for name, value, default, is_changed in rows if is_changed or not only]
    st.dataframe(
        pd.DataFrame(shown, columns=["field", "value", "default"]),
        hide_index=True,
        key=f"runs.config.table.{run.id}.{only}",
        column_config={"field": "Field", "value": "Value", "default": "Default"},
        alt="Configuration of the run",
    )
    if words := command_line(run):
        st.caption("The same again from the command line")
        st.code(words, language=None, wrap_lines=True)
    facts = {"run": run.id, "attempt": run.attempt, "queued": utc(run.created_at), **flatten(run.versions)}
    st.caption("Versions and machine")
    facts_table(facts, f"runs.versions.{run.id}")


def config_rows(run: Run) -> list[tuple[str, str, str, bool]]:
    """(field, value, default, whether they differ), in the order of the configuration."""
    defaults, asked = {info.name: info.default for info in describe(CONFIGS[run.kind])}, settings(run)
    names = [name for name in defaults if name in asked] + [name for name in asked if name not in defaults]
    return [(name, str(asked[name]), str(defaults.get(name, "")), asked[name] != defaults.get(name)) for name in names]


def command_line(run: Run) -> str:
    """The command that queues a run with the same settings; empty for a kind that the command line does not have."""
    if not KINDS[run.kind].command:
        return ""
    words = ["rankloop", *KINDS[run.kind].command.split()]
    if run.kind is RunKind.SCORE:
        words.append(str(run.config.get("input_file", "")))
    if run.snapshot_id:
        words += ["--snapshot", run.snapshot_id]
    elif run.project_id and run.kind is not RunKind.SCORE:
        words += ["--project", run.project_id]
    if run.reward_run_id:
        words += ["--reward-run", run.reward_run_id]
    for name, value, _, is_changed in config_rows(run):
        if is_changed and name != "input_file":
            words += ["--set", f"{name}={value}"]
    return shlex.join(words)


def show_log(run_id: str, *, is_active: bool) -> None:
    """The end of the log."""
    st.fragment(_log, run_every=REFRESH_S if is_active else None)(run_id)


def _log(run_id: str) -> None:
    require(Role.RESEARCHER)  # a fragment runs without its page
    text = run_log(home(), run_id)
    if not text:
        st.caption("There is no log yet, or it lies on another machine.")
        return
    st.code("\n".join(text.splitlines()[-200:]), language=None, height=420)
    st.link_button(
        "Download log", f"/download/run/{run_id}/log.txt", icon=":material/download:", key=f"runs.log.{run_id}"
    )


def facts_table(facts: dict[str, Any], key: str) -> None:
    """Names and values as a table."""
    table = pd.DataFrame([(name, number(value)) for name, value in facts.items()], columns=["name", "value"])
    st.dataframe(table, hide_index=True, key=key, column_config={"name": "Name", "value": "Value"}, alt="Facts")
