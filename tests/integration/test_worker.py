"""The worker around a child process. The child's command is a stand-in; processes, signals and the store are real."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import factories as make
import psutil
import pytest

import training.jobs.worker
from data.errors import StoreUnavailable
from data.files.paths import HOME_VARIABLE, STORE_VARIABLE, Home
from data.records import FailureKind, Run, RunStatus
from data.runs.state import claim_run, events_of, get_run, reap_runs, request_cancel, resume_run
from data.store import Store, open_store
from training.jobs.worker import MOST_OF_A_LINE, Pace, Worker, log_lines
from training.launch.process import PARENT_VARIABLE, tail_log

ROOT = Path(__file__).resolve().parents[2]
QUICK = Pace(poll_s=0.05, heartbeat_s=0.1, lease_s=3.0, cancel_grace_s=0.5)
PREFACE = """
import os, signal, sys, time
from data.store import open_store
from data.records import RunStatus
from data.runs.state import finish_run
run_id, epoch = sys.argv[1], int(sys.argv[3])
def finish(status):
    store = open_store(os.environ["RANKLOOP_STORE"], migrate=False)
    with store.begin() as tx:
        finish_run(tx, run_id, epoch, status)
    store.close()
"""
UNTIL_TOLD = """
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
print("ready", flush=True)
while not told:
    time.sleep(0.02)
finish(RunStatus.CANCELLED)
"""
Child = Callable[[str], None]


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Child:
    """Say what the child process does in place of the real one."""
    script, start = tmp_path / "child.py", subprocess.Popen

    def started(words: list[str], **facts: Any) -> subprocess.Popen[bytes]:
        assert words[1:4] == ["-P", "-m", "training.jobs.child"]
        return start([sys.executable, str(script), *words[4:]], **facts)

    def does(code: str) -> None:
        script.write_text(PREFACE + textwrap.dedent(code))
        monkeypatch.setattr(training.jobs.worker.subprocess, "Popen", started)

    return does


@pytest.fixture
def at_work(store: Store, home: Home) -> Iterator[Callable[[], Worker]]:
    """Start a worker in a thread; it is stopped at the end of the test."""
    started: list[tuple[Worker, threading.Thread]] = []

    def start() -> Worker:
        worker = Worker(store, home, QUICK)
        thread = threading.Thread(target=worker.run)
        thread.start()
        started.append((worker, thread))
        return worker

    yield start
    for worker, thread in started:
        worker.stop()
        thread.join(timeout=30)
        assert not thread.is_alive()


def look(store: Store, run: Run) -> Run:
    with store.read() as tx:
        return get_run(tx, run.id)


def wait_until(is_true: Callable[[], object], timeout_s: float = 20.0) -> None:
    end = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def log_of(home: Home, run: Run) -> str:
    return tail_log(home.run_folder(run.id))


def test_a_worker_does_the_queue_and_ends(store: Store, home: Home, child: Child) -> None:
    child("print('hello from', run_id, epoch); finish(RunStatus.SUCCEEDED)")
    runs = [make.make_run(store) for _ in range(2)]
    assert Worker(store, home, QUICK).run(once=True) == 2
    for run in runs:
        assert look(store, run).status is RunStatus.SUCCEEDED
        assert log_of(home, run) == f"hello from {run.id} 1\n"
        with store.read() as tx:
            assert [event.kind for event in events_of(tx, run.id)] == ["queued", "started", "succeeded"]


def test_the_child_is_told_where_things_are(store: Store, home: Home, child: Child) -> None:
    names = [HOME_VARIABLE, STORE_VARIABLE, PARENT_VARIABLE]
    child(
        f"print([os.environ.get(name) for name in {names}], os.getsid(0) == os.getpid()); finish(RunStatus.SUCCEEDED)"
    )
    run = make.make_run(store)
    Worker(store, home, QUICK).run(once=True)
    assert log_of(home, run) == f"{[str(home.root), store.url, str(os.getpid())]} True\n"


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        ("print('words'); sys.exit(7)", FailureKind.ERROR, "status 7 and no word; last line of its log: words"),
        ("sys.exit(0)", FailureKind.ERROR, "ended with status 0 and no word"),
        ("os.kill(os.getpid(), signal.SIGKILL)", FailureKind.ERROR, "killed from outside (signal 9)"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", FailureKind.ERROR, "ended with status -11"),
        ("print('\\ud800'.encode('utf-8', 'surrogatepass'), flush=True); os.write(1, b'\\x00\\xff\\n'); sys.exit(1)",
         FailureKind.ERROR, "last line of its log: \ufffd"),
    ],
)  # fmt: skip
def test_a_child_that_dies_without_a_word_is_recorded(
    sqlite_store: Store, home: Home, child: Child, code: str, kind: FailureKind, words: str
) -> None:
    child(code)
    run = make.make_run(sqlite_store)
    Worker(sqlite_store, home, QUICK).run(once=True)
    found = look(sqlite_store, run)
    assert (found.status, found.error_kind) == (RunStatus.FAILED, kind)
    assert words in str(found.error_message)


def test_a_long_run_keeps_its_lease_by_the_worker_s_beats(store: Store, home: Home, child: Child) -> None:
    child(f"time.sleep({QUICK.lease_s} * 1.5); finish(RunStatus.SUCCEEDED)")
    run = make.make_run(store)
    worker = threading.Thread(target=Worker(store, home, QUICK).run, kwargs={"once": True})
    worker.start()
    while worker.is_alive():
        with store.begin() as tx:
            assert reap_runs(tx) == []
        time.sleep(0.1)
    assert look(store, run).status is RunStatus.SUCCEEDED


def test_a_cancel_reaches_the_child(store: Store, home: Home, child: Child, at_work: Callable[[], Worker]) -> None:
    child(UNTIL_TOLD)
    run = make.make_run(store)
    at_work()
    wait_until(lambda: "ready" in log_of(home, run))
    with store.begin() as tx:
        request_cancel(tx, run.id)
    wait_until(lambda: look(store, run).status is RunStatus.CANCELLED)


def test_a_child_that_does_not_stop_is_killed_with_all_that_it_started(
    store: Store, home: Home, child: Child, at_work: Callable[[], Worker]
) -> None:
    child(
        """
        import subprocess
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        print("ready", grandchild.pid, flush=True)
        time.sleep(60)
        """
    )
    run = make.make_run(store)
    at_work()
    wait_until(lambda: "ready" in log_of(home, run))
    grandchild = int(log_of(home, run).split()[-1])
    with store.begin() as tx:
        request_cancel(tx, run.id)
    wait_until(lambda: look(store, run).status is RunStatus.CANCELLED)
    wait_until(lambda: not psutil.pid_exists(grandchild) or psutil.Process(grandchild).status() == psutil.STATUS_ZOMBIE)


def test_a_worker_that_is_told_to_end_stops_its_run_so_that_it_can_be_resumed(
    store: Store, home: Home, child: Child, at_work: Callable[[], Worker]
) -> None:
    child(UNTIL_TOLD)
    run = make.make_run(store)
    worker = at_work()
    wait_until(lambda: "ready" in log_of(home, run))
    worker.stop()
    wait_until(lambda: look(store, run).status is RunStatus.CANCELLED)
    with store.begin() as tx:
        assert resume_run(tx, run.id).status is RunStatus.QUEUED


def test_a_child_that_was_killed_by_its_worker_is_not_said_to_have_run_out_of_memory(
    sqlite_store: Store, home: Home, child: Child
) -> None:
    child("signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)")
    run = make.make_run(sqlite_store)
    worker = Worker(sqlite_store, home, QUICK)
    thread = threading.Thread(target=worker.run)
    thread.start()
    wait_until(lambda: "ready" in log_of(home, run))
    worker.stop()
    thread.join(timeout=30)
    found = look(sqlite_store, run)
    assert (found.status, found.error_kind) == (RunStatus.FAILED, FailureKind.ERROR)
    assert "did not stop" in str(found.error_message)


def test_a_worker_whose_run_was_given_to_another_kills_its_child_and_writes_nothing(
    store: Store, home: Home, child: Child, at_work: Callable[[], Worker]
) -> None:
    child("print('ready', os.getpid(), flush=True); time.sleep(60)")
    run = make.make_run(store)
    at_work()
    wait_until(lambda: "ready" in log_of(home, run))
    pid = int(log_of(home, run).split()[-1])
    with store.begin() as tx:  # as if the worker had slept: its lease runs out, the run is resumed and claimed
        from data.runs.state import owned_update

        owned_update(tx, run.id, 1, lease_until=0.0)
        reap_runs(tx)
        resume_run(tx, run.id)
        taken = claim_run(tx, "another")
    assert taken is not None
    wait_until(lambda: not psutil.pid_exists(pid))
    time.sleep(0.3)
    found = look(store, run)
    assert (found.status, found.epoch) == (RunStatus.RUNNING, taken.epoch)


def test_a_store_that_is_away_at_the_end_of_a_run_does_not_end_the_worker(
    sqlite_store: Store, home: Home, child: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    child("sys.exit(5)")
    runs = [make.make_run(sqlite_store) for _ in range(2)]
    tries = []
    inner = training.jobs.worker.release_run

    def away_at_first(*words: Any) -> None:
        tries.append(1)
        if len(tries) == 1:
            raise StoreUnavailable("the server went away")
        inner(*words)

    monkeypatch.setattr(training.jobs.worker, "release_run", away_at_first)
    monkeypatch.setattr(training.jobs.worker, "STORE_RETRY_S", 0.05)
    assert Worker(sqlite_store, home, QUICK).run(once=True) == 2
    assert [look(sqlite_store, run).status for run in runs] == [RunStatus.FAILED] * 2


def test_a_child_that_can_not_be_started_fails_its_run_and_not_the_worker(
    sqlite_store: Store, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(*_words: object, **_facts: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(training.jobs.worker.subprocess, "Popen", no_memory)
    run = make.make_run(sqlite_store)
    assert Worker(sqlite_store, home, QUICK).run(once=True) == 1
    assert look(sqlite_store, run).status is RunStatus.FAILED
    assert "can't be started (Cannot allocate memory)" in str(look(sqlite_store, run).error_message)


def test_a_worker_that_is_killed_leaves_no_orphan_and_its_run_is_found_lost(
    sqlite_store: Store, home: Home, tmp_path: Path
) -> None:
    """With the real child: it is only just starting when its worker dies, and must not go on alone."""
    run = make.make_run(sqlite_store)
    code = f"""
from data.files.paths import Home
from data.store import open_store
from pathlib import Path
from training.jobs.worker import Pace, Worker
store = open_store({sqlite_store.url!r})
Worker(store, Home(Path({str(home.root)!r})), Pace(poll_s=0.05, heartbeat_s=0.1, lease_s=1.0)).run()
"""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    worker = subprocess.Popen([sys.executable, "-c", code], env=environment)
    try:
        wait_until(lambda: psutil.Process(worker.pid).children())
        [child_process] = psutil.Process(worker.pid).children()
    finally:
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    wait_until(lambda: not child_process.is_running() or child_process.status() == psutil.STATUS_ZOMBIE)

    def is_reaped() -> bool:
        with sqlite_store.begin() as tx:
            reap_runs(tx)
            return get_run(tx, run.id).status.is_final

    wait_until(is_reaped)
    found = look(sqlite_store, run)
    assert found.error_kind in (FailureKind.WORKER_LOST, FailureKind.BAD_INPUT, FailureKind.ERROR)


def test_the_log_of_a_child_that_talks_a_lot_does_not_grow_without_end(
    sqlite_store: Store, home: Home, child: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training.jobs.worker, "LOG_BYTES", 10_000)
    child(
        """
        for number in range(5000):
            print(number, "x" * 20)
        print("y" * 100_000)
        print("the end")
        finish(RunStatus.SUCCEEDED)
        """
    )
    run = make.make_run(sqlite_store)
    Worker(sqlite_store, home, QUICK).run(once=True)
    sizes = {path.name: path.stat().st_size for path in home.run_folder(run.id).iterdir()}
    assert set(sizes) == {"log.txt", "log.old.txt"}
    assert all(size < 10_000 + 5_000 for size in sizes.values())
    assert log_of(home, run).endswith("the end\n")


def test_a_worker_waits_for_a_store_that_is_away(
    store: Store, home: Home, monkeypatch: pytest.MonkeyPatch, child: Child
) -> None:
    child("finish(RunStatus.SUCCEEDED)")
    monkeypatch.setattr(training.jobs.worker, "STORE_RETRY_S", 0.05)
    run = make.make_run(store)
    tries = []
    inner = training.jobs.worker.reap_runs

    def away_at_first(tx: Any) -> Any:
        tries.append(1)
        if len(tries) < 3:
            raise StoreUnavailable("the server is away")
        return inner(tx)

    monkeypatch.setattr(training.jobs.worker, "reap_runs", away_at_first)
    assert Worker(store, home, QUICK).run(once=True) == 1
    assert look(store, run).status is RunStatus.SUCCEEDED
    open_store(store.url, migrate=False).close()


@pytest.mark.parametrize(("before", "after", "kind"), [(3, 4, FailureKind.OUT_OF_MEMORY), (3, 3, FailureKind.ERROR)])
def test_out_of_memory_is_said_where_the_system_says_that_it_killed(
    sqlite_store: Store, home: Home, child: Child, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    before: int, after: int, kind: FailureKind,
) -> None:  # fmt: skip
    counters = tmp_path / "memory.events"
    counters.write_text(f"low 0\noom 9\noom_kill {before}\n")
    monkeypatch.setattr("training.jobs.worker.OOM_COUNTERS", (tmp_path / "not there", counters))
    child(
        f"open({str(counters)!r}, 'w').write('low 0\\noom 9\\noom_kill {after}\\n'); "
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    run = make.make_run(sqlite_store)
    Worker(sqlite_store, home, QUICK).run(once=True)
    assert look(sqlite_store, run).error_kind is kind


def test_output_without_line_ends_is_never_held_whole() -> None:
    """300 MB of it took 624 MB in the worker; now it takes what a line may have."""
    piece, n = b"x" * 2**20, 200

    class Endless(io.RawIOBase):
        left = n

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            if not self.left:
                return 0
            size = min(len(buffer), len(piece))
            buffer[:size] = piece[:size]
            self.left -= 1
            return size

    tracemalloc.start()
    lines = list(log_lines(io.BufferedReader(Endless(), 2**20)))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [len(line) for line in lines] == [MOST_OF_A_LINE]
    assert most < 16 * 2**20
    assert list(log_lines(io.BytesIO(b"a\n" + b"b" * 9000 + b"end\nlast"))) == [
        b"a\n", b"b" * (MOST_OF_A_LINE - 4) + b"end\n", b"last",
    ]  # fmt: skip
