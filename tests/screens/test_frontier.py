"""The plot of score over KL, and the table of baselines on its run's page."""

from __future__ import annotations

import math
from typing import Any

import pytest
import sqlalchemy as sa
from factories import make_person, make_snapshot
from run_makers import ended, report, running

from app.widgets.policies.frontier import (
    BEST_OF,
    HELD_OUT,
    ROLLOUT,
    SECOND,
    SERIES,
    SURE,
    baselines_of,
    best_of_frame,
    frames_of,
    frontier_chart,
    frontier_frame,
    thinned,
)
from app.widgets.policies.policies_table import equal_kl_words, policies_frame
from data.files.paths import Home
from data.records import MetricPoint, Role, RunKind, RunStatus
from data.runs.metrics import metrics_of
from data.runs.state import finish_run, get_run, list_runs
from data.store import Store
from data.store.tables_runs import run_metric

RESULT: dict[str, Any] = {
    "prompts": 3, "responses": 4,
    "best_of_n": [{"n": 1, "kl": 0.0, "score": 0.1}, {"n": 4, "kl": 0.64, "score": 0.9}],
    "best_of_n_ends_at_kl": 0.64, "equal_kl": 2.25, "evaluations_differ_in": ["eval_prompts"],
    "policies": [
        {"model": "start", "kl": 0.0, "score": 0.1, "score_error": 0.01, "tokens": 5.0, "best_of_n_at_its_kl": 0.1,
         "gain_over_best_of_n": 0.0, "score_at_equal_kl": None, "why_no_score_at_equal_kl": "the start"},
        {"model": "run:<b>x", "kl": 4.0, "score": 1.5, "score_error": 0.02, "tokens": 6.0, "best_of_n_at_its_kl": None,
         "gain_over_best_of_n": None, "score_at_equal_kl": 0.75, "why_no_score_at_equal_kl": None},
        {"model": "run:y", "kl": 0.5, "score": 1.0, "score_error": 0.02, "tokens": 6.0, "best_of_n_at_its_kl": 0.8,
         "gain_over_best_of_n": 0.2, "score_at_equal_kl": None, "why_no_score_at_equal_kl": "no held-out evaluations"},
        {"model": "run:z", "kl": 2.25, "score": 1.4, "score_error": 0.02, "tokens": 6.0, "best_of_n_at_its_kl": None,
         "gain_over_best_of_n": None, "score_at_equal_kl": 1.25, "why_no_score_at_equal_kl": None},
    ],
}  # fmt: skip
BEYOND = "beyond the curve (ends at 0.64 nats)"


def test_each_series_has_the_steps_with_both_numbers(sqlite_store: Store, home: Home) -> None:
    run = running(sqlite_store, RunKind.PPO, snapshot=make_snapshot(sqlite_store, home))
    report(sqlite_store, run, 0, metrics={"held_out/kl_mean": 0.0, "held_out/score_mean": 0.0})
    report(sqlite_store, run, 1, metrics={"kl/k1_mean": 4.0, "reward/score_mean": 1.0, "held_out/kl_mean": 9.0})
    report(sqlite_store, run, 2, metrics={"kl/k1_mean": -1.0, "reward/score_mean": math.nan})
    with sqlite_store.read() as tx:
        frame = frontier_frame(metrics_of(tx, run.id))
    assert frame.to_numpy().tolist() == [[1, 2.0, 1.0, ROLLOUT], [0, 0.0, 0.0, HELD_OUT]]
    assert frontier_frame([]).empty and frames_of({"a": []}).empty


def test_the_figures_that_tell_of_gaming_are_series_too(sqlite_store: Store, home: Home) -> None:
    run = running(sqlite_store, RunKind.PPO, snapshot=make_snapshot(sqlite_store, home))
    words = {"held_out/kl_mean": 4.0, "held_out/score_mean": 1.0}
    report(sqlite_store, run, 0, metrics=words | {"held_out/sure_score_mean": 0.5})
    report(sqlite_store, run, 10, metrics=words | {"held_out/second_score_mean": 0.25})
    with sqlite_store.read() as tx:
        frame = frontier_frame(metrics_of(tx, run.id))
    assert frame.to_numpy().tolist() == [
        [0, 2.0, 1.0, HELD_OUT], [10, 2.0, 1.0, HELD_OUT], [10, 2.0, 0.25, SECOND], [0, 2.0, 0.5, SURE]
    ]  # fmt: skip


def test_several_runs_have_a_colour_each_and_one_run_a_colour_for_each_series() -> None:
    points = [
        MetricPoint(step, name, value)
        for step in (0, 1)
        for name, value in (("held_out/kl_mean", step), ("held_out/score_mean", 2.0 * step))
    ]
    both = frames_of({"PPO a": points, "PPO b": points[2:], "PPO c": []})
    assert both[["run", "iteration"]].to_numpy().tolist() == [["PPO a", 0], ["PPO a", 1], ["PPO b", 1]]
    lines, marks, curve = frontier_chart(both, best_of_frame(RESULT)).to_dict()["layer"]
    assert lines["mark"]["type"] == "line" and marks["encoding"]["color"]["field"] == "run"
    assert marks["encoding"]["shape"]["field"] == "of" and curve["mark"]["strokeDash"] == [4, 4]
    _, marks = frontier_chart(frames_of({"PPO a": points}), best_of_frame(None)).to_dict()["layer"]
    assert marks["encoding"]["color"]["field"] == "of" and "shape" not in marks["encoding"]


def test_a_long_series_is_thinned_and_keeps_its_ends() -> None:
    n = 1000
    frame = frames_of({"PPO a": [MetricPoint(step, name, 1.0) for step in range(n) for name in SERIES[ROLLOUT]]})
    kept = thinned(frame)
    assert len(frame) == n and len(kept) <= 301
    assert (kept["iteration"].iloc[0], kept["iteration"].iloc[-1]) == (0, n - 1)
    assert len(thinned(frame.iloc[:300])) == 300


def test_the_plot_is_there_while_the_run_goes_on_with_the_runs_that_can_be_compared(
    sqlite_store: Store, home: Home, open_app: Any
) -> None:
    snapshot = make_snapshot(sqlite_store, home)
    reward, else_reward = (ended(sqlite_store, RunKind.REWARD, snapshot=snapshot) for _ in range(2))
    words = {"snapshot": snapshot, "reward_run": reward, "model": "demo"}
    other = ended(sqlite_store, RunKind.PPO, **words, kl_coef=0.5)
    ended(sqlite_store, RunKind.PPO, **(words | {"reward_run": else_reward}))
    ended(sqlite_store, RunKind.PPO, **(words | {"model": "else"}))
    dpo = ended(sqlite_store, RunKind.DPO, **words, beta=0.3)
    ended(sqlite_store, RunKind.SFT, snapshot=snapshot, model="demo")
    run = running(sqlite_store, RunKind.PPO, **words)
    app = open_app(make_person(sqlite_store, Role.RESEARCHER))
    app.switch_page("screens/runs.py")
    app.query_params["run"] = run.id
    app.run()
    assert not app.exception
    assert any("Points appear here" in each.value for each in app.caption)
    over = app.get_by_key(f"runs.frontier.over.{run.id}")
    named = [f"DPO {dpo.id[-6:]}, Beta 0.3", f"PPO {other.id[-6:]}, KL coef 0.5"]
    assert over.options == named, "of another reward model or start are none, nor of none"
    for step in (1, 2):
        report(sqlite_store, run, step, metrics={"kl/k1_mean": step, "reward/score_mean": 1.0})
    app.run()
    assert any(each.value == "2 points of 1 run" for each in app.caption)
    with sqlite_store.begin() as tx:
        for each in (1, 2, 3):
            tx.execute(sa.insert(run_metric), [
                {"run_id": other.id, "name": name, "step": each, "value": 1.0} for name in SERIES[ROLLOUT]
            ])  # fmt: skip
    over.select(over.options[1]).run()
    assert not app.exception
    assert any(each.value == "5 points of 2 runs" for each in app.caption)


@pytest.mark.parametrize("kind", [RunKind.RLOO, RunKind.DPO, RunKind.SFT])
def test_every_policy_that_a_reward_model_scores_has_the_plot_and_the_table(
    sqlite_store: Store, home: Home, open_app: Any, kind: RunKind
) -> None:
    snapshot = make_snapshot(sqlite_store, home)
    reward = ended(sqlite_store, RunKind.REWARD, snapshot=snapshot)
    run = running(sqlite_store, kind, snapshot=snapshot, reward_run=reward, model="demo")
    for step, kl in ((0, 0.0), (5, 1.0)):
        report(sqlite_store, run, step, metrics={"held_out/kl_mean": kl, "held_out/score_mean": kl})
    with sqlite_store.begin() as tx:
        finish_run(tx, run.id, run.epoch, RunStatus.SUCCEEDED)
    alone = ended(sqlite_store, RunKind.SFT, snapshot=snapshot, model="demo")
    app = open_app(make_person(sqlite_store, Role.RESEARCHER))
    app.switch_page("screens/runs.py")
    app.query_params["run"] = run.id
    app.run()
    assert not app.exception
    assert any(each.value == "2 points of 1 run" for each in app.caption)
    app.get_by_key("runs.to_baselines").click().run()
    with sqlite_store.read() as tx:
        table = get_run(tx, app.query_params["run"])
    assert (table.kind, table.reward_run_id, table.config["model"]) == (RunKind.BASELINES, reward.id, "demo")
    app.query_params["run"] = alone.id
    app.run()
    assert not app.exception
    assert not any(each.value == "Score against KL" for each in app.header), "nothing scores it"


def test_the_curve_is_that_of_the_same_reward_model_and_start(sqlite_store: Store, home: Home) -> None:
    snapshot = make_snapshot(sqlite_store, home)
    rewards = [ended(sqlite_store, RunKind.REWARD, snapshot=snapshot) for _ in range(3)]
    words = {"snapshot": snapshot, "model": "demo"}
    tables = [ended(sqlite_store, RunKind.BASELINES, **words, reward_run=each, result=RESULT) for each in rewards[:2]]
    policies = [ended(sqlite_store, RunKind.PPO, **words, reward_run=each) for each in rewards]
    elsewhere = ended(sqlite_store, RunKind.PPO, snapshot=snapshot, reward_run=rewards[0], model="else")
    with sqlite_store.read() as tx:
        runs = list_runs(tx, kinds=(RunKind.BASELINES,))
    found = [baselines_of(runs, each) for each in (*policies, elsewhere)]
    assert [each and each.id for each in found] == [tables[0].id, tables[1].id, None, None]
    assert best_of_frame(RESULT).to_numpy().tolist() == [[1, 0.0, 0.1, BEST_OF], [4, 0.8, 0.9, BEST_OF]]
    assert best_of_frame(None).empty


def test_the_table_says_where_there_is_no_number_and_why() -> None:
    frame = policies_frame(RESULT)
    assert frame["policy"].tolist() == ["run:z", "run:<b>x", "run:y", "start"], "at equal KL first, then by gain"
    assert frame["score at 2.25 nats"].tolist() == ["1.250", "0.750", "no held-out evaluations", "the start"]
    assert frame["best of n at its KL"].tolist() == [BEYOND, BEYOND, "0.800", "0.100"]
    assert frame["gain"].isna().tolist() == [True, True, False, False]
    assert frame["gain"].tolist()[2:] == [0.2, 0.0]
    assert "2.25 nats" in equal_kl_words(RESULT) and "differ in Eval prompts" in equal_kl_words(RESULT)
    assert "not made alike" not in equal_kl_words(RESULT | {"evaluations_differ_in": []})
    rows = [row | {"score_at_equal_kl": None} for row in RESULT["policies"]]
    without = RESULT | {"equal_kl": None, "policies": rows}
    assert [name for name in policies_frame(without) if "nats" in name] == []
    assert "No policy's run has held-out evaluations" in equal_kl_words(without)


def test_a_policys_page_starts_the_table_and_the_tables_page_shows_it(
    sqlite_store: Store, home: Home, open_app: Any
) -> None:
    snapshot = make_snapshot(sqlite_store, home)
    reward, *seconds = (ended(sqlite_store, RunKind.REWARD, snapshot=snapshot) for _ in range(3))
    written = ",".join(each.id for each in seconds)
    policy = ended(
        sqlite_store, RunKind.PPO, snapshot=snapshot, reward_run=reward, model="demo", second_reward_run=written
    )
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
    assert table.config["second_reward_run"] == written, "the policy's second reward models judge all of them"
    done = ended_table(sqlite_store, table.id)
    app.query_params["run"] = done
    app.run()
    assert not app.exception
    shown = app.dataframe[0].value
    assert shown["policy"].tolist() == ["run:z", "run:<b>x", "run:y", "start"]
    assert shown["best of n at its KL"].tolist()[0] == BEYOND
    assert any("At 2.25 nats" in each.value for each in app.caption)


def ended_table(store: Store, run_id: str) -> str:
    """Do what a worker would with the queued table."""
    from data.records import RunStatus
    from data.runs.state import claim_run, finish_run

    with store.begin() as tx:
        run = claim_run(tx, "test worker")
        assert run is not None and run.id == run_id
        finish_run(tx, run.id, run.epoch, RunStatus.SUCCEEDED, result=RESULT)
    return run_id
