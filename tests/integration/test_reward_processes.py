"""One reward run in several processes: the same numbers as in one, one report, and no process left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
import torch
from rig import Rig
from safetensors.torch import load_file

from data.records import FailureKind, Run, RunKind, RunStatus
from data.runs.state import request_cancel, resume_run

pytestmark = [pytest.mark.float64, pytest.mark.filterwarnings("ignore::FutureWarning")]
WORDS = {"epochs": 2, "learning_rate": 3e-3, "batch_prompts": 4, "micro_batch_tokens": 140, "eval_every": 3}


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("processes"))
    yield made
    made.close()


def queued(rig: Rig, **changes: Any) -> Run:
    words = {"snapshot": rig.small_snapshot, "model": rig.model(), "instant_texts": 0} | WORDS | changes
    return rig.queue(RunKind.REWARD, **words)


def assert_same(rig: Rig, one: Run, other: Run) -> None:
    """Every reported number, and the model."""
    whole, shared = rig.metrics(one), rig.metrics(other)
    assert whole.keys() == shared.keys()
    for key, value in whole.items():
        assert shared[key] == pytest.approx(value, abs=1e-10, rel=1e-10), key
    assert other.result["held_out"] == pytest.approx(one.result["held_out"], abs=1e-10)
    weights = [load_file(rig.folder(run) / "model" / "model.safetensors") for run in (one, other)]
    assert all(torch.allclose(weights[0][name], weights[1][name], atol=1e-10, rtol=0) for name in weights[0])


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"adapter": "lora"}, id="lora", marks=pytest.mark.long),
        pytest.param({"adapter": "full", "heads": 3}, id="full"),
    ],
)
def test_two_processes_give_the_curve_of_one(changes: dict[str, Any], rig: Rig) -> None:
    """Nine rankings in steps of four: the last step has one, so that one of the processes has nothing to do in it."""
    alone = rig.here(queued(rig, processes=1, **changes))
    shared = rig.in_child(queued(rig, processes=2, **changes))
    assert (alone.step, shared.step) == (6, 6)
    assert_same(rig, alone, shared)
    assert [event.detail for event in rig.events(shared, "processes")] == [{"number": 2}]
    assert len(rig.events(shared, "data")) == len(rig.events(shared, "shared_prompts")) == 1


@pytest.mark.long
def test_three_processes_share_a_step_that_one_could_do_at_once(rig: Rig) -> None:
    words = {"micro_batch_tokens": 4096, "batch_prompts": 8, "epochs": 1, "adapter": "full"}
    alone = rig.here(queued(rig, processes=1, **words))
    assert_same(rig, alone, rig.in_child(queued(rig, processes=3, **words)))


def started(rig: Rig, run: Run) -> threading.Thread:
    """The run in a thread's child, once it has made a step."""
    thread = threading.Thread(target=rig.in_child, args=(run, None))
    thread.start()
    end = time.monotonic() + 120
    while rig.look(run).step < 2 and time.monotonic() < end and thread.is_alive():
        time.sleep(0.02)
    return thread


def helpers() -> list[psutil.Process]:
    children = psutil.Process().children(recursive=True)
    return [each for each in children if each.environ().get("RANKLOOP_HELPER")]


@pytest.mark.long
def test_a_cancelled_run_stops_everywhere_and_goes_on_as_if_it_had_not(rig: Rig) -> None:
    words = {"epochs": 20, "adapter": "full", "checkpoint_every": 7}
    run = queued(rig, processes=2, **words)
    thread = started(rig, run)
    with rig.store.begin() as tx:
        request_cancel(tx, run.id)
    thread.join()
    stopped = rig.look(run, RunStatus.CANCELLED)
    assert 2 <= stopped.step < 60
    assert not helpers()
    with rig.store.begin() as tx:
        resume_run(tx, run.id)
    again = rig.in_child(run)
    assert (again.step, again.attempt) == (60, 2)
    (event,) = rig.events(run, "resumed_from_checkpoint")
    assert event.detail["step"] == stopped.step
    unbroken = rig.in_child(queued(rig, processes=2, **words))
    assert rig.metrics(unbroken) == rig.metrics(again)


def test_a_helper_that_is_killed_ends_the_run_with_a_word(rig: Rig) -> None:
    run = queued(rig, processes=2, epochs=100)
    thread = started(rig, run)
    (helper,) = helpers()
    helper.kill()
    thread.join()
    ended = rig.look(run, RunStatus.FAILED)
    assert ended.error_kind is FailureKind.ERROR
    assert "process 2 of 2 ended with status -9: most likely the machine ran out of memory" in str(ended.error_message)


def test_what_stops_the_first_process_leaves_no_helper(rig: Rig) -> None:
    run = queued(rig, processes=2, model=rig.model("llama-broken"), layers=3)
    ended = rig.in_child(run, RunStatus.FAILED)
    assert "has 2" in (ended.error_message or "")
    assert not helpers()
