"""The ranking page without a browser: what is sent to it, and that nothing is sent that an annotator must not see."""

from __future__ import annotations

import json
from typing import Any

from factories import make_person, make_project, make_ranking, make_task
from streamlit.testing.v1 import AppTest

from app.widgets.labels.ranker import KEY, surface_data, take_in
from data.labels.people import disable_person
from data.labels.rankings import rankings_of
from data.records import Role, SubmitOutcome
from data.store import Store
from labeling.work.session import keep_draft, next_work


def sent(app: AppTest) -> dict[str, Any]:
    """What the ranking component got."""
    assert not app.exception
    data: dict[str, Any] = json.loads(app.get_by_key(KEY).proto.json)
    return data


def answer(task: dict[str, Any], key: str, **what: Any) -> dict[str, Any]:
    kept = {name: task[name] for name in ("task_id", "lease_token", "display_order")}
    return kept | {"submission_key": key, "duration_ms": 1200} | what


def test_the_page_holds_texts_and_no_names(sqlite_store: Store, open_app: Any) -> None:
    project, ann = make_project(sqlite_store), make_person(sqlite_store)
    tasks = [make_task(sqlite_store, project) for _ in range(6)]
    app = open_app(ann, "rank")
    data = sent(app)
    raw = app.get_by_key(KEY).proto.json
    assert "test/model" not in raw
    for task in tasks:
        for response in task.responses:
            assert response.id not in raw
    assert len(data["tasks"]) == 4, "the one on screen and three ahead"
    for shown in data["tasks"]:
        task = next(each for each in tasks if each.id == shown["task_id"])
        assert [task.responses[place].text for place in shown["display_order"]] == shown["responses"]
        assert shown["draft"] is None
    assert (data["n_done"], data["acks"], data["person"]) == (0, [], ann.id)


def test_a_draft_comes_back_with_the_page(sqlite_store: Store, open_app: Any) -> None:
    project, ann = make_project(sqlite_store), make_person(sqlite_store)
    make_task(sqlite_store, project)
    (held,) = next_work(sqlite_store, ann, project.id).assignments
    order = list(held.display_order)
    keep_draft(sqlite_store, ann, {"task_id": held.task.id, "ranks": [2, None, 1], "display_order": order, "at": 5.0})
    draft = sent(open_app(ann, "rank"))["tasks"][0]["draft"]
    assert draft == {"ranks": [2, None, 1], "display_order": order, "at": 5.0}


def test_an_outbox_is_taken_in_once(sqlite_store: Store) -> None:
    project, ann = make_project(sqlite_store), make_person(sqlite_store)
    for _ in range(3):
        make_task(sqlite_store, project)
    work = next_work(sqlite_store, ann, project.id)
    first, second, third = surface_data(ann, work, [], with_drafts=False)["tasks"]
    box = [
        answer(first, "key-of-first", ranks=[1, 1, 2]),
        answer(second, "key-of-second", skip_reason="I can't judge this topic"),
        answer(third, "key-of-third", ranks=[1, 2]),
        "not an answer",
        answer(third, "short", ranks=[1, 2, 3]) | {"submission_key": 7},
    ]
    acks = take_in(sqlite_store, ann, box)
    outcomes = {key: ack.outcome for key, ack in acks.items()}
    assert outcomes == {
        "key-of-first": SubmitOutcome.STORED,
        "key-of-second": SubmitOutcome.STORED,
        "key-of-third": SubmitOutcome.REFUSED,
        "7": SubmitOutcome.REFUSED,
    }
    assert "3 ranks are needed" in acks["key-of-third"].reason
    again = take_in(sqlite_store, ann, box[:2])
    assert {ack.outcome for ack in again.values()} == {SubmitOutcome.REPEATED}
    other_tab = take_in(sqlite_store, ann, [answer(first, "key-of-other-tab", ranks=[3, 2, 1])])
    assert other_tab["key-of-other-tab"].outcome is SubmitOutcome.SUPERSEDED
    with sqlite_store.read() as tx:
        stored = {ranking.submission_key: ranking for ranking in rankings_of(tx, ann.id, project.id)}
    assert set(stored) == {"key-of-first", "key-of-second"}
    by_place = [stored["key-of-first"].ranks[position] for position in first["display_order"]]  # type: ignore[index]
    assert by_place == [1, 1, 3]


def test_nothing_that_a_browser_sends_breaks_the_page(sqlite_store: Store) -> None:
    ann = make_person(sqlite_store)
    for nonsense in (None, 3, "x", {}, [None, [], {}, {"submission_key": "x" * 500}, {"submission_key": "abcdefgh"}]):
        acks = take_in(sqlite_store, ann, nonsense)
        assert all(ack.outcome is SubmitOutcome.REFUSED for ack in acks.values())


def test_with_nothing_left_it_says_what_others_hold(sqlite_store: Store, open_app: Any) -> None:
    project = make_project(sqlite_store)
    ann, ben = make_person(sqlite_store), make_person(sqlite_store)
    done, taken = make_task(sqlite_store, project), make_task(sqlite_store, project)
    make_ranking(sqlite_store, done, ann, [1, 2, 3])
    held = next_work(sqlite_store, ben, project.id).assignments
    assert [each.task.id for each in held] == [taken.id]
    data = sent(open_app(ann, "rank"))
    assert (data["tasks"], data["n_done"], data["waiting"]["n"]) == ([], 1, 1)
    assert abs(data["waiting"]["first_free_at"] - held[0].lease_expires_at * 1000) < 1


def test_without_a_project_it_says_so(sqlite_store: Store, open_app: Any) -> None:
    app = open_app(make_person(sqlite_store), "rank")
    assert "no project yet" in app.info[0].value


def test_an_open_page_closes_with_its_account(sqlite_store: Store, open_app: Any) -> None:
    project, ann = make_project(sqlite_store), make_person(sqlite_store)
    make_task(sqlite_store, project)
    app = open_app(ann, "rank")
    assert sent(app)["tasks"]
    with sqlite_store.begin() as tx:
        disable_person(tx, ann.id)
    app.run()
    assert not app.exception
    assert not [node for node in app.main if getattr(node, "key", None) == KEY]


def test_everybody_arrives_at_the_page_of_their_role(sqlite_store: Store, open_app: Any) -> None:
    make_task(sqlite_store, make_project(sqlite_store))
    assert sent(open_app(make_person(sqlite_store)))["tasks"]
    researcher = open_app(make_person(sqlite_store, Role.RESEARCHER))
    assert not researcher.exception
    assert not [node for node in researcher.main if getattr(node, "key", None) == KEY]


def test_the_demo_project_starts_with_one_click(sqlite_store: Store, open_app: Any) -> None:
    app = open_app(make_person(sqlite_store, Role.ADMIN))
    assert app.title[0].value == "Welcome to rankloop"
    app.button("home.demo").click().run()
    data = sent(app)
    assert data["project"]["name"] == "Demo project"
    assert len(data["tasks"]) == 4


def test_newcomers_without_the_right_are_told_to_wait(sqlite_store: Store, open_app: Any) -> None:
    app = open_app(make_person(sqlite_store))
    assert not app.button
    assert "no project yet" in app.info[0].value
