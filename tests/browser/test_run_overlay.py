"""Several runs over each other in Chromium: chosen by hand, told apart, followed, and taken away again."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

from browser_pages import NewPage
from factories import make_person, make_project
from playwright.sync_api import Page, expect
from run_makers import report, running
from web_server import WebServer

from app.words.values import run_name
from data.records import Role, Run, RunKind, RunStatus
from data.runs.state import finish_run
from data.store import Store

SHOTS = os.environ.get("SHOTS_FOLDER")


def step_metrics(step: int, slope: float, *, has_entropy: bool = True) -> dict[str, float]:
    reached = 1 - math.exp(-slope * step)
    return {
        "reward/score_mean": 2 * reached, "reward/score_after_penalty_mean": 1.6 * reached,
        "kl/k1_mean": slope * step, "kl/coef": slope, **({"policy/entropy": 3 - reached} if has_entropy else {}),
    }  # fmt: skip


def finish(store: Store, run: Run) -> None:
    with store.begin() as tx:
        finish_run(tx, run.id, run.epoch, RunStatus.SUCCEEDED)


def test_runs_lie_over_each_other_and_the_active_one_goes_on(
    store: Store, server: WebServer, new_page: NewPage
) -> None:
    project, others = make_project(store), []
    for slope in (0.02, 0.1):
        other = running(store, RunKind.PPO, project, kl_coef=slope)
        for step in range(1, 21):
            report(store, other, step, 20, metrics=step_metrics(step, slope, has_entropy=False))
        finish(store, other)
        others.append(other)
    run = running(store, RunKind.PPO, project, kl_coef=0.05)
    for step in range(1, 41):
        report(store, run, step, 100, metrics=step_metrics(step, 0.05))
    page = new_page(server, make_person(store, Role.RESEARCHER))
    frames: list[int] = []
    page.on("websocket", lambda socket: socket.on("framereceived", lambda frame: frames.append(len(frame))))
    page.goto(f"{server.url}/runs?run={run.id}")
    grid = page.locator(".grid")
    expect(grid).to_have_attribute("data-lasts", "40", timeout=20_000)
    assert len(set(_colours(page, "Score"))) == 2, "of one run, each metric has a colour"
    _choose(page, others[0])
    _choose(page, others[1])
    expect(grid).to_have_attribute("data-lasts", "40 20 20", timeout=10_000)
    assert page.url.count(f"over={others[0].id}%2C{others[1].id}") == 1
    legend = _card(page, "Score").locator(".legend div")
    names = [run_name(each) for each in (run, *others)]
    assert legend.locator("em").all_inner_texts() == names
    assert _colours(page, "Score") == [each for each in dict.fromkeys(_colours(page, "KL coefficient")) for _ in "ab"]
    assert len(set(_colours(page, "Score"))) == 3, "of several runs, each run has a colour"
    dashes = (
        _card(page, "Score")
        .locator(".legend path")
        .evaluate_all("all => all.map(each => each.getAttribute('stroke-dasharray'))")
    )
    assert dashes == ["", "6 4"] * 3, "and each metric a dash"
    expect(_card(page, "Score")).to_contain_text("last steps")
    assert _card(page, "Entropy").locator(".legend em").all_inner_texts() == names[:1], "what a run lacks is not there"
    over = _card(page, "Score").locator(".u-over")
    box = over.bounding_box()
    assert box
    over.hover(position={"x": box["width"] * 0.9, "y": box["height"] / 2})
    expect(_card(page, "Score")).to_contain_text("step 3")
    assert legend.nth(1).locator("b").all_inner_texts() == ["-", "-"], "a run that had ended has nothing there"
    assert legend.nth(0).locator("b").first.inner_text() != "-"
    page.mouse.move(0, 0)
    _shoot(page, "overlay-light")
    largest = max(frames)
    frames.clear()
    for step in (41, 42):
        report(store, run, step, 100, metrics=step_metrics(step, 0.05))
    expect(grid).to_have_attribute("data-lasts", "42 20 20", timeout=10_000)
    assert max(frames) < largest / 2, "only what is new is sent"
    page.reload()
    expect(grid).to_have_attribute("data-lasts", "42 20 20", timeout=20_000)
    page.get_by_role("tab", name="Events").click()
    expect(grid).to_have_count(0)
    page.get_by_role("tab", name="Curves").click()
    expect(grid).to_have_attribute("data-lasts", "42 20 20", timeout=10_000)
    page.set_viewport_size({"width": 390, "height": 900})
    expect(page.locator(".card canvas")).to_have_count(4)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1")
    _shoot(page, "overlay-narrow")
    page.set_viewport_size({"width": 1280, "height": 900})
    page.get_by_role("button", name=f"Remove {run_name(others[0])}").click()
    expect(grid).to_have_attribute("data-lasts", "42 20", timeout=10_000)
    assert legend.locator("em").all_inner_texts() == [names[0], names[2]]


def _choose(page: Page, run: Run) -> None:
    page.get_by_role("combobox", name="Lay further runs over this one").click()
    page.get_by_role("option", name=run_name(run)).click()
    page.keyboard.press("Escape")


def _card(page: Page, title: str) -> Any:
    return page.locator(".card").filter(has=page.locator("h2", has_text=title)).first


def _colours(page: Page, title: str) -> list[str]:
    """Of the lines in a chart's legend."""
    found: list[str] = (
        _card(page, title).locator(".legend path").evaluate_all("all => all.map(each => each.getAttribute('stroke'))")
    )
    return found


def _shoot(page: Page, name: str) -> None:
    """A picture for people, where a folder for pictures is named."""
    if SHOTS:
        page.screenshot(path=Path(SHOTS) / f"{name}.png", full_page=True)
