"""What a browser may send as an answer, field by field, and what each wrong one is told."""

from __future__ import annotations

from typing import Any

import pytest

from data.errors import InvalidInput
from data.label_settings import LabelSettings
from data.records import Detail, NewRanking, Person, Project, RankingStatus, Role
from labeling.work.answers import MAX_RATIONALE_LENGTH, by_place, read_answer

ANN = Person("ann", "Ann", Role.ANNOTATOR, False, True, 0.0, None)
ORDER = [2, 0, 3, 1]


def project(**settings: Any) -> Project:
    return Project("p", "P", 4, 1, "", 3, ("skip it",), 3, ("Wrong", "Rude"), LabelSettings(**settings), 0.0)


def sent(**what: Any) -> dict[str, Any]:
    return {"submission_key": "a-proper-key", "task_id": "t", "lease_token": "l", "display_order": ORDER} | what


def read(where: Project | None = None, **what: Any) -> NewRanking:
    return read_answer(ANN, where or project(allow_partial=True), 4, sent(**what))


def test_everything_is_turned_into_the_stored_order() -> None:
    found = read(
        ranks=[1, 2, 3, 3], unplaced=[2, 3], acceptable=[True, None, False, None], flags=[[], ["Rude"], [], ["Wrong"]],
        quality=[7, None, 1, 2], strength=4, rationale="  because\n ", guidelines_version=2, duration_ms=900,
    )  # fmt: skip
    assert found.ranks == (2, 3, 1, 3)  # place 0 shows the response at position 2, and so on
    assert found.detail == Detail(
        unplaced=(1, 3), acceptable=(None, None, True, False), flags=(("Rude",), ("Wrong",), (), ()),
        quality=(None, 2, 7, 1), strength=4,
    )  # fmt: skip
    assert (found.comment, found.guidelines_version, found.duration_ms) == ("because", 2, 900)
    assert by_place(found.detail.quality, ORDER) == [7, None, 1, 2]
    assert by_place((), ORDER) == []


def test_a_tie_all_unacceptable_a_skip_and_the_rest_stay_different() -> None:
    tie, rest = read(ranks=[1, 2, 2, 2]), read(ranks=[1, 2, 2, 2], unplaced=[1, 2, 3])
    assert (tie.ranks, tie.detail.unplaced) == (rest.ranks, ())
    assert rest.detail.unplaced == (0, 1, 3)
    none, skip = read(unacceptable=True, flags=[["Rude"], [], [], []]), read(skip_reason=" no idea ")
    assert (none.status, none.ranks, none.skip_reason) == (RankingStatus.UNACCEPTABLE, None, None)
    assert none.detail.flags == ((), (), ("Rude",), ())
    assert (skip.status, skip.ranks, skip.skip_reason) == (RankingStatus.SKIPPED, None, "no idea")
    assert read(ranks=[1, 1, 1, 1]).status is RankingStatus.RANKED


def test_what_was_not_said_is_not_stored() -> None:
    found = read(
        ranks=[1, 2, 3, 4], acceptable=[None] * 4, flags=[[], [], [], []], quality=[None] * 4, rationale="",
        unplaced=[],
    )  # fmt: skip
    assert (found.detail, found.comment, found.guidelines_version) == (Detail(), "", None)


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ({"ranks": [1, 2, 3, 3], "unplaced": [3]}, "the rest is all that shares the last rank"),
        ({"ranks": [1, 2, 3, 3], "unplaced": [1, 2]}, "the rest is all that shares the last rank"),
        ({"ranks": [1, 1, 1, 1], "unplaced": [0, 1, 2, 3]}, "others come before it"),
        ({"ranks": [1, 2, 3, 3], "unplaced": "23"}, "the rest is all"),
        ({"ranks": [1, 2, 3]}, "4 ranks are needed"),
        ({}, "4 ranks are needed"),
        ({"ranks": [1, 3, 3, 3]}, "have a gap"),
        ({"ranks": [1, 2, 3, 4], "unacceptable": True}, "not both"),
        ({"unacceptable": True, "skip_reason": "x"}, "not both"),
        ({"skip_reason": "  "}, "a skip needs a reason"),
        ({"skip_reason": 7}, "is not a text"),
        ({"skip_reason": "x" * 501}, "500 are allowed"),
        ({"ranks": [1, 2, 3, 4], "acceptable": [1, None, None, None]}, "each is true, false or null"),
        ({"ranks": [1, 2, 3, 4], "acceptable": [True]}, "4 values are needed"),
        ({"ranks": [1, 2, 3, 4], "flags": [["Ugly"], [], [], []]}, "'Ugly' is not a flag of this project"),
        ({"ranks": [1, 2, 3, 4], "flags": ["Rude", [], [], []]}, "a list of names is needed"),
        ({"ranks": [1, 2, 3, 4], "quality": [8, None, None, None]}, "quality 8 is out of range: 1 to 7"),
        ({"ranks": [1, 2, 3, 4], "quality": [0, None, None, None]}, "quality 0 is out of range"),
        ({"ranks": [1, 2, 3, 4], "quality": [True, None, None, None]}, "quality True is out of range"),
        ({"ranks": [1, 2, 3, 4], "strength": 5}, "strength 5 is out of range: 1 to 4"),
        ({"ranks": [1, 2, 3, 4], "strength": 1.0}, "strength 1.0 is out of range"),
        ({"ranks": [1, 2, 3, 4], "rationale": "x" * (MAX_RATIONALE_LENGTH + 1)}, "5,000 are allowed"),
        ({"ranks": [1, 2, 3, 4], "guidelines_version": 4}, "the project has 1 to 3"),
        ({"ranks": [1, 2, 3, 4], "display_order": [0, 1, 2, 2]}, "is not an order"),
    ],
)
def test_what_is_wrong_is_named(what: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        read(**what)


def test_a_rest_where_the_project_wants_every_response_placed() -> None:
    with pytest.raises(InvalidInput, match="this project wants every response placed"):
        read(project(), ranks=[1, 2, 3, 3], unplaced=[2, 3])
