"""Selection on the command line: a real reward model scores what waits, it comes in order, the report follows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import factories as make
import pytest
from cli_runner import Cli
from rig import Rig

from data.labels.scores import save_scores
from data.labels.tasks import get_task
from data.records import RunKind
from data.runs.state import list_runs

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("selection"))
    yield made
    made.close()


@pytest.fixture
def cli(rig: Rig, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(Path(rig.home.root), capsys)


def test_what_waits_is_scored_and_put_in_order(cli: Cli, rig: Rig) -> None:
    project, reward = make.make_project(rig.store, "To select"), rig.reward()
    for number in range(8):
        make.make_task(rig.store, project, "z" * number, "a", prompt=f"p {number}")
    words = ("selection", "apply", "To select", "--reward-run", reward.id[-6:], "--control", "0.5")
    made = cli.make(*words)
    assert (made["by"], made["counts"]) == (
        "low_margin", {"tasks": 8, "random": 4, "selected": 4, "without_scores": 0}
    )  # fmt: skip
    assert cli.make(*words)["counts"] == made["counts"]
    with rig.store.read() as tx:
        assert len(list_runs(tx, project_id=project.id, kinds=(RunKind.SCORE,))) == 1  # nothing was left to score
    said = cli("selection", "report", "To select")
    assert "Too early to say whether selection beat random" in said.out
    assert "low_margin" in said.out and "random" in said.out
    found = cli.make("selection", "report", "To select")
    assert found["reward_run_ids"] == [reward.id] and found["difference"] is None


def test_one_model_can_not_disagree_and_a_share_has_limits(cli: Cli, rig: Rig) -> None:
    project, reward = make.make_project(rig.store, "Alone"), rig.reward()
    task = make.make_task(rig.store, project, "a", "b")
    with rig.store.begin() as tx:
        save_scores(tx, reward.id, {each.id: 1.0 for each in get_task(tx, task.id).responses})
    words = ("selection", "apply", "Alone", "--reward-run", reward.id)
    assert "or two reward runs or more" in cli.refuse(*words, "--by", "disagreement")
    assert "control" in cli.refuse(*words, "--control", "0")
    assert "nothing has been selected" in cli.refuse("selection", "report", "Alone")
    assert "no run" in cli.refuse("selection", "apply", "Alone", "--reward-run", "nosuchrun")
