"""An annotator's own answers on the page: seen again, taken back, changed, refused where a newer one is there."""

from __future__ import annotations

import json
from pathlib import Path

from browser_pages import PATIENCE_S, NewPage, RankingPage, Work, by_place, eventually
from factories import make_person, make_project, make_ranking, make_task
from playwright.sync_api import expect
from web_server import WebServer

from data.files.paths import Home
from data.labels.projects import set_guidelines
from data.labels.roles import OPERATOR
from data.records import RankingStatus
from labeling.snapshot.freeze import SnapshotConfig, freeze_snapshot
from labeling.work.session import submit


def test_the_last_submit_is_taken_back_and_changed(work: Work, ranking: RankingPage) -> None:
    ranking.press("z")
    expect(ranking.live).to_contain_text("Nothing was sent from this page yet")
    first, texts = ranking.prompt.inner_text(), ranking.texts()
    ranking.press("1 2 3 Enter")
    second = ranking.prompt.inner_text()
    ranking.press("2 z")
    assert (ranking.prompt.inner_text(), ranking.texts()) == (first, texts)
    assert ranking.standings() == ["Rank 1", "Rank 2", "Rank 3"]
    expect(ranking.banner).to_contain_text("You change your answer of")
    ranking.press("3 k k 1 Enter")
    assert ranking.prompt.inner_text() == second
    assert ranking.standings()[0] == "Rank 2", "what was half done is still there"
    (found,) = eventually(work.rankings, is_good=lambda all_: [each.version for each in all_] == [2])
    assert by_place(found) == [2, 1, 2]
    ranking.press("z Enter")
    expect(ranking.live).to_contain_text("New task")
    ranking.press("z Escape")
    expect(ranking.banner).to_be_hidden()
    ranking.expect_saved()
    assert [each.version for each in work.rankings()] == [2], "what was not changed is not sent"


def test_a_skip_becomes_a_ranking_and_a_ranking_a_skip(work: Work, ranking: RankingPage) -> None:
    ranking.press("s 1 Enter 1 2 3 Enter")
    work.stored(2)
    ranking.open_history(2)
    expect(ranking.history.locator(".answer").nth(0)).to_contain_text("A > B > C")
    expect(ranking.history.locator(".answer").nth(1)).to_contain_text(f"Skipped: {work.project.skip_reasons[0]}")
    ranking.press("j Enter")
    expect(ranking.banner).to_contain_text("You answered: Skipped")
    ranking.press("2 1 1 Enter")
    expect(ranking.progress).to_have_text("2 ranked")
    ranking.open_history(2)
    ranking.press("ArrowDown Enter")
    expect(ranking.banner).to_be_visible()
    ranking.press("s 2 Enter")
    expect(ranking.progress).to_have_text("1 ranked")
    found = eventually(work.rankings, is_good=lambda all_: [each.version for each in all_] == [2, 2])
    assert [each.status for each in found] == [RankingStatus.RANKED, RankingStatus.SKIPPED]
    assert by_place(found[0]) == [3, 1, 1]


def test_a_change_to_an_older_version_is_refused_and_the_newer_one_shown(work: Work, ranking: RankingPage) -> None:
    ranking.press("1 2 3 Enter")
    (first,) = work.stored(1)
    ranking.open_history(1)
    ranking.press("Enter")
    expect(ranking.banner).to_be_visible()
    elsewhere = {"submission_key": "from-elsewhere", "task_id": first.task_id, "edit_of": first.id}
    elsewhere |= {"display_order": list(first.display_order), "ranks": [2, 2, 1]}
    submit(work.store, work.person, elsewhere)
    ranking.press("3 Enter")
    expect(ranking.notice).to_contain_text("changed this answer elsewhere", timeout=PATIENCE_S * 1000)
    expect(ranking.banner).to_be_visible(timeout=PATIENCE_S * 1000)
    assert ranking.standings() == ["Rank 2, tied with B", "Rank 2, tied with A", "Rank 1"]
    ranking.press("k k 3 Enter")
    (found,) = eventually(work.rankings, is_good=lambda all_: [each.version for each in all_] == [3])
    assert by_place(found) == [2, 3, 1]


def test_a_change_outlives_a_server_that_is_away(work: Work, new_page: NewPage) -> None:
    with WebServer(work.server.home) as server:
        work.server = server
        page = new_page(server, work.person)
        ranking = RankingPage(page).open(work.url)
        server.kill()
        ranking.press("1 2 3 Enter z 3 Enter")  # neither has reached the server
        page.close()
        server.start()
        again = RankingPage(new_page(server, context=page.context)).open(work.url)
        (found,) = eventually(work.rankings, is_good=lambda all_: [each.version for each in all_] == [2])
        assert by_place(found) == [2, 1, 2]
        again.expect_saved()


def test_pages_of_the_history(work: Work, new_page: NewPage) -> None:
    work.project = make_project(work.store)
    for number in range(23):
        make_ranking(work.store, make_task(work.store, work.project, prompt=f"number {number}"), work.person, [1, 2, 3])
    make_task(work.store, work.project)
    ranking = RankingPage(new_page(work.server, work.person)).open(work.url)
    ranking.open_history(20)
    lines = ranking.history.locator(".answer .words")
    expect(lines.first).to_have_text("number 22")
    ranking.press("ArrowRight")
    expect(lines).to_have_text(["number 2", "number 1", "number 0"])
    expect(ranking.history.get_by_role("button", name="Older")).to_be_disabled()
    ranking.history.get_by_role("button", name="Newer").click()
    expect(lines.first).to_have_text("number 22")
    ranking.press("h")
    expect(ranking.history).to_be_hidden()
    ranking.press("1 2 3 Enter")
    work.stored(24)


def test_an_answer_in_a_snapshot_says_so_and_the_snapshot_stays(work: Work, ranking: RankingPage, home: Home) -> None:
    ranking.press("1 2 3 Enter")
    (first,) = work.stored(1)
    frozen = freeze_snapshot(work.store, OPERATOR, home, work.project.id, SnapshotConfig(eval_share=0.5))
    ranking.open_history(1)
    expect(ranking.history).to_contain_text("in a snapshot")
    ranking.press("Enter")
    expect(ranking.banner).to_contain_text("A snapshot holds it as it is")
    ranking.press("3 Enter")
    eventually(work.rankings, is_good=lambda all_: [each.version for each in all_] == [2])
    again = freeze_snapshot(work.store, OPERATOR, home, work.project.id, SnapshotConfig(eval_share=0.5))
    assert frozen.content_hash != again.content_hash
    assert first.version == 1


def test_everything_that_was_said_is_there_again(work: Work, new_page: NewPage) -> None:
    work.ask(
        allow_partial=True, ask_acceptable=True, ask_flags=True, ask_quality=True, ask_strength=True,
        ask_rationale=True,
    )  # fmt: skip
    ranking = RankingPage(new_page(work.server, work.person)).open(work.url)
    ranking.press("1 w k a q 3 g 1 Escape p 2 n")
    ranking.page.keyboard.type("because")
    ranking.press("Control+Enter")
    (first,) = work.stored(1)
    ranking.open_history(1)
    expect(ranking.history.locator(".given")).to_have_text("A > the rest (B, C)")
    ranking.press("Enter")
    expect(ranking.banner).to_be_visible()
    assert ranking.order() == "A > the rest"
    name = f"Response A. Rank 1. Acceptable. Quality 3. Flags: {work.project.flags[0]}."
    expect(ranking.cards.first).to_have_attribute("aria-label", name)
    expect(ranking.page.get_by_role("textbox", name="Why this order?")).to_have_value("because")
    expect(ranking.page.get_by_role("radio", name="2 slightly")).to_be_checked()
    ranking.press("Enter")
    expect(ranking.banner).to_be_hidden()
    ranking.expect_saved()
    assert work.rankings() == [first]


def test_unsent_answers_are_saved_to_a_file_and_taken_in_again(work: Work, new_page: NewPage, tmp_path: Path) -> None:
    with WebServer(work.server.home) as server:
        work.server = server
        page = new_page(server, work.person)
        page.clock.install()
        page.goto(work.url)
        ranking = RankingPage(page)
        ranking.ready()
        server.kill()
        ranking.press("2 1 3 Enter")
        page.clock.run_for(21_000)  # later Streamlit lays a dialog of its own over the page
        with page.expect_download() as download:
            page.get_by_role("button", name="Save to a file").dispatch_event("click")
        file = tmp_path / "unsent.json"
        download.value.save_as(file)
        assert [item["ranks"] for item in json.loads(file.read_text())["items"]] == [[2, 1, 3]]
        page.evaluate("localStorage.clear()")
        page.close()
        server.start()
        other = RankingPage(new_page(server, make_person(work.store)))
        other.page.goto(work.url)
        other.ready()
        other.press("h")
        other.page.locator(".ranker input[type=file]").set_input_files(file)
        expect(other.notice).to_contain_text("somebody else's")
        again = RankingPage(new_page(server, work.person)).open(work.url)
        again.press("h")
        again.page.locator(".ranker input[type=file]").set_input_files(file)
        expect(again.notice).to_contain_text("taken in from the file")
        assert by_place(work.stored(1)[0]) == [2, 1, 3]


def test_guidelines_stand_beside_the_work_and_go_with_the_answer(work: Work, ranking: RankingPage) -> None:
    panel = ranking.page.get_by_role("complementary", name="Guidelines")
    expect(panel).to_be_visible()
    ranking.press("i")
    expect(panel).to_be_hidden()
    ranking.press("i")
    expect(panel).to_contain_text("Rank the responses from best to worst")
    expect(panel).to_contain_text("version 1")
    ranking.press("1 2 3 Enter")
    work.stored(1)
    with work.store.begin() as tx:
        set_guidelines(tx, work.project.id, "Be strict from now on.")
    ranking.page.reload()
    ranking.ready()
    expect(ranking.notice).to_contain_text("The guidelines have changed since your last visit: version 2")
    expect(panel).to_contain_text("Be strict from now on.")
    ranking.page.get_by_role("button", name="Dismiss").click()
    ranking.press("1 2 3 Enter i")
    expect(panel).to_be_hidden()
    assert [each.guidelines_version for each in work.stored(2)] == [1, 2]
    ranking.page.reload()
    ranking.ready()
    expect(ranking.notice).to_have_count(0)
    expect(panel).to_be_hidden()


def test_own_pace_is_shown(work: Work, ranking: RankingPage) -> None:
    ranking.press("1 2 3 Enter")
    expect(ranking.page.locator(".ranker .pace")).to_have_text("1 today, about 1 s each", timeout=PATIENCE_S * 1000)
