"""The one list of keys: nothing in it collides, the help tells all of it, and keys rest where they should."""

from __future__ import annotations

from typing import Any

import pytest
from browser_pages import NewPage, RankingPage, Work
from factories import make_project, make_task
from playwright.sync_api import expect


def test_no_two_keys_collide_and_none_is_streamlits(ranking: RankingPage) -> None:
    assert ranking.module("ranker_keys", "return it.collisions();") == []
    lines = """
        const more = [["j", "page", "jump"], ["c", "skip", "clear"], ["z", "anywhere", "zoom"]];
        const lines = more.map(([key, context, action]) => ({ keys: [key], context, action }));
        return it.collisions([...it.KEYS, ...lines]);"""
    assert sorted(ranking.module("ranker_keys", lines)) == [
        "idle: z is takeBack and zoom",
        "page: j is next and jump",
        "page: z is takeBack and zoom",
        "pair: j is next and jump",
        "skip: c is Streamlit and clear",
    ]


def test_every_key_has_an_action_and_words(ranking: RankingPage) -> None:
    lines: list[dict[str, Any]] = ranking.module("ranker_keys", "return it.KEYS;")
    actions = ranking.module(
        "ranker_desk", "return Object.keys(new it.Desk({ data: null, view: null, root: null }).does);"
    )
    assert {line["action"] for line in lines} == set(actions)
    assert all(line["label"] and line["keys"] for line in lines)


@pytest.mark.parametrize(
    ("event", "name"),
    [
        ({"key": "3", "code": "Digit3"}, "3"),
        ({"key": "\u00e9", "code": "Digit2"}, "2"),  # French: digits need Shift
        ({"key": "2", "code": "Digit2", "shiftKey": True}, "2"),
        ({"key": '"', "code": "Digit2", "shiftKey": True}, '"'),
        ({"key": "End", "code": "Numpad1"}, "End"),
        ({"key": "1", "code": "Numpad1"}, "1"),
        ({"key": "J", "code": "KeyJ", "shiftKey": True}, "j"),
        ({"key": "?", "code": "Minus", "shiftKey": True}, "?"),
        ({"key": "Enter", "code": "NumpadEnter"}, "Enter"),
    ],
)
def test_the_name_of_a_key(ranking: RankingPage, event: dict[str, Any], name: str) -> None:
    assert ranking.module("ranker_keys", "return it.keyName(given);", event) == name


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
