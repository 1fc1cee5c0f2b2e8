"""Rows of files as records: what is accepted, what is refused and in which words, and that nothing is dropped."""

from __future__ import annotations

import json
from typing import Any

import pytest

from data.errors import InvalidInput
from data.messages import parse_messages
from data.records import Detail, RankingStatus, Split
from labeling.files.parse import RESPONSES_ROW, parse_prompt, parse_rankable, parse_ranking, parse_responses

USER = {"role": "user", "content": "hi"}


def test_a_prompt_is_a_text_or_messages() -> None:
    assert parse_prompt({"prompt": "hi"}).messages == (USER,)
    assert parse_prompt({"messages": [USER]}).messages == (USER,)
    assert parse_prompt({"prompt": [USER]}).messages == (USER,)
    assert parse_prompt({"messages": '[{"role": "user", "content": "hi"}]'}).messages == (USER,)  # a CSV cell


def test_a_prompt_that_is_json_itself_stays_a_text() -> None:
    """In a table every cell is text; only a cell under 'messages' is one that holds a list."""
    for text in ("[1, 2, 3]", '{"a": 1}', '["Sort", "these"]'):
        assert parse_prompt({"prompt": text}).messages == ({"role": "user", "content": text},)


def test_usual_names_of_the_field_and_a_named_one() -> None:
    for name in ("instruction", "question", "text"):
        assert parse_prompt({name: "hi"}).messages == (USER,)
    assert parse_prompt({"eingabe": "hi", "prompt": "no"}, "eingabe").messages == (USER,)
    with pytest.raises(InvalidInput, match="no field 'eingabe'; the row has 'prompt'"):
        parse_prompt({"prompt": "hi"}, "eingabe")


def test_what_is_not_ours_is_kept_under_meta() -> None:
    row = {"id": 7, "prompt": "hi", "split": "eval", "meta": {"a": 1}, "comment": "c", "ranks": [1], "messages": [USER]}
    parsed = parse_prompt(row)
    assert parsed.external_id == "7"
    assert parsed.split is Split.EVAL
    assert parsed.meta == {"a": 1, "comment": "c", "ranks": [1], "messages": [USER]}


def test_what_a_responses_row_has_is_not_the_prompt_s() -> None:
    row = {"prompt_id": "x", "prompt": "hi", "responses": ["a", "b"], "source": "s"}
    assert parse_prompt(row, own_fields=RESPONSES_ROW).meta == {"source": "s"}
    assert parse_prompt(row, own_fields=RESPONSES_ROW).external_id == "x"


def test_an_id_of_zero_is_an_id_and_an_empty_one_is_none() -> None:
    assert parse_prompt({"id": 0, "prompt": "hi"}).external_id == "0"
    assert parse_prompt({"id": "", "prompt": "hi"}).external_id is None
    assert parse_prompt({"id": None, "prompt_id": "p", "prompt": "hi"}).external_id == "p"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({}, "no field of 'prompt', 'messages', 'instruction', 'question', 'text'; the row has nothing"),
        ({"other": 1}, "the row has 'other'"),
        ({"prompt": ""}, "the prompt is empty"),
        ({"prompt": " \n\t "}, "the prompt is empty"),
        ({"prompt": "\x00"}, "the prompt is empty"),
        ({"prompt": None}, "the prompt is None; a text or a list of messages is needed"),
        ({"prompt": 7}, "the prompt is 7"),
        ({"prompt": {"text": "x"}}, "a text or a list of messages is needed"),
        ({"prompt": "x" * 1_000_001}, "the prompt has 1,000,001 characters; at most 1,000,000 are allowed"),
        ({"messages": []}, "a text or a list of messages is needed"),
        ({"messages": ["hi"]}, "message 1 is 'hi'; an object with 'role' and 'content' is needed"),
        ({"messages": [{"role": "user"}]}, "message 1 is"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "message 1 is"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "message 1 has the role 'tool'"),
        ({"messages": [{"role": ["user"], "content": "x"}]}, "message 1 has the role"),
        ({"messages": [USER, {"role": "assistant", "content": "x"}]}, "a prompt ends with the user's message"),
        ({"messages": [{"role": "user", "content": " "}]}, "message 1 is empty"),
        ({"messages": [{"role": "system", "content": "x" * 1_000_001}, USER]}, "message 1 has 1,000,001 characters"),
        ({"prompt": "hi", "split": "test"}, "split 'test': only 'train', 'eval' or nothing is allowed"),
        ({"prompt": "hi", "split": ["train"]}, "only 'train', 'eval' or nothing is allowed"),
        ({"prompt": "hi", "meta": [1]}, "meta is list; a JSON object is needed"),
        ({"prompt": "hi", "meta": "text"}, "meta is str; a JSON object is needed"),
    ],
)
def test_a_prompt_that_can_not_be_used_is_refused(row: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        parse_prompt(row)


def test_messages_of_other_tools_and_empty_answers() -> None:
    given = [
        {"role": "system", "content": ""},
        {"role": "human", "content": "a\r\n"},
        {"role": "assistant", "content": ""},
        {"role": "prompter", "content": "b"},
    ]
    assert [each["role"] for each in parse_messages(given)] == ["system", "user", "assistant", "user"]
    assert parse_messages(given)[1]["content"] == "a\n"


def test_responses_are_texts_or_objects_that_say_where_they_come_from() -> None:
    row = {"responses": ["a", {"text": "b", "model": "m", "seed": 3, "meta": {"t": 0.7}}]}
    first, second = parse_responses(row)
    assert (first.text, first.model, first.provenance) == ("a", "", {"source": "import"})
    assert (second.text, second.model) == ("b", "m")
    assert second.provenance == {"source": "import", "seed": 3, "t": 0.7}
    assert [each.text for each in parse_responses({"responses": '["a", "b"]'})] == ["a", "b"]  # a CSV cell


@pytest.mark.parametrize(
    ("responses", "message"),
    [
        (None, "no 'responses'"),
        ("text", "no 'responses'"),
        ([], "no 'responses'"),
        (["a", None], "response 2 is None"),
        (["a", {"model": "m"}], "response 2 is"),
        (["a", " "], "response 2 is empty"),
        (["a", {"text": "b", "meta": 1}], "response 2: meta is int"),
        (["a" * 1_000_001, "b"], "response 1 has 1,000,001 characters"),
    ],
)
def test_responses_that_can_not_be_used_are_refused(responses: object, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        parse_responses({"responses": responses})


@pytest.mark.parametrize(
    ("responses", "message"),
    [
        (["a"], r"1 distinct responses \(of 1\): a ranking needs 2 to 12"),
        (["a", " a\n", "a"], r"1 distinct responses \(of 3\)"),
        ([str(number) for number in range(13)], r"13 distinct responses \(of 13\)"),
    ],
)
def test_a_ranking_needs_2_to_12_distinct_responses(responses: list[str], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        parse_rankable({"responses": responses})


def ranking(**fields: object) -> dict[str, Any]:
    return {"prompt": "hi", "responses": ["a", "b", "c"], "ranks": [1, 2, 2]} | fields


@pytest.mark.parametrize(
    ("ranks", "stored"),
    [
        ([1, 2, 2], (1, 2, 2)),
        ([2, 1, 1], (3, 1, 1)),
        ([3, 1, 1], (3, 1, 1)),
        ([1.0, 2.0, 3.0], (1, 2, 3)),  # a table with gaps elsewhere holds nothing but floats
        ("[1, 2, 3]", (1, 2, 3)),  # a CSV cell
        (["1", "2", "3"], (1, 2, 3)),
    ],
)
def test_ranks_in_every_form_in_which_they_come(ranks: object, stored: tuple[int, ...]) -> None:
    assert parse_ranking(ranking(ranks=ranks)).ranks == stored


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"ranks": None}, "no 'ranks' for 3 responses"),
        ({"ranks": [1, 2]}, "2 ranks for 3 responses"),
        ({"ranks": [1, 2, 4]}, "rank 4 for response 3 is out of range"),
        ({"ranks": [1, 3, 3]}, "have a gap"),
        ({"ranks": [1.5, 2, 3]}, "rank 1.5 for response 1 is not a whole number"),
        ({"ranks": ["best", 2, 3]}, "rank 'best' for response 1"),
        ({"ranks": [True, 2, 3]}, "rank True for response 1"),
        ({"status": "done"}, "status 'done': one of ranked, unacceptable, skipped is needed"),
        ({"acceptable": [True]}, r"acceptable \[True\]: a list of 3 is needed"),
        ({"acceptable": [1, 0, 1]}, "acceptable .* true, false or null"),
        ({"quality": [0, 1, 2]}, "quality .* a number from 1 to 7"),
        ({"quality": [True, 1, 2]}, "quality .* a number from 1 to 7"),
        ({"flags": ["rude", "", ""]}, "flags .* a list of names"),
        ({"strength": 5}, "strength 5: a number from 1 to 4"),
        ({"strength": 1, "status": "unacceptable"}, "strength 1: .* beside ranks"),
        ({"unplaced": [2]}, r"unplaced \[2\]: .* with the last rank are needed, here \[1, 2\]"),
        ({"unplaced": [0, 1, 2], "ranks": [1, 1, 1]}, "and others that rank above them"),
        ({"unplaced": [0], "status": "skipped"}, "unplaced"),
        ({"unplaced": "1"}, "unplaced '1'"),
        ({"facts": ["x"]}, "facts is list; a text is needed"),
        ({"duration_ms": "soon"}, "duration_ms 'soon'"),
        ({"duration_ms": -1}, "duration_ms -1"),
        ({"duration_ms": True}, "duration_ms True"),
        ({"duration_ms": 2**31}, "duration_ms"),
    ],
)
def test_a_ranking_that_can_not_be_used_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        parse_ranking(ranking(**fields))


def test_everything_that_a_ranking_may_have() -> None:
    parsed = parse_ranking(ranking(annotator="ann", comment="c\r\n", duration_ms="1200", x=1))
    assert (parsed.annotator, parsed.comment, parsed.duration_ms, parsed.detail) == ("ann", "c\n", 1200, Detail())
    assert parsed.prompt.meta == {"x": 1}
    assert parse_ranking(ranking(duration_ms=12.0)).duration_ms == 12


def test_what_was_said_beside_the_ranks() -> None:
    said = {"acceptable": [True, False, None], "flags": [["rude"], [], []], "quality": [7, "1", None], "strength": 4.0}
    wanted = Detail((1, 2), (True, False, None), (("rude",), (), ()), (7, 1, None), 4)
    row = ranking(ranks=[1, 2, 2], unplaced=[2, 1], facts="2 is even", **said)
    assert parse_ranking(row).detail == wanted
    assert (parse_ranking(row).prompt.facts, parse_ranking(row).prompt.meta) == ("2 is even", {})
    cells = {name: json.dumps(value) for name, value in row.items() if name not in ("prompt", "facts", "annotator")}
    assert parse_ranking(row | cells | {"strength": "4"}).detail == wanted  # a table
    unacceptable = parse_ranking(ranking(status="unacceptable", flags=[["rude"], [], []]))
    assert (unacceptable.status, unacceptable.ranks) == (RankingStatus.UNACCEPTABLE, None)
    assert (unacceptable.skip_reason, unacceptable.detail.flags) == (None, (("rude",), (), ()))


def test_a_skipped_ranking_needs_no_ranks_and_has_a_reason() -> None:
    skipped = parse_ranking(ranking(ranks=None, status="skipped"))
    assert (skipped.ranks, skipped.skip_reason) == (None, "skipped in the imported file")
    assert parse_ranking(ranking(status="skipped", skip_reason="too long")).skip_reason == "too long"
    assert parse_ranking(ranking()).skip_reason is None
