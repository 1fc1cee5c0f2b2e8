"""Projects: what is ranked, by how many people, under which guidelines."""

from __future__ import annotations

import json
import secrets
from typing import Any

import sqlalchemy as sa

from data.errors import Conflict, InvalidInput, NotFound
from data.label_settings import DEFAULT_FLAGS, LabelSettings, TaskOrder, changed_settings, settings_from
from data.labels.gold import is_gold
from data.records import Project, Purpose
from data.store.engine import Tx
from data.store.tables import project, prompt, ranking, response, slot, task
from data.text import clean_text

MIN_K, MAX_K = 2, 12
DEFAULT_SKIP_REASONS = (
    "I can't judge this topic",
    "The prompt makes no sense",
    "The content is harmful or upsetting",
    "Something is displayed wrongly",
)
DEFAULT_GUIDELINES = (
    "Rank the responses from best to worst. Ask for each: does it do what the prompt asks, is it true, is it harmless? "
    "Give two responses the same rank if neither is better."
)


def create_project(
    tx: Tx,
    name: str,
    *,
    k: int = 4,
    overlap: int = 1,
    guidelines: str = DEFAULT_GUIDELINES,
    skip_reasons: tuple[str, ...] = DEFAULT_SKIP_REASONS,
    max_skips: int = 3,
    flags: tuple[str, ...] = DEFAULT_FLAGS,
    settings: LabelSettings = LabelSettings(),  # noqa: B008 (frozen)
    nonce: str | None = None,
) -> Project:
    """Create a project; a repeated `nonce` returns the project that it made the first time.

    `k`: responses to sample per prompt (2 to 12). `overlap`: annotators per task. `max_skips`: so many skips set a
    task aside. Raises InvalidInput, or Conflict if the name is taken.
    """
    name = clean_text(name).strip()
    if not name or len(name) > 80 or any(char < " " for char in name):
        raise InvalidInput(f"project name {name!r}: 1 to 80 printable characters are allowed")
    if not MIN_K <= k <= MAX_K:
        raise InvalidInput(f"k = {k}: a ranking needs {MIN_K} to {MAX_K} responses per prompt")
    if overlap < 1 or max_skips < 1:
        raise InvalidInput(f"overlap = {overlap}, max_skips = {max_skips}: both must be at least 1")
    values = {
        "id": tx.new_id(),
        "name": name,
        "k": k,
        "overlap": overlap,
        "guidelines": clean_text(guidelines),
        "guidelines_version": 1,
        "skip_reasons": json.dumps([clean_text(reason) for reason in skip_reasons], ensure_ascii=False),
        "max_skips": max_skips,
        "flags": json.dumps([clean_text(flag) for flag in flags], ensure_ascii=False),
        "settings": json.dumps(changed_settings(settings)),
        "export_key": secrets.token_hex(16),
        "nonce": nonce,
        "created_at": tx.now(),
    }
    if tx.insert_ignoring(project, values):
        return get_project(tx, str(values["id"]))
    if nonce is not None and (made := tx.row(sa.select(project).where(project.c.nonce == nonce))) is not None:
        return _as_project(made)
    raise Conflict(f"a project named {name!r} exists already; choose another name")


def list_projects(tx: Tx) -> list[Project]:
    """Projects, oldest first."""
    return [_as_project(row) for row in tx.rows(sa.select(project).order_by(project.c.created_at, project.c.id))]


def get_project(tx: Tx, project_id: str) -> Project:
    """Raises NotFound."""
    return _found(tx, project.c.id == project_id, project_id)


def project_by_name(tx: Tx, name: str) -> Project:
    """Find a project by its name or its id. Raises NotFound, naming the projects there are."""
    return _found(tx, sa.or_(project.c.name == name, project.c.id == name), name)


def set_guidelines(tx: Tx, project_id: str, guidelines: str) -> Project:
    """Change the guidelines; rankings record which version their annotator saw."""
    changed = clean_text(guidelines)
    tx.execute(
        sa.update(project)
        .where(project.c.id == project_id, project.c.guidelines != changed)
        .values(guidelines=changed, guidelines_version=project.c.guidelines_version + 1)
    )
    return get_project(tx, project_id)


def set_settings(
    tx: Tx,
    project_id: str,
    *,
    settings: LabelSettings | None = None,
    flags: tuple[str, ...] | None = None,
    skip_reasons: tuple[str, ...] | None = None,
) -> Project:
    """Change what a project asks of its annotators; what is None stays. Answers that are stored stay as they are.

    Another order of tasks counts from now on: what is open is put in that order.
    Raises NotFound, and InvalidInput for an empty name in a list or no reason to skip.
    """
    before = get_project(tx, project_id)
    values: dict[str, str] = {}
    if settings is not None:
        values["settings"] = json.dumps(changed_settings(settings))
        if settings.task_order != before.settings.task_order:
            _redraw_turns(tx, project_id, settings.task_order)
    for name, names in (("flags", flags), ("skip_reasons", skip_reasons)):
        if names is not None:
            cleaned = list(dict.fromkeys(clean_text(each).strip() for each in names))
            if "" in cleaned or (name == "skip_reasons" and not cleaned):
                raise InvalidInput(f"{name.replace('_', ' ')}: each needs a name, and there must be a reason to skip")
            values[name] = json.dumps(cleaned, ensure_ascii=False)
    if values:
        tx.execute(sa.update(project).where(project.c.id == project_id).values(**values))
    return get_project(tx, project_id)


def draw_turn(task_order: str) -> float:
    """The turn of a new task: tasks are handed out by turn, then by number."""
    return secrets.SystemRandom().random() if task_order == TaskOrder.RANDOM else 0.0


def _redraw_turns(tx: Tx, project_id: str, task_order: str) -> None:
    is_open = (slot.c.project_id == project_id, slot.c.status != "done", slot.c.purpose == Purpose.ORDINARY.value)
    if task_order != TaskOrder.RANDOM:
        tx.execute(sa.update(slot).where(*is_open).values(turn=0.0))
        return
    open_tasks = [row.task_id for row in tx.rows(sa.select(slot.c.task_id).where(*is_open).distinct())]
    for task_id in open_tasks:
        tx.execute(sa.update(slot).where(*is_open, slot.c.task_id == task_id).values(turn=draw_turn(task_order)))


def export_key(tx: Tx, project_id: str) -> str:
    """The secret that makes annotators' pseudonyms the same within a project and unlinkable across projects.

    Raises NotFound.
    """
    get_project(tx, project_id)
    return str(tx.scalar(sa.select(project.c.export_key).where(project.c.id == project_id)))


def project_counts(tx: Tx, project_id: str) -> dict[str, int]:
    """Count what a project holds: prompts, responses, tasks, slots by status, current rankings by status.

    Slots are those of ordinary work: gold tasks and repeats want nobody's number. Repeats are no answers here.
    """
    in_project = task.c.project_id == project_id
    counts = {
        "prompts": tx.scalar(sa.select(sa.func.count()).where(prompt.c.project_id == project_id)),
        "responses": tx.scalar(
            sa.select(sa.func.count()).select_from(response.join(prompt)).where(prompt.c.project_id == project_id)
        ),
        "tasks": tx.scalar(sa.select(sa.func.count()).where(in_project)),
        "tasks_set_aside": tx.scalar(sa.select(sa.func.count()).where(in_project, task.c.is_set_aside)),
        "tasks_gold": tx.scalar(sa.select(sa.func.count()).where(in_project, is_gold(task.c.id))),
    }
    slots = sa.select(slot.c.status, sa.func.count().label("number")).where(
        slot.c.project_id == project_id, slot.c.purpose == Purpose.ORDINARY.value, ~is_gold(slot.c.task_id)
    )
    answers = (
        sa.select(ranking.c.status, sa.func.count().label("number"))
        .select_from(ranking.join(task, ranking.c.task_id == task.c.id))
        .where(in_project, ranking.c.superseded_at.is_(None), ranking.c.purpose != Purpose.REPEAT.value)
    )
    by_slot = {row.status: row.number for row in tx.rows(slots.group_by(slot.c.status))}
    by_answer = {row.status: row.number for row in tx.rows(answers.group_by(ranking.c.status))}
    return counts | {
        "slots": sum(by_slot.values()),
        "slots_done": by_slot.get("done", 0),
        "rankings": by_answer.get("ranked", 0),
        "unacceptable": by_answer.get("unacceptable", 0),
        "skips": by_answer.get("skipped", 0),
    }


def _found(tx: Tx, condition: sa.ColumnElement[bool], wanted: str) -> Project:
    row = tx.row(sa.select(project).where(condition))
    if row is None:
        names = ", ".join(repr(each.name) for each in list_projects(tx)[:10]) or "none yet"
        raise NotFound(f"no project {wanted!r}; there are: {names}")
    return _as_project(row)


def _as_project(row: sa.Row[Any]) -> Project:
    return Project(
        id=row.id,
        name=row.name,
        k=row.k,
        overlap=row.overlap,
        guidelines=row.guidelines,
        guidelines_version=row.guidelines_version,
        skip_reasons=tuple(json.loads(row.skip_reasons)),
        max_skips=row.max_skips,
        flags=tuple(json.loads(row.flags)),
        settings=settings_from(json.loads(row.settings)),
        created_at=row.created_at,
    )
