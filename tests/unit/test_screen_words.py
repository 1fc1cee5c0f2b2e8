"""How the screens say times, numbers and names."""

from __future__ import annotations

import pytest

from app.words.values import ago, count, duration, field_label, first_line, flatten, number, prompt_text


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-3, "0 s"), (0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min"), (60, "1 min"), (200, "3 min 20 s"),
        (660.9, "11 min"),
        (3599, "59 min"), (3600, "1 h"), (7500, "2 h 5 min"), (86_400, "1 day"), (200_000, "2 days"),
    ],
)  # fmt: skip
def test_duration(seconds: float, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-5, "just now"), (59, "just now"), (119, "1 min ago"), (7199, "1 h ago"), (90_000, "1 day ago")],
)
def test_ago(seconds: float, words: str) -> None:
    assert ago(seconds) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0, "0"), (1234567, "1,234,567"), (0.71428, "0.7143"), (-0.00001, "-1e-05"), (12345.67, "12,346"), (3.0, "3"),
        (float("nan"), "not finite"), (float("inf"), "not finite"), (True, "yes"), (None, "none"), ("text", "text"),
    ],
)  # fmt: skip
def test_number(value: object, words: str) -> None:
    assert number(value) == words


def test_count() -> None:
    assert [count(1, "ranking"), count(0, "ranking"), count(2000, "task")] == ["1 ranking", "0 rankings", "2,000 tasks"]


@pytest.mark.parametrize(
    ("name", "label"),
    [("kl_coef", "KL coef"), ("learning_rate", "Learning rate"), ("k", "K"), ("gae_lambda", "GAE lambda")],
)
def test_field_label(name: str, label: str) -> None:
    assert field_label(name) == label


def test_prompt_text_takes_whatever_a_run_wrote() -> None:
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert prompt_text("plain") == "plain"
    assert prompt_text(turns[:1]) == "a"
    assert prompt_text(turns) == "user: a\n\nassistant: b"
    assert prompt_text(None) == ""
    assert prompt_text(7) == "7"


def test_first_line_is_cut() -> None:
    assert first_line(({"role": "user", "content": "a\n b"},)) == "a b"
    assert first_line(({"role": "user", "content": "x" * 400},)) == "x" * 299 + "…"


def test_flatten() -> None:
    assert flatten({"a": 1, "b": {"c": {"d": 2}, "e": []}}) == {"a": 1, "b.c.d": 2, "b.e": []}
