"""What a run says while it works, and how it hears that it should stop. One transaction a step, every write fenced."""

from __future__ import annotations

import datetime
import logging
import math
import shutil
import time
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from data.dates import utc_date
from data.errors import InvalidInput, WorkFailed
from data.files.paths import Home
from data.files.snapshots import get_snapshot
from data.labels.projects import get_project
from data.records import Run, RunKind
from data.runs.metrics import report_step, rewind
from data.runs.state import (
    add_event,
    checkpoints_of,
    events_of,
    forget_checkpoint,
    is_cancel_requested,
    owned_update,
    register_checkpoint,
)
from data.store import Store

INPUT = "input"  # the kind of an event that says what an input is
log = logging.getLogger(__name__)


class NotFinite(WorkFailed):
    """A number that must be finite is not: the run stops before it can spoil a checkpoint."""


class Cancelled(WorkFailed):
    """Somebody asked the run to stop, and it has reached a safe place."""


class Recorder(Protocol):
    """What looking for a model needs of a reporter: a note of what was found, and of what was chosen, and the date."""

    models: dict[str, str]

    @property
    def template_date(self) -> datetime.date: ...

    def event(self, kind: str, **detail: Any) -> None: ...


class Reporter:
    """The only way by which training code reaches the store."""

    is_main = True  # of several processes: the one that reports, saves and decides

    def __init__(self, store: Store, home: Home, run: Run) -> None:
        self.run = run
        self.home = home
        self.store = store
        self.folder = home.run_folder(run.id)
        self.models: dict[str, str] = {}  # revision by name of every model that was looked up
        self.was_signalled = self._is_stopping = False
        self._next_look = 0.0

    @cached_property
    def template_date(self) -> datetime.date:
        """The date that templates see in this run, whenever it is started or resumed.

        That of the snapshot it learns from, so that two runs on one snapshot read the same; of a run without one the
        day on which it was created, and for features, which are kept for later runs, that of the project.
        """
        run = self.run
        with self.store.read() as tx:
            if run.snapshot_id:
                return utc_date(get_snapshot(tx, run.snapshot_id).created_at)
            if run.kind is RunKind.FEATURES and run.project_id:
                return utc_date(get_project(tx, run.project_id).created_at)
        return utc_date(run.created_at)

    def event(self, kind: str, **detail: Any) -> None:
        """Record something that happened: everything dropped, cut, skipped or chosen goes here."""
        log.info("%s %s", kind, detail)
        with self.store.begin() as tx:
            add_event(tx, self.run.id, self.run.epoch, kind, detail)

    def hold_to(self, what: str, sha256: str) -> None:
        """Record what an input of the run is, at its first start; later ones have to find the same.

        Raises InvalidInput if it has changed.
        """
        with self.store.read() as tx:
            known = {each.detail["what"]: each.detail["sha256"] for each in events_of(tx, self.run.id, kinds=(INPUT,))}
        if what not in known:
            self.event(INPUT, what=what, sha256=sha256)
        elif known[what] != sha256:
            raise InvalidInput(
                f"{what} has changed since the run's first start: its SHA-256 was {known[what]}, now it is {sha256}; "
                "put it back, or start a new run"
            )

    def step(
        self,
        step: int,
        total_steps: int | None,
        metrics: dict[str, float] | None = None,
        samples: list[dict[str, Any]] | None = None,
    ) -> None:
        """Report a step. Raises NotFinite, after recording it, if a metric is not a finite number."""
        metrics = metrics or {}
        with self.store.begin() as tx:
            report_step(
                tx, self.run.id, self.run.epoch, step, total_steps=total_steps, metrics=metrics, samples=samples or []
            )
        spoilt = sorted(name for name, value in metrics.items() if not math.isfinite(value))
        if spoilt:
            self.event("not_finite", step=step, metrics=spoilt)
            raise NotFinite(
                f"step {step}: {', '.join(spoilt)} is not a finite number; lower the learning rate, or clip harder, "
                "and resume from the last checkpoint"
            )
        log.info("step %s/%s %s", step, total_steps, {name: round(value, 4) for name, value in metrics.items()})

    def request_stop(self, *_signal: object) -> None:
        """Stop at the next safe place (also what SIGTERM does)."""
        self.was_signalled = self._is_stopping = True

    def should_stop(self) -> bool:
        """Whether to stop; looks into the store at most once a second."""
        if not self._is_stopping and time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + 1.0
            with self.store.read() as tx:
                self._is_stopping = is_cancel_requested(tx, self.run.id)
        return self._is_stopping

    def raise_if_stopping(self) -> None:
        """Raises Cancelled if the run should stop."""
        if self.should_stop():
            raise Cancelled("stopped as asked; resume the run to go on")

    def versions(self, versions: dict[str, Any]) -> None:
        """Record with what the run computes: packages, device, commit."""
        import json

        with self.store.begin() as tx:
            owned_update(tx, self.run.id, self.run.epoch, versions=json.dumps(versions, sort_keys=True))

    @property
    def checkpoint_root(self) -> Path:
        return self.folder / "checkpoints"

    def checkpoint_saved(self, step: int, folder: Path, keep: int = 2) -> None:
        """Register a checkpoint that is whole on disk, then forget all but the newest `keep`, and remove their folders
        and whatever else an attempt that was killed has left beside them."""
        with self.store.begin() as tx:
            register_checkpoint(tx, self.run.id, self.run.epoch, step, folder.name)
            known = checkpoints_of(tx, self.run.id)
            for old in known[keep:]:
                forget_checkpoint(tx, self.run.id, old.step)
        kept = {each.folder for each in known[:keep]}
        for found in self.checkpoint_root.iterdir():
            if found.name not in kept:
                shutil.rmtree(found, ignore_errors=True)

    def checkpoint_folders(self) -> list[tuple[int, Path]]:
        """(step, folder) of the registered checkpoints, the newest first."""
        with self.store.read() as tx:
            return [(each.step, self.checkpoint_root / each.folder) for each in checkpoints_of(tx, self.run.id)]

    def checkpoint_broken(self, step: int, problem: str) -> None:
        """Record that a checkpoint can't be used, and forget it: it must not count among the newest that are kept."""
        with self.store.begin() as tx:
            add_event(tx, self.run.id, self.run.epoch, "checkpoint_broken", {"step": step, "problem": problem})
            forget_checkpoint(tx, self.run.id, step)

    def resumed_from(self, step: int, restored: list[str]) -> None:
        """Forget what was reported after `step`, and record what was restored."""
        with self.store.begin() as tx:
            dropped = rewind(tx, self.run.id, self.run.epoch, step)
            detail = {"step": step, "restored": restored, "metric_points_dropped": dropped}
            add_event(tx, self.run.id, self.run.epoch, "resumed_from_checkpoint", detail)


class Silent(Reporter):
    """The reporter of a helper: it knows the run, and writes nothing."""

    is_main = False

    def event(self, kind: str, **detail: object) -> None: ...

    def hold_to(self, what: str, sha256: str) -> None: ...

    def step(self, *_step: object, **_words: object) -> None: ...

    def versions(self, versions: dict[str, object]) -> None: ...

    def resumed_from(self, step: int, restored: list[str]) -> None: ...

    def should_stop(self) -> bool:
        """Whether a signal came; the first process asks the store."""
        return self._is_stopping
