"""The ranking surface: what goes to the browser, and what comes back from it.

The browser keeps an outbox of answers in the component's state and in its own storage; an answer leaves it only when
the acknowledgement for its key arrives. Nothing travels as a trigger: triggers are lost when two come at once.
The data holds texts in display order under A, B, C; no model, no id of a response.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import streamlit as st

from app.actions.context import find_person, person, store
from app.widgets.base.components import register
from data.errors import NotAllowed, NotFound, StoreUnavailable
from data.hygiene import BADGES
from data.records import Assignment, Person, Project, Ranking, Task
from data.store import Store
from labeling.work.answers import by_place
from labeling.work.session import (
    HISTORY_PAGE,
    Ack,
    Answered,
    Work,
    history,
    item_id,
    keep_draft,
    next_work,
    reopen,
    submit,
)

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
        work = next_work(store(), who, project_id, utc_offset_minutes=st.context.timezone_offset or 0)
        data = surface_data(who, work, list(acks.values()), with_drafts=with_drafts)
        data |= asked_for(store(), who, project_id, _state("ask"))
    except StoreUnavailable as error:
        data = {"person": who.id, "trouble": str(error)}  # the browser goes on with what it has
    _mount(
        key=KEY,
        data=data,
        on_outbox_change=_take_outbox,
        on_draft_change=_take_draft,
        on_ask_change=_look_again,
        on_look_change=_look_again,
    )
    st.session_state[DRAFTS_KEY] = False


def surface_data(who: Person, work: Work, acks: list[Ack], *, with_drafts: bool) -> dict[str, Any]:
    """What the browser gets with every change."""
    free_at = work.waiting.first_free_at
    return {
        "person": who.id,
        "project": {"id": work.project.id, "name": work.project.name},
        "guidelines": {"text": work.project.guidelines, "version": work.project.guidelines_version},
        "asks": _asks(work.project),
        "skip_reasons": list(work.project.skip_reasons),
        "n_done": work.n_done,
        "n_today": work.n_today,
        "pace_s": work.pace_s,
        "tasks": [_task_data(each, with_draft=with_drafts) for each in work.assignments],
        "waiting": {"n": work.waiting.n_with_others, "first_free_at": None if free_at is None else free_at * 1000},
        "paused": None if work.paused is None else {"reason": work.paused.reason.value, "ask": list(work.paused.ask)},
        "acks": [{"key": ack.submission_key, "outcome": ack.outcome.value, "reason": ack.reason} for ack in acks],
    }


def asked_for(store: Store, who: Person, project_id: str, ask: dict[str, Any]) -> dict[str, Any]:
    """A page of the person's history, or one of their answers, if that is what the browser asks for."""
    if isinstance(offset := ask.get("history"), int) and offset >= 0:
        n, page = history(store, who, project_id, offset=offset)
        lines = [_history_line(each) for each in page]
        return {"history": {"n": n, "offset": offset, "size": HISTORY_PAGE, "lines": lines, "at": ask.get("at")}}
    if isinstance(task_id := ask.get("open"), str):
        with contextlib.suppress(NotFound):
            return {"opened": _opened(*reopen(store, who, task_id)) | {"at": ask.get("at")}}
        return {"opened": {"at": ask.get("at")}}
    return {}


def take_in(store: Store, who: Person, items: object) -> dict[str, Ack]:
    """Store the answers in an outbox, in their order, and return the word on each. Stops where the store fails."""
    acks: dict[str, Ack] = {}
    for item in items[:MAX_ITEMS] if isinstance(items, list) else []:
        if not isinstance(item, dict):
            continue
        try:
            ack = submit(store, who, item)
        except (StoreUnavailable, NotAllowed):  # the browser keeps them: they are sent again, by who may send them
            break
        acks[ack.submission_key] = ack
    return acks


def _asks(project: Project) -> dict[str, Any]:
    """What the project lets its annotators say beside the ranks."""
    settings = project.settings
    return {
        "partial": settings.allow_partial,
        "acceptable": settings.ask_acceptable,
        "flags": list(project.flags) if settings.ask_flags else [],
        "quality": settings.ask_quality,
        "strength": settings.ask_strength,
        "rationale": settings.ask_rationale,
    }


def _task_data(assignment: Assignment, *, with_draft: bool) -> dict[str, Any]:
    held = {"lease_token": assignment.lease_token, "draft": assignment.draft if with_draft else None}
    name = item_id(assignment.task.id, assignment.slot_id, assignment.purpose)
    return _texts(assignment.task, assignment.display_order) | held | {"task_id": name}


def _texts(task: Task, order: tuple[int, ...]) -> dict[str, Any]:
    shown = [task.responses[position] for position in order]
    return {
        "display_order": list(order),
        "prompt": [{"role": message["role"], "content": message["content"]} for message in task.messages],
        "facts": task.facts,
        "responses": [response.text for response in shown],
        "badges": [[BADGES[name] for name in response.badges] for response in shown],
    }


def _history_line(answered: Answered) -> dict[str, Any]:
    answer = _answer(
        answered.ranking, answered.ranking.display_order or tuple(range(len(answered.ranking.ranks or ())))
    )
    shown = ("status", "ranks", "rest", "skip_reason")
    return {name: answer[name] for name in shown} | {
        "task_id": _item(answered.ranking),
        "prompt": answered.prompt,
        "at": answered.ranking.created_at * 1000,
        "version": answered.ranking.version,
        "is_frozen": answered.is_frozen,
    }


def _opened(task: Task, ranking: Ranking) -> dict[str, Any]:
    order = ranking.display_order or tuple(range(len(task.responses)))
    return {
        "task": _texts(task, order) | {"task_id": _item(ranking)},
        "answer": _answer(ranking, order),
        "edit_of": ranking.id,
    }


def _item(ranking: Ranking) -> str:
    return item_id(ranking.task_id, ranking.slot_id, ranking.purpose)


def _answer(ranking: Ranking, order: Sequence[int]) -> dict[str, Any]:
    """An answer by place in `order`, as the browser holds its own: what was left as the rest has no rank.

    The order is that of display; the stored one where nobody knows it.
    """
    detail = ranking.detail
    ranks: list[int | None] = [*by_place(ranking.ranks or (), order)]
    for place, position in enumerate(order):
        if position in detail.unplaced:
            ranks[place] = None
    said = {name: by_place(getattr(detail, name), order) for name in ("acceptable", "flags", "quality")}
    return said | {
        "status": ranking.status.value,
        "ranks": ranks,
        "rest": bool(detail.unplaced),
        "strength": detail.strength,
        "rationale": ranking.comment,
        "skip_reason": ranking.skip_reason,
        "elapsed_ms": ranking.duration_ms or 0,
        "at": ranking.created_at * 1000,
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
        with contextlib.suppress(StoreUnavailable, NotAllowed):  # the browser has it too
            keep_draft(where, who, draft)


def _look_again() -> None:
    """The browser asks for a look at the store, or for a part of it: the run that follows is the answer."""


def _state(name: str) -> dict[str, Any]:
    state = st.session_state.get(KEY) or {}
    value = state.get(name)
    return value if isinstance(value, dict) else {}
