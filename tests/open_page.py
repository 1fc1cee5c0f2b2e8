"""A page of the app as a browser holds it open: Streamlit's stream without the browser.

It draws a screen, then sends what somebody chose in a widget, over the same stream, as long as that is open.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.WidgetStates_pb2 import WidgetState
from web_server import WebServer
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

PATIENCE_S = 60.0


class OpenPage:
    """One open stream. `texts`: what the last run wrote of text, warnings and errors; `ids`: of the widgets it drew."""

    def __init__(self, stream: ClientConnection, screen: str) -> None:
        self._stream, self._screen = stream, screen
        self.texts: list[str] = []
        self.ids: list[str] = []

    def run(self) -> None:
        """Run the page's script to its end, as a browser asks for it. Raises ConnectionClosed."""
        self._send()
        self.texts, self.ids = [], []
        while not self._took_in(self._stream.recv(timeout=PATIENCE_S)):
            pass

    def send_choice(self, key: str, value: str) -> None:
        """Send what is chosen in the select box with this key of ours, and wait for nothing."""
        self._send(WidgetState(id=self._widget(key), string_value=value))

    def send_press(self, key: str) -> None:
        """Send that the button with this key of ours is pressed, and wait for nothing."""
        self._send(WidgetState(id=self._widget(key), trigger_value=True))

    def wait_until_closed(self) -> int | None:
        """The code with which the server closes the stream. Raises TimeoutError."""
        try:
            while True:
                self._stream.recv(timeout=PATIENCE_S)
        except ConnectionClosed as closed:
            return None if closed.rcvd is None else closed.rcvd.code

    def _widget(self, key: str) -> str:
        (found,) = [each for each in self.ids if each.endswith(f"-{key}")]
        return found

    def _send(self, *states: WidgetState) -> None:
        ask = BackMsg()
        ask.rerun_script.page_name = self._screen
        ask.rerun_script.widget_states.widgets.extend(states)
        self._stream.send(ask.SerializeToString())

    def _took_in(self, raw: str | bytes) -> bool:
        """Note what a message draws; whether it ends the run."""
        assert isinstance(raw, bytes)
        message = ForwardMsg.FromString(raw)
        kind = message.WhichOneof("type")
        if kind == "delta" and message.delta.HasField("new_element"):
            element = message.delta.new_element
            drawn = getattr(element, element.WhichOneof("type"))
            self.texts += [str(drawn.body)] if hasattr(drawn, "body") else []
            self.ids += [drawn.id] if getattr(drawn, "id", "") else []
        return kind == "script_finished"


@contextlib.contextmanager
def open_page(server: WebServer, token: str, screen: str) -> Iterator[OpenPage]:
    """Open a screen over a stream of its own, and draw it once."""
    with server.websocket(token, {"Origin": server.url}) as stream:
        page = OpenPage(stream, screen)
        page.run()
        yield page
