"""Runs that a person at a browser queues: as `training.launch` does it, within the folders that this server may read.

Screens and widgets take these four from here; a test sees to it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from app.context import home
from data.files import SUFFIXES
from data.ids import new_id
from data.paths import Home
from data.readable import ReadableFolders, readable_folders
from data.records import Person, Run, RunKind
from data.store import Store
from training import launch
from training.config import RewardConfig
from training.launch import Counted


def may_read() -> ReadableFolders:
    """Where files and models lie that a person at a browser may name."""
    return readable_folders(home())


def queue_run(store: Store, who: Person, kind: RunKind, config: Any, **words: Any) -> Run:
    return launch.queue_run(store, who, kind, config, within=may_read(), **words)


def queue_seeds(store: Store, who: Person, kind: RunKind, config: Any, n: int, **words: Any) -> list[Run]:
    return launch.queue_seeds(store, who, kind, config, n, within=may_read(), **words)


def newest_check(store: Store, config: Any, **words: Any) -> Run | None:
    return launch.newest_check(store, config, within=may_read(), **words)


def count_reward_data(store: Store, home: Home, config: RewardConfig, snapshot_id: str) -> Counted:
    return launch.count_reward_data(store, home, config, snapshot_id, within=may_read())


def place_of_upload(name: str, now: float) -> Path:
    """Where an upload goes: a name of our own, with the ending of its own if that is one of a kind that we read."""
    ending = Path(name).suffix.lower()
    return home().uploads / f"{new_id(now)}{ending if ending in SUFFIXES else ''}"
