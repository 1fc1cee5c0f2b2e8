"""The checks on annotators as they meet them: gold and repeats among their work, a pause, the time that counts."""

from __future__ import annotations

import sqlalchemy as sa
from browser_pages import PATIENCE_S, NewPage, RankingPage, Work, eventually
from factories import make_person, make_ranking, make_task
from playwright.sync_api import expect

from data.labels.gold import set_gold
from data.labels.pauses import pause_annotator
from data.records import Purpose, Role
from data.store.tables import ranking as rankings
from labeling.work.alarms import pauses
from labeling.work.checks import annotator_table


def prepare(work: Work) -> None:
    """Gold, tasks that the annotator has ranked before, and enough to go on with; "a" is the best everywhere."""
    work.ask(gold_share=0.3, repeat_share=0.2, gold_min_items=2, gold_threshold=0.9, on_low_gold="pause")
    for _ in range(22):
        make_ranking(work.store, make_task(work.store, work.project), work.person, [1, 2, 3])
    for _ in range(30):
        gold = make_task(work.store, work.project, slots=0)
        with work.store.begin() as tx:
            set_gold(tx, gold.id, [1, 2, 3])
    for _ in range(60):
        make_task(work.store, work.project)


def n_answers(work: Work, purpose: Purpose) -> int:
    with work.store.read() as tx:
        of_person = (rankings.c.annotator_id == work.person.id, rankings.c.purpose == purpose.value)
        return int(tx.scalar(sa.select(sa.func.count()).where(*of_person)))


def rank(ranking: RankingPage, *, best: str) -> None:
    """Rank the three responses by their letter, from a to c or the other way round, and send it."""
    letters = [text.removeprefix("response ")[0] for text in ranking.texts()]
    order = "abc" if best == "a" else "cba"
    ranking.press(" ".join(str(order.index(letter) + 1) for letter in letters) + " Enter")
    ranking.expect_saved()


def test_gold_and_repeats_then_a_pause_that_a_researcher_lifts(work: Work, new_page: NewPage) -> None:
    prepare(work)
    researcher = make_person(work.store, Role.RESEARCHER, "Rita Moreno")
    page = new_page(work.server, work.person)
    ranking = RankingPage(page).open(work.url)
    for _ in range(50):
        rank(ranking, best="a")
        assert "gold" not in page.locator(".ranker").inner_text().lower()
        if n_answers(work, Purpose.REPEAT) and n_answers(work, Purpose.GOLD) >= 2:
            break
    assert n_answers(work, Purpose.REPEAT)
    [row] = annotator_table(work.store, work.project.id)
    assert (row.gold.value, row.consistency.value, row.is_paused) == (1.0, 1.0, False)
    shown = int(ranking.progress.inner_text().split()[0])
    assert shown == len(work.rankings()), "every answer counts on the annotator's own page"
    for _ in range(50):
        if pauses(work.store, work.project.id):
            break
        rank(ranking, best="c")
    expect(ranking.idle).to_contain_text("Your work in this project is paused.", timeout=PATIENCE_S * 1000)
    expect(ranking.idle).to_contain_text("Ask Rita Moreno to look at this with you")
    page.reload()
    expect(ranking.idle).to_contain_text("differ from what this project expects", timeout=PATIENCE_S * 1000)

    desk = new_page(work.server, researcher)
    desk.goto(f"{work.server.url}/projects?project={work.project.id}")
    desk.get_by_role("button", name="1 annotator paused").click(timeout=PATIENCE_S * 1000)
    dialog = desk.get_by_role("dialog")
    expect(dialog).to_contain_text("Pair agreement with gold")
    dialog.get_by_label("Note for the record").fill("we talked about it")
    dialog.get_by_role("button", name="Let them go on").click()
    [lifted] = eventually(
        lambda: pauses(work.store, work.project.id), is_good=lambda found: found[0].lifted_at is not None
    )
    assert (lifted.lifted_by, lifted.note, lifted.reason) == (researcher.id, "we talked about it", "gold")
    page.reload()
    ranking.ready()
    before = len(work.rankings())
    rank(ranking, best="a")
    work.stored(before + 1)


def test_a_ranking_that_was_begun_when_the_pause_came_is_finished(work: Work, ranking: RankingPage) -> None:
    first = ranking.prompt.inner_text()
    with work.store.begin() as tx:
        pause_annotator(tx, work.project.id, work.person.id, "haste", {"value": 0.5, "threshold": 0.2, "n": 20})
    ranking.press("1 2")
    eventually(work.drafts)  # the page has heard of the pause with it
    ranking.page.wait_for_timeout(500)
    assert ranking.prompt.inner_text() == first
    ranking.press("3 Enter")
    work.stored(1)
    expect(ranking.idle).to_contain_text("faster than their texts can be read", timeout=PATIENCE_S * 1000)


def test_the_clock_stops_while_nobody_does_anything(work: Work, new_page: NewPage) -> None:
    page = new_page(work.server, work.person)
    page.clock.install()
    page.goto(work.url)
    ranking = RankingPage(page).ready()
    ranking.press("1")
    page.clock.run_for(40_000)
    ranking.press("2")
    page.clock.run_for(15 * 60_000)  # somebody came to the door
    ranking.press("3")
    page.clock.run_for(5_000)
    ranking.press("Enter")
    (found,) = work.stored(1)
    assert found.duration_ms is not None
    assert 105_000 <= found.duration_ms < 115_000  # 40 s, a minute of the break, and 5 s


def test_a_draft_goes_on_in_another_browser_from_its_time(work: Work, new_page: NewPage) -> None:
    page = new_page(work.server, work.person)
    page.clock.install()
    page.goto(work.url)
    ranking = RankingPage(page).ready()
    page.clock.run_for(30_000)
    ranking.press("1 2")
    page.clock.run_for(1_000)
    eventually(work.drafts, is_good=lambda drafts: drafts and drafts[0]["ranks"] == [1, 2, None])
    page.close()
    other = RankingPage(new_page(work.server, work.person)).open(work.url)
    assert other.standings()[:2] == ["Rank 1", "Rank 2"]
    other.press("3 Enter")
    (found,) = work.stored(1)
    assert found.duration_ms is not None
    assert 30_000 <= found.duration_ms < 60_000
