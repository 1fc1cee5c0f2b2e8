"""Runs that a person at a browser queues: as `training.launch` does it, within the folders that this server may read.

Screens and widgets take these four from here; a test sees to it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from app.actions.context import home
from data.files.paths import Home
from data.files.readable import ReadableFolders, readable_folders
from data.files.rows import SUFFIXES
from data.records import Person, Run, RunKind
from data.store import Store
from data.store.ids import new_id
from training.launch import count, find, queue
from training.launch.config import RewardConfig
from training.launch.count import Counted


def may_read() -> ReadableFolders:
    """Where files and models lie that a person at a browser may name."""
    return readable_folders(home())


def queue_run(store: Store, who: Person, kind: RunKind, config: Any, **words: Any) -> Run:
    return queue.queue_run(store, who, kind, config, within=may_read(), **words)


def queue_seeds(store: Store, who: Person, kind: RunKind, config: Any, n: int, **words: Any) -> list[Run]:
    return queue.queue_seeds(store, who, kind, config, n, within=may_read(), **words)


def newest_check(store: Store, config: Any, **words: Any) -> Run | None:
    return find.newest_check(store, config, within=may_read(), **words)


def count_reward_data(store: Store, home: Home, config: RewardConfig, snapshot_id: str) -> Counted:
    return count.count_reward_data(store, home, config, snapshot_id, within=may_read())


def place_of_upload(name: str, now: float) -> Path:
    """Where an upload goes: a name of our own, with the ending of its own if that is one of a kind that we read."""
    ending = Path(name).suffix.lower()
    return home().uploads / f"{new_id(now)}{ending if ending in SUFFIXES else ''}"
