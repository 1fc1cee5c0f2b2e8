"""The open websockets of this process, and their end when the session that opened them ends.

Streamlit's stream outlives the request that opened it by hours. The store is asked for all of them at once, every few
seconds, so that a thousand open pages cost one query; whoever signs out, is disabled, gets another role or another
password loses the stream, whichever process wrote that. Until then a page can change nothing in any case: what it would
change asks for the role itself (`data.labels.roles`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time

from anyio import to_thread
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from data.errors import StoreUnavailable
from data.labels.people import ended_sessions
from data.store import Store

CHECK_EVERY_S = 2.0
SESSION_ENDED = 1008  # "policy violation": with it a stranger's stream is refused too
_DISCONNECTED: Message = {"type": "websocket.disconnect", "code": SESSION_ENDED}
log = logging.getLogger(__name__)


class _Socket:
    """One stream, and the hash of the session that opened it. Once that has ended, nothing passes either way."""

    def __init__(self, session: str, send: Send) -> None:
        self.session, self._send = session, send
        self.has_ended = False

    async def send(self, message: Message) -> None:
        if not self.has_ended:
            await self._send(message)

    async def end(self) -> None:
        """Close the stream; the server then tells whoever waits for its next message."""
        self.has_ended = True
        with contextlib.suppress(Exception):  # the browser may go away in this very moment
            await self._send({"type": "websocket.close", "code": SESSION_ENDED, "reason": "the session has ended"})


class OpenSockets:
    """All of them. To be used from the server's event loop alone."""

    def __init__(self, store: Store, every_s: float = CHECK_EVERY_S) -> None:
        self._store, self._every_s = store, every_s
        self._open: set[_Socket] = set()
        self._checking = asyncio.Lock()
        self._checked_at = -every_s
        self._watch: asyncio.Task[None] | None = None

    async def serve(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send, session: str) -> None:
        """Let the app have a stream for as long as the session with this hash lasts."""
        socket = _Socket(session, send)

        async def receive_if_signed_in() -> Message:
            message = await receive()
            await self._check_if_due()
            return _DISCONNECTED if socket.has_ended else message

        self._open.add(socket)
        if self._watch is None:
            self._watch = asyncio.create_task(self._keep_checking())
        try:
            await app(scope, receive_if_signed_in, socket.send)
        finally:
            self._open.discard(socket)

    async def _keep_checking(self) -> None:
        """As long as a stream is open."""
        try:
            while self._open:
                await asyncio.sleep(self._every_s)
                await self._check_if_due()
        finally:
            self._watch = None

    async def _check_if_due(self) -> None:
        """Ask the store which sessions have ended, at most once in a while, and close their streams.

        A store that does not answer ends nothing: nothing can be changed without it either.
        """
        async with self._checking:
            if time.monotonic() - self._checked_at < self._every_s:
                return
            here = list(self._open)
            try:
                ended = await to_thread.run_sync(self._ended, sorted({socket.session for socket in here}))
            except Exception as error:
                log.warning(
                    "could not ask which sessions have ended: %s",
                    error,
                    exc_info=not isinstance(error, StoreUnavailable),
                )
                ended = set()
            self._checked_at = time.monotonic()
        for socket in here:
            if socket.session in ended and not socket.has_ended:
                await socket.end()

    def _ended(self, sessions: list[str]) -> set[str]:
        with self._store.read() as tx:
            return ended_sessions(tx, sessions)
