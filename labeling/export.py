"""Snapshots as files that other libraries read. Each export has a manifest with every count and the meaning of columns.

trl       prompt, chosen, rejected as texts (Human/Assistant turns, after Anthropic's HH)
trl-chat  prompt, chosen, rejected as message lists: what TRL recommends for chat models
kwise     prompt (messages), responses, ranks: whole rankings
unpaired  prompt, completion (messages), label: first ranks are true, last ranks false, the rest is left out
openrlhf  JSON lines with message lists under prompt, chosen, rejected
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from data.errors import Conflict, InvalidInput
from data.paths import Home
from data.records import Messages, Snapshot, Split
from data.snapshots import (
    GROUPS,
    MESSAGE_LIST,
    PAIRS,
    Group,
    file_hash,
    group_from_row,
    read_groups,
    read_parquet,
    write_parquet,
)

EXPORT_VERSION = 1
Row = dict[str, Any]
OnRow = Callable[[int, int], None]

_PROVENANCE = [("prompt_id", pa.string()), ("ranking_id", pa.string()), ("weight", pa.float64())]
_PAIR_IDS = [("chosen_id", pa.string()), ("rejected_id", pa.string()), ("rank_distance", pa.int32())]


def _schema(columns: list[tuple[str, pa.DataType]], *, pairs: bool) -> pa.Schema:
    return pa.schema(columns + _PROVENANCE + (_PAIR_IDS if pairs else []))


_TEXT_PAIR = _schema([(name, pa.string()) for name in ("prompt", "chosen", "rejected")], pairs=True)
_CHAT_PAIR = _schema([(name, MESSAGE_LIST) for name in ("prompt", "chosen", "rejected")], pairs=True)
_KWISE = _schema(
    [("prompt", MESSAGE_LIST), ("responses", pa.list_(pa.string())), ("ranks", pa.list_(pa.int32()))], pairs=False
)
_UNPAIRED = _schema([("prompt", MESSAGE_LIST), ("completion", MESSAGE_LIST), ("label", pa.bool_())], pairs=False)


class _Source:
    """The files of a snapshot. Each is read once for each side of the split; `on_row` is told how far that is."""

    def __init__(self, folder: Path, counts: dict[str, Any], on_row: OnRow) -> None:
        self.folder = folder
        self._counts, self._on_row, self._n_read = counts, on_row, 0

    def pairs(self, side: Split) -> Iterator[Row]:
        return (row for row in self._rows(PAIRS, self._counts["pairs"]) if row["split"] == side.value)

    def groups(self, side: Split) -> Iterator[Group]:
        rows = self._rows(GROUPS, self._counts["rankings_used"])
        return (group_from_row(row) for row in rows if row["split"] == side.value)

    def _rows(self, name: str, n_rows: int) -> Iterator[Row]:
        for row in read_parquet(self.folder / name):
            self._n_read += 1
            self._on_row(self._n_read, n_rows * len(Split))
            yield row


def export_snapshot(
    home: Home, snapshot: Snapshot, format_name: str, target: Path, *, on_row: OnRow = lambda _done, _total: None
) -> dict[str, Any]:
    """Write a snapshot in one format to the folder `target`, which must be new or empty; return the manifest.

    `on_row` is called with how many rows were read so far, and of how many.
    Raises InvalidInput for an unknown format, Conflict for a folder that holds something.
    """
    if format_name not in FORMATS:
        raise InvalidInput(f"format {format_name!r}: one of {', '.join(FORMATS)} is needed")
    if target.exists() and any(target.iterdir()):
        raise Conflict(f"{target} is not empty; name a new folder")
    source = _Source(home.snapshot_folder(snapshot.id), snapshot.counts, on_row)
    staging = target.with_name(f".{target.name}.part")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    try:
        left_out = Counter[str]()
        counts = {side.value: FORMATS[format_name](source, side, staging, left_out) for side in Split}
        manifest = {
            "schema_version": EXPORT_VERSION,
            "format": format_name,
            "statement": "rank 1 is best",
            "ties": "a tie gives no pair",
            "split": "by prompt",
            "columns": COLUMN_NOTES[format_name],
            "snapshot": {"id": snapshot.id, "content_hash": snapshot.content_hash, "counts": snapshot.counts},
            "rows": counts,
            "left_out": dict(left_out),
            "files": {path.name: {"sha256": file_hash(path)} for path in sorted(staging.iterdir())},
            "examples": _examples(source.folder),
        }
        text = json.dumps(manifest, indent=2, ensure_ascii=False)
        (staging / "manifest.json").write_text(text, encoding="utf-8")
        if target.exists():
            target.rmdir()
        staging.rename(target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return manifest


def conversation_text(messages: Messages) -> str:
    """A prompt as text: `\\n\\nHuman: ...\\n\\nAssistant:`, the convention of Anthropic's HH data. A system message
    comes first, without a name."""
    names = {"user": "\n\nHuman: ", "assistant": "\n\nAssistant: ", "system": ""}
    return "".join(names[each["role"]] + each["content"] for each in messages) + "\n\nAssistant:"


def _text_pairs(row: Row) -> Row:
    texts = {"prompt": conversation_text(row["messages"])}
    return texts | {side: f" {row[side]}" for side in ("chosen", "rejected")} | _provenance(row)


def _chat_pairs(row: Row) -> Row:
    sides = {side: [{"role": "assistant", "content": row[side]}] for side in ("chosen", "rejected")}
    return {"prompt": row["messages"]} | sides | _provenance(row)


def _provenance(row: Row) -> Row:
    return {name: row[name] for name in row if name not in ("messages", "chosen", "rejected", "split", "annotator")}


def _kwise_row(group: Group) -> Iterator[Row]:
    yield {"prompt": list(group.messages), "responses": list(group.responses), "ranks": list(group.ranks)} | _ids(group)


def _unpaired_rows(group: Group, left_out: Counter[str]) -> Iterator[Row]:
    last = max(group.ranks)
    for text, rank in zip(group.responses, group.ranks, strict=True):
        if rank in (1, last):
            answer = [{"role": "assistant", "content": text}]
            yield {"prompt": list(group.messages), "completion": answer, "label": rank == 1} | _ids(group)
        else:
            left_out["responses between the first and the last rank"] += 1


def _ids(group: Group) -> Row:
    return {"prompt_id": group.prompt_id, "ranking_id": group.ranking_id, "weight": group.weight}


def _write_trl(source: _Source, side: Split, folder: Path, _left_out: Counter[str]) -> int:
    return write_parquet(folder / f"{side}.parquet", _TEXT_PAIR, map(_text_pairs, source.pairs(side)))


def _write_trl_chat(source: _Source, side: Split, folder: Path, _left_out: Counter[str]) -> int:
    return write_parquet(folder / f"{side}.parquet", _CHAT_PAIR, map(_chat_pairs, source.pairs(side)))


def _write_kwise(source: _Source, side: Split, folder: Path, _left_out: Counter[str]) -> int:
    rows = (row for group in source.groups(side) for row in _kwise_row(group))
    return write_parquet(folder / f"{side}.parquet", _KWISE, rows)


def _write_unpaired(source: _Source, side: Split, folder: Path, left_out: Counter[str]) -> int:
    rows = (row for group in source.groups(side) for row in _unpaired_rows(group, left_out))
    return write_parquet(folder / f"{side}.parquet", _UNPAIRED, rows)


def _write_openrlhf(source: _Source, side: Split, folder: Path, _left_out: Counter[str]) -> int:
    return _write_jsonl(folder / f"{side}.jsonl", map(_chat_pairs, source.pairs(side)))


def _write_jsonl(path: Path, rows: Iterable[Row]) -> int:
    number = 0
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            number += 1
    return number


def _examples(source: Path) -> list[Row]:
    group = next(read_groups(source))
    order = sorted(range(len(group.ranks)), key=group.ranks.__getitem__)
    best, worst = group.responses[order[0]], group.responses[order[-1]]
    prompt = group.messages[-1]["content"]
    return [{"prompt": prompt[:300], "best (rank 1)": best[:300], "worst (last rank)": worst[:300]}]


FORMATS: dict[str, Callable[[_Source, Split, Path, Counter[str]], int]] = {
    "trl": _write_trl,
    "trl-chat": _write_trl_chat,
    "kwise": _write_kwise,
    "unpaired": _write_unpaired,
    "openrlhf": _write_openrlhf,
}
COLUMN_NOTES = {
    "trl": "prompt ends with '\\n\\nAssistant:'; chosen and rejected start with a space: TRL joins them as they are",
    "trl-chat": "prompt: messages up to the user's; chosen, rejected: one assistant message each",
    "kwise": "ranks[i] belongs to responses[i]; competition ranks (1, 2, 2, 4)",
    "unpaired": "label true: ranked first (ties included); false: ranked last",
    "openrlhf": "use with --data.prompt_key prompt --data.chosen_key chosen --data.rejected_key rejected "
    "--data.apply_chat_template",
}
