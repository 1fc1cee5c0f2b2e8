"""The command line in tests: in this process for most, as a process of its own where that is what is tested."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from app.cli import main

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Said:
    """What a command printed, and its exit status."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on standard output; fails if there is anything else."""
        return json.loads(self.out)


class Cli:
    """Runs words in this process, on a home folder of the test's own."""

    def __init__(self, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.home, self._capsys = home, capsys

    def __call__(self, *words: str | Path, home: Path | None = None) -> Said:
        self._capsys.readouterr()
        status = main([*map(str, words), "--home", str(home or self.home)])
        printed = self._capsys.readouterr()
        return Said(status, printed.out, printed.err)

    def make(self, *words: str | Path) -> Any:
        """The document of a command that must succeed."""
        said = self(*words, "--json")
        assert said.status == 0, said.err
        return said.document

    def refuse(self, *words: str | Path, status: int = 2) -> str:
        """The one line of a command that must fail."""
        said = self(*words)
        assert said.status == status, said
        assert said.out == ""
        lines = said.err.splitlines()
        assert len(lines) == 1, said.err
        assert lines[0].startswith("rankloop: ")
        return lines[0]


def start(home: Path, *words: str | Path, **settings: Any) -> subprocess.Popen[str]:
    """Start `python -m app` with pipes, in a process group of its own, with Python's usual buffers."""
    return subprocess.Popen(
        [sys.executable, "-m", "app", *map(str, words), "--home", str(home)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0,
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}, **settings,
    )  # fmt: skip


def run(home: Path, *words: str | Path) -> Said:
    """Run `python -m app` to its end."""
    with start(home, *words) as process:
        out, err = process.communicate(timeout=120)
    return Said(process.returncode, out, err)
