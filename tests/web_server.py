"""The real web server in a process of its own, and a plain HTTP client that follows nothing and hides nothing."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import pytest
from factories import make_person, make_session
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

from app.web.gate import cookie_name
from app.web.passwords import hash_password
from data.files.paths import Home
from data.labels.people import set_password
from data.records import Person, Role
from data.store import Store, open_store

ROOT = Path(__file__).resolve().parents[1]
START_PATIENCE_S = 60.0
PASSWORD = "correct horse battery"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def location(self) -> str:
        return self.headers.get("location", "")


class WebServer:
    """`rankloop serve --no-worker` on a free port, or with the worker if asked.

    `program`: what is started in place of `python -m app`. `more`: further words of `serve`.
    """

    def __init__(
        self,
        home: Home,
        *,
        with_worker: bool = False,
        program: Sequence[str] = (sys.executable, "-m", "app"),
        folder: Path = ROOT,
        more: Sequence[str] = (),
    ) -> None:
        self.home, self.with_worker = home, with_worker
        self.program, self.folder, self.more = program, folder, more
        self.port = free_port()
        self.url = f"http://localhost:{self.port}"
        self.cookie = cookie_name(self.port)
        self.log = home.root / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> WebServer:
        self.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._process is not None and self._process.poll() is None:
            assert self.stop() == 0, self.log.read_text()

    def start(self) -> None:
        command = [*self.program, *self.words()]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=self.folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )
        end = time.monotonic() + START_PATIENCE_S
        while not self.is_healthy():
            if self._process.poll() is not None or time.monotonic() > end:
                self.kill()
                raise AssertionError(f"the server does not start:\n{self.log.read_text()}")
            time.sleep(0.1)

    def words(self) -> list[str]:
        words = ["serve", "--home", str(self.home.root), "--port", str(self.port), *self.more]
        return words if self.with_worker else [*words, "--no-worker"]

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask the server to end; returns its exit status."""
        assert self._process is not None
        self._process.send_signal(number)
        return self._process.wait(30)

    def kill(self) -> None:
        """End it without a word, as a power cut would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(30)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def is_healthy(self) -> bool:
        try:
            return self.request("GET", "/_stcore/health").status == 200
        except OSError:
            return False

    @property
    def set_up_path(self) -> str:
        """The newest set-up link that the server has printed."""
        return re.findall(r"/setup\?token=\S+", self.log.read_text())[-1]

    def store(self) -> Store:
        return open_store(self.home.store_url, migrate=False)

    # ---- what a browser sends

    def request(
        self,
        method: str,
        path: str,
        form: Mapping[str, str] | None = None,
        *,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        sent = dict(headers or {})
        if token is not None:
            sent["Cookie"] = f"{self.cookie}={token}"
        if form is not None:
            sent.setdefault("Content-Type", "application/x-www-form-urlencoded")
        connection = http.client.HTTPConnection("localhost", self.port, timeout=30)
        try:
            connection.request(method, path, None if form is None else urlencode(form), sent)
            response = connection.getresponse()
            return Answer(
                response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
            )
        finally:
            connection.close()

    def page(self, path: str, *, token: str | None = None) -> Answer:
        """A page as a browser asks for it."""
        return self.request("GET", path, token=token, headers={"Accept": "text/html"})

    def sign_in(self, name: str, password: str) -> Answer:
        return self.request("POST", "/signin", {"name": name, "password": password})

    def token_of(self, answer: Answer) -> str:
        """The session token that an answer sets."""
        found = re.search(rf"{self.cookie}=([^;]+)", answer.headers.get("set-cookie", ""))
        assert found, answer
        return found.group(1)

    @contextlib.contextmanager
    def websocket(
        self, token: str | None = None, headers: Mapping[str, str] | None = None
    ) -> Iterator[ClientConnection]:
        """Open Streamlit's stream; raises InvalidStatus where it is refused."""
        sent = dict(headers or {})
        if token is not None:
            sent["Cookie"] = f"{self.cookie}={token}"
        address = f"ws://localhost:{self.port}/_stcore/stream"
        with connect(address, additional_headers=sent, proxy=None, max_size=None, open_timeout=30) as stream:
            yield stream


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def with_password(store: Store, role: Role = Role.ANNOTATOR) -> Person:
    """Somebody who can sign in."""
    person = make_person(store, role)
    with store.begin() as tx:
        set_password(tx, person.id, hash_password(PASSWORD))
    return person


def signed_in(store: Store, role: Role) -> str:
    """The session token of a new person of that role."""
    return make_session(store, make_person(store, role))


def refused_status(server: WebServer, **how: object) -> int:
    """The status with which the websocket is refused."""
    with pytest.raises(InvalidStatus) as refused, server.websocket(**how):  # type: ignore[arg-type]
        pass
    return refused.value.response.status_code


def pages_seen(server: WebServer, token: str, headers: dict[str, str] | None = None) -> set[str]:
    """Run the app's script over the websocket as a browser does; the pages that it offers."""
    with server.websocket(token, {"Origin": server.url, **(headers or {})}) as stream:
        ask = BackMsg()
        ask.rerun_script.query_string = ""
        stream.send(ask.SerializeToString())
        pages: set[str] = set()
        while True:
            raw = stream.recv(timeout=30)
            assert isinstance(raw, bytes)
            message = ForwardMsg.FromString(raw)
            pages |= {page.url_pathname for page in message.navigation.app_pages}
            if message.WhichOneof("type") == "script_finished":
                return pages
