"""Queue a run, wait for it, cancel it: what the screens and the command line do. No torch here.

A run is a row. Whoever queues it is done; a worker (`training.supervisor`) does it in a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data.best_policy import best_iteration, best_name, is_best, run_of, why_no_best
from data.errors import InvalidConfig, InvalidInput, ProjectError, WorkFailed
from data.fields import from_dict, to_dict
from data.language_texts import check_has_text
from data.paths import HOME_VARIABLE, STORE_VARIABLE, Home
from data.projects import get_project
from data.prompt_rows import check_has_prompt, check_has_responses
from data.readable import ReadableFolders, absolute, is_hub_id
from data.records import Role, Run, RunKind, RunStatus
from data.roles import Actor, acting
from data.runs import create_run, get_run, is_named_in_a_shell, list_runs, reap_runs, request_cancel, resume_run
from data.snapshots import get_snapshot
from data.store import Store, Tx
from data.tasks import models_of_project
from training.config import CONFIGS, DEMO_MODEL, RewardConfig
from training.starts import common_start, start_behind, start_of
from training.supervisor import STARTER_VARIABLE, Worker, module_path, tail_log

__all__ = [
    "STARTER_VARIABLE",
    "Worker",
    "start_of",
]  # so that the app needs nothing of `training` but this module and `config`

_WRITERS = (RunKind.PPO, RunKind.RLOO, RunKind.SFT, RunKind.DPO)  # they end with a model that writes text
_AGAINST_REWARD = (RunKind.PPO, RunKind.RLOO, RunKind.CHECK, RunKind.BASELINES)  # others may be evaluated by one
_NEEDS_SNAPSHOT = (RunKind.REWARD, RunKind.SFT, RunKind.DPO, *_AGAINST_REWARD)
_NEEDS_REWARD_RUN = (*_AGAINST_REWARD, RunKind.SCORE)
_NEEDS_PROJECT = (RunKind.SAMPLE, RunKind.COMPARE, RunKind.FEATURES)
MOST_SEEDS = 16
# Of all configurations: the fields that name a file, with what it has to hold, and those that may name a folder.
_CHECKS: dict[str, Callable[[Path], None]] = {
    "prompts_file": check_has_prompt,
    "ptx_file": check_has_text,
    "input_file": check_has_responses,
}
FILE_FIELDS, MODEL_FIELDS = tuple(_CHECKS), ("model", "model_a", "model_b")
_POLL_S = 0.5
_COUNTING_S = 900.0  # the demo model may have to be fetched first
_one_at_a_time = threading.Lock()  # each child that counts needs half a gigabyte


def queue_run(
    store: Store,
    who: Actor,
    kind: RunKind,
    config: Any,
    *,
    project_id: str | None = None,
    snapshot_id: str | None = None,
    reward_run_id: str | None = None,
    nonce: str | None = None,
    within: ReadableFolders | None = None,
) -> Run:
    """Check that what the run needs is there, fill in the model, and queue it.

    `within`: where files and models that the configuration names have to lie; None: anywhere, for who has a shell. What
    is stored is the place with its links resolved.
    Raises NotAllowed, InvalidInput if something is missing or does not fit, NotFound for an id that does not exist.
    """
    if type(config) is not CONFIGS[kind]:
        raise InvalidConfig(f"a {kind} run needs a {CONFIGS[kind].__name__}, not a {type(config).__name__}")
    with acting(store, who, Role.RESEARCHER) as tx:
        needs_project = bool(getattr(config, "unranked", False))
        project_id, reward_run = _checked_links(
            tx, kind, project_id, snapshot_id, reward_run_id, needs_project=needs_project
        )
        return create_run(
            tx,
            kind,
            _settled(tx, kind, config, project_id, reward_run, within),
            project_id=project_id,
            snapshot_id=snapshot_id,
            reward_run_id=reward_run.id if reward_run else None,
            nonce=nonce,
            created_by=who.id,
        )


def queue_seeds(
    store: Store, who: Actor, kind: RunKind, config: Any, n: int, *, nonce: str | None = None, **links: Any
) -> list[Run]:
    """Queue n runs that differ in their seeds alone, counted up from the configuration's. Raises as `queue_run`."""
    if not 1 <= n <= MOST_SEEDS:
        raise InvalidConfig(f"{n} seeds: 1 to {MOST_SEEDS} are allowed")
    alike = [from_dict(type(config), to_dict(config) | {"seed": config.seed + number}) for number in range(n)]
    nonces = [nonce if nonce is None or not number else f"{nonce}.{number}" for number in range(n)]
    return [queue_run(store, who, kind, each, nonce=word, **links) for each, word in zip(alike, nonces, strict=True)]


def cancel(store: Store, who: Actor, run_id: str) -> Run:
    """Ask a run to stop. Raises NotAllowed, NotFound, and Conflict if it has ended."""
    with acting(store, who, Role.RESEARCHER) as tx:
        return request_cancel(tx, run_id)


def resume(store: Store, who: Actor, run_id: str) -> Run:
    """Put a failed or cancelled run back into the queue. Raises NotAllowed, NotFound, Conflict."""
    with acting(store, who, Role.RESEARCHER) as tx:
        return resume_run(tx, run_id)


def note_lost_runs(store: Store) -> None:
    """Write down which runs have lost their workers: the store's own clock says so, whoever happens to look."""
    with store.begin() as tx:
        reap_runs(tx)


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
        values = _settled(tx, RunKind.REWARD, config, snapshot.project_id, None, within)
    asked = json.dumps({"config": values, "snapshot_id": snapshot_id, "frozen_at": snapshot.created_at})
    command = [sys.executable, "-P", "-m", "training.reward_data"]
    environment = _child_environment(home) | {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_DISABLE_TELEMETRY": "1"}
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


def newest_check(
    store: Store, config: Any, *, snapshot_id: str, reward_run_id: str, within: ReadableFolders | None = None
) -> Run | None:
    """The newest check of a PPO run with exactly these settings, whatever it found. Raises as `queue_run` does."""
    with store.read() as tx:
        project_id, reward_run = _checked_links(tx, RunKind.CHECK, None, snapshot_id, reward_run_id)
        values = _settled(tx, RunKind.CHECK, config, project_id, reward_run, within)
        for run in list_runs(tx, project_id=project_id, kinds=(RunKind.CHECK,)):
            same_links = (run.snapshot_id, run.reward_run_id) == (snapshot_id, reward_run.id if reward_run else None)
            if same_links and run.config == values:
                return run
    return None


def is_green(check: Run | None) -> bool:
    """Whether a check has ended and found nothing wrong."""
    return check is not None and check.status is RunStatus.SUCCEEDED and bool(check.result and check.result.get("ok"))


def _checked_links(
    tx: Tx,
    kind: RunKind,
    project_id: str | None,
    snapshot_id: str | None,
    reward_run_id: str | None,
    *,
    needs_project: bool = False,
) -> tuple[str | None, Run | None]:
    """The project and the reward run of a run, after a look that all it needs is there."""
    if snapshot_id is not None:
        project_id = get_snapshot(tx, snapshot_id).project_id
    elif kind in _NEEDS_SNAPSHOT:
        raise InvalidInput(f"a {kind} run needs a snapshot; make one with `rankloop snapshot create`")
    if project_id is None and (kind in _NEEDS_PROJECT or needs_project):
        raise InvalidInput(f"a {kind} run needs a project")
    if project_id is not None:
        get_project(tx, project_id)
    return project_id, _reward_run(tx, kind, reward_run_id)


def trained_models(tx: Tx, project_id: str | None = None) -> list[Run]:
    """Runs that ended with a model which can write text: PPO, RLOO, SFT and DPO, the newest first."""
    return list_runs(tx, project_id=project_id, kinds=_WRITERS, status=RunStatus.SUCCEEDED)


def best_policies(tx: Tx, project_id: str) -> list[tuple[Run, int]]:
    """Ended PPO runs that kept a best policy, the newest first, each with its iteration. A run that an alarm has
    stopped is one too."""
    runs = [run for run in list_runs(tx, project_id=project_id, kinds=(RunKind.PPO,)) if run.status.is_final]
    found = [(run, best_iteration(tx, run.id)) for run in runs]
    return [(run, iteration) for run, iteration in found if iteration]


def reward_models(tx: Tx, project_id: str | None = None) -> list[Run]:
    """Reward runs that ended well, the newest first."""
    return list_runs(tx, project_id=project_id, kinds=(RunKind.REWARD,), status=RunStatus.SUCCEEDED)


def wait_for(
    store: Store, run_id: str, on_change: Callable[[Run], None] | None = None, timeout_s: float | None = None
) -> Run:
    """Return the run when it has succeeded; call `on_change` after each look at it.

    Raises WorkFailed with the run's own message if it failed or was cancelled, or if `timeout_s` passes.
    """
    end = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        with store.read() as tx:
            run = get_run(tx, run_id)
        if on_change is not None:
            on_change(run)
        if run.status is RunStatus.SUCCEEDED:
            return run
        if run.status.is_final:
            raise WorkFailed(f"run {run.id} ({run.kind}) {run.status}: {run.error_message or 'as asked'}")
        if end is not None and time.monotonic() > end:
            raise WorkFailed(f"run {run.id} ({run.kind}) is still {run.status} after {timeout_s:.0f} s")
        time.sleep(_POLL_S)


def run_log(home: Home, run_id: str) -> str:
    """The end of a run's log, empty where there is none."""
    return tail_log(home.run_folder(run_id))


def start_worker(home: Home, store_url: str, *, once: bool = False, quiet: bool = False) -> subprocess.Popen[bytes]:
    """Start a worker process in a session of its own: an interrupt at the keyboard does not reach it.

    It outlives this process, however that ends, until the run that it is doing is done.

    `quiet`: it holds none of this process's outputs, so that whoever reads them is not kept waiting for the worker.
    `-P` keeps an `app` folder in the working directory from being taken for ours.
    """
    command = [sys.executable, "-P", "-m", "app", "worker", *(["--once"] if once else [])]
    environment = _child_environment(home) | {STORE_VARIABLE: store_url, STARTER_VARIABLE: str(os.getpid())}
    output = subprocess.DEVNULL if quiet else None
    return subprocess.Popen(
        command, env=environment, start_new_session=True, stdin=subprocess.DEVNULL, stdout=output, stderr=output
    )


def _child_environment(home: Home) -> dict[str, str]:
    return os.environ | {HOME_VARIABLE: str(home.root), "PYTHONPATH": module_path()}


def _settled(
    tx: Tx,
    kind: RunKind,
    config: Any,
    project_id: str | None,
    reward_run: Run | None,
    within: ReadableFolders | None,
) -> dict[str, Any]:
    """A run's configuration as it is stored: with the model filled in, and written so that it is found anywhere."""
    values = to_dict(config)
    _settle_models(tx, values, within)
    if kind is RunKind.COMPARE and values["model_a"] == "":
        values["model_a"] = start_behind(tx, values["model_b"])
    if values.get("model") == "":
        values["model"] = _model_of(tx, kind, values, project_id, reward_run)
    _settle_models(tx, values, within)
    for name in FILE_FIELDS:
        if values.get(name):
            values[name] = _settled_file(name, values[name], within)
    if values.get("second_reward_run"):
        values["second_reward_run"] = _second_reward_runs(tx, values["second_reward_run"])
    if values.get("beside"):
        values["beside"] = _more_reward_runs(tx, values["beside"], reward_run)
    return to_dict(from_dict(CONFIGS[kind], values))


def _settled_file(field: str, written: str, within: ReadableFolders | None) -> str:
    """The whole path of a file that holds something of use. Raises InvalidInput."""
    path = absolute(written) if within is None else within.inside(field, written)
    try:
        _CHECKS[field](path)
    except InvalidInput as error:
        raise InvalidInput(f"{field} = {written!r}: {error}") from None
    except OSError as error:
        raise InvalidInput(f"{field} = {written!r}: it can't be read ({error.strerror})") from None
    return str(path)


def _reward_run(tx: Tx, kind: RunKind, reward_run_id: str | None) -> Run | None:
    if reward_run_id is None:
        if kind in _NEEDS_REWARD_RUN:
            raise InvalidInput(f"a {kind} run needs a reward run; train one with `rankloop train reward`")
        return None
    return _finished_reward_run(tx, reward_run_id)


def _finished_reward_run(tx: Tx, run_id: str) -> Run:
    found = get_run(tx, run_id)
    if found.kind is not RunKind.REWARD or found.status is not RunStatus.SUCCEEDED:
        wrong = f"a {found.kind} run that has {found.status}"
        raise InvalidInput(f"run {found.id} is {wrong}; a finished reward run is needed")
    return found


def _second_reward_runs(tx: Tx, written: str) -> str:
    """Whole ids of the second reward runs. Raises InvalidInput that says of each bad one what is wrong with it."""
    found: list[str] = []
    problems: list[str] = []
    for each in (word.strip() for word in written.split(",")):
        try:
            if not each:
                raise InvalidInput("an id is missing between two commas, or at an end")
            run_id = _finished_reward_run(tx, each).id
        except ProjectError as error:
            problems.append(str(error))
            continue
        if run_id in found:
            problems.append(f"run {run_id} is named twice; its model would count twice")
        found.append(run_id)
    if problems:
        raise InvalidInput(f"second_reward_run = {written!r}: {'; '.join(problems)}")
    return ",".join(found)


def _more_reward_runs(tx: Tx, written: str, first: Run | None) -> str:
    """Whole ids of the further reward runs. Raises InvalidInput for one that is named twice, or has no model."""
    found = [_reward_run(tx, RunKind.SCORE, each.strip()) for each in written.split(",")]
    ids = [each.id for each in (first, *found) if each is not None]
    if len(set(ids)) < len(ids):
        raise InvalidInput(f"beside = {written!r}: a reward run is named twice; its model would count twice")
    return ",".join(ids[1:])


def _model_of(tx: Tx, kind: RunKind, values: dict[str, Any], project_id: str | None, reward_run: Run | None) -> str:
    """The model that belongs where a configuration names none. Raises InvalidInput where nothing tells it."""
    if kind is RunKind.BASELINES and (start := common_start(tx, values["models"].split())):
        return start
    is_start = reward_run is not None and reward_run.config.get("train", True)  # else its model writes no text
    if reward_run is not None and is_start and reward_run.config.get("model"):
        return str(reward_run.config["model"])
    if sampled := models_of_project(tx, project_id) if project_id else []:
        return sampled[0][0]
    if kind is RunKind.SAMPLE:
        return DEMO_MODEL
    raise InvalidInput(
        "model is empty, and no response of the project says which model wrote it: name one, such as model=demo"
    )


def _settle_models(tx: Tx, values: dict[str, Any], within: ReadableFolders | None) -> None:
    """Write models so that a worker anywhere finds the same: whole run ids, absolute folders.

    Refuses at once what could only fail later: run:ID of a run without a model, a folder that is not there.
    """
    if values.get("models"):
        values["models"] = " ".join(_policy(tx, "models", each) for each in values["models"].replace(",", " ").split())
    for name in MODEL_FIELDS:
        value = values.get(name)
        if name == "model_b" and value == "":
            raise InvalidInput("model_b is empty: name the second model")
        if not value:
            continue
        if value.startswith("run:"):
            values[name] = _policy(tx, name, value)
        elif value != DEMO_MODEL and (folder := _model_folder(tx, name, value, within)) is not None:
            if not os.path.isdir(folder):
                raise InvalidInput(f"{name} = {value!r}: there is no such folder")
            values[name] = str(folder)


def _model_folder(tx: Tx, field: str, value: str, within: ReadableFolders | None) -> Path | None:
    """The folder that a model's name stands for; None for an id on the hub. Raises InvalidInput.

    At a browser what has the form of an id is one, and what a run from a shell started from may be used again; in a
    shell a folder of that name comes first.
    """
    if within is not None:
        if is_hub_id(value):
            return None
        return Path(value) if is_named_in_a_shell(tx, "model", value) else within.inside(field, value)
    folder = absolute(value)
    return folder if os.path.isdir(folder) or value.startswith(("/", "./", "../", "~")) else None


def _policy(tx: Tx, name: str, value: str) -> str:
    """`run:ID` with the whole id of a finished run that wrote a model, or `run:ID/best` of a PPO run that kept one.

    Raises InvalidInput for anything else.
    """
    wanted = run_of(value)
    if wanted is None:
        raise InvalidInput(f"{name} = {value!r}: name finished runs, such as run:ID or run:ID/best")
    found = get_run(tx, wanted)
    if is_best(value):
        if problem := why_no_best(tx, found):
            raise InvalidInput(f"{name} = {value!r}: {problem}")
        return best_name(found.id)
    if "/" in value:
        raise InvalidInput(f"{name} = {value!r}: name run:ID, or run:ID/best for the best policy that a ppo run kept")
    if found.status is not RunStatus.SUCCEEDED or found.kind not in _WRITERS:
        wrong = f"a {found.kind} run that has {found.status}"
        raise InvalidInput(f"{name} = {value!r}: that is {wrong}; a finished ppo, rloo, sft or dpo run is needed")
    return f"run:{found.id}"
