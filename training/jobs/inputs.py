"""What a run learns from, held still: prompts as its snapshot froze them, files as the run first saw them.

A file that somebody named is copied into the run's folder at the first start; that copy is read whenever the run goes
on, and its hash stands in the run's event `input`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from data.errors import InvalidInput
from data.files.paths import KEPT_FILES
from data.files.snapshots import check_files, file_hash, get_snapshot
from data.records import RunKind
from data.runs.frozen_prompts import FrozenPrompt, ensure_frozen, frozen_prompts
from training.jobs.reporter import Reporter


def check_snapshot(reporter: Reporter) -> None:
    """Look, before a run starts, whether the files of its snapshot are what was frozen. Raises InvalidInput, NotFound.

    Where an older release froze no prompts, they are frozen now, for this run and all later ones.
    """
    snapshot_id = reporter.run.snapshot_id
    if snapshot_id is None:
        return
    with reporter.store.read() as tx:
        snapshot = get_snapshot(tx, snapshot_id)
    check_files(reporter.home, snapshot)
    if not reporter.is_main:
        return
    snapshot, is_frozen_now = ensure_frozen(reporter.store, reporter.home, snapshot_id)
    if is_frozen_now:
        n = sum(1 for _ in snapshot_prompts(reporter))
        why = "the snapshot is of an older release, which froze none; from now on they are the same for all runs on it"
        reporter.event("prompts_frozen", prompts=n, sha256=snapshot.prompts_hash, reason=why)


def snapshot_prompts(reporter: Reporter) -> Iterator[FrozenPrompt]:
    """The prompts of the run's snapshot, of both sides, as they were frozen."""
    return frozen_prompts(reporter.store, reporter.home, reporter.run.snapshot_id or "")


def kept_file(field: str, written: str, reporter: Reporter) -> Path:
    """The file that `field` of a configuration names, as the run first saw it. A check keeps no copy.

    Raises InvalidInput if the file is not on this machine, or if the copy is not what it was.
    """
    named = Path(written)
    kept = reporter.folder / f"{KEPT_FILES[field]}{named.suffix.lower()}"
    if not kept.is_file():
        if not named.is_file():
            raise InvalidInput(f"{field}: {named}: there is no such file on this machine")
        if reporter.run.kind is RunKind.CHECK:
            return named
        staged = kept.with_name(f".{kept.name}")
        shutil.copyfile(named, staged)
        staged.replace(kept)
    reporter.hold_to(field, file_hash(kept))
    return kept
