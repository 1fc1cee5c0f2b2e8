"""Writes what a run of the tests found into a page of docs/: `pytest --keep-result=docs/long_tests.md`."""

from __future__ import annotations

import datetime
import platform
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
HEAD = "| date | commit | tests | processor | result |\n|---|---|---|---|---|\n"
COUNTED = ("passed", "failed", "error", "skipped", "xfailed")


def keep_result(page: Path, tests: str, stats: Mapping[str, Sequence[Any]], seconds: float) -> None:
    """Put a row at the top of the page's table; `stats`: pytest's reports by outcome."""
    counts = [f"{len(stats[name]):,} {name}" for name in COUNTED if stats.get(name)]
    minutes, rest = divmod(round(seconds), 60)
    cells = (
        datetime.datetime.now(datetime.UTC).date().isoformat(), _commit(), f"`{tests}`", _processor(),
        f"{', '.join(counts) or 'no tests'}, in {minutes} min {rest} s",
    )  # fmt: skip
    text = page.read_text(encoding="utf-8")
    page.write_text(text.replace(HEAD, f"{HEAD}| {' | '.join(cells)} |\n", 1), encoding="utf-8")


def _commit() -> str:
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    return f"{git('rev-parse', '--short', 'HEAD') or 'none'}{' with changes' if git('status', '--porcelain') else ''}"


def _processor() -> str:
    import torch

    return f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}"
