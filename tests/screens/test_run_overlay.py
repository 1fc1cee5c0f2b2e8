"""Further runs over a run's curves: what can be chosen, what is sent, and the table of what differs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from factories import make_person, make_project, make_snapshot
from hostile import HOSTILE, markdown_of
from run_makers import ended, queued, report, running

from app.widgets.runs.overlay import differences
from app.words.values import run_name
from data.files.paths import Home
from data.records import Role, Run, RunKind, RunStatus
from data.runs.metrics import report_step
from data.runs.state import finish_run
from data.store import Store
from training.launch.kinds import TRAINED


def with_curves(store: Store, run: Run, values: list[float], name: str = "reward/score_mean") -> Run:
    """The run, ended after one step for each value."""
    for step, value in enumerate(values, 1):
        report(store, run, step, metrics={name: value})
    with store.begin() as tx:
        finish_run(tx, run.id, run.epoch, RunStatus.SUCCEEDED)
    return run


@pytest.mark.parametrize("kind", TRAINED)
def test_only_runs_of_its_kind_and_project_can_lie_over_a_run(
    kind: RunKind, sqlite_store: Store, home: Home, open_app: Any
) -> None:
    snapshot = make_snapshot(sqlite_store, home)
    elsewhere = ended(sqlite_store, kind, make_project(sqlite_store))
    unlike = ended(sqlite_store, RunKind.FEATURES, snapshot=snapshot)
    other = ended(sqlite_store, kind, snapshot=snapshot)
    run = with_curves(sqlite_store, running(sqlite_store, kind, snapshot=snapshot), [1.0])
    app = _open(sqlite_store, open_app, run)
    (label,) = _choice(app, run).options
    assert label.startswith(f"{run_name(other)}, queued 20")
    assert elsewhere.id[-6:] not in label and unlike.id[-6:] not in label


def test_a_run_that_does_not_train_has_no_choice(sqlite_store: Store, open_app: Any) -> None:
    project = make_project(sqlite_store)
    runs = [ended(sqlite_store, RunKind.SAMPLE, project) for _ in range(2)]
    assert not _open(sqlite_store, open_app, runs[0]).multiselect


def test_chosen_runs_are_sent_once_and_of_the_active_one_only_what_is_new(sqlite_store: Store, open_app: Any) -> None:
    project = make_project(sqlite_store)
    done = with_curves(sqlite_store, running(sqlite_store, RunKind.PPO, project), [0.5, 0.6, 0.7], "kl/coef")
    run = running(sqlite_store, RunKind.PPO, project)
    report(sqlite_store, run, 1, metrics={"reward/score_mean": 0.1})
    app = _open(sqlite_store, open_app, run)
    assert [each["id"] for each in _sent(app, run)["runs"]] == [run.id]
    _drawn(app, run)
    report(sqlite_store, run, 2, metrics={"reward/score_mean": 0.2})
    _choice(app, run).set_value([done.id]).run()
    assert not app.exception
    own, other = _sent(app, run)["runs"]
    assert (own["after"], own["points"]) == (0, {"reward/score_mean": [[1, 2], [0.1, 0.2]]})
    assert (other["name"], other["after"]) == (run_name(done), -1)
    assert other["points"] == {"kl/coef": [[1, 2, 3], [0.5, 0.6, 0.7]]}, "what it lacks is simply not there"
    assert {chart["title"] for chart in _sent(app, run)["charts"]} == {"Score", "KL coefficient"}
    _drawn(app, run)
    report(sqlite_store, run, 3, metrics={"reward/score_mean": 0.3})
    app.run()
    own, other = _sent(app, run)["runs"]
    assert own["points"] == {"reward/score_mean": [[2, 3], [0.2, 0.3]]}
    assert (other["after"], other["points"]) == (3, {}), "a run that has ended is sent once"
    _drawn(app, run)
    _choice(app, run).set_value([]).run()
    assert [each["id"] for each in _sent(app, run)["runs"]] == [run.id]
    _drawn(app, run)
    _choice(app, run).set_value([done.id]).run()
    assert _sent(app, run)["runs"][1]["after"] == -1, "what was taken away is sent again"


def test_a_run_that_ends_between_two_looks_loses_nothing(sqlite_store: Store, open_app: Any) -> None:
    run = running(sqlite_store, RunKind.PPO, make_project(sqlite_store))
    report(sqlite_store, run, 1, metrics={"kl/coef": 1.0})
    app = _open(sqlite_store, open_app, run)
    with sqlite_store.begin() as tx:
        report_step(tx, run.id, run.epoch, 2, total_steps=2, metrics={"kl/coef": 2.0}, samples=[])
        finish_run(tx, run.id, run.epoch, RunStatus.SUCCEEDED)
    for points in ({"kl/coef": [[1, 2], [1.0, 2.0]]}, {}):
        _drawn(app, run)
        app.run()
        assert _sent(app, run)["runs"][0]["points"] == points


def test_the_choice_is_in_the_address(sqlite_store: Store, open_app: Any) -> None:
    project = make_project(sqlite_store)
    others = [with_curves(sqlite_store, running(sqlite_store, RunKind.DPO, project), [1.0]) for _ in range(2)]
    run = with_curves(sqlite_store, running(sqlite_store, RunKind.DPO, project), [1.0])
    app = _open(sqlite_store, open_app, run)
    _choice(app, run).set_value([others[1].id, others[0].id]).run()
    assert app.query_params["over"] == f"{others[1].id},{others[0].id}"
    app = _open(sqlite_store, open_app, run, over=f"{others[0].id},{HOSTILE[0]},{run.id}")
    assert _choice(app, run).value == [others[0].id]
    assert any("2 runs that the address names can't be laid" in each.value for each in app.caption)
    assert HOSTILE[0] not in markdown_of(app)
    app.get_by_key("runs.back").click().run()
    assert "over" not in app.query_params


def test_the_table_has_what_differs_and_nothing_else(sqlite_store: Store, home: Home, open_app: Any) -> None:
    snapshot = make_snapshot(sqlite_store, home)
    rewards = [ended(sqlite_store, RunKind.REWARD, snapshot=snapshot) for _ in range(2)]
    one = ended(sqlite_store, RunKind.PPO, snapshot=snapshot, reward_run=rewards[0], kl_coef=0.1)
    two = ended(sqlite_store, RunKind.PPO, snapshot=snapshot, reward_run=rewards[1], kl_coef=0.2, model=HOSTILE[0])
    app = _open(sqlite_store, open_app, one, over=two.id)
    table = app.dataframe[0].value.set_index("field")
    assert table.to_dict("index") == {
        "reward model": {one.id: rewards[0].id[-6:], two.id: rewards[1].id[-6:]},
        "model": {one.id: one.config["model"], two.id: HOSTILE[0]},
        "kl.coef": {one.id: "0.1", two.id: "0.2"},
    }
    assert HOSTILE[0] not in markdown_of(app)


def test_equal_settings_are_said_to_be_equal(sqlite_store: Store, open_app: Any) -> None:
    project = make_project(sqlite_store)
    one, two = (ended(sqlite_store, RunKind.SFT, project) for _ in range(2))
    app = _open(sqlite_store, open_app, one, over=two.id)
    assert not app.dataframe
    assert any("have the same configuration" in each.value for each in app.caption)


def test_a_field_that_an_older_run_did_not_have_differs(sqlite_store: Store) -> None:
    project = make_project(sqlite_store)
    one, two = (queued(sqlite_store, RunKind.PPO, project) for _ in range(2))
    del one.config["advantages.gamma"]
    one.config["gone"] = None
    assert differences([one, two]) == [
        {"field": "gone", one.id: "None", two.id: "not set"},
        {"field": "advantages.gamma", one.id: "not set", two.id: str(two.config["advantages.gamma"])},
    ]
    assert differences([one]) == []


def _open(store: Store, open_app: Any, run: Run, over: str = "") -> Any:
    app = open_app(make_person(store, Role.RESEARCHER), "runs")
    app.query_params["run"] = run.id
    if over:
        app.query_params["over"] = over
    app.run()
    assert not app.exception
    return app


def _choice(app: Any, run: Run) -> Any:
    return app.get_by_key(f"runs.over.{run.id}")


def _drawn(app: Any, run: Run) -> None:
    """As in a browser: the component is there."""
    app.session_state[f"runs.curves.{run.id}"] = {"have": None}


def _sent(app: Any, run: Run) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(app.get_by_key(f"runs.curves.{run.id}").proto.json)
    return data
