"""docs/reported.md and docs/token_inspector.md name tests; each of them is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = {"reported.md": 60, "token_inspector.md": 25}  # and how many tests each names at least


def named(page: str) -> list[tuple[str, str]]:
    """(file, words) of each test that the page names; without words the file alone."""
    found = []
    for line in (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines():
        cell = line.strip("|").split("|")[-1]
        for file, words in re.findall(r"`([\w/.]+\.(?:py|mjs))`([^`;]*)", cell):
            plain = re.sub(r"\(.*?\)", "", words).strip(" ,")
            found += [(file, each.strip()) for each in plain.split(",")] if plain else [(file, "")]
    return found


@pytest.mark.parametrize(("file", "words"), [each for page in PAGES for each in named(page)], ids=lambda each: each)
def test_what_the_page_names_is_there(file: str, words: str) -> None:
    folder = ROOT if file.startswith("benchmarks/") else ROOT / "tests"
    text = (folder / file).read_text(encoding="utf-8")
    parts = [re.sub(r"\W+", "_", part.strip()) for part in words.split("...") if part.strip()]
    quoted = re.findall(r"""\btest\(["`](.+)["`],""", text)  # of JavaScript
    names = [*re.findall(r"^def (test_\w+)", text, re.MULTILINE), *(re.sub(r"\W+", "_", each) for each in quoted)]
    assert not parts or any(re.search(".*".join(map(re.escape, parts)), name) for name in names), names


@pytest.mark.parametrize("page", PAGES)
def test_every_line_of_a_page_names_a_test(page: str) -> None:
    lines = [
        line
        for line in (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines()
        if line.startswith("|") and not line.startswith("|---") and not line.endswith("| test |")
    ]
    assert not [line for line in lines if not re.search(r"\.(?:py|mjs)`", line.strip("|").split("|")[-1])]
    assert len(named(page)) > PAGES[page]
