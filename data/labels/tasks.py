"""Responses and tasks: a task is one prompt with the K distinct responses that annotators rank."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from data.errors import Conflict, InvalidInput, NotFound
from data.labels.projects import MAX_K, MIN_K, draw_turn, get_project
from data.labels.prompts import read_messages
from data.records import Messages, NewResponse, Response, Task
from data.store.engine import Tx
from data.store.tables import project, prompt, response, slot, task, task_response
from data.text import encode_json, text_fingerprint


@dataclass(frozen=True)
class NewTask:
    """What `add_task` did. `positions[i]`: where response i of the call stands in the task, None if it is a double."""

    task_id: str
    is_new: bool
    positions: tuple[int | None, ...]


def add_responses(
    tx: Tx, prompt_id: str, responses: Sequence[NewResponse], *, run_id: str | None = None, start: int = 0
) -> list[str]:
    """Store responses and return their ids. With a run, response i is that run's sample `start + i` of the prompt.

    A place that the run has sampled already keeps what it has. Raises Conflict if that is another text.
    """
    now = tx.now()
    rows = [
        {
            "id": tx.new_id(),
            "prompt_id": prompt_id,
            "fingerprint": text_fingerprint(each.text),
            "text": each.text,
            "model": each.model,
            "provenance": encode_json(each.provenance),
            "badges": encode_json(each.badges),
            "run_id": run_id,
            "sample_index": number if run_id else None,
            "created_at": now,
        }
        for number, each in enumerate(responses, start=start)
    ]
    if not rows or tx.insert_ignoring(response, rows, ["run_id", "prompt_id", "sample_index"]) == len(rows):
        return [str(row["id"]) for row in rows]
    kept = sa.select(response.c.id, response.c.sample_index, response.c.fingerprint)
    kept = kept.where(response.c.run_id == run_id, response.c.prompt_id == prompt_id)
    ids = {(row.sample_index, row.fingerprint): row.id for row in tx.rows(kept)}
    places = [(row["sample_index"], row["fingerprint"]) for row in rows]
    if any(place not in ids for place in places):
        raise Conflict(f"run {run_id} has sampled other responses of prompt {prompt_id} already")
    return [ids[place] for place in places]


def add_task(
    tx: Tx, project_id: str, prompt_id: str, responses: Sequence[NewResponse], *, slots: int, run_id: str | None = None
) -> NewTask:
    """Store responses and make a task of the distinct ones, with so many free slots.

    If the prompt has a task of just these texts, that one is returned; only slots are added, where it has fewer than
    asked for. Texts that differ in white space only count as one. Raises InvalidInput unless 2 to 12 distinct ones are
    left.
    """
    fingerprints = [text_fingerprint(each.text) for each in responses]
    distinct = list(dict.fromkeys(fingerprints))
    if not MIN_K <= len(distinct) <= MAX_K:
        raise InvalidInput(
            f"{len(distinct)} distinct responses (of {len(responses)}): a ranking needs {MIN_K} to {MAX_K}"
        )
    tx.lock_row(project, project_id)  # two that add at once must not draw the same number, or make the same task
    task_id = _task_with(tx, prompt_id, distinct)
    if task_id is not None:
        _add_slots(tx, task_id, slots)
        return NewTask(task_id, False, tuple(positions_in(tx, task_id, fingerprints)))
    kept = [responses[fingerprints.index(each)] for each in distinct]
    response_ids = add_responses(tx, prompt_id, kept, run_id=run_id)
    task_id = tx.new_id()
    last = sa.select(sa.func.coalesce(sa.func.max(task.c.seq), 0)).where(task.c.project_id == project_id)
    values = {"id": task_id, "project_id": project_id, "prompt_id": prompt_id, "created_at": tx.now()}
    tx.execute(sa.insert(task).values(**values, responses_hash=_hash(distinct), seq=tx.scalar(last) + 1))
    places = [
        {"task_id": task_id, "position": position, "response_id": response_id, "fingerprint": fingerprint}
        for position, (response_id, fingerprint) in enumerate(zip(response_ids, distinct, strict=True))
    ]
    tx.execute(sa.insert(task_response), places)
    _add_slots(tx, task_id, slots)
    return NewTask(task_id, True, tuple(_positions({each: place for place, each in enumerate(distinct)}, fingerprints)))


def positions_in(tx: Tx, task_id: str, fingerprints: Sequence[str]) -> list[int | None]:
    """Where each fingerprint stands in the task; None for one that has come up before in the list."""
    columns = (task_response.c.fingerprint, task_response.c.position)
    rows = tx.rows(sa.select(*columns).where(task_response.c.task_id == task_id))
    return _positions({row.fingerprint: row.position for row in rows}, fingerprints)


def _positions(left: dict[str, int], fingerprints: Sequence[str]) -> list[int | None]:
    return [left.pop(each, None) for each in fingerprints]


def get_tasks(tx: Tx, task_ids: Sequence[str]) -> list[Task]:
    """The tasks with these ids, in this order. Raises NotFound for an unknown one."""
    if not task_ids:
        return []
    heads = {
        row.id: row
        for row in tx.rows(
            sa.select(task.c.id, task.c.project_id, task.c.prompt_id, prompt.c.messages, prompt.c.facts)
            .join(prompt, task.c.prompt_id == prompt.c.id)
            .where(task.c.id.in_(task_ids))
        )
    }
    parts: dict[str, list[Response]] = {task_id: [] for task_id in task_ids}
    joined = (
        sa.select(task_response.c.task_id, response)
        .join(response, task_response.c.response_id == response.c.id)
        .where(task_response.c.task_id.in_(task_ids))
        .order_by(task_response.c.task_id, task_response.c.position)
    )
    for row in tx.rows(joined):
        parts[row.task_id].append(as_response(row))
    for task_id in task_ids:
        if task_id not in heads:
            raise NotFound(f"no task {task_id!r}")
    return [
        Task(
            id=task_id,
            project_id=heads[task_id].project_id,
            prompt_id=heads[task_id].prompt_id,
            messages=read_messages(heads[task_id].messages),
            responses=tuple(parts[task_id]),
            facts=heads[task_id].facts,
        )
        for task_id in task_ids
    ]


def get_task(tx: Tx, task_id: str) -> Task:
    """Raises NotFound."""
    return get_tasks(tx, [task_id])[0]


def list_task_ids(tx: Tx, project_id: str, *, limit: int = 50, offset: int = 0) -> list[str]:
    """Tasks in the order in which they are handed out."""
    statement = sa.select(task.c.id).where(task.c.project_id == project_id).order_by(task.c.seq)
    return [row.id for row in tx.rows(statement.limit(limit).offset(offset))]


def holdings_of_prompts(tx: Tx, prompt_ids: Sequence[str]) -> dict[str, tuple[int, int]]:
    """For each prompt: how many responses, and how many tasks, there are."""
    counts = dict.fromkeys(prompt_ids, (0, 0))
    for column, table in enumerate((response, task)):
        statement = sa.select(table.c.prompt_id, sa.func.count().label("number"))
        statement = statement.where(table.c.prompt_id.in_(prompt_ids)).group_by(table.c.prompt_id)
        for row in tx.rows(statement):
            known = list(counts[row.prompt_id])
            known[column] = row.number
            counts[row.prompt_id] = (known[0], known[1])
    return counts


def tasks_of_prompt(tx: Tx, prompt_id: str) -> list[Task]:
    """The tasks of a prompt, in the order in which they are handed out."""
    statement = sa.select(task.c.id).where(task.c.prompt_id == prompt_id).order_by(task.c.seq)
    return get_tasks(tx, [row.id for row in tx.rows(statement)])


def responses_of_prompt(tx: Tx, prompt_id: str) -> list[Response]:
    """All responses of a prompt, whether a task has them or not, in the order in which they came."""
    statement = sa.select(response).where(response.c.prompt_id == prompt_id)
    return [as_response(row) for row in tx.rows(statement.order_by(response.c.created_at, response.c.id))]


def responses_of_run(tx: Tx, run_id: str) -> list[Response]:
    """What a sampling run has stored so far, by prompt and place."""
    statement = (
        sa.select(response)
        .join(prompt, response.c.prompt_id == prompt.c.id)
        .where(response.c.run_id == run_id)
        .order_by(prompt.c.seq, response.c.sample_index)
    )
    return [as_response(row) for row in tx.rows(statement)]


def sampled_prompts(tx: Tx, run_id: str) -> set[str]:
    """Prompts for which the run has stored responses: a resumed run leaves them out."""
    return {row.prompt_id for row in tx.rows(sa.select(response.c.prompt_id).where(response.c.run_id == run_id))}


def responses_without_task(tx: Tx, project_id: str) -> list[Response]:
    """Responses of prompts that have no task."""
    statement = (
        sa.select(response)
        .join(prompt, response.c.prompt_id == prompt.c.id)
        .where(prompt.c.project_id == project_id, ~sa.exists().where(task.c.prompt_id == prompt.c.id))
    )
    return [as_response(row) for row in tx.rows(statement.order_by(prompt.c.seq))]


def texts_of_project(tx: Tx, project_id: str) -> list[tuple[Messages, str]]:
    """Every response of a project, with its prompt's messages."""
    statement = (
        sa.select(prompt.c.messages, response.c.text)
        .join(prompt, response.c.prompt_id == prompt.c.id)
        .where(prompt.c.project_id == project_id)
        .order_by(prompt.c.seq, response.c.id)
    )
    return [(read_messages(row.messages), row.text) for row in tx.rows(statement)]


def models_of_project(tx: Tx, project_id: str) -> list[tuple[str, int]]:
    """Models whose responses the project holds, the most frequent first, with their numbers of responses."""
    number = sa.func.count().label("number")
    statement = (
        sa.select(response.c.model, number)
        .join(prompt, response.c.prompt_id == prompt.c.id)
        .where(prompt.c.project_id == project_id, response.c.model != "")
        .group_by(response.c.model)
        .order_by(number.desc(), response.c.model)
    )
    return [(row.model, row.number) for row in tx.rows(statement)]


def as_response(row: sa.Row[Any]) -> Response:
    return Response(
        id=row.id,
        prompt_id=row.prompt_id,
        text=row.text,
        model=row.model,
        provenance=json.loads(row.provenance),
        badges=tuple(json.loads(row.badges)),
    )


def _task_with(tx: Tx, prompt_id: str, distinct: Sequence[str]) -> str | None:
    statement = sa.select(task.c.id).where(task.c.prompt_id == prompt_id, task.c.responses_hash == _hash(distinct))
    found = tx.scalar(statement)
    return None if found is None else str(found)


def _add_slots(tx: Tx, task_id: str, wanted: int) -> None:
    """Free slots, until the task has so many slots."""
    last = tx.scalar(sa.select(sa.func.coalesce(sa.func.max(slot.c.slot_no), 0)).where(slot.c.task_id == task_id))
    if last >= wanted:
        return
    of_task = tx.rows(sa.select(task.c.project_id, task.c.seq).where(task.c.id == task_id))[0]
    same = {"task_id": task_id, "project_id": of_task.project_id, "task_seq": of_task.seq, "status": "free"}
    same["turn"] = _turn_of(tx, of_task.project_id, task_id)
    tx.execute(sa.insert(slot), [same | {"id": tx.new_id(), "slot_no": n} for n in range(last + 1, wanted + 1)])


def _turn_of(tx: Tx, project_id: str, task_id: str) -> float:
    """The turn of a task's slots: the same for all of them, so that a task's annotators come one after the other."""
    numbered = sa.select(sa.func.min(slot.c.turn)).where(slot.c.task_id == task_id, slot.c.slot_no.is_not(None))
    known = tx.scalar(numbered)
    if known is not None:
        return float(known)
    return draw_turn(get_project(tx, project_id).settings.task_order)


def _hash(fingerprints: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(sorted(fingerprints)).encode()).hexdigest()[:32]
