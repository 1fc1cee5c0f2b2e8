"""Runs in any state for tests of screens, made by the functions that a worker uses."""

from __future__ import annotations

from typing import Any

from data.fields import from_dict, to_dict
from data.records import FailureKind, Project, Run, RunKind, RunStatus, Snapshot
from data.runs.best_policy import BEST_EVENT, STANDING_EVENT, standing, standing_detail
from data.runs.metrics import report_step
from data.runs.state import add_event, claim_run, create_run, finish_run, get_run
from data.store import Store
from training.launch.kinds import CONFIGS

TOLD_BY = "held_out/objective"


def queued(
    store: Store,
    kind: RunKind,
    project: Project | None = None,
    *,
    snapshot: Snapshot | None = None,
    reward_run: Run | None = None,
    **changes: Any,
) -> Run:
    """A queued run with the default configuration and the changes."""
    project_id = snapshot.project_id if snapshot else project.id if project else None
    with store.begin() as tx:
        return create_run(
            tx,
            kind,
            to_dict(from_dict(CONFIGS[kind], changes)),
            project_id=project_id,
            snapshot_id=snapshot.id if snapshot else None,
            reward_run_id=reward_run.id if reward_run else None,
        )


def running(store: Store, kind: RunKind, project: Project | None = None, **words: Any) -> Run:
    """A run that a worker has claimed."""
    run = queued(store, kind, project, **words)
    with store.begin() as tx:
        claimed = claim_run(tx, "test worker")
    assert claimed is not None
    assert claimed.id == run.id, "an older run was in the queue"
    return claimed


def report(store: Store, run: Run, step: int, total: int | None = 10, **parts: Any) -> None:
    """Report a step of the run: `metrics` and `samples`."""
    with store.begin() as tx:
        words = {"metrics": {}, "samples": []} | parts
        report_step(tx, run.id, run.epoch, step, total_steps=total, **words)


def ended(
    store: Store,
    kind: RunKind,
    project: Project | None = None,
    status: RunStatus = RunStatus.SUCCEEDED,
    *,
    result: dict[str, Any] | None = None,
    error: FailureKind | None = None,
    message: str | None = None,
    **words: Any,
) -> Run:
    """A run that has ended."""
    run = running(store, kind, project, **words)
    with store.begin() as tx:
        finish_run(tx, run.id, run.epoch, status, result=result, error_kind=error, error_message=message)
        return get_run(tx, run.id)


def watched(
    store: Store,
    snapshot: Snapshot,
    figures: dict[int, float],
    status: RunStatus | None = RunStatus.SUCCEEDED,
    result: dict[str, Any] | None = None,
    prompts: int = 16,
    **words: Any,
) -> Run:
    """A PPO run that has measured these figures after these iterations; `status` None: it is still at it.

    The n-th evaluation's values are 0.1 above its figure for 2^n prompts, 0.1 below it for the next 2^n, and so on: of
    16 prompts, two evaluations differ by 0.2 more or less than their figures do on 4 prompts each, and on 8 by as much.
    prompts: 0: of an older release, which did not keep that.
    """
    run = running(store, RunKind.PPO, snapshot=snapshot, **words)
    best: int | None = None
    values: dict[int, list[float]] = {}
    for place, (iteration, figure) in enumerate(figures.items()):
        report(store, run, iteration, metrics={TOLD_BY: figure})
        values[iteration] = [figure + (0.1 if (each >> place) % 2 else -0.1) for each in range(prompts)]
        if best is None or figure > figures[best]:
            best = iteration
            with store.begin() as tx:
                detail = {"iteration": iteration, "told_by": TOLD_BY, "figure": figure}
                add_event(tx, run.id, run.epoch, BEST_EVENT, detail)
        if prompts:
            told = {"iteration": best} | standing_detail(standing(best, values, len(values)))
            with store.begin() as tx:
                add_event(tx, run.id, run.epoch, STANDING_EVENT, told)
    with store.begin() as tx:
        if status is not None:
            error = FailureKind.ERROR if status is RunStatus.FAILED else None
            message = "it broke" if error else None
            finish_run(tx, run.id, run.epoch, status, result=result, error_kind=error, error_message=message)
        return get_run(tx, run.id)
