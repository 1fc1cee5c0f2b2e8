"""Open streams and the sessions behind them, without a server; tests/integration/test_ended_sessions.py has one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from factories import make_person, make_session

from app.web.open_sockets import OpenSockets
from data.labels.people import close_session, token_hash
from data.store.engine import Store

PATIENCE_S = 30.0
NEVER_BY_ITSELF = 3600.0
CLOSED = {"type": "websocket.close", "code": 1008, "reason": "the session has ended"}


class Stream:
    """What a server has of a stream, and an app that takes each message in and answers it."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.sent: list[dict[str, Any]] = []
        self.taken_in: list[str] = []
        self.took_in = asyncio.Event()

    async def send(self, message: Any) -> None:
        self.sent.append(message)
        if message["type"] == "websocket.close":  # as the server does, for whoever waits
            self.queue.put_nowait({"type": "websocket.disconnect", "code": message["code"]})

    def say(self, text: str) -> None:
        self.queue.put_nowait({"type": "websocket.receive", "text": text})

    async def app(self, _scope: Any, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
        while (message := await receive())["type"] != "websocket.disconnect":
            self.taken_in.append(message["text"])
            self.took_in.set()
            await send({"type": "websocket.send", "text": f"heard {message['text']}"})
        await send({"type": "websocket.send", "text": "too late"})

    def serve(self, sockets: OpenSockets, token: str) -> asyncio.Task[None]:
        work = sockets.serve(self.app, {"type": "websocket"}, self.queue.get, self.send, token_hash(token))
        return asyncio.create_task(work)


@pytest.fixture
def token(sqlite_store: Store) -> str:
    return make_session(sqlite_store, make_person(sqlite_store))


def close(store: Store, token: str) -> None:
    with store.begin() as tx:
        close_session(tx, token)


def test_nothing_is_handed_on_once_the_session_has_ended(sqlite_store: Store, token: str) -> None:
    async def talk() -> Stream:
        stream = Stream()
        served = stream.serve(OpenSockets(sqlite_store, every_s=0.0), token)
        stream.say("one")
        await asyncio.wait_for(stream.took_in.wait(), PATIENCE_S)
        close(sqlite_store, token)
        stream.say("two")
        await asyncio.wait_for(served, PATIENCE_S)
        return stream

    stream = asyncio.run(talk())
    assert stream.taken_in == ["one"]
    assert stream.sent == [{"type": "websocket.send", "text": "heard one"}, CLOSED]


def test_a_stream_that_says_nothing_is_closed_too(sqlite_store: Store, token: str) -> None:
    async def wait() -> Stream:
        stream = Stream()
        served = stream.serve(OpenSockets(sqlite_store, every_s=0.01), token)
        close(sqlite_store, token)
        await asyncio.wait_for(served, PATIENCE_S)
        return stream

    assert asyncio.run(wait()).sent == [CLOSED]


def test_one_question_is_asked_for_all_streams(sqlite_store: Store, token: str) -> None:
    person, n = make_person(sqlite_store), 300
    with sqlite_store.begin() as tx:
        tokens = [make_session(tx, person) for _ in range(n)]
    close(sqlite_store, token)
    asked: list[str] = []

    async def talk() -> list[Stream]:
        sockets, streams = OpenSockets(sqlite_store, NEVER_BY_ITSELF), [Stream() for _ in range(n + 1)]
        served = [each.serve(sockets, whose) for each, whose in zip(streams, [*tokens, token], strict=True)]
        await asyncio.sleep(0)  # all of them are open
        for stream in streams:
            stream.say("one")
            stream.say("two")
        await asyncio.wait_for(served.pop(), PATIENCE_S)
        for stream in streams[:-1]:
            await asyncio.wait_for(stream.took_in.wait(), PATIENCE_S)
        for task in served:
            task.cancel()
        return streams

    def note(*details: Any) -> None:
        asked.append(details[2])

    sa.event.listen(sqlite_store.read_engine, "before_cursor_execute", note)
    streams = asyncio.run(talk())
    sa.event.remove(sqlite_store.read_engine, "before_cursor_execute", note)
    assert len([each for each in asked if "web_session" in each]) == 1
    assert streams[-1].taken_in == []


def test_a_store_that_does_not_answer_ends_no_stream(tmp_path: Path, token: str) -> None:
    away = Store(f"sqlite:///{tmp_path / 'no such folder' / 'rankloop.db'}")

    async def talk() -> Stream:
        stream = Stream()
        served = stream.serve(OpenSockets(away, every_s=0.0), token)
        stream.say("one")
        await asyncio.wait_for(stream.took_in.wait(), PATIENCE_S)
        served.cancel()
        return stream

    assert asyncio.run(talk()).taken_in == ["one"]
