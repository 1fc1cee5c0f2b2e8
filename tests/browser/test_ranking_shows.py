"""What the ranking page shows: texts that are only ever text, no names, everything in sight and said aloud."""

from __future__ import annotations

import itertools
import re

import pytest
from browser_pages import PATIENCE_S, NewPage, RankingPage, Work, by_place, bytes_of, eventually
from factories import make_project, make_task
from playwright.sync_api import expect

from data.labels.prompts import prompt_id_of
from data.labels.slots import held_assignments
from data.labels.tasks import add_task
from data.records import NewPrompt, NewResponse
from data.store import Store
from labeling.judgement.ranks import competition_ranks

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

MARKS = {0x202E: "RLO", 0x202C: "PDF", 0x200B: "ZWSP", 0x2066: "LRI", 0x2069: "PDI"}


def with_marks(text: str) -> str:
    """As it is shown: what nobody would see has a mark in its place."""
    return text.translate(MARKS)


def test_texts_are_only_text(work: Work, new_page: NewPage) -> None:
    project = make_project(work.store, k=8)
    make_task(work.store, project, *HOSTILE, prompt=f"{HOSTILE[0]}\n\n{HOSTILE[1]}")
    work.project = project
    page = new_page(work.server, work.person)
    ranking = RankingPage(page).open(work.url)
    hostile = ":is(img, a, script, style, iframe, object)"
    assert page.locator(f".ranker :is(.card, .prompt) {hostile}").count() == 0, "as Markdown"
    ranking.press("m")
    shown = page.locator(".ranker .card .text").evaluate_all("all => all.map((each) => each.textContent)")
    assert sorted(shown) == sorted(map(with_marks, HOSTILE)), "each text stands there as it is, letter by letter"
    assert page.title() != "owned"
    assert page.locator(".ranker :is(.card, .prompt) :is(img, a, script, style, code, b, strong)").count() == 0, "raw"
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


def test_what_is_wrong_with_a_response_stands_on_its_card(work: Work, new_page: NewPage) -> None:
    work.project = make_project(work.store)
    with work.store.begin() as tx:
        prompt_id = prompt_id_of(tx, work.project.id, NewPrompt(({"role": "user", "content": "Name a river"},)))
        responses = [NewResponse("The Volga is a", badges=("cut", "near_duplicate")), NewResponse("The Danube")]
        add_task(tx, work.project.id, prompt_id, responses, slots=1)
    ranking = RankingPage(new_page(work.server, work.person)).open(work.url)
    badges = {
        card.locator(".text").inner_text(): card.get_by_role("listitem").all_inner_texts()
        for card in ranking.cards.all()
    }
    assert badges == {
        "The Volga is a": ["4 words \u00b7 14 characters", "cut at the length limit", "almost the same as another"],
        "The Danube": ["2 words \u00b7 10 characters"],
    }


# ---- what a person who has never seen the page is told


@pytest.mark.parametrize("size", [(1280, 800), (390, 844)], ids=["laptop", "phone"])
def test_a_newcomer_reads_which_end_of_each_scale_is_best(work: Work, new_page: NewPage, size: tuple[int, int]) -> None:
    work.ask(ask_quality=True, ask_strength=True)
    width, height = size
    page = new_page(work.server, work.person, viewport={"width": width, "height": height})
    ranking = RankingPage(page).open(work.url)
    for card in ranking.cards.all():
        ranks, quality = card.get_by_role("radiogroup").all()
        assert [" ".join(each.split()) for each in ranks.get_by_role("radio").all_inner_texts()] == [
            "1 best", "2", "3 worst",
        ]  # fmt: skip
        words = card.locator(".scale").inner_text().split()
        assert " ".join(words) == "Quality 1 very bad 2 3 4 5 6 7 very good"
        expect(ranks).to_have_accessible_name(re.compile(r"^Rank of response [ABC], 1 best to 3 worst$"))
        expect(quality).to_have_accessible_name(re.compile("1 very bad to 7 very good$"))
    ranking.press("1 2 3")
    strengths = page.get_by_role("radiogroup", name="How much better is the best")
    assert " ".join(strengths.inner_text().split()) == "1 negligibly 2 slightly 3 clearly 4 significantly"


@pytest.mark.parametrize("width", [390, 1280, 1920])
def test_guidelines_are_open_on_the_first_visit_of_a_project_at_any_width(
    work: Work, new_page: NewPage, width: int
) -> None:
    page = new_page(work.server, work.person, viewport={"width": width, "height": 900})
    ranking = RankingPage(page).open(work.url)
    panel = page.get_by_role("complementary", name="Guidelines")
    expect(panel).to_contain_text("Rank the responses from best to worst")
    expect(panel).to_be_in_viewport()
    ranking.press("1 2 3 Enter")
    work.stored(1)
    expect(panel).to_be_visible()  # they stay while the person works, until they are closed or the visit ends
    panel.get_by_role("button", name="Close").click()
    expect(panel).to_be_hidden()
    page.reload()
    ranking.ready()
    expect(panel).to_be_hidden()
    other = make_project(work.store)
    make_task(work.store, other)
    page.goto(f"{work.server.url}/rank?project={other.id}")
    expect(panel).to_be_visible(timeout=PATIENCE_S * 1000)  # the first visit of another project


def test_one_response_alone_is_neither_best_of_many_nor_worst(ranking: RankingPage) -> None:
    """A scale of one: `best` alone, and no end that does not exist."""
    made = ranking.page.evaluate(
        """async () => {
            const { Card } = await import("/_stcore/bidi-components/rankloop.ranker/ranker_card.js");
            const asks = { flags: [] };
            const names = (n) => {
                const { ranks } = new Card({ responses: Array(n).fill("x") }, 0, asks, {});
                return [ranks.getAttribute("aria-label"), ...[...ranks.children].map((each) => each.textContent)];
            };
            return [names(1), names(2), names(12).slice(-2)];
        }"""
    )
    assert made == [
        ["Rank of response A, 1 best", "1 best"],
        ["Rank of response A, 1 best to 2 worst", "1 best", "2 worst"],
        ["11e", "12 worstl"],
    ]
