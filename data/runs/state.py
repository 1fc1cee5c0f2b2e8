"""Runs: the state machine, and who may write.

    queued ── claim ──> running ──> succeeded | failed | cancelled
      └─ cancel ──> cancelled            failed | cancelled ── resume ──> queued

A claim raises the run's `epoch`. Whatever a worker writes carries the epoch it was given; if somebody else has claimed
the run since (because this worker's lease ran out), the write changes no row and raises Fenced. Times are the
database's, so clocks of workers don't matter.
"""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa

from data.errors import Conflict, Fenced, NotFound
from data.records import Checkpoint, FailureKind, Run, RunEvent, RunKind, RunStatus
from data.store.engine import Tx
from data.store.tables import run
from data.store.tables_runs import checkpoint, run_event
from data.text import clean_text, dump_json

LEASE_S = 60.0


def create_run(
    tx: Tx,
    kind: RunKind,
    config: dict[str, Any],
    *,
    project_id: str | None = None,
    snapshot_id: str | None = None,
    reward_run_id: str | None = None,
    nonce: str | None = None,
    created_by: str | None = None,
) -> Run:
    """Queue a run. A repeated `nonce` returns the run that it made the first time: two clicks make one run."""
    values = {
        "id": tx.new_id(),
        "kind": kind.value,
        "status": RunStatus.QUEUED.value,
        "project_id": project_id,
        "snapshot_id": snapshot_id,
        "reward_run_id": reward_run_id,
        "config": dump_json(config),
        "versions": "{}",
        "result": "{}",
        "nonce": nonce,
        "created_at": tx.now(),
        "created_by": created_by,
    }
    if not tx.insert_ignoring(run, values, ["nonce"]):
        return _as_run(tx.rows(sa.select(run).where(run.c.nonce == nonce))[0])
    _event(tx, str(values["id"]), "queued", {})
    return get_run(tx, str(values["id"]))


def get_run(tx: Tx, run_id: str) -> Run:
    """Find a run by its id, or by the last characters of it if only one run ends so. Raises NotFound."""
    row = tx.row(sa.select(run).where(run.c.id == run_id))
    if row is None and len(run_id) >= 4:
        alike = tx.rows(sa.select(run).where(run.c.id.endswith(run_id, autoescape=True)).limit(2))
        row = alike[0] if len(alike) == 1 else None
    if row is None:
        raise NotFound(f"no run {run_id!r}; `rankloop runs list` shows them all")
    return _as_run(row)


def is_named_in_a_shell(tx: Tx, field: str, value: str) -> bool:
    """Whether the configuration of a run that was queued on the command line has this value in this field."""
    statement = sa.select(run.c.config).where(
        run.c.created_by.is_(None), run.c.config.contains(dump_json(value), autoescape=True)
    )
    return any(json.loads(row.config).get(field) == value for row in tx.rows(statement))


def list_runs(
    tx: Tx,
    *,
    project_id: str | None = None,
    kinds: tuple[RunKind, ...] = (),
    status: RunStatus | None = None,
    limit: int = 100,
) -> list[Run]:
    """Runs, the newest first."""
    statement = sa.select(run).order_by(run.c.created_at.desc(), run.c.id.desc()).limit(limit)
    if project_id is not None:
        statement = statement.where(run.c.project_id == project_id)
    if kinds:
        statement = statement.where(run.c.kind.in_([kind.value for kind in kinds]))
    if status is not None:
        statement = statement.where(run.c.status == status.value)
    return [_as_run(row) for row in tx.rows(statement)]


def claim_run(
    tx: Tx, worker_id: str, kinds: tuple[RunKind, ...] = (), lease_s: float = LEASE_S, run_id: str | None = None
) -> Run | None:
    """Take the oldest queued run, or only `run_id`, or return None. The run's `epoch` is the licence to write."""
    statement = sa.select(run.c.id, run.c.epoch).where(run.c.status == RunStatus.QUEUED.value)
    if kinds:
        statement = statement.where(run.c.kind.in_([kind.value for kind in kinds]))
    if run_id is not None:
        statement = statement.where(run.c.id == run_id)
    statement = statement.order_by(run.c.created_at, run.c.id).limit(1)
    if tx.dialect == "postgresql":
        statement = statement.with_for_update(skip_locked=True)
    queued = tx.row(statement)
    if queued is None:
        return None
    now = tx.now()
    claimed = tx.execute(
        sa.update(run)
        .where(run.c.id == queued.id, run.c.epoch == queued.epoch, run.c.status == RunStatus.QUEUED.value)
        .values(
            status=RunStatus.RUNNING.value,
            epoch=run.c.epoch + 1,
            attempt=run.c.attempt + 1,
            worker_id=worker_id,
            started_at=sa.func.coalesce(run.c.started_at, now),
            heartbeat_at=now,
            lease_until=now + lease_s,
            ended_at=None,
            error_kind=None,
            error_message=None,
        )
    )
    if claimed.rowcount != 1:
        return None
    taken = get_run(tx, queued.id)
    _event(tx, taken.id, "started", {"worker": worker_id, "attempt": taken.attempt})
    return taken


def heartbeat(tx: Tx, run_id: str, epoch: int, lease_s: float = LEASE_S) -> bool:
    """Prolong the lease; return whether somebody asked to cancel. Raises Fenced."""
    now = tx.now()
    owned_update(tx, run_id, epoch, heartbeat_at=now, lease_until=now + lease_s)
    return tx.scalar(sa.select(run.c.cancel_requested_at).where(run.c.id == run_id)) is not None


def is_cancel_requested(tx: Tx, run_id: str) -> bool:
    return tx.scalar(sa.select(run.c.cancel_requested_at).where(run.c.id == run_id)) is not None


def owned_update(tx: Tx, run_id: str, epoch: int, **values: Any) -> None:
    """Change a run that the caller owns. Raises Fenced if somebody else does by now, or if it has ended."""
    owned = (run.c.id == run_id, run.c.epoch == epoch, run.c.status == RunStatus.RUNNING.value)
    changed = tx.execute(sa.update(run).where(*owned).values(**(values or {"epoch": epoch})))
    if changed.rowcount != 1:
        raise Fenced(f"run {run_id} is no longer this worker's (it held epoch {epoch})")


def add_event(tx: Tx, run_id: str, epoch: int, kind: str, detail: dict[str, Any]) -> None:
    """Record something that happened to the run. Raises Fenced."""
    owned_update(tx, run_id, epoch)
    _event(tx, run_id, kind, detail)


def finish_run(
    tx: Tx,
    run_id: str,
    epoch: int,
    status: RunStatus,
    *,
    result: dict[str, Any] | None = None,
    error_kind: FailureKind | None = None,
    error_message: str | None = None,
) -> None:
    """Write the final state and the last event in one go. Raises Fenced."""
    values: dict[str, Any] = {"status": status.value, "lease_until": None, "ended_at": tx.now()}
    if result is not None:
        values["result"] = dump_json(result)
    if error_kind is not None:
        values |= {"error_kind": error_kind.value, "error_message": clean_text(error_message or "")}
    owned_update(tx, run_id, epoch, **values)
    detail = {"error": error_kind.value, "message": error_message} if error_kind else {}
    _event(tx, run_id, status.value, detail)


def request_cancel(tx: Tx, run_id: str) -> Run:
    """Ask a run to stop. A queued one is cancelled at once; a running one stops at its next safe place.

    Raises Conflict if it has ended.
    """
    stored = get_run(tx, run_id)
    now = tx.now()
    if stored.status is RunStatus.QUEUED:
        waiting = (run.c.id == stored.id, run.c.status == RunStatus.QUEUED.value)
        values = {"status": RunStatus.CANCELLED.value, "ended_at": now, "cancel_requested_at": now}
        if tx.execute(sa.update(run).where(*waiting).values(**values)).rowcount == 1:
            _event(tx, stored.id, "cancelled", {"while": "queued"})
            return get_run(tx, stored.id)
        stored = get_run(tx, stored.id)
    if stored.status.is_final:
        raise Conflict(f"run {stored.id} has ended ({stored.status}); there is nothing to cancel")
    if stored.cancel_requested_at is None:
        running = (run.c.id == stored.id, run.c.status == RunStatus.RUNNING.value, run.c.cancel_requested_at.is_(None))
        if tx.execute(sa.update(run).where(*running).values(cancel_requested_at=now)).rowcount == 1:
            _event(tx, stored.id, "cancel_requested", {})
    return get_run(tx, stored.id)


def resume_run(tx: Tx, run_id: str) -> Run:
    """Put a failed or cancelled run back into the queue; it goes on from its newest good checkpoint.

    Raises Conflict for a run that is not failed or cancelled.
    """
    stored = get_run(tx, run_id)
    if stored.status not in (RunStatus.FAILED, RunStatus.CANCELLED):
        raise Conflict(f"run {stored.id} is {stored.status}; only a failed or cancelled run can be resumed")
    stopped = (run.c.id == stored.id, run.c.status == stored.status.value, run.c.epoch == stored.epoch)
    values = {"status": RunStatus.QUEUED.value, "cancel_requested_at": None, "ended_at": None}
    values |= {"error_kind": None, "error_message": None}  # the events keep them
    if tx.execute(sa.update(run).where(*stopped).values(**values)).rowcount != 1:
        raise Conflict(f"run {stored.id} was changed by somebody else just now; look again")
    _event(tx, stored.id, "resumed", {"from": stored.status.value})
    return get_run(tx, stored.id)


def reap_runs(tx: Tx) -> list[str]:
    """Fail every running run whose lease ran out: its worker is lost. Returns their ids.

    A run that was being cancelled ends as cancelled. The epoch rises, so that a worker that only slept is refused.
    """
    now = tx.now()
    lost = sa.select(run.c.id, run.c.epoch, run.c.cancel_requested_at).where(
        run.c.status == RunStatus.RUNNING.value, run.c.lease_until < now
    )
    reaped = []
    for lost_run in tx.rows(lost):
        is_cancelled = lost_run.cancel_requested_at is not None
        values: dict[str, Any] = {"lease_until": None, "ended_at": now, "epoch": run.c.epoch + 1}
        values["status"] = (RunStatus.CANCELLED if is_cancelled else RunStatus.FAILED).value
        if not is_cancelled:
            values["error_kind"] = FailureKind.WORKER_LOST.value
            values["error_message"] = "the worker went away without a word; resume the run to go on from its checkpoint"
        still = (run.c.id == lost_run.id, run.c.epoch == lost_run.epoch, run.c.lease_until < now)
        if tx.execute(sa.update(run).where(*still).values(**values)).rowcount == 1:
            _event(tx, lost_run.id, "worker_lost", {})
            reaped.append(lost_run.id)
    return reaped


def release_run(tx: Tx, run_id: str, epoch: int, kind: FailureKind, message: str) -> None:
    """What the worker writes when its child died without writing an end of its own; does nothing if it did."""
    owned = (run.c.id == run_id, run.c.epoch == epoch, run.c.status == RunStatus.RUNNING.value)
    is_cancelled = is_cancel_requested(tx, run_id)
    values: dict[str, Any] = {"lease_until": None, "ended_at": tx.now()}
    if is_cancelled:
        values["status"] = RunStatus.CANCELLED.value
    else:
        failed = {"status": RunStatus.FAILED.value, "error_kind": kind.value}
        values |= failed | {"error_message": clean_text(message)}
    if tx.execute(sa.update(run).where(*owned).values(**values)).rowcount == 1:
        status = "cancelled" if is_cancelled else "failed"
        _event(tx, run_id, status, {"error": kind.value, "message": message})


def events_of(tx: Tx, run_id: str, after: int = 0, kinds: tuple[str, ...] = ()) -> list[RunEvent]:
    """Events with a number above `after`, in their order; of some kinds only where they are named."""
    statement = sa.select(run_event).where(run_event.c.run_id == run_id, run_event.c.seq > after)
    if kinds:
        statement = statement.where(run_event.c.kind.in_(kinds))
    return [
        RunEvent(row.run_id, row.seq, row.at, row.kind, json.loads(row.detail))
        for row in tx.rows(statement.order_by(run_event.c.seq))
    ]


def register_checkpoint(tx: Tx, run_id: str, epoch: int, step: int, folder: str) -> None:
    """Record a checkpoint that is whole on disk. Raises Fenced."""
    owned_update(tx, run_id, epoch)
    values = {"run_id": run_id, "step": step, "folder": folder, "epoch": epoch, "created_at": tx.now()}
    tx.upsert(checkpoint, values, ["run_id", "step"])
    _event(tx, run_id, "checkpoint", {"step": step})


def checkpoints_of(tx: Tx, run_id: str) -> list[Checkpoint]:
    """A run's registered checkpoints, the newest first."""
    statement = sa.select(checkpoint).where(checkpoint.c.run_id == run_id).order_by(checkpoint.c.step.desc())
    return [Checkpoint(row.run_id, row.step, row.folder, row.created_at) for row in tx.rows(statement)]


def forget_checkpoint(tx: Tx, run_id: str, step: int) -> None:
    tx.execute(sa.delete(checkpoint).where(checkpoint.c.run_id == run_id, checkpoint.c.step == step))


def _event(tx: Tx, run_id: str, kind: str, detail: dict[str, Any]) -> None:
    last = tx.scalar(sa.select(sa.func.coalesce(sa.func.max(run_event.c.seq), 0)).where(run_event.c.run_id == run_id))
    values = {"run_id": run_id, "seq": last + 1, "at": tx.now(), "kind": kind}
    tx.execute(sa.insert(run_event).values(**values, detail=dump_json(detail)))


def _as_run(row: sa.Row[Any]) -> Run:
    fields = dict(row._mapping)
    for name in ("nonce", "worker_id"):
        fields.pop(name)
    for name in ("config", "versions", "result"):
        fields[name] = json.loads(fields[name])
    fields["kind"] = RunKind(fields["kind"])
    fields["status"] = RunStatus(fields["status"])
    fields["error_kind"] = FailureKind(fields["error_kind"]) if fields["error_kind"] else None
    return Run(**fields)
