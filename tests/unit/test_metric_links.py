"""docs/metrics.md leads from each metric to the line that makes it; no torch is loaded for this.

When lines move, the failure has the link to write.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from training.measures.equal_kl import KL, SCORE

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8").splitlines()
METRIC = re.compile(r"\| \[?`[a-z_]+/")
ROW = re.compile(r"\| \[`(?P<name>[a-z0-9_/]+)`\]\(\.\./(?P<link>training/[a-z_/]+\.py#L\d+)\) \|")
ROOMS = {"## Reward runs": "training/reward/", "## PPO runs": "training/ppo/"}  # of two kinds that share names
# A string that becomes a name: a key, what is assigned to under a key, or what a key of another library is called.
MADE = re.compile(r'(?<!!= )"([a-z_]+/[^"]+)"(?::|\] \+?= )|(?<=": )"([a-z_]+/[^"]+)"')
CONSTANTS = {"SCORE": SCORE, "KL": KL}


def rows() -> list[tuple[str, str, str]]:
    """(metric, link, the room that makes it) of each row of the page."""
    found, heading = [], ""
    for line in PAGE:
        heading = line if line.startswith("## ") else heading
        if match := ROW.match(line):
            found.append((match["name"], match["link"], ROOMS.get(heading, "training/")))
    return found


def made_in(line: str) -> list[str]:
    """The names that a line of code makes; in an f-string, what is in braces is left open."""
    named = [value for constant, value in CONSTANTS.items() if re.match(rf"\s*{constant}: ", line)]
    return named + [match[1] or match[2] for match in MADE.finditer(line)]


def closeness(text: str, name: str) -> int:
    """How many letters of the name stand in the text; 0 if the text can't become it."""
    given = re.split(r"\{[^}]*\}", text)
    return len("".join(given)) if re.fullmatch("[a-z0-9_]+".join(map(re.escape, given)), name) else 0


MAKERS = [
    (f"{path.relative_to(ROOT).as_posix()}#L{number}", text)
    for path in sorted((ROOT / "training").rglob("*.py"))
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
    for text in made_in(line)
]


def links_of(name: str, room: str) -> list[str]:
    """The lines that make the metric: those whose text comes closest to its name."""
    close = [(closeness(text, name), link) for link, text in MAKERS if link.startswith(room)]
    return [link for n, link in close if n == max(close)[0] > 0]


def test_every_metric_of_the_page_has_a_link() -> None:
    assert [line[:60] for line in PAGE if METRIC.match(line) and not ROW.match(line)] == []
    assert len(rows()) > 80


@pytest.mark.parametrize(("name", "link", "room"), rows())
def test_a_link_leads_to_the_line_that_makes_the_metric(name: str, link: str, room: str) -> None:
    right = links_of(name, room)
    assert right, f"nothing under {room} makes `{name}`, which docs/metrics.md has"
    assert link in right, f"in docs/metrics.md, let `{name}` lead to ../{' or ../'.join(right)}"
