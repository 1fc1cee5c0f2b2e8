"""Killed, cancelled, out of disk, or with a damaged checkpoint: resumed, a run ends as if nothing had happened.

"As if nothing had happened" means every metric but the clock's, and every weight, with a difference of exactly 0.
"""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import sqlalchemy as sa
import torch
from rig import Rig
from safetensors.torch import load_file
from tiny import save_tiny_model
from transformers import AutoModelForCausalLM

import training.lm.checkpoint
import training.ppo.update
from data.records import FailureKind, Run, RunKind, RunStatus
from data.runs.state import checkpoints_of, reap_runs, request_cancel, resume_run
from data.store.tables import response
from training.jobs.reporter import Reporter
from training.lm.checkpoint import verify
from training.ppo.update import Metrics

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")
CHAOS = Path(__file__).resolve().parents[1] / "chaos"
ROOT = Path(__file__).resolve().parents[2]
Queue = Callable[[], Run]
KINDS = ("reward", "ppo-shared", "ppo-full", "sft", "rloo")
FURTHER = ("reward-full", "ppo-lora", "dpo", "ppo-shared-qwen3_moe", "rloo-full")

REWARD = {"epochs": 2, "batch_prompts": 2, "micro_batch_tokens": 1, "learning_rate": 3e-3, "eval_every": 3}
FINETUNE = {"epochs": 2, "batch_size": 4, "micro_batch_size": 2, "learning_rate": 3e-3}
RLOO = {"iterations": 8, "prompts_per_step": 3, "responses_per_prompt": 2, "max_new_tokens": 6, "learning_rate": 1e-2}
PPO = {"iterations": 7, "learning_rate": 3e-3, "critic_learning_rate": 3e-3, "kl_target": 1.0, "kl_horizon": 40}


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("chaos"))
    yield made
    made.close()


def queued(rig: Rig, kind: str, **changes: Any) -> Run:
    """reward, reward-full, ppo-shared, ppo-lora, ppo-full (of another family: ppo-shared-qwen3_moe), rloo, rloo-full,
    sft or dpo: some ten steps, a checkpoint at every second. Nine prompts: RLOO has seen all after three steps, and
    begins anew in another order."""
    name, _, layout = kind.partition("-")
    words = {"checkpoint_every": 2}
    if name == "ppo":
        layout, _, family = layout.partition("-")
        return rig.queue_ppo(layout, family or "llama", **(words | PPO | changes))
    if name == "rloo":
        words |= {"reward_run": rig.reward(), "adapter": layout or "lora"} | RLOO
        return rig.queue(RunKind.RLOO, **(words | {"snapshot": rig.small_snapshot, "model": rig.model()} | changes))
    more = REWARD | {"adapter": layout or "lora"} if name == "reward" else FINETUNE
    words |= {"snapshot": rig.small_snapshot, "model": rig.model()} | more | changes
    return rig.queue(RunKind(name), **words)


@functools.cache
def unbroken_run(rig: Rig, kind: str, *, with_much: bool = False) -> Run:
    """What nothing happens to: done once for all tests that compare with it."""
    return rig.here(queued(rig, kind, **(MUCH if with_much else {})))


def resumed(rig: Rig, run: Run) -> Run:
    with rig.store.begin() as tx:
        return resume_run(tx, run.id)


def weights_of(rig: Rig, run: Run) -> dict[str, torch.Tensor]:
    """Everything that the run leaves for use: model, critic, adapter."""
    found = {}
    for folder in ("model", "critic", "adapter"):
        for path in sorted((rig.folder(run) / folder).glob("*.safetensors")):
            found |= {f"{folder}/{name}": tensor for name, tensor in load_file(path).items()}
    return found


def assert_as_if_nothing_had_happened(rig: Rig, broken: Run, unbroken: Run) -> None:
    one, other = rig.metrics(broken), rig.metrics(unbroken)
    assert one.keys() == other.keys()
    assert {key: (value, other[key]) for key, value in one.items() if value != other[key]} == {}
    mine, theirs = weights_of(rig, broken), weights_of(rig, unbroken)
    assert mine.keys() == theirs.keys() and mine
    assert max((mine[name] - theirs[name]).abs().max().item() for name in mine) == 0.0
    assert rig.look(broken).result == rig.look(unbroken).result


def resumed_at(rig: Rig, run: Run) -> list[int]:
    return [event.detail["step"] for event in rig.events(run, "resumed_from_checkpoint")]


@pytest.mark.parametrize(
    ("kind", "plan", "steps"),
    [
        ("reward", "1:step:3 2:saving:8", [2, 6]),
        ("ppo-shared", "1:step:1 2:saved:4", [0, 4]),
        pytest.param("ppo-full", "1:step:5", [4], marks=pytest.mark.long),
        pytest.param("rloo", "1:saved:6", [6], marks=pytest.mark.long),
        pytest.param("sft", "1:saved:2", [2], marks=pytest.mark.long),
    ],
)
def test_killed_and_resumed_equals_unbroken(
    kind: str, plan: str, steps: list[int], rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child is killed by SIGKILL at each planned moment; a worker finds it dead, the run is resumed, the
    last time in this process."""
    unbroken = unbroken_run(rig, kind)
    monkeypatch.setenv("PYTHONPATH", str(CHAOS))
    monkeypatch.setenv("CHAOS", plan)
    run = queued(rig, kind)
    for _ in plan.split():
        died = rig.in_child(run, RunStatus.FAILED)
        assert died.error_kind is FailureKind.ERROR and "killed from outside (signal 9)" in (died.error_message or "")
        resumed(rig, run)
    done = rig.here(run)
    assert done.attempt == len(plan.split()) + 1
    assert resumed_at(rig, run) == steps
    assert_as_if_nothing_had_happened(rig, run, unbroken)
    assert len(list((rig.folder(run) / "checkpoints").iterdir())) == 2


def stop_after(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Ask a run in this process to stop, as SIGTERM does, once it has reported the step."""
    original = Reporter.step

    def step_and_stop(self: Reporter, number: int, *words: Any, **more: Any) -> None:
        original(self, number, *words, **more)
        if number == step:
            self.request_stop()

    monkeypatch.setattr(Reporter, "step", step_and_stop)


@pytest.mark.parametrize("kind", [*KINDS, *(pytest.param(each, marks=pytest.mark.long) for each in FURTHER)])
def test_cancelled_and_resumed_equals_unbroken(kind: str, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    unbroken = unbroken_run(rig, kind)
    run, stopped_at = queued(rig, kind), []
    for step in (1, 3):
        with monkeypatch.context() as patch:
            stop_after(patch, step)
            stopped = rig.here(run, RunStatus.CANCELLED)
        assert stopped.step in (step, step + 1)  # TRL's trainers report a step when they have looked already
        with rig.store.read() as tx:
            assert checkpoints_of(tx, run.id)[0].step == stopped.step  # nothing that was done is lost
        stopped_at.append(stopped.step)
        resumed(rig, run)
    rig.here(run)
    assert resumed_at(rig, run) == stopped_at
    assert_as_if_nothing_had_happened(rig, run, unbroken)


@pytest.mark.parametrize("look", [1, 12, *(pytest.param(each, marks=pytest.mark.long) for each in (5, 40))])
def test_cancelled_anywhere_in_a_rollout_equals_unbroken(look: int, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """`look`: at which time that the loop asks whether it should stop."""
    unbroken = unbroken_run(rig, "ppo-shared")
    run = queued(rig, "ppo-shared")
    with monkeypatch.context() as patch:
        left = [look]

        def should_stop(self: Reporter) -> bool:
            left[0] -= 1
            return left[0] <= 0

        patch.setattr(Reporter, "should_stop", should_stop)
        rig.here(run, RunStatus.CANCELLED)
    resumed(rig, run)
    rig.here(run)
    assert_as_if_nothing_had_happened(rig, run, unbroken)


MUCH = {
    "iterations": 4, "responses_per_prompt": 2, "minibatches": 2, "ppo_epochs": 2, "micro_batch_tokens": 64,
    "surrogate": "penalty", "running_scores": True, "eval_every": 1, "eval_prompts": 2,
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "passes"),
    [("ppo-shared", [1, 9]), ("ppo-shared", [18]), ("ppo-full", [12, 15])],
    ids=["at once, then later", "in the second iteration", "full"],
)
def test_cancelled_inside_an_update_equals_unbroken(
    kind: str, passes: list[int], rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody asks to stop during a backward pass. No other one comes, what was learnt of the rollout is kept, and the
    run goes on with it: not one pass is done again but those of the optimizer step that was broken off."""
    second = rig.reward("full" if kind == "ppo-shared" else "lora").id
    n_passes, stop_at = [0], [0]

    def counted(original: Callable[..., Metrics]) -> Callable[..., Metrics]:
        def backward(*words: Any) -> Metrics:
            figures = original(*words)
            n_passes[0] += 1
            if n_passes[0] == stop_at[0]:
                signal.raise_signal(signal.SIGTERM)
            return figures

        return backward

    for name in ("backward_critic", "backward_policy"):
        monkeypatch.setattr(f"training.ppo.update.{name}", counted(getattr(training.ppo.update, name)))
    unbroken = rig.here(queued(rig, kind, **MUCH, second_reward_run=second))
    in_all, run = n_passes[0], queued(rig, kind, **MUCH, second_reward_run=second)
    n_passes[0] = 0
    for each in passes:
        stop_at[0] = n_passes[0] + each
        stopped = rig.here(run, RunStatus.CANCELLED)
        assert n_passes[0] == stop_at[0]
        with rig.store.read() as tx:
            assert checkpoints_of(tx, run.id)[0].step == stopped.step
        resumed(rig, run)
    rig.here(run)
    of_a_step = in_all / (4 * 4)
    assert in_all < n_passes[0] + 1 <= in_all + len(passes) * of_a_step + 1
    restored = [event.detail["restored"] for event in rig.events(run, "resumed_from_checkpoint")]
    assert all("unfinished" in names for names in restored) and len(restored) == len(passes)
    assert_as_if_nothing_had_happened(rig, run, unbroken)


@pytest.mark.parametrize("look", [20, *(pytest.param(each, marks=pytest.mark.long) for each in (3, 60))])
def test_cancelled_anywhere_with_much_asked_for_equals_unbroken(
    look: int, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In evaluations, rollouts and updates alike, every few times that the loop asks whether it should stop."""
    unbroken = unbroken_run(rig, "ppo-shared", with_much=True)
    run = queued(rig, "ppo-shared", **MUCH)
    left = [0]

    def should_stop(_self: Reporter) -> bool:
        left[0] -= 1
        return left[0] == 0

    for _ in range(3):
        with monkeypatch.context() as patch:
            left[0] = look
            patch.setattr(Reporter, "should_stop", should_stop)
            rig.here(run, RunStatus.CANCELLED)
        resumed(rig, run)
    rig.here(run)
    assert_as_if_nothing_had_happened(rig, run, unbroken)


def test_a_run_is_cancelled_through_the_store_and_goes_on_later(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a person does it: ask while a worker's child is at work, then resume."""
    monkeypatch.setenv("PYTHONPATH", str(CHAOS))
    run = queued(rig, "ppo-full", iterations=400, max_new_tokens=24, checkpoint_every=1000)

    def ask() -> None:
        while rig.look(run).step < 2:
            time.sleep(0.05)
        with rig.store.begin() as tx:
            request_cancel(tx, run.id)

    asking = threading.Thread(target=ask)
    asking.start()
    stopped = rig.in_child(run, RunStatus.CANCELLED)
    asking.join()
    assert 2 <= stopped.step < 400
    (saved,) = (rig.folder(run) / "checkpoints").iterdir()
    assert verify(saved) is None
    assert saved.name.startswith(f"step-{stopped.step:08d}")


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("reward", "ppo-shared"):
        unbroken = unbroken_run(rig, kind)
        run = queued(rig, kind)
        with monkeypatch.context() as patch:
            stop_after(patch, 5)
            rig.here(run, RunStatus.CANCELLED)
        older, newest = sorted((rig.folder(run) / "checkpoints").iterdir())
        damaged = next(newest.glob("*optimizer.safetensors"))
        content = bytearray(damaged.read_bytes())
        content[len(content) // 2] ^= 1
        damaged.write_bytes(content)
        resumed(rig, run)
        rig.here(run)
        (event,) = rig.events(run, "checkpoint_broken")
        assert f"step-{event.detail['step']:08d}" == newest.name[:13]
        assert event.detail["problem"] == f"{damaged.name} has other contents than when it was written"
        assert [f"step-{step:08d}" for step in resumed_at(rig, run)] == [older.name[:13]]
        assert_as_if_nothing_had_happened(rig, run, unbroken)


@pytest.mark.parametrize("kind", ["reward", "ppo-lora", "sft"])
def test_a_model_that_was_replaced_meanwhile_is_not_gone_on_with(
    kind: str, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checkpoints of adapters hold the adapters alone: under another base they would mean something else."""
    model = rig.model(f"llama-{kind}")
    run = queued(rig, kind, model=model)
    with monkeypatch.context() as patch:
        stop_after(patch, 3)
        rig.here(run, RunStatus.CANCELLED)
    resumed(rig, run)
    save_tiny_model(Path(model), seed=5)
    refused = rig.here(run, RunStatus.FAILED)
    assert refused.error_kind is FailureKind.BAD_INPUT
    assert f"model {model!r} has changed since the checkpoint" in (refused.error_message or "")
    save_tiny_model(Path(model))
    resumed(rig, run)
    rig.here(run)


@pytest.fixture
def small_disk() -> Iterator[Callable[[Path, int], None]]:
    """Give a folder a file system of its own with so many bytes; a second call changes its size."""
    mounted: list[Path] = []

    def give(folder: Path, size: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        options = f"remount,size={size}" if folder in mounted else f"size={size}"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True, capture_output=True)
        mounted.append(folder)

    yield give
    for folder in set(mounted):
        subprocess.run(["umount", str(folder)], check=True)


def can_mount(folder: Path) -> bool:
    if os.geteuid() != 0 or not sys.platform.startswith("linux"):
        return False
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], check=False, capture_output=True
    )
    if made.returncode == 0:
        subprocess.run(["umount", str(folder)], check=True)
    return made.returncode == 0


@pytest.mark.parametrize("kind", ["reward", "ppo-full"])
def test_a_full_disk_at_a_checkpoint_costs_nothing_but_time(
    kind: str,
    rig: Rig,
    tmp_path: Path,
    small_disk: Callable[[Path, int], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unbroken = unbroken_run(rig, kind)
    size = max(
        sum(path.stat().st_size for path in each.iterdir()) for each in (rig.folder(unbroken) / "checkpoints").iterdir()
    )
    run, is_real = queued(rig, kind), can_mount(tmp_path / "probe")
    with monkeypatch.context() as patch:
        if is_real:  # room for two checkpoints and a half: the third does not fit beside them
            small_disk(rig.folder(run) / "checkpoints", int(2.5 * size))
        else:
            left, original = [2 * 3], training.lm.checkpoint.save_file

            def save_file(tensors: Any, path: Path) -> None:
                left[0] -= 1
                if left[0] < 0:
                    raise training.lm.checkpoint.SafetensorError("I/O error: No space left on device (os error 28)")
                original(tensors, path)

            patch.setattr(training.lm.checkpoint, "save_file", save_file)
        failed = rig.here(run, RunStatus.FAILED)
    assert failed.error_kind is FailureKind.DISK_FULL
    assert "older checkpoints are intact: make room, then resume" in (failed.error_message or "")
    left_there = sorted((rig.folder(run) / "checkpoints").iterdir())
    assert left_there and all(path.name.startswith("step-") and verify(path) is None for path in left_there)
    if is_real:
        small_disk(rig.folder(run) / "checkpoints", 10 * size)
    resumed(rig, run)
    rig.here(run)
    assert_as_if_nothing_had_happened(rig, run, unbroken)


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        ("reward", "training.reward.save"),
        ("ppo-shared", "training.ppo.save_roles"),
        ("dpo", "training.methods.finetune"),
    ],
)
def test_a_run_that_failed_only_at_saving_its_model_has_nothing_to_learn_again(
    kind: str, place: str, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    unbroken = unbroken_run(rig, kind)
    run = queued(rig, kind)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device", "model.safetensors")

    with monkeypatch.context() as patch:
        patch.setattr(f"{place}.save_model", full)
        failed = rig.here(run, RunStatus.FAILED)
    assert failed.error_kind is FailureKind.DISK_FULL
    resumed(rig, run)
    done = rig.here(run)
    assert resumed_at(rig, run) == [done.total_steps]
    assert_as_if_nothing_had_happened(rig, run, unbroken)


@pytest.mark.parametrize("kind", ["reward-full", "ppo-full", "sft"])
def test_numbers_that_are_not_finite_stop_the_run_before_a_checkpoint(kind: str, rig: Rig) -> None:
    words = {"adapter": "full"} if kind == "sft" else {}
    run = rig.here(queued(rig, kind, learning_rate=1e30, checkpoint_every=1, **words), RunStatus.FAILED)
    assert run.error_kind is FailureKind.NOT_FINITE
    spoilt = rig.events(run, "not_finite")
    with rig.store.read() as tx:
        saved = checkpoints_of(tx, run.id)
    if spoilt:
        assert all(each.step < spoilt[0].detail["step"] for each in saved)
        assert spoilt[0].detail["metrics"]
    for each in saved:
        folder = rig.folder(run) / "checkpoints" / each.folder
        for path in folder.glob("*.safetensors"):
            assert all(
                torch.isfinite(tensor).all() for tensor in load_file(path).values() if tensor.is_floating_point()
            )


def test_a_model_that_is_spoilt_from_the_start_is_told(rig: Rig) -> None:
    spoilt = rig.model("llama-spoilt")
    model = AutoModelForCausalLM.from_pretrained(spoilt)
    with torch.no_grad():
        model.model.norm.weight.fill_(float("nan"))
    model.save_pretrained(spoilt)
    for kind in ("reward", "sft", "dpo"):
        run = rig.here(queued(rig, kind, model=spoilt), RunStatus.FAILED)
        assert run.error_kind is FailureKind.NOT_FINITE, kind
        (event,) = rig.events(run, "not_finite")
        assert any(name.endswith("loss") for name in event.detail["metrics"])  # and not its last good value
        assert not (rig.folder(run) / "checkpoints").exists()
    run = rig.here(queued(rig, "ppo-lora", model=spoilt), RunStatus.FAILED)
    assert run.error_kind is FailureKind.NOT_FINITE


def test_a_killed_sampling_run_draws_the_same_and_doubles_nothing(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def texts(run: Run) -> list[tuple[int, str]]:
        with rig.store.read() as tx:
            rows = tx.rows(sa.select(response.c.sample_index, response.c.text).where(response.c.run_id == run.id))
        return sorted((row.sample_index, row.text) for row in rows)

    words = {"model": rig.model(), "k": 3, "max_new_tokens": 6, "batch_size": 2}
    unbroken = rig.here(rig.queue(RunKind.SAMPLE, project=rig.project(8), only_new=False, **words))
    monkeypatch.setenv("PYTHONPATH", str(CHAOS))
    monkeypatch.setenv("CHAOS", "1:step:4")
    run = rig.queue(RunKind.SAMPLE, project=rig.project(8), only_new=False, **words)
    rig.in_child(run, RunStatus.FAILED)
    assert len(texts(run)) == 12
    resumed(rig, run)
    done = rig.here(run)
    assert texts(run) == texts(unbroken)
    assert done.result == unbroken.result
    assert rig.metrics(run) == rig.metrics(unbroken)


WORKER = """
import sys
from data.files.paths import open_home
from data.store import open_store
from training.jobs.worker import Pace, Worker
home = open_home(sys.argv[1])
store = open_store(home.store_url)
Worker(store, home, Pace(poll_s=0.05, heartbeat_s=0.2, lease_s=2.0)).run()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux kills a child with its worker")
def test_when_the_worker_is_killed_its_child_dies_and_the_run_can_be_resumed(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    unbroken = unbroken_run(rig, "ppo-shared")
    run = queued(rig, "ppo-shared")
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{CHAOS}", "CHAOS": "1:hang:3"}
    worker = subprocess.Popen([sys.executable, "-c", WORKER, str(rig.home.root)], env=environment)
    try:
        wait_until(lambda: rig.look(run).step == 3)
        (child,) = psutil.Process(worker.pid).children()
        assert "training.jobs.child" in child.cmdline()
        os.kill(worker.pid, signal.SIGKILL)
        wait_until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)
    finally:
        worker.kill()
        worker.wait()
    assert rig.look(run).status is RunStatus.RUNNING  # nobody has looked yet

    def is_reaped() -> bool:
        with rig.store.begin() as tx:
            return run.id in reap_runs(tx)

    wait_until(is_reaped)
    lost = rig.look(run, RunStatus.FAILED)
    assert lost.error_kind is FailureKind.WORKER_LOST
    resumed(rig, run)
    rig.here(run)
    assert resumed_at(rig, run) == [2]
    assert_as_if_nothing_had_happened(rig, run, unbroken)


def wait_until(is_so: Callable[[], bool], timeout_s: float = 60.0) -> None:
    end = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < end, "it did not come about in time"
        time.sleep(0.05)
