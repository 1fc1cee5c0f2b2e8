"""How fast people's files come in and preference pairs go out, and how much memory that takes.

    python benchmarks/data.py [--quick] [--json]

import_1M_s     one million prompts from a JSON-lines file into a fresh SQLite store
export_10M_s    ten million pairs of a frozen snapshot (1,666,667 rankings of four responses) to TRL's chat format
export_10M_mb   the most memory that the export took (its whole process)

No peer stands beside. Each case runs in a process of its own, twice; the better time counts, and the worse memory.
`--quick`: a fiftieth of the sizes, once.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pyarrow as pa
import sqlalchemy as sa

from data.files.paths import open_home
from data.files.snapshots import GROUP_COLUMNS, GROUPS, PAIRS, TableWriter, read_batches
from data.labels.projects import create_project
from data.labels.roles import OPERATOR
from data.records import Snapshot
from data.store import open_store
from data.store.engine import sqlite_module, sqlite_url
from labeling.files.imports import import_prompts
from labeling.snapshot.export import export_snapshot
from labeling.snapshot.freeze import _write_pairs

WORDS = [f"word{number}" for number in range(5_000)]
K = 4
PAIRS_OF_A_RANKING = K * (K - 1) // 2


def text(generator: random.Random, n_words: int) -> str:
    return " ".join(generator.choices(WORDS, k=n_words))


def import_case(folder: Path, n_prompts: int) -> dict[str, float]:
    """Import a file of prompts; the file is written before the clock starts."""
    generator, path = random.Random(0), folder / "prompts.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for number in range(n_prompts):
            row = {"id": number, "prompt": f"{number} {text(generator, 20)}", "topic": "benchmark"}
            file.write(json.dumps(row) + "\n")
    store = open_store(sqlite_url(folder / "rankloop.db"))
    with store.begin() as tx:
        project = create_project(tx, "benchmark")
    start = time.perf_counter()
    report = import_prompts(store, OPERATOR, project.id, path)
    seconds = time.perf_counter() - start
    store.close()
    if report.counts["new"] != n_prompts:
        raise SystemExit(f"{report.counts['new']} of {n_prompts} prompts went in")
    return {"import_1M_s": seconds}


def group_batches(n_rankings: int) -> Iterator[pa.RecordBatch]:
    """Rankings of four responses, each with texts and an order of its own."""
    generator = random.Random(0)
    for start in range(0, n_rankings, 5_000):
        rows = []
        for number in range(start, min(start + 5_000, n_rankings)):
            ranks = list(range(1, K + 1))
            generator.shuffle(ranks)
            rows.append(
                {
                    "ranking_id": f"{number:016d}",
                    "task_id": f"{number:016d}",
                    "prompt_id": f"{number:016d}",
                    "split": "eval" if number % 10 == 0 else "train",
                    "messages": [{"role": "user", "content": f"{number} {text(generator, 20)}"}],
                    "responses": [f"{number} {text(generator, 20)}" for _ in range(K)],
                    "response_ids": [f"{number:015d}{place}" for place in range(K)],
                    "models": ["benchmark"] * K,
                    "ranks": ranks,
                    "annotator": f"annotator{number % 50}",
                    "weight": 1.0,
                }
            )
        yield pa.RecordBatch.from_pylist(rows, schema=GROUP_COLUMNS)


def frozen(folder: Path, n_rankings: int) -> None:
    """Write the files of a snapshot: what is measured comes after."""
    source = open_home(folder / "home").snapshot_folder("benchmark")
    source.mkdir()
    with TableWriter(source / GROUPS, GROUP_COLUMNS) as writer:
        for batch in group_batches(n_rankings):
            writer.add_batch(batch)
    _write_pairs(source)


def export_case(folder: Path, n_rankings: int) -> dict[str, float]:
    home = open_home(folder / "home")
    n_pairs = n_rankings * PAIRS_OF_A_RANKING
    counts = {"pairs": n_pairs, "rankings_used": n_rankings}
    snapshot = Snapshot("benchmark", "benchmark", {}, counts, "", 0.0, None)
    start = time.perf_counter()
    manifest = export_snapshot(home, snapshot, "trl-chat", folder / "out")
    seconds = time.perf_counter() - start
    if sum(manifest["rows"].values()) != n_pairs:
        raise SystemExit(f"{manifest['rows']} of {n_pairs} pairs went out")
    written = sum(batch.num_rows for path in (folder / "out").glob("*.parquet") for batch in read_batches(path))
    if written != n_pairs:
        raise SystemExit(f"{written} of {n_pairs} pairs can be read again")
    return {"export_10M_s": seconds}


def _child(case: Callable[[Path, int], dict[str, float] | None], folder: Path, size: int, answer: Any) -> None:
    found = case(folder, size) or {}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    answer.send(found | {"peak_mb": peak / 2**20})


def in_a_process(case: Callable[[Path, int], dict[str, float] | None], folder: Path, size: int) -> dict[str, float]:
    """Run a case alone, so that its memory is its own."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(case, folder, size, sender))
    process.start()
    sender.close()
    try:
        found: dict[str, float] = receiver.recv()
    except EOFError:
        raise SystemExit(f"{case.__name__} failed") from None
    finally:
        process.join()
    return found


def row(name: str, runs: list[float], unit: str, pick: Callable[[list[float]], float]) -> dict[str, Any]:
    rounded = [round(each, 2) for each in runs]
    return {"case": name, "ours": pick(rounded), "peer": None, "ratio": None, "unit": unit, "runs": rounded}


def measure(quick: bool, n_runs: int) -> dict[str, Any]:
    n_prompts, n_rankings = (20_000, 33_334) if quick else (1_000_000, 1_666_667)
    imports, exports, peaks = [], [], []
    for _ in range(n_runs):
        with tempfile.TemporaryDirectory() as folder:
            imports.append(in_a_process(import_case, Path(folder), n_prompts)["import_1M_s"])
    with tempfile.TemporaryDirectory() as folder:
        in_a_process(frozen, Path(folder), n_rankings)
        pairs_mb = (open_home(Path(folder) / "home").snapshot_folder("benchmark") / PAIRS).stat().st_size / 2**20
        for number in range(n_runs):
            found = in_a_process(export_case, Path(folder), n_rankings)
            exports.append(found["export_10M_s"])
            peaks.append(found["peak_mb"])
            (Path(folder) / "out").rename(Path(folder) / f"out-{number}")
    return {
        "benchmark": "data",
        "machine": {"system": platform.platform(), "cores": os.cpu_count()},
        "versions": {
            "python": platform.python_version(),
            "pyarrow": pa.__version__,
            "sqlalchemy": sa.__version__,
            "sqlite": sqlite_module().sqlite_version,
        },
        "sizes": {"prompts": n_prompts, "pairs": n_rankings * PAIRS_OF_A_RANKING, "snapshot_mb": round(pairs_mb, 1)},
        "rows": [
            row("import_1M_s", imports, "s", min),
            row("export_10M_s", exports, "s", min),
            row("export_10M_mb", peaks, "MB, peak of the process", max),
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a fiftieth of the sizes, one run")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    arguments = parser.parse_args()
    found = measure(arguments.quick, n_runs=1 if arguments.quick else 2)
    if arguments.json:
        print(json.dumps(found))
        return
    print(f"{found['sizes']['prompts']:,} prompts, {found['sizes']['pairs']:,} pairs")
    for each in found["rows"]:
        print(f"{each['case']:<14} {each['ours']:>9,.1f} {each['unit']}   (runs: {each['runs']})")


if __name__ == "__main__":
    main()
