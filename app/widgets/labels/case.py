"""A task whose annotators disagree: what they were asked, what each said, and every response whole."""

from __future__ import annotations

import streamlit as st

from app.words.values import order_words, prompt_text, said_of, strength_words
from data.records import Ranking, RankingStatus, Task
from labeling.review.adjudication import Case


def show_case(case: Case, key: str) -> None:
    """Draw the whole case. Annotators are numbers, and no model is named: neither should decide."""
    _prompt(case.task, key)
    st.subheader("What the annotators say", anchor=False)
    with st.grid(min(3, max(1, len(case.answers))), min_column_width=260):
        for number, answer in enumerate(case.answers, start=1):
            with st.container(border=True, height="stretch", key=f"{key}.answer.{number}"):
                _answer(number, answer, len(case.task.responses))
    st.caption(_disputed_words(case))
    st.subheader("The responses", anchor=False)
    with st.grid(2, min_column_width=320):
        for place, response in enumerate(case.task.responses):
            with st.container(border=True, height="stretch", key=f"{key}.response.{place}"):
                st.badge(chr(65 + place), color="gray")
                st.text(response.text)


def annotator_name(case: Case, ranking: Ranking) -> str:
    """`Annotator 2`: by the place among the task's answers."""
    return f"Annotator {case.answers.index(ranking) + 1}"


def _disputed_words(case: Case) -> str:
    pairs = [f"{chr(65 + first)} and {chr(65 + second)}" for first, second in case.seen_differently]
    return f"Seen differently: {', '.join(pairs)}." if pairs else "No pair is seen differently."


def _prompt(task: Task, key: str) -> None:
    with st.container(border=True, key=f"{key}.prompt"):
        st.caption("Prompt")
        st.text(prompt_text(task.messages))
        if task.facts:
            st.caption("Reference facts, which no model sees")
            st.text(task.facts)


def _answer(number: int, answer: Ranking, n_responses: int) -> None:
    st.caption(f"Annotator {number}")
    if answer.status is not RankingStatus.RANKED:
        st.text("no response is acceptable" if answer.status is RankingStatus.UNACCEPTABLE else "skipped")
    else:
        st.text(order_words(answer.ranks or (), answer.detail.unplaced))
    if answer.skip_reason:
        st.text(answer.skip_reason)
    if lines := _detail_lines(answer, n_responses):
        st.text("\n".join(lines))
    if answer.comment:
        st.caption("Their reason")
        st.text(answer.comment)


def _detail_lines(answer: Ranking, n_responses: int) -> list[str]:
    """What was said beside the ranks, a line for each response, and how strong the preference is."""
    detail, lines = answer.detail, []
    for place in range(n_responses):
        said = said_of(detail, place)
        lines += [f"{chr(65 + place)}: {said}"] if said else []
    return [*lines, strength_words(detail.strength)] if detail.strength else lines
