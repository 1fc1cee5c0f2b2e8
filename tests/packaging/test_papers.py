"""The papers: pages that can be read, names that lead somewhere, folders with a purpose."""

from __future__ import annotations

import ast
import functools
import io
import re
import shutil
import subprocess
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from data.packages import PACKAGES

ROOT = Path(__file__).resolve().parents[2]
DESIGN = ROOT / "docs" / "design.md"
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
MODULES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
FOLDERS = sorted({path.parent for path in MODULES})
VERSIONS = ROOT / "data" / "store" / "migrations" / "versions"  # grows by one with each change of the tables
MOST_WORDS, MOST_MODULES = 90, 16
TEN_MINUTES, TWO_MINUTES = 1_400, 450  # words
MADE_UP = {"data.prompt"}  # what looks like a path or a module of ours and is an example

PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)+\.(?:py|js|css|md|toml)\b")
DOTTED = re.compile(rf"(?<![\w./-])(?:{'|'.join(PACKAGES)})(?:\.\w+)+")
NAMED_IN = re.compile(r"`([\w/]+\.(?:py|js))`\s+\(((?:`\w+`(?:,\s)?)+)\)")  # `a/file.py` (`name`, `another`)


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def prose(page: Path) -> str:
    """The page without fenced examples."""
    return re.sub(r"^```.*?^```$", "", text_of(page), flags=re.DOTALL | re.MULTILINE)


def paragraphs(page: Path) -> Iterator[str]:
    """Paragraphs and items of lists: no tables, code, headings or pictures."""
    for block in re.split(r"\n\s*\n", prose(page)):
        if not block.startswith(("    ", "|", "#", "![")):
            yield from re.split(r"\n(?=\s*(?:- |\d+\. ))", block)


@functools.cache
def anchors(page: Path) -> set[str]:
    """What `#...` can lead to, as GitHub names headings."""
    heads = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


def leads_somewhere(page: Path, link: str) -> bool:
    name, _, place = link.partition("#")
    target = (page.parent / name).resolve() if name else page
    if line := re.fullmatch(r"L(\d+)", place):
        return target.is_file() and int(line[1]) <= len(text_of(target).splitlines())
    return target.exists() and (not place or place in anchors(target))


def has_file(path: str, beside: Path) -> bool:
    """Whether a path is there, written from the root, from the folder of tests, or from where it is named."""
    return any((base / path).exists() for base in (ROOT, ROOT / "tests", beside))


def has_name(dotted: str) -> bool:
    """Whether a module is there, and has what is named behind it."""
    parts = dotted.split(".")
    if dotted in MADE_UP:
        return True
    for n in range(len(parts), 0, -1):
        place = ROOT.joinpath(*parts[:n])
        for module in (place.with_suffix(".py"), place / "__init__.py"):
            if module.is_file():
                return all(re.search(rf"\b{part}\b", text_of(module)) for part in parts[n:])
    return False


def said_in(module: Path) -> str:
    """The docstrings and comments of a module."""
    source = text_of(module)
    tree = ast.parse(source)
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docs = [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, kinds)]
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return "\n".join([*docs, *(token.string for token in tokens if token.type == tokenize.COMMENT)])


def by_name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_no_paragraph_is_too_long_to_be_read(page: Path) -> None:
    assert [(len(text.split()), text[:60]) for text in paragraphs(page) if len(text.split()) > MOST_WORDS] == []


def test_what_is_to_be_read_in_minutes_is_short() -> None:
    assert len(text_of(DESIGN).split()) < TEN_MINUTES
    for version in text_of(ROOT / "CHANGELOG.md").split("\n## "):
        assert len(version.split()) < TWO_MINUTES, version[:40]


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_every_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)\s]+)\)", prose(page))
    assert [link for link in links if not leads_somewhere(page, link)] == []


def test_the_design_leads_to_every_page() -> None:
    pages = {page.name for page in PAGES if page.parent == DESIGN.parent}
    assert pages - {DESIGN.name} - set(re.findall(r"\]\((\w+\.md)\)", text_of(DESIGN))) == set()


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_every_module_that_a_page_names_is_there(page: Path) -> None:
    quoted = " ".join(re.findall(r"`([^`]+)`", prose(page)))
    assert [path for path in PATH.findall(quoted) if not has_file(path, page.parent)] == []
    assert [name for name in DOTTED.findall(prose(page)) if not has_name(name)] == []


def test_every_function_that_a_page_names_is_in_its_module() -> None:
    named = [
        (path, name)
        for page in PAGES
        for path, names in NAMED_IN.findall(prose(page))
        for name in re.findall(r"\w+", names)
    ]
    assert len(named) > 20
    defined = r"(?:^|\n)\s*(?:def |class |async )?{}(?:\[.*\])?[(:]"
    assert [pair for pair in named if not re.search(defined.format(pair[1]), text_of(ROOT / pair[0]))] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_that_a_docstring_or_a_comment_names_is_there(package: str) -> None:
    wrong = []
    for module in MODULES:
        if module.is_relative_to(ROOT / package):
            said = said_in(module)
            wrong += [(by_name(module), path) for path in PATH.findall(said) if not has_file(path, module.parent)]
            quoted = " ".join(re.findall(r"`([^`]+)`", said))
            wrong += [(by_name(module), name) for name in DOTTED.findall(quoted) if not has_name(name)]
    assert wrong == []


@pytest.mark.parametrize("folder", FOLDERS, ids=by_name)
def test_a_folder_has_a_purpose_in_one_sentence_a_place_on_the_map_and_few_modules(folder: Path) -> None:
    purpose = (ast.get_docstring(ast.parse(text_of(folder / "__init__.py"))) or "").split("\n\n")[0]
    assert re.fullmatch(r"[^.]+(?:\.\w[^.]*)*\.", purpose), purpose  # one full stop, at the end
    assert f"`{by_name(folder)}`" in text_of(DESIGN)
    n_modules = len(list(folder.glob("*.py"))) - 1
    assert n_modules <= MOST_MODULES or folder == VERSIONS


def test_the_floors_on_the_map_are_those_of_the_contracts() -> None:
    contracts = tomllib.loads(text_of(ROOT / "pyproject.toml"))["tool"]["importlinter"]["contracts"]
    floors: dict[str, str] = {}
    for contract in contracts:
        if contract["name"].startswith("floors of "):
            for n, layer in enumerate(reversed(contract["layers"]), start=1):
                rooms = [room.strip().replace(".", "/") for room in layer.split("|")]
                floors |= {room: f"{floors.get(str(Path(room).parent), '')}.{n}".strip(".") for room in rooms}
    rows = re.findall(r"^\| ([\d.]+) \| `([\w/]+)`", text_of(DESIGN), re.MULTILINE)
    assert {room: floor for floor, room in rows} == {
        room: floor for room, floor in floors.items() if (ROOT / room).is_dir()
    }


def test_every_commit_that_shows_how_is_there() -> None:
    found = re.findall(r"\(([0-9a-f]{7}),\s\*([^*]+)\*\)", text_of(ROOT / "CONTRIBUTING.md"))
    named = [(name, " ".join(subject.split())) for name, subject in found]
    assert len(named) >= 11

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    is_checkout = (ROOT / ".git").exists() and shutil.which("git") is not None
    if not is_checkout or git("rev-parse", "--is-shallow-repository") != "false":
        pytest.skip("the commits that CONTRIBUTING.md names can't be looked up: this is no checkout with its history")
    assert [pair for pair in named if git("log", "-1", "--format=%s", pair[0]) != pair[1]] == []
