"""A run's configuration as it is stored: with the model filled in, and models and files written as anybody finds them.

What could only fail later is refused here: a run without a model, a folder or file that is not there, or that lies
outside the folders which a person at a browser may name. No torch here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from data.errors import InvalidInput, ProjectError
from data.fields import from_dict, to_dict
from data.files.language_texts import check_has_text
from data.files.prompt_rows import check_has_prompt, check_has_responses
from data.files.readable import ReadableFolders, absolute, is_hub_id
from data.files.snapshots import get_snapshot
from data.labels.projects import get_project
from data.labels.tasks import models_of_project
from data.records import Run, RunKind, RunStatus
from data.runs.best_policy import best_name, is_best, run_of, why_no_best
from data.runs.state import get_run, is_named_in_a_shell
from data.store import Tx
from training.launch.config import DEMO_MODEL
from training.launch.kinds import CONFIGS, KINDS, WRITERS
from training.launch.starts import common_start, start_behind

# Of all configurations: the fields that name a file, with what it has to hold, and those that may name a folder.
_CHECKS: dict[str, Callable[[Path], None]] = {
    "prompts_file": check_has_prompt,
    "ptx_file": check_has_text,
    "input_file": check_has_responses,
}
FILE_FIELDS, MODEL_FIELDS = tuple(_CHECKS), ("model", "model_a", "model_b")


def settled(
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


def reward_run_of(tx: Tx, kind: RunKind, reward_run_id: str | None) -> Run | None:
    if reward_run_id is None:
        if KINDS[kind].needs_reward_run:
            raise InvalidInput(f"a {kind} run needs a reward run; train one with `rankloop train reward`")
        return None
    return _finished_reward_run(tx, reward_run_id)


def _finished_reward_run(tx: Tx, run_id: str) -> Run:
    run = get_run(tx, run_id)
    if run.kind is not RunKind.REWARD or run.status is not RunStatus.SUCCEEDED:
        wrong = f"a {run.kind} run that has {run.status}"
        raise InvalidInput(f"run {run.id} is {wrong}; a finished reward run is needed")
    return run


def _second_reward_runs(tx: Tx, written: str) -> str:
    """Whole ids of the second reward runs. Raises InvalidInput that says of each bad one what is wrong with it."""
    run_ids: list[str] = []
    problems: list[str] = []
    for named in (word.strip() for word in written.split(",")):
        try:
            if not named:
                raise InvalidInput("an id is missing between two commas, or at an end")
            run_id = _finished_reward_run(tx, named).id
        except ProjectError as error:
            problems.append(str(error))
            continue
        if run_id in run_ids:
            problems.append(f"run {run_id} is named twice; its model would count twice")
        run_ids.append(run_id)
    if problems:
        raise InvalidInput(f"second_reward_run = {written!r}: {'; '.join(problems)}")
    return ",".join(run_ids)


def _more_reward_runs(tx: Tx, written: str, first: Run | None) -> str:
    """Whole ids of the further reward runs. Raises InvalidInput for one that is named twice, or has no model."""
    found = [reward_run_of(tx, RunKind.SCORE, each.strip()) for each in written.split(",")]
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
    run = get_run(tx, wanted)
    if is_best(value):
        if problem := why_no_best(tx, run):
            raise InvalidInput(f"{name} = {value!r}: {problem}")
        return best_name(run.id)
    if "/" in value:
        raise InvalidInput(f"{name} = {value!r}: name run:ID, or run:ID/best for the best policy that a ppo run kept")
    if run.status is not RunStatus.SUCCEEDED or run.kind not in WRITERS:
        wrong = f"a {run.kind} run that has {run.status}"
        raise InvalidInput(f"{name} = {value!r}: that is {wrong}; a finished ppo, rloo, sft or dpo run is needed")
    return f"run:{run.id}"


def checked_links(
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
    elif KINDS[kind].needs_snapshot:
        raise InvalidInput(f"a {kind} run needs a snapshot; make one with `rankloop snapshot create`")
    if project_id is None and (KINDS[kind].needs_project or needs_project):
        raise InvalidInput(f"a {kind} run needs a project")
    if project_id is not None:
        get_project(tx, project_id)
    return project_id, reward_run_of(tx, kind, reward_run_id)
