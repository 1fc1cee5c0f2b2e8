"""Queue a run, wait for it, cancel it: what the screens and the command line do. No torch here.

A run is a row. Whoever queues it is done; a worker (`training.supervisor`) does it in a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from data.best_policy import best_iteration
from data.errors import InvalidConfig, InvalidInput, WorkFailed
from data.fields import from_dict, to_dict
from data.paths import HOME_VARIABLE, STORE_VARIABLE, Home
from data.projects import get_project
from data.readable import ReadableFolders
from data.records import Role, Run, RunKind, RunStatus
from data.roles import Actor, acting
from data.runs import create_run, get_run, list_runs, reap_runs, request_cancel, resume_run
from data.snapshots import get_snapshot
from data.store import Store, Tx
from training.config import CONFIGS, RewardConfig
from training.settle import AGAINST_REWARD, FILE_FIELDS, MODEL_FIELDS, WRITERS, reward_run_of, settled
from training.starts import start_of
from training.supervisor import STARTER_VARIABLE, Worker, module_path, tail_log

__all__ = [
    "FILE_FIELDS",
    "MODEL_FIELDS",
    "STARTER_VARIABLE",
    "Worker",
    "start_of",
]  # so that the app needs nothing of `training` but this module and `config`

_NEEDS_SNAPSHOT = (RunKind.REWARD, RunKind.SFT, RunKind.DPO, *AGAINST_REWARD)
_NEEDS_PROJECT = (RunKind.SAMPLE, RunKind.COMPARE, RunKind.FEATURES)
MOST_SEEDS = 16
_POLL_S = 0.5
_COUNTING_S = 900.0  # the demo model may have to be fetched first
_one_at_a_time = threading.Lock()  # each child that counts needs half a gigabyte


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
        project_id, reward_run = _checked_links(
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
    alike = [from_dict(type(config), to_dict(config) | {"seed": config.seed + number}) for number in range(n)]
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


@dataclass(frozen=True)
class Counted:
    """What a reward run would learn from. `counts`: rankings of both sides, and what is cut or left out, by reason.

    `config`: as the run would be asked. `max_length`: what of it the model reads.
    """

    config: dict[str, Any]
    counts: dict[str, int]
    max_length: int
    base_model: dict[str, str]


def count_reward_data(
    store: Store, home: Home, config: RewardConfig, snapshot_id: str, *, within: ReadableFolders | None = None
) -> Counted:
    """Encode a snapshot as a reward run with this configuration would, in a child process, and count what is lost.

    The numbers are those that the run itself will store as its event `data`.
    Raises InvalidInput for what the run could not be trained on, WorkFailed if the child can't count.
    """
    with store.read() as tx:
        snapshot = get_snapshot(tx, snapshot_id)
        values = settled(tx, RunKind.REWARD, config, snapshot.project_id, None, within)
    asked = json.dumps({"config": values, "snapshot_id": snapshot_id, "frozen_at": snapshot.created_at})
    command = [sys.executable, "-P", "-m", "training.reward_data"]
    environment = _child_environment(home) | {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_DISABLE_TELEMETRY": "1"}
    try:
        with _one_at_a_time:
            done = subprocess.run(
                command, input=asked, env=environment, cwd=home.root, capture_output=True, text=True,
                timeout=_COUNTING_S, check=False,
            )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise WorkFailed(
            f"counting took longer than {_COUNTING_S:.0f} s and was stopped; the run counts too"
        ) from error
    except OSError as error:
        raise WorkFailed(f"the process that counts can't be started ({error.strerror}); the run counts too") from error
    if done.returncode:
        last = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "it said nothing")
        words = f"the process that counts ended with status {done.returncode}: {last.strip()[:300]}"
        raise WorkFailed(f"{words}; the run can be started all the same, and counts too")
    answer = json.loads(done.stdout.splitlines()[-1])
    if "problem" in answer:
        raise InvalidInput(answer["problem"])
    return Counted(values, answer["counts"], answer["max_length"], answer["base_model"])


def newest_check(
    store: Store, config: Any, *, snapshot_id: str, reward_run_id: str, within: ReadableFolders | None = None
) -> Run | None:
    """The newest check of a PPO run with exactly these settings, whatever it found. Raises as `queue_run` does."""
    with store.read() as tx:
        project_id, reward_run = _checked_links(tx, RunKind.CHECK, None, snapshot_id, reward_run_id)
        values = settled(tx, RunKind.CHECK, config, project_id, reward_run, within)
        for run in list_runs(tx, project_id=project_id, kinds=(RunKind.CHECK,)):
            same_links = (run.snapshot_id, run.reward_run_id) == (snapshot_id, reward_run.id if reward_run else None)
            if same_links and run.config == values:
                return run
    return None


def is_green(check: Run | None) -> bool:
    """Whether a check has ended and found nothing wrong."""
    return check is not None and check.status is RunStatus.SUCCEEDED and bool(check.result and check.result.get("ok"))


def _checked_links(
    tx: Tx,
    kind: RunKind,
    project_id: str | None,
    snapshot_id: str | None,
    reward_run_id: str | None,
    *,
    needs_project: bool = False,
) -> tuple[str | None, Run | None]:
    """The project and the reward run of a run, after a look that all it needs is there."""
    if snapshot_id is not None:
        project_id = get_snapshot(tx, snapshot_id).project_id
    elif kind in _NEEDS_SNAPSHOT:
        raise InvalidInput(f"a {kind} run needs a snapshot; make one with `rankloop snapshot create`")
    if project_id is None and (kind in _NEEDS_PROJECT or needs_project):
        raise InvalidInput(f"a {kind} run needs a project")
    if project_id is not None:
        get_project(tx, project_id)
    return project_id, reward_run_of(tx, kind, reward_run_id)


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


def wait_for(
    store: Store, run_id: str, on_change: Callable[[Run], None] | None = None, timeout_s: float | None = None
) -> Run:
    """Return the run when it has succeeded; call `on_change` after each look at it.

    Raises WorkFailed with the run's own message if it failed or was cancelled, or if `timeout_s` passes.
    """
    end = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        with store.read() as tx:
            run = get_run(tx, run_id)
        if on_change is not None:
            on_change(run)
        if run.status is RunStatus.SUCCEEDED:
            return run
        if run.status.is_final:
            raise WorkFailed(f"run {run.id} ({run.kind}) {run.status}: {run.error_message or 'as asked'}")
        if end is not None and time.monotonic() > end:
            raise WorkFailed(f"run {run.id} ({run.kind}) is still {run.status} after {timeout_s:.0f} s")
        time.sleep(_POLL_S)


def run_log(home: Home, run_id: str) -> str:
    """The end of a run's log, empty where there is none."""
    return tail_log(home.run_folder(run_id))


def start_worker(home: Home, store_url: str, *, once: bool = False, quiet: bool = False) -> subprocess.Popen[bytes]:
    """Start a worker process in a session of its own: an interrupt at the keyboard does not reach it.

    It outlives this process, however that ends, until the run that it is doing is done.

    `quiet`: it holds none of this process's outputs, so that whoever reads them is not kept waiting for the worker.
    `-P` keeps an `app` folder in the working directory from being taken for ours.
    """
    command = [sys.executable, "-P", "-m", "app", "worker", *(["--once"] if once else [])]
    environment = _child_environment(home) | {STORE_VARIABLE: store_url, STARTER_VARIABLE: str(os.getpid())}
    output = subprocess.DEVNULL if quiet else None
    return subprocess.Popen(
        command, env=environment, start_new_session=True, stdin=subprocess.DEVNULL, stdout=output, stderr=output
    )


def _child_environment(home: Home) -> dict[str, str]:
    return os.environ | {HOME_VARIABLE: str(home.root), "PYTHONPATH": module_path()}
