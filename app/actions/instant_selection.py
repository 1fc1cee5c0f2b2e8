"""Selection by the instant reward model: fitted to a project's current rankings, it says which waiting tasks it is
unsure of. Features come from where runs have kept them; no torch here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from app.actions.instant import FEWEST, MOST, Ranked, example, most_read, rankings_with_pairs
from data.errors import InvalidInput
from data.files.features import load_features, text_key
from data.files.paths import Home
from data.labels.roles import Actor, require
from data.labels.scores import untouched_tasks
from data.labels.tasks import get_tasks
from data.records import Role
from data.store import Store
from labeling.review.selection import Opinion, Selected, SelectionConfig, apply_opinions
from training.measures.instant import bootstrap_heads, fit_head

HEADS = 10
_TASKS_AT_ONCE = 500
Keys = list[str]


@dataclass(frozen=True)
class Ready:
    """What a selection by the instant reward model would stand on: rankings with a pair whose responses the frozen
    model has read and has not read; waiting tasks, and those of them with a response that it has not read."""

    n_rankings: int
    n_unread_rankings: int
    n_waiting: int
    n_unread: int


@dataclass(frozen=True)
class _Read:
    """Of what the frozen model has read: where the features are, the rankings, and the keys of each waiting task."""

    folder: Path | None
    rankings: list[Ranked]
    waiting: dict[str, Keys]
    ready: Ready


def look(store: Store, home: Home, project_id: str) -> Ready:
    """Count what there is to learn from and to choose between."""
    return _read(store, home, project_id).ready


def select_by_instant(store: Store, who: Actor, home: Home, project_id: str, config: SelectionConfig) -> Selected:
    """Fit the head and its bootstrap heads, and put the waiting tasks in order by them.

    Raises NotAllowed; InvalidInput with too few rankings that have features, or if no waiting task has some.
    """
    with store.read() as tx:
        require(tx, who, Role.RESEARCHER)  # before the work: the write asks again
    read = _read(store, home, project_id)
    if read.folder is None or read.ready.n_rankings < FEWEST:
        raise InvalidInput(
            f"the instant reward model needs {FEWEST} rankings whose responses the frozen model has read; there are "
            f"{read.ready.n_rankings}, and {read.ready.n_unread_rankings} that it has not read: `rankloop features` "
            "reads them"
        )
    return apply_opinions(store, who, project_id, _opinions(read.folder, read), config)


def _read(store: Store, home: Home, project_id: str) -> _Read:
    rankings = list(rankings_with_pairs(store, project_id))[-MOST:]
    waiting = _waiting(store, project_id)
    everything = [key for each in rankings for key in each.keys] + [key for keys in waiting.values() for key in keys]
    folder, read = most_read(home, everything)
    kept = [each for each in rankings if read.issuperset(each.keys)]
    known = {task_id: keys for task_id, keys in waiting.items() if read.issuperset(keys)}
    ready = Ready(len(kept), len(rankings) - len(kept), len(waiting), len(waiting) - len(known))
    return _Read(folder, kept, known, ready)


def _waiting(store: Store, project_id: str) -> dict[str, Keys]:
    """The keys of the responses of each task that waits to be ranked."""
    keys_of: dict[str, Keys] = {}
    with store.read() as tx:
        task_ids = untouched_tasks(tx, project_id)
        for start in range(0, len(task_ids), _TASKS_AT_ONCE):
            for task in get_tasks(tx, task_ids[start : start + _TASKS_AT_ONCE]):
                keys_of[task.id] = [text_key(task.messages, response.text) for response in task.responses]
    return keys_of


def _opinions(folder: Path, read: _Read) -> dict[str, Opinion]:
    """What the head makes of each waiting task, and what its bootstrap heads make of it."""
    learnt = load_features(folder, [key for each in read.rankings for key in each.keys])
    examples = [example(each, learnt) for each in read.rankings]
    head = fit_head(examples)
    heads = bootstrap_heads(examples, head, HEADS)
    opinions: dict[str, Opinion] = {}
    task_ids = list(read.waiting)
    for start in range(0, len(task_ids), _TASKS_AT_ONCE):
        lot = task_ids[start : start + _TASKS_AT_ONCE]
        known = load_features(folder, [key for task_id in lot for key in read.waiting[task_id]])
        for task_id in lot:
            features = np.array([known[key] for key in read.waiting[task_id]], dtype=float)
            voices = tuple(tuple(each.scores(features).tolist()) for each in heads)
            opinions[task_id] = Opinion(tuple(head.scores(features).tolist()), voices)
    return opinions
