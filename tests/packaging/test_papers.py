"""The papers: pages that can be read, links that lead somewhere, rooms with a purpose."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
OLD = {"history.md"}  # says what was, under the names of then
FOLDERS = sorted(
    {path.parent for top in ("app", "labeling", "training", "data") for path in (ROOT / top).rglob("*.py")}
)
VERSIONS = ROOT / "data" / "store" / "migrations" / "versions"
MOST_WORDS, MOST_MODULES, TEN_MINUTES = 90, 16, 1_400
TWO_MINUTES = 400


def paragraphs(page: Path) -> Iterator[str]:
    """Paragraphs and items of lists; no tables, code, headings or pictures."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for block in re.split(r"\n{2,}", text):
        if not block.startswith(("    ", "|", "#", "!")):
            yield from re.split(r"\n(?=\s*(?:- |\d+\. ))", block)


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in OLD], ids=lambda page: page.name)
def test_no_paragraph_is_too_long_to_be_read(page: Path) -> None:
    assert [(len(text.split()), text[:60]) for text in paragraphs(page) if len(text.split()) > MOST_WORDS] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in OLD], ids=lambda page: page.name)
def test_every_module_that_is_named_is_there(page: Path) -> None:
    named = re.findall(
        r"`((?:app|data|labeling|training|tests|benchmarks)/[\w/]+\.py)`", page.read_text(encoding="utf-8")
    )
    assert [path for path in named if not (ROOT / path).is_file()] == []


def test_what_a_new_maintainer_and_a_user_read_is_short() -> None:
    assert len((ROOT / "docs" / "design.md").read_text(encoding="utf-8").split()) < TEN_MINUTES
    assert len((ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split()) < TWO_MINUTES


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.relative_to(ROOT).as_posix())
def test_a_folder_has_a_purpose_a_place_on_the_map_and_few_modules(folder: Path) -> None:
    doc = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8")))
    assert doc
    assert doc.split("\n\n")[0].endswith(".")
    name = folder.relative_to(ROOT).as_posix()
    assert folder == VERSIONS or f"`{name}`" in (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    assert (
        folder == VERSIONS or len([path for path in folder.glob("*.py") if path.name != "__init__.py"]) <= MOST_MODULES
    )


def test_the_commits_that_show_how_are_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    hashes = re.findall(r"\(([0-9a-f]{7})\)", text)
    assert len(hashes) >= 11

    def git(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)

    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        pytest.skip("no history of commits here")  # not `skip`: a copy without it is nobody's to mend
    assert [name for name in hashes if git("cat-file", "-e", f"{name}^{{commit}}").returncode] == []
