"""Adjudicate: the queue, the case without names or models, and a decision that is stored once."""

from __future__ import annotations

from typing import Any

import factories as make
import pytest
from hostile import HOSTILE, markdown_of

from app.actions.context import PROJECT_KEY
from data.label_settings import LabelSettings
from data.labels.adjudications import adjudication_of, current_adjudications
from data.labels.projects import set_settings
from data.labels.rankings import answer_of, edit_ranking
from data.records import Detail, NewRanking, Project, RankingStatus, Role, Task
from data.store import Store


class Dispute:
    """A project in which Ann and Bob rank two tasks: one the other way round, one nearly alike."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.project: Project = make.make_project(store, overlap=2)
        self.ann, self.bob = make.make_person(store, name="Ann Example"), make.make_person(store, name="Bob Example")
        self.boss = make.make_person(store, Role.RESEARCHER, "Boss Example")
        self.worst = self.ranked("the worst", (1, 2, 3), (3, 2, 1))
        self.other = self.ranked("the other", (1, 2, 3), (2, 3, 1))

    def ranked(self, prompt: str, ann: tuple[int, ...], bob: tuple[int, ...]) -> Task:
        texts = [f"{prompt}, response {letter}" for letter in "abc"]
        task = make.make_task(self.store, self.project, *texts, prompt=prompt)
        make.make_ranking(self.store, task, self.ann, ann, comment="Ann's reason")
        make.make_ranking(self.store, task, self.bob, bob, detail=Detail(flags=(("Rude",), (), ())))
        return task

    def decision(self, task: Task) -> Any:
        with self.store.read() as tx:
            return adjudication_of(tx, task.id)


@pytest.fixture
def dispute(sqlite_store: Store) -> Dispute:
    return Dispute(sqlite_store)


@pytest.fixture
def opened(dispute: Dispute, open_app: Any) -> Any:
    app = open_app(dispute.boss)
    app.session_state[PROJECT_KEY] = dispute.project.id
    app.switch_page("screens/adjudicate.py").run()
    assert not app.exception
    return app


def texts(app: Any) -> list[str]:
    return [each.value for each in app.text]


def how(app: Any) -> Any:
    return next(each for each in app.radio if each.label == "Which ranking is right?")


def fill_in(app: Any, reason: str) -> None:
    app.text_area[0].set_value(reason)


def send(app: Any) -> None:
    next(each for each in app.button if each.label == "Decide").click().run()
    assert not app.exception


@pytest.mark.parametrize("role", [Role.ANNOTATOR, Role.REVIEWER])
def test_only_researchers_see_it(sqlite_store: Store, run_lines: Any, role: Role) -> None:
    app = run_lines(make.make_person(sqlite_store, role), "from app.screens.adjudicate import render\nrender()")
    assert "needs the role researcher" in app.exception[0].message


def test_the_worst_task_is_shown_whole_without_a_name(opened: Any, dispute: Dispute) -> None:
    assert opened.expander[0].label == "2 tasks waiting, the least agreed first"
    shown = texts(opened)
    assert {"the worst", "A > B > C", "C > B > A", "Ann's reason", "A: Rude"} <= set(shown)
    assert {each.text for each in dispute.worst.responses} <= set(shown)
    assert sorted(how(opened).options) == sorted(
        [f"Annotator {1 + place}: {text}" for place, text in enumerate(
            each for each in shown if each in ("A > B > C", "C > B > A"))] + ["A ranking of my own"]
    )  # fmt: skip
    everything = markdown_of(opened) + repr(shown) + repr(how(opened).options)
    assert "Example" not in everything.replace("Boss Example", "")
    assert "test/model" not in everything
    assert any("Seen differently: A and B, A and C, B and C." in each.value for each in opened.caption)


def test_a_ranking_is_chosen_with_a_reason_and_the_next_task_comes(opened: Any, dispute: Dispute) -> None:
    with dispute.store.read() as tx:
        bobs = answer_of(tx, dispute.worst.id, dispute.bob.id)
    how(opened).set_value(bobs.id).run()
    fill_in(opened, "because $5 *is* more")
    send(opened)
    made = dispute.decision(dispute.worst)
    assert (made.ranks, made.chosen_id, made.agreement) == ((3, 2, 1), bobs.id, 0)
    assert (made.reason, made.decided_by) == ("because $5 *is* more", dispute.boss.id)
    assert "the other" in texts(opened)
    assert opened.expander[0].label == "1 task waiting, the least agreed first"
    table = opened.dataframe[-1].value
    assert list(table["reason"]) == ["because $5 *is* more"]
    assert list(table["by"]) == ["Boss Example"]


def test_a_ranking_of_one_s_own(opened: Any, dispute: Dispute) -> None:
    how(opened).set_value("own").run()
    for number, rank in zip(opened.number_input, (2, 1, 2), strict=True):
        number.set_value(rank)
    fill_in(opened, "b is the only true one")
    send(opened)
    made = dispute.decision(dispute.worst)
    assert (made.ranks, made.chosen_id) == ((2, 1, 2), None)


def test_nothing_is_decided_that_was_not_said(opened: Any, dispute: Dispute) -> None:
    send(opened)
    assert "the reason has 0 characters" in opened.error[0].value.replace("\\", "")
    fill_in(opened, "why")
    send(opened)
    assert "either one of the annotators' rankings or" in opened.error[0].value.replace("\\", "")
    how(opened).set_value("own").run()
    for number, rank in zip(opened.number_input[:2], (1, 2), strict=True):
        number.set_value(rank)
    fill_in(opened, "why")
    send(opened)
    assert "rank 0 for response 3 is out of range" in opened.error[0].value.replace("\\", "")
    assert dispute.decision(dispute.worst) is None


def test_a_decision_on_what_has_changed_since_is_refused(opened: Any, dispute: Dispute) -> None:
    how(opened).set_value("own").run()
    for number in opened.number_input:
        number.set_value(1)
    fill_in(opened, "all alike")
    with dispute.store.begin() as tx:
        old = answer_of(tx, dispute.worst.id, dispute.bob.id)
        new = NewRanking(dispute.worst.id, dispute.bob.id, "edit", RankingStatus.RANKED, (3, 1, 2), (0, 1, 2))
        edit_ranking(tx, old.id, new)
    send(opened)
    assert "an annotator has answered this task meanwhile" in opened.error[0].value.replace("\\", "")
    assert dispute.decision(dispute.worst) is None
    assert "B > C > A" in texts(opened)
    fill_in(opened, "all alike, still")
    send(opened)
    assert dispute.decision(dispute.worst).reason == "all alike, still"


def test_a_decided_task_can_be_decided_again(opened: Any, dispute: Dispute, open_app: Any) -> None:
    for ranks, reason in (((1, 2, 3), "first"), ((3, 2, 1), "second")):
        app = open_app(dispute.boss)
        app.session_state[PROJECT_KEY] = dispute.project.id
        app.query_params["task"] = dispute.worst.id
        app.switch_page("screens/adjudicate.py")
        app.query_params["task"] = dispute.worst.id
        app.run()
        how(app).set_value("own").run()
        for number, rank in zip(app.number_input, ranks, strict=True):
            number.set_value(rank)
        fill_in(app, reason)
        send(app)
    made = dispute.decision(dispute.worst)
    assert (made.ranks, made.reason) == ((3, 2, 1), "second")
    assert made.supersedes_id is not None
    with dispute.store.read() as tx:
        assert len(current_adjudications(tx, dispute.project.id)) == 1


def test_a_task_that_is_not_here_is_said_once(opened: Any, dispute: Dispute) -> None:
    opened.query_params["task"] = "elsewhere"
    opened.run()
    assert "no task 'elsewhere'" in opened.error[0].value.replace("\\", "")
    opened.run()
    assert not opened.error
    assert "the worst" in texts(opened)


def test_hostile_texts_are_text(sqlite_store: Store, open_app: Any) -> None:
    project, boss = make.make_project(sqlite_store, overlap=2), make.make_person(sqlite_store, Role.RESEARCHER)
    task = make.make_task(sqlite_store, project, *HOSTILE[:3], prompt=HOSTILE[3])
    ann, bob = make.make_person(sqlite_store), make.make_person(sqlite_store)
    make.make_ranking(
        sqlite_store, task, ann, [1, 2, 3], comment=HOSTILE[0], detail=Detail(flags=((HOSTILE[2],), (), ()))
    )
    make.make_ranking(sqlite_store, task, bob, [3, 2, 1], comment=HOSTILE[1])
    app = open_app(boss)
    app.session_state[PROJECT_KEY] = project.id
    app.switch_page("screens/adjudicate.py").run()
    assert not app.exception
    assert set(HOSTILE[:2]) <= set(texts(app))
    how(app).set_value("own").run()
    for number in app.number_input:
        number.set_value(1)
    fill_in(app, HOSTILE[0])
    send(app)
    assert not any(text in markdown_of(app) for text in HOSTILE)


def test_where_nothing_waits_it_says_why(sqlite_store: Store, open_app: Any) -> None:
    boss = make.make_person(sqlite_store, Role.RESEARCHER)
    words = {}
    for overlap, below in ((1, 0.5), (2, 0.5), (2, 0.0)):
        project = make.make_project(sqlite_store, overlap=overlap)
        with sqlite_store.begin() as tx:
            set_settings(tx, project.id, settings=LabelSettings(adjudicate_below=below))
        app = open_app(boss)
        app.session_state[PROJECT_KEY] = project.id
        app.switch_page("screens/adjudicate.py").run()
        words[overlap, below] = " ".join(each.value for each in app.caption)
    assert "one annotator per task" in words[1, 0.5]
    assert "agreed on well enough" in words[2, 0.5]
    assert "asks for no adjudication" in words[2, 0.0]
