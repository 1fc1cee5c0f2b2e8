"""axe-core on the ranking page in every state, light and dark: no serious issue; and what is said aloud.

axe-core runs inside the page, so that it sees through the shadow root; it can't be loaded from elsewhere, the page's
policy forbids that. Streamlit's own parts of the page are not ours to mend, so only the surface is looked at.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import axe_playwright_python
import pytest
from browser_pages import PATIENCE_S, NewPage, RankingPage, Work
from factories import make_project, make_task
from playwright.sync_api import expect

from data.labels.prompts import prompt_id_of
from data.labels.tasks import add_task
from data.records import NewPrompt, NewResponse

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
SCHEMES = ["light", "dark"]
RUN = """async () => {
    const host = [...document.querySelectorAll("*")].find((each) => each.shadowRoot?.querySelector(".ranker"));
    host.id ||= "holds-the-ranker";
    const include = { fromShadowDom: [`#${host.id}`, ".ranker"] };
    return (await axe.run({ include })).violations;
}"""


def issues(ranking: RankingPage) -> list[str]:
    """What axe-core calls serious or critical, and where."""
    if not ranking.page.evaluate("typeof window.axe === 'object'"):
        ranking.page.evaluate(AXE)
    found: list[dict[str, Any]] = ranking.page.evaluate(RUN)
    return [
        f"{each['id']} ({each['impact']}): {node['html'][:160]} {node['failureSummary']}"
        for each in found
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_no_serious_issue_in_any_state(work: Work, new_page: NewPage, scheme: str) -> None:
    ranking = RankingPage(new_page(work.server, work.person, color_scheme=scheme)).open(work.url)
    found: dict[str, list[str]] = {"fresh": issues(ranking)}
    for state, keys in (
        ("half", "1"), ("refused", "Enter"), ("ranked", "1 2"), ("skip", "s"), ("none", "Escape x"),
        ("help", "Escape ?"), ("guidelines", "Escape i"),
    ):  # fmt: skip
        ranking.press(keys)
        found[state] = issues(ranking)
    ranking.press("?")
    ranking.page.get_by_role("button", name="Change keys").click()
    found["changing keys"] = issues(ranking)
    ranking.page.get_by_role("button", name="change the key to skip").click()
    ranking.press("j")
    found["a key refused"] = issues(ranking)
    ranking.press("Escape Escape Enter")
    work.stored(1)
    ranking.open_history(1)
    found["history"] = issues(ranking)
    ranking.press("Enter")
    expect(ranking.banner).to_be_visible()
    found["edit"] = issues(ranking)
    assert {state: each for state, each in found.items() if each} == {}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_no_serious_issue_with_details_facts_and_at_the_end(work: Work, new_page: NewPage, scheme: str) -> None:
    work.project = make_project(work.store)
    with work.store.begin() as tx:
        prompt = NewPrompt(({"role": "user", "content": "Which is longer?"},), facts="The Nile: 6,650 km")
        responses = [NewResponse("the Nile", badges=("cut",)), NewResponse("the Amazon"), NewResponse("  ")]
        add_task(tx, work.project.id, prompt_id_of(tx, work.project.id, prompt), responses, slots=1)
    work.ask(
        allow_partial=True, ask_acceptable=True, ask_flags=True, ask_quality=True, ask_strength=True,
        ask_rationale=True,
    )  # fmt: skip
    ranking = RankingPage(new_page(work.server, work.person, color_scheme=scheme)).open(work.url)
    found = {"details": issues(ranking)}
    for state, keys in (("rest", "1 w k a q 6 g 1"), ("flags closed", "Escape p 3"), ("help", "?")):
        ranking.press(keys)
        found[state] = issues(ranking)
    ranking.press("Escape Enter")
    expect(ranking.idle).to_be_visible(timeout=PATIENCE_S * 1000)
    found["idle"] = issues(ranking)
    assert {state: each for state, each in found.items() if each} == {}


def test_the_check_can_fail(ranking: RankingPage) -> None:
    ranking.hint.evaluate("each => { each.style.color = '#ccc'; }")
    assert any(each.startswith("color-contrast (serious)") for each in issues(ranking))


def test_twelve_cards_and_their_letters_keep_their_contrast(work: Work, new_page: NewPage) -> None:
    work.project = make_project(work.store, k=12)
    make_task(work.store, work.project, *[f"text {n}" for n in range(12)])
    ranking = RankingPage(new_page(work.server, work.person, color_scheme="dark")).open(work.url)
    ranking.press("1 2 3 4 5 6 7 8 9 t e l")
    assert issues(ranking) == []


def test_no_colour_fades(ranking: RankingPage) -> None:
    """A colour that switches while its background fades is white on white for a moment."""
    fading = ranking.page.locator(".ranker :is(button, .card, .chip, .letter)").evaluate_all(
        "all => all.filter((each) => parseFloat(getComputedStyle(each).transitionDuration) > 0).length"
    )
    assert fading == 0


def test_every_gesture_is_announced(work: Work, new_page: NewPage) -> None:
    work.ask(allow_partial=True, ask_acceptable=True, ask_flags=True, ask_quality=True, ask_strength=True)
    ranking = RankingPage(new_page(work.server, work.person)).open(work.url)
    for keys, words in (
        ("a", "Response A: acceptable."), ("a", "Response A: not acceptable."), ("a", "Response A: left open."),
        ("q", "Quality of response A, 1 very bad to 7 very good."), ("4", "Response A: quality 4 of 7."),
        ("p", "Rank every response first."), ("1", "Response A: rank 1."),
        ("w", "The rest are worse, in no order: A > the rest (B, C)."), ("p", "How much better is the best"),
        ("2", "The best is slightly better."), ("g", "Flags of response B."),
        ("1", f"{work.project.flags[0]}: on."), ("Escape i", "The guidelines are closed."),
        ("i", "The guidelines are open."), ("x", "No response is acceptable?"), ("Escape s", "Why do you skip"),
        ("Escape k 0", "Response A: no rank any more."), ("u", "Undone. A > the rest (B, C)."), ("Enter", "New task"),
        ("z", "You change your answer of"), ("Enter", "New task"),
    ):  # fmt: skip
        ranking.press(keys)
        expect(ranking.live).to_contain_text(words)


def test_roles_and_names(work: Work, ranking: RankingPage) -> None:
    page = ranking.page
    for role, name in (
        ("heading", work.project.name), ("region", "Prompt"), ("group", "Responses"), ("group", "Order so far"),
        ("radiogroup", "Rank of response A"), ("article", "Response A. Not ranked."), ("button", "Answers"),
        ("button", "Keys"),
    ):  # fmt: skip
        expect(page.get_by_role(role, name=name).first).to_be_visible()  # type: ignore[arg-type]
    ranking.press("2")
    expect(page.get_by_role("radiogroup", name="Rank of response A").get_by_role("radio", name="2")).to_be_checked()
    for _ in range(40):  # with Tab alone one gets from the first card to the submit button
        ranking.press("Tab")
        if page.evaluate("document.activeElement.shadowRoot?.activeElement?.textContent?.startsWith('Submit')"):
            break
    else:
        raise AssertionError("Tab does not reach the submit button")
