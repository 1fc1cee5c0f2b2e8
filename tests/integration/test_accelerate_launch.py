"""A reward run that `accelerate launch` starts, in real processes, by the command that the documentation gives."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from rig import QUICK, Rig

from data.files.paths import HOME_VARIABLE, STORE_VARIABLE
from data.records import FailureKind, Run, RunKind, RunStatus
from data.runs.state import request_cancel, resume_run
from training.jobs.accelerate import Lease

pytestmark = [pytest.mark.float64, pytest.mark.filterwarnings("ignore::FutureWarning")]
ROOT = Path(__file__).parents[2]
WORDS = {"epochs": 2, "learning_rate": 3e-3, "batch_prompts": 4, "micro_batch_tokens": 140, "eval_every": 3}
ACCELERATE = [sys.executable, "-m", "accelerate.commands.accelerate_cli"]


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("launched"))
    yield made
    made.close()


def queued(rig: Rig, **changes: Any) -> Run:
    words = {"snapshot": rig.small_snapshot, "model": rig.model(), "instant_texts": 0, "adapter": "full"}
    return rig.queue(RunKind.REWARD, **(words | WORDS | changes))


def launched(rig: Rig, run: Run) -> subprocess.Popen[str]:
    """The documented command with its two processes, started."""
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^    accelerate (launch .* RUN_ID)$", page, re.MULTILINE)
    words = [*ACCELERATE, *line.replace("RUN_ID", run.id).split()]
    given = {HOME_VARIABLE: str(rig.home.root), STORE_VARIABLE: rig.store.url}
    given |= {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ["PYTHONPATH"]])}
    quiet = {"HF_HUB_OFFLINE": "1"}
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(words, env=os.environ | given | quiet, cwd=rig.home.root, **output)


def until_step(rig: Rig, run: Run, step: int) -> None:
    end = time.monotonic() + 120
    while rig.look(run).step < step:
        assert time.monotonic() < end, "the run makes no steps"
        time.sleep(0.02)


def test_a_launched_run_has_the_curve_of_one_process(rig: Rig) -> None:
    """Nine rankings in steps of four: the last step has one, so that one of the processes has nothing to do in it."""
    alone = rig.here(queued(rig, processes=1))
    run = queued(rig, processes=2)
    process = launched(rig, run)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    shared = rig.look(run, RunStatus.SUCCEEDED)
    whole, found = rig.metrics(alone), rig.metrics(run)
    assert whole.keys() == found.keys()
    for key, value in whole.items():
        assert found[key] == pytest.approx(value, abs=1e-10, rel=1e-10), key
    assert shared.result["held_out"] == pytest.approx(alone.result["held_out"], abs=1e-10)
    assert [event.detail for event in rig.events(run, "processes")] == [{"number": 2}]
    assert [len(rig.events(run, kind)) for kind in ("started", "data", "shared_prompts")] == [1, 1, 1]


def test_another_number_of_processes_is_one_clear_error_and_the_run_stays_queued(rig: Rig) -> None:
    run = queued(rig, processes=1)
    process = launched(rig, run)
    output, _ = process.communicate(timeout=120)
    assert process.returncode != 0
    said = "the configuration says processes = 1, but 2 were launched: launch it with --num_processes 1, or queue it"
    assert output.count(said) == 1, output
    assert rig.look(run, RunStatus.QUEUED).attempt == 0
    with rig.store.begin() as tx:
        request_cancel(tx, run.id)


@pytest.mark.long
@pytest.mark.slow
def test_a_cancel_reaches_every_process_and_a_killed_one_ends_the_run_with_a_word(rig: Rig) -> None:
    run = queued(rig, processes=2, epochs=100, checkpoint_every=1000)
    process = launched(rig, run)
    until_step(rig, run, 2)
    with rig.store.begin() as tx:
        request_cancel(tx, run.id)
    output, _ = process.communicate(timeout=60)
    stopped = rig.look(run, RunStatus.CANCELLED)
    assert 2 <= stopped.step < 300, output

    with rig.store.begin() as tx:
        resume_run(tx, run.id)
    process = launched(rig, run)
    until_step(rig, run, stopped.step + 2)
    (helper,) = [each for each in psutil.Process(process.pid).children() if each.environ()["RANK"] == "1"]
    helper.kill()
    output, _ = process.communicate(timeout=60)
    ended = rig.look(run, RunStatus.FAILED)
    assert ended.error_kind is FailureKind.ERROR
    assert ended.error_message == (
        "another of the 2 processes ended: the output of `accelerate launch` says why, then resume"
    ), output
    (event,) = rig.events(run, "resumed_from_checkpoint")
    assert event.detail["step"] == stopped.step


def test_the_lease_is_renewed_while_the_work_goes_on(rig: Rig) -> None:
    run = queued(rig)
    claimed = rig.claim(run)
    with Lease(rig.store, claimed, QUICK):
        before, end = rig.look(run).heartbeat_at, time.monotonic() + 20
        while rig.look(run).heartbeat_at == before and time.monotonic() < end:
            time.sleep(0.05)
    assert rig.look(run).heartbeat_at > before
    rig.finish(run)
