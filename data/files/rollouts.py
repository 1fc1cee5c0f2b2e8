"""Recorded rollouts of a PPO run, token by token: one small Parquet file for each update, read one at a time.

<run folder>/rollouts/train-00000012.parquet      responses of the rollout of iteration 12
<run folder>/rollouts/held_out-00000012.parquet   responses to the fixed held-out prompts after iteration 12
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from data.errors import InvalidInput

FOLDER = "rollouts"
TRAIN, HELD_OUT = "train", "held_out"
TOKEN_COLUMNS = (
    "logprob", "ref_logprob", "kl_penalty", "reward", "value", "td_error", "advantage", "return", "ratio",
)  # fmt: skip
_NUMBERS = pa.list_(pa.float32())
SCHEMA = pa.schema(
    [
        ("prompt_key", pa.string()),
        ("prompt", pa.string()),
        ("response", pa.string()),
        ("score", pa.float32()),
        ("score_after_penalty", pa.float32()),
        ("kl", pa.float32()),
        ("ended", pa.bool_()),
        ("ids", pa.list_(pa.int32())),
        ("tokens", pa.list_(pa.string())),
        *((name, _NUMBERS) for name in TOKEN_COLUMNS),
        ("clipped", pa.list_(pa.bool_())),
        ("second_score", pa.float32()),  # by reward models that PPO does not see: their mean; null without any
        ("second_spread", pa.float32()),  # and of several the standard deviation between them
    ]
)


def write_rollout(run_folder: Path, side: str, iteration: int, rows: list[dict[str, Any]]) -> Path:
    """Write the rows of an update, whole or not at all; what an earlier attempt wrote of it is replaced."""
    folder = run_folder / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{side}-{iteration:08d}.parquet"
    staged = folder / f".{path.name}.{os.getpid()}"
    try:
        pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), staged, compression="zstd")
        staged.replace(path)
    finally:
        staged.unlink(missing_ok=True)
    return path


def recorded_iterations(run_folder: Path, side: str) -> list[int]:
    """The iterations of which rollouts are kept, in order. Looks at names only."""
    return sorted(int(path.stem.rpartition("-")[2]) for path in (run_folder / FOLDER).glob(f"{side}-*.parquet"))


def read_rollout(
    run_folder: Path, side: str, iteration: int, columns: tuple[str, ...] | None = None
) -> list[dict[str, Any]]:
    """The rows of one update, or some columns of them. Raises InvalidInput if the file is missing or spoilt."""
    path = run_folder / FOLDER / f"{side}-{iteration:08d}.parquet"
    try:
        rows: list[dict[str, Any]] = pq.read_table(path, columns=list(columns) if columns else None).to_pylist()
    except (OSError, pa.ArrowException, KeyError) as error:
        raise InvalidInput(f"{path} can't be read ({type(error).__name__}); its run has to record it again") from error
    return rows
