"""Help for reading: raw texts, the common start folded, differences by words, two responses side by side, badges."""

from __future__ import annotations

import pytest
from browser_pages import NewPage, RankingPage, Work
from factories import make_project, make_task
from playwright.sync_api import expect

START = " ".join(f"word{n}" for n in range(80)) + ". "
TEXTS = (f"{START}It swims fast.", f"{START}It swims slowly.", f"{START}It **stays** here.")


@pytest.fixture
def reading(work: Work, new_page: NewPage) -> RankingPage:
    """A page whose three responses begin with the same 81 words and then differ."""
    project = make_project(work.store)
    make_task(work.store, project, *TEXTS, prompt="Does it **swim**?")
    make_task(work.store, project, "a", "b", "c", prompt="Another")
    work.project = project
    return RankingPage(new_page(work.server, work.person)).open(work.url)


def test_the_same_start_is_folded_and_opened(reading: RankingPage) -> None:
    folded = reading.page.locator(".ranker .folded")
    expect(folded).to_have_count(3)
    expect(folded.first).to_have_text("The first 81 words are the same in all")
    assert sorted(text.split("\n")[-1] for text in reading.texts()) == [
        "stays here.", "swims fast.", "swims slowly.",
    ]  # fmt: skip
    reading.press("f")
    expect(folded).to_have_count(0)
    assert all("word0 word1" in text for text in reading.texts())
    expect(reading.live).to_contain_text("The whole texts are shown")
    reading.page.get_by_role("button", name="Fold the same start").click()
    expect(folded).to_have_count(3)


def test_differences_from_each_response_in_turn(reading: RankingPage) -> None:
    reading.press("d")
    compared = reading.page.locator(".ranker .compared")
    expect(compared).to_have_count(3)
    expect(compared.first).to_have_text("the others are compared with this one")
    assert reading.page.locator(".ranker ins").count() == reading.page.locator(".ranker del").count() == 2
    reading.press("d")
    expect(compared.nth(1)).to_have_text("the others are compared with this one")
    expect(reading.live).to_contain_text("Differences from response B. A: ")
    reading.press("d d")
    expect(compared).to_have_count(0)
    expect(reading.live).to_contain_text("Differences are no longer shown")


def test_raw_text_and_back(reading: RankingPage) -> None:
    assert reading.prompt.inner_text() == "Does it swim?"
    reading.press("m")
    assert reading.prompt.inner_text() == "Does it **swim**?"
    assert any("**stays**" in text for text in reading.texts())
    reading.press("1 2 3 Enter")
    expect(reading.prompt).to_have_text("Another")
    expect(reading.page.get_by_role("button", name="Raw text")).to_have_attribute("aria-pressed", "true")
    reading.press("m")
    expect(reading.page.get_by_role("button", name="Raw text")).to_have_attribute("aria-pressed", "false")


def test_two_side_by_side(reading: RankingPage) -> None:
    visible = reading.page.locator(".ranker .card:visible .letter")
    reading.press("v")
    assert visible.all_inner_texts() == ["A", "B"]
    boxes = [reading.cards.nth(n).bounding_box() for n in (0, 1)]
    assert boxes[0] is not None
    assert boxes[1] is not None
    assert boxes[0]["y"] == boxes[1]["y"]
    reading.press("ArrowRight")
    assert reading.marked() == "B"
    reading.press("ArrowDown")  # C in the place of A
    assert (reading.marked(), sorted(visible.all_inner_texts())) == ("B", ["B", "C"])
    expect(reading.live).to_contain_text("Side by side: C and B.")
    reading.press("1")  # ranks B; what is next and open, C, is there already
    assert reading.standings() == ["Not ranked", "Rank 1", "Not ranked"]
    reading.press("2")  # ranks C; A, the last open one, comes in its place
    assert (reading.marked(), sorted(visible.all_inner_texts())) == ("A", ["A", "B"])
    reading.press("Escape")
    assert visible.all_inner_texts() == ["A", "B", "C"]
    reading.press("3 Enter")
    expect(reading.prompt).to_have_text("Another")
