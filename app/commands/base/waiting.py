"""Wait for a run: progress on the terminal, and a worker of our own where nobody else takes the run."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Callable, Iterator

from app.commands.base.common import INTERRUPTED, Context, Outcome, as_document
from app.words.progress import ProgressLine
from data.errors import WorkFailed
from data.records import Run, RunStatus
from data.runs.left_out import left_out_lines
from data.runs.state import get_run, list_runs
from training.launch.process import start_worker, wait_for

PATIENCE_S = 3.0  # so long a run may wait for a worker before we start one
PARTING_S = 20.0  # so long a worker without more to do may take to end
WAIT_HELP = (
    "wait until the run has ended; if no worker is alive to take it, one is started that ends when nothing is queued. "
    "Ctrl-C leaves the run going"
)


def wait(context: Context, run: Run) -> Outcome:
    """Wait for a run that was queued; what it ended as is the outcome."""
    helper = _Helper(context)
    try:
        with ProgressLine(f"run {run.id} ({run.kind})") as progress, _ctrl_c_noted() as raise_if_noted:

            def look(seen: Run) -> None:
                raise_if_noted()
                helper.look(seen)
                progress.update(seen.step, seen.total_steps, "steps", "" if seen.step else seen.status.value)

            ended = wait_for(context.store, run.id, look)
        helper.part()
    except WorkFailed as error:
        helper.part()
        return Outcome(as_document(_now(context, run.id)), status=1, problem=str(error))
    except KeyboardInterrupt:
        left = _now(context, run.id)
        problem = f"not waiting any longer; run {run.id} is {left.status} and goes on: {look_at(run.id)}"
        return Outcome(as_document(left), status=INTERRUPTED, problem=problem)
    with context.store.read() as tx:
        left_out = left_out_lines(tx, run.id)
    lines = [f"run {run.id} ({run.kind}) has succeeded; `rankloop runs show {run.id}`"]
    return Outcome(as_document(ended), [*lines, *(f"  {each}" for each in left_out)])


def look_at(run_id: str) -> str:
    """How to see a run, and how to stop it."""
    return f"`rankloop runs show {run_id}` shows it, `rankloop runs cancel {run_id}` stops it"


@contextlib.contextmanager
def _ctrl_c_noted() -> Iterator[Callable[[], None]]:
    """Ctrl-C is only noted; what this yields raises KeyboardInterrupt once it came.

    Raised wherever it happens to come, Python drops it inside a finalizer or a callback of the database, and the wait
    would go on.
    """
    noted = False

    def note(*_signal: object) -> None:
        nonlocal noted
        noted = True

    def raise_if_noted() -> None:
        if noted:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, note)
    try:
        yield raise_if_noted
    finally:
        signal.signal(signal.SIGINT, before)


class _Helper:
    """Starts a worker when a run is nobody's: queued for a while, or held by a worker whose lease has run out."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._nobodys_since: float | None = None
        self._worker: subprocess.Popen[bytes] | None = None

    def look(self, run: Run) -> None:
        """Raises WorkFailed if our worker ended and the run is still queued."""
        if self._worker is not None and self._worker.poll() is not None:
            status, self._worker = self._worker.returncode, None
            if _now(self._context, run.id).status is RunStatus.QUEUED:
                raise WorkFailed(
                    f"the worker for run {run.id} ended with status {status} before it took the run; "
                    "start one with `rankloop worker` and see what it says"
                )
        if run.status.is_final or self._worker is not None or self._is_somebody_at_work():
            self._nobodys_since = None
            return
        self._nobodys_since = self._nobodys_since or time.monotonic()
        if time.monotonic() - self._nobodys_since >= PATIENCE_S:
            self._context.warn(f"no worker has taken run {run.id}; starting one")
            self._worker = start_worker(self._context.home, self._context.store_url, once=True, quiet=True)

    def part(self) -> None:
        """Let our worker end, unless it has more runs to do: then it goes on without us."""
        if self._worker is None:
            return
        with self._context.store.read() as tx:
            has_more = any(list_runs(tx, status=status) for status in (RunStatus.QUEUED, RunStatus.RUNNING))
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._worker.wait(0 if has_more else PARTING_S)

    def _is_somebody_at_work(self) -> bool:
        """Whether a worker is doing this or another run; it will come to ours."""
        with self._context.store.read() as tx:
            now = tx.now()
            running = list_runs(tx, status=RunStatus.RUNNING)
        return any(run.lease_until is not None and run.lease_until > now for run in running)


def _now(context: Context, run_id: str) -> Run:
    with context.store.read() as tx:
        return get_run(tx, run_id)


def queued(context: Context, run: Run, is_waited_for: bool) -> Outcome:
    """What is said of a run that was queued; where that is asked, after waiting for it."""
    line = f"run {run.id} ({run.kind}) is queued; a worker takes it"
    if not is_waited_for:
        return Outcome(as_document(run), [f"{line}; {look_at(run.id)}"])
    context.say(line)
    return wait(context, run)
