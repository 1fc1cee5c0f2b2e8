"""Train: the forms made from the configurations, what they need, and that a double click starts one run."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from factories import make_person, make_project, make_snapshot
from run_makers import ended
from tiny import save_tiny_model

from data.fields import describe
from data.files.paths import Home
from data.records import Role, RunKind, RunStatus
from data.runs.state import claim_run, finish_run, list_runs
from data.store import Store
from data.store.tables import response
from training.launch.kinds import CONFIGS

KINDS = (RunKind.REWARD, RunKind.PPO, RunKind.SFT, RunKind.DPO, RunKind.RLOO)


def test_an_annotator_is_refused(sqlite_store: Store, run_lines: Any) -> None:
    app = run_lines(make_person(sqlite_store), "from app.screens.train import render\nrender()")
    assert "needs the role researcher" in app.exception[0].message


def test_without_a_snapshot_the_page_leads_to_one(sqlite_store: Store, open_app: Any) -> None:
    make_project(sqlite_store)
    app = open_app(make_person(sqlite_store, Role.RESEARCHER), "train")
    assert not app.exception
    assert app.get_by_key("train.to_snapshots").label == "Freeze a snapshot"


def test_ppo_without_a_reward_model_leads_to_one(sqlite_store: Store, home: Home, open_app: Any) -> None:
    make_snapshot(sqlite_store, home)
    app = open_app(make_person(sqlite_store, Role.RESEARCHER), "train")
    app.get_by_key("train.kind").set_value(RunKind.PPO.value).run()
    assert not _starts(app)
    app.get_by_key("train.to_reward").click().run()
    assert not app.exception
    assert app.session_state["train.kind"] == RunKind.REWARD.value
    assert len(_starts(app)) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_each_field_of_a_kind_is_in_its_form(sqlite_store: Store, home: Home, open_app: Any, kind: RunKind) -> None:
    snapshot = make_snapshot(sqlite_store, home)
    ended(sqlite_store, RunKind.REWARD, snapshot=snapshot)
    app = _page(sqlite_store, open_app, kind)
    assert not app.exception
    for info in describe(CONFIGS[kind]):
        widget = app.get_by_key(f"train.{kind}.{snapshot.project_id}.{info.flat}")
        if info.type in (int, float, bool) or info.choices:
            assert widget.value == info.default, info.name
        assert f"--set {info.name}=" in widget.help


@pytest.mark.parametrize("kind", KINDS)
def test_a_start_is_stored_with_its_settings(sqlite_store: Store, home: Home, open_app: Any, kind: RunKind) -> None:
    snapshot = make_snapshot(sqlite_store, home)
    *others, reward = (ended(sqlite_store, RunKind.REWARD, snapshot=snapshot, seed=n) for n in range(3))
    who = make_person(sqlite_store, Role.RESEARCHER)
    app = _page(sqlite_store, open_app, kind, who)
    key = f"train.{kind}.{snapshot.project_id}"
    app.get_by_key(f"{key}.learning_rate").set_value(3e-6)
    app.get_by_key(f"{key}.adapter").set_value("full")
    if kind is RunKind.PPO:
        seconds = app.get_by_key(f"{key}.second_reward_run")
        assert len(seconds.options) == 2, "not the one that PPO trains against"
        seconds.set_value([each.id for each in others])
        app.get_by_key(f"{key}.kl_target").set_value(6.0)
        app.get_by_key(f"{key}.value_clip_range").set_value(None)
        _check(app, sqlite_store, ok=True)
    _starts(app)[0].click().run()
    assert not app.exception
    with sqlite_store.read() as tx:
        run = list_runs(tx, status=RunStatus.QUEUED)[0]
    assert (run.kind, run.snapshot_id, run.created_by) == (kind, snapshot.id, who.id)
    assert run.reward_run_id == (reward.id if kind in (RunKind.PPO, RunKind.RLOO) else None)
    assert (run.config["optimiser.learning_rate"], run.config["adapter"], run.config["model"]) == (
        3e-6,
        "full",
        "test/model",
    )
    if kind is RunKind.PPO:
        assert (run.config["kl.target"], run.config["limits.value_clip_range"]) == (6.0, None)
        assert run.config["second_reward_run"] == ",".join(each.id for each in others)
    assert app.query_params["run"] == run.id, "the run's own page is open"
    assert any(run.id[-6:] in title.value for title in app.title)


@pytest.mark.parametrize("kind", [RunKind.SFT, RunKind.DPO])
def test_a_reward_model_can_be_chosen_to_evaluate_what_learns_from_rankings(
    sqlite_store: Store, home: Home, open_app: Any, kind: RunKind
) -> None:
    snapshot = make_snapshot(sqlite_store, home)
    reward = ended(sqlite_store, RunKind.REWARD, snapshot=snapshot, model="test/reward")
    app = _page(sqlite_store, open_app, kind)
    judge = app.get_by_key("train.judge")
    assert (judge.options[0], judge.value, len(judge.options)) == ("none: no held-out evaluations", "", 2)
    judge.set_value(reward.id).run()
    _starts(app)[0].click().run()
    assert not app.exception
    with sqlite_store.read() as tx:
        (run,) = list_runs(tx, status=RunStatus.QUEUED)
    assert (run.kind, run.reward_run_id, run.config["model"]) == (kind, reward.id, "test/reward")


def test_what_is_cut_is_counted_before_the_start(
    sqlite_store: Store, home: Home, open_app: Any, tmp_path: Path
) -> None:
    snapshot = make_snapshot(sqlite_store, home)  # 6 prompts of 3 responses, of 24 bytes each
    model = str(save_tiny_model(tmp_path / "tiny"))
    with sqlite_store.begin() as tx:
        tx.execute(sa.update(response).values(model=model))  # the one that was sampled
    app = _page(sqlite_store, open_app, RunKind.REWARD)
    app.default_timeout = 120
    key = f"train.reward.{snapshot.project_id}"
    app.get_by_key(f"{key}.max_length").set_value(20)
    app.get_by_key("train.count").click().run()
    assert not app.exception
    (table,) = (each.value for each in app.dataframe if "what" in each.value)
    found = dict(zip(table["what"], table["count"], strict=True))
    n_train, n_held_out = snapshot.counts["prompts_train"], snapshot.counts["prompts_eval"]
    assert (found["rankings to learn from"], found["rankings held out"]) == (n_train, n_held_out)
    assert found["responses that are cut, on their right"] == 18
    assert any(f"With {model} and at most 20 tokens, some of it is cut" in each.value for each in app.text)
    with sqlite_store.read() as tx:
        assert not list_runs(tx), "counting starts nothing"
    shutil.rmtree(model)
    app.get_by_key("train.count").click().run()
    assert "there is no such folder" in app.error[0].value
    assert not [each for each in app.dataframe if "what" in each.value], "what was counted before is gone"


def test_only_a_reward_run_is_counted(sqlite_store: Store, home: Home, open_app: Any) -> None:
    make_snapshot(sqlite_store, home)
    app = _page(sqlite_store, open_app, RunKind.SFT)
    with pytest.raises(KeyError):
        app.get_by_key("train.count")


def test_two_clicks_start_one_run(sqlite_store: Store, home: Home, open_app: Any) -> None:
    make_snapshot(sqlite_store, home)
    app = _page(sqlite_store, open_app, RunKind.REWARD)
    nonce = app.session_state["train.nonce"]
    _starts(app)[0].click().run()
    assert "train.nonce" not in app.session_state, "the next form is another one"
    app.session_state["train.nonce"] = nonce  # as if the second click had left before the first one's answer came
    app.switch_page("screens/train.py").run()
    _starts(app)[0].click().run()
    assert not app.exception
    with sqlite_store.read() as tx:
        assert len(list_runs(tx)) == 1


def test_a_run_for_each_seed_is_started(sqlite_store: Store, home: Home, open_app: Any) -> None:
    snapshot = make_snapshot(sqlite_store, home)
    app = _page(sqlite_store, open_app, RunKind.REWARD)
    app.get_by_key(f"train.reward.{snapshot.project_id}.seeds").set_value(3)
    _starts(app)[0].click().run()
    assert not app.exception
    with sqlite_store.read() as tx:
        runs = list_runs(tx)[::-1]
    assert [run.config["machine.seed"] for run in runs] == [0, 1, 2]
    assert app.query_params["run"] == runs[0].id


def test_a_refused_setting_starts_nothing(sqlite_store: Store, home: Home, open_app: Any) -> None:
    snapshot = make_snapshot(sqlite_store, home)
    app = _page(sqlite_store, open_app, RunKind.REWARD)
    for name, value in (("loss", "plackett-luce"), ("ties", "half")):
        app.get_by_key(f"train.reward.{snapshot.project_id}.{name}").set_value(value)
    _starts(app)[0].click().run()
    assert "'plackett-luce' has no pairs" in app.error[0].value.replace("\\", "")
    with sqlite_store.read() as tx:
        assert not list_runs(tx)


def test_the_address_presets_the_form(sqlite_store: Store, home: Home, open_app: Any) -> None:
    snapshot = make_snapshot(sqlite_store, home)
    old = ended(sqlite_store, RunKind.REWARD, snapshot=snapshot)
    ended(sqlite_store, RunKind.REWARD, snapshot=snapshot)
    app = open_app(make_person(sqlite_store, Role.RESEARCHER))
    app.switch_page("screens/train.py")
    app.query_params["kind"] = "ppo"
    app.query_params["reward"] = old.id
    app.run()
    assert app.get_by_key("train.kind").value == "ppo"
    assert app.get_by_key("train.reward").value == old.id


def _check(app: Any, store: Store, *, ok: bool) -> None:
    """Press Check, and do what a worker would."""
    next(button for button in app.button if button.label == "Check").click().run()
    assert not app.exception
    with store.begin() as tx:
        run = claim_run(tx, "test worker")
        assert run is not None and run.kind is RunKind.CHECK
        checks = [{"name": "Memory", "state": "ok" if ok else "failed", "words": "10 MB <b>of</b> 20 MB"}]
        parts = [{"name": "policy", "weights": 1.0, "gradients": 2.0, "optimizer": 4.0, "activations": 0, "cache": 0}]
        memory = {"parts_mb": parts, "predicted_mb": 7.0, "available_mb": 20.0}
        samples = [
            {"reader": reader, "tokens": 4, "text": f"<|{reader}|>hi<|end|>", "notes": notes}
            for reader, notes in (("policy", ""), ("reward model", "the *beginning* is cut"))
        ]
        result = {"ok": ok, "checks": checks, "memory": memory, "step": {}, "samples": samples}
        finish_run(tx, run.id, run.epoch, RunStatus.SUCCEEDED, result=result)
    app.run()


def test_ppo_starts_only_after_a_green_check_of_the_same_settings(
    sqlite_store: Store, home: Home, open_app: Any
) -> None:
    snapshot = make_snapshot(sqlite_store, home)
    ended(sqlite_store, RunKind.REWARD, snapshot=snapshot)
    app = _page(sqlite_store, open_app, RunKind.PPO)

    def started() -> int:
        with sqlite_store.read() as tx:
            return len(list_runs(tx, kinds=(RunKind.PPO,)))

    _starts(app)[0].click().run()
    assert "no green check" in app.warning[0].value and started() == 0
    _check(app, sqlite_store, ok=False)
    assert any("Something has to be mended" in each.value for each in app.caption)
    _starts(app)[0].click().run()
    assert started() == 0
    _check(app, sqlite_store, ok=True)
    assert any("All is green" in each.value for each in app.caption)
    assert any("10 MB <b>of</b>" in each.value for each in app.text)
    assert [each.value for each in app.code][-2:] == ["<|policy|>hi<|end|>", "<|reward model|>hi<|end|>"]
    said = [each.value for each in app.caption]
    assert r"4 tokens\; nothing is cut" in said and r"4 tokens\; the \*beginning\* is cut" in said
    app.get_by_key(f"train.ppo.{snapshot.project_id}.kl_coef").set_value(0.5)
    _starts(app)[0].click().run()
    assert started() == 0, "other settings than those that were checked"
    app.get_by_key(f"train.ppo.{snapshot.project_id}.kl_coef").set_value(0.05)
    _starts(app)[0].click().run()
    assert not app.exception
    assert started() == 1


def _page(store: Store, open_app: Any, kind: RunKind, who: Any = None) -> Any:
    app = open_app(who or make_person(store, Role.RESEARCHER), "train")
    return app.get_by_key("train.kind").set_value(kind.value).run()


def _starts(app: Any) -> list[Any]:
    return [button for button in app.button if button.key and button.key.startswith("train.start.")]


def test_a_preset_fills_the_form_and_what_differs_from_it_is_told(
    sqlite_store: Store, home: Home, open_app: Any
) -> None:
    snapshot = make_snapshot(sqlite_store, home)
    reward = ended(sqlite_store, RunKind.REWARD, snapshot=snapshot)
    app = _page(sqlite_store, open_app, RunKind.PPO)
    assert any("All settings are those of the defaults." in each.value for each in app.caption)
    app.get_by_key("train.preset.ppo").set_value("huang-2024").run()
    key = f"train.ppo.{snapshot.project_id}.huang-2024"
    assert app.get_by_key(f"{key}.max_new_tokens").value == 53
    assert any("Huang et al. 2024" in each.value for each in app.caption)
    assert any("All settings are those of the preset Huang 2024." in each.value for each in app.caption)
    app.get_by_key(f"{key}.kl_coef").set_value(0.1).run()
    assert any("Not as in the preset Huang 2024: kl.coef 0.1 (0.05)" in each.value for each in app.caption)
    _check(app, sqlite_store, ok=True)
    _starts(app)[0].click().run()
    assert not app.exception
    with sqlite_store.read() as tx:
        run = list_runs(tx, status=RunStatus.QUEUED)[0]
    assert (run.kind, run.reward_run_id) == (RunKind.PPO, reward.id)
    assert (run.config["kl.coef"], run.config["sampling.temperature"], run.config["adapter"]) == (0.1, 0.7, "full")
