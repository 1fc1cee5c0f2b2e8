"""Two models compared blind, as people do it: a comparison becomes tasks, two annotators rank, the win rates stand."""

from __future__ import annotations

from browser_pages import NewPage, RankingPage, eventually
from factories import make_finished_run, make_person, make_project
from playwright.sync_api import Page, expect
from web_server import WebServer

from data.labels.projects import list_projects, project_counts
from data.records import Role, RunKind
from data.store import Store


def test_from_a_comparison_to_its_win_rates(store: Store, server: WebServer, new_page: NewPage) -> None:
    rows = [
        {"messages": [{"role": "user", "content": f"question {n}"}], "prompt": f"question {n}", "side": side,
         "model": model, "response": f"{words} {n}", "ended": True, "n_tokens": 3}
        for side, model, words in (("a", "sft-model", "plain"), ("b", "ppo-model", "better")) for n in range(4)
    ]  # fmt: skip
    project = make_project(store)
    run = make_finished_run(store, RunKind.COMPARE, rows, project)
    page = new_page(server, make_person(store, Role.RESEARCHER))
    page.goto(f"{server.url}/compare?project={project.id}&run={run.id}")
    page.get_by_role("button", name="Rank blind").click(timeout=20_000)
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("Blind")
    dialog.get_by_label("Annotators per task").fill("2")
    dialog.get_by_label("Annotators per task").press("Tab")
    dialog.get_by_role("button", name="Create project").click()
    expect(page.get_by_text("Annotators find the tasks under Rank.")).to_be_visible(timeout=20_000)
    with store.read() as tx:
        blind = next(each for each in list_projects(tx) if each.name == "Blind")
    for person in (make_person(store), make_person(store)):
        _prefer(new_page(server, person), f"{server.url}/rank?project={blind.id}")
    assert eventually(lambda: _n_rankings(store, blind.id), is_good=lambda n: n == 8) == 8
    page.goto(f"{server.url}/compare?project={blind.id}")
    expect(page.get_by_role("heading", name="Win rates")).to_be_visible(timeout=20_000)
    expect(page.get_by_text("8 rankings, 0 answers that no response is acceptable")).to_be_visible()
    expect(page.get_by_text("ppo-model").first).to_be_attached()


def _prefer(page: Page, url: str) -> None:
    """Rank the better one first on every task, wherever it stands; no model is named on the page."""
    ranking = RankingPage(page).open(url)
    for _ in range(4):
        texts = ranking.texts()
        assert "-model" not in page.locator(".ranker").inner_text()
        ranking.press("1 2 Enter" if texts[0].startswith("better") else "2 1 Enter")
        ranking.expect_saved()


def _n_rankings(store: Store, project_id: str) -> int:
    with store.read() as tx:
        return project_counts(tx, project_id)["rankings"]
