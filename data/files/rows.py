"""Read rows from people's files: JSONL, JSON, CSV, TSV, Parquet. Each row comes with its line; a bad one is a Problem.

Rows are streamed; one bad line never costs the others. Nothing here unpickles, unzips or runs anything.
"""

from __future__ import annotations

import csv
import itertools
import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from data.errors import InvalidInput
from data.text import clean_value, decode_utf8, not_utf8, refuse_other_encoding

MAX_LINE_BYTES = 16 * 2**20
SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".csv": "csv", ".tsv": "tsv", ".parquet": "parquet"}
csv.field_size_limit(MAX_LINE_BYTES)  # of the whole process: set once, where nobody is reading yet
_PACKED = {b"\x1f\x8b": "gzip", b"PK\x03\x04": "zip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}


@dataclass(frozen=True)
class Row:
    """A row of a file, as plain JSON with clean texts.

    `line` is its line (of Parquet and JSON lists: its place), counted from 1.
    `is_repaired`: its texts had NULs or lone surrogates, which were taken out.
    """

    line: int
    value: dict[str, Any]
    is_repaired: bool = False


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
    try:
        with path.open("rb") as file:
            _refuse_packed(file.read(8), label)
            if kind != "parquet":
                file.seek(0)
                refuse_other_encoding(file.read(4), label)
            file.seek(0)
            if kind in ("csv", "tsv"):
                yield from _read_csv(file, label, "\t" if kind == "tsv" else ",")
            else:
                yield from {"jsonl": _read_jsonl, "json": _read_json, "parquet": _read_parquet}[kind](file, label)
    except OSError as error:
        raise InvalidInput(f"{label}: the file can't be read ({error.strerror or error})") from error


def _refuse_packed(head: bytes, label: str) -> None:
    for magic, name in _PACKED.items():
        if head.startswith(magic):
            raise InvalidInput(f"{label}: the file is packed ({name}); unpack it and import what is inside")


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """Lines with their numbers; None for one that is too long, of which no more than the limit is held in memory."""
    for number in itertools.count(1):
        raw = file.readline(MAX_LINE_BYTES + 1)
        if not raw:
            return
        if len(raw) <= MAX_LINE_BYTES:
            yield number, raw
            continue
        while raw and not raw.endswith(b"\n"):
            raw = file.readline(MAX_LINE_BYTES)
        yield number, None


def _row(line: int, value: dict[str, Any]) -> Row | Problem:
    repairs = []
    try:
        cleaned = clean_value(value, lambda: repairs.append(line))
    except InvalidInput as error:
        return Problem(line, str(error))
    return Row(line, cleaned, bool(repairs))


def _read_jsonl(file: BinaryIO, _label: str) -> Iterator[Row | Problem]:
    for line, raw in _lines(file):
        if raw is None:
            yield Problem(line, _TOO_LONG)
        elif raw.strip():
            yield _parse_line(line, raw)


def _parse_line(line: int, raw: bytes) -> Row | Problem:
    try:
        value = json.loads(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        return Problem(line, f"the line is not UTF-8: {not_utf8(raw[error.start])}")
    except json.JSONDecodeError as error:
        return Problem(line, f"not JSON: {error.msg} at character {error.colno}")
    except RecursionError:
        return Problem(line, "the JSON is nested too deeply")
    except ValueError as error:  # a number with thousands of digits
        return Problem(line, f"not JSON that can be read: {error}")
    if not isinstance(value, dict):
        return Problem(line, f"a JSON object is needed, found {_name(value)}")
    return _row(line, value)


def _read_json(file: BinaryIO, label: str) -> Iterator[Row | Problem]:
    text = decode_utf8(file.read(), label)
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        advice = "; if each line is an object of its own, name the file .jsonl" if error.msg == "Extra data" else ""
        where = f"{label}, line {error.lineno}"
        raise InvalidInput(f"{where}: not JSON: {error.msg} at character {error.colno}{advice}") from None
    except RecursionError:
        raise InvalidInput(f"{label}: the JSON is nested too deeply") from None
    except ValueError as error:
        raise InvalidInput(f"{label}: not JSON that can be read: {error}") from None
    if not isinstance(values, list):
        raise InvalidInput(f"{label}: a JSON list of objects is needed, found {_name(values)}")
    for number, value in enumerate(values, start=1):
        if isinstance(value, dict):
            yield _row(number, value)
        else:
            yield Problem(number, f"a JSON object is needed, found {_name(value)}")


class _Line(NamedTuple):
    number: int
    text: str
    problem: str | None


def _read_csv(file: BinaryIO, label: str, delimiter: str) -> Iterator[Row | Problem]:
    """Records may span lines. What spoils a record costs its first line only: reading goes on at the next one."""
    lines = deque[_Line]()  # lines to be read once more
    source = _csv_lines(file)
    header: list[str] | None = None
    while True:
        taken: list[_Line] = []
        cells, problem = _next_record(lines, source, taken, delimiter)
        if not taken:
            return
        start = taken[0].number
        problem = problem or next((line.problem for line in taken if line.problem), None)
        if header is None:
            header = _header(cells, problem, label) if cells or problem else None
        elif problem is None and cells and len(cells) != len(header):
            problem = f"{len(cells)} cells, but the header has {len(header)} columns"
        elif problem is None and cells:
            yield _row(start, dict(zip(header, cells, strict=True)))
        if problem is not None:
            yield Problem(start, problem)
            lines.extendleft(reversed(taken[1:]))


def _next_record(
    again: deque[_Line], source: Iterator[_Line], taken: list[_Line], delimiter: str
) -> tuple[list[str], str | None]:
    """Read one record, noting in `taken` the lines that it took; return its cells and what is wrong with it."""

    def feed() -> Iterator[str]:
        while line := again.popleft() if again else next(source, None):
            taken.append(line)
            yield line.text

    try:
        return next(csv.reader(feed(), delimiter=delimiter, strict=True), []), None
    except csv.Error as error:
        return [], f"not CSV: {error}; perhaps a quote that is not closed"


def _csv_lines(file: BinaryIO) -> Iterator[_Line]:
    for number, raw in _lines(file):
        if raw is None:
            yield _Line(number, "", _TOO_LONG)
            continue
        try:
            yield _Line(number, raw.decode("utf-8-sig" if number == 1 else "utf-8"), None)
        except UnicodeDecodeError as error:
            yield _Line(number, raw.decode("utf-8", "replace"), not_utf8(raw[error.start]))


def _header(cells: list[str], problem: str | None, label: str) -> list[str]:
    if problem is not None:
        raise InvalidInput(f"{label}, line 1: {problem}")
    header = [cell.strip() or f"column {place}" for place, cell in enumerate(cells, start=1)]
    if len(set(header)) != len(header):
        raise InvalidInput(f"{label}, line 1: two columns have the same name, found {header}")
    return header


def _read_parquet(file: BinaryIO, label: str) -> Iterator[Row | Problem]:
    number = 0
    try:
        with pq.ParquetFile(file) as table:
            for batch in table.iter_batches(batch_size=1000):
                for value in _values(batch):
                    number += 1
                    yield _row(number, value) if isinstance(value, dict) else Problem(number, value)
    except (pa.ArrowException, OSError) as error:
        if number == 0:
            raise InvalidInput(f"{label}: not a Parquet file ({error})") from None
        yield Problem(number + 1, f"the file is damaged from here on ({error}); nothing after it was read")


def _values(batch: pa.RecordBatch) -> Iterator[dict[str, Any] | str]:
    """Rows of a batch without their empty cells; for a row that Python can't hold, what is wrong with it."""
    try:
        values = batch.to_pylist()
    except (ValueError, OverflowError, pa.ArrowException) as error:
        if batch.num_rows == 1:
            yield f"a cell can't be read: {error}"
            return
        for place in range(batch.num_rows):
            yield from _values(batch.slice(place, 1))
        return
    for value in values:
        yield {name: cell for name, cell in value.items() if cell is not None}


def _name(value: object) -> str:
    return {list: "a list", str: "text", int: "a number", float: "a number", bool: "true or false"}.get(
        type(value), "null" if value is None else type(value).__name__
    )


_TOO_LONG = f"the line has more than {MAX_LINE_BYTES:,} bytes, which is the most that is read"
