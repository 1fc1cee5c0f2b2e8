"""Queue a run, cancel it, resume it: what the screens and the command line do.

A run is a row. Whoever queues it is done; a worker (`training.jobs.worker`) does it in a process of its own.
"""

from __future__ import annotations

from typing import Any

from data.errors import InvalidConfig
from data.fields import from_dict, to_dict
from data.files.readable import ReadableFolders
from data.labels.roles import Actor, acting
from data.records import Role, Run, RunKind
from data.runs.state import create_run, reap_runs, request_cancel, resume_run
from data.store import Store
from training.launch.kinds import CONFIGS
from training.launch.settle import checked_links, settled

MOST_SEEDS = 16


def queue_run(
    store: Store,
    who: Actor,
    kind: RunKind,
    config: Any,
    *,
    project_id: str | None = None,
    snapshot_id: str | None = None,
    reward_run_id: str | None = None,
    nonce: str | None = None,
    within: ReadableFolders | None = None,
) -> Run:
    """Check that what the run needs is there, fill in the model, and queue it.

    `within`: where files and models that the configuration names have to lie; None: anywhere, for who has a shell. What
    is stored is the place with its links resolved.
    Raises NotAllowed, InvalidInput if something is missing or does not fit, NotFound for an id that does not exist.
    """
    if type(config) is not CONFIGS[kind]:
        raise InvalidConfig(f"a {kind} run needs a {CONFIGS[kind].__name__}, not a {type(config).__name__}")
    with acting(store, who, Role.RESEARCHER) as tx:
        needs_project = bool(getattr(config, "unranked", False))
        project_id, reward_run = checked_links(
            tx, kind, project_id, snapshot_id, reward_run_id, needs_project=needs_project
        )
        return create_run(
            tx,
            kind,
            settled(tx, kind, config, project_id, reward_run, within),
            project_id=project_id,
            snapshot_id=snapshot_id,
            reward_run_id=reward_run.id if reward_run else None,
            nonce=nonce,
            created_by=who.id,
        )


def queue_seeds(
    store: Store, who: Actor, kind: RunKind, config: Any, n: int, *, nonce: str | None = None, **links: Any
) -> list[Run]:
    """Queue n runs that differ in their seeds alone, counted up from the configuration's. Raises as `queue_run`."""
    if not 1 <= n <= MOST_SEEDS:
        raise InvalidConfig(f"{n} seeds: 1 to {MOST_SEEDS} are allowed")
    alike = [
        from_dict(type(config), to_dict(config) | {"machine.seed": config.machine.seed + number}) for number in range(n)
    ]
    nonces = [nonce if nonce is None or not number else f"{nonce}.{number}" for number in range(n)]
    return [queue_run(store, who, kind, each, nonce=word, **links) for each, word in zip(alike, nonces, strict=True)]


def cancel(store: Store, who: Actor, run_id: str) -> Run:
    """Ask a run to stop. Raises NotAllowed, NotFound, and Conflict if it has ended."""
    with acting(store, who, Role.RESEARCHER) as tx:
        return request_cancel(tx, run_id)


def resume(store: Store, who: Actor, run_id: str) -> Run:
    """Put a failed or cancelled run back into the queue. Raises NotAllowed, NotFound, Conflict."""
    with acting(store, who, Role.RESEARCHER) as tx:
        return resume_run(tx, run_id)


def note_lost_runs(store: Store) -> None:
    """Write down which runs have lost their workers: the store's own clock says so, whoever happens to look."""
    with store.begin() as tx:
        reap_runs(tx)
