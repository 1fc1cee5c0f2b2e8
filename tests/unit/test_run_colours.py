"""The colours of runs that lie over each other: apart for everybody, on either ground, and seen on it.

Colour blindness by Machado, Oliveira and Fernandes 2009, severity 1; distance is CIE 1976 in L*a*b*.
"""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path

import pytest

from app.widgets.runs.overlay import MAX_FURTHER

LIVE = Path(__file__).parents[2] / "app" / "frontend" / "live.js"
LEAST_DISTANCE = 25.0
LEAST_CONTRAST = 3.0  # WCAG 2.2, 1.4.11
SEEN = {
    "by most": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "without red": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "without green": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
    "without blue": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.3039)),
}
Three = tuple[float, float, float]


@pytest.mark.parametrize(("name", "ground"), [("RUNS_ON_LIGHT", "#ffffff"), ("RUNS_ON_DARK", "#0e1117")])
def test_runs_are_told_apart_by_everybody(name: str, ground: str) -> None:
    colours = _colours(name)
    assert len(colours) == MAX_FURTHER + 1
    for whose, matrix in SEEN.items():
        seen = {each: _lab(_through(matrix, _linear(each))) for each in colours}
        for one, other in itertools.combinations(colours, 2):
            assert math.dist(seen[one], seen[other]) >= LEAST_DISTANCE, f"{one} and {other}, seen {whose}"
    for each in colours:
        assert _contrast(each, ground) >= LEAST_CONTRAST, f"{each} on {ground}"


def test_black_and_white_are_as_far_apart_as_can_be() -> None:
    assert math.dist(_lab(_linear("#000000")), _lab(_linear("#ffffff"))) == pytest.approx(100, abs=0.1)
    assert _contrast("#000000", "#ffffff") == pytest.approx(21)


def _colours(name: str) -> list[str]:
    found = re.search(rf"const {name} = \[(.*?)\]", LIVE.read_text())
    assert found
    return re.findall(r"#[0-9a-f]{6}", found[1])


def _linear(colour: str) -> Three:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts)
    return red, green, blue


def _through(matrix: tuple[Three, Three, Three], light: Three) -> Three:
    red, green, blue = (
        min(1.0, max(0.0, sum(by * part for by, part in zip(row, light, strict=True)))) for row in matrix
    )
    return red, green, blue


def _lab(light: Three) -> Three:
    red, green, blue = light
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089
    a, b, c = (each ** (1 / 3) if each > 0.008856 else 7.787 * each + 16 / 116 for each in (x, y, z))
    return 116 * b - 16, 500 * (a - b), 200 * (b - c)


def _contrast(one: str, other: str) -> float:
    dark, bright = sorted(
        sum(by * part for by, part in zip((0.2126, 0.7152, 0.0722), _linear(each), strict=True))
        for each in (one, other)
    )
    return (bright + 0.05) / (dark + 0.05)
