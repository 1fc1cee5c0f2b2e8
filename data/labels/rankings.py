"""Rankings: append-only. An edit is a new version; nothing is changed or deleted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import sqlalchemy as sa

from data.errors import NotFound
from data.labels.filled_slots import Filled, take_slot
from data.labels.gold import is_gold
from data.labels.slots import drop_draft
from data.records import Detail, NewRanking, Purpose, Ranking, RankingStatus, SubmitOutcome
from data.store.engine import Tx
from data.store.tables import project, prompt, ranking, task
from data.text import encode_json

_IS_FIRST = ranking.c.purpose != Purpose.REPEAT.value


def save_ranking(tx: Tx, new: NewRanking) -> SubmitOutcome:
    """Store a judgement once, whatever is sent twice or late.

    The same submission key again: REPEATED. A second answer of the same person to the task that is not an edit:
    SUPERSEDED by the first, and not stored. An answer under a lease that ran out is stored and marked late, and marked
    extra if others have filled the task's slots by now. The caller has checked that the ranks fit the task.
    """
    of_annotator = _answers_of(new.task_id, new.annotator_id, is_repeat=new.is_repeat)
    current = sa.select(ranking.c.submission_key).where(*of_annotator)
    same = sa.select(ranking.c.submission_key).where(ranking.c.submission_key == new.submission_key)
    known = {row.submission_key for row in tx.rows(same.union(current))}  # one look, so that both are of one moment
    if known:
        return SubmitOutcome.REPEATED if new.submission_key in known else SubmitOutcome.SUPERSEDED
    _insert(tx, new, take_slot(tx, new), version=1, supersedes_id=None)
    if new.status is RankingStatus.SKIPPED:
        _set_aside_if_often_skipped(tx, new.task_id)
    drop_draft(tx, new.task_id, new.annotator_id)
    return SubmitOutcome.STORED


def edit_ranking(tx: Tx, old_id: str, new: NewRanking) -> SubmitOutcome:
    """Replace a person's current ranking by a new version. Raises NotFound if `old_id` is not current or not theirs."""
    tx.lock_row(ranking, old_id)
    if tx.row(sa.select(ranking.c.id).where(ranking.c.submission_key == new.submission_key)) is not None:
        return SubmitOutcome.REPEATED
    old = tx.row(
        sa.select(ranking).where(
            ranking.c.id == old_id, ranking.c.annotator_id == new.annotator_id, ranking.c.superseded_at.is_(None)
        )
    )
    is_repeat = old is not None and old.purpose == Purpose.REPEAT.value
    if old is None or old.task_id != new.task_id or is_repeat != new.is_repeat:
        raise NotFound(f"ranking {old_id!r} is not your current answer to this task")
    tx.execute(sa.update(ranking).where(ranking.c.id == old_id).values(superseded_at=tx.now()))
    slot_id = old.slot_id
    if RankingStatus.SKIPPED.value in {old.status, new.status.value} and old.status != new.status.value:
        slot_id = take_slot(tx, new).slot_id
    new = _without_guesses(old, new)
    is_extra = slot_id is None and new.source == "app" and new.status is not RankingStatus.SKIPPED
    filled = Filled(slot_id, Purpose(old.purpose), is_late=bool(old.is_late), is_extra=is_extra)
    _insert(tx, new, filled, version=old.version + 1, supersedes_id=old_id)
    _set_aside_if_often_skipped(tx, new.task_id)
    return SubmitOutcome.STORED


def _without_guesses(old: sa.Row[Any], new: NewRanking) -> NewRanking:
    """An edit of an answer whose display order or duration is unknown: what is measured of the edit is no answer's."""
    if old.duration_ms is None:
        new = replace(new, duration_ms=None)
    return replace(new, display_order=None) if old.display_order is None else new


def known_submissions(tx: Tx, keys: list[str]) -> set[str]:
    """Which of these submission keys are stored."""
    if not keys:
        return set()
    statement = sa.select(ranking.c.submission_key).where(ranking.c.submission_key.in_(keys))
    return {row.submission_key for row in tx.rows(statement)}


def rankings_of(tx: Tx, annotator_id: str, project_id: str, limit: int = 50, offset: int = 0) -> list[Ranking]:
    """A person's current answers in a project, the newest first."""
    statement = (
        sa.select(ranking)
        .join(task, ranking.c.task_id == task.c.id)
        .where(
            ranking.c.annotator_id == annotator_id,
            task.c.project_id == project_id,
            ranking.c.superseded_at.is_(None),
        )
        .order_by(ranking.c.created_at.desc(), ranking.c.id.desc())
    )
    return [as_ranking(row) for row in tx.rows(statement.limit(limit).offset(offset))]


def answer_of(tx: Tx, task_id: str, annotator_id: str, *, is_repeat: bool = False) -> Ranking:
    """A person's current answer to a task, or their repeat of it. Raises NotFound."""
    row = tx.row(sa.select(ranking).where(*_answers_of(task_id, annotator_id, is_repeat=is_repeat)))
    if row is None:
        raise NotFound(f"you have no answer to task {task_id!r}")
    return as_ranking(row)


def versions_of(tx: Tx, task_id: str, annotator_id: str) -> list[Ranking]:
    """Every version of a person's answer to a task, the newest first; their silent repeat is none."""
    statement = sa.select(ranking).where(
        ranking.c.task_id == task_id, ranking.c.annotator_id == annotator_id, _IS_FIRST
    )
    return [as_ranking(row) for row in tx.rows(statement.order_by(ranking.c.version.desc()))]


def find_ranking(tx: Tx, ranking_id: str) -> Ranking:
    """An answer by its id, current or not. Raises NotFound."""
    row = tx.row(sa.select(ranking).where(ranking.c.id == ranking_id))
    if row is None:
        raise NotFound(
            f"no ranking {ranking_id!r} in this store; a report names rankings of the store it was made from"
        )
    return as_ranking(row)


def later_version(tx: Tx, ranking_id: str) -> str | None:
    """The id of the answer that an annotator has put in the place of this one."""
    found = tx.scalar(sa.select(ranking.c.id).where(ranking.c.supersedes_id == ranking_id))
    return None if found is None else str(found)


def find_version(tx: Tx, id_or_key: str, annotator_id: str) -> str | None:
    """The id of one version of a person's answer, current or not, by its id or by its submission key."""
    named = sa.or_(ranking.c.id == id_or_key, ranking.c.submission_key == id_or_key)
    found = tx.scalar(sa.select(ranking.c.id).where(named, ranking.c.annotator_id == annotator_id))
    return None if found is None else str(found)


def prompt_beginnings(tx: Tx, task_ids: list[str], length: int = 120) -> dict[str, str]:
    """The first characters of the last message of each task's prompt, without loading any response."""
    statement = sa.select(task.c.id, prompt.c.messages).join(prompt, task.c.prompt_id == prompt.c.id)
    rows = tx.rows(statement.where(task.c.id.in_(task_ids)))
    return {row.id: " ".join(json.loads(row.messages)[-1]["content"][: 4 * length].split())[:length] for row in rows}


def durations_since(tx: Tx, annotator_id: str, project_id: str, since: float) -> list[int | None]:
    """How long each of a person's answers since then took; edits, skips and answers from files do not count."""
    statement = (
        sa.select(ranking.c.duration_ms)
        .join(task, ranking.c.task_id == task.c.id)
        .where(
            ranking.c.annotator_id == annotator_id,
            ranking.c.created_at >= since,
            task.c.project_id == project_id,
            ranking.c.version == 1,
            ranking.c.source == "app",
            ranking.c.status != RankingStatus.SKIPPED.value,
        )
    )
    return [row.duration_ms for row in tx.rows(statement)]


def count_answers(tx: Tx, annotator_id: str, project_id: str) -> int:
    """How many tasks of the project the person has answered or skipped."""
    return _count(tx, annotator_id, project_id)


def count_rankings(tx: Tx, annotator_id: str, project_id: str) -> int:
    """How many tasks of the project the person has answered (skips do not count)."""
    return _count(tx, annotator_id, project_id, ranking.c.status != RankingStatus.SKIPPED.value)


def _count(tx: Tx, annotator_id: str, project_id: str, *more: sa.ColumnElement[bool]) -> int:
    statement = (
        sa.select(sa.func.count())
        .select_from(ranking.join(task, ranking.c.task_id == task.c.id))
        .where(
            ranking.c.annotator_id == annotator_id,
            task.c.project_id == project_id,
            ranking.c.superseded_at.is_(None),
            *more,
        )
    )
    return int(tx.scalar(statement))


def current_rankings(tx: Tx, project_id: str, *, with_gold: bool = False) -> Iterator[tuple[Ranking, str]]:
    """All current answers of a project with their prompts' ids, skips included, by task and then by time.

    Repeats are not among them. Answers to gold tasks are only `with_gold`, and then have that purpose.
    """
    of_gold = sa.or_(ranking.c.purpose == Purpose.GOLD.value, is_gold(ranking.c.task_id))
    statement = (
        sa.select(ranking, task.c.prompt_id, of_gold.label("is_gold"))
        .join(task, ranking.c.task_id == task.c.id)
        .where(task.c.project_id == project_id, ranking.c.superseded_at.is_(None), _IS_FIRST)
        .order_by(task.c.seq, ranking.c.created_at, ranking.c.id)
    )
    for row in tx.stream(statement if with_gold else statement.where(~of_gold)):
        found = as_ranking(row)
        yield (replace(found, purpose=Purpose.GOLD) if row.is_gold else found), row.prompt_id


def count_versions(tx: Tx, project_id: str) -> int:
    """How many answers were ever stored in a project, replaced ones included: it changes with every answer."""
    statement = sa.select(sa.func.count()).select_from(ranking.join(task, ranking.c.task_id == task.c.id))
    return int(tx.scalar(statement.where(task.c.project_id == project_id)))


def count_superseded(tx: Tx, project_id: str) -> int:
    """How many answers of a project were replaced by an edit (repeats do not count)."""
    statement = (
        sa.select(sa.func.count())
        .select_from(ranking.join(task, ranking.c.task_id == task.c.id))
        .where(task.c.project_id == project_id, ranking.c.superseded_at.is_not(None), _IS_FIRST)
    )
    return int(tx.scalar(statement))


def as_ranking(row: sa.Row[Any]) -> Ranking:
    return Ranking(
        id=row.id,
        task_id=row.task_id,
        annotator_id=row.annotator_id,
        submission_key=row.submission_key,
        status=RankingStatus(row.status),
        ranks=None if row.ranks is None else tuple(json.loads(row.ranks)),
        display_order=None if row.display_order is None else tuple(json.loads(row.display_order)),
        skip_reason=row.skip_reason,
        comment=row.comment,
        duration_ms=row.duration_ms,
        guidelines_version=row.guidelines_version,
        is_late=bool(row.is_late),
        is_extra=bool(row.is_extra),
        version=row.version,
        supersedes_id=row.supersedes_id,
        source=row.source,
        created_at=row.created_at,
        detail=read_detail(row.detail),
        slot_id=row.slot_id,
        purpose=Purpose(row.purpose),
    )


def write_detail(detail: Detail) -> str:
    """The detail as stored JSON: only what was said."""
    return encode_json({name: value for name, value in asdict(detail).items() if value not in ((), None)})


def read_detail(stored: str) -> Detail:
    """The detail from its stored JSON."""
    values = json.loads(stored)
    return Detail(
        unplaced=tuple(values.get("unplaced", ())),
        acceptable=tuple(values.get("acceptable", ())),
        flags=tuple(tuple(each) for each in values.get("flags", ())),
        quality=tuple(values.get("quality", ())),
        strength=values.get("strength"),
    )


def _answers_of(task_id: str, annotator_id: str, *, is_repeat: bool) -> tuple[sa.ColumnElement[bool], ...]:
    is_kind = ranking.c.purpose == Purpose.REPEAT.value if is_repeat else _IS_FIRST
    return (
        ranking.c.task_id == task_id,
        ranking.c.annotator_id == annotator_id,
        ranking.c.superseded_at.is_(None),
        is_kind,
    )


def _insert(tx: Tx, new: NewRanking, filled: Filled, *, version: int, supersedes_id: str | None) -> None:
    guidelines = (
        sa.select(project.c.guidelines_version)
        .join(task, task.c.project_id == project.c.id)
        .where(task.c.id == new.task_id)
    )
    values = {
        "id": tx.new_id(),
        "task_id": new.task_id,
        "annotator_id": new.annotator_id,
        "slot_id": filled.slot_id,
        "purpose": filled.purpose.value,
        "submission_key": new.submission_key,
        "status": new.status.value,
        "ranks": None if new.ranks is None else json.dumps(list(new.ranks)),
        "display_order": None if new.display_order is None else json.dumps(list(new.display_order)),
        "skip_reason": new.skip_reason,
        "comment": new.comment,
        "detail": write_detail(new.detail),
        "duration_ms": new.duration_ms,
        "guidelines_version": new.guidelines_version or (tx.scalar(guidelines) if new.source == "app" else None),
        "is_late": filled.is_late,
        "is_extra": filled.is_extra,
        "version": version,
        "supersedes_id": supersedes_id,
        "source": new.source,
        "created_at": tx.now(),
    }
    tx.execute(sa.insert(ranking).values(**values))


def _set_aside_if_often_skipped(tx: Tx, task_id: str) -> None:
    skips = sa.select(sa.func.count()).where(
        ranking.c.task_id == task_id,
        ranking.c.status == RankingStatus.SKIPPED.value,
        ranking.c.superseded_at.is_(None),
        ranking.c.purpose == Purpose.ORDINARY.value,
    )
    limit = sa.select(project.c.max_skips).join(task, task.c.project_id == project.c.id).where(task.c.id == task_id)
    is_set_aside = tx.scalar(skips) >= tx.scalar(limit)
    changed = (task.c.id == task_id, task.c.is_set_aside != is_set_aside)
    tx.execute(sa.update(task).where(*changed).values(is_set_aside=is_set_aside))
