"""What the labels so far can tell, live: how well the instant reward model foresees rankings that it has not seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from app.actions.context import home, require, store
from app.actions.instant import FEWEST, InstantAccuracy, what_labels_tell
from app.widgets.base.problems import plain
from app.widgets.base.read_responses import offer_reading
from app.widgets.rewards.report import share_words
from app.words.values import count
from data.intervals import LEAST_PROMPTS, Told
from data.intervals import told as told_of
from data.labels.projects import project_counts
from data.records import Project, Role

KEY = "instant"
REFRESH_S = 15.0


def instant_panel(project: Project) -> None:
    """Draw the panel; it follows the rankings while the page is open."""
    st.fragment(_panel, run_every=REFRESH_S)(project)


def _panel(project: Project) -> None:
    require(Role.RESEARCHER)  # a fragment runs without its page
    with store().read() as tx:
        counts = project_counts(tx, project.id)
    told = _told(project.id, tuple(sorted((name, str(value)) for name, value in counts.items())))
    with st.container(border=True, key=f"{KEY}.panel"):
        st.markdown("**What the labels so far can tell**")
        if told.accuracy is None:
            _too_little(project, told)
            return
        left, middle, right = st.columns(3)
        _share(left, "Instant reward model", told.accuracy)
        _share(middle, "Length alone", told.length)
        right.metric("Rankings", f"{told.n_rankings:,}")
        st.caption(plain(verdict(told)))
        if told.n_without:
            _read_them(project, told)


def _share(column: Any, label: str, figure: dict[str, Any] | None) -> None:
    """A share as a number, and its interval below."""
    value, _, reach = share_words(figure or {"value": None}).partition(" (")
    column.metric(label, value)
    column.caption(reach.removesuffix(")") or "one prompt")


@st.cache_resource(ttl=60, max_entries=50, show_spinner=False)
def _told(project_id: str, _counts: Sequence[tuple[str, str]]) -> InstantAccuracy:
    return what_labels_tell(store(), home(), project_id)


def verdict(told: InstantAccuracy) -> str:
    """Whether the labels tell more than how long a response is."""
    gain = told.gain or {"low": None, "high": None, "prompts": 0}
    n = count(gain["prompts"], "prompt")
    says = {
        Told.MORE: "they tell more than length alone",
        Told.LESS: "they tell less than length alone",
        Told.UNCLEAR: "whether they tell more than length alone can't be told yet",
        Told.TOO_FEW: f"whether they tell more than length alone can't be told yet; that needs {LEAST_PROMPTS} prompts",
    }[told_of(gain["low"], gain["high"], gain["prompts"])]
    reach = "" if gain["low"] is None else f", {gain['value']:+.1%} ({gain['low']:+.1%} to {gain['high']:+.1%})"
    return (
        f"Pair accuracy on prompts that the head has not seen, with 95 % intervals. Of {n}{reach}: {says}. Fitted in "
        f"{1000 * told.fit_s:.0f} ms on features of {told.model.rpartition('/')[2]}."
    )


def _too_little(project: Project, told: InstantAccuracy) -> None:
    n = told.n_rankings + told.n_without
    if n < FEWEST:
        st.caption(f"{count(n, 'ranking')} with a pair so far; from {FEWEST} on this panel says what they tell.")
    else:
        _read_them(project, told)


def _read_them(project: Project, told: InstantAccuracy) -> None:
    """Offer the run that reads what no model has read yet."""
    offer_reading(
        project, f"{count(told.n_without, 'ranking')} with responses that the frozen model has not read.", KEY
    )
