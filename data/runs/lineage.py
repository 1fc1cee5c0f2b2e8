"""From a policy back to the human gestures it was made of, and from a gesture on to what was made of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow.parquet as pq

from data.files.paths import Home
from data.files.snapshots import GROUPS, list_snapshots
from data.records import Run
from data.runs.best_policy import is_best, run_of
from data.runs.state import get_run, list_runs
from data.store.engine import Tx

_COLUMNS = ["ranking_id", "prompt_id", "annotator", "split", "ranks", "messages"]
_SCORES = ("second_reward_run", "beside")  # fields of configurations that name reward runs by their ids
_WRITES = ("model", "model_a", "model_b", "models")  # and those that may name models as run:ID


@dataclass(frozen=True)
class Source:
    """One ranking that a snapshot holds: where it comes from. `ranking_ids`: several where rankings were merged."""

    ranking_ids: tuple[str, ...]
    prompt_id: str
    annotators: tuple[str, ...]
    split: str
    ranks: tuple[int, ...]
    prompt: str


@dataclass(frozen=True)
class Ancestors:
    """The chain behind a run. `runs`: the run itself, its reward models' runs, and those that it starts from, nearest
    first; `snapshot_ids`: all that any of them learnt from; `by_best`: ids of the runs whose best policy was taken."""

    runs: tuple[Run, ...]
    snapshot_ids: tuple[str, ...]
    by_best: frozenset[str]


def parents_of(run: Run) -> list[str]:
    """Ids of the runs whose models a run uses: those that score (its reward model, the second one, those beside it),
    then those that it starts from, samples or compares."""
    words = [str(run.config.get(name) or "") for name in _SCORES]
    found = [run.reward_run_id or "", *(each for word in words for each in word.split(","))]
    found += [run_of(name) or "" for name in starts_of(run)]
    return [each for each in dict.fromkeys(found) if each]


def ancestors(tx: Tx, run_id: str) -> Ancestors:
    """Everything that went into a run: through its reward models, its start, and theirs."""
    runs: dict[str, Run] = {}
    by_best: set[str] = set()
    waiting = [run_id]
    while waiting:
        run = get_run(tx, waiting.pop(0))
        if run.id in runs:
            continue
        runs[run.id] = run
        waiting += parents_of(run)
        by_best |= {start for name in starts_of(run) if is_best(name) and (start := run_of(name))}
    snapshots = dict.fromkeys(run.snapshot_id for run in runs.values() if run.snapshot_id)
    return Ancestors(tuple(runs.values()), tuple(snapshots), frozenset(by_best))


def starts_of(run: Run) -> list[str]:
    """The models that a run starts from or looks at, as its configuration names them: `run:ID`, `run:ID/best`, ..."""
    words = " ".join(str(run.config.get(name) or "") for name in _WRITES)
    return words.split()


def descendants(tx: Tx, project_id: str, snapshot_id: str) -> list[Run]:
    """Every run that a snapshot went into, directly or through a model, the oldest first."""
    runs = list_runs(tx, project_id=project_id, limit=1_000_000)[::-1]
    made: dict[str, Run] = {}
    for run in runs:
        if run.snapshot_id == snapshot_id or any(each in made for each in parents_of(run)):
            made[run.id] = run
    return list(made.values())


def sources_of(home: Home, snapshot_id: str) -> Iterator[Source]:
    """The rankings that a snapshot holds, in its order, read in pieces."""
    file = pq.ParquetFile(home.snapshot_folder(snapshot_id) / GROUPS)
    for batch in file.iter_batches(batch_size=2_000, columns=_COLUMNS):
        for row in batch.to_pylist():
            yield Source(
                tuple(row["ranking_id"].split(",")),
                row["prompt_id"],
                tuple(row["annotator"].split(",")),
                row["split"],
                tuple(row["ranks"]),
                row["messages"][-1]["content"],
            )


def by_annotator(home: Home, snapshot_id: str) -> Counter[str]:
    """How many of a snapshot's rankings each annotator has given."""
    counts = Counter[str]()
    for source in sources_of(home, snapshot_id):
        counts.update(source.annotators)
    return counts


def snapshots_with(tx: Tx, home: Home, project_id: str, prompt_id: str) -> list[str]:
    """The snapshots that hold a ranking of this prompt, the newest first."""
    snapshot_ids = []
    for snapshot in list_snapshots(tx, project_id):
        path = home.snapshot_folder(snapshot.id) / GROUPS
        if path.is_file():
            table = pq.read_table(path, columns=["prompt_id"], filters=[("prompt_id", "=", prompt_id)])
            if table.num_rows:
                snapshot_ids.append(snapshot.id)
    return snapshot_ids
