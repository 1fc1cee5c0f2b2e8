"""Two hundred pages at once in a real server: all are drawn, and the process is afterwards what it was before."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from factories import make_snapshot
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from web_server import ROOT, WebServer, signed_in
from websockets.asyncio.client import connect

from data.files.paths import HOME_VARIABLE, open_home
from data.records import Role
from data.store import open_store

PAGES_AT_ONCE = 200
PATIENCE_S = 120.0
ENDS = (ForwardMsg.FINISHED_SUCCESSFULLY, ForwardMsg.FINISHED_WITH_COMPILE_ERROR)  # not where it runs anew at once
TESTS = Path(__file__).parents[1]
PROGRAM = f"import sys; sys.path.insert(1, {str(TESTS)!r}); from watched_server import main; main()"


@dataclass
class Seen:
    """What a browser was sent for one page."""

    headings: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    components: list[str] = field(default_factory=list)

    def add(self, message: ForwardMsg) -> None:
        element = message.delta.new_element
        if element.HasField("heading"):
            self.headings.append(element.heading.body)
        if element.HasField("bidi_component"):
            self.components.append(element.bidi_component.component_name)
        if element.HasField("exception"):
            self.problems.append(element.exception.message)
        if element.HasField("alert"):
            self.problems.append(element.alert.body)


async def look_at(server: WebServer, token: str, page: str, ready: asyncio.Barrier) -> Seen:
    """Open a page as a browser does, when everybody is connected; returns when its script has run."""
    headers = {"Cookie": f"{server.cookie}={token}", "Origin": server.url}
    address = f"ws://localhost:{server.port}/_stcore/stream"
    options: dict[str, Any] = {"proxy": None, "max_size": None, "open_timeout": PATIENCE_S, "ping_interval": None}
    async with connect(address, additional_headers=headers, **options) as stream:
        ask = BackMsg()
        ask.rerun_script.page_name = page
        await ready.wait()
        await stream.send(ask.SerializeToString())
        seen = Seen()
        while True:
            message = ForwardMsg.FromString(await asyncio.wait_for(stream.recv(decode=False), PATIENCE_S))
            seen.add(message)
            if message.WhichOneof("type") == "script_finished" and message.script_finished in ENDS:
                return seen


def pages(server: WebServer, token: str, page: str, n: int = 1) -> list[Seen]:
    async def together() -> list[Seen]:
        ready = asyncio.Barrier(n)
        return await asyncio.gather(*(look_at(server, token, page, ready) for _ in range(n)))

    return asyncio.run(together())


def watched_program(told: Path) -> tuple[str, ...]:
    return (sys.executable, "-c", PROGRAM, str(told))


def ask(server: WebServer, told: Path) -> dict[str, Any]:
    told.unlink(missing_ok=True)
    os.kill(server.pid, signal.SIGUSR1)
    end = time.monotonic() + PATIENCE_S
    while not told.exists():
        assert time.monotonic() < end, server.log.read_text()
        time.sleep(0.02)
    state: dict[str, Any] = json.loads(told.read_text())
    return state


def test_two_hundred_pages_at_once_change_nothing_in_the_process(tmp_path: Path) -> None:
    told = tmp_path / "told.json"
    with WebServer(open_home(tmp_path / "home"), program=watched_program(told)) as server:
        store = server.store()
        make_snapshot(store, server.home)
        token = signed_in(store, Role.ADMIN)
        store.close()
        before = ask(server, told)
        seen = pages(server, token, "", PAGES_AT_ONCE)
        assert [each for each in seen if each.problems] == [], server.log.read_text()[-3000:]
        assert {tuple(each.headings[:1]) for each in seen} == {("Projects",)}
        (train,) = pages(server, token, "train")  # it imports what no page before has needed
        after = ask(server, told)
    assert (after["changes"][:5], len(after["changes"])) == ([], 0)
    assert after == before
    assert (train.headings[0], train.problems) == ("Train", [])


class BareStreamlit(WebServer):
    """`streamlit run app/main.py`: no gate, nobody signed in, and nobody who settles the path before the first page."""

    def words(self) -> list[str]:
        return ["run", str(ROOT / "app" / "main.py"), "--server.port", str(self.port), "--server.headless", "true"]


def test_bare_streamlit_settles_the_path_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told, home = tmp_path / "told.json", open_home(tmp_path / "home")
    monkeypatch.setenv(HOME_VARIABLE, str(home.root))
    open_store(home.store_url).close()
    with BareStreamlit(home, program=watched_program(told), folder=tmp_path) as server:
        first = pages(server, "", "", 10)
        before = ask(server, told)
        seen = pages(server, "", "", 10)
        after = ask(server, told)
    assert [each for each in [*first, *seen] if each.problems] == []
    assert {tuple(each.components) for each in [*first, *seen]} == {("rankloop.signed_out",)}, "nobody is signed in"
    assert (after["changes"], after["path"]) == ([], before["path"])
    assert after["app"] == str(ROOT / "app" / "__init__.py")
    assert str(ROOT) in after["path"]
    assert (after["path"][-1], after["path"].count(str(ROOT / "app"))) == (str(ROOT / "app"), 1)
