"""The page of one ranking: everything that the annotator did, under a pseudonym, and no text read as Markdown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import factories as make
import pytest
import sqlalchemy as sa
from hostile import HOSTILE, markdown_of
from report_maker import write_report
from run_makers import ended

from app.actions.context import PROJECT_KEY
from data.files.paths import Home
from data.files.snapshots import read_groups
from data.labels.adjudications import save_adjudication
from data.labels.projects import export_key
from data.labels.rankings import current_rankings, edit_ranking
from data.labels.roles import OPERATOR
from data.records import Detail, NewAdjudication, NewRanking, Person, Ranking, RankingStatus, Role, RunKind
from data.store import Store
from data.store.tables import ranking as ranking_table
from labeling.files.imports import import_rankings
from labeling.snapshot.freeze import SnapshotConfig, freeze_snapshot, pseudonym

DETAIL = Detail(
    unplaced=(1, 2), acceptable=(True, None, False), flags=((), ("Rude",), ()), quality=(7, None, 2), strength=3
)


@pytest.fixture
def ann(sqlite_store: Store) -> Person:
    return make.make_person(sqlite_store, name="Ann Example")


@pytest.fixture
def ranking(sqlite_store: Store, ann: Person) -> Ranking:
    """Ann saw C, A, B of a task, put A first, and said all that can be said."""
    project = make.make_project(sqlite_store)
    task = make.make_task(sqlite_store, project, "response a", "response b", "response c", prompt="why?")
    made = make.make_ranking(sqlite_store, task, ann, (1, 2, 2), detail=DETAIL, comment="A knows it")
    with sqlite_store.begin() as tx:
        here = ranking_table.c.id == made.id
        tx.execute(sa.update(ranking_table).where(here).values(display_order="[2, 0, 1]", duration_ms=83_000))
    return made


def opened(store: Store, open_app: Any, **params: str) -> Any:
    app = open_app(make.make_person(store, Role.RESEARCHER))
    app.switch_page("screens/one_ranking.py")
    for name, value in params.items():
        app.query_params[name] = value
    app.run()
    assert not app.exception
    return app


def texts(app: Any) -> list[str]:
    return [each.value for each in app.text]


def test_an_annotator_is_refused(sqlite_store: Store, run_lines: Any, ann: Person) -> None:
    app = run_lines(ann, "from app.screens.one_ranking import render\nrender()")
    assert "needs the role researcher" in app.exception[0].message


def test_everything_that_the_annotator_did_is_there(sqlite_store: Store, open_app: Any, ranking: Ranking) -> None:
    app = opened(sqlite_store, open_app, id=ranking.id)
    with sqlite_store.read() as tx:
        project_id = tx.scalar(sa.text("select project_id from task"))
        name = pseudonym(export_key(tx, project_id), ranking.annotator_id)
    shown = texts(app)
    assert shown[0] == f"Ranking {ranking.id} by annotator {name}"
    assert "version 1, guidelines 1, took 1 min 23 s, from app, purpose ordinary" in shown[1]
    assert shown[2:] == [
        "why?", "A > the rest (B, C)", "strength 3 of 4 (4 significantly)", "A knows it", "Shown in the order C, A, B",
        "C: rank 2 (1 is best), in the rest that is in no order", "not acceptable, quality 2 of 7 (7 very good)",
        "response c", "A: rank 1 (1 is best)", "acceptable, quality 7 of 7 (7 very good)", "response a",
        "B: rank 2 (1 is best), in the rest that is in no order", "Rude", "response b",
    ]  # fmt: skip
    assert "Ann Example" not in "\n".join([*shown, markdown_of(app)])
    app.get_by_key(f"ranking.to_prompt.{ranking.id}").click().run()
    assert app.query_params["prompt"]


def test_of_an_answer_from_a_file_the_page_says_what_is_unknown(
    sqlite_store: Store, open_app: Any, tmp_path: Path
) -> None:
    project, path = make.make_project(sqlite_store), tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "why?", "responses": ["a", "b"], "ranks": [2, 1]}')
    import_rankings(sqlite_store, OPERATOR, project.id, path)
    with sqlite_store.read() as tx:
        [(found, _)] = current_rankings(tx, project.id)
    shown = texts(opened(sqlite_store, open_app, id=found.id))
    assert shown[1].startswith("imported ")
    assert shown[1].endswith("version 1, guidelines unknown, from import, purpose ordinary")
    assert shown[4:] == [
        "Shown in an unknown order; below they stand in their stored one", "A: rank 2 (1 is best)", "a",
        "B: rank 1 (1 is best)", "b",
    ]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_what_people_and_models_wrote_is_no_markdown(
    text: str, sqlite_store: Store, open_app: Any, ann: Person
) -> None:
    project = make.make_project(sqlite_store)
    task = make.make_task(sqlite_store, project, text, f"{text} again", prompt=text)
    made = make.make_ranking(sqlite_store, task, ann, (1, 2), comment=text, detail=Detail(flags=((text,), ())))
    app = opened(sqlite_store, open_app, id=made.id)
    assert text not in markdown_of(app)
    assert sum(text in each for each in texts(app)) == 5
    unknown = opened(sqlite_store, open_app, id=text.replace(",", ""))
    assert "no ranking" in unknown.error[0].value
    assert text not in markdown_of(unknown)


def test_a_skip_an_edit_and_an_unknown_one(sqlite_store: Store, open_app: Any, ranking: Ranking) -> None:
    new = NewRanking(
        task_id=ranking.task_id, annotator_id=ranking.annotator_id, submission_key="again", ranks=None,
        status=RankingStatus.SKIPPED, display_order=(0, 1, 2), skip_reason="I can't judge this topic",
    )  # fmt: skip
    with sqlite_store.begin() as tx:
        edit_ranking(tx, ranking.id, new)
    app = opened(sqlite_store, open_app, id=ranking.id)
    assert any("has replaced this version" in each.value for each in app.caption)
    (later,) = (each for each in app.button if each.label == "Open the later one")
    later.click().run()
    assert texts(app)[3:5] == ["skipped", "I can't judge this topic"]
    assert "version 2" in texts(app)[1]
    assert not any("has replaced this version" in each.value for each in app.caption)
    app = opened(sqlite_store, open_app, id=f"{ranking.id},nothing")
    assert "no ranking" in app.error[0].value
    assert "response a" in texts(app), "one that is not there hides no other"
    assert not texts(opened(sqlite_store, open_app))


def test_a_decision_is_shown_as_one(sqlite_store: Store, open_app: Any, ranking: Ranking) -> None:
    boss = make.make_person(sqlite_store, Role.RESEARCHER, "Boss Example")
    new = NewAdjudication(
        task_id=ranking.task_id, decided_by=boss.id, submission_key="k", ranks=(2, 1, 3), unplaced=(), chosen_id=None,
        reason="B is right", seen=(ranking.id,), agreement=0.2,
    )  # fmt: skip
    with sqlite_store.begin() as tx:
        decided = save_adjudication(tx, new)
    app = opened(sqlite_store, open_app, id=decided.id)
    assert texts(app)[2:4] == ["B > A > C", "B is right"]
    assert texts(app)[0].startswith(f"Decision {decided.id} by researcher ")
    app.get_by_key(f"ranking.to_case.{decided.id}").click().run()
    assert app.query_params["task"] == ranking.task_id


def opened_report(store: Store, home: Home, open_app: Any, ranking: Ranking) -> tuple[Any, Any, Any]:
    """The page of a reward run whose report has the ranking as its worst disagreement, the run, and the group."""
    with store.read() as tx:
        task = make.get_task(tx, ranking.task_id)
    snapshot = freeze_snapshot(store, OPERATOR, home, task.project_id, SnapshotConfig(eval_share=0.5))
    (group,) = read_groups(home.snapshot_folder(snapshot.id))
    run = ended(store, RunKind.REWARD, snapshot=snapshot)
    worst = {"ranking_id": group.ranking_id, "prompt_id": task.prompt_id, "annotator": group.annotator, "margin": -2.0}
    worst |= {"prompt": "why?", "better": "response a", "worse": "response b", "flags": []}
    write_report(home.run_folder(run.id), worst=[worst])
    app = open_app(make.make_person(store, Role.RESEARCHER), "runs")
    app.query_params["run"] = run.id
    app.run()
    return app, run, group


def test_the_worst_disagreements_lead_to_their_rankings(
    sqlite_store: Store, home: Home, open_app: Any, ranking: Ranking
) -> None:
    """Under the pseudonym of the snapshot."""
    app, run, group = opened_report(sqlite_store, home, open_app, ranking)
    app.get_by_key("report.to_ranking").click().run()
    assert not app.exception
    assert texts(app)[0] == f"Ranking {ranking.id} by annotator {group.annotator}"
    app.get_by_key("ranking.back").click().run()
    assert app.query_params["run"] == run.id


def test_the_worst_disagreements_lead_to_what_researchers_see_of_the_annotator(
    sqlite_store: Store, home: Home, open_app: Any, ranking: Ranking
) -> None:
    """On the Quality page of the run's project, whichever was chosen before."""
    app, run, group = opened_report(sqlite_store, home, open_app, ranking)
    other = make.make_ranked_project(sqlite_store)
    app.session_state[PROJECT_KEY] = other.id
    app.run()
    app.get_by_key("report.to_annotator").click().run()
    assert not app.exception
    assert (app.session_state[PROJECT_KEY], app.query_params["annotator"]) == (run.project_id, group.annotator)
    assert f"Annotator {group.annotator} of reports and exports" in texts(app)
    assert [list(each.value["Annotator"]) for each in app.dataframe] == [["Ann Example"]] * 2
