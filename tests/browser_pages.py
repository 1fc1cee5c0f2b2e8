"""Pages of the app as a test sees and drives them in Chromium. Locators go through shadow roots by themselves."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import sqlalchemy as sa
from playwright.sync_api import Page, expect
from web_server import WebServer

from data.label_settings import LabelSettings
from data.labels.projects import set_settings
from data.labels.rankings import rankings_of
from data.records import Person, Project, Ranking
from data.store import Store
from data.store.tables import draft

PATIENCE_S = 20.0
T = TypeVar("T")
NewPage = Callable[..., Page]  # what the fixture `new_page` gives


class RankingPage:
    """The ranking surface."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.cards = page.locator(".ranker .card")
        self.prompt = page.locator(".ranker .prompt .message .text")
        self.saved = page.locator(".ranker .saved")
        self.hint = page.locator(".ranker .row:visible .hint")
        self.progress = page.locator(".ranker .progress")
        self.notice = page.locator(".ranker .notice")
        self.idle = page.locator(".ranker .idle")
        self.submit = page.get_by_role("button", name="Submit")
        self.live = page.locator(".ranker [aria-live=polite]")
        self.banner = page.locator(".ranker .banner")
        self.history = page.get_by_role("dialog", name="Your answers")

    def open(self, url: str) -> RankingPage:
        self.page.goto(url)
        return self.ready()

    def ready(self) -> RankingPage:
        expect(self.cards.first).to_be_visible(timeout=PATIENCE_S * 1000)
        return self

    def press(self, keys: str) -> None:
        """Press keys, given with spaces between, as fast as the browser takes them."""
        for key in keys.split():
            self.page.keyboard.press(key)

    def dispatch(self, event: str) -> None:
        """Send a key event with these properties to whatever has the focus inside the component."""
        self.page.evaluate(
            "document.activeElement.shadowRoot.activeElement.dispatchEvent("
            f"new KeyboardEvent('keydown', Object.assign({event}, {{bubbles: true, composed: true}})))"
        )

    def standings(self) -> list[str]:
        return self.page.locator(".ranker .standing").all_inner_texts()

    def order(self) -> str:
        """What the strip shows: `B > A = C`, those without a rank left out, or `B > A > the rest`."""
        return " ".join(self.page.locator(".ranker .order > *:not(.left)").all_inner_texts())

    def marked(self) -> str:
        return self.page.locator(".ranker .card.marked .letter").inner_text()

    def texts(self) -> list[str]:
        return self.page.locator(".ranker .card .text").all_inner_texts()

    def module(self, name: str, lines: str, argument: Any = None) -> Any:
        """Run lines of JavaScript with a file of the surface as `it`: what has no elements is tried by itself."""
        address = f"/_stcore/bidi-components/rankloop.ranker/{name}.js"
        code = f'async (given) => {{ const it = await import("{address}"); {lines} }}'
        return self.page.evaluate(code, argument)

    def open_history(self, n: int) -> None:
        """Open the person's answers, and wait for a page of n."""
        self.press("h")
        expect(self.history.locator(".answer")).to_have_count(n, timeout=PATIENCE_S * 1000)

    def expect_saved(self) -> None:
        expect(self.saved).to_have_text("All saved", timeout=PATIENCE_S * 1000)


def settled(page: Page) -> None:
    """Wait until the app has drawn all of the page; until then Streamlit may redraw what a click has just opened."""
    page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]", timeout=PATIENCE_S * 1000)


def eventually(look: Callable[[], T], *, is_good: Callable[[T], bool] = bool, patience_s: float = PATIENCE_S) -> T:
    """What `look` finds as soon as it is good; fails with the last thing found."""
    end = time.monotonic() + patience_s
    while True:
        found = look()
        if is_good(found):
            return found
        assert time.monotonic() < end, f"still {found!r} after {patience_s:.0f} s"
        time.sleep(0.05)


@dataclass
class Work:
    """A project of its own with tasks, and somebody to rank them."""

    server: WebServer
    store: Store
    project: Project
    person: Person

    def ask(self, *, flags: tuple[str, ...] | None = None, **settings: Any) -> None:
        """Let the project ask its annotators for more."""
        with self.store.begin() as tx:
            set_settings(tx, self.project.id, settings=LabelSettings(**settings), flags=flags)

    @property
    def url(self) -> str:
        return f"{self.server.url}/rank?project={self.project.id}"

    def rankings(self) -> list[Ranking]:
        """What is stored, the oldest first."""
        with self.store.read() as tx:
            return rankings_of(tx, self.person.id, self.project.id)[::-1]

    def stored(self, n: int, patience_s: float = PATIENCE_S) -> list[Ranking]:
        return eventually(self.rankings, is_good=lambda found: len(found) == n, patience_s=patience_s)

    def drafts(self) -> list[dict[str, Any]]:
        with self.store.read() as tx:
            rows = tx.rows(sa.select(draft).where(draft.c.annotator_id == self.person.id))
            return [json.loads(row.body) for row in rows]


def by_place(ranking: Ranking) -> list[int]:
    """The ranks in the order in which the responses were shown."""
    assert ranking.ranks is not None
    return [ranking.ranks[position] for position in ranking.display_order]


def bytes_of(frame: str | bytes) -> bytes:
    return frame.encode() if isinstance(frame, str) else frame
