"""A run that `accelerate launch ... -m training.jobs.child RUN_ID` starts: all of its processes are there at once.

No worker supervises it. The first process claims the run, keeps its lease and does it; the others wait until it has the
run, and help. They find each other by the environment that torchrun sets, on one machine.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from types import TracebackType

from data.errors import Conflict, Fenced, InvalidInput, StoreUnavailable
from data.records import Run, RunStatus
from data.runs.state import claim_run, events_of, get_run, heartbeat
from data.store import Store
from training.jobs.worker import Pace
from training.launch.kinds import config_of
from training.launch.process import QUIET

PATIENCE_S = 60.0  # for the first process to claim the run
log = logging.getLogger(__name__)


def n_started() -> int:
    """How many processes a launcher has started together with this one; 1: it was started alone."""
    return int(os.environ.get("WORLD_SIZE") or 1)


def is_first() -> bool:
    return int(os.environ.get("RANK") or 0) == 0


def check_number(n_asked: int) -> None:
    """Raises InvalidInput if a launcher has started other processes than the configuration asks for."""
    started, here = n_started(), int(os.environ.get("LOCAL_WORLD_SIZE") or n_started())
    if started != here:
        raise InvalidInput(f"{started} processes on several machines: those of one run are on one; --num_machines 1")
    if started not in (1, n_asked):
        raise InvalidInput(
            f"the configuration says processes = {n_asked}, but {started} were launched: launch it with "
            f"--num_processes {n_asked}, or queue it with --set processes={started} (a reward run only)"
        )


def claim_for_launch(store: Store, run_id: str) -> Run:
    """The run, claimed for this launch: by its first process, for whom the others wait.

    Raises InvalidInput for another number of processes than the run's, Conflict for a run that is not queued.
    """
    with store.read() as tx:
        run = get_run(tx, run_id)
    check_number(config_of(run).machine.processes)
    _take_over_environment()
    worker_id = f"{socket.gethostname()}-launch-{os.getppid()}-{os.environ.get('MASTER_PORT', 'alone')}"
    if not is_first():
        return _wait_for_first(store, run.id, worker_id)
    with store.begin() as tx:
        claimed = claim_run(tx, worker_id, run_id=run.id)
    if claimed is None:
        raise Conflict(f"run {run.id} is {run.status}: only a queued run can be launched")
    return claimed


def _take_over_environment() -> None:
    """Libraries keep as quiet as below a worker; the run's configuration says precision and device, not the launcher's.

    A signal from the keyboard stops the run at its next safe place, as one from the launcher does.
    """
    for name in [name for name in os.environ if name.startswith("ACCELERATE_")]:
        del os.environ[name]
    os.environ.update(QUIET)
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    signal.signal(signal.SIGINT, lambda *_signal: signal.raise_signal(signal.SIGTERM))


def _wait_for_first(store: Store, run_id: str, worker_id: str) -> Run:
    """The run, once the first process of this launch has it; where that fails, the launcher ends this one."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        with store.read() as tx:
            run, starts = get_run(tx, run_id), events_of(tx, run_id, kinds=("started",))
        if run.status is RunStatus.RUNNING and starts[-1].detail["worker"] == worker_id:
            return run
        time.sleep(0.1)
    raise Conflict(f"run {run_id}: the first process has not claimed it within {PATIENCE_S:g} s")


class Lease:
    """`with Lease(store, run):` the run's lease is renewed while the block works, as a worker does."""

    def __init__(self, store: Store, run: Run, pace: Pace | None = None) -> None:
        self._store, self._run, self._pace = store, run, pace or Pace()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._keep, daemon=True, name="lease")

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _where: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()

    def _keep(self) -> None:
        while not self._is_over.wait(self._pace.heartbeat_s):
            try:
                with self._store.begin() as tx:
                    heartbeat(tx, self._run.id, self._run.epoch, self._pace.lease_s)
            except Fenced:
                return  # the run's own next write is refused too, and stops it
            except StoreUnavailable as error:
                log.warning("no heartbeat for run %s: %s", self._run.id, error)
