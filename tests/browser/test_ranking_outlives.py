"""Streamlit now and then takes the ranking surface's element away and puts a new one in its place. Nothing is lost."""

from __future__ import annotations

from browser_pages import NewPage, RankingPage, Work

# The component's module in an empty page, called as Streamlit calls it: mount, unmount, mount somewhere else.
SCRIPT = """async (url) => {
  const { default: ranker } = await import(url);
  const sent = [];
  const data = {
    person: "p", project: { id: "q", name: "Q" }, guidelines: "", allow_partial: false, skip_reasons: [], n_done: 0,
    tasks: [{ task_id: "t", lease_token: "l", display_order: [0, 1, 2], prompt: [{ role: "user", content: "?" }],
              responses: ["a", "b", "c"], badges: [[], [], []], facts: "", draft: null }],
    waiting: { n: 0, first_free_at: null }, acks: [],
  };
  const place = () => {
    const shadow = document.body.appendChild(document.createElement("div")).attachShadow({ mode: "open" });
    shadow.appendChild(document.createElement("section")).className = "ranker";
    return shadow;
  };
  const draw = (parentElement) => ranker({ parentElement, data, setStateValue: (name, value) => {
    if (name === "outbox") sent.push(...value.items.map((item) => item.ranks));
  } });
  const press = (key) =>
    document.dispatchEvent(new KeyboardEvent("keydown", { key, code: `Digit${key}`, bubbles: true, cancelable: true }));
  const standings = (where) => [...where.querySelectorAll(".standing")].map((each) => each.textContent);

  const first = place();
  const unmount = draw(first);
  press("2");
  unmount();
  first.host.remove();
  press("1"); // nothing is there to be seen: the key waits
  const second = place();
  draw(second);
  const shown = standings(second);
  press("u"); // what came before can still be taken back
  const undone = standings(second);
  press("1");
  press("3");
  press("Enter");
  return { shown, undone, sent, idle: second.querySelector(".idle").hidden };
}"""


def test_a_ranking_outlives_its_element(work: Work, new_page: NewPage) -> None:
    page = new_page(work.server, work.person)
    urls: list[str] = []
    page.on("request", lambda request: urls.append(request.url))
    RankingPage(page).open(work.url)
    url = next(each for each in urls if "/ranker.js" in each)
    page.goto(f"{work.server.url}/_stcore/health")
    found = page.evaluate(SCRIPT, url)
    assert found["shown"] == ["Rank 2", "Rank 1", "Not ranked"]
    assert found["undone"] == ["Rank 2", "Not ranked", "Not ranked"]
    assert found["sent"] == [[2, 1, 3]]
    assert found["idle"] is False
