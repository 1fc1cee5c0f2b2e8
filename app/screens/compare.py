"""Compare: two models on the same prompts, side by side, with the scores of a reward model."""

from __future__ import annotations

from typing import Any

import streamlit as st

from app.actions.context import require, store
from app.actions.runs import may_read, queue_run
from app.widgets.base.models import model_name, model_suggestions, reward_run_labels
from app.widgets.base.page import (
    ShownErrors,
    from_address,
    go_to,
    need_project,
    nonce,
    page_head,
    renew_nonce,
    say_after_rerun,
)
from app.widgets.base.problems import plain
from app.widgets.forms.config_form import config_form
from app.widgets.labels.win_rates import rank_blind, win_rates
from app.widgets.runs.status import look, run_status
from app.words.values import ago, count, number, prompt_text, run_name, short_id
from data.fields import from_dict
from data.intervals import LEAST_PROMPTS, Told, paired
from data.records import Person, Project, Role, Run, RunKind
from data.runs.metrics import samples_of
from data.runs.state import get_run, list_runs
from data.store import Tx
from training.launch.config import CompareConfig
from training.launch.starts import start_of

KEY = "compare"
REFRESH_S = 2.0
SIDES = ("a", "b")
Pair = dict[str, dict[str, Any]]  # side -> sample


def render() -> None:
    who = require(Role.RESEARCHER)
    page_head("Compare")
    project = need_project()
    if project is None:
        return
    with store().read() as tx:
        runs = list_runs(tx, project_id=project.id, kinds=(RunKind.COMPARE,), limit=20)
        labels = {run.id: _run_label(tx, run) for run in runs}
    win_rates(project)
    with st.expander("New comparison", expanded=not runs, icon=":material/compare:", key=f"{KEY}.new"):
        _form(project, who)
    if not runs:
        return
    from_address(f"{KEY}.run", "run", [run.id for run in runs])
    chosen = st.selectbox("Comparison", list(labels), format_func=labels.__getitem__, key=f"{KEY}.run")
    run = next(each for each in runs if each.id == chosen)
    run_status(run.id, f"{KEY}.status")
    is_active = not look(run.id).run.status.is_final
    st.fragment(_results, run_every=REFRESH_S if is_active else None)(run)


def _form(project: Project, who: Person) -> None:
    with store().read() as tx:
        models = model_suggestions(tx, project.id)
        reward_runs = {"": "none: no scores"} | reward_run_labels(tx, project.id)
    from_address(f"{KEY}.model_b", "model_b", list(models))
    from_address(f"{KEY}.reward", "reward", list(reward_runs))
    key = nonce(KEY)
    values = _models(models)
    with st.form(f"{KEY}.form", border=False):
        reward = st.selectbox(
            "Scores by",
            list(reward_runs),
            index=min(1, len(reward_runs) - 1),
            format_func=reward_runs.__getitem__,
            key=f"{KEY}.reward",
        )
        values["prompt"] = st.text_area(
            "Prompt", key=f"{KEY}.prompt", placeholder="Leave empty to use prompts of the project: see Prompts below"
        )
        first = ("prompts", "limit", "sampling.max_new_tokens", "sampling.temperature")
        values |= config_form(CompareConfig, f"{KEY}.config", first=first, hidden=tuple(values))
        is_sent = st.form_submit_button("Compare", type="primary", key=f"{KEY}.start.{key}")
    if is_sent:
        run = None
        with ShownErrors():
            config = from_dict(CompareConfig, values)
            run = queue_run(
                store(),
                who,
                RunKind.COMPARE,
                config,
                project_id=project.id,
                reward_run_id=reward or None,
                nonce=key,
            )
        if run is not None:
            renew_nonce(KEY)
            say_after_rerun(f"{run_name(run)} started")
            go_to("compare", run=run.id)


def _models(models: dict[str, str]) -> dict[str, str]:
    """Both models. They stand outside the form, so that A follows B at once: it is what B started from, until another
    is chosen."""
    left, right = st.columns(2)
    model_b = _model(right, "Model B", "model_b", models, _newest_trained(models))
    with store().read() as tx:
        start = start_of(tx, model_b)
        words = "" if start is None else f"what B started from: {model_name(tx, start)}"
    offered = ({} if start is None else {"": words}) | models
    model_a = _model(left, "Model A", "model_a", offered, None if start is None else "")
    if model_b and start is None:
        left.caption("What B started from is not known here: choose the model to compare it with.")
    return {"model_a": model_a, "model_b": model_b}


def _model(where: Any, label: str, name: str, models: dict[str, str], start: str | None) -> str:
    options, key = list(models), f"{KEY}.{name}"
    if st.session_state.get(key) == "" and "" not in models:
        del st.session_state[key]  # it stood for the start of another B
    index = {} if st.session_state.get(key) is not None else {"index": None if start is None else options.index(start)}
    chosen = where.selectbox(
        label,
        options,
        format_func=lambda value: models.get(value, value),
        accept_new_options=True,
        placeholder="Choose, or type a folder or hub id",
        key=key,
        help=plain(may_read().words),
        **index,
    )
    return str(chosen or "")


def _newest_trained(models: dict[str, str]) -> str | None:
    return next((value for value in models if value.startswith("run:")), None)


def _run_label(tx: Tx, run: Run) -> str:
    a, b = (model_name(tx, str(run.config.get(f"model_{side}"))) for side in SIDES)
    return f"{short_id(run.id)}: {a} and {b}, {run.status}, {ago(tx.now() - run.created_at)}"


def _results(run: Run) -> None:
    require(Role.RESEARCHER)  # a fragment runs without its page
    with store().read() as tx:
        samples = [body for _, body in samples_of(tx, run.id)]
        names = {side: model_name(tx, str(run.config.get(f"model_{side}", ""))) for side in SIDES}
    pairs = pair_up(samples)
    if not pairs:
        if run.status.is_final:
            st.caption("This comparison has no texts.")
        return
    with store().read() as tx:
        result = get_run(tx, run.id).result
    st.caption(held_out_words(result, samples, [prompt for prompt, _ in pairs]))
    _summary(pairs)
    with st.container(horizontal=True):
        if run.status.is_final:
            rank_blind(run)
        if st.button("Open the run", icon=":material/monitoring:", key=f"{KEY}.to_run"):
            go_to("runs", run=run.id)
    for place, (prompt, sides) in enumerate(pairs):
        with st.container(border=True, key=f"{KEY}.pair.{place}"):
            st.caption("Prompt")
            st.text(prompt)
            for column, side in zip(st.columns(2), SIDES, strict=True):
                with column.container(border=True, height="stretch"):
                    _side(f"{side.upper()}: {names[side]}", sides.get(side), is_best=side == better_side(sides))


def held_out_words(result: dict[str, Any], samples: list[dict[str, Any]], prompts: list[str]) -> str:
    """Whether the prompts are held out of the models, as the run has found it."""
    known = [sample for sample in samples if "trained_on" in sample]
    if not known:
        return (
            "It is not known whether these prompts are held out: the comparison is of an older release, which took "
            "others where those were too few. Compare again to know."
        )
    trained = len({prompt_text(sample.get("prompt")) for sample in known if sample["trained_on"]})
    if why := result.get("held_out_not_known"):
        return plain(f"It is not known whether these prompts are held out: {why}.")
    behind = "the models compared, their reward models or what they started from"
    if trained:
        return f":material/warning: {trained} of {count(len(prompts), 'prompt')} were trained on, by {behind}."
    return f"{count(len(prompts), 'held-out prompt')}: as far as is known here, none of {behind} was trained on them."


def _side(title: str, sample: dict[str, Any] | None, *, is_best: bool) -> None:
    st.caption(plain(title))
    if sample is None:
        st.caption("Not sampled yet.")
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        score = sample.get("score")
        if score is not None:
            icon = ":material/arrow_upward:" if is_best else None
            st.badge(f"score {number(score)}", icon=icon, color="green" if is_best else "gray")
        facts = [f"{number(sample['n_tokens'])} tokens"] if "n_tokens" in sample else []
        facts += ["ended by itself" if sample["ended"] else "cut at the limit"] if "ended" in sample else []
        st.caption(", ".join(facts))
    st.text(str(sample.get("response", "")))


def _summary(pairs: list[tuple[str, Pair]]) -> None:
    """Mean scores and how often each side has the higher one; a reward model's word, not a person's."""
    scored = [sides for _, sides in pairs if all(_score(sides, side) is not None for side in SIDES)]
    if not scored:
        return
    better = [better_side(sides) for sides in scored]
    with st.grid("auto", min_column_width=160):
        for side in SIDES:
            mean = sum(_score(sides, side) or 0.0 for sides in scored) / len(scored)
            st.metric(f"Mean score of {side.upper()}", number(mean), border=True)
        for side in SIDES:
            st.metric(f"{side.upper()} scores higher", f"{better.count(side)} of {len(scored)}", border=True)
    st.caption(f"{difference_words(scored)} Whether people agree is for people to say: rank blind.")


def difference_words(scored: list[Pair]) -> str:
    """Which side the reward model scores higher, with n and interval, or that it can't be told."""
    a, b = ([_score(sides, side) or 0.0 for sides in scored] for side in SIDES)
    gap = paired(b, a)
    n = count(gap.n, "prompt")
    if gap.told is Told.TOO_FEW:
        return (
            f"Which model the reward model scores higher can't be told yet: {n}, and {LEAST_PROMPTS} are needed. B "
            f"less A is {number(gap.value)} on average."
        )
    reach = f"B less A is {number(gap.value)} ({number(gap.low)} to {number(gap.high)}, 95 %, {n}, paired)."
    which = {Told.MORE: "B higher", Told.LESS: "A higher"}.get(gap.told)
    if which is None:
        return f"Which model the reward model scores higher can't be told: {reach}"
    return f"The reward model scores {which}: {reach}"


def pair_up(samples: list[dict[str, Any]]) -> list[tuple[str, Pair]]:
    """Samples by prompt, in the order in which the prompts came; each side once."""
    pairs: dict[str, Pair] = {}
    for sample in samples:
        side = str(sample.get("side", "")).lower()
        if side in SIDES:
            pairs.setdefault(prompt_text(sample.get("prompt")), {}).setdefault(side, sample)
    return list(pairs.items())


def better_side(sides: Pair) -> str | None:
    """The side with the higher score, or None where one is missing or they are equal."""
    a, b = (_score(sides, side) for side in SIDES)
    if a is None or b is None or a == b:
        return None
    return "a" if a > b else "b"


def _score(sides: Pair, side: str) -> float | None:
    score = sides.get(side, {}).get("score")
    return float(score) if isinstance(score, int | float) else None


if __name__ == "__main__":
    render()
