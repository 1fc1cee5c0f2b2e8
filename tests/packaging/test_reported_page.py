"""docs/reported.md names tests; each of them is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reported.md"


def named() -> list[tuple[str, str]]:
    """(file, words) of each test that the page names; without words the file alone."""
    found = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cell = line.strip("|").split("|")[-1]
        for file, words in re.findall(r"`([\w/]+\.py)`([^`;]*)", cell):
            plain = re.sub(r"\(.*?\)", "", words).strip(" ,")
            found += [(file, each.strip()) for each in plain.split(",")] if plain else [(file, "")]
    return found


@pytest.mark.parametrize(("file", "words"), named(), ids=lambda each: each)
def test_what_the_page_names_is_there(file: str, words: str) -> None:
    folder = ROOT if file.startswith("benchmarks/") else ROOT / "tests"
    text = (folder / file).read_text(encoding="utf-8")
    parts = [re.sub(r"\W+", "_", part.strip()) for part in words.split("...") if part.strip()]
    names = re.findall(r"^def (test_\w+)", text, re.MULTILINE)
    assert not parts or any(re.search(".*".join(map(re.escape, parts)), name) for name in names), names


def test_the_page_names_many() -> None:
    assert len(named()) > 60
