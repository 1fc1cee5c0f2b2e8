"""One definition of a configuration field, and what is said of a value that does not fit it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from data.errors import InvalidConfig
from data.fields import Configuration, describe, from_dict, from_words, option, to_dict, with_values


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


@dataclass(frozen=True)
class Pull(Configuration):
    coef: float = option(0.1, "how strong", min=0.0, flat="pull_coef")
    scale: str = option(
        "none", "divided by", choices=("none", "own", "running"), took_over={"own_scale": "own", "run_scale": "running"}
    )


@dataclass(frozen=True)
class Deep(Configuration):
    pull: Pull = Pull(coef=0.2)
    size: int = option(4, "how many", min=1)


def test_a_group_is_described_with_its_name_behind_what_is_in_none() -> None:
    size, coef, scale = describe(Deep)
    assert (size.name, size.flat, size.group) == ("size", "size", "")
    assert (coef.name, coef.flat, coef.group, coef.default) == ("pull.coef", "pull_coef", "pull", 0.2)
    assert scale.name == "pull.scale"


@pytest.mark.parametrize(
    "words",
    [["pull.coef=0.5"], ["pull_coef=0.5"], ["pull_coef=0.5", "pull.coef=0.5"], ["pull.coef=0.3", "pull.coef=0.5"]],
)
def test_a_field_is_found_under_its_name_of_today_and_that_of_before(words: list[str]) -> None:
    made = from_words(Deep, words)
    assert made == Deep(pull=Pull(coef=0.5))
    assert to_dict(made) == {"size": 4, "pull.coef": 0.5, "pull.scale": "none"}
    assert from_dict(Deep, to_dict(made)) == from_dict(Deep, {"pull": {"coef": 0.5}}) == made


@pytest.mark.parametrize(
    ("words", "scale"),
    [
        ([], "none"),
        (["own_scale=yes"], "own"),
        (["run_scale=yes", "own_scale=no"], "running"),
        (["own_scale=no"], "none"),
    ],
)
def test_a_choice_takes_over_the_fields_that_it_replaced(words: list[str], scale: str) -> None:
    assert from_words(Deep, words).pull.scale == scale
    assert from_words(Deep, words, {"pull.scale": "own"} if words else {}).pull.scale == scale


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["own_scale=yes", "run_scale=yes"], "own_scale and run_scale are both pull.scale; choose one"),
        (["pull_coef=1", "pull.coef=2"], "pull_coef and pull.coef are both pull.coef; choose one"),
        (["pull_coef=-1"], "pull.coef = -1.0: at least 0.0 is allowed"),
        (["own_scale=perhaps"], "own_scale = 'perhaps': true or false is needed"),
        (["pull.cof=1"], "Deep has no field 'pull.cof'; did you mean 'pull.coef'?"),
        (["pul_coef=1"], "Deep has no field 'pul_coef'; did you mean 'pull.coef'?"),
        (["pull=1"], "Deep has no field 'pull'"),
    ],
)
def test_what_is_wrong_in_a_group_is_said_by_its_whole_name(words: list[str], message: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        from_words(Deep, words)
    assert message in str(caught.value)


def test_other_values_leave_the_rest_as_it_was() -> None:
    made = Deep(size=7, pull=Pull(coef=0.5, scale="own"))
    assert with_values(made, {"pull_coef": 1}) == Deep(size=7, pull=Pull(coef=1.0, scale="own"))
    with pytest.raises(InvalidConfig, match="size = 0"):
        with_values(made, {"size": 0})


def test_what_is_made_by_hand_is_checked_too() -> None:
    with pytest.raises(InvalidConfig, match="scale = 'owm': one of none, own, running is needed"):
        Pull(scale="owm")
    assert isinstance(Pull(coef=1).coef, float)
