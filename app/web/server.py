"""The web app as one process: Streamlit behind the gate, our own routes beside it, and the caretaker's threads."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import streamlit as st
import uvicorn
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from streamlit.web import bootstrap

from app.script_folder import settle
from app.web.accounts import Accounts
from app.web.caretaker import Caretaker
from app.web.downloads import Downloads
from app.web.gate import IDENTITY_HEADERS, NO_STORE, Gate, cookie_name
from app.widgets.base.problems import show_unexpected
from data.errors import InvalidInput, StoreUnavailable
from data.files.paths import HOME_VARIABLE, STORE_VARIABLE, Home
from data.files.readable import ROOTS_VARIABLE, named_roots
from data.labels.people import has_admin, invite
from data.store import Store, open_store
from training.launch.process import start_worker

log = logging.getLogger(__name__)
MAIN = Path(__file__).parents[1] / "main.py"
_LOCAL_HOSTS = ("127.0.0.1", "localhost", "0.0.0.0", "::", "")
_MAX_FRAME_BYTES = 32 * 2**20
_THEME = {
    "theme.baseRadius": "0.5rem",
    "theme.paddingTop": "1.25rem",
    "theme.headingFontSizes": ["1.75rem", "1.35rem", "1.1rem", "1rem", "0.95rem", "0.9rem"],
    "theme.light.primaryColor": "#3b5bdb",
    "theme.light.textColor": "#10131f",
    "theme.light.secondaryBackgroundColor": "#f4f5f8",
    "theme.dark.primaryColor": "#4868f0",
    "theme.dark.linkColor": "#9db2ff",
    "theme.dark.backgroundColor": "#0e1117",
    "theme.dark.secondaryBackgroundColor": "#171b25",
}


def serve(
    home: Home,
    store_url: str,
    port: int,
    *,
    with_worker: bool = True,
    host: str = "127.0.0.1",
    roots: tuple[Path, ...] = (),
    announce: Callable[[str], None],
) -> None:
    """Serve the web app until Ctrl-C or SIGTERM; `announce` gets what a person has to know, line by line.

    `roots`: folders in which a person at a browser may name files and models, beside the home folder.

    Raises InvalidInput if the port is in use, and what `open_store` raises.
    """
    with contextlib.closing(_listen(host, port)) as listener, contextlib.closing(open_store(store_url)) as store:
        port = listener.getsockname()[1]  # port 0 lets the system choose
        os.environ |= {HOME_VARIABLE: str(home.root), STORE_VARIABLE: store_url}
        if roots:
            os.environ[ROOTS_VARIABLE] = os.pathsep.join(map(str, (*named_roots(), *roots)))
        settle()
        bootstrap.load_config_options(streamlit_options(host, port))
        lifespan = partial(_announced, store=store, address=_address(host, port), announce=announce)
        app = web_app(store, home, cookie_name(port), lifespan)
        start = partial(start_worker, home, store_url) if with_worker else None
        with _interruptible(), Caretaker(store, start, announce):
            uvicorn.Server(uvicorn_config(app)).run(sockets=[listener])


def web_app(store: Store, home: Home, cookie: str, lifespan: Any = None) -> st.App:
    """Streamlit with our routes, all of it behind the gate."""
    return st.App(
        MAIN,
        routes=[*Accounts(store, cookie).routes(), *Downloads(store, home).routes()],
        middleware=[Middleware(Gate, store=store, cookie=cookie)],
        on_script_error=show_unexpected,
        exception_handlers={StoreUnavailable: _no_store},
        lifespan=lifespan,
    )


async def _no_store(_request: Request, error: Exception) -> Response:
    log.error("%s", error)
    return PlainTextResponse(NO_STORE, 503)


def streamlit_options(host: str, port: int) -> dict[str, Any]:
    """Every option of Streamlit that matters here. A test asserts that each still exists."""
    return _THEME | {
        "server.address": host,
        "server.port": port,
        "server.headless": True,
        "server.fileWatcherType": "none",
        "server.enableCORS": True,
        "server.enableXsrfProtection": True,
        "server.enableStaticServing": False,
        "server.maxUploadSize": 200,
        "server.trustedUserHeaders": json.dumps(IDENTITY_HEADERS),
        "browser.serverAddress": "localhost" if host in _LOCAL_HOSTS else host,
        "browser.gatherUsageStats": False,
        "client.toolbarMode": "viewer",
        "client.showErrorDetails": "none",
        "runner.magicEnabled": False,
        "runner.postScriptGC": False,  # its collection after every run takes 79 ms, whoever else is waiting
        "logger.hideWelcomeMessage": True,
    }


def uvicorn_config(app: st.App) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        ws="websockets-sansio",
        ws_ping_interval=30,
        ws_ping_timeout=30,
        ws_max_size=_MAX_FRAME_BYTES,
        access_log=False,
        log_level="warning",
        timeout_graceful_shutdown=5,
        server_header=False,
    )


@contextlib.asynccontextmanager
async def _announced(
    _app: st.App, *, store: Store, address: str, announce: Callable[[str], None]
) -> AsyncIterator[dict[str, Any]]:
    """Say where the app is, once it can answer; and how to make the first admin, while there is none."""
    announce(f"rankloop is at {address}")
    with store.begin() as tx:
        token = None if has_admin(tx) else invite(tx, None)
    if token is not None:
        announce(f"Create the first account here, once: {address}/setup?token={token}")
    yield {}


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket. Bound before anything else starts, so that a port in use costs nothing."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    try:
        if os.name != "nt":  # there it would share the port with whoever has it
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise InvalidInput(
                f"port {port} is in use on {host or 'this machine'}; choose another with --port"
            ) from None
        raise InvalidInput(f"can't listen on {host}:{port} ({error.strerror}); choose another with --port") from None
    listener.setblocking(False)
    return listener


def _address(host: str, port: int) -> str:
    name = "localhost" if host in _LOCAL_HOSTS else f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}"


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Let the first Ctrl-C or SIGTERM end the server, and what stands after it still run; a second one is as ever.

    uvicorn stops at these signals and then raises them again for whoever handled them before: here, nobody need.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def once(number: int, _frame: object) -> None:
        signal.signal(number, before[signal.Signals(number)])

    for number in before:
        signal.signal(number, once)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
