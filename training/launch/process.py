"""Processes of runs seen from outside: a worker is started, a run is waited for, its log is read.

A worker's own code is `training.jobs.worker`, its child's `training.jobs.child`; what all three have to agree on
stands here.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from data.errors import WorkFailed
from data.files.paths import HOME_VARIABLE, STORE_VARIABLE, Home
from data.records import Run, RunStatus
from data.runs.state import get_run
from data.store import Store

PARENT_VARIABLE = "RANKLOOP_PARENT"  # whom a child dies with: its worker
HELPER_VARIABLE = "RANKLOOP_HELPER"  # set for a process that helps with the run of another one, its parent
STARTER_VARIABLE = "RANKLOOP_STARTER"  # whom a worker serves: it ends after its run when that process is gone
QUIET = {"HF_HUB_DISABLE_TELEMETRY": "1", "TOKENIZERS_PARALLELISM": "false"}  # for whatever does a run
LOG_NAME, LOG_BYTES = "log.txt", 5 * 2**20
_POLL_S = 0.5


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
    """
    environment = child_environment(home) | {STORE_VARIABLE: store_url, STARTER_VARIABLE: str(os.getpid())}
    output = subprocess.DEVNULL if quiet else None
    return subprocess.Popen(
        _worker_command(once=once),
        env=environment,
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
    )


def become_worker(home: Home, store_url: str, *, once: bool, as_json: bool) -> NoReturn:
    """Let a worker take this process over, with its standard streams, signals and exit status."""
    environment = child_environment(home) | {STORE_VARIABLE: store_url}
    command = [*_worker_command(once=once), *(["--json"] if as_json else [])]
    sys.stdout.flush()
    os.execve(command[0], command, environment)


def _worker_command(*, once: bool) -> list[str]:
    # `-P` keeps a folder `training` in the working directory from being taken for ours.
    return [sys.executable, "-P", "-m", "training.jobs.worker", *(["--once"] if once else [])]


def child_environment(home: Home) -> dict[str, str]:
    """What a child of ours finds: this home folder, and our packages before all others."""
    return os.environ | {HOME_VARIABLE: str(home.root), "PYTHONPATH": module_path()}


def module_path() -> str:
    """PYTHONPATH for a child, wherever it works: our packages, then what it was, written out."""
    given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))  # empty would mean "here"
    return os.pathsep.join([str(Path(__file__).parents[2]), *map(os.path.abspath, given)])


def tail_log(folder: Path, n_bytes: int = 20_000) -> str:
    """The end of a run's log, for the screen that shows it."""
    path = folder / LOG_NAME
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - n_bytes))
        return file.read().decode("utf-8", "replace")
