"""What the labels so far can tell, on the Train page: it follows the rankings, and says when they tell nothing."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from factories import make_person, make_project, make_ranking, make_task

from app.actions.instant import what_labels_tell
from data.files.features import add_features, text_key
from data.files.paths import Home
from data.records import Project, Role, RunKind
from data.runs.state import list_runs
from data.store import Store

D = 16


def ranked_project(store: Store, home: Home, n: int, *, planted: bool = True, read: int | None = None) -> Project:
    """Rankings of three responses by the first of their features, or at random; the responses' lengths say nothing."""
    rng, project, person = random.Random(0), make_project(store), make_person(store)
    generator = np.random.default_rng(0)
    keys, rows = [], []
    for number in range(n):
        texts = [f"{number} {i} " + "x" * rng.randint(1, 40) for i in range(3)]
        task = make_task(store, project, *texts, prompt=f"Prompt {number}")
        features = generator.normal(size=(3, D))
        values = features[:, 0] if planted else generator.normal(size=3)
        make_ranking(store, task, person, [1 + int((values > each).sum()) for each in values])
        keys += [text_key(task.messages, response.text) for response in task.responses]
        rows.append(features)
    last = 3 * (n if read is None else read)
    if last:
        add_features(
            home.root / "features" / "m", {"model": "demo"}, keys[:last], np.concatenate(rows)[:last], time.time()
        )
    return project


def test_a_planted_preference_is_told_and_is_more_than_length(sqlite_store: Store, home: Home) -> None:
    told = what_labels_tell(sqlite_store, home, ranked_project(sqlite_store, home, 80).id)
    assert (told.n_rankings, told.n_without, told.model) == (80, 0, "demo")
    assert told.accuracy is not None and told.accuracy["value"] > 0.8
    assert told.length is not None and told.length["value"] < 0.65
    assert told.gain is not None and told.gain["low"] > 0
    assert told.fit_s < 1


def test_rankings_at_random_tell_nothing(sqlite_store: Store, home: Home) -> None:
    told = what_labels_tell(sqlite_store, home, ranked_project(sqlite_store, home, 80, planted=False).id)
    assert told.accuracy is not None
    assert told.accuracy["low"] < 0.5 < told.accuracy["high"]  # of 95 %, with fixed seeds
    assert told.gain is not None and not told.gain["low"] > 0


def test_a_new_ranking_is_seen(sqlite_store: Store, home: Home) -> None:
    project = ranked_project(sqlite_store, home, 20)
    person = make_person(sqlite_store)
    before = what_labels_tell(sqlite_store, home, project.id)
    from data.labels.rankings import current_rankings
    from data.labels.tasks import get_task

    with sqlite_store.read() as tx:
        ranking, _ = next(iter(current_rankings(tx, project.id)))
        task = get_task(tx, ranking.task_id)
    make_ranking(sqlite_store, task, person, [3, 2, 1])
    after = what_labels_tell(sqlite_store, home, project.id)
    assert (before.n_rankings, after.n_rankings) == (20, 21)
    assert before.accuracy != after.accuracy


@pytest.mark.parametrize(("n", "words"), [(3, "3 rankings with a pair so far"), (30, "Pair accuracy on prompts")])
def test_the_panel_says_what_it_can(n: int, words: str, sqlite_store: Store, home: Home, open_app: Any) -> None:
    ranked_project(sqlite_store, home, n)
    app = open_app(make_person(sqlite_store, Role.RESEARCHER), "train")
    assert not app.exception
    assert any(words in each.value for each in app.caption)
    assert ("Instant reward model" in [each.label for each in app.metric]) == (n == 30)


def test_responses_that_nothing_has_read_can_be_read(sqlite_store: Store, home: Home, open_app: Any) -> None:
    project = ranked_project(sqlite_store, home, 30, read=0)
    app = open_app(make_person(sqlite_store, Role.RESEARCHER), "train")
    button = next(each for each in app.button if each.label == "Read responses")
    button.click().run()
    assert not app.exception
    with sqlite_store.read() as tx:
        (run,) = list_runs(tx, project_id=project.id)
    assert run.kind is RunKind.FEATURES and run.config["model"]


def test_the_web_process_fits_without_torch(tmp_path: Path) -> None:
    import subprocess
    import sys

    lines = "import sys, app.actions.instant; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", lines], check=False).returncode == 0
