"""What runs beside the web server: one worker that is started again when it dies, and a look for lost runs."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable

from data.errors import StoreUnavailable
from data.runs.state import reap_runs
from data.store import Store

REAP_EVERY_S = 15.0
MAX_WAIT_S = 60.0
QUIET_STOP_S = 3.0
STOP_PATIENCE_S = 75.0  # a run gets a minute to write its checkpoint
log = logging.getLogger(__name__)
Start = Callable[[], "subprocess.Popen[bytes]"]


class Caretaker:
    """Use as a context manager around the server. `start` starts a worker; None: this server has none."""

    def __init__(self, store: Store, start: Start | None, announce: Callable[[str], None]) -> None:
        self._store, self._start, self._announce = store, start, announce
        self._ended = threading.Event()
        self._worker: subprocess.Popen[bytes] | None = None
        self._threads = [threading.Thread(target=self._reap, name="reap-runs", daemon=True)]
        if start is not None:
            self._threads.append(threading.Thread(target=self._keep_worker, name="keep-worker", daemon=True))

    def __enter__(self) -> Caretaker:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        """Stop the worker as it wants to be stopped; a second Ctrl-C, or too long a wait, kills it."""
        self._ended.set()
        for thread in self._threads:
            thread.join()
        worker = self._worker
        if worker is None or worker.poll() is not None:
            return
        worker.terminate()
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.wait(QUIET_STOP_S)
            if worker.poll() is None:
                self._announce("waiting for the worker to save its run; Ctrl-C again stops it at once")
                worker.wait(STOP_PATIENCE_S)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            os.killpg(worker.pid, signal.SIGKILL)  # it leads a group of its own, see start_worker
            worker.wait()

    def _reap(self) -> None:
        while not self._ended.wait(REAP_EVERY_S):
            try:
                with self._store.begin() as tx:
                    reap_runs(tx)
            except StoreUnavailable as error:
                log.warning("could not look for lost runs: %s", error)

    def _keep_worker(self) -> None:
        wait_s = 1.0
        while not self._ended.is_set():
            assert self._start is not None
            began = time.monotonic()
            self._worker = self._start()
            while self._worker.poll() is None:
                if self._ended.wait(0.2):
                    return
            wait_s = 1.0 if time.monotonic() - began > MAX_WAIT_S else min(wait_s * 2, MAX_WAIT_S)
            log.warning("the worker ended with status %s; a new one in %.0f s", self._worker.returncode, wait_s)
            self._ended.wait(wait_s)
