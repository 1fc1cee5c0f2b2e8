"""What `rankloop doctor` looks at: Python, packages, home folder, store, disk, torch. No network is used;
torch is asked in a child process, so that this one stays without it.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from data.errors import ProjectError
from data.files.paths import HOME_VARIABLE, Home, home_folder
from data.store import open_store
from data.store.backup import problem_of_store
from data.store.engine import FIXED_SQLITE, Store, sqlite_file, sqlite_module
from data.store.migrate import known_revision, newest_revision

PACKAGES = (
    "streamlit", "starlette", "uvicorn", "sqlalchemy", "alembic", "psycopg", "pandas", "pyarrow", "torch",
    "transformers", "trl", "peft", "accelerate", "datasets", "safetensors",
)  # fmt: skip
MIN_PYTHON = (3, 11)
LOW_DISK_BYTES = 5 * 10**9
OTHERS_READ = 0o044  # of the group, and of everybody
CHILD_TIMEOUT_S = 120.0
ASK_TORCH = """
import json
import torch
from data.files.paths import Home, home_folder
from training.lm.demo_model import SOURCE_FILE, demo_model_folder
folder = demo_model_folder(Home(home_folder()))
gpus = [torch.cuda.get_device_name(place) for place in range(torch.cuda.device_count())]
print(json.dumps({
    "torch": torch.__version__, "threads": torch.get_num_threads(), "cuda": torch.version.cuda, "gpus": gpus,
    "mps": torch.backends.mps.is_available(), "demo_model": str(folder) if (folder / SOURCE_FILE).is_file() else None,
}))
"""


class Verdict(StrEnum):
    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at: what was found, and what to do where that is not as it should be."""

    name: str
    verdict: Verdict
    found: str
    advice: str = ""


def examine(named: str | None, store_url: str | None) -> Iterator[Finding]:
    """Yield the findings one by one; nothing is made or changed. `named`: the home folder that was named.
    `store_url` None: the file in it."""
    yield _python()
    yield _packages()
    home, finding = _home(named)
    yield finding
    if home is not None:
        yield _disk(home.root)
    yield _sqlite()
    if home is not None or store_url is not None:
        yield _store(store_url or (home.store_url if home else ""))
    yield from _torch(home)


def _home(named: str | None) -> tuple[Home | None, Finding]:
    """The home folder, if it is there: whoever examines makes none."""
    folder = home_folder(named)
    if not folder.is_dir():
        is_named = bool(named or os.environ.get(HOME_VARIABLE))
        advice = "look at its name" if is_named else "`rankloop serve` makes it"
        verdict = Verdict.PROBLEM if is_named else Verdict.WARNING
        return None, Finding("home folder", verdict, f"there is no folder {folder}", advice)
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        advice = f"choose another with --home or {HOME_VARIABLE}"
        return None, Finding("home folder", Verdict.PROBLEM, f"the home folder {folder} can't be written", advice)
    home = Home(folder)
    if folder.stat().st_mode & OTHERS_READ:
        advice = f"it holds everything that people said; close it: chmod 700 {folder}"
        return home, Finding("home folder", Verdict.WARNING, f"{folder}, which others on this machine can read", advice)
    return home, Finding("home folder", Verdict.OK, str(home.root))


def _python() -> Finding:
    version = f"{platform.python_version()} on {platform.platform()}, {os.cpu_count()} cores"
    if sys.version_info < MIN_PYTHON:
        return Finding("Python", Verdict.PROBLEM, version, "Python 3.11, 3.12 or 3.13 is needed")
    return Finding("Python", Verdict.OK, version)


def _packages() -> Finding:
    versions, missing = [], []
    for name in ("rankloop", *PACKAGES):
        try:
            versions.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            if name != "rankloop":  # started from a checkout, it need not be installed
                missing.append(name)
    if missing:
        advice = "install rankloop with its dependencies into an environment of its own"
        return Finding("packages", Verdict.PROBLEM, f"missing: {', '.join(missing)}", advice)
    return Finding("packages", Verdict.OK, ", ".join(versions))


def _disk(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    free_space = f"{free / 1e9:.1f} GB free at {folder}"
    if free < LOW_DISK_BYTES:
        return Finding("disk", Verdict.WARNING, free_space, "models and checkpoints take gigabytes; make room")
    return Finding("disk", Verdict.OK, free_space)


def _sqlite() -> Finding:
    sqlite = sqlite_module()
    version = f"{sqlite.sqlite_version} (by {sqlite.__name__})"
    if tuple(sqlite.sqlite_version_info) < FIXED_SQLITE:
        wanted = ".".join(map(str, FIXED_SQLITE))
        advice = f"before {wanted} a write-ahead log can be corrupted; install pysqlite3, or use PostgreSQL"
        return Finding("SQLite", Verdict.WARNING, version, advice)
    return Finding("SQLite", Verdict.OK, version)


def _store(url: str) -> Finding:
    file = sqlite_file(url)
    if file is not None and not file.is_file():
        return Finding("store", Verdict.WARNING, f"there is no file {file}", "`rankloop serve` makes it")
    store: Store | None = None
    try:
        store = open_store(url, migrate=False)
        revision = known_revision(store)
        problem = problem_of_store(store)
        if problem:
            return Finding("store", Verdict.PROBLEM, problem, "restore a backup made with `rankloop backup`")
        found = f"{store.engine_version}, schema {revision or 'none'}, intact"
        if revision != newest_revision():
            advice = f"whatever opens it next brings it to {newest_revision()}, after a copy"
            return Finding("store", Verdict.WARNING, found, advice)
        if file is not None and file.stat().st_mode & OTHERS_READ:
            advice = f"others on this machine can read it; close it: chmod 600 {file}"
            return Finding("store", Verdict.WARNING, found, advice)
        return Finding("store", Verdict.OK, found)
    except ProjectError as error:
        return Finding("store", Verdict.PROBLEM, str(error))
    finally:
        if store is not None:
            store.close()


def _torch(home: Home | None) -> Iterator[Finding]:
    root = str(Path(__file__).resolve().parents[2])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))}
    if home is not None:
        environment[HOME_VARIABLE] = str(home.root)
    try:
        child = subprocess.run(
            [sys.executable, "-P", "-c", ASK_TORCH],
            env=environment, capture_output=True, text=True, timeout=CHILD_TIMEOUT_S, check=False,
        )  # fmt: skip
        facts = json.loads(child.stdout.splitlines()[-1])
    except (subprocess.TimeoutExpired, json.JSONDecodeError, IndexError) as error:
        last = child.stderr.strip().splitlines()[-1:] if isinstance(error, IndexError) else [str(error)]
        advice = "training and sampling won't work in this environment; install it anew"
        yield Finding("torch", Verdict.PROBLEM, " ".join(last) or "no answer", advice)
        return
    device = ", ".join(facts["gpus"]) or ("Apple GPU (MPS)" if facts["mps"] else "no GPU; it computes on the CPU")
    yield Finding("torch", Verdict.OK, f"{facts['torch']}, {facts['threads']} threads; {device}")
    if facts["demo_model"]:
        yield Finding("demo model", Verdict.OK, facts["demo_model"])
    else:
        yield Finding("demo model", Verdict.OK, "not there; it is fetched (about 270 MB) when it is first needed")
