"""The one list of keys: nothing in it collides, the help tells it, people change it, keys rest where they should."""

from __future__ import annotations

from browser_pages import NewPage, RankingPage, Work, by_place
from factories import make_person, make_project, make_task
from playwright.sync_api import Locator, expect

from data.records import RankingStatus


def test_the_help_tells_what_holds_on_this_page(work: Work, ranking: RankingPage, new_page: NewPage) -> None:
    help_ = ranking.page.get_by_role("dialog", name="Keys")
    ranking.press("?")
    for words in ("rank the marked response", "take back the last submit", "skip this task", "your answers"):
        expect(help_).to_contain_text(words)
    for words in ("quality", "flags", "eleven", "acceptable: yes"):
        expect(help_).not_to_contain_text(words)
    project = make_project(work.store, k=12)
    make_task(work.store, project, *[f"text {n}" for n in range(12)])
    work.project = project
    work.ask(ask_acceptable=True, ask_flags=True, ask_quality=True, ask_strength=True, ask_rationale=True)
    ranking.open(work.url)
    ranking.press("?")
    for words in ("eleven", "acceptable: yes", "quality of the marked response", "put a flag on", "write why"):
        expect(help_).to_contain_text(words)
    ranking.press("?")
    expect(help_).to_be_hidden()


def test_keys_rest_in_dialogs_and_with_modifiers(ranking: RankingPage) -> None:
    ranking.press("h 1 2 Escape Control+1 Alt+2 Meta+3")
    expect(ranking.history).to_be_hidden()
    assert ranking.standings() == ["Not ranked"] * 3
    ranking.press("0")
    expect(ranking.live).to_contain_text("Response A has no rank")
    ranking.press("1 k 0")
    assert ranking.standings() == ["Not ranked"] * 3
    ranking.press("u")
    assert ranking.standings()[0] == "Rank 1"


def test_letters_of_cards_and_digits_of_ranks_stay(work: Work, new_page: NewPage) -> None:
    """K varies from prompt to prompt; a card keeps its letter and its place whatever is ranked."""
    project = make_project(work.store, k=12)
    for k in (2, 5, 12):
        make_task(work.store, project, *[f"text {n}" for n in range(k)])
    work.project = project
    ranking = RankingPage(new_page(work.server, work.person)).open(work.url)
    for k in (2, 5, 12):
        expect(ranking.cards).to_have_count(k)
        texts = ranking.texts()
        ranking.press(f"{k if k < 10 else 'l'} 1")
        assert ranking.texts() == texts
        assert ranking.standings()[:2] == [f"Rank {k}", "Rank 1"]
        assert ranking.page.locator(".ranker .letter").all_inner_texts() == list("ABCDEFGHIJKL"[:k])
        ranking.press("3 " * 3 if k == 5 else "3 " * 10 if k == 12 else "")
        ranking.press("Enter")
    assert [len(each.ranks or ()) for each in work.stored(3)] == [2, 5, 12]


def give(ranking: RankingPage, words: str, key: str) -> None:
    """In the list of keys, choose the line with these words and press its new key."""
    ranking.page.get_by_role("button", name=f"change the key to {words}").click()
    ranking.press(key)


def open_keys(ranking: RankingPage) -> Locator:
    """Open the list of keys to change some."""
    ranking.press("?")
    ranking.page.get_by_role("button", name="Change keys").click()
    return ranking.page.get_by_role("dialog", name="Keys")


def hint(ranking: RankingPage, name: str) -> str:
    return ranking.page.get_by_role("button", name=name).locator("kbd").first.inner_text()


def test_a_person_s_own_keys_hold_are_shown_and_stay(work: Work, ranking: RankingPage, new_page: NewPage) -> None:
    work.ask(ask_rationale=True, allow_partial=True)
    ranking.open(work.url)
    help_ = open_keys(ranking)
    give(ranking, "submit when every response", "y")
    expect(help_.get_by_role("status")).to_have_text("Now y: submit when every response has its place.")
    expect(help_).to_contain_text("(usually Enter)")
    give(ranking, "mark the next response", "Enter")  # it is free now
    give(ranking, "skip this task", "b")
    give(ranking, "write why", "o")
    give(ranking, "show or close your answers", "-")
    ranking.press("? Enter Enter Enter 1 2 3")
    assert ranking.standings() == ["Rank 1", "Rank 2", "Rank 3"]
    assert (hint(ranking, "Submit"), hint(ranking, "Skip"), hint(ranking, "Answers")) == ("y", "b", "-")
    expect(ranking.page.get_by_placeholder("Why this order? (o)")).to_be_visible()
    ranking.press("h j s")  # their usual keys do nothing now
    expect(ranking.history).to_be_hidden()
    assert ranking.standings() == ["Rank 1", "Rank 2", "Rank 3"]
    ranking.press("y")
    assert by_place(work.stored(1)[0]) == [1, 2, 3]
    ranking.open(work.url)
    assert hint(ranking, "Submit") == "y"
    ranking.press("b 1 Enter")
    assert [each.status for each in work.stored(2)] == [RankingStatus.RANKED, RankingStatus.SKIPPED]
    ranking.press("- Escape z")
    expect(ranking.live).to_contain_text("y sends the change")

    tab = RankingPage(new_page(work.server, context=ranking.page.context)).open(work.url)
    assert hint(tab, "Skip") == "b"
    open_keys(ranking)
    ranking.page.get_by_role("button", name="Reset keys").click()
    expect(help_.get_by_role("status")).to_have_text("The usual keys hold again.")
    expect(help_).not_to_contain_text("usually")
    assert hint(ranking, "Skip") == "s"
    expect(tab.page.get_by_role("button", name="Skip").locator("kbd")).to_have_text("s")  # the other tab follows

    give(ranking, "skip this task", "b")
    other = make_person(work.store)
    work.person = other
    somebody = RankingPage(new_page(work.server, other, context=ranking.page.context)).open(work.url)
    assert hint(somebody, "Skip") == "s"


def test_a_key_that_is_taken_is_refused_with_what_it_does(ranking: RankingPage) -> None:
    help_ = open_keys(ranking)
    skip, list_ = "skip this task", "show or close this list"
    for words, key, reason in (
        (skip, "j", "j is taken: mark the next response."),
        (skip, "3", "3 is taken: rank the marked response and go on to the next open one."),
        (skip, "t", "t is taken: ranks ten, eleven and twelve."),  # also where there are none
        (skip, "?", "? is taken: show or close this list."),
        (skip, "ArrowLeft", "← is taken: mark the one before."),
        (list_, "z", "z is taken: take back the last submit, to change it."),
        (list_, "k", "k is taken: mark the one before."),
        (skip, "r", "r belongs to the page around this one."),
        (skip, "F2", "That key can't be used: take a letter or a sign."),
        (skip, "Space", "That key can't be used: take a letter or a sign."),
    ):
        give(ranking, words, key)
        expect(help_.get_by_role("status")).to_have_text(f"{reason} Press another key, or Esc to leave it as it is.")
        ranking.press("Escape")
        expect(help_.get_by_role("status")).to_contain_text("Choose a line")
    expect(help_).not_to_contain_text("usually")
    ranking.press("Escape")
    expect(help_).to_be_hidden()
    assert (hint(ranking, "Skip"), hint(ranking, "Keys")) == ("s", "?")


def test_a_usual_key_brings_all_of_them_back_and_what_opens_also_closes(work: Work, ranking: RankingPage) -> None:
    work.ask(ask_quality=True, ask_flags=True)
    ranking.open(work.url)
    help_ = open_keys(ranking)
    give(ranking, "mark the next response", "o")
    expect(help_.get_by_role("button", name="o: change the key to mark the next")).to_be_visible()
    give(ranking, "mark the next response", "ArrowDown")
    expect(help_.get_by_role("button", name="↓ → j: change the key to mark the next")).to_be_visible()
    give(ranking, "flags of the marked", "b")  # b is a flag's key where there are many: it can't close them too
    give(ranking, "quality of the marked", "y")
    give(ranking, "no response is acceptable", "o")
    ranking.press("?")
    flags = ranking.page.get_by_role("group", name="Flags of response A")
    ranking.press("b")
    expect(flags).to_be_visible()
    assert hint(ranking, "Flags") == "b"
    ranking.press("1 b")
    expect(flags).to_be_visible()
    ranking.press("Escape y y y 6")
    expect(ranking.live).to_contain_text("quality 6 of 7")
    ranking.press("o o")
    assert work.stored(1)[0].status is RankingStatus.UNACCEPTABLE
    assert hint(ranking, "Flags") == "b"  # of the next task


def test_kept_keys_that_no_longer_fit_are_given_up_and_told(work: Work, ranking: RankingPage) -> None:
    for kept in ('{"skip": "j"}', '{"skip": 7}', '{"gone": "b"}', '{"skip": "b", "undo": "b"}'):
        ranking.page.evaluate(
            "([who, kept]) => localStorage.setItem(`rankloop.page.${who}`, `{\"keys\": ${kept}}`)",
            [work.person.id, kept],
        )  # fmt: skip
        ranking.open(work.url)
        expect(ranking.notice).to_contain_text("Your own keys do not fit this page any more")
        assert hint(ranking, "Skip") == "s"
        ranking.open(work.url)
        expect(ranking.notice).to_have_count(0)


def test_while_a_key_is_asked_for_nothing_else_happens(ranking: RankingPage) -> None:
    help_ = open_keys(ranking)
    ranking.page.get_by_role("button", name="change the key to skip this task").click()
    ranking.press("Shift Control+b Tab")
    expect(help_.get_by_role("status")).to_contain_text("Choose a line")
    give(ranking, "skip this task", "Enter")  # also where it would press the button
    expect(help_.get_by_role("status")).to_contain_text("Enter is taken: submit when every response has its place.")
    ranking.press("b")
    expect(help_.get_by_role("button", name="b: change the key to skip this task")).to_be_focused()
    ranking.page.get_by_role("button", name="Done").click()
    expect(help_.get_by_role("button", name="change the key to")).to_have_count(0)
    expect(help_).to_contain_text("Nothing is sent before you submit")
    ranking.page.get_by_role("dialog", name="Keys").get_by_role("button", name="Close").click()
    assert ranking.standings() == ["Not ranked"] * 3
