"""The token inspector in Chromium: colours, numbers under the pointer, keys, and texts of models that are only text."""

from __future__ import annotations

import math
import os
import random
from pathlib import Path
from typing import Any

from browser_pages import NewPage
from factories import make_person, make_project
from hostile import HOSTILE
from playwright.sync_api import expect
from run_makers import report, running
from web_server import WebServer

from data.paths import open_home
from data.records import Role, RunKind
from data.rollouts import HELD_OUT, TOKEN_COLUMNS, TRAIN, write_rollout
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
    page.get_by_text("Policy and reference side by side").click()
    expect(page.locator(".panel")).to_have_count(2)
    expect(page.locator(".panel h3").nth(1)).to_have_text("This response: reference")
    page.get_by_text("Policy and reference side by side").click()
    page.get_by_label("Response", exact=True).click()
    page.get_by_role("option").nth(1).click()
    expect(tokens).to_have_count(len(hostile))
    shown = [text or "" for text in tokens.all_text_contents()]
    for text, seen in zip(hostile, shown, strict=True):
        assert seen == (text.replace("\n", "\u21b5\n").replace("\t", "\u21e5\t") or "\u00b7")
    assert page.locator(".panels script, .panels img, .panels iframe, .panels a").count() == 0
    page.get_by_text("Fixed held-out prompts").click()
    expect(page.locator(".panel h3").nth(0)).to_have_text("At the start")
    expect(page.locator(".panel h3").nth(1)).to_have_text("After iteration 1")
    _shoot(page, "held-out")
    page.set_viewport_size({"width": 390, "height": 900})
    expect(page.locator(".panel").nth(1)).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1")
    _shoot(page, "narrow")
    assert alerts == []


def _shoot(page: Any, name: str) -> None:
    """A picture for people, where a folder for pictures is named."""
    if SHOTS:
        page.screenshot(path=Path(SHOTS) / f"tokens-{name}.png", full_page=True)
