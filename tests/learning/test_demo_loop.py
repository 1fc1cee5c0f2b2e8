"""`rankloop demo` from end to end, with a tiny model in the place of the real one: every step runs and is reported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny import save_tiny_model

from app.demo.run import run_demo
from data.files.paths import open_home
from data.records import RunKind, RunStatus
from data.runs.state import list_runs
from data.store import open_store

pytestmark = pytest.mark.slow


def test_the_whole_loop_runs_and_is_reported(tmp_path: Path) -> None:
    home = open_home(tmp_path / "home")
    model = save_tiny_model(tmp_path / "model", hidden_size=64, tie_word_embeddings=False, initializer_range=0.2)
    said: list[str] = []
    summary = run_demo(home, home.store_url, minutes=1, announce=said.append, model=str(model))
    store = open_store(home.store_url)
    with store.read() as tx:
        runs = list_runs(tx)
    store.close()
    assert {run.kind for run in runs} == {RunKind.SAMPLE, RunKind.REWARD, RunKind.PPO, RunKind.COMPARE}
    assert all(run.status is RunStatus.SUCCEEDED for run in runs)
    assert summary["iterations"] == 2
    assert summary["counts"]["pairs"] > 0 and summary["reward_held_out"] is not None
    folder = Path(summary["folder"])
    assert {path.name for path in folder.iterdir()} == {"report.md", "summary.json", "reward.png", "kl.png"}
    written = json.loads((folder / "summary.json").read_text())
    for side in ("before", "after"):
        mean, low, high = written[side]["gold score"]
        assert low <= mean <= high
    assert any("simulated annotators ranked" in words for words in said)
    assert said[-1] == f"report: {folder / 'report.md'}"
