"""Help for reading: raw texts, the common start folded, differences by words, two responses side by side, badges."""

from __future__ import annotations

from typing import Any

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


def diff(ranking: RankingPage, before: str, after: str) -> list[tuple[str, str]]:
    parts = ranking.module("ranker_diff", "return it.diffWords(given[0], given[1]);", [before, after])
    return [(part["kind"], part["text"]) for part in parts]


def test_differences_by_words(surface: RankingPage) -> None:
    assert diff(surface, "The cat sat.", "The dog sat.") == [
        ("same", "The "), ("removed", "cat"), ("added", "dog"), ("same", " sat."),
    ]  # fmt: skip
    assert diff(surface, "a b c d", "a x y d") == [
        ("same", "a "), ("removed", "b c"), ("added", "x y"), ("same", " d"),
    ]  # fmt: skip
    assert diff(surface, "same", "same") == [("same", "same")]
    assert diff(surface, "", "new") == [("added", "new")]
    assert diff(surface, "\u4f60\u597d\u4e16\u754c", "\u4f60\u4eec\u4e16\u754c") == [
        ("same", "\u4f60"), ("removed", "\u597d"), ("added", "\u4eec"), ("same", "\u4e16\u754c"),
    ]  # fmt: skip
    emoji = "\U0001f469\u200d\U0001f467"
    assert diff(surface, f"a {emoji}", f"a {emoji}\ufe0f!")[0] == ("same", "a "), "an emoji is never cut"


def test_differences_put_together_are_the_texts(surface: RankingPage) -> None:
    pairs = [
        ("  leading\n\nand  double ", "leading\n\nand double"),
        (" ".join(str(n * n % 97) for n in range(900)), " ".join(str(n * n % 89) for n in range(900))),
        ("x" * 5000, "y" * 5000),
    ]
    for before, after in pairs:
        parts = diff(surface, before, after)
        assert "".join(text for kind, text in parts if kind != "added") == before
        assert "".join(text for kind, text in parts if kind != "removed") == after


@pytest.mark.parametrize(
    ("texts", "start"),
    [
        (["one two three", "one two four"], "one two "),
        (["one two", "one twofold"], "one "),
        (["same", "same"], ""),
        (["a **b** c", "a **b** d"], ""),  # no cut within a line that has marks of Markdown
        (["line\n```\nx = 1\n", "line\n```\nx = 2\n"], "line\n"),  # nor within code
        (["intro\n\n- a\n- b", "intro\n\n- a\n- c"], "intro\n\n- a\n"),
        (["\u4f60\u597d\u4e16\u754c", "\u4f60\u597d\u5417"], "\u4f60\u597d"),
    ],
)
def test_the_common_start(surface: RankingPage, texts: list[str], start: str) -> None:
    n: Any = surface.module("ranker_diff", "return it.commonPrefix(given);", texts)
    wanted = len(start) if start else (len(texts[0]) if texts[0] == texts[1] else 0)
    assert n == wanted


def test_badges_of_length_and_code(surface: RankingPage) -> None:
    lines = "return [it.lengthBadge(given), it.codeBadge(given)];"
    assert surface.module("ranker_diff", lines, "one two-three\nfour") == ["3 words \u00b7 18 characters", ""]
    text = "See:\n```python\na\nb\n```\n```js\nc\n```"
    assert surface.module("ranker_diff", lines, text)[1] == "code: python, js, 3 lines"
    assert surface.module("ranker_diff", lines, "\u65e5\u672c\u8a9e\u3067\u3059")[0] == "5 characters"


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
