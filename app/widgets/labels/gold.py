"""Beside a task on the researcher's pages: whether it is gold, and the button that makes it so by one's own ranking."""

from __future__ import annotations

from typing import Any

import streamlit as st

from app.actions.context import require, store
from app.widgets.base.page import ShownErrors, say_after_rerun
from data.errors import NotFound
from data.labels.gold import gold_of_tasks
from data.labels.rankings import answer_of
from data.records import Person, RankingStatus, Role, Task
from labeling.judgement.ranks import is_all_tied
from labeling.work.gold import make_gold, unmake_gold


def gold_line(task: Task) -> None:
    """What is expected of a task, and what the person who looks can do about it."""
    who = require(Role.RESEARCHER)
    with store().read() as tx:
        gold = gold_of_tasks(tx, [task.id]).get(task.id)
    own = _own_ranks(who, task)
    with st.container(horizontal=True, vertical_alignment="center", key=f"gold.{task.id}"):
        if gold is not None:
            st.badge("gold", icon=":material/verified:", color="orange")
            st.caption(f"Expected, in the order below: ranks {_ranks(gold.ranks)} (1 is best)")
            if st.button("No gold any more", key=f"gold.unmake.{task.id}"):
                _do(unmake_gold, who, task, "The task is an ordinary one again")
        if own is not None and (gold is None or gold.ranks != own):
            if st.button(f"Make it gold by my ranking: {_ranks(own)} (1 is best)", key=f"gold.make.{task.id}"):
                _do(make_gold, who, task, "The task is gold: your ranking is what is expected")
        elif gold is None:
            st.caption("To make this task gold, rank it on the Rank page first.")


def _own_ranks(who: Person, task: Task) -> tuple[int, ...] | None:
    """The person's own ranking, where it has an order."""
    with store().read() as tx:
        try:
            answer = answer_of(tx, task.id, who.id)
        except NotFound:
            return None
    is_usable = answer.status is RankingStatus.RANKED and not is_all_tied(answer.ranks or ())
    return answer.ranks if is_usable else None


def _do(action: Any, who: Person, task: Task, words: str) -> None:
    with ShownErrors():
        action(store(), who, task.id)
        say_after_rerun(words)
        st.rerun()


def _ranks(ranks: tuple[int, ...]) -> str:
    return ", ".join(map(str, ranks))
