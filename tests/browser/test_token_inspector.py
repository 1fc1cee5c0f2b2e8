"""The token inspector in Chromium: colours, numbers under the pointer, keys, and texts of models that are only text."""

from __future__ import annotations

import math
import os
import random
from pathlib import Path
from typing import Any

from browser_pages import NewPage, settled
from factories import make_person, make_project
from hostile import HOSTILE
from playwright.sync_api import expect
from run_makers import ended, report, running
from web_server import WebServer

from data.files.paths import open_home
from data.files.rollouts import HELD_OUT, TOKEN_COLUMNS, TRAIN, write_rollout
from data.records import Role, RunKind
from data.store import Store

SHOTS = os.environ.get("SHOTS_FOLDER")


def row(tokens: list[str], seed: int = 0, key: str = "p1") -> dict[str, Any]:
    rng = random.Random(seed)
    numbers = {name: [rng.uniform(-1, 1) for _ in tokens] for name in TOKEN_COLUMNS}
    numbers["logprob"] = [-abs(each) * 3 for each in numbers["logprob"]]
    numbers["ref_logprob"] = [-abs(each) * 3 for each in numbers["ref_logprob"]]
    numbers["ratio"] = [math.exp(each / 5) for each in numbers["ratio"]]
    return {
        "prompt_key": key, "prompt": "Why is the sky blue?", "response": "".join(tokens), "score": 1.25,
        "score_after_penalty": 1.25, "kl": 0.7, "ended": True, "ids": list(range(len(tokens))), "tokens": tokens,
        "clipped": [place == 1 for place in range(len(tokens))], **numbers,
    }  # fmt: skip


def test_tokens_are_coloured_told_and_only_text(store: Store, server: WebServer, new_page: NewPage) -> None:
    run = running(store, RunKind.PPO, make_project(store))
    report(store, run, 1, 10, metrics={"reward/score_mean": 1.0})
    folder = open_home(server.home.root).run_folder(run.id)
    words = ["The", " sky", " scatters", "\n", " blue", " light", "<|end|>"]
    hostile = [text[:200] for text in HOSTILE]
    first = row(words)
    first["advantage"] = [2.0, -2.0, 0.0, 1.0, 0.5, -0.5, 0.1]
    write_rollout(folder, TRAIN, 1, [first, row(hostile, 1)])
    for iteration in (0, 1):
        write_rollout(folder, HELD_OUT, iteration, [row(words if iteration else words[:3], iteration)])
    page = new_page(server, make_person(store, Role.RESEARCHER))
    alerts: list[str] = []
    page.on("dialog", lambda dialog: (alerts.append(dialog.message), dialog.dismiss()))
    page.goto(f"{server.url}/runs?run={run.id}&runs.tab=Tokens")
    tokens = page.locator(".token")
    expect(tokens).to_have_count(7, timeout=20_000)
    background = [tokens.nth(place).evaluate("node => getComputedStyle(node).backgroundColor") for place in range(3)]
    assert background[0].startswith("rgba(59, 91, 219, 0.75") and background[1].startswith("rgba(217, 72, 15, 0.75")
    assert background[2].endswith(", 0)"), background
    tokens.nth(1).hover()
    expect(page.locator(".facts")).to_contain_text('2. " sky"')
    expect(page.locator(".facts")).to_contain_text("advantage -2")
    expect(page.locator(".facts")).to_contain_text("clipped")
    expect(page.locator(".sums")).to_contain_text("Sums over 7 tokens")
    expect(page.locator(".sums")).to_contain_text("advantage 1.1")
    tokens.nth(0).focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".facts")).to_contain_text('3. " scatters"')
    _shoot(page, "inline")
    page.get_by_role("button", name="Table").click()
    expect(page.locator("tr[data-at]")).to_have_count(7)
    _shoot(page, "table")
    page.get_by_role("button", name="Table").click()
    settled(page)
    page.get_by_text("Policy and reference side by side").click()
    expect(page.locator(".panel")).to_have_count(2)
    expect(page.locator(".panel h3").nth(1)).to_have_text("Response 1: reference")
    settled(page)
    page.get_by_text("Policy and reference side by side").click()
    expect(page.locator(".panel")).to_have_count(1)
    settled(page)
    page.get_by_label("Search", exact=True).fill("LEAK.png")
    page.keyboard.press("Enter")
    expect(page.locator(".panel h3")).to_have_text("Response 2")
    expect(tokens).to_have_count(len(hostile))
    shown = [text or "" for text in tokens.all_text_contents()]
    for text, seen in zip(hostile, shown, strict=True):
        assert seen == (text.replace("\n", "\u21b5\n").replace("\t", "\u21e5\t") or "\u00b7")
    assert page.locator(".panels script, .panels img, .panels iframe, .panels a").count() == 0
    settled(page)
    page.get_by_text("Fixed held-out prompts").click()
    expect(page.locator(".panel h3").nth(0)).to_have_text("At the start")
    expect(page.locator(".panel h3").nth(1)).to_have_text("After iteration 1")
    _shoot(page, "held-out")
    page.set_viewport_size({"width": 390, "height": 900})
    expect(page.locator(".panel").nth(1)).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1")
    _shoot(page, "narrow")
    assert alerts == []


def test_a_response_is_found_and_stands_beside_another_runs(store: Store, server: WebServer, new_page: NewPage) -> None:
    project, texts = make_project(store), ["The sky scatters blue light.", "Because.", "Ask a physicist about it."]
    home, runs = open_home(server.home.root), [ended(store, RunKind.PPO, project) for _ in range(2)]
    for number, run in enumerate(runs):
        for iteration in (0, 10, 20):
            rows = [
                row([f"{word} " for word in text.split()], seed=iteration + place + number, key=f"p{place}")
                | {"score": place + 0.1 * iteration * (1 - place), "kl": 0.05 * iteration * (place + 1)}
                for place, text in enumerate(texts)
            ]
            write_rollout(home.run_folder(run.id), HELD_OUT, iteration, rows)
    page = new_page(server, make_person(store, Role.RESEARCHER))
    page.goto(f"{server.url}/runs?run={runs[0].id}&runs.tab=Tokens")
    titles = page.locator(".panel h3")
    expect(titles.nth(1)).to_have_text("After iteration 20", timeout=20_000)
    page.get_by_text("How they are spread").click()
    expect(page.get_by_text("3 prompts: 1 scored higher than at the start, 1 lower")).to_be_visible()
    expect(page.locator("[data-testid=stVegaLiteChart] svg")).to_have_count(3)
    slider = page.get_by_role("slider", name="Iteration")
    slider.press("ArrowLeft")
    expect(titles.nth(1)).to_have_text("After iteration 10")
    _choose(page, "Order", "lowest score")
    expect(page.locator(".panel .text").nth(1)).to_contain_text("The sky")
    _choose(page, "Order", "smallest gap")
    expect(page.locator(".panel .text").nth(1)).to_contain_text("Ask")
    table = page.get_by_test_id("stDataFrame").first
    table.scroll_into_view_if_needed()
    place = table.bounding_box()
    assert place is not None
    settled(page)
    page.mouse.move(place["x"] + 300, place["y"] + 85, steps=5)
    page.mouse.click(place["x"] + 300, place["y"] + 90, delay=50)  # the second line: by the gap it is the middle one
    expect(page.locator(".panel .text").nth(1)).to_contain_text("Because")
    slider.press("ArrowRight")
    expect(titles.nth(1)).to_have_text("After iteration 20")
    expect(page.locator(".panel .text").nth(1)).to_contain_text("Because")
    _choose(page, "Other runs beside it", runs[1].id[-6:])
    page.keyboard.press("Escape")
    expect(titles.nth(2)).to_have_text(f"PPO {runs[1].id[-6:]} after iteration 20")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        for width in (1280, 390):
            page.set_viewport_size({"width": width, "height": 900})
            expect(titles.nth(2)).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1")
            _shoot(page, f"list-{scheme}-{width}")


def _choose(page: Any, label: str, option: str) -> None:
    """As a person would: a list that has just opened closes again when the page scrolls."""
    settled(page)
    box = page.get_by_label(label).first
    box.scroll_into_view_if_needed()
    page.wait_for_timeout(300)  # until the scrolling has been told to everybody
    box.click()
    page.get_by_role("option").filter(has_text=option).first.click()


def _shoot(page: Any, name: str) -> None:
    """A picture for people, where a folder for pictures is named."""
    if SHOTS:
        page.screenshot(path=Path(SHOTS) / f"tokens-{name}.png", full_page=True)
