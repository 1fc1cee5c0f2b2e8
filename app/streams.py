"""Open websockets end with the session that opened them: signed out, disabled, given another role or password.

One question to the store every few seconds, for all that this process holds open; so the store is the truth, whichever
process or command ended the session.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence

from anyio import to_thread
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from data.errors import StoreUnavailable
from data.people import ended_sessions
from data.store import Store

WATCH_S = 2.0
ENDED = 1008  # the code of a close for a reason of policy
log = logging.getLogger(__name__)


class Stream:
    """One websocket, between the server and the app: once it has ended, the app hears that its client is gone."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send
        self.ended = asyncio.Event()

    async def receive(self) -> Message:
        """The next message of the client, or that it is gone."""
        if not self.ended.is_set():
            message = asyncio.ensure_future(self._receive())
            ended = asyncio.ensure_future(self.ended.wait())
            try:
                await asyncio.wait((message, ended), return_when=asyncio.FIRST_COMPLETED)
            finally:
                ended.cancel()
                if not message.done():
                    message.cancel()
            if not self.ended.is_set():
                return message.result()
        return {"type": "websocket.disconnect", "code": ENDED, "reason": ""}

    async def send(self, message: Message) -> None:
        """Send a message of the app, unless the stream has ended."""
        if not self.ended.is_set():
            await self._send(message)

    async def end(self) -> None:
        """Close the stream, whatever the app is at."""
        if not self.ended.is_set():
            self.ended.set()
            await self._send({"type": "websocket.close", "code": ENDED, "reason": "the session has ended"})


class Streams:
    """All websockets of this process, by the hash of their session's token."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._open: defaultdict[str, set[Stream]] = defaultdict(set)
        self._watch: asyncio.Task[None] | None = None

    async def run(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send, session: str) -> None:
        """Let the app have a websocket for as long as its session lasts."""
        stream = Stream(receive, send)
        self._open[session].add(stream)
        if self._watch is None or self._watch.done():
            self._watch = asyncio.create_task(self._end_with_sessions())
        try:
            await app(scope, stream.receive, stream.send)
        finally:
            self._open[session].discard(stream)
            if not self._open[session]:
                del self._open[session]

    async def _end_with_sessions(self) -> None:
        """Look, for as long as anything is open, which sessions are over."""
        while self._open:
            await asyncio.sleep(WATCH_S)
            try:
                ended = await to_thread.run_sync(self._look, list(self._open))
            except StoreUnavailable as error:
                log.warning("%s", error)  # what is asked of the store meanwhile is refused
                continue
            for stream in [each for session in ended for each in self._open.get(session, ())]:
                try:
                    await stream.end()
                except (OSError, RuntimeError) as error:  # its client was gone already
                    log.debug("%s", error)

    def _look(self, sessions: Sequence[str]) -> set[str]:
        with self._store.read() as tx:
            return ended_sessions(tx, sessions)
