"""Live curves of a run, or of several over each other: a component that is sent only what is new.

What each metric means stands in docs/metrics.md; here is one line for each chart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import streamlit as st

from app.actions.context import require, store
from app.widgets.base.components import register
from app.words.values import run_name
from data.records import MetricPoint, Role, Run
from data.runs.metrics import metrics_of
from data.runs.state import events_of, get_run
from data.store import Tx

REFRESH_S = 2.0
MAX_POINTS = 2_000
REWIND_EVENT = "resumed_from_checkpoint"
Curves = dict[str, tuple[list[int], list[float | None]]]

_mount = register("live", "live.js", "live.css", '<div class="bar"></div><div class="grid"></div>')


@dataclass(frozen=True)
class Chart:
    """Metrics of one scale that are read together. `names` are patterns."""

    title: str
    note: str
    names: tuple[str, ...]


CHARTS = (
    Chart(
        "Accuracy",
        "Share of pairs ordered as people ordered them; chance is 0.5.",
        ("*pair_accuracy*", "*length_accuracy*", "*exact_order*"),
    ),
    Chart("Score", "What the reward model gives a response, in its own units.", ("reward/score_*", "rloo/reward_*")),
    Chart(
        "Held-out score",
        "Of fixed prompts that PPO never sees. A second figure that falls while the score rises means gaming.",
        ("held_out/*score_mean", "held_out/objective", "held_out/*spread_mean"),
    ),
    Chart(
        "KL to the reference",
        "Nats per response by which the policy has moved from where it started. A fast rise means drift.",
        ("kl/k1_mean", "kl/k1_sum_mean", "held_out/kl_mean"),
    ),
    Chart("Total reward", "The score minus the KL penalty, per response: what PPO maximises.", ("reward/total*",)),
    Chart("Margin", "Score of the chosen response minus that of the rejected one.", ("*margin*",)),
    Chart(
        "Response length",
        "Tokens per response. Steady growth often means that the score is gamed.",
        ("*/length*", "*/tokens_mean"),
    ),
    Chart(
        "Responses that ended",
        "Share that ended by itself; the rest was cut at the limit.",
        ("*ended*", "*eos*", "rloo/cut_share"),
    ),
    Chart("Token accuracy", "Share of the tokens that the model would have said itself.", ("*token_accuracy*",)),
    Chart("Loss", "What is minimised.", ("loss", "*/loss*", "*_loss", "loss/*")),
    Chart("Entropy", "How undecided the policy is, in nats per token. A collapse ends exploration.", ("*entropy*",)),
    Chart(
        "Explained variance",
        "How well the critic foresees the return: 1 is perfect, below 0 is worse than a constant.",
        ("*explained_variance*",),
    ),
    Chart("Clip fraction", "Share of tokens whose ratio or value was clipped; 0.05 to 0.2 is usual.", ("*clip_frac*",)),
    Chart(
        "KL per token",
        "The same in nats per token, by an estimate that is never negative.",
        ("kl/*token*", "rloo/kl_token_mean"),
    ),
    Chart(
        "KL of the update",
        "Nats per token between the policies before and after it.",
        ("policy/approx_kl", "policy/update_kl"),
    ),
    Chart("KL coefficient", "Weight of the KL penalty; it moves only where a target is set.", ("kl/coef*",)),
    Chart("Weight of the update's KL", "It doubles or halves to meet its target.", ("policy/update_kl_coef",)),
    Chart("Ratio", "New over old probability; it starts at 1, or something is wrong.", ("*/ratio",)),
    Chart("First ratio", "How far it was from 1 before the first update: rounding at most.", ("*ratio_dev*",)),
    Chart("Value", "What the critic expects, on average over the tokens.", ("value/mean",)),
    Chart("Sampled", "Responses so far, and doubles among them.", ("sampling/responses", "sampling/doubles")),
    Chart("Gradient norm", "Before clipping. Spikes come before trouble.", ("*grad_norm*",)),
    Chart("Learning rate", "The step size of the optimiser.", ("*learning_rate*", "*/lr")),
    Chart("Tokens per second", "Response tokens over the time of each phase.", ("time/*_tokens_per_s",)),
    Chart("Time", "Seconds of a step, by what they were spent on.", ("time/*", "*seconds*", "*_s")),
)
PREFIX_NOTES = {
    "reward": "Of the reward model and the rewards made from it.",
    "kl": "Distance between the policy and its reference.",
    "policy": "Of the policy's update.",
    "value": "Of the critic.",
    "response": "Of the sampled responses.",
    "eval": "On held-out prompts.",
    "sampling": "Of the responses sampled so far.",
    "memory": "Memory in use.",
    "throughput": "How fast it goes.",
}


def charts_of(names: Iterable[str]) -> list[dict[str, Any]]:
    """Put each metric into its chart, in the order of CHARTS; a metric that no chart names gets one of its own."""
    left = sorted(set(names))
    charts = []
    for chart in CHARTS:
        mine = [name for name in left if any(fnmatchcase(name, pattern) for pattern in chart.names)]
        left = [name for name in left if name not in mine]
        if mine:
            charts.append(_as_data(chart.title, chart.note, mine))
    return charts + [_as_data(name, PREFIX_NOTES.get(name.split("/")[0], ""), [name]) for name in left]


def curves_of(points: Iterable[MetricPoint], limit: int = MAX_POINTS) -> Curves:
    """Points by metric: steps and values. A long curve is thinned to `limit` points that keep its peaks."""
    curves: Curves = {}
    for point in points:
        steps, values = curves.setdefault(point.name, ([], []))
        steps.append(point.step)
        values.append(point.value)
    return {name: thinned(steps, values, limit) for name, (steps, values) in curves.items()}


def thinned(steps: list[int], values: list[float | None], limit: int) -> tuple[list[int], list[float | None]]:
    """Keep the lowest and the highest point of each stretch, and the last point; gaps (None) stay gaps."""
    if len(steps) <= limit:
        return steps, values
    size = -(-2 * len(steps) // limit)
    kept = {len(steps) - 1}
    for start in range(0, len(steps), size):
        stretch = range(start, min(start + size, len(steps)))
        finite = [place for place in stretch if values[place] is not None]
        kept |= {place for place in stretch if values[place] is None}
        if finite:
            kept |= {min(finite, key=lambda at: values[at] or 0.0), max(finite, key=lambda at: values[at] or 0.0)}
    places = sorted(kept)
    return [steps[place] for place in places], [values[place] for place in places]


def live_curves(runs: Sequence[Run], key: str, *, is_active: bool) -> None:
    """Draw the curves of a run, and of further ones over them by the same steps; follow them while one is active."""
    st.fragment(_draw, run_every=REFRESH_S if is_active else None)(tuple(run.id for run in runs), key)


def _draw(run_ids: tuple[str, ...], key: str) -> None:
    require(Role.RESEARCHER)  # a fragment runs without its page
    sent = st.session_state.setdefault(f"{key}.sent", {}) if key in st.session_state else {}
    with store().read() as tx:
        news = {run_id: _news(tx, run_id, sent.get(run_id)) for run_id in run_ids}
    names = {name for _, memory in news.values() for name in memory["names"]}
    if not names:
        st.caption("Curves appear here with the first step.")
        return
    data = {"charts": charts_of(names), "runs": [part for part, _ in news.values()]}
    _mount(key=key, data=data, default={"have": None}, on_have_change=partial(_send_all_again, key))
    st.session_state[f"{key}.sent"] = {run_id: memory for run_id, (_, memory) in news.items()}


def _news(tx: Tx, run_id: str, memory: dict[str, Any] | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the browser lacks of a run, and what it has then. Of a run that has ended, nothing is sent twice."""
    run = get_run(tx, run_id)
    version = f"{run.id}.{len(events_of(tx, run.id, kinds=(REWIND_EVENT,)))}"
    if memory is None or memory["version"] != version:
        memory = {"version": version, "step": -1, "names": [], "is_whole": False}
    if memory["is_whole"] and run.status.is_final:
        after, points = memory["step"], []
    else:
        # A step's metrics may come in two transactions: the last step that was sent is sent again.
        after = max(memory["step"] - 1, -1)
        points = metrics_of(tx, run.id, after=after)
    part = {"id": run.id, "name": run_name(run), "version": version, "after": after, "points": curves_of(points)}
    return part, {
        "version": version,
        "step": max([memory["step"], *(point.step for point in points)]),
        "names": sorted({*memory["names"], *(point.name for point in points)}),
        "is_whole": run.status.is_final,
    }


def _send_all_again(key: str) -> None:
    st.session_state.pop(f"{key}.sent", None)


def _as_data(title: str, note: str, names: list[str]) -> dict[str, Any]:
    is_one_family = len({name.split("/")[0] for name in names}) == 1
    series = [{"name": name, "label": _label(name, is_one_family)} for name in names]
    return {"title": title, "note": note, "series": series}


def _label(name: str, is_one_family: bool) -> str:
    return (name.split("/", 1)[-1] if is_one_family else name).replace("_", " ")
