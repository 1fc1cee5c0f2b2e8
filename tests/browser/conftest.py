"""A real Chromium against the real server. No test may reach another machine, or leave an error in the console."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator

import pytest
from browser_pages import NewPage, RankingPage, Work
from factories import make_person, make_project, make_session, make_task, skip
from playwright.sync_api import Browser, BrowserContext, Error, Page, Request, sync_playwright
from web_server import WebServer

from data.files.paths import open_home
from data.records import Person
from data.store import Store

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "/browser/" in str(item.path).replace(os.sep, "/"):
            item.add_marker(pytest.mark.browser)


@pytest.fixture(autouse=True)
def _leaves_nothing_behind() -> None:
    """Chromium's own processes come and go as it pleases; the server's end is checked by `WebServer`."""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    named = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if not named:
        skip("no Chromium: install it, or name it in CHROMIUM")
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=named, args=FLAGS)
        except Error as error:
            skip(f"Chromium at {named} does not start: {error}")
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebServer]:
    with WebServer(open_home(tmp_path_factory.mktemp("home"))) as running:
        yield running


@pytest.fixture
def store(server: WebServer) -> Iterator[Store]:
    opened = server.store()
    yield opened
    opened.close()


@contextlib.contextmanager
def _pages(chromium: Browser) -> Iterator[NewPage]:
    contexts: list[BrowserContext] = []
    outside: list[str] = []
    errors: list[str] = []

    def open_page(
        server: WebServer,
        person: Person | None = None,
        *,
        context: BrowserContext | None = None,
        **options: object,
    ) -> Page:
        def note(request: Request) -> None:
            if not request.url.startswith((f"{server.url}/", "data:", "blob:")):
                outside.append(request.url)

        if context is None:
            context = chromium.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})  # type: ignore[arg-type]
            contexts.append(context)
            context.on("request", note)
            context.on("weberror", lambda error: errors.append(str(error.error)))
        if person is not None:
            store = server.store()
            token = make_session(store, person)
            store.close()
            context.add_cookies([{"name": server.cookie, "value": token, "url": server.url, "httpOnly": True}])
        return context.new_page()

    yield open_page
    for context in contexts:
        context.close()
    assert not outside, f"requests left this machine: {outside}"
    assert not errors, f"errors in the page: {errors}"


@pytest.fixture
def new_page(chromium: Browser) -> Iterator[NewPage]:
    """`new_page(server, person)`: a page of a fresh browser profile, signed in; `context=page.context` opens a tab."""
    with _pages(chromium) as opened:
        yield opened


def _work(server: WebServer, store: Store) -> Work:
    project = make_project(store)
    for _ in range(5):
        make_task(store, project)
    return Work(server, store, project, make_person(store))


@pytest.fixture
def work(server: WebServer, store: Store) -> Work:
    return _work(server, store)


@pytest.fixture(scope="module")
def surface(server: WebServer, chromium: Browser) -> Iterator[RankingPage]:
    """The ranking page, opened once for all tests of a file that ask its modules and change nothing on it."""
    with contextlib.closing(server.store()) as store:
        work = _work(server, store)
    with _pages(chromium) as opened:
        yield RankingPage(opened(server, work.person)).open(work.url)


@pytest.fixture
def ranking(work: Work, new_page: NewPage) -> RankingPage:
    return RankingPage(new_page(work.server, work.person)).open(work.url)
