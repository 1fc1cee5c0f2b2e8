"""axe-core on the pages where a researcher judges the labels, light and dark: no serious issue in what is ours.

The side navigation and the header are Streamlit's own, so only the page's main part is looked at.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import axe_playwright_python
import pytest
from browser_pages import NewPage
from factories import make_person, make_project, make_ranking, make_task
from playwright.sync_api import Page, expect
from web_server import WebServer

from data.labels.pauses import pause_annotator
from data.records import Detail, Project, RankingStatus, Role
from data.store import Store

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
PATIENCE_MS = 40_000
RUN = "async () => (await axe.run({ include: ['[data-testid=stMain]'] })).violations"


def issues(page: Page) -> list[str]:
    """What axe-core calls serious or critical, and where."""
    if not page.evaluate("typeof window.axe === 'object'"):
        page.evaluate(AXE)
    found: list[dict[str, Any]] = page.evaluate(RUN)
    return [
        f"{each['id']} ({each['impact']}): {node['html'][:160]} {node['failureSummary']}"
        for each in found
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]


def disputed_project(store: Store) -> Project:
    """Three annotators at odds in every way, one of them paused."""
    project = make_project(store, overlap=3)
    ann, bob, cat = (make_person(store) for _ in range(3))
    for number in range(4):
        task = make_task(store, project)
        make_ranking(store, task, ann, [1, 2, 3], comment="the first is short")
        make_ranking(store, task, bob, [3, 2, 1], detail=Detail(flags=(("Rude",), (), ()), strength=3))
        if number:
            make_ranking(store, task, cat, [2, 1, 2])
        else:
            make_ranking(store, task, cat, status=RankingStatus.UNACCEPTABLE)
    with store.begin() as tx:
        pause_annotator(tx, project.id, cat.id, "haste", {"value": 0.4, "threshold": 0.2, "n": 50})
    return project


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_serious_issue_where_labels_are_judged(
    store: Store, server: WebServer, new_page: NewPage, scheme: str
) -> None:
    project, boss = disputed_project(store), make_person(store, Role.RESEARCHER)
    page = new_page(server, boss, color_scheme=scheme)
    page.goto(f"{server.url}/quality?project={project.id}")
    expect(page.get_by_text("Annotators never see this table")).to_be_visible(timeout=PATIENCE_MS)
    found = {"quality": issues(page)}
    page.get_by_role("button", name="Adjudicate").click()
    expect(page.get_by_role("button", name="Decide", exact=True)).to_be_visible(timeout=PATIENCE_MS)
    found["case"] = issues(page)
    page.get_by_text("4 tasks waiting, the least agreed first").click()
    page.get_by_text("A ranking of my own").click()
    expect(page.get_by_label("Rank of A")).to_be_visible(timeout=PATIENCE_MS)
    found["own ranking"] = issues(page)
    assert {state: each for state, each in found.items() if each} == {}
    pale = "<p id='pale' style='color: #777; background: #888; position: fixed; z-index: 99'>pale</p>"
    page.evaluate("html => document.querySelector('[data-testid=stMain]').insertAdjacentHTML('beforeend', html)", pale)
    assert any("id='pale'" in each.replace('"', "'") for each in issues(page))  # the check can fail
