"""Processes of a test's own, whatever ran before it in this one.

A spawned child runs its parent's main script again. A screen test leaves Streamlit's entry in that place, and the child
would then be a web app that never comes to its work: processes are started while nothing is there.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.context import SpawnContext
from types import ModuleType


@contextmanager
def spawning() -> Iterator[SpawnContext]:
    """The context to start processes from, for as long as it lasts."""
    before = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield multiprocessing.get_context("spawn")
    finally:
        sys.modules["__main__"] = before
