"""What the forms offer: trained models, best policies, reward models, and the newest check with the same settings."""

from __future__ import annotations

from typing import Any

from data.files.readable import ReadableFolders
from data.records import Run, RunKind, RunStatus
from data.runs.best_policy import best_iteration
from data.runs.state import list_runs
from data.store import Store, Tx
from training.launch.kinds import WRITERS
from training.launch.settle import checked_links, settled


def newest_check(
    store: Store, config: Any, *, snapshot_id: str, reward_run_id: str, within: ReadableFolders | None = None
) -> Run | None:
    """The newest check of a PPO run with exactly these settings, whatever it found. Raises as `queue_run` does."""
    with store.read() as tx:
        project_id, reward_run = checked_links(tx, RunKind.CHECK, None, snapshot_id, reward_run_id)
        values = settled(tx, RunKind.CHECK, config, project_id, reward_run, within)
        for run in list_runs(tx, project_id=project_id, kinds=(RunKind.CHECK,)):
            same_links = (run.snapshot_id, run.reward_run_id) == (snapshot_id, reward_run.id if reward_run else None)
            if same_links and run.config == values:
                return run
    return None


def is_green(check: Run | None) -> bool:
    """Whether a check has ended and found nothing wrong."""
    return check is not None and check.status is RunStatus.SUCCEEDED and bool(check.result and check.result.get("ok"))


def trained_models(tx: Tx, project_id: str | None = None) -> list[Run]:
    """Runs that ended with a model which can write text: PPO, RLOO, SFT and DPO, the newest first."""
    return list_runs(tx, project_id=project_id, kinds=WRITERS, status=RunStatus.SUCCEEDED)


def best_policies(tx: Tx, project_id: str) -> list[tuple[Run, int]]:
    """Ended PPO runs that kept a best policy, the newest first, each with its iteration. A run that an alarm has
    stopped is one too."""
    runs = [run for run in list_runs(tx, project_id=project_id, kinds=(RunKind.PPO,)) if run.status.is_final]
    found = [(run, best_iteration(tx, run.id)) for run in runs]
    return [(run, iteration) for run, iteration in found if iteration]


def reward_models(tx: Tx, project_id: str | None = None) -> list[Run]:
    """Reward runs that ended well, the newest first."""
    return list_runs(tx, project_id=project_id, kinds=(RunKind.REWARD,), status=RunStatus.SUCCEEDED)
