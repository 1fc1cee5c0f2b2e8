"""The worker beside the server, with real processes: kept, restarted, stopped; and lost runs, noticed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from factories import make_run

from app.web import caretaker
from app.web.caretaker import Caretaker
from data.records import RunStatus
from data.runs.state import claim_run, get_run
from data.store import Store

SLEEPER = "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\ntime.sleep(60)"
STUBBORN = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('up', flush=True)\ntime.sleep(60)"


class Starter:
    """Starts processes and remembers them."""

    def __init__(self, code: str) -> None:
        self.code = code
        self.started: list[subprocess.Popen[bytes]] = []

    def __call__(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", self.code]
        self.started.append(subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE))
        return self.started[-1]


def wait_for(what: Callable[[], Any]) -> None:
    end = time.monotonic() + 20
    while not what():
        assert time.monotonic() < end
        time.sleep(0.05)


def close(starter: Starter) -> None:
    for process in starter.started:
        assert process.stdout is not None
        process.stdout.close()


def test_a_worker_that_dies_is_started_again_and_stopped_at_the_end(sqlite_store: Store) -> None:
    start = Starter(SLEEPER)
    with Caretaker(sqlite_store, start, announce=print):
        wait_for(lambda: len(start.started) == 1)
        time.sleep(0.5)  # it has set its signal handler
        os.kill(start.started[0].pid, signal.SIGKILL)
        wait_for(lambda: len(start.started) == 2)
        assert start.started[1].poll() is None
        time.sleep(0.5)
    assert start.started[1].returncode == 0, "asked to end, not killed"
    close(start)


def test_a_worker_that_dies_at_once_is_not_started_in_a_rush(sqlite_store: Store) -> None:
    start = Starter("raise SystemExit(3)")
    with Caretaker(sqlite_store, start, announce=print):
        time.sleep(3.5)
    assert len(start.started) <= 2
    close(start)


def test_a_worker_that_does_not_stop_is_waited_for_and_then_killed(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caretaker, "QUIET_STOP_S", 0.2)
    monkeypatch.setattr(caretaker, "STOP_PATIENCE_S", 0.5)
    said: list[str] = []
    start = Starter(STUBBORN)
    with Caretaker(sqlite_store, start, announce=said.append):
        wait_for(lambda: start.started)
        stdout = start.started[0].stdout
        assert stdout is not None
        assert stdout.readline() == b"up\n"
    assert start.started[0].returncode == -signal.SIGKILL
    assert len(said) == 1
    assert "Ctrl-C again" in said[0]
    close(start)


def test_lost_runs_are_noticed(sqlite_store: Store, clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caretaker, "REAP_EVERY_S", 0.05)
    run = make_run(sqlite_store)
    with sqlite_store.begin() as tx:
        assert claim_run(tx, "a worker that dies") is not None
    clock.advance(3600)

    def status() -> RunStatus:
        with sqlite_store.read() as tx:
            return get_run(tx, run.id).status

    assert status() is RunStatus.RUNNING
    with Caretaker(sqlite_store, None, announce=print):
        wait_for(lambda: status() is RunStatus.FAILED)
