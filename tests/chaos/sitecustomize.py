"""What goes wrong in a child process: Python imports this at its start where PYTHONPATH names this folder.

CHAOS holds words like "1:step:3 2:saved:4", each ATTEMPT:MOMENT:STEP. At that moment of that attempt the process is
killed as by the kernel; with `hang` it sleeps instead. Moments: `step` (a step was reported), `saving` (a checkpoint is
on disk, nobody knows of it yet), `saved` (it is registered), `hang` (a step was reported).
"""

import os
import signal
import time
from typing import Any


def install(plan: set[str]) -> None:
    from training.jobs.reporter import Reporter

    step, checkpoint_saved = Reporter.step, Reporter.checkpoint_saved

    def reach(reporter: Reporter, moment: str, number: int) -> None:
        if f"{reporter.run.attempt}:{moment}:{number}" in plan:
            if moment == "hang":
                time.sleep(600)
            os.kill(os.getpid(), signal.SIGKILL)

    def step_and_die(self: Reporter, number: int, *words: Any, **more: Any) -> None:
        step(self, number, *words, **more)
        reach(self, "step", number)
        reach(self, "hang", number)

    def save_and_die(self: Reporter, number: int, *words: Any, **more: Any) -> None:
        reach(self, "saving", number)
        checkpoint_saved(self, number, *words, **more)
        reach(self, "saved", number)

    Reporter.step, Reporter.checkpoint_saved = step_and_die, save_and_die  # type: ignore[method-assign]


if "CHAOS" in os.environ:
    install(set(os.environ["CHAOS"].split()))
