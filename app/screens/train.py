"""Start a training run: what to train, from which snapshot, with which settings."""

from __future__ import annotations

from typing import Any

import streamlit as st

from app.actions.context import require, store
from app.actions.runs import newest_check, queue_run, queue_seeds
from app.widgets.base.models import model_suggestions, reward_run_labels, snapshot_label
from app.widgets.base.page import (
    ShownErrors,
    empty_state,
    from_address,
    go_to,
    need_project,
    nonce,
    page_head,
    renew_nonce,
    say_after_rerun,
)
from app.widgets.forms.config_form import config_form
from app.widgets.forms.data_counts import count_now, show_counts
from app.widgets.rewards.instant_panel import instant_panel
from app.widgets.runs.check import show_check
from app.words.values import number, run_name
from data.fields import from_dict
from data.files.snapshots import list_snapshots
from data.records import Person, Project, Role, Run, RunKind
from training.launch.find import is_green
from training.launch.kinds import CONFIGS, KINDS, TRAINED
from training.launch.presets import PRESETS, differing, preset_values
from training.launch.queue import MOST_SEEDS

KEY = "train"
NO_JUDGE = "none: no held-out evaluations"
JUDGE_HELP = (
    "A reward model that scores the policy on held-out prompts while it trains, and measures its KL to the start; with "
    "it the policy stands in the table of baselines beside PPO's. Nothing is learnt from it. Where Model is empty, the "
    "run starts from the reward run's model, as PPO does. It takes memory, and so does a copy of the start where "
    "SFT trains every weight. On the command line: `--reward-run ID`"
)


def render() -> None:
    who = require(Role.RESEARCHER)
    page_head("Train")
    project = need_project()
    if project is None:
        return
    kind = _choose_kind()
    st.caption(CONFIGS[kind].__doc__ or "")
    if kind is RunKind.REWARD:
        instant_panel(project)
    with store().read() as tx:
        now = tx.now()
        snapshots = {each.id: snapshot_label(each, now) for each in list_snapshots(tx, project.id)}
        reward_runs = reward_run_labels(tx, project.id)
    if not snapshots:
        text = "A run learns from a snapshot: rankings, frozen, so that it can be traced and repeated."
        with empty_state("inventory_2", "No snapshot yet", text, f"{KEY}.no_snapshot"):
            if st.button("Freeze a snapshot", type="primary", key=f"{KEY}.to_snapshots"):
                go_to("snapshots")
        return
    if KINDS[kind].needs_reward_run and not reward_runs:
        text = f"{KINDS[kind].title} trains a policy against a reward model. Train one from your rankings first."
        with empty_state("trophy", "No reward model yet", text, f"{KEY}.no_reward"):
            st.button(
                "Train a reward model",
                type="primary",
                key=f"{KEY}.to_reward",
                on_click=_set_kind,
                args=(RunKind.REWARD,),
            )
        return
    sources = _choose_sources(kind, snapshots, reward_runs)
    _form(project, kind, sources, who)


def _choose_kind() -> RunKind:
    from_address(f"{KEY}.kind", "kind", [kind.value for kind in TRAINED])
    chosen = st.segmented_control(
        "What to train",
        [kind.value for kind in TRAINED],
        default=None if f"{KEY}.kind" in st.session_state else RunKind.REWARD.value,
        required=True,
        format_func=lambda kind: KINDS[RunKind(kind)].title,
        key=f"{KEY}.kind",
    )
    return RunKind(chosen or RunKind.REWARD)


def _set_kind(kind: RunKind) -> None:
    st.session_state[f"{KEY}.kind"] = kind.value


def _choose_sources(kind: RunKind, snapshots: dict[str, str], reward_runs: dict[str, str]) -> dict[str, str]:
    """The snapshot, and the reward run, by their ids: so a policy can be traced to its rankings. SFT and DPO may go
    without a reward run."""
    sources = {}
    left, right = st.columns(2)
    from_address(f"{KEY}.snapshot", "snapshot", list(snapshots))
    sources["snapshot_id"] = left.selectbox(
        "Snapshot", list(snapshots), format_func=snapshots.__getitem__, key=f"{KEY}.snapshot"
    )
    if KINDS[kind].needs_reward_run:
        from_address(f"{KEY}.reward", "reward", list(reward_runs))
        sources["reward_run_id"] = right.selectbox(
            "Reward model", list(reward_runs), format_func=reward_runs.__getitem__, key=f"{KEY}.reward"
        )
    if KINDS[kind].may_be_evaluated:
        offered = {"": NO_JUDGE} | reward_runs
        judge = right.selectbox(
            "Evaluated by", list(offered), format_func=offered.__getitem__, key=f"{KEY}.judge", help=JUDGE_HELP
        )
        sources |= {"reward_run_id": judge} if judge else {}
    return sources


def _form(project: Project, kind: RunKind, sources: dict[str, str], who: Person) -> None:
    preset = _choose_preset(kind)
    form = f"{KEY}.{kind}.{project.id}" + (f".{preset}" if preset else "")
    key, against = nonce(KEY), sources.get("reward_run_id")
    with store().read() as tx:
        models = {"": _model_words(sources)} | model_suggestions(tx, project.id)
        others = {each: words for each, words in reward_run_labels(tx, project.id).items() if each != against}
    with st.container(border=True):
        values = config_form(
            CONFIGS[kind],
            form,
            first=KINDS[kind].first,
            initial=preset_values(kind, preset),
            suggestions={"model": models},
            several={"second_reward_run": others},
        )
        seeds = _seeds(form) if kind is RunKind.REWARD else 1
        with st.container(horizontal=True):
            is_sent = st.button("Start run", type="primary", icon=":material/play_arrow:", key=f"{KEY}.start.{key}")
            is_checked = kind is RunKind.PPO and st.button(
                "Check", icon=":material/fact_check:", key=f"{KEY}.check.{key}"
            )
            wants_counts = kind is RunKind.REWARD and st.button(
                "Count what is cut or left out", icon=":material/content_cut:", key=f"{KEY}.count"
            )
        st.caption(_differing_words(kind, preset, values))
    if is_checked:
        _check(values, sources, who)
    elif is_sent and (kind is not RunKind.PPO or _is_checked(values, sources)):
        _start(kind, values, sources, key, who, seeds)
    if kind is RunKind.PPO and (shown := st.session_state.get(f"{KEY}.shown_check.{project.id}")):
        show_check(shown, f"{KEY}.shown_check")
    if kind is RunKind.REWARD:
        if wants_counts:
            count_now(f"{KEY}.counted.{project.id}", values, sources["snapshot_id"])
        show_counts(f"{KEY}.counted.{project.id}", sources["snapshot_id"])


def _choose_preset(kind: RunKind) -> str:
    """The name of the preset that the form starts from; empty for the defaults."""
    presets = PRESETS.get(kind)
    if not presets:
        return ""
    offered = {"": "Defaults"} | {name: preset.title for name, preset in presets.items()}
    chosen = st.selectbox(
        "Preset",
        list(offered),
        format_func=offered.__getitem__,
        key=f"{KEY}.preset.{kind}",
        help="Settings to start from, in place of the defaults. On the command line: `--preset NAME`",
    )
    if chosen:
        preset = presets[chosen]
        otherwise = f" What is otherwise there: {preset.otherwise}." if preset.otherwise else ""
        st.caption(f"{preset.source}.{otherwise}")
    return chosen


def _differing_words(kind: RunKind, preset: str, values: dict[str, Any]) -> str:
    """What of the form is not as in its preset."""
    named = f"the preset {PRESETS[kind][preset].title}" if preset else "the defaults"
    differ = [f"{name} {number(value)} ({number(wanted)})" for name, value, wanted in differing(kind, preset, values)]
    return f"Not as in {named}: {', '.join(differ)}" if differ else f"All settings are those of {named}."


def _check(values: dict[str, Any], sources: dict[str, str], who: Person) -> None:
    """Queue a check of these settings, or show the one that is at work or has come out green."""
    with ShownErrors():
        config: Any = from_dict(CONFIGS[RunKind.PPO], values)
        found = newest_check(store(), config, **sources)
        if found is None or (found.status.is_final and not is_green(found)):
            found = queue_run(store(), who, RunKind.CHECK, config, **sources)
        st.session_state[f"{KEY}.shown_check.{found.project_id}"] = found.id


def _is_checked(values: dict[str, Any], sources: dict[str, str]) -> bool:
    """Whether exactly these settings have been checked and all was green; says what to do if not."""
    with ShownErrors():
        check = newest_check(store(), from_dict(CONFIGS[RunKind.PPO], values), **sources)
        if is_green(check):
            return True
        if check is not None:
            st.session_state[f"{KEY}.shown_check.{check.project_id}"] = check.id
        st.warning("These settings have no green check yet. Press Check, and start when all is green.")
    return False


def _seeds(form: str) -> int:
    return st.number_input(
        "Seeds",
        min_value=1,
        max_value=MOST_SEEDS,
        value=1,
        key=f"{form}.seeds",
        width=160,
        help="So many runs, all alike but for their seeds: what they differ in says how sure a score is. "
        "On the command line: `--seeds`",
    )


def _start(kind: RunKind, values: dict[str, Any], sources: dict[str, str], key: str, who: Person, seeds: int) -> None:
    runs: list[Run] = []
    with ShownErrors():
        config: Any = from_dict(CONFIGS[kind], values)
        runs = queue_seeds(store(), who, kind, config, seeds, **sources, nonce=key)
    if runs:
        renew_nonce(KEY)
        started = run_name(runs[0]) if len(runs) == 1 else f"{run_name(runs[0])} and {len(runs) - 1} of further seeds"
        say_after_rerun(f"{started} started")
        go_to("runs", run=runs[0].id)


def _model_words(sources: dict[str, str]) -> str:
    return "the reward run's model" if "reward_run_id" in sources else "the model that was sampled"


if __name__ == "__main__":
    render()
