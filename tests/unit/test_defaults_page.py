"""docs/defaults.md: the fields that it names are there, and have the defaults that it says."""

from __future__ import annotations

import operator
import re
from pathlib import Path

import pytest

from training.launch import config
from training.launch.config import CRITIC_LEARNING_RATES, LEARNING_RATES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "defaults.md"
NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:e-?\d+)?(?![\w.])")
ROWS = [line.split("|")[2:4] for line in PAGE.read_text(encoding="utf-8").splitlines() if "Config." in line]
NAMED = [(*name.split(".", 1), said) for fields, said in ROWS for name in re.findall(r"`(\w+\.[\w.]+)`", fields)]


def defaults_of(kind: type, field: str) -> set[float]:
    """The default of a field; where it is the usual one for the kind of run, those with adapters and without."""
    if field == "optimiser.critic_learning_rate":
        return set(CRITIC_LEARNING_RATES)
    if field == "optimiser.learning_rate":
        return set(LEARNING_RATES[kind])
    return {float(operator.attrgetter(field)(kind()))}


@pytest.mark.parametrize(("kind", "field", "said"), NAMED)
def test_a_default_is_what_the_page_says(kind: str, field: str, said: str) -> None:
    assert defaults_of(getattr(config, kind), field) <= {float(each) for each in NUMBER.findall(said)}


def test_the_page_names_fields() -> None:
    assert len(NAMED) > 20
