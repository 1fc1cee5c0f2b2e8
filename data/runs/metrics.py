"""What a run reports while it works: metrics and sample texts, one transaction a step."""

from __future__ import annotations

import json
import math
from typing import Any

import sqlalchemy as sa

from data.records import MetricPoint
from data.runs.state import owned_update
from data.store.engine import Tx
from data.store.tables_runs import run_metric, run_sample
from data.text import dump_json


def report_step(
    tx: Tx,
    run_id: str,
    epoch: int,
    step: int,
    *,
    total_steps: int | None,
    metrics: dict[str, float],
    samples: list[dict[str, Any]],
) -> None:
    """Write a step's metrics and samples. A value that is not finite is stored as NULL. Raises Fenced."""
    owned_update(tx, run_id, epoch, step=step, total_steps=total_steps)
    for name, value in metrics.items():
        stored = float(value) if math.isfinite(value) else None
        tx.upsert(
            run_metric, {"run_id": run_id, "name": name, "step": step, "value": stored}, ["run_id", "name", "step"]
        )
    for position, body in enumerate(samples):
        values = {"run_id": run_id, "step": step, "position": position, "body": dump_json(body)}
        tx.upsert(run_sample, values, ["run_id", "step", "position"])


def rewind(tx: Tx, run_id: str, epoch: int, step: int) -> int:
    """Forget what was reported after `step`, where a resumed run goes on; return how many points that were."""
    owned_update(tx, run_id, epoch, step=step)
    late = tx.execute(sa.delete(run_metric).where(run_metric.c.run_id == run_id, run_metric.c.step > step)).rowcount
    tx.execute(sa.delete(run_sample).where(run_sample.c.run_id == run_id, run_sample.c.step > step))
    return late


def metrics_of(tx: Tx, run_id: str, *, after: int = -1, names: tuple[str, ...] = ()) -> list[MetricPoint]:
    """Points after a step, by step and name."""
    statement = sa.select(run_metric).where(run_metric.c.run_id == run_id, run_metric.c.step > after)
    if names:
        statement = statement.where(run_metric.c.name.in_(names))
    statement = statement.order_by(run_metric.c.step, run_metric.c.name)
    return [MetricPoint(row.step, row.name, row.value) for row in tx.rows(statement)]


def metric_names(tx: Tx, run_id: str) -> list[str]:
    statement = sa.select(run_metric.c.name).where(run_metric.c.run_id == run_id).distinct()
    return [row.name for row in tx.rows(statement.order_by(run_metric.c.name))]


def sample_steps(tx: Tx, run_id: str) -> list[int]:
    """Steps that have samples, in their order."""
    statement = sa.select(run_sample.c.step).where(run_sample.c.run_id == run_id).distinct()
    return [row.step for row in tx.rows(statement.order_by(run_sample.c.step))]


def samples_of(tx: Tx, run_id: str, step: int | None = None) -> list[tuple[int, dict[str, Any]]]:
    """(step, sample) of a run; of one step where it is named."""
    statement = sa.select(run_sample).where(run_sample.c.run_id == run_id)
    if step is not None:
        statement = statement.where(run_sample.c.step == step)
    statement = statement.order_by(run_sample.c.step, run_sample.c.position)
    return [(row.step, json.loads(row.body)) for row in tx.rows(statement)]
