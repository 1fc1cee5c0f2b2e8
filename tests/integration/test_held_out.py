"""What is held out of a model is decided in one place, through all that went into it, and every user asks there."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import factories as make
import pytest
from run_makers import ended

import data.runs.held_out
from data.errors import InvalidInput
from data.files.paths import Home
from data.labels.roles import OPERATOR
from data.records import Project, Run, RunKind, Snapshot, Split
from data.runs.held_out import choose_prompts, trained_on
from data.store import Store
from data.text import messages_fingerprint
from labeling.review.comparison import comparison_report, create_comparison
from labeling.snapshot.freeze import SnapshotConfig, freeze_snapshot
from training.launch.config import BaselinesConfig
from training.launch.kinds import CONFIGS
from training.launch.queue import queue_run
from training.launch.starts import start_of

ROOT = Path(__file__).resolve().parents[2]


def fingerprint(text: str) -> str:
    return messages_fingerprint([{"role": "user", "content": text}])


def ranked(store: Store, texts: list[str], *, held_out: int = 1, unranked: tuple[str, ...] = ()) -> Project:
    """A project with a ranking of each text; the first ones are named as held out, all others as to train on."""
    project, person = make.make_project(store, k=2), make.make_person(store)
    for place, text in enumerate(texts):
        split = Split.EVAL if place < held_out else Split.TRAIN
        make.make_ranking(store, make.make_task(store, project, "a", "b", prompt=text, split=split), person, [1, 2])
    for text in unranked:
        make.make_task(store, project, "a", "b", prompt=text, split=Split.TRAIN)
    return project


def frozen(store: Store, home: Home, project: Project) -> Snapshot:
    return freeze_snapshot(store, OPERATOR, home, project.id, SnapshotConfig())


def seen(store: Store, home: Home, *texts: str, **asked: Any) -> list[str]:
    """Which of the texts the models or runs were trained on."""
    with store.read() as tx:
        known = trained_on(tx, home, **asked)
    assert known.unknown == []
    return [text for text in texts if not known.holds_out(fingerprint(text))]


def test_everything_behind_a_policy_counts(sqlite_store: Store, home: Home) -> None:
    """Its prompts, ranked or not; its reward model's rankings, the second one's, its start's and that one's start's."""
    names = ("policy", "reward", "second", "sft", "base")
    projects = {name: ranked(sqlite_store, [f"{name} out", f"{name} in"], unranked=(f"{name} new",)) for name in names}
    of = {name: frozen(sqlite_store, home, project) for name, project in projects.items()}
    base = ended(sqlite_store, RunKind.DPO, snapshot=of["base"], model="acme/base")
    sft = ended(sqlite_store, RunKind.SFT, snapshot=of["sft"], model=f"run:{base.id}")
    reward = ended(sqlite_store, RunKind.REWARD, snapshot=of["reward"], model="acme/base")
    second = ended(sqlite_store, RunKind.REWARD, snapshot=of["second"], model="acme/base")
    policy = ended(sqlite_store, RunKind.PPO, snapshot=of["policy"], reward_run=reward, model=f"run:{sft.id}",
                   second_reward_run=second.id)  # fmt: skip
    texts = [f"{name} {side}" for name in names for side in ("out", "in", "new")]
    expected = [*(f"{name} in" for name in names), "policy new"]
    for name in (f"run:{policy.id}", f"run:{policy.id}/best", str(home.run_folder(policy.id) / "model")):
        assert sorted(seen(sqlite_store, home, *texts, models=[name])) == sorted(expected)
    assert seen(sqlite_store, home, *texts, models=["acme/base", "demo", "/elsewhere"]) == []
    table = ended(sqlite_store, RunKind.BASELINES, snapshot=of["policy"], reward_run=reward, models=f"run:{sft.id}")
    assert sorted(seen(sqlite_store, home, *texts, runs=[table.id])) == ["base in", "reward in", "sft in"]
    compared = ended(sqlite_store, RunKind.COMPARE, make.make_project(sqlite_store), reward_run=second,
                     model_a="demo", model_b=f"run:{base.id}")  # fmt: skip
    assert sorted(seen(sqlite_store, home, *texts, runs=[compared.id])) == ["base in", "second in"]


def test_files_that_a_policy_learnt_from_count_as_the_run_keeps_them(sqlite_store: Store, home: Home) -> None:
    snapshot = frozen(sqlite_store, home, ranked(sqlite_store, ["out", "in"], unranked=("new",)))
    given = home.root / "given.jsonl"
    rows = [{"line": 1, "messages": [{"role": "user", "content": "before"}]}, {"prompt": "before too"}]
    given.write_text("".join(json.dumps(row) + "\n" for row in rows))
    texts = home.root / "texts.jsonl"
    texts.write_text('{"prompt": "of a text", "response": "r"}\n{"text": "plain"}\n')
    run = ended(
        sqlite_store, RunKind.PPO, snapshot=snapshot, prompts_file=str(given), ptx_file=str(texts), ptx_coef=1.0
    )
    asked = ("out", "in", "new", "before", "before too", "after", "of a text", "plain")
    assert seen(sqlite_store, home, *asked, runs=[run.id]) == ["in", "before", "before too", "of a text"]
    folder = home.run_folder(run.id)
    folder.mkdir(parents=True)
    given.rename(folder / "prompts.jsonl")
    given.write_text(json.dumps({"line": 1, "messages": [{"role": "user", "content": "after"}]}) + "\n")
    assert seen(sqlite_store, home, *asked, runs=[run.id]) == ["in", "before", "before too", "of a text"]


def test_what_can_not_be_told_any_more_is_said(sqlite_store: Store, home: Home) -> None:
    project = ranked(sqlite_store, ["out", "in"])
    run = ended(sqlite_store, RunKind.PPO, snapshot=frozen(sqlite_store, home, project), prompts_file="/gone.jsonl")
    with sqlite_store.read() as tx:
        (why,) = trained_on(tx, home, runs=[run.id]).unknown
        assert f"prompts_file of ppo run {run.id}" in why and "there is no such file" in why
        with pytest.raises(InvalidInput, match="can't be told which prompts are held out: prompts_file of ppo run"):
            choose_prompts(tx, home, project.id, 8, models=(), runs=[run.id], with_trained=False)
        assert choose_prompts(tx, home, project.id, 8, models=(), runs=[run.id], with_trained=True).unknown == [why]
        assert "no run 'nobody'" in trained_on(tx, home, models=["run:nobody"]).unknown[0]


def test_a_copy_in_another_project_is_the_same_prompt(sqlite_store: Store, home: Home) -> None:
    run = ended(sqlite_store, RunKind.SFT, snapshot=frozen(sqlite_store, home, ranked(sqlite_store, ["out", "in"])))
    other = ranked(sqlite_store, [" in ", "fresh"], held_out=2)
    with sqlite_store.read() as tx:
        chosen = choose_prompts(tx, home, other.id, 8, models=[f"run:{run.id}"], runs=(), with_trained=False)
    assert [each.messages[-1]["content"] for each in chosen.prompts] == ["fresh"]
    assert (chosen.n_held_out, chosen.n_trained, chosen.trained) == (1, 1, frozenset())


def test_prompts_named_as_held_out_come_first_and_trained_ones_last(sqlite_store: Store, home: Home) -> None:
    project = ranked(sqlite_store, ["out 1", "in 1", "in 2"])
    run = ended(sqlite_store, RunKind.SFT, snapshot=frozen(sqlite_store, home, project))
    make.make_task(sqlite_store, project, prompt="later", split=Split.TRAIN)
    make.make_task(sqlite_store, project, prompt="later out", split=Split.EVAL)
    words = {"models": [f"run:{run.id}"], "runs": ()}
    with sqlite_store.read() as tx:
        strict = choose_prompts(tx, home, project.id, 8, **words, with_trained=False)
        both = choose_prompts(tx, home, project.id, 4, **words, with_trained=True)
    found = [[each.messages[-1]["content"] for each in of.prompts] for of in (strict, both)]
    assert found == [["out 1", "later out", "later"], ["out 1", "later out", "later", "in 1"]]
    assert both.trained == {fingerprint("in 1")}


def test_without_a_held_out_prompt_the_numbers_and_the_ways_out_are_said(sqlite_store: Store, home: Home) -> None:
    project = ranked(sqlite_store, ["in 1", "in 2"], held_out=0)
    run = ended(sqlite_store, RunKind.SFT, snapshot=frozen(sqlite_store, home, project))
    with sqlite_store.read() as tx, pytest.raises(InvalidInput) as caught:
        choose_prompts(tx, home, project.id, 8, models=[f"run:{run.id}"], runs=(), with_trained=False)
    assert "none of the project's 2 prompts is held out" in str(caught.value)
    assert "import new prompts, type one, or set prompts = any" in str(caught.value)


def blind(store: Store, home: Home, run: Run, texts: list[str]) -> tuple[Any, Project]:
    rows = [{"messages": [{"role": "user", "content": text}], "prompt": text, "side": side, "model": model,
             "response": f"{model} {text}"}
            for side, model in (("a", "demo"), ("b", f"run:{run.id}")) for text in texts]  # fmt: skip
    compared = make.make_finished_run(store, RunKind.COMPARE, rows, make.make_project(store))
    made = create_comparison(store, OPERATOR, home, [compared.id], f"blind {run.id}")
    return made, made.project


def test_win_rates_say_how_many_prompts_were_trained_on(sqlite_store: Store, home: Home) -> None:
    run = ended(sqlite_store, RunKind.SFT, snapshot=frozen(sqlite_store, home, ranked(sqlite_store, ["out", "in"])))
    made, project = blind(sqlite_store, home, run, ["out", "in", "new"])
    assert made.counts == {"tasks": 3, "trained_on": 1}
    from data.labels.tasks import get_tasks, list_task_ids

    with sqlite_store.read() as tx:
        tasks = get_tasks(tx, list_task_ids(tx, project.id))
    person = make.make_person(sqlite_store)
    for place, task in enumerate(tasks):
        make.make_ranking(sqlite_store, task, person, [1, 2])
        report = comparison_report(sqlite_store, home, project.id)
        assert (report.n_prompts, report.n_trained_on) == (place + 1, int(place > 0))
    assert report.held_out_words.startswith("1 of 3 prompts were trained on")
    again, other = blind(sqlite_store, home, ended(sqlite_store, RunKind.SFT, snapshot=None), ["out"])
    assert again.counts == {"tasks": 1}
    assert comparison_report(sqlite_store, home, other.id).n_trained_on == 0


def test_what_a_policy_started_from_is_told_for_every_kind(sqlite_store: Store, home: Home) -> None:
    snapshot = frozen(sqlite_store, home, ranked(sqlite_store, ["out", "in"]))
    project_id = snapshot.project_id
    (home.root / "mine").mkdir()
    sft = ended(sqlite_store, RunKind.SFT, snapshot=snapshot, model="acme/base")
    starts = {RunKind.PPO: f"run:{sft.id}", RunKind.RLOO: str(home.root / "mine"), RunKind.DPO: "demo",
              RunKind.SFT: "acme/base"}  # fmt: skip
    runs = [(ended(sqlite_store, kind, snapshot=snapshot, model=start), start) for kind, start in starts.items()]
    for run, start in runs:
        config = CONFIGS[RunKind.COMPARE](model_b=f"run:{run.id}")
        queued = queue_run(sqlite_store, OPERATOR, RunKind.COMPARE, config, project_id=project_id)
        assert queued.config["model_a"] == start
        with sqlite_store.read() as tx:
            assert start_of(tx, f"run:{run.id}/best") == start
    for model_b in ("acme/base", "demo", str(home.root / "mine")):
        with pytest.raises(InvalidInput, match=r"model_a is empty, and what .* started from is not known here"):
            queue_run(
                sqlite_store,
                OPERATOR,
                RunKind.COMPARE,
                CONFIGS[RunKind.COMPARE](model_b=model_b),
                project_id=project_id,
            )


def test_a_table_measures_kl_to_what_its_policies_started_from(sqlite_store: Store, home: Home) -> None:
    snapshot = frozen(sqlite_store, home, ranked(sqlite_store, ["out", "in"]))
    reward = ended(sqlite_store, RunKind.REWARD, snapshot=snapshot, model="acme/classifier")
    sft = ended(sqlite_store, RunKind.SFT, snapshot=snapshot, model="acme/base")
    first, second = (ended(sqlite_store, RunKind.PPO, snapshot=snapshot, reward_run=reward, model=model)
                     for model in (f"run:{sft.id}", "acme/other"))  # fmt: skip

    def start(*runs: Run) -> str:
        config = BaselinesConfig(models=" ".join(f"run:{run.id}" for run in runs))
        links = {"snapshot_id": snapshot.id, "reward_run_id": reward.id}
        return str(queue_run(sqlite_store, OPERATOR, RunKind.BASELINES, config, **links).config["model"])

    assert (start(first), start(first, sft), start()) == (f"run:{sft.id}", "acme/base", "acme/classifier")
    with pytest.raises(InvalidInput, match="did not start from one model"):
        start(first, second)


@pytest.mark.parametrize("kind", [RunKind.REWARD, RunKind.SFT, RunKind.DPO, RunKind.FEATURES])
def test_the_demo_model_never_stands_in_for_one_that_is_not_known(
    kind: RunKind, sqlite_store: Store, home: Home
) -> None:
    from data.labels.prompts import prompt_id_of
    from data.labels.tasks import add_task
    from data.records import NewPrompt, NewResponse

    project, person = make.make_project(sqlite_store, k=2), make.make_person(sqlite_store)
    with sqlite_store.begin() as tx:
        prompt_id = prompt_id_of(tx, project.id, NewPrompt(({"role": "user", "content": "p"},)))
        made = add_task(tx, project.id, prompt_id, [NewResponse("a"), NewResponse("b")], slots=1)
    from data.labels.tasks import get_task

    with sqlite_store.read() as tx:
        task = get_task(tx, made.task_id)
    make.make_ranking(sqlite_store, task, person, [1, 2])
    links: dict[str, Any] = {"snapshot_id": frozen(sqlite_store, home, project).id}
    if kind is RunKind.FEATURES:
        links = {"project_id": project.id}
    with pytest.raises(InvalidInput, match="no response of the project says which model wrote it: name one"):
        queue_run(sqlite_store, OPERATOR, kind, CONFIGS[kind](), **links)
    assert queue_run(sqlite_store, OPERATOR, kind, CONFIGS[kind](model="demo"), **links).config["model"] == "demo"


def test_sampling_goes_on_with_the_model_of_the_project(sqlite_store: Store) -> None:
    project = make.make_project(sqlite_store)
    config = CONFIGS[RunKind.SAMPLE]()
    assert queue_run(sqlite_store, OPERATOR, RunKind.SAMPLE, config, project_id=project.id).config["model"] == "demo"
    make.make_task(sqlite_store, project)
    assert (
        queue_run(sqlite_store, OPERATOR, RunKind.SAMPLE, config, project_id=project.id).config["model"] == "test/model"
    )


# Who may look at a side, and why nothing that is called held-out is chosen there past the one place.
MAY_NAME_EVAL = {
    "data/runs/held_out.py": "decides",
    "training/ppo/evaluation.py": "takes the snapshot's held-out side and asks which of it is held out",
    "training/reward/run.py": "asks of how many held-out rankings its start was trained on the prompts",
    "training/sample/compare_run.py": "asks",
    "labeling/review/comparison.py": "asks, and marks a blind project's prompts so that nobody trains on them",
    "training/lm/dataset.py": "the sides of a reward model's rankings; run.py asks",
    "training/sample/run.py": "samples the side that it is told to; nothing is measured",
    "labeling/snapshot/splits.py": "decides a snapshot's sides",
    "labeling/files/handover.py": "leaves out of a file for training what the file itself marks as held out",
    "labeling/snapshot/counts.py": "counts people's rankings by side; no model",
    "app/demo/run.py": "names the demo's held-out prompts when it imports them",
}
ASKS = (
    "training/ppo/evaluation.py",
    "training/sample/compare_run.py",
    "training/reward/run.py",
    "labeling/review/comparison.py",
)
LISTS_PROMPTS = {
    "app/screens/prompts.py",
    "training/sample/run.py",
    "data/runs/frozen_prompts.py",
    "data/runs/held_out.py",
}


def modules() -> dict[str, ast.Module]:
    paths = [path for name in ("app", "training", "labeling", "data") for path in (ROOT / name).rglob("*.py")]
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def names_in(tree: ast.Module) -> set[str]:
    found = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return found | {f"{node.value.id}.{node.attr}" for node in ast.walk(tree)
                    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)}  # fmt: skip


def calls_in(tree: ast.Module) -> set[str]:
    called = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return {each.id for each in called if isinstance(each, ast.Name)}


def test_nobody_chooses_held_out_prompts_past_the_one_place() -> None:
    used = {path: names_in(tree) for path, tree in modules().items()}
    naming = {path for path, names in used.items() if "Split.EVAL" in names}
    assert naming - MAY_NAME_EVAL.keys() == set(), "ask data.runs.held_out, or say here why it is none of its business"
    asking = {path for path, names in used.items() if names & {"trained_on", "choose_prompts"}}
    assert asking == {*ASKS, "data/runs/held_out.py"}
    listing = {path for path, names in used.items() if names & {"list_prompts", "iter_prompts"}}
    assert listing - {"data/labels/prompts.py"} == LISTS_PROMPTS


def test_every_module_that_calls_a_prompt_held_out_gets_it_from_there() -> None:
    """Evaluations of every kind of run come to `load_held_out`, and it to `held_out_prompts`."""
    calls = {path: calls_in(tree) for path, tree in modules().items()}
    users = {path for path, names in calls.items() if "load_held_out" in names}
    assert users == {
        "training/methods/baselines.py",
        "training/ppo/run.py",
        "training/check/run.py",
        "training/methods/evaluation.py",
    }
    assert {path for path, names in calls.items() if "held_out_prompts" in names} == {"training/ppo/run.py"}
    assert data.runs.held_out.trained_on is trained_on
