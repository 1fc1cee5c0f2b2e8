"""The ranking surface: what goes to the browser, and what comes back from it.

The browser keeps an outbox of answers in the component's state and in its own storage; an answer leaves it only when
the acknowledgement for its key arrives. Nothing travels as a trigger: triggers are lost when two come at once.
The data holds texts in display order under A, B, C; no model, no id of a response.
"""

from __future__ import annotations

import contextlib
from typing import Any

import streamlit as st

from app.context import find_person, person, store
from app.widgets.components import register
from data.errors import StoreUnavailable
from data.hygiene import BADGES
from data.records import Assignment, Person
from data.store import Store
from labeling.session import Ack, Work, keep_draft, next_work, submit

KEY = "rank.ranker"
ACKS_KEY = "rank.acks"
DRAFTS_KEY = "rank.with_drafts"
MAX_ITEMS = 100

_mount = register("ranker", js="ranker.js", css="ranker.css", html='<section class="ranker"></section>')


def ask_with_drafts() -> None:
    """Send the stored drafts with the next drawing: called when the page is drawn as a whole.

    Between those, the browser's own draft is the newer one, and data that does not change is not sent again.
    """
    st.session_state[DRAFTS_KEY] = True


@st.fragment(key="rank.fragment")
def ranker(project_id: str) -> None:
    """Draw the ranking surface for the person who is signed in."""
    who = person()
    with_drafts = bool(st.session_state.get(DRAFTS_KEY))
    acks: dict[str, Ack] = st.session_state.get(ACKS_KEY, {})
    try:
        data = surface_data(who, next_work(store(), who, project_id), list(acks.values()), with_drafts=with_drafts)
    except StoreUnavailable as error:
        data = {"person": who.id, "trouble": str(error)}  # the browser goes on with what it has
    _mount(
        key=KEY,
        data=data,
        on_outbox_change=_take_outbox,
        on_draft_change=_take_draft,
        on_look_change=_look_again,
    )
    st.session_state[DRAFTS_KEY] = False


def surface_data(who: Person, work: Work, acks: list[Ack], *, with_drafts: bool) -> dict[str, Any]:
    """What the browser gets."""
    free_at = work.waiting.first_free_at
    return {
        "person": who.id,
        "project": {"id": work.project.id, "name": work.project.name},
        "guidelines": work.project.guidelines,
        "allow_partial": work.project.settings.allow_partial,
        "skip_reasons": list(work.project.skip_reasons),
        "n_done": work.n_done,
        "tasks": [_task_data(each, with_draft=with_drafts) for each in work.assignments],
        "waiting": {"n": work.waiting.n_with_others, "first_free_at": None if free_at is None else free_at * 1000},
        "acks": [{"key": ack.submission_key, "outcome": ack.outcome.value, "reason": ack.reason} for ack in acks],
    }


def take_in(store: Store, who: Person, items: object) -> dict[str, Ack]:
    """Store the answers in an outbox, in their order, and return the word on each. Stops where the store fails."""
    acks: dict[str, Ack] = {}
    for item in items[:MAX_ITEMS] if isinstance(items, list) else []:
        if not isinstance(item, dict):
            continue
        try:
            ack = submit(store, who, item)
        except StoreUnavailable:
            break
        acks[ack.submission_key] = ack
    return acks


def _task_data(each: Assignment, *, with_draft: bool) -> dict[str, Any]:
    shown = [each.task.responses[position] for position in each.display_order]
    return {
        "task_id": each.task.id,
        "lease_token": each.lease_token,
        "display_order": list(each.display_order),
        "prompt": [{"role": message["role"], "content": message["content"]} for message in each.task.messages],
        "responses": [response.text for response in shown],
        "facts": each.task.facts,
        "badges": [[BADGES[name] for name in response.badges] for response in shown],
        "draft": each.draft if with_draft else None,
    }


# Streamlit may cut a callback short at any use of `st`, for a newer event: so each reads first, then writes to the
# store in one go, and what it notes after that can be lost. The browser sends again until it is told.


def _take_outbox() -> None:
    items = _state("outbox").get("items")
    who, where = find_person(), store()
    if who is not None:
        acks = take_in(where, who, items)
        st.session_state[ACKS_KEY] = acks


def _take_draft() -> None:
    draft = _state("draft")
    who, where = find_person(), store()
    if who is not None and draft:
        with contextlib.suppress(StoreUnavailable):  # the browser has it too
            keep_draft(where, who, draft)


def _look_again() -> None:
    """The browser asks for a look at the store: nothing to take in, the run that follows is the answer."""


def _state(name: str) -> dict[str, Any]:
    state = st.session_state.get(KEY) or {}
    value = state.get(name)
    return value if isinstance(value, dict) else {}
