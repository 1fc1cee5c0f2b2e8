"""From the printed link to a signed-in admin, an invited annotator, and out again."""

from __future__ import annotations

from browser_pages import PATIENCE_S, NewPage, RankingPage
from factories import make_project, make_task
from playwright.sync_api import expect
from web_server import WebServer

from data.files.paths import Home

PASSWORD = "correct horse battery"


def test_from_the_set_up_link_to_the_first_ranking(home: Home, new_page: NewPage) -> None:
    with WebServer(home) as server:
        page = new_page(server)
        page.goto(server.url + server.set_up_path)
        page.get_by_label("Name").fill("Ada")
        page.get_by_label("Password", exact=True).fill(PASSWORD)
        page.get_by_label("The same password again").fill(PASSWORD)
        page.get_by_role("button", name="Create the admin account").click()
        page.get_by_role("button", name="Start with the demo project").click(timeout=PATIENCE_S * 1000)
        ranking = RankingPage(page).ready()
        expect(page.get_by_role("heading", name="Demo project")).to_be_visible()
        expect(page.get_by_role("link", name="People")).to_be_visible()
        ranking.press("1 2 3 4 Enter")
        expect(ranking.progress).to_have_text("1 ranked")
        ranking.expect_saved()


def test_an_invited_annotator_ranks_and_signs_out(home: Home, new_page: NewPage) -> None:
    with WebServer(home) as server:
        store = server.store()
        make_task(store, make_project(store))
        store.close()
        admin = new_page(server)
        admin.goto(server.url + server.set_up_path)
        admin.get_by_label("Name").fill("Ada")
        admin.get_by_label("Password", exact=True).fill(PASSWORD)
        admin.get_by_label("The same password again").fill(PASSWORD)
        admin.get_by_role("button", name="Create the admin account").click()
        admin.get_by_role("link", name="People").click(timeout=PATIENCE_S * 1000)
        admin.get_by_label("Name").fill("Ben")
        admin.get_by_role("button", name="Add", exact=True).click()
        link = admin.locator(".st-key-people\\.new_link code, .st-key-people-new_link code").inner_text()
        assert link.startswith(f"{server.url}/invite?token=")

        page = new_page(server)
        page.goto(link)
        expect(page.get_by_role("heading", name="Welcome, Ben")).to_be_visible()
        page.get_by_label("Password", exact=True).fill(PASSWORD)
        page.get_by_label("The same password again").fill(PASSWORD)
        page.get_by_role("button", name="Save and sign in").click()
        RankingPage(page).ready()
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        page.goto(f"{server.url}/rank")
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        page.get_by_label("Name").fill("Ben")
        page.get_by_label("Password").fill("wrong")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_have_text("The name or the password is wrong.")
        page.get_by_label("Password").fill(PASSWORD)
        page.keyboard.press("Enter")
        RankingPage(page).ready()
        assert page.url.startswith(f"{server.url}/rank")
