"""docs/metrics.md and what runs report: the same names, in both directions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rig import Rig

from data.records import Run, RunKind

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"


RLOO = {"iterations": 2, "prompts_per_step": 2, "responses_per_prompt": 2, "max_new_tokens": 4}


def sections() -> dict[str, dict[str, list[str]]]:
    """Heading -> metric -> its other cells."""
    found: dict[str, dict[str, list[str]]] = {}
    heading = ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            heading = line.removeprefix("## ")
            found[heading] = {}
        elif match := re.match(r"\| \[`([a-z0-9_/]+)`\]\([^)]+\) \|", line):
            found[heading][match[1]] = [cell.strip() for cell in line.strip("|").split("|")][1:]
    return found


def ppo_runs(rig: Rig) -> list[Run]:
    """One with everything in its updates, one of an ensemble."""
    ensemble = rig.here(rig.queue(RunKind.REWARD, snapshot=rig.small_snapshot, model=rig.model(), heads=2))
    words = {"iterations": 2, "ptx_coef": 0.1, "surrogate": "penalty"}
    second = {"second_reward_run": f"{rig.reward().id},{ensemble.id}"}
    return [
        rig.here(rig.queue_ppo("shared", **words, **second)),
        rig.here(rig.queue_ppo("shared", reward=ensemble, iterations=1)),
    ]


def test_the_page_names_what_tiny_runs_of_every_kind_report_and_nothing_else(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    words = {"snapshot": rig.small_snapshot, "model": rig.model()}
    judged = words | {"reward_run": rig.reward()}
    project = rig.project(3)
    runs: dict[str, list[Run]] = {
        "Reward runs": [rig.reward()],
        "PPO runs": ppo_runs(rig),
        "SFT runs": [rig.here(rig.queue(RunKind.SFT, **judged))],
        "RLOO runs": [rig.here(rig.queue(RunKind.RLOO, **judged, **RLOO))],
        "DPO runs": [rig.here(rig.queue(RunKind.DPO, **judged))],
        "Sampling runs": [
            rig.here(rig.queue(RunKind.SAMPLE, project=project, model=rig.model(), only_new=False, max_new_tokens=4))
        ],
    }
    for heading, done in runs.items():
        reported = {name for run in done for _, name in rig.metrics(run, with_time=True)}
        assert reported == set(sections()[heading]), heading
    rig.close()


def test_every_metric_has_a_formula_and_says_over_what(tmp_path: Path) -> None:
    for heading, metrics in sections().items():
        for name, cells in metrics.items():
            assert len(cells) == 4, f"{heading}: {name}"
            formula, over, unit, _usual = cells
            assert formula
            assert over or name.endswith(("learning_rate", "coef")), name
            assert unit or name.endswith(
                ("grad_norm", "learning_rate", "ratio", "deviation", "loss", "variance", "coef")
            ), name


def test_every_metric_has_a_chart_of_its_kind() -> None:
    """The curves know every metric of the page: none falls into a chart of its own for want of a better place."""
    from app.widgets.runs.metric_chart import CHARTS, charts_of

    names = {name for metrics in sections().values() for name in metrics}
    titles = {chart.title for chart in CHARTS}
    assert {chart["title"] for chart in charts_of(names)} <= titles
