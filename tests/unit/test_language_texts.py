"""Texts for PPO-ptx from people's files: plain ones, prompts with responses, and what fits neither."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data.errors import InvalidInput
from data.files.language_texts import LanguageText, Unfit, check_has_text, read_texts

LINES = [
    '{"text": "once upon a time"}',
    '{"prompt": "Name a prime.", "response": "7"}',
    '{"messages": [{"role": "system", "content": "Short."}, {"role": "user", "content": "Hi"}], "response": "Ho"}',
    '{"text": "both", "response": "kinds"}',
    '{"prompt": "no answer"}',
    '{"prompt": "p", "messages": "q", "response": "two prompts"}',
    '{"text": "  "}',
    '{"prompt": "p", "response": ""}',
    '{"text": 7}',
    '{"prompt": "p", "response": ["a"]}',
    '{"messages": [{"role": "assistant", "content": "a"}], "response": "r"}',
    "not JSON",
    '{"body": "x"}',
]


def test_every_row_is_a_text_a_pair_or_counted_by_reason(tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text("\n".join(LINES))
    found = list(read_texts(path))
    assert [each.line for each in found] == list(range(1, len(LINES) + 1))
    assert found[0] == LanguageText(1, "once upon a time", None)
    assert found[1] == LanguageText(2, "7", ({"role": "user", "content": "Name a prime."},))
    assert isinstance(found[2], LanguageText) and found[2].messages is not None and len(found[2].messages) == 2
    unfit = [each for each in found if isinstance(each, Unfit)]
    assert [(each.line, each.reason) for each in unfit] == [
        (4, "both_kinds"), (5, "no_text"), (6, "both_kinds"), (7, "empty"), (8, "empty"), (9, "bad_text"),
        (10, "bad_text"), (11, "bad_prompt"), (12, "unreadable"), (13, "no_text"),
    ]  # fmt: skip
    assert "the row has 'body'" in unfit[-1].message and "plain text" in unfit[0].message


def test_tables_are_read_too(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('text,prompt,messages,response\nplain,,,\n,Say it.,,It.\n'
                                    ',,"[{""role"": ""user"", ""content"": ""Q""}]",A\n,,,\n')  # fmt: skip
    found = list(read_texts(tmp_path / "a.csv"))
    assert found[:3] == [
        LanguageText(2, "plain", None),
        LanguageText(3, "It.", ({"role": "user", "content": "Say it."},)),
        LanguageText(4, "A", ({"role": "user", "content": "Q"},)),
    ]
    assert isinstance(found[3], Unfit) and found[3].reason == "empty"
    messages = [None, [{"role": "user", "content": "Q"}]]
    pq.write_table(
        pa.table({"text": ["plain", None], "messages": messages, "response": [None, "A"]}), tmp_path / "a.parquet"
    )
    assert list(read_texts(tmp_path / "a.parquet")) == [
        LanguageText(1, "plain", None),
        LanguageText(2, "A", ({"role": "user", "content": "Q"},)),
    ]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.jsonl", "", "a.jsonl: the file is empty"),
        ("a.jsonl", "\n\n", "a.jsonl: no row can be used as a text; it has none"),
        ("a.jsonl", '{"text": ""}\n{"text": " "}\n{"body": "x"}',
         r"no row can be used as a text \(2 empty, 1 no text\); line 1: "),
        ("a.txt", "words", "unknown kind of file"),
        ("gone.jsonl", None, "there is no such file"),
    ],
)  # fmt: skip
def test_a_file_without_a_text_is_one_clear_error(tmp_path: Path, name: str, content: str | None, words: str) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(InvalidInput, match=words):
        check_has_text(tmp_path / name)


def test_a_good_row_far_down_is_enough(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("[]\n" * 50 + '{"text": "good"}\n')
    check_has_text(tmp_path / "a.jsonl")
    assert Counter(type(each).__name__ for each in read_texts(tmp_path / "a.jsonl")) == {"Unfit": 50, "LanguageText": 1}
