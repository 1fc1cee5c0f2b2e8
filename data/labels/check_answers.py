"""Answers that say something of their annotator: to gold tasks, to the same task twice, and how fast they came."""

from __future__ import annotations

import sqlalchemy as sa

from data.labels.gold import Gold, as_gold
from data.labels.rankings import as_ranking
from data.records import Purpose, Ranking, RankingStatus
from data.store.engine import Tx
from data.store.tables import ranking, task
from data.store.tables_checks import gold

_AT_ONCE = 500


def gold_answers(
    tx: Tx, project_id: str, annotator_id: str | None = None, *, since: float = 0.0
) -> list[tuple[Ranking, Gold]]:
    """Current answers to gold tasks, later than `since`, with what was expected; by one annotator or by all.

    Whose own answer became gold is not measured by it. Skips are left out.
    """
    statement = (
        sa.select(ranking, gold.c.id.label("gold_id"))
        .join(task, ranking.c.task_id == task.c.id)
        .join(gold, gold.c.task_id == ranking.c.task_id)
        .where(
            task.c.project_id == project_id,
            gold.c.withdrawn_at.is_(None),
            ranking.c.superseded_at.is_(None),
            ranking.c.purpose != Purpose.REPEAT.value,
            ranking.c.status != RankingStatus.SKIPPED.value,
            ranking.c.created_at > since,
            sa.or_(gold.c.author_id.is_(None), gold.c.author_id != ranking.c.annotator_id),
        )
        .order_by(ranking.c.created_at, ranking.c.id)
    )
    if annotator_id is not None:
        statement = statement.where(ranking.c.annotator_id == annotator_id)
    expected = sa.select(gold).join(task, gold.c.task_id == task.c.id).where(task.c.project_id == project_id)
    by_id = {row.id: as_gold(row) for row in tx.rows(expected)}
    return [(as_ranking(row), by_id[row.gold_id]) for row in tx.rows(statement)]


def first_answers(tx: Tx, project_id: str, annotator_id: str, *, since: float, limit: int) -> list[Ranking]:
    """A person's newest answers later than `since`, as they first came, whether or not they were edited; no skips."""
    statement = (
        sa.select(ranking)
        .join(task, ranking.c.task_id == task.c.id)
        .where(
            task.c.project_id == project_id,
            ranking.c.annotator_id == annotator_id,
            ranking.c.created_at > since,
            ranking.c.version == 1,
            ranking.c.source == "app",
            ranking.c.status != RankingStatus.SKIPPED.value,
        )
        .order_by(ranking.c.created_at.desc(), ranking.c.id.desc())
    )
    return [as_ranking(row) for row in tx.rows(statement.limit(limit))]


def repeats(tx: Tx, project_id: str) -> list[tuple[Ranking, Ranking]]:
    """Each ranking that was asked for twice: the first one as it was when the second came, and the second one.

    Later edits of either do not count, nor do repeats that were skipped or called unacceptable.
    """
    second, first, earlier = (ranking.alias(name) for name in ("second", "first", "earlier"))
    newest = (
        sa.select(sa.func.max(earlier.c.version))
        .where(
            earlier.c.task_id == second.c.task_id,
            earlier.c.annotator_id == second.c.annotator_id,
            earlier.c.purpose != Purpose.REPEAT.value,
            earlier.c.created_at <= second.c.created_at,
        )
        .scalar_subquery()
    )
    pairs = (
        sa.select(first.c.id.label("first_id"), second.c.id.label("second_id"))
        .join(task, second.c.task_id == task.c.id)
        .join(first, sa.and_(first.c.task_id == second.c.task_id, first.c.annotator_id == second.c.annotator_id))
        .where(
            task.c.project_id == project_id,
            second.c.purpose == Purpose.REPEAT.value,
            second.c.version == 1,
            first.c.purpose != Purpose.REPEAT.value,
            first.c.version == newest,
            sa.and_(first.c.status == RankingStatus.RANKED.value, second.c.status == RankingStatus.RANKED.value),
        )
        .order_by(second.c.created_at, second.c.id)
    )
    twice = [(row.first_id, row.second_id) for row in tx.rows(pairs)]
    by_id = {}
    for start in range(0, len(twice), _AT_ONCE):
        wanted = [ranking_id for pair in twice[start : start + _AT_ONCE] for ranking_id in pair]
        rows = tx.rows(sa.select(ranking).where(ranking.c.id.in_(wanted)))
        by_id.update({row.id: as_ranking(row) for row in rows})
    return [(by_id[first_id], by_id[second_id]) for first_id, second_id in twice]


def count_repeats(tx: Tx, project_id: str) -> int:
    """How many answers of a project are repeats."""
    statement = (
        sa.select(sa.func.count())
        .select_from(ranking.join(task, ranking.c.task_id == task.c.id))
        .where(
            task.c.project_id == project_id,
            ranking.c.superseded_at.is_(None),
            ranking.c.purpose == Purpose.REPEAT.value,
        )
    )
    return int(tx.scalar(statement))
