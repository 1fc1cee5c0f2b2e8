"""Ranking in a real browser by keyboard and by mouse: what counts as a gesture, and what is stored of it."""

from __future__ import annotations

from browser_pages import PATIENCE_S, NewPage, RankingPage, Work, by_place, bytes_of
from factories import make_project, make_task
from playwright.sync_api import expect

from data.labels.prompts import prompt_id_of
from data.labels.tasks import add_task, get_task
from data.records import NewPrompt, NewResponse, RankingStatus

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
    ranking.press("l e t 9 8 7 6 5 4 3 2 1")
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


def test_facts_stand_beside_the_prompt(work: Work, ranking: RankingPage) -> None:
    project = make_project(work.store)
    with work.store.begin() as tx:
        new = NewPrompt(({"role": "user", "content": "Who wrote it?"},), facts="Written by Ada in 1843")
        prompt_id = prompt_id_of(tx, project.id, new)
        add_task(tx, project.id, prompt_id, [NewResponse("Ada"), NewResponse("Bob")], slots=1)
    ranking.open(f"{work.server.url}/rank?project={project.id}")
    facts = ranking.page.locator(".ranker .prompt .facts")
    expect(facts).to_contain_text("Reference facts, not shown to the model")
    expect(facts).to_contain_text("Written by Ada in 1843")
