"""Which policy of a PPO run is the best, by which figure, beside the last one; and how to get at it."""

from __future__ import annotations

import streamlit as st

from app.actions.context import home, store
from app.words.best_policy import best_words
from data.records import Run
from data.runs.best_policy import BEST_FOLDER, best_name, best_policy

KEY = "runs.best"


def show_best(run: Run) -> None:
    """Say it, and offer the kept policy for download once the run has ended."""
    with store().read() as tx:
        best = best_policy(tx, run.id)
    if best is None:
        if run.status.is_final:
            st.caption("No held-out prompts were measured, so no policy is known to be the best.")
        return
    with st.container(border=True, key=f"{KEY}.{run.id}"):
        st.text(best_words(best, is_final=run.status.is_final))
        if not run.status.is_final or not best.iteration:
            return
        st.text(f"As a model, in every form and on the command line: {best_name(run.id)}")
        if (home().run_folder(run.id) / BEST_FOLDER).is_dir():
            address = f"/download/run/{run.id}/{BEST_FOLDER}"
            st.link_button("Download best", address, icon=":material/download:", key=f"{KEY}.download.{run.id}")
        else:
            st.caption("Its files are not on this machine.")
