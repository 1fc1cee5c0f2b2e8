"""Where things lie: the home folder and what is in it.

<home>/rankloop.db          the SQLite store, unless a URL says otherwise
<home>/snapshots/<id>/      groups.parquet, pairs.parquet, prompts.parquet, manifest.json
<home>/runs/<id>/           log.txt, checkpoints/, model/, best/ (of PPO), samples, results
<home>/models/<name>/       models fetched for everybody (the demo model)
<home>/exports/, uploads/, backups/
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from data.errors import StoreUnavailable
from data.store.engine import sqlite_url

HOME_VARIABLE = "RANKLOOP_HOME"
STORE_VARIABLE = "RANKLOOP_STORE"
# Files that a run was given, by the field that names them: what its own copy is called, before the suffix
KEPT_FILES = {"prompts_file": "prompts", "ptx_file": "ptx"}


@dataclass(frozen=True)
class Home:
    """The home folder. Making one creates nothing; `open_home` does."""

    root: Path

    @property
    def store_url(self) -> str:
        return sqlite_url(self.root / "rankloop.db")

    def run_folder(self, run_id: str) -> Path:
        return self.root / "runs" / run_id

    def snapshot_folder(self, snapshot_id: str) -> Path:
        return self.root / "snapshots" / snapshot_id

    def model_folder(self, name: str) -> Path:
        return self.root / "models" / name

    @property
    def exports(self) -> Path:
        return self.root / "exports"

    @property
    def uploads(self) -> Path:
        return self.root / "uploads"

    @property
    def backups(self) -> Path:
        return self.root / "backups"


def default_home() -> Path:
    """The folder from the environment, or rankloop's place in the user's data folder."""
    if named := os.environ.get(HOME_VARIABLE):
        return Path(named).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "rankloop"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home())) / "rankloop"
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "rankloop"


def home_folder(root: Path | str | None = None) -> Path:
    """Where the home folder is, whether it is there or not: the named one, else the default."""
    return Path(root).expanduser().resolve() if root else default_home().resolve()


def open_home(root: Path | str | None = None) -> Home:
    """Make the home folder where it is missing, readable by its owner only, and check that it can be written.

    Raises StoreUnavailable that names the folder and what to do.
    """
    folder = home_folder(root)
    advice = f"choose another with --home or {HOME_VARIABLE}"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name in ("snapshots", "runs", "models", "exports", "uploads", "backups"):
            (folder / name).mkdir(exist_ok=True, mode=0o700)
        probe = folder / f".write-test-{os.getpid()}"
        probe.write_bytes(b"")
        probe.unlink(missing_ok=True)  # another thread of this process may have been quicker
    except OSError as error:
        raise StoreUnavailable(f"the home folder {folder} can't be written ({error.strerror}); {advice}") from error
    return Home(folder)
