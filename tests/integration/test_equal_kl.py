"""Scores of policies at one KL: between their own evaluations, never beyond them."""

from __future__ import annotations

import math
from typing import Any

import pytest
from factories import make_snapshot
from run_makers import report, running

from data.files.paths import Home
from data.records import Run, RunKind, RunStatus, Snapshot
from data.runs.state import finish_run, get_run
from data.store import Store
from training.measures.equal_kl import (
    NO_EVALUATIONS,
    NOT_THERE,
    Path,
    equal_kl,
    path_of,
    row_at,
    score_at,
    settings_that_differ,
)


def test_a_curve_between_its_points_and_nothing_beyond() -> None:
    curve = [(0.0, 0.0), (1.0, 1.0), (4.0, 3.0)]
    found = [score_at(curve, kl) for kl in (-1.0, 0.0, 0.25, 1.0, 2.25, 4.0)]
    assert found == pytest.approx([0, 0, 0.5, 1, 2, 3])
    assert [score_at(curve, kl) for kl in (4.0001, 100.0)] == [None, None]
    assert score_at(curve[1:], 0.9) is None, "nor before the first"
    assert (score_at([], 0.0), score_at([(0.0, 2.0)], 0.0), score_at([(0.0, 2.0)], 0.1)) == (None, 2.0, None)


def test_a_policy_that_goes_back_and_forth_counts_where_it_passed_last() -> None:
    there_and_back = [(0.0, 0.0), (4.0, 2.0), (1.0, 5.0), (9.0, 9.0)]
    assert score_at(there_and_back, 1.0) == 5.0
    assert score_at(there_and_back, 2.25) == pytest.approx(6.0)
    assert score_at([*there_and_back[:3], (1.0, 7.0)], 1.0) == 7.0, "the last one, if it ends there"
    assert score_at([(-0.2, 1.0), (-0.1, 2.0), (4.0, 4.0)], 0.0) == 2.0, "below 0 is chance"


def test_the_equal_kl_is_the_least_last_one() -> None:
    short, far = Path([(0.0, 0.0), (4.0, 2.0)]), Path([(0.0, 0.0), (1.0, 3.0), (9.0, 5.0)])
    late, without = Path([(6.0, 1.0), (9.0, 1.5)]), Path(why_not=NO_EVALUATIONS)
    paths = {"short": short, "far": far, "late": late, "without": without}
    kl = equal_kl(paths)
    assert kl == 4.0
    assert {name: row_at(path, kl)["score_at_equal_kl"] for name, path in paths.items()} == {
        "short": 2.0, "far": 4.0, "late": None, "without": None,
    }  # fmt: skip
    why = [row_at(path, kl)["why_no_score_at_equal_kl"] for path in paths.values()]
    assert why == [None, None, NOT_THERE, NO_EVALUATIONS]
    assert equal_kl({"without": without}) is None
    assert row_at(without, None) == {"score_at_equal_kl": None, "why_no_score_at_equal_kl": NO_EVALUATIONS}
    assert equal_kl({"a": Path([(0.0, 1.0), (-0.3, 1.0)])}) == 0.0


def evaluated(store: Store, snapshot: Snapshot, reward: Run, *figures: tuple[float, float], **changes: Any) -> Run:
    """A finished PPO run whose evaluations had these KLs and scores."""
    run = running(store, RunKind.PPO, snapshot=snapshot, reward_run=reward, **({"model": "demo"} | changes))
    for step, (kl, score) in enumerate(figures):
        report(store, run, step, metrics={"held_out/kl_mean": kl, "held_out/score_mean": score, "kl/k1_mean": 7.0})
    return finished(store, run)


def finished(store: Store, run: Run) -> Run:
    with store.begin() as tx:
        finish_run(tx, run.id, run.epoch, RunStatus.SUCCEEDED)
        return get_run(tx, run.id)


def test_evaluations_count_that_mean_the_same_as_the_tables(store: Store, home: Home) -> None:
    snapshot, other = make_snapshot(store, home), make_snapshot(store, home)
    words = {"snapshot": snapshot, "model": "demo"}
    reward, second = (finished(store, running(store, RunKind.REWARD, **words)) for _ in range(2))
    table = finished(store, running(store, RunKind.BASELINES, reward_run=reward, **words))
    fine = evaluated(store, snapshot, reward, (0.0, 0.1), (math.nan, 0.5), (2.0, math.nan), (3.0, 0.9))
    runs = {
        None: fine,
        NO_EVALUATIONS: evaluated(store, snapshot, reward),
        "evaluated by another reward model": evaluated(store, snapshot, second, (0.0, 0.1)),
        "evaluated on another snapshot": evaluated(store, other, reward, (0.0, 0.1)),
        "evaluated from another start": evaluated(store, snapshot, reward, (0.0, 0.1), model="else"),
    }
    with store.read() as tx:
        assert {why: path_of(tx, run, table).why_not for why, run in runs.items()} == {why: why for why in runs}
        assert path_of(tx, fine, table).points == [(0.0, 0.1), (3.0, 0.9)], "what is not finite is left out"
    longer = evaluated(store, snapshot, reward, max_new_tokens=99, eval_prompts=3)
    with store.read() as tx:
        assert settings_that_differ(tx, [fine, longer]) == ["evaluation.prompts", "sampling.max_new_tokens"]
        assert settings_that_differ(tx, [fine, fine]) == []
