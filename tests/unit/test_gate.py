"""The gate's small decisions; tests/integration/test_server.py meets it from outside."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from pathlib import Path
from typing import Any

import pytest

from app.web.gate import NO_STORE, Gate, is_foreign, return_path, script_hashes
from data.store.engine import Store


@pytest.mark.parametrize(
    ("wanted", "path"),
    [
        ("/runs", "/runs"),
        ("/runs?run=01ab&tab=curves", "/runs?run=01ab&tab=curves"),
        (None, "/"),
        ("", "/"),
        ("/", "/"),
        ("runs", "/"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("/a/b", "/"),
        ("https://evil.example/", "/"),
        ("/runs?x=//evil", "/"),
        ("/runs\n", "/"),
        ("/runs?x=<script>", "/"),
    ],
)
def test_return_path(wanted: str | None, path: str) -> None:
    assert return_path(wanted) == path


def test_hashes_of_inline_scripts_only() -> None:
    page = "<script>\n  a();\n</script><script src='x.js'></script><script type=module>b()</script>"
    (digest,) = script_hashes(page)
    expected = base64.b64encode(hashlib.sha256(b"\n  a();\n").digest()).decode()
    assert digest == f"'sha256-{expected}'"


def scope(kind: str = "http", method: str = "POST", **headers: str) -> dict[str, Any]:
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"type": kind, "method": method, "path": "/", "query_string": b"", "headers": raw}


@pytest.mark.parametrize(
    ("asked", "foreign"),
    [
        (scope(host="a:1"), False),
        (scope(host="a:1", origin="http://a:1"), False),
        (scope(host="a:1", origin="http://a:2"), True),
        (scope(host="a:1", origin="http://b:1"), True),
        (scope(host="a:1", origin="null"), True),
        (scope(host="a:1", sec_fetch_site="same-origin", origin="null"), False),
        (scope(host="a:1", sec_fetch_site="cross-site", origin="http://a:1"), True),
        (scope(host="a:1", sec_fetch_site="same-site"), True),
        (scope(method="GET", host="a:1", sec_fetch_site="cross-site"), False),
        (scope("websocket", "GET", host="a:1", origin="http://b:1"), True),
        (scope("websocket", "GET", host="a:1", origin="http://a:1"), False),
        (scope("websocket", "GET", host="a:1"), False),
    ],
)
def test_foreign_requests(asked: dict[str, Any], foreign: bool) -> None:
    assert is_foreign(asked) is foreign


def test_a_store_that_does_not_answer_is_said_so(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'no such folder' / 'rankloop.db'}")
    sent: list[dict[str, Any]] = []

    async def inner(*_: Any) -> None:
        raise AssertionError("nobody may get in")

    async def receive() -> dict[str, Any]:
        return {"type": "http.request"}

    async def send(message: Any) -> None:
        sent.append(message)

    asked = scope(method="GET", host="a:1", cookie="c=token", accept="text/html")
    asyncio.run(Gate(inner, store, "c")(asked, receive, send))
    assert sent[0]["status"] == 503
    assert sent[1]["body"] == NO_STORE.encode()
    store.close()


@pytest.mark.parametrize(
    ("host", "sockets"),
    [
        ("rank.example:8501", "'self' ws://rank.example:8501 wss://rank.example:8501;"),
        ("[::1]:8501", "'self' ws://[::1]:8501 wss://[::1]:8501;"),
        ("a; script-src *", "'self';"),
        ("", "'self';"),
    ],
)
def test_a_page_may_open_sockets_to_its_own_host_alone(tmp_path: Path, host: str, sockets: str) -> None:
    """With "ws: wss:" a text that runs as a script could send all that it sees anywhere."""
    store = Store(f"sqlite:///{tmp_path / 'rankloop.db'}")
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request"}

    async def send(message: Any) -> None:
        sent.append(message)

    async def inner(*_: Any) -> None:
        raise AssertionError("nobody may get in")

    asyncio.run(Gate(inner, store, "c")(scope(method="GET", host=host), receive, send))
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    assert f"connect-src {sockets}" in headers["content-security-policy"]
    assert "{" not in headers["content-security-policy"]
    store.close()
