"""`rankloop`, or `streamlit run`, in a process that notes whatever changes the process as a whole, and tells it.

Run as a program: `python -c "from watched_server import main; main()" TOLD serve ...`. On SIGUSR1 it writes one JSON
object to the file TOLD: the module path, and every change since the first request for it, with who made it.
"""

from __future__ import annotations

import json
import locale
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

AUDITED = ("os.putenv", "os.unsetenv", "os.chdir", "signal.signal")
CHANGERS = ("__setitem__", "__delitem__", "__iadd__", "append", "extend", "insert", "remove", "pop", "clear", "reverse")
changes: list[str] = []
is_watching = False


def note(what: str) -> None:
    if is_watching:
        frames = traceback.extract_stack()[:-2]
        changes.append(f"{what} by {frames[-1].filename}:{frames[-1].lineno}")


class WatchedPath(list[str]):
    """`sys.path`, with each change noted. Nobody may put another list in its place either."""


def _watched(name: str) -> Any:
    def change(self: WatchedPath, *arguments: Any, **words: Any) -> Any:
        note(f"sys.path.{name}")
        return getattr(list, name)(self, *arguments, **words)

    return change


for _name in CHANGERS:
    setattr(WatchedPath, _name, _watched(_name))


def tell(told: Path, first: list[str]) -> None:
    global is_watching  # noqa: PLW0603
    if sys.path is not first:
        changes.append("sys.path is another list")
    state = {
        "path": list(sys.path),
        "app": getattr(sys.modules.get("app"), "__file__", None),
        "changes": changes,
        "folder": os.getcwd(),
        "locale": locale.setlocale(locale.LC_ALL),
        "environment": dict(os.environ),
        "umask": _umask(),
    }
    part = told.with_suffix(".part")
    part.write_text(json.dumps(state))
    part.replace(told)
    is_watching = True


def _umask() -> int:
    now = os.umask(0o077)
    os.umask(now)
    return now


def main() -> None:
    told, *words = sys.argv[1:]
    sys.argv[:] = ["rankloop", *words]
    watched = sys.path = WatchedPath(sys.path)
    sys.addaudithook(lambda event, arguments: note(f"{event} {arguments[:1]}") if event in AUDITED else None)
    signal.signal(signal.SIGUSR1, lambda *_signal: tell(Path(told), watched))
    if words[0] == "run":
        from streamlit.web.cli import main as start
    else:
        from app.cli import main as start
    sys.exit(start(words))
