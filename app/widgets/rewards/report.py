"""The report of a reward run on its page: verdicts first, then each figure beside what it has to be held against."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from app.actions.context import PROJECT_KEY, home
from app.widgets.base.page import go_to
from app.widgets.base.problems import plain
from app.widgets.rewards.charts import best_of_chart, learning_chart, reliability_chart, score_chart, share_chart
from app.words.values import count
from data.intervals import LEAST_PROMPTS, Told
from data.intervals import told as told_by_interval
from data.records import Run, RunKind

KEY = "report"
FILE = "report.json"
SCHEMA = 1


def report_path(run: Run) -> Path | None:
    """Where the run's report lies, or None where it has none."""
    path = home().run_folder(run.id) / FILE
    return path if run.kind is RunKind.REWARD and path.is_file() else None


def show_report(run: Run) -> None:
    """Draw the whole report."""
    path = report_path(run)
    if path is None:
        st.caption("This run has no report: it had no held-out rankings.")
        return
    report = json.loads(path.read_text(encoding="utf-8"))
    if report.get("schema") != SCHEMA:
        st.caption("This report was written by another release; the file is in the run's folder.")
        return
    _verdicts(report)
    _beside(report)
    left, right = st.columns(2)
    with left:
        _calibration(report["model"]["calibration"])
        _best_of(report["model"]["best_of"])
    with right:
        _scores(report["model"])
        _learning(report.get("learning_curve"))
    _parts(report["model"])
    _worst(report["worst"], run)


def _verdicts(report: dict[str, Any]) -> None:
    first, *rest = report["verdicts"]
    show, icon = {
        Told.MORE: (st.success, ":material/check:"),
        Told.LESS: (st.warning, ":material/straighten:"),
        Told.UNCLEAR: (st.warning, ":material/straighten:"),
        Told.TOO_FEW: (st.info, ":material/hourglass_empty:"),
    }[told_of(report["model"]["length"]["model_less_baseline"])]
    show(plain(first), icon=icon)
    for words in rest:
        st.caption(plain(words))


def told_of(difference: dict[str, Any]) -> Told:
    """What the difference of shares allows to say, as the words of the verdict do."""
    return told_by_interval(difference["low"], difference["high"], difference["prompts"])


def _beside(report: dict[str, Any]) -> None:
    """The model, its baselines and the ceiling, with intervals."""
    model = report["model"]
    rows = {"This model": model["pair_accuracy"], f"Length: {model['length']['baseline']}": model["length"]["accuracy"]}
    if "instant" in report:
        rows["Instant reward model"] = report["instant"]["pair_accuracy"]
    if model["human_agreement"]["value"] is not None:
        rows["Two people"] = model["human_agreement"]
    st.header("Pair accuracy on held-out prompts", anchor=False)
    st.altair_chart(share_chart(rows, "Share of pairs in people's order"), alt=_in_words(rows))
    words = [
        f"{count(model['rankings'], 'held-out ranking')}, {count(model['pairs'], 'pair')}.",
        f"Exact order: {share_words(model['exact_order'])}.",
        f"Kendall's tau-b: {share_words(model['tau'], percent=False)}.",
        f"Intervals are 95 %, over {count(model['pair_accuracy']['prompts'], 'prompt')}{few_words(model)}.",
        f"Correlation with length: {_number(model['length']['correlation'])}, within rankings "
        f"{_number(model['length']['correlation_within_rankings'])}.",
    ]
    st.caption(" ".join(words))


def share_words(figure: dict[str, Any], *, percent: bool = True) -> str:
    """`62 % (55 % to 70 %)`, or `unknown`."""
    if figure["value"] is None:
        return "unknown"
    shown = [f"{100 * figure[name]:.0f} %" if percent else f"{figure[name]:.2f}" for name in ("value", "low", "high")
             if figure[name] is not None]  # fmt: skip
    return shown[0] if len(shown) == 1 else f"{shown[0]} ({shown[1]} to {shown[2]})"


def few_words(model: dict[str, Any]) -> str:
    """What is said of intervals over a handful of prompts."""
    if model["pair_accuracy"]["prompts"] >= LEAST_PROMPTS:
        return ""
    return f": below {LEAST_PROMPTS} they are narrower than they should be"


def _in_words(rows: dict[str, dict[str, Any]]) -> str:
    return "; ".join(f"{name}: {share_words(figure)}" for name, figure in rows.items())


def _calibration(calibration: dict[str, Any]) -> None:
    st.header("Calibration", anchor=False)
    st.altair_chart(
        reliability_chart(calibration["bins"]), alt="How often the preferred response won, by how sure the model is"
    )
    st.caption(
        f"Calibration error {calibration['error']:.3f}. {sureness_words(calibration)} With its scores divided by that, "
        f"the error is {calibration['error_at_temperature']:.3f}."
    )


def sureness_words(calibration: dict[str, Any]) -> str:
    """Whether the model is too sure, with the interval of the fitted temperature and its n."""
    said = f"Fitted temperature {calibration['temperature']:.2f}"
    if "told" not in calibration:
        return f"{said}, with an interval that is not known: the report is of an older release."
    n = f"{count(calibration['n'], 'pair')} of {count(calibration['prompts'], 'prompt')}"
    if calibration["told"] == Told.TOO_FEW:
        return f"{said}: whether the model is too sure can't be told of {n}."
    said += f" ({calibration['temperature_low']:.2f} to {calibration['temperature_high']:.2f}, {n})"
    words = {Told.MORE: "the model is too sure", Told.LESS: "the model is not sure enough"}
    unclear = "whether the model is too sure, or not sure enough, can't be told"
    return f"{said}: {words.get(Told(calibration['told']), unclear)}."


def _scores(model: dict[str, Any]) -> None:
    st.header("Scores", anchor=False)
    st.altair_chart(score_chart(model["scores"]), alt="Histograms of the scores of responses ranked first and last")
    first, last = model["scores"]["first"], model["scores"]["last"]
    st.caption(
        f"Ranked first: {first['mean']:.2f} on average (spread {first['std']:.2f}); ranked last: {last['mean']:.2f} "
        f"({last['std']:.2f})."
    )


def _best_of(points: list[dict[str, Any]]) -> None:
    st.header("Best of n", anchor=False)
    st.altair_chart(best_of_chart(points), alt="What choosing the best-scored of n responses gives")
    st.caption("Share of the other responses that the chosen one beats in people's eyes; a random one beats half.")


def _learning(curve: dict[str, Any] | None) -> None:
    st.header("More labels", anchor=False)
    if curve is None:
        st.caption("Too few rankings to draw a learning curve, or no frozen model has read them.")
        return
    st.altair_chart(learning_chart(curve), alt="Accuracy of the instant reward model by the number of rankings")
    st.caption(plain(more_words(curve)))


def more_words(curve: dict[str, Any]) -> str:
    """What the extrapolation says, with its interval."""
    more, twice = curve["more_for_one_point"], curve["at_twice"]
    if "prompts" in curve and curve["prompts"] < LEAST_PROMPTS:
        return (
            f"How much more rankings would bring can't be told: {count(curve['prompts'], 'held-out prompt')}, and "
            f"{LEAST_PROMPTS} are needed."
        )
    return (
        f"{_needed(more)} At twice the rankings: {100 * twice['accuracy']:.1f} % ({100 * twice['low']:.1f} % to "
        f"{100 * twice['high']:.1f} %). {_asked(curve)}This is of the instant reward model; a fine-tuned one may gain "
        "more or less."
    )


def _needed(more: dict[str, float | None]) -> str:
    """How many rankings one more point takes. None of a number: never, of the lower end: in more than 97.5 % never."""
    if more["rankings"] is None and more["low"] is not None:
        return (
            f"Whether the curve has flattened can't be told: one more point takes {more['low']:,.0f} rankings or more."
        )
    if more["rankings"] is None:
        return "The curve has flattened: no number of rankings promises one more point (95 %)."
    low = f"{more['low']:,.0f}" if more["low"] is not None else "unknown"
    high = f"{more['high']:,.0f}" if more["high"] is not None else "never"
    return f"About {more['rankings']:,.0f} more rankings for one more point (95 %: {low} to {high})."


def _asked(curve: dict[str, Any]) -> str:
    """How many held-out prompts the curve is of; reports of older releases did not tell it."""
    return f"Of {count(curve['prompts'], 'held-out prompt')}. " if "prompts" in curve else ""


def _parts(model: dict[str, Any]) -> None:
    """Accuracy by distance, K, annotator and flag."""
    st.header("Where it is right", anchor=False)
    tables = {
        "distance of ranks": model["by_distance"],
        "responses": model["by_k"],
        "annotator": model["by_annotator"],
        "flag": model["by_flag"],
    }
    frames = [pd.DataFrame([_part(name, row) for row in rows]) for name, rows in tables.items() if rows]
    st.dataframe(
        pd.concat(frames, ignore_index=True),
        hide_index=True,
        key=f"{KEY}.parts",
        column_config={
            "by": "By",
            "of": "Which",
            "accuracy": st.column_config.ProgressColumn("Accuracy", min_value=0, max_value=1, format="percent"),
            "interval": "95 %",
            "pairs": "Pairs",
            "prompts": "Prompts",
        },
        alt="Pair accuracy by parts of the held-out rankings",
    )


def _part(name: str, row: dict[str, Any]) -> dict[str, Any]:
    reach = "one prompt" if row["low"] is None else f"{row['low']:.0%} to {row['high']:.0%}"
    return {"by": name, "of": str(row["of"]), "accuracy": row["value"], "interval": reach, "pairs": row["n"],
            "prompts": row["prompts"]}  # fmt: skip


def _worst(rows: list[dict[str, Any]], run: Run) -> None:
    """The worst disagreements as a table, and one in full with the way to its ranking, prompt and annotator."""
    st.header("Worst disagreements", anchor=False)
    if not rows:
        st.caption("The model puts no held-out pair the wrong way round.")
        return
    columns = ("margin", "prompt", "better", "worse", "annotator", "ranking_id")
    frame = pd.DataFrame([{name: _cell(row[name]) for name in columns} for row in rows])
    event = st.dataframe(
        frame,
        hide_index=True,
        on_select="rerun",
        selection_mode=("single-row", "single-cell"),
        key=f"{KEY}.worst",
        column_config={
            "margin": st.column_config.NumberColumn("Score difference", format="%.2f"),
            "prompt": "Prompt",
            "better": "People preferred",
            "worse": "The model preferred",
            "annotator": "Annotator",
            "ranking_id": "Ranking",
        },
        alt="Pairs that the model gets most wrong",
    )
    chosen = [*event["selection"]["rows"], *(row for row, _ in event["selection"]["cells"])]
    _one_worst(rows[chosen[0] if chosen and chosen[0] < len(rows) else 0], run)


def _one_worst(row: dict[str, Any], run: Run) -> None:
    with st.container(border=True):
        st.caption("Prompt")
        st.text(row["prompt"])
        left, right = st.columns(2)
        left.caption("People preferred")
        left.text(row["better"])
        right.caption("The model preferred")
        right.text(row["worse"])
        st.text(f"Ranking {row['ranking_id']} by annotator {row['annotator'] or 'unknown'}")
        with st.container(horizontal=True):
            if st.button("Open the ranking", icon=":material/swap_vert:", type="tertiary", key=f"{KEY}.to_ranking"):
                go_to("one_ranking", id=row["ranking_id"], run=run.id)
            if st.button("Open its prompt", icon=":material/open_in_new:", type="tertiary", key=f"{KEY}.to_prompt"):
                go_to("prompts", prompt=row["prompt_id"])
            if row["annotator"] and st.button(
                "Open its annotator", icon=":material/fact_check:", type="tertiary", key=f"{KEY}.to_annotator"
            ):
                st.session_state[PROJECT_KEY] = run.project_id  # the pseudonym says nothing in another one
                go_to("quality", annotator=row["annotator"])


def _cell(value: str | float) -> str | float:
    return " ".join(value.split()) if isinstance(value, str) else value


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2f}"
