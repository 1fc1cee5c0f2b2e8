"""Reading people's files: one bad line costs that line, and says where and why."""

from __future__ import annotations

import datetime
import decimal
import gzip
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import data.files.rows
from data.errors import InvalidInput
from data.files.rows import Problem, Row, read_rows

UTF16_TEXT = '{"prompt": "hi"}\n'


def write(folder: Path, name: str, content: bytes | str) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def rows_of(path: Path) -> list[tuple[int, dict[str, object]]]:
    return [(each.line, each.value) for each in read_rows(path) if isinstance(each, Row)]


def problems_of(path: Path) -> dict[int, str]:
    return {each.line: each.message for each in read_rows(path) if isinstance(each, Problem)}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b"", "a.jsonl: the file is empty"),
        ("a.txt", b"x", "a.txt: unknown kind of file; one of .jsonl, .ndjson, .json, .csv, .tsv, .parquet is needed"),
        ("a.pkl", b"\x80\x04", "unknown kind of file"),
        ("a.jsonl.gz", gzip.compress(b"{}", mtime=0), "unknown kind of file"),
        ("a.jsonl", gzip.compress(b'{"prompt": "x"}', mtime=0), r"the file is packed \(gzip\); unpack it"),
        ("a.csv", b"PK\x03\x04rest", r"the file is packed \(zip\)"),
        ("a.jsonl", UTF16_TEXT.encode("utf-16"), "the file is UTF-16; save it as UTF-8"),
        ("a.jsonl", UTF16_TEXT.encode("utf-16-be"), "the file is UTF-16"),
        ("a.csv", "prompt\nx\n".encode("utf-16-le"), "the file is UTF-16"),
        ("a.json", UTF16_TEXT.encode("utf-32"), "the file is UTF-32"),
        ("a.json", '[\n{"prompt": "caf\u00e9"}]'.encode("latin-1"), "a.json, line 2: byte 0xe9 is not UTF-8"),
        ("a.json", b'{"prompt": "x"}', "a JSON list of objects is needed, found dict"),
        ("a.json", b'[{"prompt": "x"}', "line 1: not JSON"),
        ("a.json", b'{"prompt": "x"}\n{"prompt": "y"}', "name the file .jsonl"),
        ("a.json", b"[" * 100_000, "nested too deeply"),
        ("a.json", b"[" + b"9" * 5000 + b"]", "not JSON that can be read"),
        ("a.csv", b"prompt,prompt\nx,y\n", r"a.csv, line 1: two columns have the same name"),
        ("a.csv", "pr\u00f6mpt\nx\n".encode("latin-1"), "a.csv, line 1: byte 0xf6 is not UTF-8"),
        ("a.csv", b'"prompt\nx\n', "a.csv, line 1: not CSV"),
        ("a.parquet", b"PAR1 no parquet at all", "not a Parquet file"),
    ],
)
def test_a_file_that_can_not_be_used_is_refused_whole(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        list(read_rows(write(tmp_path, name, content)))


def test_a_file_that_is_not_there_or_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "folder.jsonl").mkdir()
    for name in ("missing.jsonl", "folder.jsonl"):
        with pytest.raises(InvalidInput, match=f"{name}: there is no such file"):
            list(read_rows(tmp_path / name))


def test_the_kind_is_told_by_the_name_that_people_know(tmp_path: Path) -> None:
    """An upload lies under a name of our own."""
    path = write(tmp_path, "1m8n2epbmftc5a9a", '{"prompt": "x"}\n')
    assert [each.line for each in read_rows(path, "Prompts.JSONL")] == [1]


def test_jsonl_lines_are_numbered_as_an_editor_does(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", '\ufeff{"n": 1}\r\n\n{"n": 2}\nnot json\n[1]\n{"n": 3}')
    assert rows_of(path) == [(1, {"n": 1}), (3, {"n": 2}), (6, {"n": 3})]
    assert problems_of(path) == {
        4: "not JSON: Expecting value at character 1",
        5: "a JSON object is needed, found a list",
    }


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"prompt": "caf\u00e9"}'.encode("latin-1"), "the line is not UTF-8: byte 0xe9 is not UTF-8"),
        (b'{"a": ' * 100_000, "the JSON is nested too deeply"),
        (b'{"a":' * 150 + b"1" + b"}" * 150, "nested deeper than 100 levels"),
        (b'{"n": ' + b"9" * 5000 + b"}", "not JSON that can be read"),
        (b'{"prompt": "x"', "not JSON: Expecting"),
        (b'"text"', "a JSON object is needed, found text"),
        (b"null", "a JSON object is needed, found null"),
        (b"17", "found a number"),
        (b"true", "found true or false"),
    ],
)
def test_a_bad_line_costs_that_line_only(tmp_path: Path, line: bytes, message: str) -> None:
    path = write(tmp_path, "a.jsonl", b'{"n": 1}\n' + line + b'\n{"n": 3}\n')
    assert rows_of(path) == [(1, {"n": 1}), (3, {"n": 3})]
    assert list(problems_of(path)) == [2]
    assert message in problems_of(path)[2]


def test_one_broken_line_in_ten_thousand_is_found(tmp_path: Path) -> None:
    lines = [json.dumps({"prompt": f"p{number}"}) for number in range(10_000)]
    lines[7_123] = lines[7_123][:-3]
    path = write(tmp_path, "a.jsonl", "\n".join(lines))
    assert list(problems_of(path)) == [7_124]
    assert len(rows_of(path)) == 9_999


def test_a_line_that_is_too_long_is_named_and_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data.files.rows, "MAX_LINE_BYTES", 100)
    long = json.dumps({"prompt": "x" * 1000})
    fitting = json.dumps({"prompt": "y" * 85})
    assert len(fitting) == 100 - 1
    for name, start, last in (("a.jsonl", "", '{"n": 3}'), ("a.csv", "prompt\n", "z")):
        path = write(tmp_path, name, f"{start}{long}\n{fitting}\n{last}")
        first = 1 if name == "a.jsonl" else 2
        assert list(problems_of(path)) == [first]
        assert "the line has more than" in problems_of(path)[first]
        assert [line for line, _ in rows_of(path)] == [first + 1, first + 2]


def test_broken_characters_are_taken_out_and_told(tmp_path: Path) -> None:
    path = write(
        tmp_path, "a.jsonl", '{"a": "x\\u0000y"}\n{"a": ["\\ud800"], "b\\udfff": 1}\n{"a": "\\ud83d\\ude00\\r\\n"}\n'
    )
    rows = [each for each in read_rows(path) if isinstance(each, Row)]
    assert [row.value for row in rows] == [{"a": "xy"}, {"a": ["\ufffd"], "b\ufffd": 1}, {"a": "\U0001f600\n"}]
    assert [row.is_repaired for row in rows] == [True, True, False]


def test_numbers_that_are_none_become_null(tmp_path: Path) -> None:
    assert rows_of(write(tmp_path, "a.jsonl", '{"a": NaN, "b": [Infinity, 1e999]}')) == [
        (1, {"a": None, "b": [None, None]})
    ]


# CSV


def test_csv_cells_are_texts_and_records_may_span_lines(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", '\ufeffid, prompt \r\n1,"two\nlines, ""quoted"""\r\n\r\n2,[1]\r\n3,\r\n')
    assert rows_of(path) == [
        (2, {"id": "1", "prompt": 'two\nlines, "quoted"'}),
        (5, {"id": "2", "prompt": "[1]"}),
        (6, {"id": "3", "prompt": ""}),
    ]


def test_tsv_takes_tabs(tmp_path: Path) -> None:
    assert rows_of(write(tmp_path, "a.tsv", "id\tprompt\n1\ta,b\n")) == [(2, {"id": "1", "prompt": "a,b"})]


def test_csv_with_a_header_that_is_not_ascii(tmp_path: Path) -> None:
    """Its first character takes three bytes: a look at the first two must not cut it."""
    assert rows_of(write(tmp_path, "a.csv", "\u63d0\u793a,id\n\u4f60\u597d,1\n")) == [
        (2, {"\u63d0\u793a": "\u4f60\u597d", "id": "1"})
    ]


def test_csv_with_the_index_that_pandas_writes(tmp_path: Path) -> None:
    assert rows_of(write(tmp_path, "a.csv", ",prompt\n0,x\n")) == [(2, {"column 1": "0", "prompt": "x"})]


def test_an_unclosed_quote_costs_its_line_and_no_other(tmp_path: Path) -> None:
    lines = [f"{number},text {number}" for number in range(1, 101)]
    lines[49] = '50,"never closed'
    path = write(tmp_path, "a.csv", "id,prompt\n" + "\n".join(lines) + "\n")
    assert list(problems_of(path)) == [51]
    assert "not CSV" in problems_of(path)[51]
    assert [row["id"] for _, row in rows_of(path)] == [str(number) for number in range(1, 101) if number != 50]


def test_a_quote_in_the_wrong_place_costs_its_line_and_no_other(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", 'id,prompt\n1,a\n2,"b" c\n3,"d\n4,e"\n5,f,g\n6,h\n')
    assert rows_of(path) == [
        (2, {"id": "1", "prompt": "a"}),
        (4, {"id": "3", "prompt": "d\n4,e"}),
        (7, {"id": "6", "prompt": "h"}),
    ]
    assert list(problems_of(path)) == [3, 6]
    assert problems_of(path)[6] == "3 cells, but the header has 2 columns"


def test_a_record_that_swallowed_others_gives_them_back(tmp_path: Path) -> None:
    """The quote of line 2 closes in line 4, with too many cells: lines 3 and 4 are read on their own."""
    path = write(tmp_path, "a.csv", 'id,prompt\n1,"a\n2,b\n3,c",d\n4,e\n')
    assert rows_of(path) == [(3, {"id": "2", "prompt": "b"}), (5, {"id": "4", "prompt": "e"})]
    assert list(problems_of(path)) == [2, 4]


def test_a_csv_line_in_another_encoding_costs_its_line_and_no_other(tmp_path: Path) -> None:
    good = "\n".join(f"{number},x" for number in range(1, 500))
    path = write(tmp_path, "a.csv", f"id,prompt\n{good}\n".encode() + "500,caf\u00e9\n501,y\n".encode("latin-1"))
    assert list(problems_of(path)) == [501]
    assert "byte 0xe9 is not UTF-8" in problems_of(path)[501]
    assert len(rows_of(path)) == 500


def test_a_cell_may_be_longer_than_what_the_csv_module_allows_by_itself(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", f"prompt\n{'x' * 500_000}\n")
    assert len(str(rows_of(path)[0][1]["prompt"])) == 500_000


def test_a_csv_without_rows_has_none(tmp_path: Path) -> None:
    assert rows_of(write(tmp_path, "a.csv", "id,prompt\n")) == []


# Parquet


def test_parquet_rows_leave_out_empty_cells(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    messages = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
    table = {
        "prompt": pa.array(["a\r\nb", None]),
        "messages": pa.array([None, [{"role": "user", "content": "\u00e9\x00"}]], messages),
    }
    pq.write_table(pa.table(table), path)
    assert rows_of(path) == [(1, {"prompt": "a\nb"}), (2, {"messages": [{"role": "user", "content": "\u00e9"}]})]
    assert [each.is_repaired for each in read_rows(path) if isinstance(each, Row)] == [False, True]


def test_parquet_columns_of_any_type_become_plain_json(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = {
        "at": pa.array([datetime.datetime(2026, 11, 30, 1, 2, 3)]),
        "day": pa.array([datetime.date(2026, 11, 30)]),
        "cost": pa.array([decimal.Decimal("1.50")]),
        "score": pa.array([float("nan")]),
        "blob": pa.array([b"\x80\x04 pickled"]),
        "pairs": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
        "took": pa.array([datetime.timedelta(seconds=1)]),
    }
    pq.write_table(pa.table(table), path)
    [(_, row)] = rows_of(path)
    assert json.loads(json.dumps(row, allow_nan=False)) == {
        "at": "2026-11-30T01:02:03",
        "day": "2026-11-30",
        "cost": "1.50",
        "score": None,
        "blob": "<10 bytes>",
        "pairs": [["k", 1]],
        "took": "0:00:01",
    }


def test_a_parquet_cell_that_python_can_not_hold_costs_its_row_only(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    bad_text = pa.Array.from_buffers(
        pa.string(), 3, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0"), pa.py_buffer(b"a\xe9c")]
    )
    pq.write_table(pa.table({"prompt": bad_text}), path)
    assert rows_of(path) == [(1, {"prompt": "a"}), (3, {"prompt": "c"})]
    assert list(problems_of(path)) == [2]


def test_a_parquet_file_that_is_damaged_in_the_middle_says_so(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"prompt": [os.urandom(20).hex() for _ in range(20_000)]})
    pq.write_table(table, path, row_group_size=5_000, use_dictionary=False)
    content = bytearray(path.read_bytes())
    middle = len(content) * 5 // 8
    content[middle : middle + 2_000] = b"\xff" * 2_000
    path.write_bytes(bytes(content))
    found = list(read_rows(path))
    assert isinstance(found[-1], Problem)
    assert "damaged from here on" in found[-1].message
    assert all(isinstance(each, Row) for each in found[:-1])
    assert found[-1].line == len(found)
