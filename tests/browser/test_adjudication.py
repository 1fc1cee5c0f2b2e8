"""Adjudication as people do it: two annotators disagree, a researcher decides, and the dry run says so."""

from __future__ import annotations

import re

from browser_pages import NewPage, RankingPage, eventually
from factories import make_person, make_project, make_task
from playwright.sync_api import Page, expect
from web_server import WebServer

from data.labels.adjudications import adjudication_of
from data.records import Adjudication, Person, Role, Task
from data.store import Store

PATIENCE_MS = 20_000


def test_from_two_rankings_at_odds_to_a_decision(store: Store, server: WebServer, new_page: NewPage) -> None:
    project = make_project(store, overlap=2)
    task = make_task(store, project, "the first text", "the second text", prompt="which is better?")
    ann, bob, boss = make_person(store), make_person(store), make_person(store, Role.RESEARCHER)
    url = f"?project={project.id}"
    for person, best in ((ann, "the first"), (bob, "the second")):
        _rank(new_page(server, person), f"{server.url}/rank{url}", best)
    page = new_page(server, boss)
    page.goto(f"{server.url}/quality{url}")
    expect(page.get_by_text(re.compile("Waiting for a decision, .*: 1"))).to_be_visible(timeout=PATIENCE_MS)
    page.get_by_role("button", name="Adjudicate").click()
    expect(page.get_by_text("1 task waiting, the least agreed first")).to_be_visible(timeout=PATIENCE_MS)
    for text in ("which is better?", "the first text", "the second text"):
        expect(page.get_by_text(text, exact=True)).to_be_visible()
    assert ann.name not in page.inner_text("body")
    page.get_by_text(": B > A").click()
    page.get_by_label("Reason").fill("only the second one answers")
    page.get_by_role("button", name="Decide", exact=True).click()
    expect(page.get_by_text("Nothing to decide")).to_be_visible(timeout=PATIENCE_MS)
    made = eventually(lambda: _decision(store, task))
    assert made is not None
    assert (made.ranks, made.reason, made.decided_by) == ((2, 1), "only the second one answers", boss.id)
    page.goto(f"{server.url}/snapshots{url}")
    expect(page.get_by_text("1 of them a researcher's decision on a task")).to_be_visible(timeout=PATIENCE_MS)
    expect(page.get_by_text("2 of tasks on which a researcher has decided")).to_be_visible()
    _never_shown(new_page(server, ann), server, url, ann, made)


def _rank(page: Page, url: str, best: str) -> None:
    ranking = RankingPage(page).open(url)
    ranking.press("1 2 Enter" if ranking.texts()[0].startswith(best) else "2 1 Enter")
    ranking.expect_saved()


def _never_shown(page: Page, server: WebServer, url: str, annotator: Person, made: Adjudication) -> None:
    """To an annotator there is no such page, and the own answer is as it was."""
    page.goto(f"{server.url}/rank{url}")
    ranking = RankingPage(page)
    expect(ranking.idle).to_be_visible(timeout=PATIENCE_MS)
    ranking.open_history(1)
    expect(ranking.history).to_contain_text(re.compile("A > B|B > A"))  # by the places where they stood
    assert made.reason not in page.content()
    expect(page.get_by_role("link", name="Adjudicate")).to_have_count(0)
    page.goto(f"{server.url}/adjudicate{url}")
    expect(page.get_by_text("Decide")).to_have_count(0)
    assert annotator.role is Role.ANNOTATOR


def _decision(store: Store, task: Task) -> Adjudication | None:
    with store.read() as tx:
        return adjudication_of(tx, task.id)
