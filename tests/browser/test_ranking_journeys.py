"""Whole days in short: thirty real prompts by keyboard, by mouse, with a reload in the middle; the last slot."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from browser_pages import NewPage, RankingPage, Work, by_place, eventually
from factories import make_person, make_project, real_data
from playwright.sync_api import expect

from data.labels.prompts import prompt_id_of
from data.labels.tasks import add_task, get_task
from data.records import NewPrompt, NewResponse, Ranking

N_PROMPTS = 30
# Rankings of three responses that keys and mouse make in turn, ties among them.
PATTERNS = ([1, 2, 3], [3, 2, 1], [2, 1, 2], [1, 1, 2], [2, 3, 1])


@pytest.fixture
def real_work(work: Work) -> Work:
    """Thirty prompts of PandaLM's test set with both their responses, and a third of the next prompt."""
    rows: list[dict[str, Any]] = json.loads(real_data("pandalm", "testset-v1.json").read_text(encoding="utf-8"))
    work.project = make_project(work.store, k=3)
    asked = 0
    with work.store.begin() as tx:
        for row, other in itertools.pairwise(rows):
            found = (row["response1"].strip(), row["response2"].strip(), other["response1"].strip())
            texts = list(dict.fromkeys(found))
            if len(texts) < 3 or "" in texts:
                continue
            prompt = NewPrompt(({"role": "user", "content": f"{row['instruction']}\n\n{row['input']}".strip()},))
            prompt_id = prompt_id_of(tx, work.project.id, prompt)
            asked += add_task(tx, work.project.id, prompt_id, [NewResponse(text) for text in texts], slots=1).is_new
            if asked == N_PROMPTS:
                break
    return work


def test_thirty_real_prompts_by_keyboard_alone(real_work: Work, new_page: NewPage) -> None:
    ranking = _raw(RankingPage(new_page(real_work.server, real_work.person)).open(real_work.url))
    shown = []
    for number in range(N_PROMPTS):
        shown.append(_seen(ranking, number))
        ranking.press(" ".join(str(rank) for rank in _pattern(number)) + " Enter")
    expect(ranking.idle).to_contain_text("Nothing left for you now")
    _expect_stored(real_work, shown)


def test_thirty_real_prompts_by_mouse_alone(real_work: Work, new_page: NewPage) -> None:
    ranking = _raw(RankingPage(new_page(real_work.server, real_work.person)).open(real_work.url))
    shown = []
    for number in range(N_PROMPTS):
        shown.append(_seen(ranking, number))
        for place, rank in enumerate(_pattern(number)):
            ranking.cards.nth(place).locator(f"button.rank[data-value='{rank}']").click()
        ranking.submit.click()
    expect(ranking.idle).to_contain_text("Nothing left for you now")
    _expect_stored(real_work, shown)


def test_a_reload_in_the_middle_of_the_day(real_work: Work, new_page: NewPage) -> None:
    ranking = _raw(RankingPage(new_page(real_work.server, real_work.person)).open(real_work.url))
    shown = []
    for number in range(9):
        shown.append(_seen(ranking, number))
        keys = [str(rank) for rank in _pattern(number)]
        if number % 3 == 1:
            ranking.press(" ".join(keys[:2]))
            ranking.page.reload()
            _raw(ranking.ready())
            assert _seen(ranking, number) == shown[-1]
            assert ranking.standings()[2] == "Not ranked"
            ranking.press(f"{keys[2]} Enter")
        else:
            ranking.press(" ".join(keys) + " Enter")
    _expect_stored(real_work, shown)


def test_two_people_on_the_last_slot(work: Work, new_page: NewPage) -> None:
    """Both have the page open; one slot is left: one gets it, the other is told, and goes on when it comes free."""
    ben = Work(work.server, work.store, work.project, make_person(work.store))
    ann_page = RankingPage(new_page(work.server, work.person)).open(work.url)  # the four tasks sent ahead are Ann's
    ben_page = RankingPage(new_page(work.server, ben.person)).open(ben.url)
    ben_page.press("1 2 3 Enter")
    expect(ben_page.idle).to_contain_text("4 tasks are with others; the first may come free at", timeout=20_000)
    for _ in range(3):
        ann_page.ready()
        ann_page.press("1 2 3 Enter")
    ann_page.press("s 1 Enter")
    expect(ann_page.idle).to_contain_text("Nothing left for you now")
    ann_page.expect_saved()
    ben_page.page.reload()  # what the look every twenty seconds does
    ben_page.ready()
    ben_page.press("3 2 1 Enter")
    expect(ben_page.idle).to_contain_text("Nothing left for you now")
    assert [by_place(each) for each in ben.stored(2)] == [[1, 2, 3], [3, 2, 1]]
    assert len(work.stored(4)) == 4


def _pattern(number: int) -> list[int]:
    return PATTERNS[number % len(PATTERNS)]


def _raw(ranking: RankingPage) -> RankingPage:
    """With every text as it was written, to be compared with what is stored."""
    ranking.press("m")
    return ranking


def _seen(ranking: RankingPage, number: int) -> tuple[str, list[str]]:
    """The prompt and the responses of the next task, once it is there."""
    expect(ranking.progress).to_have_text(f"{number} ranked")
    ranking.ready()
    texts = ranking.page.locator(".ranker .card .text").evaluate_all("all => all.map((each) => each.textContent)")
    return ranking.prompt.first.text_content() or "", texts


def _expect_stored(work: Work, shown: list[tuple[str, list[str]]]) -> None:
    """Every answer belongs to what was on the page when it was made."""
    stored: list[Ranking] = eventually(work.rankings, is_good=lambda found: len(found) == len(shown), patience_s=30.0)
    for number, (each, (prompt, texts)) in enumerate(zip(stored, shown, strict=True)):
        with work.store.read() as tx:
            task = get_task(tx, each.task_id)
        assert task.messages[-1]["content"] == prompt
        assert [task.responses[position].text for position in each.display_order] == texts
        pattern = _pattern(number)
        assert by_place(each) == [1 + sum(other < rank for other in pattern) for rank in pattern]
