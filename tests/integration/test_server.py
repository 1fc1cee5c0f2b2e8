"""The real server over real HTTP and a real websocket: who gets in, who does not, how it comes and goes."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time

import psutil
import pytest
from web_server import (
    ROOT,
    WebServer,
    free_port,
    is_running,
    pages_seen,
    refused_status,
    signed_in,
)

from data.files.paths import Home
from data.records import Role
from data.store import Store

_LIST_ROUTES = """
import json, sys
from app.web.gate import cookie_name
from app.web.server import streamlit_options, web_app
from data.files.paths import open_home
from data.store import open_store
from streamlit.web import bootstrap
home = open_home(sys.argv[1])
bootstrap.load_config_options(streamlit_options("127.0.0.1", 8501))
app = web_app(open_store(home.store_url), home, cookie_name(8501))._build_starlette_app()
print(json.dumps([[route.path, type(route).__name__] for route in app.routes]))
"""


def test_strangers_get_nothing_on_any_route(server: WebServer) -> None:
    listed = subprocess.run(
        [sys.executable, "-c", _LIST_ROUTES, str(server.home.root)], cwd=ROOT, capture_output=True, check=True
    )
    routes = json.loads(listed.stdout)
    assert {
        "/signin",
        "/_stcore/stream",
        "/_stcore/upload_file/{session_id}/{file_id}",
        "/download/export/{path:path}",
    } <= {path for path, _ in routes}
    paths = {path.replace("{path:path}", "x").replace("{", "").replace("}", "") or "/" for path, _ in routes}
    paths |= {"/", "/rank", "/people", "/static/js/index.js", "/index.html", "//signin", "/signin/", "/signin/../rank"}
    for path in sorted(paths - {"/signin", "/setup", "/invite", "/_stcore/health"}):
        for method in ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH"):
            answer = server.request(method, path)
            assert answer.status == 401, f"{method} {path}: {answer.status}"
        page = server.page(path)
        assert (page.status, page.location.split("?")[0]) == (303, "/signin"), f"{path}: {page}"


def test_strangers_get_the_sign_in_page_and_its_kin(server: WebServer) -> None:
    assert server.page("/signin").status == 200
    assert server.page("/setup?token=wrong").status == 410
    assert server.page("/invite?token=wrong").status == 410
    assert server.request("GET", "/_stcore/health").status == 200
    for path in ("/signin", "/setup?token=x", "/invite?token=x"):
        body = server.page(path).text
        assert "<script" not in body
        assert 'src="' not in body


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-Rankloop-Id": "someone", "X-Rankloop-Role": "admin", "X-Rankloop-Session": "0" * 64},
        {"Authorization": "Bearer x"},
    ],
)
def test_forged_identity_opens_nothing(server: WebServer, headers: dict[str, str]) -> None:
    assert refused_status(server, headers=headers) == 403
    assert refused_status(server, token="forged", headers=headers) == 403
    assert server.request("GET", "/", headers=headers).status == 401
    assert server.request("GET", "/_stcore/host-config", token="forged", headers=headers).status == 401


def test_a_foreign_page_can_not_open_the_stream(server: WebServer, server_store: Store) -> None:
    token = signed_in(server_store, Role.ADMIN)
    for origin in ("https://evil.example", f"http://localhost:{server.port + 1}", "null"):
        assert refused_status(server, token=token, headers={"Origin": origin}) == 403
    with server.websocket(token, {"Origin": server.url}):
        pass


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
    ],
)
def test_cross_site_posts_are_refused(server: WebServer, server_store: Store, headers: dict[str, str]) -> None:
    token = signed_in(server_store, Role.ANNOTATOR)
    assert server.request("POST", "/signout", {}, token=token, headers=headers).status == 403
    assert server.request("POST", "/signin", {"name": "x", "password": "y"}, headers=headers).status == 403
    assert server.page("/", token=token).status == 200, "the session must have survived"


# ---- headers


def test_security_headers_come_with_every_answer(server: WebServer, server_store: Store) -> None:
    token = signed_in(server_store, Role.RESEARCHER)
    index = server.page("/", token=token)
    script = index.text.split("<script>")[1].split("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = index.headers["content-security-policy"]
    assert f"script-src 'self' 'sha256-{digest}';" in policy
    assert "img-src 'self' data: blob:" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe-eval" not in policy
    answers = [
        server.page("/signin"),
        server.request("GET", "/rank"),
        server.request("GET", "/_stcore/health"),
        server.request("GET", "/download/run/none/x", token=token),
        server.request("POST", "/signin", {}, headers={"Sec-Fetch-Site": "cross-site"}),
        server.request("GET", "/_stcore/bidi-components/none/x.js", token=token),
    ]
    for answer in answers:
        assert answer.headers["content-security-policy"] == policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin"


def test_the_role_reaches_the_script(server: WebServer, server_store: Store) -> None:
    assert "people" in pages_seen(server, signed_in(server_store, Role.ADMIN))
    annotator = signed_in(server_store, Role.ANNOTATOR)
    assert pages_seen(server, annotator) - {"", "home"} == {"rank"}
    forged = {"X-Rankloop-Role": "admin", "X-Rankloop-Id": "x", "X-Rankloop-Session": "y"}
    assert pages_seen(server, annotator, forged) - {"", "home"} == {"rank"}


def test_a_port_in_use_is_one_clear_error(home: Home) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        words = ["serve", "--home", str(home.root), "--port", str(port), "--no-worker"]
        ended = subprocess.run(
            [sys.executable, "-m", "app", *words], check=False, cwd=ROOT, capture_output=True, text=True, timeout=60
        )
    assert ended.returncode == 2
    assert f"port {port} is in use" in ended.stderr
    assert "--port" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_worker_comes_and_goes_with_the_server(home: Home, number: int) -> None:
    with WebServer(home, with_worker=True) as server:
        first = _worker_of(server)
        os.kill(first, signal.SIGKILL)
        second = _worker_of(server, other_than=first)
        assert server.stop(number) == 0, server.log.read_text()
        assert not is_running(second)
        assert "Traceback" not in server.log.read_text()


def _worker_of(server: WebServer, other_than: int = 0) -> int:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        for child in psutil.Process(server.pid).children():
            if (
                child.pid != other_than
                and child.status() != psutil.STATUS_ZOMBIE
                and "training.jobs.worker" in child.cmdline()
            ):
                return child.pid
        time.sleep(0.1)
    raise AssertionError(f"no worker:\n{server.log.read_text()}")


def test_two_servers_on_one_machine_keep_their_people_apart(server: WebServer) -> None:
    assert free_port() != server.port
    assert str(server.port) in server.cookie
