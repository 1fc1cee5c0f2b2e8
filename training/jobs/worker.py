"""A worker: claims runs and does each in a child process of its own. No torch here, so that it stays small and alive.

`python -m training.jobs.worker` is one; `rankloop worker` and `serve` start it so. The store and the home folder come
from the environment.

The worker's heartbeat says that the worker lives; what the child reports says that the work goes on. A child dies with
its worker (on Linux), so that no orphan keeps the GPU; its lease then runs out, and whoever looks next fails the run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from data.errors import Fenced, ProjectError, StoreUnavailable, WorkFailed
from data.files.paths import HOME_VARIABLE, STORE_VARIABLE, Home, open_home
from data.packages import check_packages
from data.records import FailureKind, Run
from data.runs.state import LEASE_S, claim_run, heartbeat, reap_runs, release_run
from data.store import Store, open_store
from training.launch.process import LOG_BYTES, LOG_NAME, PARENT_VARIABLE, QUIET, STARTER_VARIABLE, module_path, tail_log

STORE_RETRY_S = 5.0
MOST_OF_A_LINE = 4096
# Where Linux counts processes that it has killed for want of memory: of our own container, and of the machine.
OOM_COUNTERS = (Path("/sys/fs/cgroup/memory.events"), Path("/proc/vmstat"))
log = logging.getLogger("training.jobs.worker")  # also where this file is the main one


@dataclass(frozen=True)
class Pace:
    """How often a worker looks, in seconds."""

    poll_s: float = 0.5
    heartbeat_s: float = 5.0
    lease_s: float = LEASE_S
    cancel_grace_s: float = 60.0


class Worker:
    """Claims and supervises runs until it is told to stop."""

    def __init__(self, store: Store, home: Home, pace: Pace | None = None, *, starter: int | None = None) -> None:
        """`starter`: the process that started this one for its own use; None: nobody's, such as on a GPU machine."""
        self._store, self._home, self._pace, self._starter = store, home, pace or Pace(), starter
        self._id = f"{socket.gethostname()}-{uuid.uuid4().hex[:12]}"  # new with every process: it can't be mistaken
        self._stop = threading.Event()

    def stop(self, *_signal: object) -> None:
        """Ask the worker to end; a run that it is doing is stopped at its next safe place and can be resumed."""
        self._stop.set()

    def run(self, *, once: bool = False) -> int:
        """Do queued runs; with `once`, return when none is left. Returns how many were done."""
        done = 0
        while not self._stop.is_set() and not self._is_left_alone():
            try:
                with self._store.begin() as tx:
                    reap_runs(tx)
                    claimed = claim_run(tx, self._id, lease_s=self._pace.lease_s)
            except StoreUnavailable as error:
                log.warning("%s; trying again", error)
                self._stop.wait(STORE_RETRY_S)
                continue
            if claimed is not None:
                self._do(claimed)
                done += 1
            elif once:
                break
            else:
                self._stop.wait(self._pace.poll_s)
        return done

    def _is_left_alone(self) -> bool:
        """Whether the process that started this one is gone: a new one brings a worker of its own."""
        return self._starter is not None and os.getppid() != self._starter

    def _do(self, run: Run) -> None:
        folder = self._home.run_folder(run.id)
        folder.mkdir(parents=True, exist_ok=True)
        log.info("run %s (%s) starts", run.id, run.kind)
        n_killed = oom_kills()
        try:
            child = self._start(run)
        except OSError as error:
            self._release(run, FailureKind.ERROR, f"its process can't be started ({error.strerror}); resume it later")
            return
        assert child.stdout is not None
        copier = threading.Thread(target=_copy_log, args=(child.stdout, folder / LOG_NAME), daemon=True)
        copier.start()
        was_killed = self._watch(child, run)
        copier.join(timeout=5)
        if was_killed:
            late = f"the process did not stop within {self._pace.cancel_grace_s:g} s of being asked, and was killed"
            self._release(run, FailureKind.ERROR, f"{late}; resume the run to go on from its checkpoint")
        else:
            is_out_of_memory = oom_kills() > n_killed
            self._release(run, *_why(child.returncode, folder / LOG_NAME, is_out_of_memory=is_out_of_memory))
        log.info("run %s ended", run.id)

    def _start(self, run: Run) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "training.jobs.child", run.id, "--epoch", str(run.epoch)],
            env=self._environment(),
            cwd=self._home.root,  # a model's name on the hub must not find a folder of that name elsewhere
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def _release(self, run: Run, kind: FailureKind, message: str) -> None:
        """Write the end of a run whose child wrote none. A store that is away is waited for."""
        while True:
            try:
                with self._store.begin() as tx:
                    release_run(tx, run.id, run.epoch, kind, message)
                return
            except StoreUnavailable as error:
                log.warning("%s; trying again", error)
                if self._stop.wait(STORE_RETRY_S):
                    return  # its lease runs out, and whoever looks next fails the run

    def _watch(self, child: subprocess.Popen[bytes], run: Run) -> bool:
        """Wait for the child, with heartbeats; return whether it had to be killed because it did not stop."""
        next_beat, asked_at, was_killed = 0.0, None, False
        while child.poll() is None:
            now = time.monotonic()
            wants_stop = self._stop.is_set()
            if now >= next_beat:
                next_beat = now + self._pace.heartbeat_s
                try:
                    with self._store.begin() as tx:
                        wants_stop |= heartbeat(tx, run.id, run.epoch, self._pace.lease_s)
                except Fenced:
                    _kill(child, signal.SIGKILL if child.poll() is None else 0)
                except StoreUnavailable as error:
                    log.warning("no heartbeat for run %s: %s", run.id, error)
            if wants_stop and asked_at is None:
                asked_at = now
                _kill(child, signal.SIGTERM)
            if asked_at is not None and now > asked_at + self._pace.cancel_grace_s:
                _kill(child, signal.SIGKILL)
                was_killed = True
            time.sleep(min(self._pace.poll_s, 0.2))
        return was_killed

    def _environment(self) -> dict[str, str]:
        changes = {
            HOME_VARIABLE: str(self._home.root),
            STORE_VARIABLE: self._store.whole_url,
            PARENT_VARIABLE: str(os.getpid()),
            "PYTHONPATH": module_path(),
            "PYTHONUNBUFFERED": "1",
            "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE"),
        }
        return os.environ | QUIET | changes


def _copy_log(source: IO[bytes], path: Path) -> None:
    """Copy the child's output to its log; when the log is full, it moves aside once and starts anew."""
    with source:
        for line in log_lines(source):
            if path.exists() and path.stat().st_size > LOG_BYTES:
                path.replace(path.with_suffix(".old.txt"))
            with path.open("ab") as file:
                file.write(line)


def log_lines(source: IO[bytes]) -> Iterator[bytes]:
    """The lines of some output, of a long one its end; what has no line end at all is never held whole either."""
    kept = b""
    while piece := source.readline(MOST_OF_A_LINE):
        kept = (kept + piece)[-MOST_OF_A_LINE:]
        if piece.endswith(b"\n"):
            yield kept
            kept = b""
    if kept:
        yield kept


def _kill(child: subprocess.Popen[bytes], number: int) -> None:
    """Signal the child's whole process group; it may have started processes of its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, number)


def oom_kills() -> int:
    """How many processes the system has killed for want of memory since it started, as far as it tells."""
    for file in OOM_COUNTERS:
        with contextlib.suppress(OSError, ValueError):
            counts = dict(line.split() for line in file.read_text().splitlines())
            if "oom_kill" in counts:
                return int(counts["oom_kill"])
    return 0


def _why(code: int, log_file: Path, *, is_out_of_memory: bool) -> tuple[FailureKind, str]:
    """What to say of a child that wrote no end of its own."""
    if code == -signal.SIGKILL and is_out_of_memory:
        advice = "use a smaller batch or model, then resume"
        return FailureKind.OUT_OF_MEMORY, f"the system killed the process for want of memory (signal 9): {advice}"
    if code == -signal.SIGKILL:
        advice = "nothing says that memory ran out; resume it to go on from its checkpoint"
        return FailureKind.ERROR, f"the process was killed from outside (signal 9): {advice}"
    last = [line for line in tail_log(log_file.parent, 2000).splitlines() if line.strip()]
    words = f"the process ended with status {code} and no word"
    return FailureKind.ERROR, f"{words}; last line of its log: {last[-1][:300]}" if last else words


def main(words: list[str] | None = None) -> int:
    """Work until stopped, or with `--once` until nothing is queued; one line on standard error tells an error."""
    parser = argparse.ArgumentParser(prog="python -m training.jobs.worker")
    parser.add_argument("--once", action="store_true", help="end when nothing is queued")
    parser.add_argument("--json", action="store_true", help="print how many runs were done, as a JSON document")
    arguments = parser.parse_args(words)
    logging.basicConfig(format="%(asctime)s %(message)s", stream=sys.stderr)
    logging.getLogger("training").setLevel(logging.INFO)
    is_watched = sys.stdin is not None and sys.stdin.isatty()  # not when `serve` or `--wait` started it
    try:
        check_packages()
        home = open_home()
        store = open_store(os.environ.get(STORE_VARIABLE) or home.store_url)
    except ProjectError as error:
        print(f"rankloop: {error}", file=sys.stderr)
        return 1 if isinstance(error, WorkFailed) else 2
    starter = os.environ.get(STARTER_VARIABLE)
    worker = Worker(store, home, starter=int(starter) if starter else None)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, worker.stop)
    if is_watched:
        print(f"working for {home.root}; Ctrl-C ends it", file=sys.stderr)
    try:
        done = worker.run(once=arguments.once)
    finally:
        store.close()
    if is_watched:
        print(f"{done} {'run' if done == 1 else 'runs'} done", file=sys.stderr)
    if arguments.json:
        print(json.dumps({"runs_done": done}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
