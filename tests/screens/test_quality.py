"""Quality: figures with their intervals and n, what is undefined as that, and what to do about an annotator."""

from __future__ import annotations

from typing import Any

import factories as make
import pytest
from hostile import HOSTILE, markdown_of

from app.actions.context import PROJECT_KEY
from data.files.paths import Home
from data.labels.people import add_person, list_people
from data.labels.projects import export_key
from data.labels.roles import OPERATOR
from data.records import Project, Role, RunKind, RunStatus, Split
from data.runs.state import claim_run, create_run, finish_run
from data.store import Store
from labeling.snapshot.freeze import SnapshotConfig, freeze_snapshot, pseudonym


def open_quality(open_app: Any, store: Store, project: Project) -> Any:
    app = open_app(make.make_person(store, Role.RESEARCHER))
    app.session_state[PROJECT_KEY] = project.id
    app.switch_page("screens/quality.py").run()
    assert not app.exception
    return app


def two_annotators(store: Store, n: int = 6) -> Project:
    """Ann and Bob rank n tasks of three; on every third one Bob turns it round."""
    project = make.make_project(store, overlap=2)
    ann, bob = make.make_person(store, name="Ann"), make.make_person(store, name="Bob")
    for number in range(n):
        task = make.make_task(store, project, prompt=f"question {number}", split=Split.EVAL if number > 3 else None)
        make.make_ranking(store, task, ann, [1, 2, 3])
        make.make_ranking(store, task, bob, [3, 2, 1] if number % 3 == 0 else [1, 2, 3])
    return project


@pytest.mark.parametrize("role", [Role.ANNOTATOR, Role.REVIEWER])
def test_only_researchers_see_it(sqlite_store: Store, run_lines: Any, role: Role) -> None:
    app = run_lines(make.make_person(sqlite_store, role), "from app.screens.quality import render\nrender()")
    assert "needs the role researcher" in app.exception[0].message


def test_the_figures_stand_with_their_intervals_and_their_n(sqlite_store: Store, open_app: Any) -> None:
    """4 of 6 tasks alike, 18 comparisons, 12 equal; tau 1 in four, -1 in two."""
    app = open_quality(open_app, sqlite_store, two_annotators(sqlite_store))
    assert {each.label: each.value for each in app.metric} == {
        "Pair agreement": "66.7%", "Without ties": "66.7%", "Krippendorff's α": alpha_of(app),
        "Kendall's tau-b": "0.33", "Human pair accuracy": "66.7%",
    }  # fmt: skip
    captions = " | ".join(each.value for each in app.caption)
    assert "n = 18 comparisons" in captions
    assert "n = 36 judgements" in captions
    assert "n = 6 pairs of rankings" in captions
    assert "n = 12 rankings foretold" in captions
    assert "18 pairs of responses in 6 tasks were compared by two people or more, 1 pair of annotators" in captions
    worst = app.dataframe[0].value
    assert list(worst["agreement"]) == [0.0, 0.0]
    assert set(worst["prompt"]) == {"question 0", "question 3"}
    split = "split on whether any response is acceptable"
    assert f"Waiting for a decision, with an agreement below 50% or {split}: 2. Decided: 0." in captions


def alpha_of(app: Any) -> str:
    """Its value hangs on the hashes of the random texts; here it only has to be a number."""
    value = next(each.value for each in app.metric if each.label == "Krippendorff's α")
    assert -1 <= float(value) < 1
    return str(value)


def test_what_is_undefined_is_called_so(sqlite_store: Store, open_app: Any) -> None:
    app = open_quality(open_app, sqlite_store, make.make_ranked_project(sqlite_store))
    assert {each.value for each in app.metric} == {"undefined"}
    captions = [each.value for each in app.caption]
    assert captions.count("n = 0 comparisons") == 2
    assert "No task divides its annotators." in captions
    assert "No reward model has been trained on a snapshot of this project." in captions
    assert app.get_by_key("quality.adjudicate").disabled
    row = app.dataframe[0].value.iloc[0]
    assert row["Ranked"] == 6
    row = app.dataframe[1].value.iloc[0]
    assert (row["Place p"], row["Comparisons"], row["Longer p"]) == ("undefined, n 6", 0, "undefined, n 0")


def test_a_project_without_answers_says_so(sqlite_store: Store, open_app: Any) -> None:
    app = open_quality(open_app, sqlite_store, make.make_project(sqlite_store))
    assert any("Nothing has been ranked yet" in each.value for each in app.markdown)
    assert not app.metric


def test_a_reward_model_stands_beside_the_people_on_its_held_out_side(
    sqlite_store: Store, home: Home, open_app: Any
) -> None:
    """Held out are tasks 4 and 5, on which the two agree."""
    project = two_annotators(sqlite_store)
    snapshot = freeze_snapshot(sqlite_store, OPERATOR, home, project.id, SnapshotConfig(eval_share=0))
    with sqlite_store.begin() as tx:
        run = create_run(tx, RunKind.REWARD, {}, project_id=project.id, snapshot_id=snapshot.id)
        claimed = claim_run(tx, "worker")
        assert claimed is not None
        result = {"held_out": {"pair_accuracy": 0.625}}
        finish_run(tx, run.id, claimed.epoch, RunStatus.SUCCEEDED, result=result)
    app = open_quality(open_app, sqlite_store, project)
    row = app.dataframe[0].value.iloc[0]
    assert (row["model"], row["people"], row["n"]) == (0.625, 1.0, 4)


def test_what_is_conspicuous_is_said_with_what_to_do(sqlite_store: Store, open_app: Any) -> None:
    """All 12 answers came in a second each, within one minute, and rank 1 was always at place A."""
    project, ann = make.make_project(sqlite_store), make.make_person(sqlite_store, name="Ann")
    long = " ".join(["many words to read"] * 30)
    for number in range(12):
        task = make.make_task(sqlite_store, project, f"{long} a", f"{long} b", prompt=f"question {number}")
        make.make_ranking(sqlite_store, task, ann, [1, 2])
    app = open_quality(open_app, sqlite_store, project)
    assert "Ann" in [each.value for each in app.text]
    notes = " | ".join(each.value for each in app.caption)
    hasty = (
        "12 of 12 answers came faster than their texts can be read, 100% (76% to 100%). Look at some of these rankings"
    )
    assert hasty in notes
    assert "12 answers were stored within one minute" in notes
    assert "Rank 1 stood 12 times at place A on the screen, 6 are expected by chance (12 rankings, p" in notes
    assert not app.success


def test_calm_work_is_called_calm(sqlite_store: Store, open_app: Any) -> None:
    app = open_quality(open_app, sqlite_store, two_annotators(sqlite_store))
    assert "Nothing conspicuous" in app.success[0].value


def test_new_answers_are_counted_at_the_next_look(sqlite_store: Store, open_app: Any) -> None:
    project = make.make_ranked_project(sqlite_store)
    app = open_quality(open_app, sqlite_store, project)
    assert app.metric[0].value == "undefined"
    other = make.make_person(sqlite_store)
    task = make.make_task(sqlite_store, project, slots=2)
    for person in (other, make.make_person(sqlite_store)):
        make.make_ranking(sqlite_store, task, person, [1, 2, 3])
    app.run()
    assert app.metric[0].value == "100.0%"


def test_hostile_names_and_prompts_are_text(sqlite_store: Store, open_app: Any) -> None:
    project = make.make_project(sqlite_store, overlap=2)
    with sqlite_store.begin() as tx:
        people = [add_person(tx, HOSTILE[0], Role.ANNOTATOR), add_person(tx, HOSTILE[1][:80], Role.ANNOTATOR)]
    long = " ".join(["many words to read"] * 30)
    for number in range(12):
        task = make.make_task(sqlite_store, project, f"{long} a", f"{long} b", prompt=f"{HOSTILE[2]} {number}")
        for person, ranks in zip(people, ([1, 2], [2, 1]), strict=True):
            make.make_ranking(sqlite_store, task, person, ranks)
    app = open_quality(open_app, sqlite_store, project)
    assert HOSTILE[0] in [each.value for each in app.text]
    assert not any(text[:60] in markdown_of(app) for text in HOSTILE)


def test_one_annotator_can_be_chosen_by_the_pseudonym_of_exports(sqlite_store: Store, open_app: Any) -> None:
    project = two_annotators(sqlite_store)
    with sqlite_store.read() as tx:
        key, people = export_key(tx, project.id), {each.name: each.id for each in list_people(tx)}
    app = open_quality(open_app, sqlite_store, project)
    assert list(app.dataframe[1].value["Annotator"]) == ["Ann", "Bob"]
    app.query_params["annotator"] = pseudonym(key, people["Bob"])
    app.run()
    assert [list(each.value["Annotator"]) for each in app.dataframe[1:3]] == [["Bob"], ["Bob"]]
    app.get_by_key("quality.all").click().run()
    assert list(app.dataframe[1].value["Annotator"]) == ["Ann", "Bob"] and "annotator" not in app.query_params


@pytest.mark.parametrize("name", ["nobody", *HOSTILE[:3]])
def test_a_pseudonym_of_nobody_is_said_and_everybody_is_shown(name: str, sqlite_store: Store, open_app: Any) -> None:
    app = open_quality(open_app, sqlite_store, two_annotators(sqlite_store))
    app.query_params["annotator"] = name
    app.run()
    assert not app.exception and name not in markdown_of(app)
    assert any(f"goes by {name} in reports" in each.value for each in app.text)
    assert list(app.dataframe[1].value["Annotator"]) == ["Ann", "Bob"]
