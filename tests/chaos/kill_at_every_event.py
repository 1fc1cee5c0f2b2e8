"""Save a checkpoint again and again, each time killed at the next file event; say after each what is left.

`python kill_at_every_event.py PRISTINE SCRATCH RUN_ID`: PRISTINE is a home whose run holds a checkpoint of step 1.
Writes one JSON object a line. A file event is anything that Python tells its audit hooks about a path in the run's
folder, and the moments inside the writing of tensors, of which Python is told nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import torch

import training.lm.checkpoint
from data.files.paths import Home
from data.runs.state import get_run
from data.store import Store, open_store
from training.jobs.reporter import Reporter
from training.lm.checkpoint import State, newest_checkpoint, save_checkpoint


def state_of(step: int) -> State:
    tensors = {
        name: {"a": torch.full((500,), float(step)), "b": torch.arange(step + 3)} for name in ("policy", "random")
    }
    return State(step, tensors, {"kl_coef": step / 10}, {"note.json": json.dumps({"step": step})})


def is_sound(state: State) -> bool:
    wanted = state_of(state.step)
    same = all(
        torch.equal(state.tensors[name][key], tensor)
        for name, tensors in wanted.tensors.items()
        for key, tensor in tensors.items()
    )
    return same and state.values == wanted.values


def open_reporter(home: Path, run_id: str) -> tuple[Store, Reporter]:
    store = open_store(f"sqlite:///{home / 'rankloop.db'}", migrate=False)
    with store.read() as tx:
        run = get_run(tx, run_id)
    return store, Reporter(store, Home(home), run)


class Killer:
    """Counts file events under a folder and kills this process at the one with the given number."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder, self.left = str(folder), number

    def tick(self) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        paths = [str(each) for each in arguments if isinstance(each, str | os.PathLike)]
        is_of_files = event == "open" or event.startswith(("os.", "shutil."))
        if is_of_files and any(path.startswith(self.folder) for path in paths):
            self.tick()

    def save_file(self, tensors: dict[str, Any], path: Path) -> None:
        real_save_file(tensors, path)
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        self.tick()
        path.write_bytes(whole)
        self.tick()


real_save_file = training.lm.checkpoint.save_file


def save_and_die(home: Path, run_id: str, number: int) -> None:
    _, reporter = open_reporter(home, run_id)
    killer = Killer(reporter.folder, number)
    training.lm.checkpoint.save_file = killer.save_file
    sys.addaudithook(killer.hook)
    save_checkpoint(reporter, state_of(2))


def look(home: Path, run_id: str) -> dict[str, Any]:
    store, reporter = open_reporter(home, run_id)
    found = newest_checkpoint(reporter)
    report = {"step": found.step if found else None, "sound": found is not None and is_sound(found)}
    save_checkpoint(reporter, state_of(2))  # what a resumed run does
    again = newest_checkpoint(reporter)
    report |= {"step_after": again.step if again else None, "sound_after": again is not None and is_sound(again)}
    report["folders"] = sorted(path.name for path in reporter.checkpoint_root.iterdir())
    store.close()
    return report


def main(pristine: Path, scratch: Path, run_id: str) -> None:
    number, is_killed = 0, True
    while is_killed:
        number += 1
        home = scratch / str(number)
        shutil.copytree(pristine, home)
        child = os.fork()
        if child == 0:
            save_and_die(home, run_id, number)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        is_killed = os.WIFSIGNALED(status)
        facts = {"number": number, "killed": is_killed, "status": status}
        sys.stdout.write(json.dumps(facts | look(home, run_id)) + "\n")
        shutil.rmtree(home)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
