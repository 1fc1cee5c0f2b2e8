"""Checkpoints: whole on disk or not there at all, and what comes back is what was saved, bit by bit."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import factories as make
import numpy as np
import pytest
import torch
from torch import nn

import training.lm.checkpoint
from data.errors import Fenced, InvalidInput
from data.files.paths import Home
from data.records import RunStatus
from data.runs.metrics import metrics_of
from data.runs.state import checkpoints_of, claim_run, events_of, finish_run, get_run, resume_run
from data.store import Store
from training.jobs.reporter import Reporter
from training.lm.checkpoint import (
    MANIFEST,
    STATE,
    State,
    newest_checkpoint,
    pack_optimizer,
    pack_random_state,
    restore,
    save_checkpoint,
    unpack_optimizer,
    unpack_random_state,
    verify,
)

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def reporter(sqlite_store: Store, home: Home) -> Reporter:
    make.make_run(sqlite_store)
    with sqlite_store.begin() as tx:
        run = claim_run(tx, "test worker")
    assert run is not None
    return Reporter(sqlite_store, home, run)


def state_of(step: int) -> State:
    tensors = {
        "policy": {"a.weight": torch.full((4, 3), float(step)), "half": torch.tensor([1.5], dtype=torch.bfloat16)},
        "random": {"torch": torch.arange(step, dtype=torch.uint8), "big": torch.tensor([2**40])},
    }
    return State(step, tensors, {"kl_coef": 0.1 * step, "nested": {"list": [1, None]}}, {"note.json": f"[{step}]"})


def assert_equal(found: State | None, wanted: State) -> None:
    assert found is not None
    assert (found.step, found.values) == (wanted.step, wanted.values)
    assert found.tensors.keys() == wanted.tensors.keys()
    for name, tensors in wanted.tensors.items():
        assert found.tensors[name].keys() == tensors.keys()
        for key, tensor in tensors.items():
            assert found.tensors[name][key].dtype == tensor.dtype
            assert torch.equal(found.tensors[name][key], tensor)


def test_what_was_saved_comes_back(reporter: Reporter) -> None:
    folder = save_checkpoint(reporter, state_of(3))
    assert_equal(newest_checkpoint(reporter), state_of(3))
    assert (folder / "note.json").read_text() == "[3]"
    assert verify(folder) is None


def test_only_safetensors_and_json_are_on_the_disk(reporter: Reporter) -> None:
    folder = save_checkpoint(reporter, state_of(1))
    assert {path.suffix for path in folder.iterdir()} == {".safetensors", ".json"}
    manifest = json.loads((folder / MANIFEST).read_text())
    assert set(manifest["files"]) == {path.name for path in folder.iterdir()} - {MANIFEST}


def test_weights_are_written_without_a_copy_of_them(reporter: Reporter, monkeypatch: pytest.MonkeyPatch) -> None:
    weight = nn.Parameter(torch.zeros(8))
    given: list[int] = []
    real = training.lm.checkpoint.save_file
    monkeypatch.setattr(
        training.lm.checkpoint,
        "save_file",
        lambda tensors, path: given.extend(each.data_ptr() for each in tensors.values()) or real(tensors, path),
    )
    save_checkpoint(reporter, State(1, {"policy": {"w": weight}}))
    assert given == [weight.data_ptr()]


def test_the_two_newest_are_kept_and_nothing_else_is_left(reporter: Reporter) -> None:
    for leftover in (".staging-00000009-1", "step-00000009-0"):
        (reporter.checkpoint_root / leftover).mkdir(parents=True)
    for step in (1, 2, 3, 4):
        save_checkpoint(reporter, state_of(step))
    assert sorted(path.name[:13] for path in reporter.checkpoint_root.iterdir()) == ["step-00000003", "step-00000004"]
    with reporter.store.read() as tx:
        assert [each.step for each in checkpoints_of(tx, reporter.run.id)] == [4, 3]
        assert [event.detail["step"] for event in events_of(tx, reporter.run.id, kinds=("checkpoint",))] == [1, 2, 3, 4]


def test_the_same_step_may_be_saved_again(reporter: Reporter) -> None:
    save_checkpoint(reporter, state_of(1))
    save_checkpoint(reporter, state_of(2))
    changed = state_of(2)
    changed.values["kl_coef"] = 7.0
    save_checkpoint(reporter, changed)
    assert_equal(newest_checkpoint(reporter), changed)
    assert len(list(reporter.checkpoint_root.iterdir())) == 2


def test_a_home_that_was_moved_still_has_its_checkpoints(reporter: Reporter, tmp_path: Path) -> None:
    save_checkpoint(reporter, state_of(1))
    moved = tmp_path / "elsewhere"
    shutil.copytree(reporter.home.root / "runs", moved / "runs")
    shutil.rmtree(reporter.home.root / "runs")
    assert_equal(newest_checkpoint(Reporter(reporter.store, Home(moved), reporter.run)), state_of(1))


@pytest.mark.parametrize("name", ["policy.safetensors", "random.safetensors", "note.json", STATE, MANIFEST])
def test_a_flipped_byte_anywhere_is_seen_or_harmless(name: str, reporter: Reporter) -> None:
    folder = save_checkpoint(reporter, state_of(2))
    whole = (folder / name).read_bytes()
    rng, n_seen = random.Random(0), 0
    for _ in range(60):
        place = rng.randrange(len(whole))
        (folder / name).write_bytes(
            whole[:place] + bytes([whole[place] ^ (1 << rng.randrange(8))]) + whole[place + 1 :]
        )
        problem = verify(folder)
        n_seen += problem is not None
        if problem is None:  # only in the manifest may a byte not matter, such as in the step that it names
            assert name == MANIFEST
            with reporter.store.begin() as tx:
                assert checkpoints_of(tx, reporter.run.id)
            assert_equal(newest_checkpoint(reporter), state_of(2))
    assert n_seen == 60 or (name == MANIFEST and n_seen > 30)


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda folder: (folder / "policy.safetensors").unlink(), "policy.safetensors is missing"),
        (lambda folder: (folder / STATE).write_text("{}"), "state.json is missing or has another size"),
        (lambda folder: (folder / MANIFEST).unlink(), "no readable manifest"),
        (lambda folder: (folder / MANIFEST).write_text("[]"), "no readable manifest"),
        (lambda folder: (folder / MANIFEST).write_text('{"files": {}}'), "does not name state.json"),
        (lambda folder: (folder / MANIFEST).write_text('{"files": {"state.json": {}}}'), "another size"),
        (shutil.rmtree, "no readable manifest"),
    ],
)
def test_a_broken_one_is_recorded_and_passed_over(spoil: object, problem: str, reporter: Reporter) -> None:
    save_checkpoint(reporter, state_of(1))
    spoil(save_checkpoint(reporter, state_of(2)))  # type: ignore[operator]
    assert_equal(newest_checkpoint(reporter), state_of(1))
    with reporter.store.read() as tx:
        (event,) = events_of(tx, reporter.run.id, kinds=("checkpoint_broken",))
    assert event.detail["step"] == 2
    assert problem in event.detail["problem"]


def test_a_broken_one_does_not_push_a_good_one_out(reporter: Reporter) -> None:
    for step in (1, 2):
        shutil.rmtree(save_checkpoint(reporter, state_of(10 + step)))
    assert newest_checkpoint(reporter) is None
    save_checkpoint(reporter, state_of(1))
    save_checkpoint(reporter, state_of(2))
    shutil.rmtree(reporter.checkpoint_root / "step-00000002-1")
    assert_equal(newest_checkpoint(reporter), state_of(1))


def test_an_attempt_without_a_checkpoint_starts_anew_also_in_its_curves(reporter: Reporter) -> None:
    for step in (0, 1, 2):
        reporter.step(step, 10, {"reward/loss": float(step)})
    assert newest_checkpoint(reporter) is None  # the first attempt has nothing to forget
    with reporter.store.begin() as tx:
        assert len(metrics_of(tx, reporter.run.id)) == 3
        finish_run(tx, reporter.run.id, reporter.run.epoch, RunStatus.CANCELLED)
        resume_run(tx, reporter.run.id)
        run = claim_run(tx, "another")
    assert run is not None and run.attempt == 2
    again = Reporter(reporter.store, reporter.home, run)
    assert newest_checkpoint(again) is None
    with reporter.store.read() as tx:
        assert [(point.step, point.value) for point in metrics_of(tx, run.id)] == [(0, 0.0)]
        assert get_run(tx, run.id).step == 0


def test_a_worker_that_lost_its_run_registers_nothing(reporter: Reporter) -> None:
    save_checkpoint(reporter, state_of(1))
    with reporter.store.begin() as tx:
        finish_run(tx, reporter.run.id, reporter.run.epoch, RunStatus.CANCELLED)
    with pytest.raises(Fenced):
        save_checkpoint(reporter, state_of(2))
    with reporter.store.read() as tx:
        assert [each.step for each in checkpoints_of(tx, reporter.run.id)] == [1]
    assert verify(reporter.checkpoint_root / "step-00000001-1") is None


def test_a_full_disk_leaves_what_was_there(reporter: Reporter, monkeypatch: pytest.MonkeyPatch) -> None:
    save_checkpoint(reporter, state_of(1))

    def full(_tensors: object, path: Path) -> None:
        path.write_bytes(b"half")
        raise training.lm.checkpoint.SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(training.lm.checkpoint, "save_file", full)
    with pytest.raises(OSError, match="No space left on device") as caught:
        save_checkpoint(reporter, state_of(2))
    assert caught.value.errno == errno.ENOSPC
    assert [path.name for path in reporter.checkpoint_root.iterdir()] == ["step-00000001-1"]
    assert_equal(newest_checkpoint(reporter), state_of(1))


@pytest.mark.slow
def test_killed_at_every_file_event_a_sound_checkpoint_is_left(reporter: Reporter, tmp_path: Path) -> None:
    sys.path.insert(0, str(ROOT / "tests" / "chaos"))
    try:
        from kill_at_every_event import state_of as chaos_state
    finally:
        sys.path.pop(0)
    save_checkpoint(reporter, chaos_state(1))
    root, pristine = reporter.home.root, tmp_path / "pristine"
    shutil.copytree(root, pristine, ignore=shutil.ignore_patterns("pristine"))
    script, environment = ROOT / "tests" / "chaos" / "kill_at_every_event.py", os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(script), str(pristine), str(tmp_path / "scratch"), reporter.run.id]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(reports) > 20
    *killed, last = reports
    assert all(report["killed"] for report in killed)
    assert (last["killed"], last["status"], last["step"]) == (False, 0, 2)
    assert {report["step"] for report in killed} == {1, 2}  # before, and after the new one was registered
    for report in reports:
        assert report["sound"] and report["sound_after"], report
        assert report["step_after"] == 2
        assert len(report["folders"]) == 2, report


def test_everything_is_on_the_disk_before_the_folder_gets_its_name(
    reporter: Reporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    rename = Path.rename

    def synced(handle: int) -> None:
        done.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name)

    monkeypatch.setattr(training.lm.checkpoint.os, "fsync", synced)
    monkeypatch.setattr(Path, "rename", lambda self, target: done.append("renamed") or rename(self, target))
    folder = save_checkpoint(reporter, state_of(1))
    *files, manifest, staging, renamed, root = done
    assert sorted(files) == sorted({path.name for path in folder.iterdir()} - {MANIFEST})
    assert (manifest, staging, renamed, root) == (MANIFEST, ".staging-00000001-1", "renamed", "checkpoints")


def test_an_optimizer_comes_back_to_the_last_bit(reporter: Reporter) -> None:
    def learn(model: nn.Linear, optimizer: torch.optim.Optimizer, n_steps: int) -> None:
        for number in range(n_steps):
            optimizer.zero_grad()
            model(torch.full((1, 3), number + 1.0)).square().sum().backward()
            optimizer.step()

    def made() -> tuple[nn.Linear, torch.optim.Optimizer]:
        torch.manual_seed(0)
        model = nn.Linear(3, 2)
        return model, torch.optim.AdamW(model.parameters(), lr=0.1, betas=(0.9, 0.95), eps=1e-5)

    unbroken, optimizer = made()
    learn(unbroken, optimizer, 3)
    tensors, values = pack_optimizer(optimizer)
    weights = {name: each.detach() for name, each in unbroken.named_parameters()}
    save_checkpoint(reporter, State(3, {"model": weights, "optimizer": tensors}, {"optimizer": values}))
    learn(unbroken, optimizer, 2)
    found = newest_checkpoint(reporter)
    assert found is not None
    for with_state in (True, False):
        resumed, optimizer = made()
        resumed.load_state_dict(found.tensors["model"])
        if with_state:
            unpack_optimizer(optimizer, found.tensors["optimizer"], found.values["optimizer"])
        learn(resumed, optimizer, 2)
        assert torch.equal(resumed.weight, unbroken.weight) == with_state


def test_an_optimizer_of_other_parameters_is_refused() -> None:
    one = torch.optim.AdamW(nn.Linear(3, 2).parameters())
    other = torch.optim.AdamW([nn.Parameter(torch.zeros(1))])
    with pytest.raises(InvalidInput, match="optimizer does not fit this run"):
        unpack_optimizer(other, *pack_optimizer(one))


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        ({"c": torch.ones(2)}, "1 weights find no place, such as 'c'"),
        ({"a": None}, "1 weights are missing, such as 'a'"),
        ({"a": torch.ones(1)}, r"'a' is \(1,\), not \(2,\)"),  # torch would spread it over both places
    ],
)
def test_weights_of_another_model_are_refused(spoil: dict[str, torch.Tensor | None], reason: str) -> None:
    parameters = {"a": nn.Parameter(torch.zeros(2)), "b": nn.Parameter(torch.zeros(3))}
    saved = {"a": torch.ones(2), "b": torch.ones(3)} | spoil
    with pytest.raises(InvalidInput, match=rf"the checkpoint's policy has other weights.*{reason}.*start a new run"):
        restore(parameters, {name: each for name, each in saved.items() if each is not None}, "policy")
    assert all(float(each.detach().sum()) == 0 for each in parameters.values()), "nothing is put back by halves"
    restore(parameters, {"a": torch.ones(2), "b": torch.ones(3)}, "policy")
    assert all(bool((each == 1).all()) for each in parameters.values())


@pytest.mark.parametrize(("place", "shape"), [(1, (2,)), (0, (3,))])
def test_an_optimizers_state_without_a_parameter_is_refused(place: int, shape: tuple[int, ...]) -> None:
    optimizer = torch.optim.AdamW([nn.Parameter(torch.zeros(2))])
    _, values = pack_optimizer(optimizer)
    with pytest.raises(InvalidInput, match=f"its state {place} finds no parameter of its shape among 1"):
        unpack_optimizer(optimizer, {f"{place}.exp_avg": torch.zeros(shape)}, values)


def test_every_random_source_goes_on_where_it_was(reporter: Reporter) -> None:
    random.seed(1), np.random.seed(2), torch.manual_seed(3)
    random.random(), np.random.randn(), torch.rand(1)
    tensors, values = pack_random_state()
    save_checkpoint(reporter, State(1, {"random": tensors}, {"random": values}))
    wanted = [random.random(), random.gauss(0, 1), np.random.randn(), np.random.rand(), torch.rand(3).tolist()]
    random.seed(9), np.random.seed(9), torch.manual_seed(9)
    found = newest_checkpoint(reporter)
    assert found is not None
    unpack_random_state(found.tensors["random"], found.values["random"])
    assert [random.random(), random.gauss(0, 1), np.random.randn(), np.random.rand(), torch.rand(3).tolist()] == wanted
