"""The prompts of a snapshot's project, frozen with it: what policies sample from, at whatever date they are trained.

prompts.parquet, beside the snapshot's other files, has every prompt that the project had, in its order, with its side.
The hash of the file stands in the store. A snapshot of an older release gets the file at the first start of a run that
asks for it; from then on it is the same for all runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from data.errors import NotFound
from data.files.paths import Home
from data.files.snapshots import (
    GROUPS,
    MESSAGE_LIST,
    PROMPTS,
    check_files,
    file_hash,
    get_snapshot,
    read_parquet,
    set_prompts_hash,
    write_parquet,
)
from data.labels.prompts import iter_prompts
from data.records import Messages, Prompt, Snapshot, Split
from data.store.disk import sync_file, sync_folder
from data.store.engine import Store, Tx

PROMPT_COLUMNS = pa.schema(
    [
        ("prompt_id", pa.string()),
        ("fingerprint", pa.string()),
        ("split", pa.string()),
        ("is_ranked", pa.bool_()),
        ("messages", MESSAGE_LIST),
        ("facts", pa.string()),
    ]
)
SideOf = Callable[[Prompt], Split]  # of a prompt that gives no group


@dataclass(frozen=True)
class FrozenPrompt:
    """A prompt as it was. `is_ranked`: the snapshot has a group of it."""

    prompt_id: str
    fingerprint: str
    split: Split
    is_ranked: bool
    messages: Messages
    facts: str


def write_prompts(tx: Tx, project_id: str, folder: Path, path: Path, *, side_of: SideOf) -> None:
    """Write the project's prompts to `path`: with the sides of the groups in `folder`, else with those of `side_of`."""
    sides = group_sides(folder)
    rows = (_as_row(each, sides, side_of) for each in iter_prompts(tx, project_id))
    write_parquet(path, PROMPT_COLUMNS, rows)


def group_sides(folder: Path) -> dict[str, Split]:
    """Prompt id -> side, of the prompts whose rankings a snapshot holds. Raises NotFound where its files are not."""
    path, sides = folder / GROUPS, dict[str, Split]()
    if not path.is_file():
        raise NotFound(f"the file {path} is missing: the snapshot's folder was moved or not copied to this machine")
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(columns=["prompt_id", "split"]):
            sides |= {row["prompt_id"]: Split(row["split"]) for row in batch.to_pylist()}
    return sides


def frozen_prompts(store: Store, home: Home, snapshot_id: str) -> Iterator[FrozenPrompt]:
    """The prompts of a snapshot in their order, frozen now where an older release froze none.

    Raises InvalidInput if the file has changed since, NotFound where it is not on this machine.
    """
    snapshot, _ = ensure_frozen(store, home, snapshot_id)
    check_files(home, snapshot)
    for row in read_parquet(home.snapshot_folder(snapshot_id) / PROMPTS):
        yield FrozenPrompt(**(row | {"split": Split(row["split"]), "messages": tuple(row["messages"])}))


def ensure_frozen(store: Store, home: Home, snapshot_id: str) -> tuple[Snapshot, bool]:
    """The snapshot with its prompts frozen, and whether it was this call that froze them.

    A prompt that has no side yet counts as one to train on, as it did in the release that made such a snapshot.
    """
    with store.read() as tx:
        snapshot = get_snapshot(tx, snapshot_id)
        if snapshot.prompts_hash is not None:
            return snapshot, False
        folder = home.snapshot_folder(snapshot_id)
        staged = folder / f".{PROMPTS}.{tx.new_id()}"
        write_prompts(tx, snapshot.project_id, folder, staged, side_of=_named_or_train)
    try:
        sync_file(staged)
        with store.begin() as tx:  # of two that freeze at once one wins, and the file is its own
            is_first = set_prompts_hash(tx, snapshot_id, file_hash(staged))
            if is_first:
                staged.replace(folder / PROMPTS)
                sync_folder(folder)
            return get_snapshot(tx, snapshot_id), is_first
    finally:
        staged.unlink(missing_ok=True)


def _named_or_train(prompt: Prompt) -> Split:
    return prompt.split or Split.TRAIN


def _as_row(prompt: Prompt, sides: dict[str, Split], side_of: SideOf) -> dict[str, Any]:
    return {
        "prompt_id": prompt.id,
        "fingerprint": prompt.fingerprint,
        "split": (sides.get(prompt.id) or side_of(prompt)).value,
        "is_ranked": prompt.id in sides,
        "messages": list(prompt.messages),
        "facts": prompt.facts,
    }
