"""Prompts of a project: add, list, count. A prompt is in a project once, whatever white space surrounds it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from data.errors import InvalidInput, NotFound
from data.records import Messages, NewPrompt, Prompt, Split
from data.store.engine import Tx
from data.store.tables import project, prompt, task
from data.text import encode_json, messages_fingerprint

_PAGE = 1000


@dataclass(frozen=True)
class Added:
    """How many went in, and how many were there already."""

    n_new: int
    n_known: int


def add_prompts(tx: Tx, project_id: str, prompts: Sequence[NewPrompt]) -> Added:
    """Add prompts in their order; the ones whose messages the project has already are left alone and counted."""
    if not prompts:
        return Added(0, 0)
    tx.lock_row(project, project_id)  # two that add at once must not draw the same numbers
    now = tx.now()
    start = tx.scalar(
        sa.select(sa.func.coalesce(sa.func.max(prompt.c.seq), 0)).where(prompt.c.project_id == project_id)
    )
    rows = [
        {
            "id": tx.new_id(),
            "project_id": project_id,
            "seq": start + number,
            "fingerprint": messages_fingerprint(each.messages),
            "messages": encode_json(each.messages),
            "facts": each.facts,
            "split": each.split.value if each.split else None,
            "external_id": each.external_id,
            "meta": encode_json(each.meta),
            "created_at": now,
        }
        for number, each in enumerate(prompts, start=1)
    ]
    n_new = tx.insert_ignoring(prompt, rows, ["project_id", "fingerprint"])
    return Added(n_new, len(rows) - n_new)


def sides_of(tx: Tx, project_id: str, prompts: Sequence[NewPrompt]) -> dict[str, Split | None]:
    """Fingerprint -> the side that an import named, of those of these prompts that the project has already."""
    wanted = {messages_fingerprint(each.messages) for each in prompts}
    statement = sa.select(prompt.c.fingerprint, prompt.c.split).where(
        prompt.c.project_id == project_id, prompt.c.fingerprint.in_(wanted)
    )
    return {row.fingerprint: Split(row.split) if row.split else None for row in tx.rows(statement)}


def prompt_id_of(tx: Tx, project_id: str, new: NewPrompt) -> str:
    """Return the id of the project's prompt with these messages, adding it if it is not there."""
    statement = sa.select(prompt.c.id).where(
        prompt.c.project_id == project_id, prompt.c.fingerprint == messages_fingerprint(new.messages)
    )
    found = tx.scalar(statement)
    if found is None:
        add_prompts(tx, project_id, [new])
        found = tx.scalar(statement)
    return str(found)


def prompt_by_external_id(tx: Tx, project_id: str, external_id: str) -> str:
    """Return the id of the prompt that the imported file, or this program, calls `external_id`.

    Raises NotFound, and InvalidInput if files have called two prompts so.
    """
    in_project = sa.select(prompt.c.id).where(prompt.c.project_id == project_id)
    own = tx.scalar(in_project.where(prompt.c.id == external_id))
    if own is not None:
        return str(own)
    rows = tx.rows(in_project.where(prompt.c.external_id == external_id).limit(2))
    if not rows:
        raise NotFound(f"no prompt with the id {external_id!r} in this project; import the prompts first")
    if len(rows) > 1:
        raise InvalidInput(f"two prompts of this project have the id {external_id!r}; give the prompt's text instead")
    return str(rows[0].id)


def count_prompts(tx: Tx, project_id: str) -> int:
    return int(tx.scalar(sa.select(sa.func.count()).where(prompt.c.project_id == project_id)))


def list_prompts(
    tx: Tx,
    project_id: str,
    *,
    split: Split | None = None,
    without_task: bool = False,
    search: str = "",
    limit: int = 50,
    offset: int = 0,
) -> list[Prompt]:
    """Prompts in the order in which they came. `without_task`: only those that have nothing to rank yet.

    `search`: only those whose messages hold this text, in either case.
    """
    wanted = _wanted(project_id, split, without_task, search)
    statement = sa.select(prompt).where(*wanted).order_by(prompt.c.seq)
    return [as_prompt(row) for row in tx.rows(statement.limit(limit).offset(offset))]


def iter_prompts(tx: Tx, project_id: str) -> Iterator[Prompt]:
    """All prompts of a project in the order in which they came, read in pages."""
    last = 0
    while True:
        of_page = (prompt.c.project_id == project_id, prompt.c.seq > last)
        rows = tx.rows(sa.select(prompt).where(*of_page).order_by(prompt.c.seq).limit(_PAGE))
        yield from map(as_prompt, rows)
        if len(rows) < _PAGE:
            return
        last = rows[-1].seq


def count_listed(
    tx: Tx, project_id: str, *, split: Split | None = None, without_task: bool = False, search: str = ""
) -> int:
    """How many prompts `list_prompts` has with the same words."""
    wanted = _wanted(project_id, split, without_task, search)
    return int(tx.scalar(sa.select(sa.func.count()).select_from(prompt).where(*wanted)))


def _wanted(project_id: str, split: Split | None, without_task: bool, search: str) -> list[sa.ColumnElement[bool]]:
    wanted: list[sa.ColumnElement[bool]] = [prompt.c.project_id == project_id]
    if split is not None:
        wanted.append(prompt.c.split == split.value)
    if without_task:
        wanted.append(~sa.exists().where(task.c.prompt_id == prompt.c.id))
    if search:
        text = json.dumps(search, ensure_ascii=False)[1:-1]  # quotes and line ends as they stand in the column
        for sign in "/%_":
            text = text.replace(sign, f"/{sign}")
        wanted.append(prompt.c.messages.ilike(f'%"content": "%{text}%', escape="/"))
    return wanted


def get_splits(tx: Tx, project_id: str) -> dict[str, tuple[str, Split | None]]:
    """Prompt id -> (fingerprint, the side that its import named), for the whole project."""
    statement = sa.select(prompt.c.id, prompt.c.fingerprint, prompt.c.split).where(prompt.c.project_id == project_id)
    return {row.id: (row.fingerprint, Split(row.split) if row.split else None) for row in tx.rows(statement)}


def get_prompt(tx: Tx, prompt_id: str) -> Prompt:
    """Raises NotFound."""
    row = tx.row(sa.select(prompt).where(prompt.c.id == prompt_id))
    if row is None:
        raise NotFound(f"no prompt {prompt_id!r}")
    return as_prompt(row)


def as_prompt(row: sa.Row[Any]) -> Prompt:
    return Prompt(
        id=row.id,
        project_id=row.project_id,
        messages=read_messages(row.messages),
        split=Split(row.split) if row.split else None,
        fingerprint=row.fingerprint,
        meta=json.loads(row.meta),
        created_at=row.created_at,
        facts=row.facts,
    )


def read_messages(stored: str) -> Messages:
    """Messages from their stored JSON."""
    return tuple(json.loads(stored))
