"""What may be said beside the ranks, and the answers that are no ranking: by keys, by mouse, into the store."""

from __future__ import annotations

import pytest
from browser_pages import NewPage, RankingPage, Work, by_place, eventually
from factories import make_task
from playwright.sync_api import expect

from data.label_settings import DEFAULT_FLAGS
from data.records import Detail, RankingStatus
from labeling.work.answers import by_place as in_shown_order

EVERYTHING = {
    "allow_partial": True, "ask_acceptable": True, "ask_flags": True, "ask_quality": True, "ask_strength": True,
    "ask_rationale": True,
}  # fmt: skip


@pytest.fixture
def asking(work: Work, new_page: NewPage) -> RankingPage:
    """A page of a project that asks for everything."""
    work.ask(**EVERYTHING)
    return RankingPage(new_page(work.server, work.person)).open(work.url)


# ---- the rest, in no order


def test_the_rest_are_worse_by_one_key(work: Work, asking: RankingPage) -> None:
    asking.press("w")
    expect(asking.live).to_contain_text("Rank the best first")
    asking.press("j 1 w")
    assert asking.order() == "B > the rest"
    assert asking.standings() == ["Among the rest, worse", "Rank 1", "Among the rest, worse"]
    expect(asking.live).to_contain_text("The rest are worse, in no order: B > the rest (A, C).")
    asking.press("Enter")
    (found,) = work.stored(1)
    assert by_place(found) == [2, 1, 2]
    assert found.detail.unplaced == tuple(sorted((found.display_order[0], found.display_order[2])))


def test_the_rest_can_be_taken_back_and_drawn_from(work: Work, asking: RankingPage) -> None:
    rest = asking.page.get_by_role("button", name="The rest are worse")
    expect(rest).to_be_disabled()
    asking.press("1")
    rest.click()
    assert asking.order() == "A > the rest"
    asking.press("u")
    assert (asking.order(), asking.standings()[1]) == ("A", "Not ranked")
    asking.press("w 2")  # one that is given a rank leaves the rest
    assert (asking.order(), asking.standings()[2]) == ("A > B > the rest", "Among the rest, worse")
    eventually(work.drafts, is_good=lambda found: bool(found) and found[0]["rest"] is True)
    asking.page.reload()
    asking.ready()
    assert asking.order() == "A > B > the rest"
    asking.press("Enter")
    (found,) = work.stored(1)
    assert (by_place(found), found.detail.unplaced) == ([1, 2, 3], ()), "one alone has simply the last place"


def test_a_tie_at_the_end_is_no_rest(work: Work, asking: RankingPage) -> None:
    asking.press("1 2 2 Enter")
    (found,) = work.stored(1)
    assert (by_place(found), found.detail.unplaced) == ([1, 2, 2], ())


def test_where_every_response_must_be_placed_there_is_no_rest(work: Work, ranking: RankingPage) -> None:
    expect(ranking.page.get_by_role("button", name="The rest are worse")).to_be_hidden()
    ranking.press("1 w Enter")
    expect(ranking.hint).to_have_text("Not sent yet: B, C have no rank")
    assert work.rankings() == []


# ---- no response is acceptable


def test_no_response_is_acceptable_asks_once(work: Work, ranking: RankingPage) -> None:
    first = ranking.prompt.inner_text()
    ranking.press("1 x")
    question = ranking.page.get_by_role("group", name="No response is acceptable")
    expect(question).to_be_visible()
    ranking.press("2 Escape")
    expect(question).to_be_hidden()
    assert ranking.standings() == ["Rank 1", "Not ranked", "Not ranked"]
    ranking.press("x Enter")
    expect(ranking.prompt).not_to_have_text(first)
    (found,) = work.stored(1)
    assert (found.status, found.ranks, found.skip_reason) == (RankingStatus.UNACCEPTABLE, None, None)
    expect(ranking.progress).to_have_text("1 ranked")
    ranking.page.get_by_role("button", name="None acceptable").click()
    ranking.page.get_by_role("button", name="Send that").click()
    assert {each.status for each in work.stored(2)} == {RankingStatus.UNACCEPTABLE}


# ---- beside the ranks


def test_details_by_keyboard_reach_the_store(work: Work, asking: RankingPage) -> None:
    asking.press("1 2 3 k k")  # every response has its place; B, then A is marked
    asking.press("a q 6 g 1 b Escape j a a q 2 p 3 n")
    asking.page.keyboard.type("12 is right; C invents things.\nAnd u know")
    asking.page.keyboard.press("Control+Enter")
    (found,) = work.stored(1)
    assert by_place(found) == [1, 2, 3]
    assert in_shown_order(found.detail.acceptable, found.display_order) == [True, False, None]
    assert in_shown_order(found.detail.quality, found.display_order) == [6, 2, None]
    flags = in_shown_order(found.detail.flags, found.display_order)
    assert flags == [(DEFAULT_FLAGS[0], DEFAULT_FLAGS[10]), (), ()]
    assert (found.detail.strength, found.comment) == (3, "12 is right; C invents things.\nAnd u know")


def test_details_by_mouse_reach_the_store(work: Work, asking: RankingPage) -> None:
    page = asking.page
    for letter, rank in (("A", "2"), ("B", "1"), ("C", "2")):
        page.get_by_role("radiogroup", name=f"Rank of response {letter}").get_by_role("radio", name=rank).click()
    page.get_by_role("radiogroup", name="Is response B acceptable?").get_by_role("radio", name="Not").click()
    page.get_by_role("radiogroup", name="Quality of response C").get_by_role("radio", name="4").click()
    page.locator(".card", has=page.get_by_text("C", exact=True)).get_by_role("button", name="Flags").click()
    page.get_by_role("group", name="Flags of response C").get_by_label("Violent content").check()
    page.get_by_role("group", name="Flags of response C").get_by_role("button", name="Close").click()
    page.get_by_role("radiogroup", name="How much better").get_by_role("radio", name="1 negligibly").click()
    page.get_by_role("textbox", name="Why this order?").fill("so so")
    asking.submit.click()
    (found,) = work.stored(1)
    shown = found.display_order
    assert by_place(found) == [2, 1, 2]
    assert in_shown_order(found.detail.acceptable, shown) == [None, False, None]
    assert in_shown_order(found.detail.quality, shown) == [None, None, 4]
    assert in_shown_order(found.detail.flags, shown) == [(), (), ("Violent content",)]
    assert (found.detail.strength, found.comment) == (1, "so so")


def test_details_slow_nobody_down_who_does_not_use_them(work: Work, asking: RankingPage) -> None:
    asking.press("1 2 3 Enter")
    (found,) = work.stored(1)
    assert (found.detail, found.comment) == (Detail(), "")


def test_details_come_back_after_a_reload_and_go_with_undo(work: Work, asking: RankingPage) -> None:
    asking.press("1 k a q 5 g 2 Escape n")
    asking.page.keyboard.type("half a thought")
    asking.press("Escape")
    eventually(work.drafts, is_good=lambda found: bool(found) and found[0].get("rationale") == "half a thought")
    asking.page.reload()
    asking.ready()
    expect(asking.page.get_by_role("textbox", name="Why this order?")).to_have_value("half a thought")
    name = f"Response A. Rank 1. Acceptable. Quality 5. Flags: {DEFAULT_FLAGS[1]}."
    expect(asking.cards.first).to_have_attribute("aria-label", name)
    asking.press("k a u")  # yes, then no, and back
    expect(asking.cards.first).to_have_attribute("aria-label", name)


def test_they_go_with_no_response_is_acceptable_too(work: Work, asking: RankingPage) -> None:
    asking.press("g 7 g x Enter")
    (found,) = work.stored(1)
    assert in_shown_order(found.detail.flags, found.display_order) == [(DEFAULT_FLAGS[6],), (), ()]


def test_keys_of_what_is_not_asked_do_nothing(work: Work, ranking: RankingPage) -> None:
    ranking.press("a q 1 p 2 g n 3")
    assert ranking.standings() == ["Rank 1", "Rank 2", "Rank 3"]
    ranking.press("Enter")
    (found,) = work.stored(1)
    assert (found.detail, found.comment) == (Detail(), "")


def test_a_flag_that_is_gone_is_refused_and_the_ranking_comes_back(work: Work, asking: RankingPage) -> None:
    asking.press("1 2 3 k k g 1 Escape")
    work.ask(flags=("Only this",), **EVERYTHING)
    asking.press("Enter")
    expect(asking.notice).to_contain_text("is not a flag of this project", timeout=20_000)
    asking.expect_saved()
    assert work.rankings() == []
    asking.page.reload()
    asking.ready()
    assert asking.order() == "A > B > C"
    asking.press("Enter")
    assert work.stored(1)[0].detail == Detail()


def test_the_field_for_reasons_keeps_its_keys(work: Work, asking: RankingPage) -> None:
    asking.press("1 2 3 n")
    asking.page.keyboard.type("sx?hz")
    asking.page.keyboard.press("Enter")
    asking.page.keyboard.type("w")
    field = asking.page.get_by_role("textbox", name="Why this order?")
    expect(field).to_have_value("sx?hz\nw")
    assert work.rankings() == []
    asking.press("Escape Enter")
    assert work.stored(1)[0].comment == "sx?hz\nw"


def test_texts_of_flags_are_only_text(work: Work, new_page: NewPage) -> None:
    make_task(work.store, work.project)
    work.ask(flags=("<b>bold</b>", "two"), ask_flags=True)
    ranking = RankingPage(new_page(work.server, work.person)).open(work.url)
    ranking.press("g 1")
    expect(ranking.cards.first.get_by_role("checkbox", name="<b>bold</b>")).to_be_checked()
    assert ranking.page.locator(".ranker .flags b").count() == 0
