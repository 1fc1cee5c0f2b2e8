"""Snapshots as files that other libraries read. Each export has a manifest with every count and the meaning of columns.

trl       prompt, chosen, rejected as texts (Human/Assistant turns, after Anthropic's HH)
trl-chat  prompt, chosen, rejected as message lists: what TRL recommends for chat models
kwise     prompt (messages), responses, ranks: whole rankings, with all that was said beside the ranks
unpaired  prompt, completion (messages), label: as called acceptable or not; else first ranks true, last ranks false
openrlhf  JSON lines with message lists under prompt, chosen, rejected
answers   JSON lines, one for each answer that there was, skips and all: what `rankloop import rankings` reads

One file for each side of the split that has rows: `datasets` can't load a file without any.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from data.errors import Conflict, InvalidInput
from data.files.paths import Home
from data.files.snapshots import (
    EXPECTED,
    GROUP_COLUMNS,
    GROUPS,
    MANIFEST,
    MESSAGE_LIST,
    OTHERS,
    PAIR_COLUMNS,
    PAIRS,
    TableWriter,
    count_rows,
    file_hash,
    group_from_row,
    read_batches,
)
from data.records import Snapshot, Split
from data.store.disk import sync_file, sync_folder
from labeling.snapshot.tables import (
    ANSWER_NAMES,
    KWISE_NAMES,
    answer_rows,
    chat_pairs,
    kwise_rows,
    single_groups,
    text_pairs,
    unacceptable_answers,
    unpaired_rows,
)

EXPORT_VERSION = 2
Columns = dict[str, pa.Array]
OnRow = Callable[[int, int], None]

_TEXT = pa.string()
_ROW_IDS = {"prompt_id": _TEXT, "ranking_id": _TEXT, "split": _TEXT, "weight": pa.float64()}
_PAIR_IDS = _ROW_IDS | {
    name: PAIR_COLUMNS.field(name).type
    for name in ("chosen_id", "rejected_id", "rank_distance", "n_agree", "n_annotators", "probability")
}
_GROUP_IDS = _ROW_IDS | {"annotator": _TEXT, "adjudicated": pa.bool_()}


@dataclass(frozen=True)
class Format:
    """What a format is made from: which file of the snapshot, how, and which columns come out and come along."""

    source: str
    make: Callable[[pa.RecordBatch, Counter[str]], tuple[Columns, pa.RecordBatch]]
    columns: dict[str, pa.DataType]
    ids: dict[str, pa.DataType]
    note: str
    suffix: str = ".parquet"
    also: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None  # which of the snapshot's other answers come too

    def table(self, batch: pa.RecordBatch, left_out: Counter[str]) -> pa.RecordBatch:
        """The rows that a batch of the snapshot becomes."""
        made, along = self.make(batch, left_out)
        n = along.num_rows
        arrays = [made[each.name] if each.name in made else _column(along, each, n) for each in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema(self.columns | self.ids)


def _column(batch: pa.RecordBatch, wanted: pa.Field, n: int) -> pa.Array:
    """A column of the snapshot; nothing but nulls where the snapshot is older than the column."""
    return batch[wanted.name] if wanted.name in batch.schema.names else pa.nulls(n, wanted.type)


def export_snapshot(
    home: Home, snapshot: Snapshot, format_name: str, target: Path, *, on_row: OnRow = lambda _done, _total: None
) -> dict[str, Any]:
    """Write a snapshot in one format to the folder `target`, which must be new or empty; return the manifest.

    `on_row` is called with how many rows were read so far, and of how many.
    Raises InvalidInput for an unknown format or a folder that can't be written, Conflict for one that holds something.
    """
    if format_name not in FORMATS:
        raise InvalidInput(f"format {format_name!r}: one of {', '.join(FORMATS)} is needed")
    target = target.expanduser().resolve()
    if target.is_file() or (target.is_dir() and any(target.iterdir())):
        raise Conflict(f"{target} is not empty; name a new folder")
    staging = target.with_name(f".{target.name}.{snapshot.id}.part")
    try:
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(parents=True)
        manifest = _write(home.snapshot_folder(snapshot.id), snapshot, format_name, staging, on_row)
        _move_into_place(staging, target)
    except OSError as error:
        raise InvalidInput(f"{target} can't be written ({error.strerror}); name another folder") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return manifest


def _write(source: Path, snapshot: Snapshot, format_name: str, folder: Path, on_row: OnRow) -> dict[str, Any]:
    chosen, left_out = FORMATS[format_name], Counter[str]()
    total = count_rows(source / chosen.source) + (count_rows(source / OTHERS) if chosen.also is not None else 0)
    if chosen.source == PAIRS and (n_split := snapshot.counts.get("evenly_split")):
        left_out["pairs on which annotators are evenly split"] = n_split
    done = 0
    with contextlib.ExitStack() as stack:
        writers = {side: stack.enter_context(_writer(chosen, folder / f"{side}{chosen.suffix}")) for side in Split}
        for batch in _batches(source, chosen):
            for side, writer in writers.items():
                own = batch.filter(pc.equal(batch["split"], side.value))
                if own.num_rows:
                    writer.add_batch(chosen.table(own, left_out))
            done += batch.num_rows
            on_row(done, total)
    manifest = {
        "schema_version": EXPORT_VERSION,
        "format": format_name,
        "statement": "rank 1 is best",
        "ties": "a tie gives no pair",
        "split": "by prompt",
        "columns": chosen.note,
        "snapshot": {"id": snapshot.id, "content_hash": snapshot.content_hash, "counts": snapshot.counts},
        "rows": {side.value: writer.n_rows for side, writer in writers.items()},
        "left_out": dict(left_out),
        "files": {path.name: {"sha256": file_hash(path)} for path in sorted(folder.iterdir())},
        "examples": _examples(source),
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2, ensure_ascii=False), encoding="utf-8")
    return manifest


def _batches(source: Path, chosen: Format) -> Iterator[pa.RecordBatch]:
    yield from read_batches(source / chosen.source)
    if chosen.also is not None and (source / OTHERS).is_file():
        yield from map(chosen.also, read_batches(source / OTHERS))


def _move_into_place(staging: Path, target: Path) -> None:
    """All at once where the folder is new; into an empty one file by file, the manifest last."""
    for path in staging.iterdir():
        sync_file(path)
    sync_folder(staging)
    if not target.exists():
        staging.rename(target)
        return
    for path in sorted(staging.iterdir(), key=lambda path: path.name == MANIFEST):
        path.rename(target / path.name)


class _Writer(Protocol):
    n_rows: int

    def add_batch(self, batch: pa.RecordBatch) -> None: ...


class _LinesWriter:
    """JSON lines, one for each row."""

    def __init__(self, path: Path) -> None:
        self.n_rows, self._path = 0, path

    def add_batch(self, batch: pa.RecordBatch) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in batch.to_pylist())
        self.n_rows += batch.num_rows


@contextlib.contextmanager
def _writer(chosen: Format, path: Path) -> Iterator[_Writer]:
    if path.suffix == ".jsonl":
        yield _LinesWriter(path)
    else:
        with TableWriter(path, chosen.schema) as writer:
            yield writer


def _examples(source: Path) -> list[dict[str, str]]:
    group = group_from_row(next(read_batches(source / GROUPS)).slice(0, 1).to_pylist()[0])
    order = sorted(range(len(group.ranks)), key=group.ranks.__getitem__)
    best, worst = group.responses[order[0]], group.responses[order[-1]]
    prompt = group.messages[-1]["content"]
    return [{"prompt": prompt[:300], "best (rank 1)": best[:300], "worst (last rank)": worst[:300]}]


def _unpaired(groups: pa.RecordBatch, left_out: Counter[str]) -> tuple[Columns, pa.RecordBatch]:
    rows, places, n_left_out = unpaired_rows(groups)
    left_out.update({"responses between the first and the last rank": n_left_out} if n_left_out else {})
    return rows, groups.take(places)


def _answers(answers: pa.RecordBatch) -> tuple[Columns, pa.RecordBatch]:
    kept = answers if "left_out" in answers.schema.names else single_groups(answers)
    return answer_rows(kept), kept


_CHAT = dict.fromkeys(("prompt", "chosen", "rejected"), MESSAGE_LIST)
FORMATS = {
    "trl": Format(
        PAIRS,
        lambda pairs, _left_out: (text_pairs(pairs), pairs),
        dict.fromkeys(("prompt", "chosen", "rejected"), _TEXT),
        _PAIR_IDS,
        "prompt ends with '\\n\\nAssistant:'; chosen and rejected start with a space: TRL joins them as they are",
    ),
    "trl-chat": Format(
        PAIRS,
        lambda pairs, _left_out: (chat_pairs(pairs), pairs),
        _CHAT,
        _PAIR_IDS,
        "prompt: messages up to the user's; chosen, rejected: one assistant message each",
    ),
    "kwise": Format(
        GROUPS,
        lambda groups, _left_out: (kwise_rows(groups), groups),
        {"prompt": MESSAGE_LIST, "status": _TEXT} | {name: GROUP_COLUMNS.field(name).type for name in KWISE_NAMES},
        _GROUP_IDS,
        "ranks[i] belongs to responses[i]; competition ranks (1, 2, 2, 4); unplaced: places (from 0) with the last "
        "rank, in no order; no model may see facts or comment; annotator is a pseudonym; "
        "adjudicated: a researcher's decision, whose reason is the comment",
    ),
    "unpaired": Format(
        GROUPS,
        _unpaired,
        {"prompt": MESSAGE_LIST, "completion": MESSAGE_LIST, "label": pa.bool_()},
        _ROW_IDS,
        "label true: acceptable, or ranked first (ties included); false: unacceptable, or ranked last; false too: all "
        "responses of which an annotator said that none is acceptable",
        also=unacceptable_answers,
    ),
    "openrlhf": Format(
        PAIRS,
        lambda pairs, _left_out: (chat_pairs(pairs), pairs),
        _CHAT,
        _PAIR_IDS,
        "use with --data.prompt_key prompt --data.chosen_key chosen --data.rejected_key rejected "
        "--data.apply_chat_template",
        ".jsonl",
    ),
    "answers": Format(
        GROUPS,
        lambda answers, _left_out: _answers(answers),
        {"prompt": MESSAGE_LIST, "status": _TEXT, "skip_reason": _TEXT}
        | {name: GROUP_COLUMNS.field(name).type for name in ANSWER_NAMES},
        {"prompt_id": _TEXT, "ranking_id": _TEXT, "split": _TEXT, "left_out": _TEXT, "expected": EXPECTED},
        "one line for each current answer; left_out: why it is no group of its own (null: it is); merged: it is part "
        "of one; expected: the ranking that the gold task was to get; display_order: places in responses (from 0) in "
        "the order in which they were shown, empty: unknown; annotator is a pseudonym",
        ".jsonl",
        also=lambda others: others,
    ),
}
COLUMN_NOTES = {name: chosen.note for name, chosen in FORMATS.items()}
