"""Which policy of a PPO run is the best, by which figure, beside the last one; and how to get at it."""

from __future__ import annotations

import streamlit as st

from app.context import home, store
from app.widgets.words import number
from data.best_policy import BEST_FOLDER, BestPolicy, best_name, best_policy
from data.records import Run

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


def best_words(best: BestPolicy, *, is_final: bool) -> str:
    """`Best policy: iteration 4, by held_out/objective: 0.71. The last one measured, iteration 6, has 0.6.`"""
    so_far = "" if is_final else " so far"
    figure, last = number(best.figure), "no number" if best.last_figure is None else number(best.last_figure)
    beside = f"The last one measured, iteration {best.last_iteration}, has {last}."
    if best.iteration == best.last_iteration:
        beside = "It is the last one measured." if best.iteration else "Nothing else is measured yet."
    if not best.iteration:
        return f"No policy{so_far} is better than the start, by {best.told_by}: {figure}. {beside} No best is kept."
    return f"Best policy{so_far}: iteration {best.iteration}, by {best.told_by}: {figure}. {beside}"
