"""Score a file by one reward model or several: an upload becomes a scoring run."""

from __future__ import annotations

import time
from typing import Any

import streamlit as st

from app.actions.context import person, store
from app.actions.runs import place_of_upload, queue_run
from app.widgets.base.models import reward_run_labels
from app.widgets.base.page import ShownErrors, go_to, nonce, renew_nonce, say_after_rerun
from app.words.values import count
from data.files.rows import SUFFIXES
from data.records import Run, RunKind
from labeling.files.handover import hand_over
from training.launch.kinds import CONFIGS

KEY = "score"
EXAMPLE = '{"prompt": "Name a prime.", "responses": ["7", "9"]}'


def score_form(run: Run) -> None:
    """Upload rows of a prompt with its responses, and start a run that scores them."""
    st.caption(
        "Rows with a prompt and its responses; the scores come back in the same order, with what best-of-n gives."
    )
    key = nonce(KEY)
    suffixes = sorted(suffix.removeprefix(".") for suffix in SUFFIXES)
    uploaded = st.file_uploader("File", suffixes, key=f"{KEY}.file.{key}", help="UTF-8, up to 200 MB")
    if uploaded is None:
        st.code(EXAMPLE, language=None)
        return
    more = _more_models(run, key)
    centre = st.toggle(
        "Take each prompt's mean off its scores", key=f"{KEY}.centre.{key}", help="--set centre_prompts=true"
    )
    if st.button("Score", type="primary", icon=":material/trophy:", key=f"{KEY}.start.{key}"):
        _start(run, uploaded, key, more, centre_prompts=centre)


def _more_models(run: Run, key: str) -> list[str]:
    """Further reward runs of the project that shall score too."""
    with store().read() as tx:
        labels = reward_run_labels(tx, run.project_id or "")
    labels.pop(run.id, None)
    if not labels:
        return []
    return st.multiselect(
        "More reward models",
        list(labels),
        format_func=labels.__getitem__,
        placeholder="this one alone",
        key=f"{KEY}.more.{key}",
        help="Such as of other seeds, trained alike: scores are the mean of all models, each from its own zero, and "
        "their spread says how sure they are (--reward-run, several times)",
    )


def _start(run: Run, uploaded: Any, key: str, more: list[str], *, centre_prompts: bool) -> None:
    scoring = None
    given = place_of_upload(uploaded.name, time.time())
    taken = place_of_upload("taken.jsonl", time.time())
    with ShownErrors():
        given.write_bytes(uploaded.getbuffer())
        try:
            _, problems = hand_over(given, taken, with_responses=True)
            config = CONFIGS[RunKind.SCORE](input_file=str(taken), beside=",".join(more), centre_prompts=centre_prompts)
            scoring = queue_run(
                store(),
                person(),
                RunKind.SCORE,
                config,
                project_id=run.project_id,
                reward_run_id=run.id,
                nonce=key,
            )
        finally:
            given.unlink(missing_ok=True)
            if scoring is None:
                taken.unlink(missing_ok=True)
    if scoring is not None:
        renew_nonce(KEY)
        left_out = f"; {count(len(problems), 'line')} left out" if problems else ""
        say_after_rerun(f"Scoring started{left_out}")
        go_to("runs", run=scoring.id)
