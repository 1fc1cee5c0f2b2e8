"""One web server for all tests of a module that leave it as it is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from web_server import WebServer

from data.files.paths import open_home
from data.store import Store


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebServer]:
    with WebServer(open_home(tmp_path_factory.mktemp("home"))) as running:
        yield running


@pytest.fixture
def server_store(server: WebServer) -> Iterator[Store]:
    """The store of the server."""
    opened = server.store()
    yield opened
    opened.close()
