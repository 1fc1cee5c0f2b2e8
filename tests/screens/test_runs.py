"""Runs: the list, one run in each of its states, its buttons, curves, samples, events, configuration and log."""

from __future__ import annotations

import json
from typing import Any

import pytest
from factories import make_person, make_project, make_snapshot
from hostile import HOSTILE, markdown_of
from run_makers import ended, queued, report, running

from app.widgets.runs.status import ADVICE
from data.files.paths import Home
from data.records import FailureKind, Role, Run, RunKind, RunStatus
from data.runs.state import add_event, finish_run, get_run, register_checkpoint, resume_run
from data.store import Store

Status = RunStatus


def test_an_annotator_is_refused(sqlite_store: Store, run_lines: Any) -> None:
    app = run_lines(make_person(sqlite_store), "from app.screens.runs import render\nrender()")
    assert "needs the role researcher" in app.exception[0].message


def test_a_project_without_runs_leads_on(sqlite_store: Store, open_app: Any) -> None:
    make_project(sqlite_store)
    app = open_app(make_person(sqlite_store, Role.RESEARCHER), "runs")
    assert not app.exception
    app.get_by_key("runs.to_sample").click().run()
    assert not app.exception
    assert app.session_state["prompts.tab"] == "Sample responses"


def test_the_list_has_the_runs_of_the_project(sqlite_store: Store, open_app: Any) -> None:
    other, project = make_project(sqlite_store), make_project(sqlite_store)
    ended(sqlite_store, RunKind.SAMPLE, other)
    done = ended(sqlite_store, RunKind.SAMPLE, project)
    half = running(sqlite_store, RunKind.SFT, project)
    report(sqlite_store, half, 3, 12)
    app = open_app(make_person(sqlite_store, Role.RESEARCHER), "runs")
    assert not app.exception
    table = app.dataframe[0].value
    assert list(table["run"]) == [half.id[-6:], done.id[-6:]]
    assert [list(each) for each in table["status"]] == [["running"], ["succeeded"]]
    assert list(table["progress"]) == [25.0, 100.0]
    assert list(table["step"]) == ["3 of 12", "0"]


@pytest.mark.parametrize(
    ("status", "buttons"),
    [
        (Status.QUEUED, {"Cancel run"}),
        (Status.RUNNING, {"Cancel run"}),
        (Status.FAILED, {"Resume run"}),
        (Status.CANCELLED, {"Resume run"}),
        (Status.SUCCEEDED, set()),
    ],
)
def test_each_state_has_just_its_buttons(
    sqlite_store: Store, open_app: Any, status: RunStatus, buttons: set[str]
) -> None:
    project = make_project(sqlite_store)
    if status is Status.QUEUED:
        run = queued(sqlite_store, RunKind.SFT, project)
    elif status is Status.RUNNING:
        run = running(sqlite_store, RunKind.SFT, project)
    else:
        error = FailureKind.ERROR if status is Status.FAILED else None
        run = ended(sqlite_store, RunKind.SFT, project, status, error=error, message="it broke")
    app = _open(sqlite_store, open_app, run)
    assert {button.label for button in app.button} & {"Cancel run", "Resume run"} == buttons
    assert any(status.value in badge for badge in _badges(app))


def test_a_running_run_is_asked_to_stop_once(sqlite_store: Store, open_app: Any) -> None:
    run = running(sqlite_store, RunKind.SFT, make_project(sqlite_store))
    app = _open(sqlite_store, open_app, run)
    app.get_by_key(f"runs.status.cancel.{run.id}").click().run()
    assert not app.exception
    with sqlite_store.read() as tx:
        assert get_run(tx, run.id).cancel_requested_at is not None
    assert app.get_by_key(f"runs.status.cancel.{run.id}").disabled
    assert any("Cancelling at the next safe place" in text.value for text in app.text)


def test_a_failed_run_says_why_and_what_to_do_and_is_resumed(sqlite_store: Store, open_app: Any) -> None:
    run = running(sqlite_store, RunKind.REWARD, make_project(sqlite_store))
    report(sqlite_store, run, 25, 100)
    with sqlite_store.begin() as tx:
        register_checkpoint(tx, run.id, run.epoch, 20, "somewhere")
    _finish(sqlite_store, run, FailureKind.DISK_FULL, "the disk is full at /runs/*x*")
    app = _open(sqlite_store, open_app, run)
    assert ADVICE[FailureKind.DISK_FULL] in app.error[0].value
    assert "the disk is full at /runs/*x*" not in app.error[0].value, "the message must not be read as Markdown"
    assert "from step 20" in app.get_by_key(f"runs.status.resume.{run.id}").help
    app.get_by_key(f"runs.status.resume.{run.id}").click().run()
    assert not app.exception
    with sqlite_store.read() as tx:
        assert get_run(tx, run.id).status is Status.QUEUED
    assert any("queued" in badge for badge in _badges(app))


def test_a_run_that_somebody_else_resumed_is_left_alone(sqlite_store: Store, open_app: Any) -> None:
    run = ended(sqlite_store, RunKind.SFT, make_project(sqlite_store), Status.CANCELLED)
    app = _open(sqlite_store, open_app, run)
    button = app.get_by_key(f"runs.status.resume.{run.id}")
    with sqlite_store.begin() as tx:
        resume_run(tx, run.id)
    button.click().run()
    assert not app.exception
    with sqlite_store.read() as tx:
        assert get_run(tx, run.id).status is Status.QUEUED


@pytest.mark.parametrize("kind", list(FailureKind))
def test_there_is_advice_for_each_failure(kind: FailureKind) -> None:
    assert ADVICE[kind].endswith(".")


def test_a_lost_worker_is_noticed_by_whoever_looks(sqlite_store: Store, open_app: Any) -> None:
    run = running(sqlite_store, RunKind.SFT, make_project(sqlite_store))
    with sqlite_store.begin() as tx:
        tx.connection.exec_driver_sql("update run set lease_until = 1000.0, heartbeat_at = 1000.0")
    app = _open(sqlite_store, open_app, run)
    assert any("failed" in badge for badge in _badges(app))
    assert ADVICE[FailureKind.WORKER_LOST] in app.error[0].value


def test_what_was_dropped_stands_beside_the_status(sqlite_store: Store, open_app: Any) -> None:
    run = running(sqlite_store, RunKind.SAMPLE, make_project(sqlite_store))
    with sqlite_store.begin() as tx:
        for number in range(5):
            add_event(tx, run.id, run.epoch, "prompt_skipped", {"prompt_id": f"p{number}", "reason": HOSTILE[0]})
    app = _open(sqlite_store, open_app, run)
    notes = [text.value for text in app.text if text.value.startswith("Prompt skipped (5 times)")]
    assert len(notes) == 1
    assert HOSTILE[0] in notes[0]
    assert HOSTILE[0] not in markdown_of(app)


def test_curves_are_sent_once_and_then_only_what_is_new(sqlite_store: Store, open_app: Any) -> None:
    run = running(sqlite_store, RunKind.PPO, make_project(sqlite_store))
    for step in range(1, 6):
        report(sqlite_store, run, step, metrics={"reward/score_mean": step / 10, "kl/k1_sum_mean": float("nan")})
    app = _open(sqlite_store, open_app, run)
    first = _curves(app, run)
    assert first["after"] == -1
    assert first["points"]["reward/score_mean"] == [[1, 2, 3, 4, 5], [0.1, 0.2, 0.3, 0.4, 0.5]]
    assert first["points"]["kl/k1_sum_mean"][1] == [None] * 5, "what is not finite is a gap"
    report(sqlite_store, run, 6, metrics={"reward/score_mean": 0.6})
    app.session_state[f"runs.curves.{run.id}"] = {"have": None}  # as in a browser: the component is there
    app.run()
    second = _curves(app, run)
    assert second["version"] == first["version"]
    assert second["after"] == 4, "the last step that was sent comes again: its metrics may come in two lots"
    assert second["points"]["reward/score_mean"] == [[5, 6], [0.5, 0.6]]
    assert second["points"]["kl/k1_sum_mean"] == [[5], [None]]


def test_a_rewound_run_starts_its_curves_anew(sqlite_store: Store, open_app: Any) -> None:
    run = running(sqlite_store, RunKind.PPO, make_project(sqlite_store))
    for step in range(1, 6):
        report(sqlite_store, run, step, metrics={"reward/score_mean": step / 10})
    app = _open(sqlite_store, open_app, run)
    before = _curves(app, run)
    with sqlite_store.begin() as tx:
        add_event(tx, run.id, run.epoch, "resumed_from_checkpoint", {"step": 2})
    app.session_state[f"runs.curves.{run.id}"] = {"have": None}
    app.run()
    after = _curves(app, run)
    assert after["version"] != before["version"]
    assert after["after"] == -1


def test_two_runs_do_not_mix(sqlite_store: Store, open_app: Any) -> None:
    project = make_project(sqlite_store)
    runs = []
    for number in (1, 2):
        run = running(sqlite_store, RunKind.PPO, project)
        report(sqlite_store, run, 1, metrics={"kl/coef": float(number)}, samples=[{"response": f"of run {number}"}])
        _finish(sqlite_store, run, FailureKind.ERROR, f"trouble {number}")
        runs.append(run)
    app = _open(sqlite_store, open_app, runs[0])
    assert _curves(app, runs[0])["points"] == {"kl/coef": [[1], [1.0]]}
    app.query_params["run"] = runs[1].id
    app.run()
    assert not app.exception
    assert _curves(app, runs[1])["points"] == {"kl/coef": [[1], [2.0]]}
    assert "trouble 2" in app.error[0].value
    app.query_params["runs.tab"] = "Samples"
    app.run()
    assert "of run 2" in {text.value for text in app.text}
    assert "of run 1" not in {text.value for text in app.text}
    keys = [key for key in _keys(app) if runs[0].id in key]
    assert not keys, "nothing of the other run is left on the page"


def test_samples_are_shown_as_they_are(sqlite_store: Store, open_app: Any) -> None:
    run = running(sqlite_store, RunKind.PPO, make_project(sqlite_store))
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": HOSTILE[0]}]
    samples: list[dict[str, Any]] = [
        {"prompt": messages, "response": HOSTILE[1], "score": -1.0, "kl": 2.0, "n_tokens": 7, "ended": True},
        {"prompt": HOSTILE[2], "response": HOSTILE[3], "score": 2.0, "odd": {"a": 1}},
        {"response": "no prompt, no score"},
    ]
    report(sqlite_store, run, 1, samples=samples[:1])
    report(sqlite_store, run, 2, samples=samples)
    app = _open(sqlite_store, open_app, run, "Samples")
    table = app.dataframe[0].value
    assert list(table["score"])[:2] == [-1.0, 2.0]
    assert HOSTILE[1] in {text.value for text in app.text}
    app.get_by_key(f"runs.samples.{run.id}.order").set_value("best score").run()
    assert not app.exception
    assert list(app.dataframe[0].value["score"])[:2] == [2.0, -1.0]
    assert HOSTILE[3] in {text.value for text in app.text}
    assert not any(text in markdown_of(app) for text in HOSTILE)


def test_the_configuration_shows_what_differs_and_the_command(sqlite_store: Store, home: Home, open_app: Any) -> None:
    snapshot = make_snapshot(sqlite_store, home)
    reward = ended(sqlite_store, RunKind.REWARD, snapshot=snapshot)
    run = ended(sqlite_store, RunKind.PPO, snapshot=snapshot, reward_run=reward, model="a folder/x", kl_coef=0.2)
    app = _open(sqlite_store, open_app, run, "Configuration")
    assert [code.value for code in app.code] == [
        f"rankloop train ppo --snapshot {snapshot.id} --reward-run {reward.id} "
        "--set 'model=a folder/x' --set kl.coef=0.2"
    ]
    app.get_by_key(f"runs.config.only.{run.id}").set_value(True).run()
    assert list(app.dataframe[0].value["field"]) == ["model", "kl.coef"]


def test_the_log_is_shown(sqlite_store: Store, home: Home, open_app: Any) -> None:
    run = ended(sqlite_store, RunKind.SFT, make_project(sqlite_store))
    folder = home.run_folder(run.id)
    folder.mkdir(parents=True)
    (folder / "log.txt").write_text("first line\n" + HOSTILE[0])
    app = _open(sqlite_store, open_app, run, "Log")
    assert app.code[0].value == "first line\n" + HOSTILE[0]


def test_results_lead_on(sqlite_store: Store, home: Home, open_app: Any) -> None:
    snapshot = make_snapshot(sqlite_store, home)
    result = {"shift": 0.5, "held_out": {"pair_accuracy": 0.75}, "model": "test/model"}
    run = ended(sqlite_store, RunKind.REWARD, snapshot=snapshot, result=result)
    app = _open(sqlite_store, open_app, run)
    metrics = {metric.label: metric.value for metric in app.metric}
    assert metrics == {"Shift": "0.5", "Held out pair accuracy": "0.75"}
    assert not app.get("link_button"), "there is no model folder to download"
    (home.run_folder(run.id) / "model").mkdir(parents=True)
    app.run()
    assert f"/download/run/{run.id}/model" in str(app.get("link_button")[0].proto)
    app.get_by_key("runs.to_ppo").click().run()
    assert not app.exception
    assert app.get_by_key("train.kind").value == "ppo"
    assert app.get_by_key("train.reward").value == run.id


def test_an_unknown_run_is_one_clear_error(sqlite_store: Store, open_app: Any) -> None:
    make_project(sqlite_store)
    app = open_app(make_person(sqlite_store, Role.RESEARCHER), "runs")
    app.query_params["run"] = "![x](http://example.org)"
    app.run()
    assert not app.exception
    assert "no run" in app.error[0].value
    assert "![x](http" not in app.error[0].value


def _open(store: Store, open_app: Any, run: Run, tab: str = "Curves") -> Any:
    app = open_app(make_person(store, Role.RESEARCHER), "runs")
    app.query_params["run"] = run.id
    if tab != "Curves":
        app.query_params["runs.tab"] = tab
    app.run()
    assert not app.exception
    return app


def _curves(app: Any, run: Run) -> dict[str, Any]:
    """What is sent of the run itself."""
    data: dict[str, Any] = json.loads(app.get_by_key(f"runs.curves.{run.id}").proto.json)["runs"][0]
    return data


def _badges(app: Any) -> list[str]:
    return [markdown.value for markdown in app.markdown if "badge" in markdown.value]


def _keys(app: Any) -> list[str]:
    widgets = [*app.button, *app.selectbox, *app.get("button_group"), *app.toggle]
    return [widget.key for widget in widgets if widget.key]


def _finish(store: Store, run: Run, error: FailureKind, message: str) -> None:
    with store.begin() as tx:
        finish_run(tx, run.id, run.epoch, Status.FAILED, error_kind=error, error_message=message)
