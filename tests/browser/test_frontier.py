"""The plot of score over KL in Chromium: it follows a run that goes on, with another run over it."""

from __future__ import annotations

import os
from pathlib import Path

from browser_pages import NewPage
from factories import make_person, make_snapshot
from playwright.sync_api import expect
from run_makers import ended, report, running
from web_server import WebServer

from data.records import Role, Run, RunKind, RunStatus
from data.runs.metrics import report_step
from data.runs.state import finish_run
from data.store import Store

SHOTS = os.environ.get("SHOTS_FOLDER")


def iteration(store: Store, run: Run, step: int, kl: float, score: float) -> None:
    rollout = {"kl/k1_mean": kl, "reward/score_mean": score}
    evaluation = {"held_out/kl_mean": kl, "held_out/score_mean": score - 0.1, "held_out/sure_score_mean": score - 0.4}
    report(store, run, step, metrics=rollout | evaluation)


def test_the_plot_follows_a_run_that_goes_on_over_another(store: Store, server: WebServer, new_page: NewPage) -> None:
    snapshot = make_snapshot(store, server.home)
    reward = ended(store, RunKind.REWARD, snapshot=snapshot)
    words = {"snapshot": snapshot, "reward_run": reward, "model": "demo"}
    other = running(store, RunKind.PPO, **words, kl_coef=0.5)
    with store.begin() as tx:
        metrics = {"kl/k1_mean": 1.0, "reward/score_mean": 0.5}
        report_step(tx, other.id, other.epoch, 1, total_steps=1, metrics=metrics, samples=[])
        finish_run(tx, other.id, other.epoch, RunStatus.SUCCEEDED)
    run = running(store, RunKind.PPO, **words)
    page = new_page(server, make_person(store, Role.RESEARCHER))
    page.goto(f"{server.url}/runs?run={run.id}")
    plot = page.locator(f".st-key-runs-frontier-{run.id}")
    expect(plot.get_by_text("Points appear here")).to_be_visible(timeout=20_000)
    iteration(store, run, 1, 0.25, 0.3)
    expect(plot.get_by_text("3 points of 1 run")).to_be_visible(timeout=20_000)
    expect(plot.get_by_test_id("stVegaLiteChart")).to_be_visible()
    iteration(store, run, 2, 1.0, 0.6)
    expect(plot.get_by_text("6 points of 1 run")).to_be_visible(timeout=20_000)
    box = plot.get_by_role("combobox")
    box.scroll_into_view_if_needed()
    box.fill(f"PPO {other.id[-6:]}, KL coef 0.5")  # by keyboard: an open list closes when the page scrolls
    box.press("Enter")
    expect(plot.get_by_text("7 points of 2 runs")).to_be_visible(timeout=20_000)
    iteration(store, run, 3, 4.0, 0.9)
    expect(plot.get_by_text("10 points of 2 runs")).to_be_visible(timeout=20_000)
    page.set_viewport_size({"width": 390, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1")
    if SHOTS:
        page.screenshot(path=Path(SHOTS) / "frontier-live.png", full_page=True)
