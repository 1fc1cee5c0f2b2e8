"""Ranking by dragging: a handle or a chip into the order, by mouse and by finger, and what is no drag."""

from __future__ import annotations

from typing import Any

import pytest
from browser_pages import NewPage, RankingPage, Work, by_place
from playwright.sync_api import CDPSession, Locator, expect


class Hand:
    """A mouse that drags from one element to a place on another."""

    def __init__(self, ranking: RankingPage) -> None:
        self.page, self.order = ranking.page, ranking.page.locator(".ranker .order")

    def grip(self, letter: str) -> Locator:
        return self.page.locator(".ranker .grip", has_text=letter)

    def chip(self, letter: str) -> Locator:
        return self.order.locator(".chip", has_text=letter)

    def take(self, what: Locator) -> None:
        box = what.bounding_box()
        assert box is not None
        self.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        self.page.mouse.down()

    def to(self, where: Locator, dx: float = 0.5) -> None:
        """Move to a place on an element: `dx` of its width from its left."""
        box = where.bounding_box()
        assert box is not None
        self.page.mouse.move(box["x"] + box["width"] * dx, box["y"] + box["height"] / 2, steps=6)

    def drag(self, what: Locator, where: Locator, dx: float = 0.5) -> None:
        self.take(what)
        self.to(where, dx)
        self.page.mouse.up()


@pytest.fixture
def hand(ranking: RankingPage) -> Hand:
    return Hand(ranking)


def test_handles_into_the_order(work: Work, ranking: RankingPage, hand: Hand) -> None:
    hand.drag(hand.grip("C"), hand.order)
    assert (ranking.order(), ranking.marked()) == ("C", "A")
    hand.drag(hand.grip("A"), hand.chip("C"), dx=1.25)  # right of it
    assert ranking.order() == "C > A"
    hand.drag(hand.grip("B"), hand.chip("A"))  # onto it
    assert ranking.order() == "C > A = B"
    expect(ranking.live).to_contain_text("C > A = B")
    ranking.submit.click()
    assert by_place(work.stored(1)[0]) == [2, 2, 1]


def test_chips_move_in_the_order_and_out_of_it(ranking: RankingPage, hand: Hand) -> None:
    ranking.press("1 2 3")
    hand.drag(hand.chip("C"), hand.chip("A"), dx=-0.2)  # left of the first
    assert ranking.order() == "C > A > B"
    hand.drag(hand.chip("C"), hand.chip("A"), dx=1.25)  # into the gap
    assert ranking.order() == "A > C > B"
    hand.drag(hand.chip("B"), hand.chip("C"))
    assert ranking.order() == "A > B = C"
    hand.drag(hand.chip("B"), hand.chip("C"), dx=1.25)  # out of the tie, behind it
    assert ranking.order() == "A > C > B"
    hand.drag(hand.chip("A"), ranking.page.locator(".ranker .prompt"))
    assert ranking.order() == "C > B"
    assert ranking.standings()[0] == "Not ranked"
    ranking.press("u u")
    assert ranking.order() == "A > B = C"


def test_what_is_no_drag(ranking: RankingPage, hand: Hand) -> None:
    hand.drag(ranking.page.locator(".ranker .card .text").first, hand.order)
    hand.drag(hand.grip("A"), ranking.page.locator(".ranker .prompt"))  # a handle beside the order: nothing
    assert ranking.order() == ""
    hand.take(hand.grip("B"))
    hand.page.mouse.up()
    assert (ranking.order(), ranking.marked()) == ("", "B"), "a click marks"
    ranking.press("s")
    hand.drag(hand.grip("A"), ranking.page.locator(".ranker .reasons"))
    ranking.press("Escape")
    assert ranking.order() == ""


def test_no_drag_while_something_lies_over_the_page(ranking: RankingPage, hand: Hand) -> None:
    grip = hand.grip("A").bounding_box()
    order = hand.order.bounding_box()
    assert grip is not None
    assert order is not None
    ranking.press("?")
    hand.page.mouse.move(grip["x"] + 5, grip["y"] + 5)
    hand.page.mouse.down()
    hand.page.mouse.move(order["x"] + 5, order["y"] + 5, steps=5)
    hand.page.mouse.up()
    ranking.press("Escape")
    assert ranking.order() == ""


def test_the_place_is_shown_while_dragging(ranking: RankingPage, hand: Hand) -> None:
    ranking.press("1 2")
    before = hand.order.bounding_box()
    hand.take(hand.grip("C"))
    hand.to(hand.chip("B"))
    expect(hand.chip("B")).to_have_class("chip placed onto")
    hand.to(hand.chip("A"), dx=1.25)
    expect(hand.chip("A")).to_have_class("chip placed gap-after")
    expect(hand.page.locator(".ranker .ghost")).to_have_text("C")
    after = hand.order.bounding_box()
    assert before is not None
    assert after is not None
    assert (before["x"], before["y"]) == (after["x"], after["y"]), "the page does not jump"
    hand.page.mouse.up()
    expect(hand.page.locator(".ranker .ghost")).to_have_count(0)
    assert ranking.order() == "A > C > B"


def _finger(session: CDPSession, *points: tuple[float, float]) -> None:
    for number, (x, y) in enumerate(points):
        kind = "touchStart" if number == 0 else "touchMove"
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x, "y": y}]})
    session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


def _path(start: dict[str, float], end: dict[str, float], steps: int = 8) -> list[tuple[float, float]]:
    x, y = start["x"] + 8, start["y"] + 8
    dx, dy = end["x"] + 8 - x, end["y"] + 8 - y
    return [(x + dx * n / steps, y + dy * n / steps) for n in range(steps + 1)]


def test_a_finger_drags_by_the_handle_and_scrolls_everywhere_else(work: Work, new_page: NewPage) -> None:
    page = new_page(work.server, work.person, viewport={"width": 390, "height": 844}, has_touch=True)
    ranking = RankingPage(page).open(work.url)
    hand, session = Hand(ranking), page.context.new_cdp_session(page)
    boxes: list[Any] = [
        each.bounding_box() for each in (hand.grip("A"), hand.order, page.locator(".ranker .card .text").first)
    ]
    _finger(session, *_path(boxes[2], boxes[1]))  # over a text: the page scrolls, or nothing happens
    assert ranking.order() == ""
    page.evaluate("window.scrollTo(0, 0)")
    grip: Any = hand.grip("A").bounding_box()
    _finger(session, *_path(grip, boxes[1]))
    expect(page.locator(".ranker .order .placed")).to_have_text("A")
