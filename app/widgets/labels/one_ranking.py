"""A ranking whole: what was asked, in which order the responses stood, their ranks, and all that was said of them."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

import streamlit as st

from app.words.values import duration, order_words, prompt_text, said_of, strength_words
from data.records import Adjudication, Detail, Ranking, RankingStatus, Task

KEY = "ranking"
STATUS_WORDS = {
    RankingStatus.UNACCEPTABLE: "no response is acceptable",
    RankingStatus.SKIPPED: "skipped",
}


def show_ranking(ranking: Ranking, task: Task, annotator: str) -> None:
    """The responses stand in the order in which the annotator saw them, where it is known. No model is named."""
    st.text(f"Ranking {ranking.id} by annotator {annotator}")
    st.text(_how(ranking))
    _prompt(task)
    said = STATUS_WORDS.get(ranking.status) or order_words(ranking.ranks or (), ranking.detail.unplaced)
    _answer(said, ranking.skip_reason or "", ranking.comment, ranking.detail)
    order = ranking.display_order
    unknown = "Shown in an unknown order; below they stand in their stored one"
    st.text(unknown if order is None else f"Shown in the order {', '.join(map(_letter, order))}")
    _responses(task, order or range(len(task.responses)), ranking.ranks, ranking.detail, ranking.id)


def show_decided(decided: Adjudication, task: Task, researcher: str) -> None:
    """The decision of a researcher on a task; the responses stand in their stored order."""
    st.text(f"Decision {decided.id} by researcher {researcher}, {_utc(decided.created_at)}")
    _prompt(task)
    _answer(order_words(decided.ranks, decided.unplaced), "", decided.reason, Detail())
    order = range(len(task.responses))
    _responses(task, order, decided.ranks, Detail(unplaced=decided.unplaced), decided.id)


def _how(ranking: Ranking) -> str:
    stored = _utc(ranking.created_at) if ranking.source == "app" else f"imported {_utc(ranking.created_at)}"
    words = [stored, f"version {ranking.version}", f"guidelines {ranking.guidelines_version or 'unknown'}"]
    if ranking.duration_ms is not None:
        words.append(f"took {duration(ranking.duration_ms / 1000)}")
    words += [name for name, holds in (("late", ranking.is_late), ("extra", ranking.is_extra)) if holds]
    return ", ".join([*words, f"from {ranking.source}", f"purpose {ranking.purpose}"])


def _prompt(task: Task) -> None:
    with st.container(border=True):
        st.caption("Prompt")
        st.text(prompt_text(task.messages))
        if task.facts:
            st.caption("Reference facts")
            st.text(task.facts)


def _answer(said: str, skip_reason: str, reason: str, detail: Detail) -> None:
    with st.container(border=True):
        st.caption("Answer")
        st.text(said)
        if skip_reason:
            st.text(skip_reason)
        if detail.strength:
            st.text(strength_words(detail.strength))
        if reason:
            st.caption("Reason")
            st.text(reason)


def _responses(task: Task, order: Sequence[int], ranks: tuple[int, ...] | None, detail: Detail, key: str) -> None:
    with st.grid(2, min_column_width=320):
        for position in order:
            with st.container(border=True, height="stretch", key=f"{KEY}.response.{key}.{position}"):
                rank = "" if ranks is None else f": rank {ranks[position]} (1 is best)"
                rest = ", in the rest that is in no order" if position in detail.unplaced else ""
                st.text(f"{_letter(position)}{rank}{rest}")
                if said := said_of(detail, position):
                    st.text(said)
                st.text(task.responses[position].text)


def _letter(place: int) -> str:
    return chr(65 + place)


def _utc(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
