"""Read rows from people's files: JSONL, JSON, CSV, TSV, Parquet. Each row comes with its line; a bad one is a Problem.

Rows are streamed; one bad line never costs the others. Nothing here unpickles, unzips or runs anything.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from data.errors import InvalidInput
from data.text import decode_utf8

MAX_LINE_BYTES = 16 * 2**20
SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".csv": "csv", ".tsv": "tsv", ".parquet": "parquet"}


@dataclass(frozen=True)
class Row:
    """A row of a file. `line` is its line (of Parquet and JSON lists: its place), counted from 1."""

    line: int
    value: dict[str, Any]


@dataclass(frozen=True)
class Problem:
    """What is wrong with a line, and what to do."""

    line: int
    message: str


def read_rows(path: Path, name: str | None = None) -> Iterator[Row | Problem]:
    """Yield the rows of a file and the problems of its lines. The kind is told by the suffix of `name` or `path`.

    Raises InvalidInput for what concerns the whole file: it is missing, empty, of an unknown kind, or not UTF-8.
    """
    label = name or path.name
    kind = SUFFIXES.get(Path(label).suffix.lower())
    if kind is None:
        raise InvalidInput(f"{label}: unknown kind of file; one of {', '.join(SUFFIXES)} is needed")
    if not path.is_file():
        raise InvalidInput(f"{path}: there is no such file")
    if path.stat().st_size == 0:
        raise InvalidInput(f"{label}: the file is empty")
    with path.open("rb") as file:
        head = file.read(4)
        file.seek(0)
        if kind != "parquet":
            decode_utf8(head[:2] if head[:3] != b"\xef\xbb\xbf" else b"", label)
        readers = {"jsonl": _read_jsonl, "json": _read_json, "parquet": _read_parquet}
        if kind in readers:
            yield from readers[kind](file, label)
        else:
            text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="strict", newline="")
            try:
                yield from _read_csv(text, label, "\t" if kind == "tsv" else ",")
            finally:
                text.detach()  # the file is closed by whoever opened it


def _read_jsonl(file: BinaryIO, label: str) -> Iterator[Row | Problem]:
    for line, raw in enumerate(file, start=1):
        if not raw.strip():
            continue
        if len(raw) > MAX_LINE_BYTES:
            yield Problem(line, f"the line has {len(raw):,} bytes; at most {MAX_LINE_BYTES:,} are read")
            continue
        yield _parse_line(line, raw, label)


def _parse_line(line: int, raw: bytes, label: str) -> Row | Problem:
    try:
        value = json.loads(decode_utf8(raw, label))
    except InvalidInput:
        return Problem(line, "the line is not UTF-8; save the file as UTF-8 and import it again")
    except json.JSONDecodeError as error:
        return Problem(line, f"not JSON: {error.msg} at character {error.colno}")
    except RecursionError:
        return Problem(line, "the JSON is nested too deeply")
    if not isinstance(value, dict):
        return Problem(line, f"a JSON object is needed, found {_name(value)}")
    return Row(line, value)


def _read_json(file: BinaryIO, label: str) -> Iterator[Row | Problem]:
    text = decode_utf8(file.read(), label)
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidInput(f"{label}, line {error.lineno}: not JSON: {error.msg} at character {error.colno}") from None
    except RecursionError:
        raise InvalidInput(f"{label}: the JSON is nested too deeply") from None
    if not isinstance(values, list):
        raise InvalidInput(f"{label}: a JSON list of objects is needed, found {_name(values)}")
    for place, value in enumerate(values, start=1):
        if isinstance(value, dict):
            yield Row(place, value)
        else:
            yield Problem(place, f"a JSON object is needed, found {_name(value)}")


def _read_csv(text: TextIO, label: str, delimiter: str) -> Iterator[Row | Problem]:
    csv.field_size_limit(MAX_LINE_BYTES)
    reader = csv.reader(text, delimiter=delimiter, strict=True)
    header: list[str] | None = None
    while True:
        start = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield Problem(start, f"not CSV: {error}; perhaps a quote that is not closed. Nothing after it was read")
            return
        except UnicodeDecodeError:
            yield Problem(start, "not UTF-8 from here on; save the file as UTF-8 and import it again")
            return
        if header is None:
            header = [cell.strip() for cell in cells]
            if len(set(header)) != len(header) or "" in header:
                raise InvalidInput(f"{label}, line 1: column names must be there and be distinct, found {header}")
        elif cells and len(cells) != len(header):
            yield Problem(start, f"{len(cells)} cells, but the header has {len(header)} columns")
        elif cells:
            pairs = zip(header, cells, strict=True)
            yield Row(start, {name: _parse_cell(cell) for name, cell in pairs if cell != ""})


def _parse_cell(cell: str) -> Any:
    """A cell that is a JSON list or object (messages, responses, ranks) as such; everything else as text."""
    if cell[:1] in "[{":
        try:
            return json.loads(cell)
        except (json.JSONDecodeError, RecursionError):
            return cell
    return cell


def _read_parquet(file: BinaryIO, label: str) -> Iterator[Row | Problem]:
    try:
        table = pq.ParquetFile(file)
    except (pa.ArrowException, OSError) as error:
        raise InvalidInput(f"{label}: not a Parquet file ({error})") from None
    place = 0
    for batch in table.iter_batches(batch_size=1000):
        for value in batch.to_pylist():
            place += 1
            yield Row(place, {name: cell for name, cell in value.items() if cell is not None})


def _name(value: object) -> str:
    return {list: "a list", str: "text", int: "a number", float: "a number", bool: "true or false"}.get(
        type(value), "null" if value is None else type(value).__name__
    )
