"""Prompts of a file that runs sample from: both forms, and every bad row by its line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from data.errors import InvalidInput
from data.files.prompt_rows import PromptRow, check_has_prompt, read_prompts
from data.files.rows import Problem

HI = [{"role": "user", "content": "hi"}]
GOOD = [
    ({"prompt": "hi"}, PromptRow(1, tuple(HI))),
    ({"prompt": HI}, PromptRow(1, tuple(HI))),
    ({"messages": HI, "facts": "a fact", "split": "train", "id": 3}, PromptRow(1, tuple(HI), "a fact")),
    ({"messages": json.dumps(HI), "prompt": ""}, PromptRow(1, tuple(HI))),
    ({"line": 7, "messages": HI, "responses": []}, PromptRow(7, tuple(HI))),  # as `labeling.files.handover` writes it
]
BAD = [
    ({"question": "hi"}, "no 'prompt' and no 'messages'; the row has 'question'"),
    ({}, "no 'prompt' and no 'messages'; the row has nothing"),
    ({"prompt": " "}, "the prompt is empty"),
    ({"prompt": 3}, "the prompt is 3; a text or a list of messages is needed"),
    ({"prompt": "hi", "messages": HI}, "both 'prompt' and 'messages'; one of them is needed"),
    ({"messages": [{"role": "assistant", "content": "hi"}]}, "the last message is from 'assistant'"),
    ({"messages": "hi"}, None),  # a text where messages are expected is taken as the prompt, as in an import
    ({"prompt": "hi", "facts": [1]}, "facts is [1]; a text is needed"),
]


def read(path: Path, *rows: object) -> list[PromptRow | Problem]:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return list(read_prompts(path))


@pytest.mark.parametrize(("row", "prompt"), GOOD, ids=range(len(GOOD)))
def test_a_prompt(tmp_path: Path, row: dict[str, object], prompt: PromptRow) -> None:
    assert read(tmp_path / "p.jsonl", row) == [prompt]


@pytest.mark.parametrize(("row", "problem"), BAD, ids=range(len(BAD)))
def test_what_is_wrong_with_a_row(tmp_path: Path, row: dict[str, object], problem: str | None) -> None:
    (found,) = read(tmp_path / "p.jsonl", row)
    assert isinstance(found, PromptRow) if problem is None else problem in getattr(found, "message", "")


@pytest.mark.parametrize(
    ("responses", "found"),
    [
        (["a", {"text": "b", "model": "m"}], ("a", "b")),
        ('["a", "b"]', ("a", "b")),  # as a table holds it
        (None, "no 'responses'"),
        ([], "no 'responses'"),
        (["a", 3], "response 2 is 3; a text, or an object with a 'text', is needed"),
        ([{"content": "a"}], "response 1 is {'content': 'a'}; a text"),
        ([" "], "response 1 is empty"),
    ],
)
def test_responses_to_score(tmp_path: Path, responses: object, found: tuple[str, ...] | str) -> None:
    (tmp_path / "p.jsonl").write_text(json.dumps({"prompt": "hi", "responses": responses}) + "\n")
    (row,) = read_prompts(tmp_path / "p.jsonl", with_responses=True)
    assert row.responses == found if isinstance(row, PromptRow) else found in row.message


def test_a_bad_line_costs_no_other(tmp_path: Path) -> None:
    found = read(tmp_path / "p.jsonl", {"prompt": "one"}, "no json", {"prompt": ""}, {"prompt": "four"})
    assert [(each.line, isinstance(each, PromptRow)) for each in found] == [
        (1, True),
        (2, False),
        (3, False),
        (4, True),
    ]


def test_a_file_without_a_prompt_is_refused_with_its_first_lines(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    read(path, *[{"prompt": ""}] * 7)
    with pytest.raises(InvalidInput) as caught:
        check_has_prompt(path)
    lines = "; ".join(f"line {n}: the prompt is empty" for n in range(1, 6))
    assert str(caught.value) == f"p.jsonl: no row can be used as a prompt; {lines}; and 2 more"
    read(path, {"prompt": ""}, {"prompt": "x"})
    check_has_prompt(path)
