"""The real server over real HTTP and a real websocket: who gets in, who does not, and what comes back."""

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
import zipfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from factories import make_person, make_project, make_run, make_session, make_snapshot
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from web_server import ROOT, Answer, WebServer, free_port, is_running
from websockets.exceptions import InvalidStatus

from app.passwords import MAX_FAILURES, hash_password
from data.paths import Home, open_home
from data.people import disable_person, has_admin, invite, person_by_name, set_password
from data.records import Person, Role
from data.store import Store

PASSWORD = "correct horse battery"
HASHED = hash_password(PASSWORD)
_LIST_ROUTES = """
import json, sys
from app.gate import cookie_name
from app.server import streamlit_options, web_app
from data.paths import open_home
from data.store import open_store
from streamlit.web import bootstrap
home = open_home(sys.argv[1])
bootstrap.load_config_options(streamlit_options("127.0.0.1", 8501))
app = web_app(open_store(home.store_url), home, cookie_name(8501))._build_starlette_app()
print(json.dumps([[route.path, type(route).__name__] for route in app.routes]))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebServer]:
    """One server for the tests that leave it as it is."""
    with WebServer(open_home(tmp_path_factory.mktemp("home"))) as running:
        yield running


@pytest.fixture
def store(server: WebServer) -> Iterator[Store]:
    opened = server.store()
    yield opened
    opened.close()


def with_password(store: Store, role: Role = Role.ANNOTATOR) -> Person:
    person = make_person(store, role)
    with store.begin() as tx:
        set_password(tx, person.id, HASHED)
    return person


def signed_in(store: Store, role: Role) -> str:
    return make_session(store, make_person(store, role))


def refused_status(server: WebServer, **how: object) -> int:
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


# ---- strangers


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


def test_a_foreign_page_can_not_open_the_stream(server: WebServer, store: Store) -> None:
    token = signed_in(store, Role.ADMIN)
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
def test_cross_site_posts_are_refused(server: WebServer, store: Store, headers: dict[str, str]) -> None:
    token = signed_in(store, Role.ANNOTATOR)
    assert server.request("POST", "/signout", {}, token=token, headers=headers).status == 403
    assert server.request("POST", "/signin", {"name": "x", "password": "y"}, headers=headers).status == 403
    assert server.page("/", token=token).status == 200, "the session must have survived"


# ---- headers


def test_security_headers_come_with_every_answer(server: WebServer, store: Store) -> None:
    token = signed_in(store, Role.RESEARCHER)
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


# ---- signing in and out


def test_sign_in_and_out(server: WebServer, store: Store) -> None:
    person = with_password(store)
    answer = server.sign_in(person.name, PASSWORD)
    assert (answer.status, answer.location) == (303, "/")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    assert "secure" not in cookie
    token = server.token_of(answer)
    assert server.page("/", token=token).status == 200
    assert server.page("/signin", token=token).location == "/"
    with server.websocket(token, {"Origin": server.url}):
        pass
    assert server.request("GET", "/signout", token=token).status != 303, "a link must not sign anybody out"
    assert server.request("POST", "/signout", {}, token=token).location == "/signin"
    assert server.page("/", token=token).status == 303
    assert refused_status(server, token=token, headers={"Origin": server.url}) == 403


def test_the_cookie_is_secure_behind_https(server: WebServer, store: Store) -> None:
    person = with_password(store)
    form = {"name": person.name, "password": PASSWORD}
    answer = server.request("POST", "/signin", form, headers={"X-Forwarded-Proto": "https"})
    assert "secure" in answer.headers["set-cookie"].lower()


def test_wrong_passwords_are_slowed_down(server: WebServer, store: Store) -> None:
    person, other = with_password(store), with_password(store)
    for _ in range(MAX_FAILURES):
        answer = server.sign_in(person.name, "not the password")
        assert answer.status == 401
        assert "set-cookie" not in answer.headers
    late = server.sign_in(person.name, PASSWORD)
    assert late.status == 429
    assert 0 < int(late.headers["retry-after"]) <= 300
    assert server.sign_in(other.name, PASSWORD).status == 303, "others are not held up"


def test_nobody_signs_in_without_a_password_or_when_disabled(server: WebServer, store: Store) -> None:
    without, closed = make_person(store), with_password(store)
    assert server.sign_in(without.name, "").status == 401
    token = make_session(store, closed)
    with store.begin() as tx:
        disable_person(tx, closed.id)
    assert server.sign_in(closed.name, PASSWORD).status == 401
    assert server.page("/", token=token).status == 303
    unknown, wrong = server.sign_in("nobody at all", "x"), server.sign_in(closed.name, "x")
    assert unknown.text.replace("nobody at all", "N") == wrong.text.replace(closed.name, "N")


@pytest.mark.parametrize("name", ["", "x" * 5000, "'; drop table person; --", '"><script>alert(1)</script>', "\ud83d"])
def test_odd_names_are_only_wrong(server: WebServer, name: str) -> None:
    answer = server.request("POST", "/signin", {"name": name.encode("utf-8", "replace").decode(), "password": "x"})
    assert answer.status == 401
    assert "<script" not in answer.text


def test_a_flood_is_read_no_further(server: WebServer) -> None:
    assert server.request("POST", "/signin", {"name": "x" * 2_000_000, "password": "x"}).status == 401


def test_sign_in_leads_back_to_a_page_of_ours_only(server: WebServer, store: Store) -> None:
    person = with_password(store)
    assert server.page("/runs?run=abc").location == "/signin?next=%2Fruns%3Frun%3Dabc"
    for wanted, to in (
        ("/runs?run=abc", "/runs?run=abc"),
        ("//evil.example", "/"),
        ("https://evil.example", "/"),
        ("/\\evil.example", "/"),
        ("/a/../b", "/"),
        ("/x\r\nSet-Cookie: a=b", "/"),
    ):
        form = {"name": person.name, "password": PASSWORD, "next": wanted}
        assert server.request("POST", "/signin", form).location == to


# ---- the script


def test_the_role_reaches_the_script(server: WebServer, store: Store) -> None:
    assert "people" in pages_seen(server, signed_in(store, Role.ADMIN))
    annotator = signed_in(store, Role.ANNOTATOR)
    assert pages_seen(server, annotator) - {"", "home"} == {"rank"}
    forged = {"X-Rankloop-Role": "admin", "X-Rankloop-Id": "x", "X-Rankloop-Session": "y"}
    assert pages_seen(server, annotator, forged) - {"", "home"} == {"rank"}


# ---- links


def test_the_set_up_link_works_once(home: Home) -> None:
    with WebServer(home) as server:
        link = server.set_up_path
        token = link.split("token=")[1]
        assert server.page(link).status == 200
        chosen = {"token": token, "name": "Ada", "password": PASSWORD, "again": PASSWORD}
        too_short = server.request("POST", "/setup", chosen | {"password": "short", "again": "short"})
        assert (too_short.status, "10 to" in too_short.text, 'value="Ada"' in too_short.text) == (422, True, True)
        differ = server.request("POST", "/setup", chosen | {"again": PASSWORD + "!"})
        assert (differ.status, "differ" in differ.text) == (422, True)
        nameless = server.request("POST", "/setup", chosen | {"name": " "})
        assert (nameless.status, "1 to 80" in nameless.text) == (422, True)
        done = server.request("POST", "/setup", chosen)
        assert (done.status, done.location) == (303, "/")
        assert server.page("/", token=server.token_of(done)).status == 200
        assert server.page(link).status == 410
        assert server.request("POST", "/setup", chosen | {"name": "Eve"}).status == 410
        assert server.sign_in("Ada", PASSWORD).status == 303
        server.stop()
        server.start()
        assert server.log.read_text().count("/setup?token=") == 1, "with an admin there, no link is printed"
        store = server.store()
        with store.read() as tx:
            assert has_admin(tx)
            assert person_by_name(tx, "Ada").role is Role.ADMIN
        store.close()


def test_an_invitation_works_once(server: WebServer, store: Store) -> None:
    person = make_person(store, Role.RESEARCHER)
    with store.begin() as tx:
        token = invite(tx, person.id)
        set_up = invite(tx, None)
    page = server.page(f"/invite?token={token}")
    assert (page.status, person.name in page.text) == (200, True)
    chosen = {"token": token, "password": PASSWORD, "again": PASSWORD}
    assert server.request("POST", "/invite", chosen | {"again": "something else"}).status == 422
    assert server.request("POST", "/setup", chosen | {"name": "Eve"}).status == 410, "it is no set-up link"
    assert server.request("POST", "/invite", chosen | {"token": set_up}).status == 410, "nor the other way round"
    done = server.request("POST", "/invite", chosen)
    assert done.location == "/"
    assert "people" not in pages_seen(server, server.token_of(done))
    assert server.page(f"/invite?token={token}").status == 410
    assert server.request("POST", "/invite", chosen).status == 410


def test_a_new_password_ends_old_sessions(server: WebServer, store: Store) -> None:
    person = with_password(store)
    old = server.token_of(server.sign_in(person.name, PASSWORD))
    with store.begin() as tx:
        token = invite(tx, person.id)
    other = "another password, longer"
    server.request("POST", "/invite", {"token": token, "password": other, "again": other})
    assert server.page("/", token=old).status == 303
    assert server.sign_in(person.name, PASSWORD).status == 401
    assert server.sign_in(person.name, other).status == 303


def test_the_link_of_a_closed_account_is_dead(server: WebServer, store: Store) -> None:
    person = with_password(store)
    with store.begin() as tx:
        token = invite(tx, person.id)
        disable_person(tx, person.id)
    assert server.page(f"/invite?token={token}").status == 410


# ---- downloads


def test_downloads(server: WebServer, store: Store, tmp_path: Path) -> None:
    token = signed_in(store, Role.RESEARCHER)
    run = make_run(store, project=make_project(store))
    folder = server.home.run_folder(run.id)
    (folder / "model").mkdir(parents=True)
    (folder / "model" / "weights.bin").write_bytes(b"\x00\x01" * 700_000)
    (folder / "log.txt").write_text("<script>alert(1)</script>")
    (folder / "out").symlink_to(server.home.root)
    (folder / "model" / "passwords").symlink_to("/etc/passwd")

    def get(path: str, token: str = token) -> Answer:
        return server.request("GET", path, token=token)

    log = get(f"/download/run/{run.id}/log.txt")
    assert (log.status, log.text) == (200, "<script>alert(1)</script>")
    assert log.headers["content-disposition"].startswith('attachment; filename="log.txt"')
    assert log.headers["content-type"] == "application/octet-stream"
    packed = get(f"/download/run/{run.id}/model")
    (tmp_path / "model.zip").write_bytes(packed.body)
    with zipfile.ZipFile(tmp_path / "model.zip") as archive:
        assert archive.testzip() is None
        assert archive.namelist() == ["model/weights.bin"], "links are not packed"
        assert archive.read("model/weights.bin") == (folder / "model" / "weights.bin").read_bytes()
    bad = ["out", "out/rankloop.db", "model/passwords", "../../rankloop.db", "%2e%2e/%2e%2e/rankloop.db", "nothing"]
    for path in bad:
        assert get(f"/download/run/{run.id}/{path}").status in (400, 404), path
    for path in ("/download/run/../rankloop.db", "/download/run/%2e%2e/rankloop.db", "/download/run/unknown/log.txt"):
        assert get(path).status in (400, 404), path
    for role in (Role.ANNOTATOR, Role.REVIEWER):
        assert get(f"/download/run/{run.id}/log.txt", signed_in(store, role)).status == 403
    assert server.request("GET", f"/download/run/{run.id}/log.txt").status == 401


def test_snapshots_and_exports_can_be_downloaded(server: WebServer, store: Store) -> None:
    token = signed_in(store, Role.RESEARCHER)
    snapshot = make_snapshot(store, server.home)
    manifest = server.request("GET", f"/download/snapshot/{snapshot.id}/manifest.json", token=token)
    assert json.loads(manifest.body)
    whole = server.request("GET", f"/download/snapshot/{snapshot.id}/", token=token)
    assert f"snapshot-{snapshot.id}.zip" in whole.headers["content-disposition"]
    export = server.home.exports / "Ärger trl"
    export.mkdir()
    (export / "train.jsonl").write_text("{}\n")
    answer = server.request("GET", "/download/export/%C3%84rger%20trl", token=token)
    assert (answer.status, answer.body[:2]) == (200, b"PK")
    assert "filename*=UTF-8''%C3%84rger%20trl.zip" in answer.headers["content-disposition"]
    assert server.request("GET", "/download/export/", token=token).status == 404, "never everybody's exports at once"


# ---- starting and stopping


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
            if child.pid != other_than and child.status() != psutil.STATUS_ZOMBIE and "worker" in child.cmdline():
                return child.pid
        time.sleep(0.1)
    raise AssertionError(f"no worker:\n{server.log.read_text()}")


def test_two_servers_on_one_machine_keep_their_people_apart(server: WebServer) -> None:
    assert free_port() != server.port
    assert str(server.port) in server.cookie
