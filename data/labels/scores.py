"""Reward models' scores of stored responses, and the tasks that a selection may still put in order."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import sqlalchemy as sa

from data.labels.gold import is_gold
from data.store.engine import Tx
from data.store.tables import slot, task, task_response
from data.store.tables_selection import response_score, task_arm
from data.text import encode_json

_AT_ONCE = 500
Value = TypeVar("Value")
Heads = tuple[tuple[float, ...], ...]  # of an ensemble: for each head its scores by position


@dataclass(frozen=True)
class TaskArm:
    """How a task came to be offered: `name` is "random" or what selected it; by which reward runs, and when.

    Without a reward run it was the instant reward model, whose `scores` are here, by position."""

    name: str
    reward_run_ids: tuple[str, ...]
    created_at: float
    scores: tuple[float, ...] = ()


def untouched_tasks(tx: Tx, project_id: str) -> list[str]:
    """Tasks that wait to be ranked, in their order: nobody holds or has done any of their slots, and none is gold."""
    of_task = slot.c.task_id == task.c.id
    statement = (
        sa.select(task.c.id)
        .where(
            task.c.project_id == project_id,
            ~task.c.is_set_aside,
            ~is_gold(task.c.id),
            sa.exists().where(of_task),
            ~sa.exists().where(of_task, slot.c.status != "free"),
        )
        .order_by(task.c.seq)
    )
    return [row.id for row in tx.rows(statement)]


def without_scores(tx: Tx, task_ids: Sequence[str], reward_run_id: str) -> list[str]:
    """Those of the tasks, in their order, of which the reward run's model has not scored every response."""
    known = scores_of_tasks(tx, task_ids, [reward_run_id])
    return [task_id for task_id in task_ids if reward_run_id not in known[task_id]]


def save_scores(
    tx: Tx, reward_run_id: str, scores: Mapping[str, float], heads: Mapping[str, Sequence[float]] | None = None
) -> None:
    """Store a reward model's scores by response, of an ensemble with those of its heads; newer ones replace older."""
    for response_id, score in scores.items():
        of_heads = None if heads is None else encode_json(list(heads[response_id]))
        values = {"response_id": response_id, "run_id": reward_run_id, "score": score, "heads": of_heads}
        tx.upsert(response_score, values, ["response_id", "run_id"])


def scores_of_tasks(
    tx: Tx, task_ids: Sequence[str], reward_run_ids: Sequence[str] = ()
) -> dict[str, dict[str, tuple[float, ...]]]:
    """For each task: reward run -> its scores by position, of runs (all, where none are named) that scored them all."""
    return _of_tasks(tx, task_ids, reward_run_ids, lambda row: float(row.score))


def heads_of_tasks(tx: Tx, task_ids: Sequence[str], reward_run_ids: Sequence[str] = ()) -> dict[str, dict[str, Heads]]:
    """The same of the ensembles among the reward runs: reward run -> for each head its scores by position."""
    by_response = _of_tasks(
        tx, task_ids, reward_run_ids, lambda row: None if row.heads is None else tuple(json.loads(row.heads))
    )
    return {
        task_id: {run_id: tuple(zip(*each, strict=True)) for run_id, each in by_run.items() if None not in each}
        for task_id, by_run in by_response.items()
    }


def _of_tasks(
    tx: Tx, task_ids: Sequence[str], reward_run_ids: Sequence[str], read: Callable[[sa.Row[Any]], Value]
) -> dict[str, dict[str, tuple[Value, ...]]]:
    """For each task: reward run -> what is read from each response's score, by position."""
    scores: dict[str, dict[str, dict[int, Value]]] = {task_id: defaultdict(dict) for task_id in task_ids}
    sizes: dict[str, int] = {}
    for start in range(0, len(task_ids), _AT_ONCE):
        some = task_ids[start : start + _AT_ONCE]
        counted = sa.select(task_response.c.task_id, sa.func.count().label("n")).where(
            task_response.c.task_id.in_(some)
        )
        sizes |= {row.task_id: row.n for row in tx.rows(counted.group_by(task_response.c.task_id))}
        statement = (
            sa.select(task_response.c.task_id, task_response.c.position, response_score)
            .join(response_score, response_score.c.response_id == task_response.c.response_id)
            .where(task_response.c.task_id.in_(some))
        )
        if reward_run_ids:
            statement = statement.where(response_score.c.run_id.in_(reward_run_ids))
        for row in tx.rows(statement):
            scores[row.task_id][row.run_id][row.position] = read(row)
    return {
        task_id: {
            run_id: tuple(scores[position] for position in range(sizes[task_id]))
            for run_id, scores in by_run.items()
            if len(scores) == sizes[task_id]
        }
        for task_id, by_run in scores.items()
    }


def set_arms(
    tx: Tx,
    project_id: str,
    arms: Mapping[str, str],
    reward_run_ids: Sequence[str],
    scores: Mapping[str, Sequence[float]] | None = None,
) -> None:
    """Mark tasks with how they came to be offered, in place of what earlier selections said of them.

    `scores`: by task, of a model that no run has kept."""
    same = {"project_id": project_id, "reward_run_ids": encode_json(list(reward_run_ids)), "created_at": tx.now()}
    for task_id, arm in arms.items():
        kept = None if scores is None else encode_json(list(scores[task_id]))
        tx.upsert(task_arm, {"task_id": task_id, "arm": arm, "scores": kept} | same, ["task_id"])


def forget_arms(tx: Tx, task_ids: Sequence[str]) -> None:
    """Let tasks be as if no selection had been at work."""
    for start in range(0, len(task_ids), _AT_ONCE):
        tx.execute(sa.delete(task_arm).where(task_arm.c.task_id.in_(task_ids[start : start + _AT_ONCE])))


def arms_of(tx: Tx, project_id: str) -> dict[str, TaskArm]:
    """Task -> arm, of the tasks that a selection has put in order, the newest selection first; gold is no work."""
    statement = sa.select(task_arm).where(task_arm.c.project_id == project_id, ~is_gold(task_arm.c.task_id))
    rows = tx.rows(statement.order_by(task_arm.c.created_at.desc(), task_arm.c.task_id))
    return {
        row.task_id: TaskArm(
            row.arm, tuple(json.loads(row.reward_run_ids)), row.created_at, tuple(json.loads(row.scores or "[]"))
        )
        for row in rows
    }
