"""Snapshots: a frozen set of judgements under an id and a content hash. The row is here, the files are Parquet.

groups.parquet  one row per ranking, or per task whose rankings are merged: the prompt, its responses, their ranks
pairs.parquet   one row per preference pair derived from the groups
others.parquet  one row per answer that is no group by itself, with the reason; only if there is one
prompts.parquet one row per prompt that the project had, with its side (`data.runs.frozen_prompts`)
manifest.json   what it is, how it was made, every count, the hash of each file
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq
import sqlalchemy as sa

from data.errors import InvalidInput, NotFound
from data.files.paths import Home
from data.records import Messages, Snapshot, Split
from data.store.engine import Tx
from data.store.tables import snapshot

GROUPS, PAIRS, OTHERS, PROMPTS = "groups.parquet", "pairs.parquet", "others.parquet", "prompts.parquet"
MANIFEST = "manifest.json"
ROWS_PER_CHUNK, BYTES_PER_CHUNK = 5_000, 16 * 2**20
ROWS_PER_GROUP = 20_000  # of a Parquet file: fewer cost the writer memory until the end, more cost it at once

MESSAGE_LIST = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
GROUP_COLUMNS = pa.schema(
    [
        ("ranking_id", pa.string()),
        ("task_id", pa.string()),
        ("prompt_id", pa.string()),
        ("split", pa.string()),
        ("messages", MESSAGE_LIST),
        ("responses", pa.list_(pa.string())),
        ("response_ids", pa.list_(pa.string())),
        ("models", pa.list_(pa.string())),
        ("ranks", pa.list_(pa.int32())),
        ("annotator", pa.string()),
        ("weight", pa.float64()),
        ("unplaced", pa.list_(pa.int32())),
        ("acceptable", pa.list_(pa.bool_())),
        ("flags", pa.list_(pa.list_(pa.string()))),
        ("quality", pa.list_(pa.int32())),
        ("strength", pa.int32()),
        ("comment", pa.string()),
        ("facts", pa.string()),
        ("duration_ms", pa.int32()),
        ("preferred", pa.list_(pa.int32())),
        ("compared", pa.list_(pa.int32())),
        ("probabilities", pa.list_(pa.float64())),
        ("adjudicated", pa.bool_()),
        ("display_order", pa.list_(pa.int32())),
    ]
)
EXPECTED = pa.struct([("ranks", pa.list_(pa.int32())), ("unplaced", pa.list_(pa.int32())), ("annotator", pa.string())])
OTHER_COLUMNS = pa.schema(
    [
        *GROUP_COLUMNS,
        ("expected", EXPECTED),
        ("status", pa.string()),
        ("skip_reason", pa.string()),
        ("left_out", pa.string()),
    ]
)
PAIR_COLUMNS = pa.schema(
    [
        ("prompt_id", pa.string()),
        ("ranking_id", pa.string()),
        ("split", pa.string()),
        ("messages", MESSAGE_LIST),
        ("chosen", pa.string()),
        ("rejected", pa.string()),
        ("chosen_id", pa.string()),
        ("rejected_id", pa.string()),
        ("rank_distance", pa.int32()),
        ("annotator", pa.string()),
        ("weight", pa.float64()),
        ("n_agree", pa.int32()),
        ("n_annotators", pa.int32()),
        ("probability", pa.float64()),
    ]
)
_UNSAID: dict[str, Any] = {  # what a group holds of these unless there is more to say; the hash then leaves them out
    "unplaced": [], "acceptable": [], "flags": [], "quality": [], "strength": None, "comment": "", "facts": "",
    "duration_ms": None, "preferred": [], "compared": [], "probabilities": [], "adjudicated": False,
    "display_order": [], "expected": None,
}  # fmt: skip


@dataclass(frozen=True)
class Group:
    """One ranking of one prompt's responses. `ranks[i]` belongs to `responses[i]`, 1 is best, equal is a tie.

    From `unplaced` to `strength`: as in `data.records.Detail`. No model is shown `comment`.
    `duration_ms`: how long the annotator was at it, breaks left out. `display_order[i]`: the place in `responses` of
    what the annotator saw in place i; empty where that is unknown, or where there was no annotator, or several.
    Where a task has several annotators, `preferred[i * K + j]` of them rank i above j, and `compared[i * K + j]`
    compared the two. Where they are merged into one group, `probabilities[i * K + j]` says how sure it is that i is
    better than j (both directions 0: no pair), and `ranking_id` and `annotator` list all of them, with commas between.
    Where a researcher has decided on the task (`adjudicated`), they name the decision and the researcher, and `comment`
    is the reason.
    """

    ranking_id: str
    task_id: str
    prompt_id: str
    split: Split
    messages: Messages
    responses: tuple[str, ...]
    response_ids: tuple[str, ...]
    models: tuple[str, ...]
    ranks: tuple[int, ...]
    annotator: str
    weight: float
    unplaced: tuple[int, ...] = ()
    acceptable: tuple[bool | None, ...] = ()
    flags: tuple[tuple[str, ...], ...] = ()
    quality: tuple[int | None, ...] = ()
    strength: int | None = None
    comment: str = ""
    facts: str = ""
    duration_ms: int | None = None
    preferred: tuple[int, ...] = ()
    compared: tuple[int, ...] = ()
    probabilities: tuple[float, ...] = ()
    adjudicated: bool = False
    display_order: tuple[int, ...] = ()

    @property
    def best(self) -> str:
        """The best response; of several that are equally good one is drawn by its text, wherever it stands."""
        first = [text for text, rank in zip(self.responses, self.ranks, strict=True) if rank == 1]
        return min(first, key=lambda text: hashlib.sha256(text.encode()).digest())

    def as_row(self) -> dict[str, Any]:
        return {name: _plain(getattr(self, name)) for name in GROUP_COLUMNS.names}


def group_from_row(row: dict[str, Any]) -> Group:
    """The inverse of `Group.as_row`."""
    fields = dict(row)
    for name in ("responses", "response_ids", "models", "ranks"):
        fields[name] = tuple(fields[name])
    for name in ("unplaced", "acceptable", "quality", "preferred", "compared", "probabilities", "display_order"):
        fields[name] = tuple(fields.get(name) or ())
    fields["flags"] = tuple(tuple(each) for each in fields.get("flags") or ())
    fields["adjudicated"] = bool(fields.get("adjudicated"))
    fields["split"] = Split(row["split"])
    fields["messages"] = tuple(dict(each) for each in row["messages"])
    return Group(**fields)


def save_snapshot(
    tx: Tx,
    snapshot_id: str,
    project_id: str,
    config: dict[str, Any],
    counts: dict[str, Any],
    content_hash: str,
    prompts_hash: str,
    *,
    nonce: str | None,
    created_by: str | None,
) -> Snapshot:
    """Record a snapshot whose files are in place; a repeated `nonce` returns the one it made the first time."""
    values = {
        "id": snapshot_id,
        "project_id": project_id,
        "config": json.dumps(config, sort_keys=True),
        "counts": json.dumps(counts, sort_keys=True),
        "content_hash": content_hash,
        "prompts_hash": prompts_hash,
        "nonce": nonce,
        "created_by": created_by,
        "created_at": tx.now(),
    }
    if tx.insert_ignoring(snapshot, values, ["nonce"]):
        return get_snapshot(tx, snapshot_id)
    return _as_snapshot(tx.rows(sa.select(snapshot).where(snapshot.c.nonce == nonce))[0])


def get_snapshot(tx: Tx, snapshot_id: str) -> Snapshot:
    """Raises NotFound."""
    row = tx.row(sa.select(snapshot).where(snapshot.c.id == snapshot_id))
    if row is None:
        raise NotFound(f"no snapshot {snapshot_id!r}; `rankloop snapshot create` makes one")
    return _as_snapshot(row)


def snapshot_of_nonce(tx: Tx, nonce: str) -> Snapshot | None:
    row = tx.row(sa.select(snapshot).where(snapshot.c.nonce == nonce))
    return None if row is None else _as_snapshot(row)


def set_prompts_hash(tx: Tx, snapshot_id: str, prompts_hash: str) -> bool:
    """Record the hash of a snapshot's prompts where it has none yet; return whether it was this call that did."""
    without = (snapshot.c.id == snapshot_id, snapshot.c.prompts_hash.is_(None))
    return tx.execute(sa.update(snapshot).where(*without).values(prompts_hash=prompts_hash)).rowcount == 1


def list_snapshots(tx: Tx, project_id: str | None = None) -> list[Snapshot]:
    """Snapshots, the newest first."""
    statement = sa.select(snapshot).order_by(snapshot.c.created_at.desc(), snapshot.c.id.desc())
    if project_id is not None:
        statement = statement.where(snapshot.c.project_id == project_id)
    return [_as_snapshot(row) for row in tx.rows(statement)]


def write_parquet(path: Path, columns: pa.Schema, rows: Iterable[dict[str, Any]]) -> int:
    """Write rows to a Parquet file in chunks; return their number."""
    with TableWriter(path, columns) as writer:
        for row in rows:
            writer.add_row(row)
    return writer.n_rows


class TableWriter:
    """Writes a Parquet file, a chunk of rows or a batch of columns at a time. The file is there once a row is."""

    def __init__(self, path: Path, columns: pa.Schema) -> None:
        self.n_rows = 0
        self._path, self._columns = path, columns
        self._writer: pq.ParquetWriter | None = None
        self._rows: list[dict[str, Any]] = []
        self._n_characters = 0
        self._batches: list[pa.RecordBatch] = []

    def add_row(self, row: dict[str, Any]) -> None:
        self._rows.append(row)
        self._n_characters += _n_characters(row)
        if len(self._rows) == ROWS_PER_CHUNK or self._n_characters > BYTES_PER_CHUNK:
            self._batch_rows()

    def add_batch(self, batch: pa.RecordBatch) -> None:
        self.n_rows += batch.num_rows
        self._batches.append(batch)
        n_rows, n_bytes = (sum(getattr(each, what) for each in self._batches) for what in ("num_rows", "nbytes"))
        if n_rows >= ROWS_PER_GROUP or n_bytes > BYTES_PER_CHUNK:
            self._write_group()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._batch_rows()
        self._write_group()
        if self._writer is not None:
            self._writer.close()

    def _batch_rows(self) -> None:
        if self._rows:
            self.add_batch(pa.RecordBatch.from_pylist(self._rows, schema=self._columns))
        self._rows, self._n_characters = [], 0

    def _write_group(self) -> None:
        table = pa.Table.from_batches(self._batches, schema=self._columns)
        self._batches = []
        if table.num_rows == 0:
            return
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._path, self._columns, compression="zstd", write_statistics=False)
        self._writer.write_table(table)


def read_batches(path: Path) -> Iterator[pa.RecordBatch]:
    """Yield a Parquet file as batches of columns. Raises NotFound where there is no such file."""
    if not path.is_file():
        raise NotFound(f"the file {path} is missing: the snapshot's folder was moved or not copied to this machine")
    with pq.ParquetFile(path, pre_buffer=False, buffer_size=2**16) as file:  # else it holds whole row groups, twice
        yield from file.iter_batches(batch_size=ROWS_PER_CHUNK, use_threads=False)


def count_rows(path: Path) -> int:
    """How many rows a Parquet file has; none where there is no such file."""
    return int(pq.read_metadata(path).num_rows) if path.is_file() else 0


def read_parquet(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Parquet file without holding them all. Raises NotFound where there is no such file."""
    for batch in read_batches(path):
        yield from batch.to_pylist()


def read_groups(folder: Path) -> Iterator[Group]:
    """The groups of the snapshot in `folder`, in their frozen order."""
    for row in read_parquet(folder / GROUPS):
        yield group_from_row(row)


def content_hash(groups: Iterable[Group]) -> str:
    """SHA-256 over the groups in their order: the same judgements, texts and splits give the same hash."""
    digest = hashlib.sha256()
    for _ in hashed(groups, digest):
        pass
    return digest.hexdigest()


def hashed(groups: Iterable[Group], digest: Any) -> Iterator[Group]:
    """Pass groups on, and feed them to `digest`, as `content_hash` does, on the way."""
    for group in groups:
        hash_row(group.as_row(), digest)
        yield group


def hash_row(row: dict[str, Any], digest: Any) -> None:
    """Feed a row to `digest`: only what it says, so that columns which come later change no older hash."""
    said = {name: value for name, value in row.items() if value != _UNSAID.get(name, ...)}
    digest.update(json.dumps(said, sort_keys=True, ensure_ascii=False).encode())
    digest.update(b"\n")


def file_hash(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_files(home: Home, snapshot: Snapshot) -> None:
    """Look whether the files of a snapshot are what was frozen.

    Raises InvalidInput for one that has changed, NotFound where one is missing.
    """
    folder = home.snapshot_folder(snapshot.id)
    if not (folder / MANIFEST).is_file():
        missing = f"the file {folder / MANIFEST} is missing"
        raise NotFound(f"{missing}: the snapshot's folder was moved or not copied to this machine")
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    wanted = {name: facts["sha256"] for name, facts in manifest["files"].items()}
    if snapshot.prompts_hash is not None:
        wanted[PROMPTS] = snapshot.prompts_hash
    for name, known in wanted.items():
        if not (folder / name).is_file():
            missing = f"the file {folder / name} is missing"
            raise NotFound(f"{missing}: the snapshot's folder was moved or not copied to this machine")
        if (found := file_hash(folder / name)) != known:
            raise InvalidInput(_changed(folder / name, known, found))
    if manifest["content_hash"] != snapshot.content_hash:
        raise InvalidInput(_changed(folder / MANIFEST, snapshot.content_hash, manifest["content_hash"]))


def _changed(path: Path, known: str, found: str) -> str:
    return (
        f"{path} has changed since it was frozen: its hash was {known}, now it is {found}; put it back from a backup, "
        "or make a new snapshot"
    )


def _n_characters(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(_n_characters, value.values()))
    return sum(map(_n_characters, value)) if isinstance(value, list) else 0


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return value.value if isinstance(value, Split) else value


def _as_snapshot(row: sa.Row[Any]) -> Snapshot:
    return Snapshot(
        id=row.id,
        project_id=row.project_id,
        config=json.loads(row.config),
        counts=json.loads(row.counts),
        content_hash=row.content_hash,
        created_at=row.created_at,
        created_by=row.created_by,
        prompts_hash=row.prompts_hash,
    )
