"""The gate in front of every route and the websocket: who is asking, may they, and which headers go back.

Plain ASGI, so that it covers the websocket too. Strangers get the sign-in pages and the health check, nothing else.
Streamlit learns who is there from three headers that only this gate can set.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import re
from pathlib import Path
from urllib.parse import quote, urlsplit

import streamlit
from anyio import to_thread
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.web.open_sockets import OpenSockets
from data.errors import StoreUnavailable
from data.labels.people import session_person, token_hash
from data.records import Person
from data.store import Store

_IDENTITY = "x-rankloop-"
IDENTITY_HEADERS = {f"{_IDENTITY}{key}": key for key in ("id", "role", "session")}  # header: key in st.user
OPEN_PATHS = frozenset({"/signin", "/setup", "/invite", "/_stcore/health"})
PERSON = "rankloop_person"  # where the routes find who is asking, in the scope
NO_STORE = "the store does not answer; try again in a moment"
log = logging.getLogger(__name__)
_RETURNABLE = re.compile(r"/[a-z]{1,20}(\?[A-Za-z0-9_=&%.,:+-]{0,300})?")
_COMPONENTS = "/_stcore/bidi-components/"


def cookie_name(port: int) -> str:
    """Cookies do not know ports: with one name, two servers on a machine would sign each other's people out."""
    return f"rankloop_session_{port}"


def session_token(connection: HTTPConnection, cookie: str) -> str | None:
    """The token in the session cookie, or None."""
    return connection.cookies.get(cookie)


def return_path(wanted: str | None) -> str:
    """Where to go after signing in: a page of ours, never another site."""
    return wanted if wanted and _RETURNABLE.fullmatch(wanted) else "/"


def script_hashes(index_html: str) -> list[str]:
    """CSP hashes of the inline scripts in a page."""
    inline = re.findall(r"<script>(.*?)</script>", index_html, flags=re.DOTALL)
    digests = [hashlib.sha256(script.encode()).digest() for script in inline]
    return [f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests]


def security_headers() -> dict[str, str]:
    """What goes with every response. The policy also stops images in model texts from calling home."""
    index = Path(streamlit.__file__).with_name("static") / "index.html"
    scripts = " ".join(["'self'", *script_hashes(index.read_text(encoding="utf-8"))])
    policy = (
        f"default-src 'self'; script-src {scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
        f"font-src 'self' data:; connect-src 'self'{SOCKETS}; worker-src 'self' blob:; frame-src 'self'; "
        "object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'"
    )
    return {
        "content-security-policy": policy,
        # Not "no-referrer": with it browsers send "Origin: null" on our own forms, and their origin can't be checked.
        "referrer-policy": "same-origin",
        "x-content-type-options": "nosniff",
    }


SOCKETS = "{sockets}"  # stands for the page's own host: browsers differ in whether 'self' covers its websockets
_HOST = re.compile(r"[A-Za-z0-9.\-]+(?::\d+)?|\[[0-9A-Fa-f:.]+\](?::\d+)?")


class Gate:
    """ASGI middleware; see the module's docstring."""

    def __init__(self, app: ASGIApp, store: Store, cookie: str) -> None:
        self._app, self._store, self._cookie = app, store, cookie
        self._sockets = OpenSockets(store)
        self._headers = security_headers()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        kept = [(name, value) for name, value in scope["headers"] if not name.lower().startswith(_IDENTITY.encode())]
        scope = {**scope, "headers": kept}
        if scope["type"] == "http":
            send = self._with_headers(scope, send)
        if is_foreign(scope):
            await _refuse(scope, receive, send, PlainTextResponse("this request comes from another site", 403))
            return
        token = session_token(HTTPConnection(scope), self._cookie)
        try:
            person = await to_thread.run_sync(self._lookup, token) if token else None
        except StoreUnavailable as error:
            log.error("%s", error)  # strangers need not know where the store is
            await _refuse(scope, receive, send, PlainTextResponse(NO_STORE, 503))
            return
        if person is None and scope["path"] not in OPEN_PATHS:
            await _refuse(scope, receive, send, _closed(scope))
            return
        if person is not None and token is not None:
            values = {"id": person.id, "role": person.role.value, "session": token_hash(token)}
            known = [(name.encode(), values[key].encode()) for name, key in IDENTITY_HEADERS.items()]
            scope = {**scope, "headers": kept + known, PERSON: person}
            if scope["type"] == "websocket":  # it stays open for hours, the session perhaps not
                await self._sockets.serve(self._app, scope, receive, send, values["session"])
                return
        await self._app(scope, receive, send)

    def _lookup(self, token: str) -> Person | None:
        with self._store.read() as tx:
            return session_person(tx, token)

    def _with_headers(self, scope: Scope, send: Send) -> Send:
        host = Headers(scope=scope).get("host", "")
        sockets = f" ws://{host} wss://{host}" if _HOST.fullmatch(host) else ""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers[name] = value.replace(SOCKETS, sockets)
                if scope["path"].startswith(_COMPONENTS):
                    headers["cache-control"] = "no-cache"  # else a browser goes on with the old code after an upgrade
            await send(message)

        return send_with_headers


def is_foreign(scope: Scope) -> bool:
    """Whether another site's page makes this request: on the websocket, and on whatever may change something."""
    headers = Headers(scope=scope)
    if scope["type"] == "http":
        if scope["method"] in ("GET", "HEAD", "OPTIONS"):
            return False
        if (site := headers.get("sec-fetch-site")) is not None:  # browsers send it on https and on localhost
            return site not in ("same-origin", "none")
    origin = headers.get("origin")
    return origin is not None and urlsplit(origin).netloc != headers.get("host")


def _closed(scope: Scope) -> Response:
    """Browsers that want a page are led to the sign-in page; everything else gets a plain 401."""
    wants_page = scope["type"] == "http" and scope["method"] == "GET"
    if not wants_page or "text/html" not in Headers(scope=scope).get("accept", ""):
        return PlainTextResponse("sign in first", 401)
    query = scope["query_string"].decode("latin-1")
    wanted = return_path(scope["path"] + (f"?{query}" if query else ""))
    return RedirectResponse("/signin" if wanted == "/" else f"/signin?next={quote(wanted, safe='')}", 303)


async def _refuse(scope: Scope, receive: Receive, send: Send, response: Response) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008})
        return
    await response(scope, receive, send)
