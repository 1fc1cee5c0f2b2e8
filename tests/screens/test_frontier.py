"""The plot of score over KL, and the table of baselines on its run's page."""

from __future__ import annotations

import math
from typing import Any

from factories import make_person, make_snapshot
from run_makers import ended, report, running

from app.widgets.frontier import BEST_OF, HELD_OUT, ROLLOUT, baselines_of, best_of_frame, frontier_frame, policies_frame
from data.metrics import metrics_of
from data.paths import Home
from data.records import Role, RunKind
from data.runs import get_run, list_runs
from data.store import Store

RESULT = {
    "prompts": 3, "responses": 4,
    "best_of_n": [{"n": 1, "kl": 0.0, "score": 0.1}, {"n": 4, "kl": 0.64, "score": 0.9}],
    "policies": [
        {"model": "start", "kl": 0.0, "score": 0.1, "score_error": 0.01, "tokens": 5.0, "best_of_n_at_its_kl": 0.1,
         "gain_over_best_of_n": 0.0},
        {"model": "run:<b>x", "kl": 4.0, "score": 1.5, "score_error": 0.02, "tokens": 6.0, "best_of_n_at_its_kl": 0.9,
         "gain_over_best_of_n": 0.6},
    ],
}  # fmt: skip


def test_each_series_has_the_steps_with_both_numbers(sqlite_store: Store, home: Home) -> None:
    run = running(sqlite_store, RunKind.PPO, snapshot=make_snapshot(sqlite_store, home))
    report(sqlite_store, run, 0, metrics={"held_out/kl_mean": 0.0, "held_out/score_mean": 0.0})
    report(sqlite_store, run, 1, metrics={"kl/k1_mean": 4.0, "reward/score_mean": 1.0, "held_out/kl_mean": 9.0})
    report(sqlite_store, run, 2, metrics={"kl/k1_mean": -1.0, "reward/score_mean": math.nan})
    with sqlite_store.read() as tx:
        frame = frontier_frame(metrics_of(tx, run.id))
    assert frame.to_numpy().tolist() == [[1, 2.0, 1.0, ROLLOUT], [0, 0.0, 0.0, HELD_OUT]]


def test_the_curve_is_that_of_the_same_reward_model(sqlite_store: Store, home: Home) -> None:
    snapshot = make_snapshot(sqlite_store, home)
    rewards = [ended(sqlite_store, RunKind.REWARD, snapshot=snapshot) for _ in range(2)]
    tables = [
        ended(sqlite_store, RunKind.BASELINES, snapshot=snapshot, reward_run=each, result=RESULT) for each in rewards
    ]
    with sqlite_store.read() as tx:
        runs = list_runs(tx, kinds=(RunKind.BASELINES,))
    assert baselines_of(runs, rewards[0].id) == next(run for run in runs if run.id == tables[0].id)
    assert baselines_of(runs, "other") is None
    assert best_of_frame(RESULT).to_numpy().tolist() == [[1, 0.0, 0.1, BEST_OF], [4, 0.8, 0.9, BEST_OF]]
    assert best_of_frame(None).empty
    assert policies_frame(RESULT)["policy"].tolist() == ["run:<b>x", "start"]


def test_a_policys_page_starts_the_table_and_the_tables_page_shows_it(
    sqlite_store: Store, home: Home, open_app: Any
) -> None:
    snapshot = make_snapshot(sqlite_store, home)
    reward = ended(sqlite_store, RunKind.REWARD, snapshot=snapshot)
    policy = ended(sqlite_store, RunKind.PPO, snapshot=snapshot, reward_run=reward, model="demo")
    other = ended(sqlite_store, RunKind.SFT, snapshot=snapshot, model="demo")
    app = open_app(make_person(sqlite_store, Role.RESEARCHER))
    app.switch_page("screens/runs.py")
    app.query_params["run"] = policy.id
    app.run()
    app.get_by_key("runs.to_baselines").click().run()
    assert not app.exception
    with sqlite_store.read() as tx:
        table = get_run(tx, app.query_params["run"])
    assert (table.kind, table.reward_run_id, table.snapshot_id) == (RunKind.BASELINES, reward.id, snapshot.id)
    assert set(table.config["models"].split()) == {f"run:{policy.id}", f"run:{other.id}"}
    done = ended_table(sqlite_store, table.id)
    app.query_params["run"] = done
    app.run()
    assert not app.exception
    assert app.dataframe[0].value["gain"].tolist() == [0.6, 0.0]


def ended_table(store: Store, run_id: str) -> str:
    """Do what a worker would with the queued table."""
    from data.records import RunStatus
    from data.runs import claim_run, finish_run

    with store.begin() as tx:
        run = claim_run(tx, "test worker")
        assert run is not None and run.id == run_id
        finish_run(tx, run.id, run.epoch, RunStatus.SUCCEEDED, result=RESULT)
    return run_id
