"""What comes next on a screen: let reward models, or the instant one, put the waiting tasks in order, and see whether
it beat chance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import streamlit as st

from app.actions.context import home, store
from app.actions.runs import queue_run
from app.widgets.base.models import reward_run_labels
from app.widgets.base.page import ShownErrors, go_to, nonce, remembered, renew_nonce, say_after_rerun
from app.widgets.base.read_responses import offer_reading
from app.widgets.forms.config_form import config_form
from app.widgets.runs.status import run_status
from app.words.values import count, run_name
from data.fields import from_dict
from data.files.features import count_files
from data.labels.rankings import count_versions
from data.labels.scores import arms_of, untouched_tasks, without_scores
from data.records import Person, Project, RunKind
from data.runs.state import list_runs
from labeling.review.selection import Selected, SelectionConfig, apply_selection
from labeling.review.selection_report import SelectionReport, selection_report
from training.launch.config import ScoreConfig

if TYPE_CHECKING:
    from app.actions.instant_selection import Ready

KEY = "selection"
RUNS, INSTANT = "Reward runs", "Instant reward model"
_PERCENT = ("model right", "ties", "skips")


def selection_panel(project: Project, who: Person) -> None:
    """Draw it for a project."""
    with store().read() as tx:
        labels = reward_run_labels(tx, project.id)
        waiting = untouched_tasks(tx, project.id)
        has_arms = bool(arms_of(tx, project.id))
        runs = list_runs(tx, project_id=project.id, kinds=(RunKind.SCORE, RunKind.FEATURES), limit=1)
    st.caption(
        f"To be ranked: {count(len(waiting), 'task')}. A reward model can put first what it is least sure of; a part "
        "is drawn by lot, so that you can see whether that was worth it."
    )
    if waiting:
        ways = [RUNS, INSTANT] if labels else [INSTANT]
        way = st.segmented_control("What selects", ways, default=ways[0], required=True, key=f"{KEY}.way")
        if way == RUNS:
            _form(project, who, labels, waiting)
        else:
            _instant_form(project, who, waiting, has_labels=bool(labels))
        if runs and not runs[0].status.is_final:
            with st.container(border=True, key=f"{KEY}.running"):
                if st.button(run_name(runs[0]), type="tertiary", icon=":material/monitoring:", key=f"{KEY}.to_run"):
                    go_to("runs", run=runs[0].id)
                run_status(runs[0].id, f"{KEY}.status")
    if has_arms:
        _report(selection_report(store(), project.id))


def _form(project: Project, who: Person, labels: dict[str, str], waiting: list[str]) -> None:
    chosen = st.multiselect(
        "Reward models", list(labels), [next(iter(labels))], format_func=labels.__getitem__, key=f"{KEY}.runs"
    )
    with store().read() as tx:
        missing = {run_id: len(without_scores(tx, waiting, run_id)) for run_id in chosen}
    values = config_form(SelectionConfig, f"{KEY}.config", first=("by", "control"))
    key = nonce(KEY)
    with st.container(horizontal=True):
        to_score = [run_id for run_id, number in missing.items() if number]
        if to_score and st.button("Score what waits", type="primary", key=f"{KEY}.score.{key}"):
            _score(project, who, to_score, key)
        is_ready = bool(chosen) and not all(number == len(waiting) for number in missing.values())
        kind: Any = "secondary" if to_score else "primary"
        if st.button("Put in order", type=kind, disabled=not is_ready, key=f"{KEY}.apply.{key}"):
            _apply(project, who, chosen, values)


def _score(project: Project, who: Person, reward_run_ids: list[str], key: str) -> None:
    with ShownErrors():
        for run_id in reward_run_ids:
            queue_run(
                store(),
                who,
                RunKind.SCORE,
                ScoreConfig(unranked=True),
                project_id=project.id,
                reward_run_id=run_id,
                nonce=f"{key}.{run_id}",
            )
        renew_nonce(KEY)
        say_after_rerun(f"{count(len(reward_run_ids), 'scoring run')} queued")
        st.rerun()


def _apply(project: Project, who: Person, reward_run_ids: list[str], values: dict[str, Any]) -> None:
    made = None
    with ShownErrors():
        made = apply_selection(store(), who, project.id, reward_run_ids, from_dict(SelectionConfig, values))
    if made is not None:
        _say(made)


def _say(made: Selected) -> None:
    renew_nonce(KEY)
    counts = made.counts
    left = "".join(
        f", {counts[name]:,} {name.replace('_', ' ')}"
        for name in ("without_scores", "without_features")
        if counts[name]
    )
    way = made.by.replace("_", " ")
    say_after_rerun(f"{counts['selected']:,} selected by {way}, {counts['random']:,} drawn by lot{left}")
    st.rerun()


def _instant_form(project: Project, who: Person, waiting: list[str], *, has_labels: bool) -> None:
    """The head on frozen features selects, without a run: what it stands on is counted, and what it can't see."""
    from app.actions.instant import FEWEST  # these load SciPy, which the page's other parts do not need
    from app.actions.instant_selection import look, select_by_instant

    with store().read() as tx:
        n_versions = count_versions(tx, project.id)
    signature = (project.id, tuple(waiting), n_versions, count_files(home()))
    ready = remembered(f"{KEY}.ready", signature, lambda: look(store(), home(), project.id))
    is_ready = ready.n_rankings >= FEWEST and ready.n_unread < ready.n_waiting
    if ready.n_rankings < FEWEST:
        other = "" if has_labels else " Or train a reward model: its runs can select too."
        st.info(
            f"The instant reward model selects from {FEWEST} rankings on whose responses the frozen model has read; "
            f"there are {ready.n_rankings:,}, and {ready.n_unread_rankings:,} that it has not read.{other}"
        )
    else:
        st.caption(f"It learns from {count(ready.n_rankings, 'ranking')} each time that you put tasks in order.")
    values = config_form(SelectionConfig, f"{KEY}.config", first=("by", "control"))
    if st.button("Put in order", type="primary", disabled=not is_ready, key=f"{KEY}.apply.{nonce(KEY)}"):
        made = None
        with ShownErrors(), st.spinner("Fitting"):
            made = select_by_instant(store(), who, home(), project.id, from_dict(SelectionConfig, values))
        if made is not None:
            _say(made)
    if ready.n_unread or ready.n_unread_rankings:
        offer_reading(project, unread_words(ready), f"{KEY}.features")


def unread_words(ready: Ready) -> str:
    """What the instant reward model knows nothing of, what that means, and what to do."""
    told = []
    if ready.n_unread:
        told.append(
            f"{ready.n_unread:,} of {count(ready.n_waiting, 'waiting task')} have responses without cached features: "
            "they stay in the project's order."
        )
    if ready.n_unread_rankings:
        told.append(f"{count(ready.n_unread_rankings, 'ranking')} without features: nothing is learnt from them.")
    return " ".join([*told, "The frozen model reads them all in a run, as `rankloop features` does."])


def _report(report: SelectionReport) -> None:
    st.header("Did selection beat random?", anchor=False)
    st.info(report.verdict, icon=":material/balance:")
    rows = [
        {
            "arm": arm.name.replace("_", " "),
            "tasks": arm.n_tasks,
            "ranked": arm.n_ranked,
            "prompts": arm.n_prompts,
            "model right": _rounded(arm.accuracy),
            "95 %": "" if arm.interval is None else f"{arm.interval[0]:.0%} to {arm.interval[1]:.0%}",
            "margin": arm.mean_margin,
            "ties": _rounded(arm.tie_share),
            "skips": _rounded(arm.skip_share),
            "seconds": arm.seconds,
        }
        for arm in report.arms
    ]
    st.dataframe(
        pd.DataFrame(rows),
        hide_index=True,
        key=f"{KEY}.arms",
        column_config={name: st.column_config.NumberColumn(name, format="percent") for name in _PERCENT}
        | {"margin": st.column_config.NumberColumn("margin", format="%.2f")}
        | {"seconds": st.column_config.NumberColumn("seconds", format="%.0f", help="median of an answer")},
        alt="What people said on each arm",
    )
    st.caption(
        "Model right: share of people's pairs that the reward model had ordered as they did, before anybody ranked "
        "them; intervals by bootstrap over prompts. Margin: mean difference of two responses' scores."
    )


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 3)
