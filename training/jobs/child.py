"""The child process of a run: `python -m training.jobs.child RUN_ID --epoch N`. It writes its own end.

Without `--epoch` nobody has claimed the run for it, as under `accelerate launch`: it does that itself.
The store and the home folder come from the environment, as `training.jobs.worker` sets it. Few places may catch every
exception, this is one of them: whatever happens is written into the run.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import importlib
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

from data.errors import Fenced, ProjectError, WorkFailed
from data.files.paths import STORE_VARIABLE, Home, open_home
from data.packages import check_packages
from data.records import FailureKind, RunStatus
from data.runs.state import finish_run, get_run
from data.store import Store, open_store
from training.jobs.accelerate import Lease, claim_for_launch, is_first
from training.jobs.inputs import check_snapshot
from training.jobs.reporter import Cancelled, NotFinite, Reporter, Silent
from training.launch.kinds import KINDS, config_of
from training.launch.process import HELPER_VARIABLE, PARENT_VARIABLE

Job = Callable[[Any, Reporter], dict[str, Any]]
REFUSED_STATUS, FENCED_STATUS = 2, 3
log = logging.getLogger(__name__)


def main(words: list[str] | None = None) -> int:
    """Do one run. Returns 0 if it succeeded, 1 if not, 2 if it can't be launched, 3 if somebody else owns it now."""
    parser = argparse.ArgumentParser(prog="python -m training.jobs.child")
    parser.add_argument("run_id")
    parser.add_argument("--epoch", type=int, help="of the worker that has claimed the run; without: claim it here")
    arguments = parser.parse_args(words)
    check_packages()
    _die_with_parent()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s", stream=sys.stdout)
    home = open_home()
    store = open_store(os.environ.get(STORE_VARIABLE) or home.store_url)
    try:
        if os.environ.get(HELPER_VARIABLE):
            return help_with(store, home, arguments.run_id, arguments.epoch)
        if arguments.epoch is None:
            return launch_run(store, home, arguments.run_id)
        return do_run(store, home, arguments.run_id, arguments.epoch)
    finally:
        store.close()


def launch_run(store: Store, home: Home, run_id: str) -> int:
    """Claim a queued run and do it, in all processes that were launched together. Returns 2 if it can't be claimed."""
    try:
        run = claim_for_launch(store, run_id)
    except ProjectError as error:
        if is_first():  # one word, not one from each process
            log.error("%s", error)
        return REFUSED_STATUS
    if not is_first():
        return help_with(store, home, run.id, run.epoch)
    with Lease(store, run):
        return do_run(store, home, run.id, run.epoch)


def do_run(store: Store, home: Home, run_id: str, epoch: int) -> int:
    """Do the run under the given epoch and write its end."""
    with store.read() as tx:
        run = get_run(tx, run_id)
    if run.epoch != epoch or run.status is not RunStatus.RUNNING:
        return FENCED_STATUS
    reporter = Reporter(store, home, run)
    reporter.folder.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, reporter.request_stop)
    status, kind, message, result = RunStatus.FAILED, FailureKind.ERROR, "", None
    try:
        check_snapshot(reporter)
        job: Job = importlib.import_module(KINDS[run.kind].job).run
        result = job(config_of(run), reporter)
        status = RunStatus.SUCCEEDED
    except Cancelled:
        status = RunStatus.CANCELLED
    except Fenced as error:
        log.warning("%s", error)
        return FENCED_STATUS
    except Exception as error:
        traceback.print_exc()
        kind, message = classify(error)
    is_failed = status is RunStatus.FAILED
    try:
        with store.begin() as tx:
            finish_run(
                tx,
                run.id,
                epoch,
                status,
                result=result,
                error_kind=kind if is_failed else None,
                error_message=message if is_failed else None,
            )
    except Fenced as error:
        log.warning("%s", error)
        return FENCED_STATUS
    return 0 if status is RunStatus.SUCCEEDED else 1


def help_with(store: Store, home: Home, run_id: str, epoch: int) -> int:
    """Do a part of a run that the process which started this one owns and reports on."""
    with store.read() as tx:
        run = get_run(tx, run_id)
    if run.epoch != epoch:
        return FENCED_STATUS
    reporter = Silent(store, home, run)
    signal.signal(signal.SIGTERM, reporter.request_stop)
    job: Job = importlib.import_module(KINDS[run.kind].job).run
    try:
        job(config_of(run), reporter)
    except Cancelled:
        return 0
    except ProjectError as error:
        log.warning("a helper of run %s: %s", run.id, error)
        return 1
    return 0


def classify(error: Exception) -> tuple[FailureKind, str]:
    """The kind of a failure and one line for a person: what, and what to do."""
    if isinstance(error, NotFinite):
        return FailureKind.NOT_FINITE, str(error)
    if isinstance(error, WorkFailed):
        return FailureKind.ERROR, str(error)
    if isinstance(error, ProjectError):
        return FailureKind.BAD_INPUT, str(error)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        where = f" at {error.filename}" if error.filename else ""
        return FailureKind.DISK_FULL, f"the disk is full{where}; older checkpoints are intact: make room, then resume"
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return FailureKind.OUT_OF_MEMORY, "out of memory; use a smaller micro-batch or model, then resume"
    text = " ".join(str(error).split())
    return FailureKind.ERROR, f"{type(error).__name__}: {text[:500]}"


def _die_with_parent() -> None:
    """Ask the kernel to kill this process when the worker that started it ends (Linux only)."""
    parent = os.environ.get(PARENT_VARIABLE)
    if parent is None or not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != int(parent):  # it ended before we asked
        sys.exit(FENCED_STATUS)


if __name__ == "__main__":
    sys.exit(main())
