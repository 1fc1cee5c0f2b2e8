"""The lineage of a policy, on the pages: back to rankings and prompts, and on from them."""

from __future__ import annotations

from typing import Any

from factories import make_person, make_project, make_ranking, make_task
from run_makers import ended

from data.files.paths import Home
from data.labels.roles import OPERATOR
from data.records import Project, Role, Run, RunKind, Snapshot
from data.runs.lineage import ancestors, by_annotator, descendants, snapshots_with, sources_of
from data.store import Store
from labeling.snapshot.freeze import SnapshotConfig, freeze_snapshot


def labelled(store: Store, home: Home) -> tuple[Project, Snapshot, list[str]]:
    """Three prompts, ranked by two people: the first by both."""
    project = make_project(store, overlap=2)
    one, two = make_person(store), make_person(store)
    tasks = [make_task(store, project, "a", "b", prompt=f"prompt <b>{number}</b>") for number in range(3)]
    for task, people in zip(tasks, ((one, two), (one,), (one,)), strict=True):
        for person in people:
            make_ranking(store, task, person, [1, 2])
    snapshot = freeze_snapshot(store, OPERATOR, home, project.id, SnapshotConfig(eval_share=0.0))
    return project, snapshot, [task.prompt_id for task in tasks]


def chain(store: Store, snapshot: Snapshot) -> dict[str, Run]:
    sft = ended(store, RunKind.SFT, snapshot=snapshot, model="demo")
    start = f"run:{sft.id}"
    reward = ended(store, RunKind.REWARD, snapshot=snapshot, model=start)
    policy = ended(store, RunKind.PPO, snapshot=snapshot, reward_run=reward, model=start)
    table = ended(store, RunKind.BASELINES, snapshot=snapshot, reward_run=reward, models=f"run:{policy.id} {start}")
    return {"sft": sft, "reward": reward, "policy": policy, "table": table}


def test_the_chain_in_both_directions(sqlite_store: Store, home: Home) -> None:
    project, snapshot, prompts = labelled(sqlite_store, home)
    other = freeze_snapshot(sqlite_store, OPERATOR, home, project.id, SnapshotConfig(eval_share=0.5, seed=7))
    runs = chain(sqlite_store, snapshot)
    loose = ended(sqlite_store, RunKind.SFT, snapshot=other, model="demo")
    later = ended(sqlite_store, RunKind.DPO, snapshot=other, model=f"run:{runs['policy'].id}")
    with sqlite_store.read() as tx:
        found = ancestors(tx, runs["policy"].id)
        assert [run.id for run in found.runs] == [runs[name].id for name in ("policy", "reward", "sft")]
        assert found.snapshot_ids == (snapshot.id,)
        assert set(ancestors(tx, later.id).snapshot_ids) == {other.id, snapshot.id}
        made = [run.id for run in descendants(tx, project.id, snapshot.id)]
        assert made == [*(run.id for run in runs.values()), later.id], "through models too, and nothing else"
        assert loose.id not in made
        assert set(snapshots_with(tx, home, project.id, prompts[1])) == {snapshot.id, other.id}
        assert snapshots_with(tx, home, project.id, "no such prompt") == []
    assert sorted(by_annotator(home, snapshot.id).values()) == [1, 3]
    sources = list(sources_of(home, snapshot.id))
    assert len(sources) == 4 and {source.prompt_id for source in sources} == set(prompts)
    assert all(source.ranks == (1, 2) and source.prompt.startswith("prompt <b>") for source in sources)


def test_reward_models_that_only_watch_or_score_beside_are_followed_too(store: Store, home: Home) -> None:
    project, snapshot, _ = labelled(store, home)
    other, third = (
        freeze_snapshot(store, OPERATOR, home, project.id, SnapshotConfig(eval_share=0.5, seed=n)) for n in (7, 8)
    )
    first = ended(store, RunKind.REWARD, snapshot=snapshot, model="demo")
    second = ended(store, RunKind.REWARD, snapshot=other, model="demo")
    last = ended(store, RunKind.REWARD, snapshot=third, model="demo")
    words = {"snapshot": snapshot, "reward_run": first, "model": "demo"}
    policy = ended(store, RunKind.PPO, **words, second_reward_run=second.id)
    sure = ended(store, RunKind.PPO, **words, second_reward_run=f"{second.id},{last.id}")
    table = ended(store, RunKind.BASELINES, **words, second_reward_run=second.id, models=f"run:{policy.id}")
    scores = ended(store, RunKind.SCORE, project, reward_run=first, input_file="x", beside=f"{second.id},{last.id}")
    with store.read() as tx:
        found = ancestors(tx, policy.id)
        assert [run.id for run in found.runs] == [policy.id, first.id, second.id]
        assert set(found.snapshot_ids) == {snapshot.id, other.id}
        assert [run.id for run in ancestors(tx, scores.id).runs] == [scores.id, first.id, second.id, last.id]
        assert set(ancestors(tx, scores.id).snapshot_ids) == {snapshot.id, other.id, third.id}
        assert {run.id for run in ancestors(tx, table.id).runs} == {table.id, first.id, second.id, policy.id}
        assert [run.id for run in ancestors(tx, sure.id).runs] == [sure.id, first.id, second.id, last.id]
        made = [second.id, policy.id, sure.id, table.id, scores.id]
        assert [run.id for run in descendants(tx, project.id, other.id)] == made
        assert [run.id for run in descendants(tx, project.id, third.id)] == [last.id, sure.id, scores.id]


def test_the_head_of_a_runs_page_leads_to_every_reward_model_and_back(
    sqlite_store: Store, home: Home, open_app: Any
) -> None:
    _, snapshot, _ = labelled(sqlite_store, home)
    first, second = (ended(sqlite_store, RunKind.REWARD, snapshot=snapshot, model="demo") for _ in range(2))
    words = {"reward_run": first, "model": "demo", "second_reward_run": second.id}
    policy = ended(sqlite_store, RunKind.PPO, snapshot=snapshot, **words)
    app = open_app(make_person(sqlite_store, Role.RESEARCHER))
    app.switch_page("screens/runs.py")
    for opened, linked in ((policy, (first, second)), (second, (policy,))):
        app.query_params["run"] = opened.id
        app.run()
        assert not app.exception
        for each in linked:
            assert app.get_by_key(f"runs.to.run.{each.id}").label.endswith(each.id[-6:])


def test_one_clicks_through(sqlite_store: Store, home: Home, open_app: Any) -> None:
    _, snapshot, prompts = labelled(sqlite_store, home)
    runs = chain(sqlite_store, snapshot)
    app = open_app(make_person(sqlite_store, Role.RESEARCHER))
    app.switch_page("screens/runs.py")
    app.query_params["run"] = runs["policy"].id
    app.query_params["runs.tab"] = "Lineage"
    app.run()
    assert not app.exception
    assert any("4 rankings by 2 annotators" in each.value for each in app.caption)
    assert any(frame.value.shape == (4, 5) for frame in app.dataframe)
    app.get_by_key(f"lineage.snapshot.{snapshot.id}").click().run()
    assert not app.exception and app.query_params["snapshot"] == snapshot.id
    app.switch_page("screens/snapshots.py")  # a page that another one opened is left again by the test's next run
    app.query_params["snapshot"] = snapshot.id
    app.run()
    app.get_by_key(f"lineage.made.{runs['policy'].id}").click().run()
    assert not app.exception and app.query_params["run"] == runs["policy"].id
    app.switch_page("screens/prompts.py")
    app.query_params["prompt"] = prompts[0]
    app.run()
    app.get_by_key(f"lineage.holds.{snapshot.id}").click().run()
    assert not app.exception
    assert app.query_params["snapshot"] == snapshot.id
