"""How texts of people and models are shown: Markdown and formulas, never HTML, nothing fetched, nothing unseen."""

from __future__ import annotations

from typing import Any

import pytest
from browser_pages import NewPage, RankingPage, Work
from factories import make_project, make_task
from playwright.sync_api import expect

SHOW = """
  const element = document.createElement("div");
  it.showText(element, given[0], { raw: given[1] });
  await (await import("/_stcore/bidi-components/rankloop.ranker/ranker_maths.js")).load();
  await new Promise((done) => setTimeout(done, 0));
  return { dir: element.dir, html: element.innerHTML, text: element.textContent,
           tags: [...element.querySelectorAll("*")].map((each) => each.localName) };"""


def shown(ranking: RankingPage, text: str, *, raw: bool = False) -> dict[str, Any]:
    found: dict[str, Any] = ranking.module("ranker_text", SHOW, [text, raw])
    return found


def test_html_stays_text(surface: RankingPage) -> None:
    for text in (
        "<script>alert(1)</script>",
        "a <img src=x onerror=alert(1)> b",
        "<div>\n\n**x**\n\n</div>",
        "a < b &amp; &lt;b&gt;",
        "[x](javascript:alert(1)) [y](data:text/html,z) [z](//example.org)",
        "<!-- note -->",
    ):
        found = shown(surface, text)
        assert {"script", "img", "a", "button", "iframe"}.isdisjoint(found["tags"]), text
        visible = text.replace("**", "")
        assert "".join(found["text"].split()) == "".join(visible.split()), "nothing is swallowed"


def test_markdown_becomes_elements(surface: RankingPage) -> None:
    for text, tags in (
        ("**a** and *b*", ["p", "strong", "em"]),
        ("1. one\n2. two\n   - in", ["ol", "li", "li", "ul", "li"]),
        ("```python\ndef f():\n    return 1\n```", ["div", "div", "pre", "code", "span", "span"]),
        ("use `x = 1`", ["p", "code"]),
        ("> said\n> twice", ["blockquote", "p", "br"]),
        ("|a|b|\n|-|-|\n|1|2|", ["div", "table", "thead", "tr", "th", "th", "tbody", "tr", "td", "td"]),
        ("# Title", ["div"]),
        ("a\nb", ["p", "br"]),
        ("x\n\n---\n\ny", ["p", "hr", "p"]),
    ):
        assert shown(surface, text)["tags"] == tags, text


def test_code_keeps_its_indentation(surface: RankingPage) -> None:
    code = "def f(x):\n\tif x:\n        return 1\n"
    assert code.strip() in shown(surface, f"Look:\n\n```\n{code}```\n")["text"]


def test_what_markdown_would_swallow_stays(surface: RankingPage) -> None:
    for text in ("[1]: https://example.org", "a&nbsp;b &copy;", "Title\n=====", "   indented", "a\\", "  "):
        found = shown(surface, text)
        wanted = "(nothing but white space: 2 characters)" if not text.strip() else text
        assert "".join(found["text"].split()) == "".join(wanted.split()), text
    assert shown(surface, "")["text"] == "(empty)"


def test_raw_shows_every_character(surface: RankingPage) -> None:
    text = "# a **b** $x$\n    `c` [d](https://e.example)"
    assert shown(surface, text, raw=True)["text"] == text


@pytest.mark.parametrize(
    ("text", "n_formulas"),
    [
        ("$5 and $6", 0),
        ("from $5 to $6 or 3$", 0),
        ("a $100,000 house, $20k down", 0),
        ("$PATH and $HOME", 0),
        ("costs $5, or $x^2$", 1),
        ("$e^{i\\pi}$ and \\(a+b\\)", 2),
        ("$$\\int_0^1 x dx$$", 1),
        ("\\[ x = \\frac{1}{2} \\]", 1),
        ("the $n$th and $x$", 2),
        ("`$x^2$` is code", 0),
        ("```\n$x^2$\n```", 0),
        ("\\$x^2\\$", 0),
    ],
)
def test_what_counts_as_a_formula(surface: RankingPage, text: str, n_formulas: int) -> None:
    found = shown(surface, text)
    assert found["tags"].count("math") == n_formulas
    if not n_formulas:
        assert "".join(found["text"].split()) == "".join(text.replace("`", "").replace("\\", "").split())


def test_a_formula_that_is_none_shows_its_source_and_why(surface: RankingPage) -> None:
    found = shown(surface, "$\\frac{1}$")
    assert found["text"] == "$\\frac{1}$"
    assert "Not shown as a formula" in found["html"]
    trusting = shown(surface, "$\\href{javascript:alert(1)}{x^2}$ $\\includegraphics{https://example.org/x.png}$")
    assert "href=" not in trusting["html"]
    assert "img" not in trusting["tags"]


@pytest.mark.parametrize(
    ("text", "direction"),
    [
        ("hello", "ltr"),
        ("\u0645\u0631\u062d\u0628\u0627 \u0628\u0643\u0645", "rtl"),
        ("Python \u0647\u064a \u0644\u063a\u0629 \u0628\u0631\u0645\u062c\u0629 \u0633\u0647\u0644\u0629", "rtl"),
        ("\u0627\u0643\u062a\u0628:\n```python\nprint('a long line of code that has many letters')\n```", "rtl"),
        ("The word \u0634\u0643\u0631\u0627 means thanks in Arabic, and is said often", "ltr"),
        ("\u65e5\u672c\u8a9e", "ltr"),
        ("\u05e9\u05dc\u05d5\u05dd", "rtl"),
        ("12 34", "ltr"),
    ],
)
def test_the_direction_of_a_message(surface: RankingPage, text: str, direction: str) -> None:
    assert shown(surface, text)["dir"] == direction


def test_code_in_a_text_from_right_to_left_runs_left_to_right(surface: RankingPage) -> None:
    found = shown(surface, "\u0627\u0643\u062a\u0628 `x = 1`:\n\n```\nf(x)\n```")
    assert found["html"].count('dir="ltr"') == 2


def test_letters_that_nobody_sees_are_shown(surface: RankingPage) -> None:
    for text, marks in (
        ("a\u200bb", ["ZWSP"]),
        ("user\u202etxt.exe", ["RLO"]),
        ("\u2067x\u2069", ["RLI", "PDI"]),
        ("be\u0007ll", ["BEL"]),
        ("so\u00adft", ["SHY"]),
        ("\U000e0041", ["U+E0041"]),
    ):
        for raw in (False, True):
            found = shown(surface, text, raw=raw)
            assert found["html"].count("hidden-letter") == len(marks), text
            assert all(f">{mark}<" in found["html"] for mark in marks)


def test_joiners_that_a_script_needs_stay(surface: RankingPage) -> None:
    for text in (
        "\U0001f469\u200d\U0001f469\u200d\U0001f467",  # a family
        "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f",  # the flag of Scotland
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",  # Persian with its joiner
        "\u2764\ufe0f",
        "e\u0301 \u4f60\u597d",
    ):
        assert shown(surface, text)["text"] == text
    found = shown(surface, "te\u200dst")
    assert "ZWJ" in found["text"], "within Latin letters a joiner hides"


def test_deep_and_long_texts_are_shown_whole_and_soon(surface: RankingPage) -> None:
    for text in (">" * 3000 + " deep", "a*" * 10_000, "[" * 20_000, "$$ " * 5000, "- " * 2000 + "x", "`" * 9999 + " a"):
        found = shown(surface, text)
        assert found["text"].strip(), text[:10]
    assert "deep" in shown(surface, ">" * 3000 + " deep")["text"]


def test_a_link_opens_only_with_a_second_click(work: Work, new_page: NewPage) -> None:
    project = make_project(work.store)
    image = "![a cat](https://pictures.example/cat.png)"
    make_task(work.store, project, f"See [the docs](https://docs.example/a?b=1). {image}", "none", "three")
    work.project = project
    page = new_page(work.server, work.person)
    ranking = RankingPage(page).open(work.url)
    link = page.get_by_role("button", name="the docs")
    expect(page.locator(".ranker .image")).to_contain_text("Image, not loaded")
    expect(page.locator(".ranker .image")).to_contain_text("https://pictures.example/cat.png")
    assert page.locator(".ranker a").count() == 0
    link.click()
    anchor = page.locator(".ranker .leave a")
    expect(anchor).to_have_text("https://docs.example/a?b=1")
    expect(anchor).to_be_focused()
    assert (anchor.get_attribute("rel"), anchor.get_attribute("target")) == ("noopener noreferrer", "_blank")
    link.press("Enter")
    expect(anchor).to_have_count(0)
    link.press("1")  # ranking goes on from there
    assert "Rank 1" in ranking.standings()
