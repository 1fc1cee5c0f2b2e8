"""A project for the instant reward model: rankings by a planted feature, tasks that wait, features where runs keep
them."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from factories import make_person, make_project, make_ranking, make_task
from numpy.typing import NDArray

from data.files.features import add_features, text_key
from data.files.paths import Home
from data.records import Project, Task
from data.store import Store

D = 4


def read(home: Home, tasks: Sequence[Task], features: Sequence[NDArray[np.float64]], model: str = "m") -> None:
    """Keep features of the tasks' responses, as a run does."""
    keys = [text_key(task.messages, response.text) for task in tasks for response in task.responses]
    add_features(home.root / "features" / model, {"model": model}, keys, np.concatenate(features), time.time())


def planted_project(store: Store, home: Home, n_rankings: int = 60, name: str | None = None) -> Project:
    """Of two responses the one with more of feature 0 is the better one in every ranking."""
    project, person, rng = make_project(store, name), make_person(store), np.random.default_rng(0)
    tasks, features = [], []
    for number in range(n_rankings):
        task = make_task(store, project, "one", "two", prompt=f"ranked {number}")
        rows = rng.normal(size=(2, D))
        make_ranking(store, task, person, [1, 2] if rows[0, 0] > rows[1, 0] else [2, 1])
        tasks.append(task)
        features.append(rows)
    if tasks:
        read(home, tasks, features)
    return project


def waiting(
    store: Store, home: Home, project: Project, distances: Sequence[float], *, model: str | None = "m"
) -> list[Task]:
    """Tasks that wait: of two responses the first has so much more of feature 0, which decides the rankings; where that
    is below 1, it has 4 more of feature 1, of which they say nothing."""
    start = len(distances)
    tasks = [
        make_task(store, project, "one", "two", prompt=f"waits {model} {start} {n}") for n in range(len(distances))
    ]
    if model is not None:
        read(home, tasks, [np.array([[each, 4 * (abs(each) < 1), 0, 0], [0] * 4]) for each in distances], model)
    return tasks
