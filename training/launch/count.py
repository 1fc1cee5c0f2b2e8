"""What a reward run would learn from, counted in a child process: the app itself has no torch."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from dataclasses import dataclass
from typing import Any

from data.errors import InvalidInput, WorkFailed
from data.files.paths import Home
from data.files.readable import ReadableFolders
from data.files.snapshots import get_snapshot
from data.records import RunKind
from data.store import Store
from training.launch.config import RewardConfig
from training.launch.process import child_environment
from training.launch.settle import settled

_COUNTING_S = 900.0  # the demo model may have to be fetched first
_one_at_a_time = threading.Lock()  # each child that counts needs half a gigabyte


@dataclass(frozen=True)
class Counted:
    """What a reward run would learn from. `counts`: rankings of both sides, and what is cut or left out, by reason.

    `config`: as the run would be asked. `max_length`: what of it the model reads.
    """

    config: dict[str, Any]
    counts: dict[str, int]
    max_length: int
    base_model: dict[str, str]


def count_reward_data(
    store: Store, home: Home, config: RewardConfig, snapshot_id: str, *, within: ReadableFolders | None = None
) -> Counted:
    """Encode a snapshot as a reward run with this configuration would, in a child process, and count what is lost.

    The numbers are those that the run itself will store as its event `data`.
    Raises InvalidInput for what the run could not be trained on, WorkFailed if the child can't count.
    """
    with store.read() as tx:
        snapshot = get_snapshot(tx, snapshot_id)
        values = settled(tx, RunKind.REWARD, config, snapshot.project_id, None, within)
    asked = json.dumps({"config": values, "snapshot_id": snapshot_id, "frozen_at": snapshot.created_at})
    command = [sys.executable, "-P", "-m", "training.reward.data"]
    environment = child_environment(home) | {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_DISABLE_TELEMETRY": "1"}
    try:
        with _one_at_a_time:
            done = subprocess.run(
                command, input=asked, env=environment, cwd=home.root, capture_output=True, text=True,
                timeout=_COUNTING_S, check=False,
            )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise WorkFailed(
            f"counting took longer than {_COUNTING_S:.0f} s and was stopped; the run counts too"
        ) from error
    except OSError as error:
        raise WorkFailed(f"the process that counts can't be started ({error.strerror}); the run counts too") from error
    if done.returncode:
        last = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "it said nothing")
        words = f"the process that counts ended with status {done.returncode}: {last.strip()[:300]}"
        raise WorkFailed(f"{words}; the run can be started all the same, and counts too")
    answer = json.loads(done.stdout.splitlines()[-1])
    if "problem" in answer:
        raise InvalidInput(answer["problem"])
    return Counted(values, answer["counts"], answer["max_length"], answer["base_model"])
