"""`run:ID/best` wherever a model is named: what is kept, what is refused and why, and where it is said."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from factories import make_snapshot
from rig import Rig
from run_makers import TOLD_BY, ended, watched

import training.ppo.evaluation
from data.errors import InvalidInput
from data.fields import from_dict
from data.files.paths import Home
from data.labels.roles import OPERATOR
from data.labels.tasks import models_of_project
from data.records import RunKind, RunStatus, Snapshot
from data.runs.best_policy import best_policy, is_best, run_of
from data.runs.lineage import ancestors, descendants
from data.store import Store
from training.jobs.reporter import Silent
from training.launch.kinds import CONFIGS
from training.launch.queue import queue_run
from training.lm.models import find_model, weights_hash
from training.measures.equal_kl import SCORE

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")
WORDS = {"iterations": 4, "learning_rate": 1e-2, "critic_learning_rate": 1e-2, "eval_every": 1, "token_rows": 0}


@pytest.fixture
def snapshot(sqlite_store: Store, home: Home) -> Snapshot:
    return make_snapshot(sqlite_store, home)


@pytest.mark.parametrize(
    ("name", "run_id", "best"),
    [("run:A1", "A1", False), ("run:A1/best", "A1", True), ("demo", None, False), ("org/best", None, False),
     ("./best", None, False)],
)  # fmt: skip
def test_names_of_models(name: str, run_id: str | None, *, best: bool) -> None:
    assert (run_of(name), is_best(name)) == (run_id, best)


def test_the_best_and_the_last_by_the_same_figure(sqlite_store: Store, snapshot: Snapshot) -> None:
    run = watched(sqlite_store, snapshot, {0: 0.1, 2: 0.7, 4: 0.4})
    none = ended(sqlite_store, RunKind.PPO, snapshot=snapshot)
    with sqlite_store.read() as tx:
        found = best_policy(tx, run.id)
        assert best_policy(tx, none.id) is None
    assert found is not None
    assert (found.iteration, found.told_by, found.figure) == (2, TOLD_BY, 0.7)
    assert (found.last_iteration, found.last_figure) == (4, 0.4)


@pytest.mark.parametrize("status", [RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELLED])
@pytest.mark.parametrize(
    ("kind", "field"),
    [(RunKind.SAMPLE, "model"), (RunKind.COMPARE, "model_a"), (RunKind.COMPARE, "model_b"), (RunKind.SFT, "model"),
     (RunKind.DPO, "model"), (RunKind.REWARD, "model"), (RunKind.PPO, "model"), (RunKind.RLOO, "model"),
     (RunKind.BASELINES, "models"), (RunKind.FEATURES, "model")],
)  # fmt: skip
def test_it_is_a_model_wherever_one_is_named(
    sqlite_store: Store, snapshot: Snapshot, kind: RunKind, field: str, status: RunStatus
) -> None:
    run = watched(sqlite_store, snapshot, {0: 0.1, 2: 0.7, 4: 0.4}, status)
    reward = ended(sqlite_store, RunKind.REWARD, snapshot=snapshot)
    values = ({"model_a": "demo", "model_b": "demo"} if kind is RunKind.COMPARE else {}) | {
        field: f"run:{run.id[-6:]}/best"
    }
    links: dict[str, Any] = {"project_id": snapshot.project_id}
    if kind not in (RunKind.SAMPLE, RunKind.COMPARE, RunKind.FEATURES):
        links["snapshot_id"] = snapshot.id
    if kind in (RunKind.PPO, RunKind.RLOO, RunKind.BASELINES):
        links["reward_run_id"] = reward.id
    queued = queue_run(sqlite_store, OPERATOR, kind, from_dict(CONFIGS[kind], values), **links)
    assert queued.config[field] == f"run:{run.id}/best"


def test_a_list_of_policies_may_hold_the_last_and_the_best(sqlite_store: Store, snapshot: Snapshot) -> None:
    run = watched(sqlite_store, snapshot, {0: 0.1, 2: 0.7, 4: 0.4})
    reward = ended(sqlite_store, RunKind.REWARD, snapshot=snapshot)
    names = f"run:{run.id} run:{run.id[-6:]}/best"
    config = CONFIGS[RunKind.BASELINES](models=names)
    links = {"snapshot_id": snapshot.id, "reward_run_id": reward.id}
    queued = queue_run(sqlite_store, OPERATOR, RunKind.BASELINES, config, **links)
    assert queued.config["models"] == f"run:{run.id} run:{run.id}/best"


def test_what_kept_none_is_one_clear_error_that_says_why(sqlite_store: Store, snapshot: Snapshot) -> None:
    start = watched(sqlite_store, snapshot, {0: 0.5, 2: 0.5, 4: 0.3}, model="demo")
    unmeasured = ended(sqlite_store, RunKind.PPO, snapshot=snapshot)
    other = ended(sqlite_store, RunKind.RLOO, snapshot=snapshot)
    active = watched(sqlite_store, snapshot, {0: 0.1, 2: 0.7}, None)
    expected = {
        f"{start.id}/best": r"kept no best policy: no evaluation had a higher held_out/objective than its "
        r"start \(0.5 on 16 prompts; the last, "
        rf"iteration 4, has 0.3\); name run:{start.id} for the last, or the start itself, demo",
        f"{unmeasured.id}/best": r"kept no best policy: it measured no held-out prompts.*; name run:",
        f"{other.id}/best": r"is a rloo run, and only a ppo run keeps a best policy; name run:",
        f"{active.id}/best": r"is still running; wait until it has ended",
        f"{start.id}/worst": r"name run:ID, or run:ID/best for the best policy that a ppo run kept",
    }
    for name, words in expected.items():
        config = CONFIGS[RunKind.SAMPLE](model=f"run:{name}")
        with pytest.raises(InvalidInput, match=rf"model = 'run:{name}': .*{words}"):
            queue_run(sqlite_store, OPERATOR, RunKind.SAMPLE, config, project_id=snapshot.project_id)


def test_the_lineage_leads_to_the_run_and_says_best(sqlite_store: Store, snapshot: Snapshot) -> None:
    run = watched(sqlite_store, snapshot, {0: 0.1, 2: 0.7, 4: 0.4})
    name = f"run:{run.id}/best"
    tuned = ended(sqlite_store, RunKind.SFT, snapshot=snapshot, model=name)
    compared = ended(sqlite_store, RunKind.COMPARE, snapshot=None, model_a=f"run:{run.id}", model_b=name)
    table = ended(sqlite_store, RunKind.BASELINES, snapshot=None, models=f"run:{tuned.id} {name}")
    with sqlite_store.read() as tx:
        found = ancestors(tx, tuned.id)
        assert ([each.id for each in found.runs], found.by_best) == ([tuned.id, run.id], {run.id})
        assert ancestors(tx, compared.id).by_best == {run.id}
        assert [each.id for each in ancestors(tx, table.id).runs] == [table.id, tuned.id, run.id]
        assert ancestors(tx, run.id).by_best == frozenset()
        made = descendants(tx, snapshot.project_id, snapshot.id)
        assert [each.id for each in made] == [run.id, tuned.id]


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("best"))
    yield made
    made.close()


def test_the_kept_policy_is_sampled_compared_and_trained_on(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which evaluation is the best is settled here, and not left to what three prompts make of four updates."""
    found = iter((0.0, 0.0, 100.0, 0.0, 0.0))

    def figures_of(*words: Any) -> dict[str, float]:
        figures = original(*words)
        return figures | {SCORE: figures[SCORE] + next(found)}

    original = training.ppo.evaluation.figures_of
    with monkeypatch.context() as patch:
        patch.setattr(training.ppo.evaluation, "figures_of", figures_of)
        run = rig.here(rig.queue_ppo("shared", **WORDS))
    with rig.store.read() as tx:
        best = best_policy(tx, run.id)
    assert best is not None
    assert (best.last_iteration, best.iteration, run.result["best_iteration"]) == (4, 2, 2)
    name, folder = f"run:{run.id}/best", rig.folder(run) / "best"
    revision = weights_hash(folder)
    assert revision != weights_hash(rig.folder(run) / "model")
    words = {"model_a": f"run:{run.id}", "model_b": name, "max_new_tokens": 4, "limit": 2, "prompts": "any"}
    compared = rig.here(rig.queue(RunKind.COMPARE, project=rig.project(2), **words))
    assert compared.result["model_b"] == name
    project = rig.project(2)
    words = {"model": name, "k": 2, "max_new_tokens": 4, "only_new": False}
    rig.here(rig.queue(RunKind.SAMPLE, project=project, **words))
    with rig.store.read() as tx:
        assert name in dict(models_of_project(tx, project.id))
    tuned = rig.here(rig.queue(RunKind.SFT, snapshot=rig.small_snapshot, model=name, epochs=1))
    assert (tuned.result["model"], tuned.result["revision"]) == (name, revision)
    words = {"models": f"run:{run.id} {name}", "responses": 1, "best_of": 2, "max_new_tokens": 4}
    table = rig.here(rig.queue(RunKind.BASELINES, snapshot=rig.small_snapshot, reward_run=rig.reward(), **words))
    _, last, kept = table.result["policies"]
    assert (last["model"], kept["model"]) == (f"run:{run.id}", name)
    assert last["kl"] != kept["kl"]
    again = rig.here(rig.queue_ppo("full", model=name, reward=rig.reward("full"), **(WORDS | {"iterations": 1})))
    assert (again.result["model"], again.result["revision"]) == (name, revision)


def test_a_best_policy_whose_files_are_not_here_is_named(rig: Rig) -> None:
    run = watched(rig.store, rig.small_snapshot, {0: 0.1, 2: 0.7, 4: 0.4})

    with pytest.raises(InvalidInput, match=rf"model 'run:{run.id}/best': there is no folder .*best"):
        find_model(f"run:{run.id}/best", rig.home, Silent(rig.store, rig.home, run))
