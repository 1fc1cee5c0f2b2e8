"""The main job, as a person does it: from the set-up link to a trained policy and an export, in one browser."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser_pages import NewPage, RankingPage, eventually
from playwright.sync_api import Page, expect
from tiny import save_tiny_model
from web_server import WebServer

from data.fields import describe
from data.files.paths import open_home
from data.files.snapshots import list_snapshots
from data.labels.projects import list_projects, project_counts
from data.records import RunKind, RunStatus
from data.runs.state import get_run, list_runs
from data.store import Store
from training.launch.kinds import CONFIGS, settings

PASSWORD = "a long enough password"
N_PROMPTS = 6
RUN_PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebServer]:
    with WebServer(open_home(tmp_path_factory.mktemp("loop")), with_worker=True) as running:
        yield running


def test_from_the_set_up_link_to_a_policy(store: Store, server: WebServer, new_page: NewPage, tmp_path: Path) -> None:
    model = save_tiny_model(server.home.model_folder("tiny"))
    page = new_page(server)
    _set_up(page, server)
    _new_project(page)
    _import(page, tmp_path)
    _sample(page, store, model)
    _rank(page, server, store)
    _freeze(page, server)
    reward_run = _train(page, server, store, RunKind.REWARD, "Reward model", {"epochs": "2"})
    ppo_run = _train(page, server, store, RunKind.PPO, "PPO", {"iterations": "2", "prompts_per_iteration": "4"})
    with store.read() as tx:
        assert get_run(tx, ppo_run).reward_run_id == reward_run
    _export_loads_in_trl(page, server, store, tmp_path)
    _policy_loads_in_transformers(server, ppo_run)


def _set_up(page: Page, server: WebServer) -> None:
    page.goto(f"{server.url}{server.set_up_path}")
    page.get_by_label("Name").fill("Ada")
    for box in page.locator("input[type=password]").all():
        box.fill(PASSWORD)
    page.get_by_role("button").click()
    expect(page.get_by_role("heading", name="Welcome to rankloop")).to_be_visible(timeout=20_000)


def _new_project(page: Page) -> None:
    page.get_by_role("button", name="New project").click()
    expect(page.get_by_role("heading", name="Projects")).to_be_visible(timeout=20_000)
    page.get_by_role("button", name="New project").click()
    page.get_by_role("dialog").get_by_label("Name").fill("The loop")
    page.get_by_role("button", name="Create project").click()
    expect(page.get_by_role("heading", name="The loop")).to_be_visible(timeout=20_000)


def _import(page: Page, folder: Path) -> None:
    file = folder / "prompts.jsonl"
    rows = [json.dumps({"prompt": f"Say something about the number {number}."}) for number in range(N_PROMPTS)]
    file.write_text("\n".join([*rows, '{"prompt": ""}']) + "\n")
    page.get_by_role("button", name="Import prompts").click()
    expect(page.get_by_role("heading", name="Prompts and responses")).to_be_visible(timeout=20_000)
    page.get_by_role("button", name="Import prompts").click()
    page.locator("input[type=file]").set_input_files(file)
    expect(page.get_by_text("What the import would do")).to_be_visible(timeout=20_000)
    expect(page.get_by_text("Refused rows")).to_be_visible()  # the bad line is listed, the others go in
    page.get_by_role("button", name="Import", exact=True).click()
    expect(page.get_by_text(f"{N_PROMPTS} new prompts")).to_be_visible(timeout=20_000)


def _sample(page: Page, store: Store, model: Path) -> None:
    page.get_by_role("button", name="Sample responses").first.click()
    _choose(page, "model", str(model))
    _fill_number(page, "max_new_tokens", "12")
    page.get_by_role("button", name="Sample responses").last.click()
    _finished(store, RunKind.SAMPLE)
    with store.read() as tx:
        (project,) = list_projects(tx)
        assert project_counts(tx, project.id)["tasks"] == N_PROMPTS


def _rank(page: Page, server: WebServer, store: Store) -> None:
    ranking = RankingPage(page).open(f"{server.url}/rank")
    for number in range(N_PROMPTS):
        ranking.ready()
        ranking.press("1 2 3 4 Enter" if number % 2 else "4 3 2 1 Enter")
    ranking.expect_saved()
    with store.read() as tx:
        (project,) = list_projects(tx)
        assert project_counts(tx, project.id)["rankings"] == N_PROMPTS


def _freeze(page: Page, server: WebServer) -> None:
    page.goto(f"{server.url}/snapshots")
    page.get_by_role("button", name="Freeze").click()
    expect(page.get_by_role("button", name="Train on it")).to_be_visible(timeout=20_000)


def _train(page: Page, server: WebServer, store: Store, kind: RunKind, words: str, fields: dict[str, str]) -> str:
    page.goto(f"{server.url}/train?kind={kind}")
    expect(page.get_by_role("button", name="Start run")).to_be_visible(timeout=20_000)
    for name, value in fields.items():
        _fill_number(page, name, value)
    if kind is RunKind.PPO:
        page.get_by_role("button", name="Check", exact=True).click()
        expect(page.get_by_text("All is green")).to_be_visible(timeout=120_000)
    page.get_by_role("button", name="Start run").click()
    expect(page.get_by_role("heading", name=words)).to_be_visible(timeout=20_000)
    run_id = _finished(store, kind)
    with store.read() as tx:
        run = get_run(tx, run_id)
    asked = {info.flat: str(settings(run)[info.name]) for info in describe(CONFIGS[kind])}
    assert fields.items() <= asked.items()
    expect(page.get_by_text("succeeded").first).to_be_visible(timeout=20_000)
    page.get_by_role("tab", name="Curves").click()
    expect(page.locator(".card canvas").first).to_be_visible(timeout=20_000)
    return run_id


def _export_loads_in_trl(page: Page, server: WebServer, store: Store, folder: Path) -> None:
    page.goto(f"{server.url}/snapshots")
    page.get_by_role("button", name="Export", exact=True).click()
    link = page.get_by_role("link", name="Download export")
    expect(link).to_be_visible(timeout=20_000)
    answer = page.request.get(f"{server.url}{link.get_attribute('href')}")
    assert answer.ok
    zipfile.ZipFile(io.BytesIO(answer.body())).extractall(folder / "export")
    (train,) = (folder / "export").rglob("train.parquet")
    from datasets import load_dataset
    from trl.data_utils import is_conversational

    rows = load_dataset("parquet", data_files=str(train), cache_dir=str(folder / "cache"), split="train")
    with store.read() as tx:
        (snapshot,) = list_snapshots(tx)
    assert snapshot.counts["pairs"] == 6 * N_PROMPTS  # C(4, 2) pairs of each ranking
    assert len(rows) == snapshot.counts["pairs_train"] == 6 * snapshot.counts["prompts_train"]
    assert {"prompt", "chosen", "rejected"} <= set(rows.column_names)
    assert is_conversational(rows[0]) or isinstance(rows[0]["chosen"], str)


def _policy_loads_in_transformers(server: WebServer, run_id: str) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = server.home.run_folder(run_id) / "model"
    policy, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hello"}], tokenize=False, add_generation_prompt=True
    )
    ids = tokenizer(text, return_tensors="pt", add_special_tokens=False)
    assert policy(**ids).logits.shape[-1] == policy.config.vocab_size


def _finished(store: Store, kind: RunKind) -> str:
    """The id of the only run of its kind, once it has succeeded."""

    def look() -> tuple[RunStatus, str | None, str] | None:
        with store.read() as tx:
            runs = list_runs(tx, kinds=(kind,))
        assert len(runs) <= 1
        return (runs[0].status, runs[0].error_message, runs[0].id) if runs else None

    found = eventually(look, is_good=lambda each: each is not None and each[0].is_final, patience_s=RUN_PATIENCE_S)
    assert found is not None and found[0] is RunStatus.SUCCEEDED, found
    return found[2]


def _fill_number(page: Page, name: str, value: str) -> None:
    box = page.locator(f"[class*='st-key-'][class*='{name}'] input").first
    box.fill(value)
    box.press("Tab")


def _choose(page: Page, name: str, value: str) -> None:
    box = page.locator(f"[class*='st-key-'][class*='{name}'] input").first
    box.click()
    box.fill(value)
    box.press("Enter")
