"""One definition of a configuration field, and what is said of a value that does not fit it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from data.errors import InvalidConfig
from data.fields import describe, from_dict, from_words, option, to_dict


@dataclass(frozen=True)
class Example:
    rate: float = option(0.5, "how fast", unit="1/s", min=0.0, max=1.0, group="pace")
    size: int = option(4, "how many", min=1)
    name: str = option("a", "which", choices=("a", "b"))
    target: float | None = option(None, "where to", min=0.0)
    is_on: bool = option(False, "whether")


def test_a_field_is_described_once_for_everybody() -> None:
    rate, size, name, target, is_on = describe(Example)
    assert (rate.type, rate.unit, rate.min, rate.max, rate.group, rate.help) == (
        float,
        "1/s",
        0.0,
        1.0,
        "pace",
        "how fast",
    )
    assert (size.type, size.max, size.default) == (int, None, 4)
    assert name.choices == ("a", "b")
    assert (target.type, target.optional, target.default) == (float, True, None)
    assert (is_on.type, is_on.optional) == (bool, False)


def test_words_over_a_base_and_back() -> None:
    made = from_words(Example, ["rate=1", "target=none", "is_on=yes", "size= 7"], {"name": "b", "target": 2.0})
    assert made == Example(rate=1.0, size=7, name="b", target=None, is_on=True)
    assert from_dict(Example, to_dict(made)) == made


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rate"], "'rate': write name=value"),
        (["rat=1"], "Example has no field 'rat'; did you mean 'rate'?"),
        (["zzz=1"], "there are rate, size, name, target, is_on"),
        (["rate=fast"], "rate = 'fast': a number is needed"),
        (["rate=nan"], "rate = nan: a finite number is needed"),
        (["target=inf"], "target = inf: a finite number is needed"),
        (["rate=1.5"], "rate = 1.5: 0.0 to 1.0 is allowed"),
        (["size=0"], "size = 0: at least 1 is allowed"),
        (["size=2.5"], "size = '2.5': a whole number is needed"),
        (["size="], "size = '': a whole number is needed"),
        (["name=c"], "name = 'c': one of a, b is needed"),
        (["is_on=maybe"], "is_on = 'maybe': true or false is needed"),
        (["target=-1"], "target = -1.0: at least 0.0 is allowed"),
    ],
)
def test_a_word_that_does_not_fit_is_refused_by_name(words: list[str], message: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        from_words(Example, words)
    assert message in str(caught.value)


@pytest.mark.parametrize("values", [{"size": True}, {"size": "4"}, {"is_on": 1}, {"rate": None}, {"name": 3}])
def test_a_value_of_another_type_is_refused(values: dict[str, object]) -> None:
    with pytest.raises(InvalidConfig, match="is needed"):
        from_dict(Example, values)


def test_a_whole_number_may_stand_for_a_number() -> None:
    assert isinstance(from_dict(Example, {"rate": 1}).rate, float)
