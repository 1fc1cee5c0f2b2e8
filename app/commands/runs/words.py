"""The words that queue runs, and look after them: `sample`, `train`, `score`, `runs`."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from app.commands.base.common import (
    Context,
    Outcome,
    add_group,
    add_word,
    as_document,
    counted,
    existing_file,
    named,
    table,
)
from app.commands.base.fields import add_set, field_lines
from app.commands.base.waiting import WAIT_HELP, look_at, wait
from app.commands.runs.check import checked
from app.words.best_policy import best_words
from app.words.progress import ProgressLine
from data.errors import Conflict, WorkFailed
from data.fields import from_words
from data.files.rows import Problem
from data.labels.roles import OPERATOR
from data.records import Run, RunKind
from data.runs.best_policy import best_name, best_policy
from data.runs.left_out import left_out_lines
from data.runs.metrics import metrics_of
from data.runs.state import events_of, get_run, list_runs
from data.store.ids import new_id
from labeling.files.handover import hand_over, hand_over_texts
from labeling.files.import_report import MAX_PROBLEMS_SHOWN
from training.launch.config import TrainConfig
from training.launch.count import count_reward_data
from training.launch.kinds import CONFIGS, KINDS, TRAINED
from training.launch.presets import PRESETS, preset_values
from training.launch.queue import cancel as cancel_run
from training.launch.queue import queue_run, queue_seeds
from training.launch.queue import resume as resume_run

SCORES = "scores.jsonl"


def add_words(words: Any) -> None:
    _add_sample(words)
    _add_features(words)
    _add_train(words)
    _add_baselines(words)
    _add_runs(words)
    parser = add_word(words, "score", score, KINDS[RunKind.SCORE].help)
    parser.add_argument("file", metavar="FILE", help="rows with a prompt and its responses")
    parser.add_argument(
        "--reward-run", required=True, action="append", metavar="ID",
        help="the reward run whose model scores; given several times: the mean of all, and their spread",
    )  # fmt: skip
    parser.add_argument("--out", metavar="FILE", help="copy the scores here; it must not exist")
    add_set(parser, "the run, such as centre_prompts=true")
    parser.epilog = WAIT_HELP[:1].upper() + WAIT_HELP[1:] + "."


def _add_sample(words: Any) -> None:
    config = CONFIGS[RunKind.SAMPLE]
    parser = add_word(
        words,
        "sample",
        sample,
        KINDS[RunKind.SAMPLE].help,
        epilog=_fields_page([("fields for --set", field_lines(config))]),
    )
    parser.add_argument("--project", required=True, metavar="NAME", help="name or id of the project")
    parser.add_argument(
        "--model", default="", metavar="M",
        help="'demo', a folder, a hub id, run:ID, or run:ID/best (the best policy that a PPO run kept); default: the "
        "model of the project's responses, 'demo' where it has none",
    )  # fmt: skip
    add_set(parser, "the run, listed below; k is the project's unless it is set")
    parser.add_argument("--wait", action="store_true", help=WAIT_HELP)


def _add_features(words: Any) -> None:
    config = CONFIGS[RunKind.FEATURES]
    parser = add_word(
        words,
        "features",
        features,
        KINDS[RunKind.FEATURES].help,
        epilog=_fields_page([("fields", field_lines(config))]),
    )
    parser.add_argument("--project", required=True, metavar="NAME", help="name or id of the project")
    add_set(parser, "the run, listed below")
    parser.add_argument("--wait", action="store_true", help=WAIT_HELP)


def _add_train(words: Any) -> None:
    shared = ("fields of every kind, for --set", field_lines(TrainConfig))
    pages = [(f"fields of {kind}", field_lines(CONFIGS[kind], without=TrainConfig)) for kind in TRAINED]
    kinds = add_group(
        words, "train", "train a reward model, or a policy, on a snapshot", epilog=_fields_page([shared, *pages])
    )
    for kind in TRAINED:
        named = [("presets", _preset_lines(kind))] if kind in PRESETS else []
        page = _fields_page([*named, ("fields for --set", field_lines(CONFIGS[kind]))])
        parser = add_word(kinds, kind.value, train, KINDS[kind].help, epilog=page)
        parser.set_defaults(kind=kind, reward_run=None, prompts=None, ptx=None, dry_run=False, seeds=1, preset="")
        parser.add_argument("--snapshot", required=True, metavar="ID", help="the snapshot to learn from")
        if KINDS[kind].needs_reward_run:
            parser.add_argument(
                "--reward-run", required=True, metavar="ID", help="the run whose model gives the scores"
            )
            parser.add_argument(
                "--prompts", metavar="FILE", help="prompts from a file instead of the training side of the snapshot"
            )
        if KINDS[kind].may_be_evaluated:
            help = (
                "the run whose model scores the held-out evaluations, and whose start is the run's where model is "
                "empty; without it none are made"
            )
            parser.add_argument("--reward-run", metavar="ID", help=help)
        if kind is RunKind.PPO:
            help = "texts, or prompts with a response, for PPO-ptx, in place of the best-ranked responses"
            parser.add_argument("--ptx", metavar="FILE", help=help)
            parser.add_argument("--dry-run", action="store_true", help="check everything, one step included, and wait")
        if kind is RunKind.REWARD:
            help = "queue so many runs, all alike but for their seeds, counted up from the run's"
            parser.add_argument("--seeds", type=int, default=1, metavar="N", help=help)
            parser.add_argument("--dry-run", action="store_true", help="count what is cut or left out, and stop")
        if kind in PRESETS:
            help = f"start from named settings in place of the defaults: {', '.join(PRESETS[kind])}"
            parser.add_argument("--preset", default="", metavar="NAME", help=help)
        add_set(parser, "the run, listed below")
        parser.add_argument("--wait", action="store_true", help=WAIT_HELP)


def _preset_lines(kind: RunKind) -> list[str]:
    return [f"  {name:<18} {preset.source}" for name, preset in PRESETS[kind].items()]


def _add_baselines(words: Any) -> None:
    config = CONFIGS[RunKind.BASELINES]
    parser = add_word(
        words,
        "baselines",
        baselines,
        KINDS[RunKind.BASELINES].help,
        epilog=_fields_page([("fields", field_lines(config))]),
    )
    parser.add_argument("--snapshot", required=True, metavar="ID", help="the snapshot whose held-out prompts are used")
    parser.add_argument("--reward-run", required=True, metavar="ID", help="the run whose model gives the scores")
    add_set(parser, "the run, listed below")
    parser.add_argument("--wait", action="store_true", help=WAIT_HELP)


def _add_runs(words: Any) -> None:
    group = add_group(words, "runs", "look at runs, stop them, go on with them")
    add_word(group, "list", list_all, "list the runs, the newest first")
    shown = add_word(group, "show", show, "show a run: what was asked, how far it is, what happened")
    cancelled = add_word(group, "cancel", cancel, "ask a run to stop at its next safe place")
    help = "put a failed or cancelled run back; it goes on from its newest checkpoint"
    resumed = add_word(group, "resume", resume, help)
    for parser in (shown, cancelled, resumed):
        parser.add_argument("id", metavar="ID", help="its id, or the last characters of it")
    resumed.add_argument("--wait", action="store_true", help=WAIT_HELP)


def sample(arguments: argparse.Namespace, context: Context) -> Outcome:
    project = context.project(arguments.project)
    base = {"model": arguments.model, "k": project.k}
    config: Any = from_words(CONFIGS[RunKind.SAMPLE], arguments.fields, base)
    run = queue_run(context.store, OPERATOR, RunKind.SAMPLE, config, project_id=project.id)
    return _queued(context, run, arguments.wait)


def features(arguments: argparse.Namespace, context: Context) -> Outcome:
    project = context.project(arguments.project)
    config: Any = from_words(CONFIGS[RunKind.FEATURES], arguments.fields)
    run = queue_run(context.store, OPERATOR, RunKind.FEATURES, config, project_id=project.id)
    return _queued(context, run, arguments.wait)


def baselines(arguments: argparse.Namespace, context: Context) -> Outcome:
    config: Any = from_words(CONFIGS[RunKind.BASELINES], arguments.fields)
    links = {"snapshot_id": arguments.snapshot, "reward_run_id": arguments.reward_run}
    return _queued(context, queue_run(context.store, OPERATOR, RunKind.BASELINES, config, **links), arguments.wait)


def train(arguments: argparse.Namespace, context: Context) -> Outcome:
    base = preset_values(arguments.kind, arguments.preset)
    config: Any = from_words(CONFIGS[arguments.kind], arguments.fields, base)
    if arguments.dry_run and arguments.kind is RunKind.REWARD:
        return _dry_run(config, arguments.snapshot, context)
    if arguments.seeds != 1:
        return _of_each_seed(config, arguments, context)
    prompts, texts = partial(hand_over, with_responses=False), hand_over_texts
    with (
        _handed_over(context, arguments.prompts, prompts) as (file, report),
        _handed_over(context, arguments.ptx, texts) as (ptx, ptx_report),
    ):
        if file is not None:
            config = replace(config, prompts_file=file)
        if ptx is not None:
            config = replace(config, ptx_file=ptx)
        kind = RunKind.CHECK if arguments.dry_run else arguments.kind
        links = {"snapshot_id": arguments.snapshot, "reward_run_id": arguments.reward_run}
        run = queue_run(context.store, OPERATOR, kind, config, **links)
    outcome = checked(context, run) if arguments.dry_run else _queued(context, run, arguments.wait)
    more = {"ptx": ptx_report["input"]} if ptx_report else {}
    return replace(outcome, document=outcome.document | report | more)


def _of_each_seed(config: Any, arguments: argparse.Namespace, context: Context) -> Outcome:
    """Queue the runs and, if that is asked, wait for one after the other, until one has not succeeded.

    The document is the first run's, with all of them.
    """
    runs = queue_seeds(context.store, OPERATOR, arguments.kind, config, arguments.seeds, snapshot_id=arguments.snapshot)
    outcomes: list[Outcome] = []
    for run in runs:
        outcomes.append(_queued(context, run, arguments.wait))
        if outcomes[-1].status:
            break
    documents = [each.document for each in outcomes] + [as_document(run) for run in runs[len(outcomes) :]]
    lines = [line for each in outcomes for line in each.lines]
    return replace(outcomes[-1], document=documents[0] | {"runs": documents}, lines=lines)


def _dry_run(config: Any, snapshot_id: str, context: Context) -> Outcome:
    with ProgressLine("counting") as progress:
        progress.update(0, None, "steps", "encoding the snapshot")
        counted_data = count_reward_data(context.store, context.home, config, snapshot_id)
    model = f"{counted_data.base_model['name']} ({counted_data.base_model['revision']})"
    lines = [f"a reward run on snapshot {snapshot_id} with {model}, max_length {counted_data.max_length}, would have:"]
    return Outcome(
        {"dry_run": True, "snapshot_id": snapshot_id, **as_document(counted_data)},
        [*lines, *counted(counted_data.counts)],
    )


def score(arguments: argparse.Namespace, context: Context) -> Outcome:
    out = Path(arguments.out).expanduser().absolute() if arguments.out else None
    if out is not None and out.exists():
        raise Conflict(f"--out {arguments.out}: it exists already; name a new file")
    with _handed_over(context, arguments.file, partial(hand_over, with_responses=True)) as (file, report):
        first, *more = arguments.reward_run
        base = {"input_file": file, "beside": ",".join(more)}
        config: Any = from_words(CONFIGS[RunKind.SCORE], arguments.fields, base)
        run = queue_run(context.store, OPERATOR, RunKind.SCORE, config, reward_run_id=first)
    outcome = wait(context, run)
    if outcome.status:
        return outcome
    scores = context.home.run_folder(run.id) / SCORES
    if not scores.is_file():
        raise WorkFailed(
            f"run {run.id} has succeeded, but {scores} is not there; does the worker share this home folder?"
        )
    if out is not None:
        _copy(scores, out)
    written_to = str(out or scores)
    return Outcome(
        outcome.document | report | {"file": written_to},
        [f"the scores are in {written_to}", *named(outcome.document["result"])],
    )


def list_all(_arguments: argparse.Namespace, context: Context) -> Outcome:
    with context.store.read() as tx:
        runs = list_runs(tx, limit=1_000_000)
    rows = [(run.id, run.kind, run.status, _steps(run), run.project_id) for run in runs]
    lines = table(rows, ("ID", "KIND", "STATUS", "STEP", "PROJECT")) if rows else ["no run yet"]
    return Outcome(as_document(runs), lines)


def show(arguments: argparse.Namespace, context: Context) -> Outcome:
    with context.store.read() as tx:
        run = get_run(tx, arguments.id)
        events = events_of(tx, run.id)
        points = metrics_of(tx, run.id)
        left_out = left_out_lines(tx, run.id)
        best = best_policy(tx, run.id) if run.kind is RunKind.PPO else None
    latest = {point.name: point.value for point in points}
    folder = str(context.home.run_folder(run.id))
    document = as_document(run) | {"events": as_document(events), "metrics": latest, "folder": folder}
    if best is not None:
        document["best_policy"] = as_document(best) | {
            "model": best_name(run.id) if best.iteration else None,
            "verdict": best_words(best, is_final=run.status.is_final),
        }
    lines = [f"run {run.id}: {run.kind}, {run.status}, step {_steps(run)}", f"  folder: {folder}"]
    lines += [f"  {name}: {value}" for name, value in _links(run).items() if value]
    if run.error_message:
        lines.append(f"  {run.error_kind}: {run.error_message}")
    lines += [f"  {each}" for each in left_out]
    parts = (("asked", run.config), ("result", run.result), ("best policy", document.get("best_policy")),
             ("metrics, at their last step", latest))  # fmt: skip
    for title, values in parts:
        if values:
            lines += [f"  {title}:", *named(values, "    ")]
    lines += ["  events:", *(f"    {event.seq}. {event.kind} {event.detail or ''}".rstrip() for event in events)]
    return Outcome(document, lines)


def cancel(arguments: argparse.Namespace, context: Context) -> Outcome:
    run = cancel_run(context.store, OPERATOR, arguments.id)
    words = "is cancelled" if run.status.is_final else "stops at its next safe place"
    return Outcome(as_document(run), [f"run {run.id} {words}"])


def resume(arguments: argparse.Namespace, context: Context) -> Outcome:
    run = resume_run(context.store, OPERATOR, arguments.id)
    return _queued(context, run, arguments.wait)


def _queued(context: Context, run: Run, is_waited_for: bool) -> Outcome:
    line = f"run {run.id} ({run.kind}) is queued; a worker takes it"
    if not is_waited_for:
        return Outcome(as_document(run), [f"{line}; {look_at(run.id)}"])
    context.say(line)
    return wait(context, run)


@contextlib.contextmanager
def _handed_over(
    context: Context, name: str | None, hand: Callable[[Path, Path], tuple[int, list[Problem]]]
) -> Iterator[tuple[str | None, dict[str, Any]]]:
    """Put a person's file into the home folder as runs read it; what is wrong with its lines is said and reported.

    Yields its path and the report; without a name, nothing. The file is removed again if the block raises.
    """
    if name is None:
        yield None, {}
        return
    source = existing_file(name)
    target = context.home.uploads / f"{new_id(time.time())}.jsonl"
    try:
        n_rows, problems = hand(source, target)
        shown = problems[:MAX_PROBLEMS_SHOWN]
        for problem in shown:
            context.say(f"{source.name}, line {problem.line}: {problem.message}; left out")
        if len(problems) > len(shown):
            context.say(f"{source.name}: {len(problems) - len(shown):,} more lines are left out")
        yield str(target), {"input": {"rows": n_rows, "refused": len(problems), "problems": as_document(shown)}}
    except BaseException:
        target.unlink(missing_ok=True)
        raise


def _copy(source: Path, target: Path) -> None:
    """Copy so that `target` is either whole or not there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    staged = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        shutil.copyfile(source, staged)
        staged.replace(target)
    finally:
        staged.unlink(missing_ok=True)


def _links(run: Run) -> dict[str, str | None]:
    return {"project": run.project_id, "snapshot": run.snapshot_id, "reward run": run.reward_run_id}


def _steps(run: Run) -> str:
    return f"{run.step} of {run.total_steps}" if run.total_steps else str(run.step)


def _fields_page(pages: list[tuple[str, list[str]]]) -> str:
    return "\n\n".join("\n".join([f"{title}:", *lines]) for title, lines in pages)
