"""The words that queue runs: `sample`, `features`, `train`, `baselines`, `score`."""

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
)
from app.commands.base.fields import add_set, field_lines
from app.commands.base.waiting import WAIT_HELP, queued, wait
from app.commands.runs.check import checked
from app.words.progress import ProgressLine
from data.errors import Conflict, WorkFailed
from data.fields import from_words
from data.files.rows import Problem
from data.labels.roles import OPERATOR
from data.records import RunKind
from data.store.ids import new_id
from labeling.files.handover import hand_over, hand_over_texts
from labeling.files.import_report import MAX_PROBLEMS_SHOWN
from training.launch.config import TrainConfig
from training.launch.count import count_reward_data
from training.launch.kinds import CONFIGS, KINDS, TRAINED
from training.launch.presets import PRESETS, preset_values
from training.launch.queue import queue_run, queue_seeds

SCORES = "scores.jsonl"


def add_words(words: Any) -> None:
    _add_sample(words)
    _add_features(words)
    _add_train(words)
    _add_baselines(words)
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


def sample(arguments: argparse.Namespace, context: Context) -> Outcome:
    project = context.project(arguments.project)
    base = {"model": arguments.model, "k": project.k}
    config: Any = from_words(CONFIGS[RunKind.SAMPLE], arguments.fields, base)
    run = queue_run(context.store, OPERATOR, RunKind.SAMPLE, config, project_id=project.id)
    return queued(context, run, arguments.wait)


def features(arguments: argparse.Namespace, context: Context) -> Outcome:
    project = context.project(arguments.project)
    config: Any = from_words(CONFIGS[RunKind.FEATURES], arguments.fields)
    run = queue_run(context.store, OPERATOR, RunKind.FEATURES, config, project_id=project.id)
    return queued(context, run, arguments.wait)


def baselines(arguments: argparse.Namespace, context: Context) -> Outcome:
    config: Any = from_words(CONFIGS[RunKind.BASELINES], arguments.fields)
    links = {"snapshot_id": arguments.snapshot, "reward_run_id": arguments.reward_run}
    return queued(context, queue_run(context.store, OPERATOR, RunKind.BASELINES, config, **links), arguments.wait)


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
    outcome = checked(context, run) if arguments.dry_run else queued(context, run, arguments.wait)
    more = {"ptx": ptx_report["input"]} if ptx_report else {}
    return replace(outcome, document=outcome.document | report | more)


def _of_each_seed(config: Any, arguments: argparse.Namespace, context: Context) -> Outcome:
    """Queue the runs and, if that is asked, wait for one after the other, until one has not succeeded.

    The document is the first run's, with all of them.
    """
    runs = queue_seeds(context.store, OPERATOR, arguments.kind, config, arguments.seeds, snapshot_id=arguments.snapshot)
    outcomes: list[Outcome] = []
    for run in runs:
        outcomes.append(queued(context, run, arguments.wait))
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


def _fields_page(pages: list[tuple[str, list[str]]]) -> str:
    return "\n\n".join("\n".join([f"{title}:", *lines]) for title, lines in pages)
