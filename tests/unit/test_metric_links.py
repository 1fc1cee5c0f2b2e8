"""docs/metrics.md leads from each metric to the line that makes it; no torch is loaded for this."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from training.measures.equal_kl import KL, SCORE

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "metrics.md"
ROW = re.compile(r"\| \[`(?P<name>[a-z0-9_/]+)`\]\(\.\./(?P<file>[a-z_/]+\.py)#L(?P<line>\d+)\) \|")
LINKS = [match.groupdict() for match in map(ROW.match, PAGE.read_text(encoding="utf-8").splitlines()) if match]


def makes(line: str, name: str) -> bool:
    """Whether a string of the line is the name, or becomes it: what stands in braces may be anything."""
    for text in re.findall(r'"([^"]+)"', line):
        pattern = "[a-z0-9_/]+".join(re.escape(part) for part in re.split(r"\{[^}]*\}", text))
        if re.fullmatch(pattern, name) and re.search("[a-z]{2}", re.sub(r"\{[^}]*\}", "", text)):
            return True
    return any(value == name and re.match(rf"\s*{key}:", line) for key, value in {"SCORE": SCORE, "KL": KL}.items())


def test_every_metric_has_a_link() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if re.match(r"\| \[?`[a-z_]+/", line)]
    assert len(rows) == len(LINKS) > 80
    assert [row for row in rows if not ROW.match(row)] == []


@pytest.mark.parametrize("link", LINKS, ids=lambda link: f"{link['name']} {link['file']}")
def test_a_link_leads_to_the_line_that_makes_the_metric(link: dict[str, str]) -> None:
    lines = (ROOT / link["file"]).read_text(encoding="utf-8").splitlines()
    places = [number for number, line in enumerate(lines, start=1) if makes(line, link["name"])]
    assert int(link["line"]) in places, f"{link['name']} is made in {link['file']} at one of the lines {places}"
