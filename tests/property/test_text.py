"""Laws of text at the border: whatever comes in, both databases, Parquet and UTF-8 take what comes out."""

from __future__ import annotations

import datetime
import json
import math

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from data.text import clean_text, clean_value, dump_json, is_broken, messages_fingerprint, text_fingerprint

any_text = st.text(st.characters(codec=None, categories=None), max_size=60) | st.text(
    st.sampled_from("\x00\r\n\ud800\udc00\ud83d\ude00 aé\u202e\ufeff"), max_size=30
)
any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | any_text,
    lambda each: st.lists(each, max_size=4) | st.dictionaries(any_text, each, max_size=4),
    max_leaves=20,
)


@given(any_text)
def test_clean_text_can_be_stored_everywhere(text: str) -> None:
    cleaned = clean_text(text)
    assert "\x00" not in cleaned
    assert "\r" not in cleaned
    assert pa.array([cleaned]).to_pylist() == [cleaned]
    assert cleaned.encode().decode() == cleaned
    assert not is_broken(cleaned)


@given(any_text)
def test_cleaning_again_changes_nothing(text: str) -> None:
    assert clean_text(clean_text(text)) == clean_text(text)


@given(st.text(st.characters(codec="utf-8", exclude_characters="\r\x00"), max_size=60))
def test_good_text_is_kept_as_it_is(text: str) -> None:
    assert clean_text(text) == text


def test_what_is_taken_out_and_what_stays() -> None:
    assert clean_text("a\x00b\r\nc\rd\ud800e") == "ab\nc\nd\ufffde"
    assert clean_text("\ud83d\ude00") == "\U0001f600"  # two halves that belong together
    assert clean_text("\u202eabc\u200b\ufeff") == "\u202eabc\u200b\ufeff"


@given(any_json)
def test_a_clean_value_is_plain_json(value: object) -> None:
    cleaned = clean_value(value)
    written = json.dumps(cleaned, ensure_ascii=False, allow_nan=False)
    assert json.loads(written.encode().decode()) == cleaned


@given(any_json)
def test_a_repair_is_told_exactly_where_there_is_something_to_repair(value: object) -> None:
    repairs: list[int] = []
    clean_value(value, lambda: repairs.append(1))
    written = json.dumps(value)
    assert bool(repairs) == any(is_broken(text) for text in _texts(value)), written


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for name, each in value.items() for text in [name, *_texts(each)]]
    return [text for each in value for text in _texts(each)] if isinstance(value, list) else []


@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1), min_size=1, max_size=5), any_text)
def test_fingerprints_see_words_and_not_white_space(words: list[str], other: str) -> None:
    text = " ".join(words)
    assert text_fingerprint(text) == text_fingerprint("  " + "\n\t ".join(text.split()) + " ")
    if clean_text(other).split() != text.split():
        assert text_fingerprint(clean_text(other)) != text_fingerprint(text)


def test_a_fingerprint_of_messages_knows_who_said_what() -> None:
    said = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    other = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}, {"role": "user", "content": "c"}]
    joined = [{"role": "user", "content": "abc"}]
    assert len({messages_fingerprint(each) for each in (said, other, joined)}) == 3
    assert messages_fingerprint([{"role": "user", "content": " a\n"}]) == messages_fingerprint(said[:1])


def test_numbers_that_json_has_no_word_for_become_nothing() -> None:
    assert clean_value({"a": math.nan, "b": [math.inf, 1.5]}) == {"a": None, "b": [None, 1.5]}


def test_values_of_other_libraries_become_plain_ones() -> None:
    odd = {"a": np.float32(0.5), "b": np.int64(3), "c": np.bool_(True), "d": datetime.date(2026, 11, 30), "e": (1, 2)}
    assert clean_value(odd) == {"a": 0.5, "b": 3, "c": True, "d": "2026-11-30", "e": [1, 2]}
    assert dump_json({"b": "\ud800", "a": math.nan}) == '{"b": "\ufffd", "a": null}'
