"""How far annotators agree, as cards: each figure with its interval and its n, what is undefined as that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import streamlit as st

from app.actions.context import store
from app.words.values import count, run_name
from data.errors import NotFound
from data.files.snapshots import get_snapshot
from data.intervals import LEAST_PROMPTS
from data.records import Project, Run, RunKind, RunStatus
from data.runs.state import list_runs

if TYPE_CHECKING:
    from labeling.review.agreement import Agreement, Figure

# Field of `Agreement`, label, whether it is a share, what n counts, what it is.
_FIGURES = (
    ("pairs_with_ties", "Pair agreement", True, "comparison",
     "How often two people say the same of a pair of responses: better, worse or equal. With two values chance gives "
     "about a half; published projects have 63 to 77 %."),
    ("pairs_without_ties", "Without ties", True, "comparison",
     "The same, of the pairs where both saw a difference."),
    ("alpha", "Krippendorff's α", False, "judgement",
     "Agreement beyond chance: 1 is perfect, 0 is what chance gives. Undefined where all say the same of everything."),
    ("tau", "Kendall's tau-b", False, "pair of rankings",
     "How alike two people's whole rankings of a task are: 1 the same order, 0 none, -1 the other way round."),
)  # fmt: skip


def agreement_cards(agreement: Agreement) -> None:
    """The four figures of agreement."""
    with st.grid(4, min_column_width=170):
        for name, label, is_share, unit, about in _FIGURES:
            _card(label, getattr(agreement, name), is_share, unit, about)
    st.caption(
        f"{count(agreement.n_units, 'pair')} of responses in {count(agreement.n_tasks, 'task')} were compared by two "
        f"people or more, {count(agreement.n_annotator_pairs, 'pair')} of annotators in all. Beside them: "
        f"{count(agreement.n_unacceptable, 'answer')} that no response is acceptable, "
        f"{count(agreement.n_skipped, 'skip')}. "
        "Intervals are 95 %, from a bootstrap over prompts."
    )


def human_mark(project: Project, agreement: Agreement) -> None:
    """What a reward model is measured against, and what the project's reward models reach."""
    about = (
        "How many of the pairs in one person's ranking another person has in the same order, a tie counting half: as a "
        "reward model's accuracy is counted."
    )
    rows = _reward_runs(project)
    left, right = st.columns([1, 3], vertical_alignment="top")
    with left:
        _card(
            "Human pair accuracy", agreement.human_accuracy, True, "ranking foretold", about, plural="rankings foretold"
        )
    with right:
        st.caption(mark_words(agreement.human_accuracy))
        if rows:
            st.dataframe(
                pd.DataFrame(rows),
                hide_index=True,
                key="quality.reward_runs",
                column_config={
                    "run": "Run",
                    "model": st.column_config.NumberColumn("Model, held out", format="percent"),
                    "interval": "95 %",
                    "n": "Rankings foretold",
                    "people": st.column_config.NumberColumn("People, same side", format="percent"),
                },
                alt="Reward models beside the people on their held-out side",
            )
        else:
            st.caption("No reward model has been trained on a snapshot of this project.")


def mark_words(figure: Figure) -> str:
    """What the mark means, where there are prompts enough for one."""
    table = "In the table each model stands beside the people on its own held-out side."
    if not figure.is_told:
        n = count(figure.n_prompts, "prompt")
        return (
            f"How well one person foretells another would be the mark for a reward model. It can't be told yet: two "
            f"people ranked the same {n}, and {LEAST_PROMPTS} are needed. {table}"
        )
    low, high = _value(figure.low, is_share=True), _value(figure.high, is_share=True)
    return (
        f"One person foretells another this well ({low} to {high}, {count(figure.n_prompts, 'prompt')}): the mark for "
        "a reward model. Where a model's interval lies below it, more data or a better model helps. Where it lies "
        "above, the model knows what most people prefer better than one of them does, and more is hardly to be had. "
        f"Where the two overlap it can't be told. {table}"
    )


def _card(label: str, figure: Figure, is_share: bool, unit: str, about: str, *, plural: str = "") -> None:
    with st.container(border=True, height="stretch"):
        st.metric(label, _value(figure.value, is_share), help=about)
        if figure.low is None or figure.high is None:
            interval = "no interval" if figure.value is not None else "nothing to compute it from"
        else:
            interval = f"{_value(figure.low, is_share)} to {_value(figure.high, is_share)}"
        several = plural or (unit.replace("pair of", "pairs of") if unit.startswith("pair of") else f"{unit}s")
        st.caption(interval)
        st.caption(f"n = {figure.n:,} {unit if figure.n == 1 else several}")
        if figure.value is not None and not figure.is_told:
            st.caption(f"{count(figure.n_prompts, 'prompt')}: too few to tell, {LEAST_PROMPTS} are needed")


def _value(value: float | None, is_share: bool) -> str:
    return "undefined" if value is None else f"{value:.1%}" if is_share else f"{value:.2f}"


def _reach(run: Run) -> str:
    """The interval of a run's held-out accuracy; runs of older releases did not tell it."""
    told = run.result.get("pair_accuracy") or {"low": None, "prompts": 0}
    if told["low"] is None:
        return "not known"
    return f"{told['low']:.0%} to {told['high']:.0%}, {count(told['prompts'], 'prompt')}"


def _reward_runs(project: Project) -> list[dict[str, object]]:
    """The newest finished reward runs, with the accuracy of people on the same held-out side."""
    rows: list[dict[str, object]] = []
    with store().read() as tx:
        for run in list_runs(tx, project_id=project.id, kinds=(RunKind.REWARD,), limit=10):
            accuracy = run.result.get("held_out", {}).get("pair_accuracy")
            if run.status is not RunStatus.SUCCEEDED or accuracy is None or run.snapshot_id is None:
                continue
            try:
                counts = get_snapshot(tx, run.snapshot_id).counts
            except NotFound:
                continue
            people = counts.get("human_pair_accuracy")
            n = counts.get("human_pair_accuracy_n", 0)
            rows.append(
                {
                    "run": run_name(run),
                    "model": round(accuracy, 3),
                    "interval": _reach(run),
                    "people": people and round(people, 3),
                    "n": n,
                }
            )
    return rows
