"""Ranking in a real browser: no ranking lost, none that nobody made, and texts that are only ever text."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import Any

import pytest
import sqlalchemy as sa
from browser_pages import PATIENCE_S, NewPage, RankingPage, eventually
from factories import make_person, make_project, make_task
from playwright.sync_api import expect
from web_server import WebServer

from data.people import disable_person
from data.prompts import prompt_id_of
from data.rankings import rankings_of
from data.records import NewPrompt, NewResponse, Person, Project, Ranking, RankingStatus
from data.schema import draft
from data.slots import held_assignments
from data.store import Store
from data.tasks import add_task, get_task
from labeling.ranks import competition_ranks
from labeling.session import keep_draft, next_work

RECONNECT_S = 60.0  # Streamlit's page tries again after ever longer waits
HOSTILE = [
    '<script>document.title="owned"</script><img src=x onerror="document.title=\'owned\'">',
    "![a](https://evil.example/leak.png) [click](javascript:alert(1)) <https://evil.example>",
    "It costs $5 or maybe $10. :red[x] :material/delete: :smile: `code` **bold** # not a heading",
    "\u202eevil txt.exe\u202c then left to right again \u200b\u2066zero\u2069",
    "A" * 3000,
    "  leading spaces\n\n\n\ttabs and\nlines  ",
    "&lt;b&gt; </div></article></section> <style>*{display:none}</style>",
    "مرحبا بالعالم، هذا نص عربي.",
]


@dataclass
class Work:
    """A project of its own with tasks, and somebody to rank them."""

    server: WebServer
    store: Store
    project: Project
    person: Person

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


@pytest.fixture
def work(server: WebServer, store: Store) -> Work:
    project = make_project(store)
    for _ in range(5):
        make_task(store, project)
    return Work(server, store, project, make_person(store))


@pytest.fixture
def ranking(work: Work, new_page: NewPage) -> RankingPage:
    return RankingPage(new_page(work.server, work.person)).open(work.url)


# ---- the keyboard


def test_five_tasks_by_keyboard_alone(work: Work, ranking: RankingPage) -> None:
    shown = []
    for keys in ("1 2 3", "3 2 1", "2 1 3", "1 1 2", "1 3 2"):
        ranking.ready()
        shown.append((ranking.prompt.inner_text(), ranking.texts()))
        ranking.press(f"{keys} Enter")
    expect(ranking.idle).to_contain_text("Nothing left for you now")
    expect(ranking.progress).to_have_text("5 ranked")
    ranking.expect_saved()
    stored = work.stored(5)
    assert [by_place(each) for each in stored] == [[1, 2, 3], [3, 2, 1], [2, 1, 3], [1, 1, 3], [1, 3, 2]]
    for each, (prompt, texts) in zip(stored, shown, strict=True):
        with work.store.read() as tx:
            task = get_task(tx, each.task_id)
        assert task.messages[-1]["content"] == prompt
        assert [task.responses[position].text for position in each.display_order] == texts
        assert (each.status, each.is_late, each.is_extra) == (RankingStatus.RANKED, False, False)
        assert each.duration_ms is not None
        assert 0 <= each.duration_ms < 60_000
    assert work.drafts() == []


def test_fast_typing_loses_nothing(work: Work, ranking: RankingPage) -> None:
    for _ in range(15):
        make_task(work.store, work.project)
    ranking.page.reload()
    ranking.ready()
    for n in range(20):  # more than are sent ahead: now and then the next one is not there yet
        ranking.ready()
        ranking.press("2 1 3 Enter")
        expect(ranking.progress).to_have_text(f"{n + 1} ranked")
    expect(ranking.progress).to_have_text("20 ranked", timeout=PATIENCE_S * 1000)
    ranking.expect_saved()
    assert [by_place(each) for each in work.stored(20)] == [[2, 1, 3]] * 20


def test_nothing_is_ranked_at_the_start_and_nothing_is_sent_half_done(work: Work, ranking: RankingPage) -> None:
    assert ranking.standings() == ["Not ranked"] * 3
    assert ranking.order() == ""
    ranking.press("Enter")
    expect(ranking.hint).to_have_text("Not sent yet: A, B, C have no rank")
    ranking.press("1 2 Enter")
    expect(ranking.hint).to_have_text("Not sent yet: C has no rank")
    assert ranking.marked() == "C"
    ranking.submit.click()
    expect(ranking.hint).to_have_text("Not sent yet: C has no rank")
    assert work.rankings() == []
    ranking.press("3 Enter")
    work.stored(1)


def test_the_same_number_is_a_tie(work: Work, ranking: RankingPage) -> None:
    ranking.press("2 1 2")
    assert ranking.order() == "B > A = C"
    assert ranking.standings() == ["Rank 2, tied with C", "Rank 1", "Rank 2, tied with A"]
    ranking.press("Enter")
    assert by_place(work.stored(1)[0]) == [2, 1, 2]


def test_arrows_move_and_a_rank_can_be_changed(work: Work, ranking: RankingPage) -> None:
    assert ranking.marked() == "A"
    ranking.press("ArrowRight")
    assert ranking.marked() == "B"
    ranking.press("j j")
    assert ranking.marked() == "A"
    ranking.press("k")
    assert ranking.marked() == "C"
    ranking.press("1")
    assert (ranking.order(), ranking.marked()) == ("C", "A")
    ranking.press("2 3 ArrowUp ArrowUp 3")
    assert ranking.standings() == ["Rank 2", "Rank 3, tied with C", "Rank 3, tied with B"]
    ranking.press("Enter")
    assert by_place(work.stored(1)[0]) == [1, 2, 2]


def test_undo(work: Work, ranking: RankingPage) -> None:
    ranking.press("1 2 u")
    assert (ranking.order(), ranking.marked()) == ("A", "B")
    ranking.press("Backspace Backspace Backspace")
    assert (ranking.order(), ranking.marked()) == ("", "A")
    ranking.press("3")
    ranking.page.get_by_role("button", name="Undo").click()
    assert ranking.standings() == ["Not ranked"] * 3


def test_ranks_above_nine_have_letters(work: Work, new_page: NewPage) -> None:
    project = make_project(work.store, k=12)
    make_task(work.store, project, *[f"text {n}" for n in range(12)])
    work.project = project
    ranking = RankingPage(new_page(work.server, work.person)).open(work.url)
    ranking.press("c b a 9 8 7 6 5 4 3 2 1")
    assert ranking.order() == "L > K > J > I > H > G > F > E > D > C > B > A"
    ranking.press("Enter")
    assert by_place(work.stored(1)[0]) == list(range(12, 0, -1))


def test_which_key_events_count(ranking: RankingPage) -> None:
    for _ in range(6):  # held down: the keyboard repeats it
        ranking.page.keyboard.down("1")
    ranking.page.keyboard.up("1")
    assert ranking.standings() == ["Rank 1", "Not ranked", "Not ranked"]
    for event in ("isComposing: true", "ctrlKey: true", "metaKey: true", "altKey: true"):
        ranking.dispatch(f"{{key: '2', code: 'Digit2', {event}}}")
    assert ranking.standings() == ["Rank 1", "Not ranked", "Not ranked"]
    ranking.dispatch("{key: '\u00e9', code: 'Digit2'}")  # a French keyboard has its digits above Shift
    assert ranking.standings() == ["Rank 1", "Rank 2", "Not ranked"]


def test_streamlits_own_keys_are_quiet(work: Work, new_page: NewPage) -> None:
    page = new_page(work.server, work.person)
    sent: list[bytes] = []
    page.on("websocket", lambda socket: socket.on("framesent", lambda frame: sent.append(bytes_of(frame))))
    ranking = RankingPage(page).open(work.url)
    page.wait_for_timeout(500)
    before = len(sent)
    ranking.press("r c Shift+C r s")
    page.get_by_role("textbox", name="Another reason").click()
    page.keyboard.type("recur")
    page.wait_for_timeout(300)
    assert len(sent) == before, "r asks for a rerun, which is not wanted here"
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_help_opens_and_keys_rest_meanwhile(ranking: RankingPage) -> None:
    ranking.press("?")
    help_ = ranking.page.get_by_role("dialog", name="Keys")
    expect(help_).to_be_visible()
    ranking.press("1 s")
    assert ranking.standings()[0] == "Not ranked"
    ranking.press("Escape")
    expect(help_).to_be_hidden()
    ranking.press("1")
    assert ranking.standings()[0] == "Rank 1"


def test_keys_in_a_text_field_rank_nothing(work: Work, ranking: RankingPage) -> None:
    chooser = ranking.page.get_by_role("combobox", name="Project")
    chooser.click()
    ranking.page.keyboard.type("12u3")
    assert ranking.standings() == ["Not ranked"] * 3
    ranking.page.keyboard.press("Escape")


# ---- the mouse


def test_mouse_alone(work: Work, ranking: RankingPage) -> None:
    for letter, rank in (("C", "1"), ("A", "2"), ("B", "2")):
        group = ranking.page.get_by_role("radiogroup", name=f"Rank of response {letter}")
        group.get_by_role("radio", name=rank).click()
        expect(group.get_by_role("radio", name=rank)).to_be_checked()
    assert ranking.order() == "C > A = B"
    ranking.submit.click()
    assert by_place(work.stored(1)[0]) == [2, 2, 1]


def test_a_double_click_on_submit_stores_one(work: Work, ranking: RankingPage) -> None:
    ranking.press("1 2 3")
    ranking.submit.dblclick()
    ranking.press("Enter Enter")
    ranking.expect_saved()
    assert len(work.rankings()) == 1
    assert ranking.standings() == ["Not ranked"] * 3


# ---- skipping


def test_skip_with_a_reason_by_keyboard(work: Work, ranking: RankingPage) -> None:
    first = ranking.prompt.inner_text()
    ranking.press("1 s 2 Escape s 3 Enter")
    expect(ranking.prompt).not_to_have_text(first)
    (stored,) = work.stored(1)
    assert (stored.status, stored.ranks) == (RankingStatus.SKIPPED, None)
    assert stored.skip_reason == work.project.skip_reasons[2]
    expect(ranking.progress).to_have_text("0 ranked")


def test_skip_in_own_words(work: Work, ranking: RankingPage) -> None:
    ranking.page.get_by_role("button", name="Skip").click()
    ranking.page.get_by_role("button", name="Skip task").click()
    expect(ranking.page.get_by_text("Choose a reason, or write one").first).to_be_visible()
    ranking.page.get_by_role("textbox", name="Another reason").click()
    words = "cr12us? Zwei Antworten sind gleich \u2603"
    ranking.page.keyboard.type(words)
    ranking.page.keyboard.press("Enter")
    (stored,) = work.stored(1)
    assert stored.skip_reason == words


# ---- nothing is lost


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
        (kept,) = [key for key in keys if work.person.id in key]
        assert kept.startswith("rankloop.outbox.")
        assert len(ben.rankings()) == 1
        ranking = RankingPage(new_page(server, work.person, context=page.context)).open(work.url)
        assert by_place(work.stored(1)[0]) == [3, 2, 1]


def test_a_closed_account_sends_nothing_more(work: Work, ranking: RankingPage) -> None:
    with work.store.begin() as tx:
        disable_person(tx, work.person.id)
    ranking.press("1 2 3 Enter")
    expect(ranking.page.get_by_text("You are signed out")).to_be_visible(timeout=PATIENCE_S * 1000)
    assert work.rankings() == []


# ---- what is shown


def test_texts_are_only_text(work: Work, new_page: NewPage) -> None:
    project = make_project(work.store, k=8)
    make_task(work.store, project, *HOSTILE, prompt=f"{HOSTILE[0]}\n\n{HOSTILE[1]}")
    work.project = project
    page = new_page(work.server, work.person)
    ranking = RankingPage(page).open(work.url)
    shown = page.locator(".ranker .card .text").evaluate_all("all => all.map((each) => each.textContent)")
    assert sorted(shown) == sorted(HOSTILE), "each text stands there as it is, letter by letter"
    assert page.title() != "owned"
    assert page.locator(".ranker :is(.card, .prompt) :is(img, a, script, style, code, b, strong)").count() == 0
    widths = page.locator(".ranker").evaluate("each => [each.scrollWidth, each.clientWidth]")
    assert widths[0] <= widths[1], "a long word must not make the page wider"
    direction = page.locator(".ranker .card .text", has_text="مرحبا").evaluate(
        "each => getComputedStyle(each).direction"
    )
    assert direction == "rtl"
    ranking.press("1 2 3 4 5 6 7 8 Enter")
    work.stored(1)


def test_no_model_is_named_on_the_wire(work: Work, new_page: NewPage) -> None:
    page = new_page(work.server, work.person)
    frames: list[bytes] = []
    page.on("websocket", lambda socket: socket.on("framereceived", lambda frame: frames.append(bytes_of(frame))))
    ranking = RankingPage(page).open(work.url)
    ranking.press("1 2 3 Enter 1")
    work.stored(1)
    ranking.expect_saved()
    with work.store.read() as tx:
        held = held_assignments(tx, work.project.id, work.person.id)
    raw = b"".join(frames)
    assert held[0].task.responses[0].text.encode() in raw, "the frames were read"
    assert b"test/model" not in raw
    assert not any(response.id.encode() in raw for each in held for response in each.task.responses)


def bytes_of(frame: str | bytes) -> bytes:
    return frame.encode() if isinstance(frame, str) else frame


def test_drafts_do_not_send_the_texts_again(work: Work, new_page: NewPage) -> None:
    project = make_project(work.store)
    for _ in range(4):
        make_task(work.store, project, *[f"{letter} " * 2000 for letter in "abc"])
    work.project = project
    page = new_page(work.server, work.person)
    sizes: list[int] = []
    page.on("websocket", lambda socket: socket.on("framereceived", lambda frame: sizes.append(len(bytes_of(frame)))))
    ranking = RankingPage(page).open(work.url)
    ranking.press("1")
    eventually(work.drafts, is_good=lambda found: len(found) == 1)
    page.wait_for_timeout(500)
    before = len(sizes)
    ranking.press("2")
    eventually(work.drafts, is_good=lambda found: found[0]["ranks"][:2] == [1, 2])
    page.wait_for_timeout(500)
    assert 0 < sum(sizes[before:]) < 5_000, "the texts are 48 kB"


def test_a_conversation_shows_who_said_what(work: Work, new_page: NewPage) -> None:
    project = make_project(work.store)
    said = (("system", "Be brief."), ("user", "Hi"), ("assistant", "Hello!"), ("user", "And now?"))
    with work.store.begin() as tx:
        prompt = NewPrompt(tuple({"role": role, "content": content} for role, content in said))
        prompt_id = prompt_id_of(tx, project.id, prompt)
        add_task(tx, project.id, prompt_id, [NewResponse("a"), NewResponse("b")], slots=1)
    work.project = project
    ranking = RankingPage(new_page(work.server, work.person)).open(work.url)
    roles = ranking.page.locator(".ranker .prompt .role").all_inner_texts()
    assert list(zip(roles, ranking.prompt.all_inner_texts(), strict=True)) == [
        ("System", "Be brief."), ("User", "Hi"), ("Assistant", "Hello!"), ("User", "And now?"),
    ]  # fmt: skip


def test_the_prompt_and_the_buttons_stay_in_sight(work: Work, new_page: NewPage) -> None:
    project = make_project(work.store)
    make_task(work.store, project, *[f"{letter}\n" * 60 for letter in "abcd"], prompt="Is it in sight? " * 200)
    work.project = project
    ranking = RankingPage(new_page(work.server, work.person)).open(work.url)
    for keys in ("", "1", "2", "3", "4"):
        ranking.press(keys)
        expect(ranking.page.locator(".ranker .prompt")).to_be_in_viewport(ratio=0.9)
        expect(ranking.submit).to_be_in_viewport(ratio=1)
        expect(ranking.page.locator(".ranker .card.marked .head")).to_be_in_viewport(ratio=1)


def test_a_phone(work: Work, new_page: NewPage) -> None:
    page = new_page(
        work.server, work.person, viewport={"width": 390, "height": 844}, color_scheme="dark", has_touch=True
    )
    ranking = RankingPage(page).open(work.url)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for letter, rank in (("A", "2"), ("B", "1"), ("C", "3")):
        page.get_by_role("radiogroup", name=f"Rank of response {letter}").get_by_role("radio", name=rank).tap()
    ranking.submit.tap()
    assert by_place(work.stored(1)[0]) == [2, 1, 3]


def test_every_step_is_announced(ranking: RankingPage) -> None:
    live = ranking.page.locator(".ranker [aria-live=polite]")
    expect(live).to_contain_text("New task with 3 responses. Response A is marked.")
    ranking.press("1")
    expect(live).to_contain_text("Response A: rank 1.")
    ranking.press("1")
    expect(live).to_contain_text("Response B: rank 1, tied with A.")
    ranking.press("2")
    expect(live).to_contain_text("All ranked: A = B > C.")
    ranking.press("u")
    expect(live).to_contain_text("Undone. A = B.")
    card = ranking.cards.nth(1)
    expect(card).to_have_attribute("aria-label", "Response B. Rank 1, tied with A.")


def test_tasks_that_come_free_appear_by_themselves(work: Work, new_page: NewPage, store: Store) -> None:
    project = make_project(store)
    work.project = project
    page = new_page(work.server, work.person)
    page.clock.install()
    page.goto(work.url)
    ranking = RankingPage(page)
    expect(ranking.idle).to_contain_text("Nothing left for you now", timeout=PATIENCE_S * 1000)
    make_task(store, project)
    page.clock.fast_forward(30_000)
    ranking.ready()


def test_the_browser_counts_as_python_does(ranking: RankingPage) -> None:
    """Dense ranks, ties and order of every ranking of four responses, against the rules of the store."""
    module = "/_stcore/bidi-components/rankloop.ranker/ranker_judgement.js"
    every = [list(ranks) for ranks in itertools.product(range(1, 5), repeat=4)]
    found = ranking.page.evaluate(
        f"""async (every) => {{
            const {{ denseRanks, groups }} = await import("{module}");
            return every.map((ranks) => [denseRanks(ranks), groups(ranks)]);
        }}""",
        every,
    )
    for ranks, (dense, groups) in zip(every, found, strict=True):
        stored = competition_ranks(dense)
        assert all(
            (a < b) == (x < y) for a, x in zip(ranks, stored, strict=True) for b, y in zip(ranks, stored, strict=True)
        )
        assert groups == [[place for place in range(4) if stored[place] == rank] for rank in sorted(set(stored))]
