"""Blind comparison on a screen: make the project in which people rank, and show whose responses they prefer."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd
import streamlit as st

from app.actions.context import PROJECT_KEY, home, require, store
from app.widgets.base.models import model_name
from app.widgets.base.page import ShownErrors, go_to, nonce, renew_nonce, say_after_rerun
from app.widgets.base.problems import plain
from app.words.values import count, share_with_reach, short_id
from data.intervals import LEAST_PROMPTS, Told, told
from data.labels.tasks import models_of_project
from data.records import Project, Role, Run
from labeling.judgement.win_rates import NOT_CONNECTED, Rate
from labeling.review.comparison import ComparisonReport, comparison_report, create_comparison

KEY = "win_rates"


def rank_blind(run: Run) -> None:
    """A button that makes a project of a comparison's responses."""
    if st.button("Rank blind", icon=":material/visibility_off:", key=f"{KEY}.open.{run.id}"):
        _dialog(run.id)


@st.dialog("Rank blind", width="medium", icon=":material/visibility_off:")
def _dialog(run_id: str) -> None:
    blind_form(run_id)


def blind_form(run_id: str) -> None:
    """The form that makes the project."""
    who = require(Role.RESEARCHER)  # a dialog runs without its page
    st.caption(
        "Makes a project with one response of each model per prompt. Annotators rank them without knowing whose they "
        "are; the win rates then stand on this page, once that project is chosen."
    )
    key = nonce(KEY)
    with st.form(f"{KEY}.form", border=False):
        name = st.text_input("Name", f"Blind {short_id(run_id)}", max_chars=80, key=f"{KEY}.name")
        overlap = st.number_input("Annotators per task", 1, 100, 1, key=f"{KEY}.overlap")
        if not st.form_submit_button("Create project", type="primary", key=f"{KEY}.create.{key}"):
            return
    made = None
    with ShownErrors():
        made = create_comparison(store(), who, home(), [run_id], name or "", overlap=int(overlap), nonce=key)
    if made is not None:
        renew_nonce(KEY)
        st.session_state[PROJECT_KEY] = made.project.id
        same = made.counts["same_answer"]
        left_out = f"; {count(same, 'prompt')} left out, both say the same" if same else ""
        trained = made.counts["trained_on"]
        on = f"; {count(trained, 'prompt')} of them the models were trained on" if trained else ""
        say_after_rerun(f"{count(made.counts['tasks'], 'task')} to rank{left_out}{on}")
        go_to("compare")  # not to Rank: who opens that page takes tasks


def win_rates(project: Project) -> None:
    """Whose responses people prefer, where the project has those of two models and something is ranked."""
    with store().read() as tx:
        models = models_of_project(tx, project.id)
        names = {model: model_name(tx, model) for model, _ in models}
    if len(models) < 2:
        return
    report = comparison_report(store(), home(), project.id)
    st.header("Win rates", anchor=False)
    if not report.rates.rates:
        st.caption("No ranking has responses of two models yet. Annotators find the tasks under Rank.")
        return
    _rates_table(report.rates.rates, names, f"{KEY}.table")
    st.caption(
        f"{plain(rate_words(report.rates.rates, names))} The rate counts a tie as half a win; its 95 % interval is a "
        "bootstrap over prompts. "
        f"{count(report.n_rankings, 'ranking')}, {count(report.n_unacceptable, 'answer')} that no response is "
        f"acceptable (a tie), {count(report.n_skipped, 'skip')}; {count(report.n_same, 'prompt')} to which all models "
        "said the same not in it."
    )
    st.caption(plain(report.held_out_words))
    if report.rates_with_same:
        st.caption("With the same answers as ties")
        _rates_table(report.rates_with_same, names, f"{KEY}.table.same")
    if report.rates.strengths:
        st.altair_chart(_chart(report, names), key=f"{KEY}.chart")
    else:
        st.caption(f"No strengths: {NOT_CONNECTED}.")


def rate_words(rates: list[Rate], names: dict[str, str]) -> str:
    """Which models people prefer, pair by pair, as far as it can be told."""
    return " ".join(_rate_words(each, *(names.get(of, of) for of in (each.first, each.second))) for each in rates)


def _rate_words(rate: Rate, first: str, second: str) -> str:
    low, high = rate.interval or (None, None)
    n = count(rate.n_prompts, "prompt")
    verdict = told(low, high, rate.n_prompts, mark=0.5)
    if verdict is Told.TOO_FEW:
        return f"Whether people prefer {first} or {second} can't be told yet: {n}, and {LEAST_PROMPTS} are needed."
    share = f"{share_with_reach(rate.rate, low, high)} for {first}, {n}"
    if verdict is Told.UNCLEAR:
        return f"Whether people prefer {first} or {second} can't be told: {share}."
    better, worse = (first, second) if verdict is Told.MORE else (second, first)
    return f"People prefer {better} to {worse}: {share}."


def _rates_table(rates: list[Rate], names: dict[str, str], key: str) -> None:
    rows = pd.DataFrame(
        [
            {
                "model": names.get(each.first, each.first),
                "against": names.get(each.second, each.second),
                "wins": each.wins,
                "ties": each.ties,
                "losses": each.losses,
                "rate": each.rate,
                "95 %": "one prompt" if each.interval is None else f"{each.interval[0]:.0%} to {each.interval[1]:.0%}",
                "prompts": each.n_prompts,
            }
            for each in rates
        ]
    )
    st.dataframe(
        rows,
        hide_index=True,
        key=key,
        column_config={
            name: st.column_config.NumberColumn(name, format="percent") for name in ("wins", "ties", "losses", "rate")
        },
        alt="How often one model's response is preferred to another's",
    )


def _chart(report: ComparisonReport, names: dict[str, str]) -> Any:
    rows = [
        {
            "model": names.get(each.model, each.model),
            "strength": each.value,
            "low": each.value if each.interval is None else each.interval[0],
            "high": each.value if each.interval is None else each.interval[1],
        }
        for each in report.rates.strengths
    ]
    model = alt.Y("model:N", title=None, sort=None)
    reach = alt.X("low:Q", title="Strength, with its 95 % interval")
    base = alt.Chart(pd.DataFrame(rows)).properties(height=60 + 36 * len(rows))
    facts = ["model", "strength", "low", "high"]
    bars = base.mark_rule(strokeWidth=2, color="gray").encode(x=reach, x2="high:Q", y=model)
    return bars + base.mark_point(filled=True, size=90, opacity=1).encode(x="strength:Q", y=model, tooltip=facts)
