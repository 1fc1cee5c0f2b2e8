"""Streamlit now and then takes the ranking surface's element away and puts a new one in its place. Nothing is lost."""

from __future__ import annotations

import pytest
from browser_pages import NewPage, RankingPage, Work
from playwright.sync_api import Page

# The component's module in an empty page, called as Streamlit calls it: mount, unmount, mount somewhere else.
SCRIPT = """async (url) => {
  const { default: ranker } = await import(url);
  window.sent = [];
  const data = {
    person: "p", project: { id: "q", name: "Q" }, guidelines: { text: "", version: 1 }, skip_reasons: ["Off", "Odd"],
    asks: { partial: false, acceptable: false, flags: [], quality: false, strength: false, rationale: true },
    n_done: 0, n_today: 0, pace_s: null,
    tasks: [{ task_id: "t", lease_token: "l", display_order: [0, 1, 2], prompt: [{ role: "user", content: "?" }],
              responses: ["a", "b", "c"], badges: [[], [], []], facts: "", draft: null }],
    waiting: { n: 0, first_free_at: null }, acks: [],
  };
  let place, leave;
  window.appear = () => {
    place = document.body.appendChild(document.createElement("div")).attachShadow({ mode: "open" });
    place.appendChild(document.createElement("section")).className = "ranker";
    leave = ranker({ parentElement: place, data, setStateValue: (name, value) => {
      if (name === "outbox") window.sent.push(...value.items);
    } });
  };
  window.vanish = () => {
    leave();
    place.host.remove();
  };
  window.press = (keys) => {
    for (const key of keys.split(" ")) {
      const to = place.activeElement ?? document.activeElement;
      to.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, composed: true, cancelable: true }));
    }
  };
  window.standings = () => [...place.querySelectorAll(".standing")].map((each) => each.textContent);
  window.find = (selector) => place.querySelector(selector);
  appear();
}"""


@pytest.fixture
def bare(work: Work, new_page: NewPage) -> Page:
    """A page with nothing but the component in it."""
    page = new_page(work.server, work.person)
    urls: list[str] = []
    page.on("request", lambda request: urls.append(request.url))
    RankingPage(page).open(work.url)
    url = next(each for each in urls if "/ranker.js" in each)
    page.goto(f"{work.server.url}/_stcore/health")
    page.evaluate(SCRIPT, url)
    return page


def test_a_ranking_outlives_its_element(bare: Page) -> None:
    bare.evaluate("press('2'); vanish(); press('1'); appear()")  # nothing was there to be seen: the key waited
    assert bare.evaluate("standings()") == ["Rank 2", "Rank 1", "Not ranked"]
    bare.evaluate("press('u')")  # what came before can still be taken back
    assert bare.evaluate("standings()") == ["Rank 2", "Not ranked", "Not ranked"]
    bare.evaluate("press('1 3 Enter')")
    assert bare.evaluate("sent.map((item) => item.ranks)") == [[2, 1, 3]]
    assert bare.evaluate("find('.idle').hidden") is False


def test_what_is_being_written_goes_on_where_it_was(bare: Page) -> None:
    bare.evaluate("""
      press("1 2 3 n");
      find("textarea").value = "Room ";
      find("textarea").dispatchEvent(new Event("input"));
      press("1"); // into the field, which a dispatched event does not fill
      vanish();
      press("1 2"); // words, not ranks
      appear();
    """)
    assert bare.evaluate("[find('textarea').value, find('textarea').matches(':focus')]") == ["Room 12", True]
    assert bare.evaluate("standings()") == ["Rank 1", "Rank 2", "Rank 3"]


def test_a_form_stays_open(bare: Page) -> None:
    bare.evaluate("press('s 2'); vanish(); appear(); press('Enter')")
    assert bare.evaluate("sent.map((item) => item.skip_reason)") == ["Odd"]


def test_a_change_of_a_sent_answer_stays_one(bare: Page) -> None:
    bare.evaluate("press('1 2 3 Enter z 3'); vanish(); appear()")
    assert bare.evaluate("find('.banner').hidden") is False
    bare.evaluate("press('Enter')")
    first, change = bare.evaluate("sent.filter((item, n, all) => all.findIndex((other) => "
                                  "other.submission_key === item.submission_key) === n)")  # fmt: skip
    assert (first["ranks"], change["ranks"], change["edit_of"]) == ([1, 2, 3], [2, 1, 2], first["submission_key"])
