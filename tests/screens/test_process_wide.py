"""Every screen is drawn, and the process is afterwards what it was: its path, environment, modules and their names."""

from __future__ import annotations

import copy
import csv
import locale
import logging
import os
import random
import signal
import socket
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import scipy.stats  # noqa: F401  sets filters of warnings when it is first imported
from factories import make_person, make_snapshot, make_task

from data.files.paths import Home
from data.labels.projects import get_project
from data.packages import PACKAGES
from data.records import Role
from data.store import Store

SCREENS = Path(__file__).resolve().parents[2] / "app" / "screens"


def process_wide() -> dict[str, Any]:
    """What all threads of the process share."""
    umask = os.umask(0o077)
    os.umask(umask)
    return {
        "path": list(sys.path),
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "umask": umask,
        "locale": locale.setlocale(locale.LC_ALL),
        "warnings": list(warnings.filters),
        "signals": {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)},
        "streams": [id(each) for each in (sys.stdout, sys.stderr, sys.excepthook, sys.displayhook)],
        "limits": [
            sys.getrecursionlimit(),
            sys.getswitchinterval(),
            socket.getdefaulttimeout(),
            csv.field_size_limit(),
        ],
        "random": random.getstate(),
        "numpy": (repr(np.random.get_state()), np.geterr(), np.get_printoptions()),
        "pandas": {name: pd.get_option(name) for name in ("display.max_rows", "display.width")},
        "logging": {name: logging.getLogger(name).level for name in ("", *PACKAGES, "streamlit", "alembic")},
    }


def ours() -> dict[str, ModuleType]:
    return {name: module for name, module in list(sys.modules.items()) if name.split(".")[0] in PACKAGES and module}


def remembered() -> dict[str, Any]:
    """What each of our modules holds: which objects, and of what can be changed in place a copy."""
    found: dict[str, Any] = {}
    for name, module in ours().items():
        for word, value in vars(module).items():
            if word.startswith("__") or isinstance(value, ModuleType):  # a package gets its modules one by one
                continue
            is_open = isinstance(value, dict | list | set)
            found[f"{name}.{word}"] = (id(value), copy.copy(value) if is_open else None)
    return found


def test_every_screen_leaves_the_process_as_it_was(sqlite_store: Store, home: Home, open_app: Any) -> None:
    snapshot = make_snapshot(sqlite_store, home)
    with sqlite_store.read() as tx:
        project = get_project(tx, snapshot.project_id)
    make_task(sqlite_store, project)
    admin = make_person(sqlite_store, Role.ADMIN)
    pages = [None, *sorted(path.stem for path in SCREENS.glob("*.py") if path.stem not in ("__init__", "home"))]
    assert len(pages) > 10
    open_app(admin)  # the test's own first steps: the import of Streamlit's test runner, the store
    modules, state, memory = ours(), process_wide(), remembered()
    for page in pages:
        app = open_app(admin, page)
        assert not app.exception, page
        now = process_wide()
        assert {name: now[name] for name in now if now[name] != state[name]} == {}, page
    after = remembered()
    assert {name: module for name, module in modules.items() if sys.modules.get(name) is not module} == {}
    assert {name for name in memory if memory[name] != after.get(name)} == set()
