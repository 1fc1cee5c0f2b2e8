"""The researcher's screens in Chromium: curves that follow a run, a form in a dialog, hostile texts."""

from __future__ import annotations

import contextlib
from pathlib import Path

from browser_pages import NewPage, eventually, settled
from factories import make_person, make_project, make_ranking, make_task
from hostile import HOSTILE
from playwright.sync_api import Locator, Page, TimeoutError, expect
from run_makers import report, running
from web_server import WebServer

from data.labels.people import disable_person
from data.labels.projects import list_projects, project_counts
from data.records import Role, RunKind
from data.runs.state import get_run
from data.store import Store


def test_curves_follow_a_run_and_keep_their_zoom(store: Store, server: WebServer, new_page: NewPage) -> None:
    run = running(store, RunKind.PPO, make_project(store))
    for step in range(1, 41):
        report(store, run, step, 100, metrics={"reward/score_mean": step / 40, "kl/k1_sum_mean": step / 10})
    page = new_page(server, make_person(store, Role.RESEARCHER))
    received: list[int] = []
    page.on("websocket", lambda socket: socket.on("framereceived", lambda frame: received.append(len(frame))))
    page.goto(f"{server.url}/runs?run={run.id}")
    grid = page.locator(".grid")
    expect(grid).to_have_attribute("data-last", "40", timeout=20_000)
    expect(page.locator(".card canvas")).to_have_count(2)
    assert _steps(page) == "1 40"
    _drag_over(page, page.locator(".card .u-over").first)
    reset = page.get_by_role("button", name="Reset zoom")
    expect(reset).to_be_visible()
    shown = _steps(page)
    assert shown != "1 40"
    n_before = len(received)
    for step in (41, 42):
        report(store, run, step, 100, metrics={"reward/score_mean": 1.0, "kl/k1_sum_mean": 4.0})
    expect(grid).to_have_attribute("data-last", "42", timeout=10_000)
    assert sum(received[n_before:]) < 20_000
    assert _steps(page) == shown, "the zoom is where it was"
    reset.click()
    expect(reset).to_be_hidden()
    assert _steps(page) == "1 42"
    page.get_by_role("tab", name="Events").click()
    expect(grid).to_have_count(0)
    page.get_by_role("tab", name="Curves").click()
    expect(grid).to_have_attribute("data-last", "42", timeout=10_000)
    page.get_by_role("button", name="Smooth").click()
    expect(page.get_by_role("button", name="Smooth")).to_have_attribute("aria-pressed", "true")
    page.get_by_role("button", name="Cancel run").click()
    expect(page.get_by_text("Cancelling at the next safe place")).to_be_visible(timeout=10_000)


def test_who_is_signed_out_can_do_no_more_on_an_open_page(store: Store, server: WebServer, new_page: NewPage) -> None:
    """Buttons on what refreshes itself, and in dialogs, run without their page: they ask for themselves."""
    run, who = running(store, RunKind.SFT, make_project(store)), make_person(store, Role.RESEARCHER)
    page, other = new_page(server, who), new_page(server, who)
    page.goto(f"{server.url}/runs?run={run.id}")
    other.goto(f"{server.url}/projects")
    other.get_by_role("button", name="New project").click()
    other.get_by_role("dialog").get_by_label("Name").fill("Too late")
    expect(page.get_by_role("button", name="Cancel run")).to_be_visible(timeout=20_000)
    with store.begin() as tx:
        disable_person(tx, who.id)
    with contextlib.suppress(TimeoutError):  # the page may have gone to the sign-in page already
        other.get_by_role("button", name="Create project").click(timeout=5_000)
    expect(other.get_by_text("You are signed out").first).to_be_visible(timeout=20_000)
    with contextlib.suppress(TimeoutError):
        page.get_by_role("button", name="Cancel run").click(timeout=5_000)
    expect(page.get_by_text("You are signed out").first).to_be_visible(timeout=20_000)
    with store.read() as tx:
        assert get_run(tx, run.id).cancel_requested_at is None
        assert "Too late" not in [project.name for project in list_projects(tx)]


def test_a_project_is_made_in_a_dialog_and_filled_from_a_file(
    store: Store, server: WebServer, new_page: NewPage, tmp_path: Path
) -> None:
    page = new_page(server, make_person(store, Role.RESEARCHER))
    page.goto(f"{server.url}/projects")
    page.get_by_role("button", name="New project").click()
    page.get_by_role("dialog").get_by_label("Name").fill("Made in a dialog")
    page.get_by_role("button", name="Create project").dblclick()
    expect(page.get_by_role("heading", name="Made in a dialog")).to_be_visible(timeout=20_000)
    with store.read() as tx:
        (made,) = [project for project in list_projects(tx) if project.name == "Made in a dialog"]
    page.get_by_role("button", name="Import prompts").click()
    expect(page.get_by_role("heading", name="Prompts and responses")).to_be_visible(timeout=20_000)
    page.get_by_role("button", name="Import prompts").click()  # the page of prompts, empty, leads on too
    file = tmp_path / "prompts.csv"
    file.write_text("prompt\nName three rivers.\n![x](http://example.org/leak.png)\n")
    page.locator("input[type=file]").set_input_files(file)
    expect(page.get_by_text("What the import would do")).to_be_visible(timeout=20_000)
    page.get_by_role("button", name="Import", exact=True).dblclick()
    expect(page.get_by_text("Imported prompts.csv: 2 new prompts.")).to_be_visible(timeout=20_000)
    with store.read() as tx:
        assert project_counts(tx, made.id)["prompts"] == 2


def test_hostile_texts_load_nothing(store: Store, server: WebServer, new_page: NewPage) -> None:
    """The fixture fails the test on any request to another machine, and on any error in the page."""
    project = make_project(store, "![x](http://example.org/name.png)")
    task = make_task(store, project, *HOSTILE[1:], prompt=HOSTILE[0])
    make_ranking(store, task, make_person(store), (1, 2, 3))
    run = running(store, RunKind.COMPARE, project, model_b="![x](http://example.org/model.png)")
    report(store, run, 1, samples=[{"prompt": HOSTILE[0], "side": side, "response": HOSTILE[1]} for side in "ab"])
    page = new_page(server, make_person(store, Role.RESEARCHER))
    for path in (
        "projects",
        f"prompts?prompt={task.prompt_id}",
        "snapshots",
        f"runs?run={run.id}&runs.tab=Samples",
        f"runs?run={run.id}&runs.tab=Configuration",
        "compare",
    ):
        page.goto(f"{server.url}/{path}{'&' if '?' in path else '?'}project={project.id}")
        settled(page)
        expect(page.get_by_role("heading").first).to_be_visible(timeout=20_000)
        assert page.locator("[data-testid=stException]").count() == 0, path
        assert page.locator("[data-testid=stMain] img").count() == 0, path


def _drag_over(page: Page, plot: Locator) -> None:
    box = eventually(plot.bounding_box)
    assert box is not None
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.2, middle)
    page.mouse.down()
    for part in range(11):
        page.mouse.move(box["x"] + box["width"] * (0.2 + 0.04 * part), middle)
    page.mouse.up()


def _steps(page: Page) -> str:
    """What the charts show, as the range of steps that the component writes down."""
    return str(page.locator(".grid").get_attribute("data-shown"))
