"""No ranking is lost and none doubled: reloads, killed servers, tabs, browsers, people who take turns."""

from __future__ import annotations

from browser_pages import PATIENCE_S, NewPage, RankingPage, Work, by_place, eventually
from factories import make_person
from playwright.sync_api import expect
from web_server import WebServer

from data.labels.people import disable_person
from labeling.work.session import keep_draft, next_work

RECONNECT_S = 60.0  # Streamlit's page tries again after ever longer waits


def test_a_reload_in_the_middle_keeps_the_draft(work: Work, ranking: RankingPage, new_page: NewPage) -> None:
    prompt, texts = ranking.prompt.inner_text(), ranking.texts()
    ranking.press("3 1")
    ranking.page.reload()  # at once: only this browser has it
    ranking.ready()
    assert (ranking.prompt.inner_text(), ranking.texts()) == (prompt, texts)
    assert ranking.standings() == ["Rank 3", "Rank 1", "Not ranked"]
    ranking.press("u")  # what came back was no gesture of this page, so there is nothing to undo
    assert ranking.standings() == ["Rank 3", "Rank 1", "Not ranked"]
    eventually(work.drafts, is_good=lambda found: [each["ranks"] for each in found] == [[3, 1, None]])
    elsewhere = RankingPage(new_page(work.server, work.person)).open(work.url)  # the store has it too
    assert elsewhere.texts() == texts
    assert elsewhere.standings() == ["Rank 3", "Rank 1", "Not ranked"]
    elsewhere.press("2 Enter")
    assert by_place(work.stored(1)[0]) == [3, 1, 2]


def test_a_draft_of_another_order_is_not_shown(work: Work, new_page: NewPage) -> None:
    held = next_work(work.store, work.person, work.project.id).assignments[0]
    turned = list(held.display_order)[::-1]
    draft = {"task_id": held.task.id, "ranks": [1, 2, 3], "display_order": turned, "at": 1.0}
    keep_draft(work.store, work.person, draft)
    assert RankingPage(new_page(work.server, work.person)).open(work.url).standings() == ["Not ranked"] * 3
    keep_draft(work.store, work.person, draft | {"display_order": list(held.display_order), "at": 2.0})
    again = RankingPage(new_page(work.server, work.person)).open(work.url)
    assert again.standings() == ["Rank 1", "Rank 2", "Rank 3"]


def test_an_answer_that_is_refused_says_why_and_comes_back(work: Work, ranking: RankingPage) -> None:
    held = next_work(work.store, work.person, work.project.id).assignments[0]
    item = {"submission_key": "a-bad-one", "task_id": held.task.id, "lease_token": held.lease_token}
    item |= {"display_order": list(held.display_order), "ranks": [1, 3, 3], "sent_at": 0}
    key = f"rankloop.outbox.{work.person.id}.a-bad-one"
    ranking.page.evaluate("([key, item]) => localStorage.setItem(key, JSON.stringify(item))", [key, item])
    ranking.page.reload()
    expect(ranking.notice).to_contain_text("have a gap", timeout=PATIENCE_S * 1000)
    ranking.expect_saved()
    ranking.ready()
    assert ranking.page.evaluate("key => localStorage.getItem(key)", key) is None
    assert work.rankings() == []
    ranking.page.reload()
    ranking.ready()
    assert ranking.standings() == ["Rank 1", "Rank 3, tied with C", "Rank 3, tied with B"]
    ranking.press("2 Enter")
    assert by_place(work.stored(1)[0]) == [1, 2, 2]


def test_a_killed_server_costs_nothing(work: Work, new_page: NewPage) -> None:
    with WebServer(work.server.home) as server:
        work.server = server
        page = new_page(server, work.person)
        ranking = RankingPage(page).open(work.url)
        first = ranking.prompt.inner_text()
        server.kill()
        ranking.press("2 1 3 Enter")
        expect(ranking.prompt).not_to_have_text(first)
        second = ranking.prompt.inner_text()
        ranking.press("3 1")
        expect(ranking.saved).to_have_text("Not saved yet, trying again", timeout=PATIENCE_S * 1000)
        assert work.rankings() == []
        server.start()
        (stored,) = work.stored(1, RECONNECT_S)  # nobody did anything
        assert by_place(stored) == [2, 1, 3]
        ranking.expect_saved()
        assert ranking.prompt.inner_text() == second
        assert ranking.standings() == ["Rank 3", "Rank 1", "Not ranked"]
        ranking.press("2 Enter")
        assert [by_place(each) for each in work.stored(2)] == [[2, 1, 3], [3, 1, 2]]


def test_an_unsent_ranking_outlives_the_browser_window(work: Work, new_page: NewPage) -> None:
    with WebServer(work.server.home) as server:
        work.server = server
        page = new_page(server, work.person)
        ranking = RankingPage(page).open(work.url)
        server.kill()
        ranking.press("1 1 2 Enter 2")
        page.close()
        server.start()
        again = RankingPage(new_page(server, context=page.context)).open(work.url)
        assert by_place(work.stored(1)[0]) == [1, 1, 3]
        again.expect_saved()
        assert again.standings() == ["Rank 2", "Not ranked", "Not ranked"]
        expect(again.progress).to_have_text("1 ranked")


def test_two_tabs_of_one_person(work: Work, ranking: RankingPage, new_page: NewPage) -> None:
    other = RankingPage(new_page(work.server, context=ranking.page.context)).open(work.url)
    first = ranking.prompt.inner_text()
    assert other.prompt.inner_text() == first
    ranking.press("1 2 3 Enter")
    ranking.expect_saved()
    expect(other.notice).to_contain_text("another tab")
    expect(other.prompt).not_to_have_text(first)
    other.press("3 2 1 Enter")
    other.expect_saved()
    assert [by_place(each) for each in work.stored(2)] == [[1, 2, 3], [3, 2, 1]]


def test_two_browsers_of_one_person(work: Work, ranking: RankingPage, new_page: NewPage) -> None:
    other = RankingPage(new_page(work.server, work.person)).open(work.url)
    first = ranking.prompt.inner_text()
    other.press("1 2")  # half done here, and then answered there
    ranking.press("1 2 3 Enter")
    work.stored(1)
    other.press("3 Enter")
    expect(other.notice).to_contain_text("you had answered this task already")
    other.expect_saved()
    expect(other.prompt).not_to_have_text(first)
    assert len(work.rankings()) == 1


def test_the_next_person_at_the_same_browser(work: Work, new_page: NewPage) -> None:
    with WebServer(work.server.home) as server:
        work.server = server
        page = new_page(server, work.person)
        ranking = RankingPage(page).open(work.url)
        ranking.press("3 2")
        server.kill()
        ranking.press("1 Enter 1 2")
        server.start()
        page.goto("about:blank")
        ben = Work(server, work.store, work.project, make_person(work.store))
        page = new_page(server, ben.person, context=page.context)
        ranking = RankingPage(page).open(ben.url)
        assert ranking.standings() == ["Not ranked"] * 3
        ranking.press("1 2 3 Enter")
        assert by_place(ben.stored(1)[0]) == [1, 2, 3]
        keys = page.evaluate("Object.keys(localStorage).filter((key) => key.startsWith('rankloop.'))")
        assert [key for key in keys if work.person.id in key and "draft" in key] == []
        # What the first person had submitted is not lost, and never becomes the second one's.
        (kept,) = [key for key in keys if work.person.id in key and not key.startswith("rankloop.page.")]
        assert kept.startswith("rankloop.outbox.")
        assert len(ben.rankings()) == 1
        ranking = RankingPage(new_page(server, work.person, context=page.context)).open(work.url)
        assert by_place(work.stored(1)[0]) == [3, 2, 1]


def test_a_closed_account_sends_nothing_more(work: Work, ranking: RankingPage) -> None:
    with work.store.begin() as tx:
        disable_person(tx, work.person.id)
    ranking.press("1 2 3 Enter")
    expect(ranking.page.get_by_text("You are signed out")).to_be_visible(timeout=PATIENCE_S * 1000)
    ranking.page.wait_for_url("**/signin?ended=1*", timeout=PATIENCE_S * 1000)
    assert work.rankings() == []
