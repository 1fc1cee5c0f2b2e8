"""Waiting for a run on the command line: a Ctrl-C always arrives."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from factories import make_run

from app.commands.base import waiting
from app.commands.base.common import INTERRUPTED, Context
from data.files.paths import Home
from data.records import Run
from data.store import Store


class Finalized:
    """Python prints what is raised in here, and goes on."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_in_the_middle_of_a_finalizer_is_not_lost(
    home: Home, sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(sqlite_store)

    def wait_for(_store: Store, _run_id: str, look: Callable[[Run], None]) -> Run:
        look(run)
        del_me: Any = Finalized()
        del del_me
        look(run)
        return run

    monkeypatch.setattr(waiting, "wait_for", wait_for)
    before = signal.getsignal(signal.SIGINT)
    context = Context(str(home.root))
    outcome = waiting.wait(context, run)
    context.close()
    assert outcome.status == INTERRUPTED
    assert f"run {run.id} is queued and goes on" in outcome.problem
    assert signal.getsignal(signal.SIGINT) is before
