"""The word `selection`: let a reward model say what people rank next, and see whether it beat chance."""

from __future__ import annotations

import argparse
from typing import Any

from app.commands.base.common import Context, Outcome, add_group, add_word, as_document, counted, table
from app.commands.base.waiting import WAIT_HELP, wait
from data.fields import from_dict
from data.labels.roles import OPERATOR
from data.labels.scores import untouched_tasks, without_scores
from data.records import Project, RunKind
from data.runs.state import get_run
from labeling.review.selection import By, Selected, SelectionConfig, apply_selection
from labeling.review.selection_report import Interval, SelectionReport, selection_report
from training.launch.config import ScoreConfig
from training.launch.queue import queue_run


def add_words(words: Any) -> None:
    group = add_group(words, "selection", "let a reward model say what is ranked next, and see whether it beat chance")
    help = "let reward models, or the instant one, put what waits to be ranked in order"
    parser = add_word(group, "apply", apply, help)
    parser.add_argument("name", metavar="NAME", help="name or id of the project")
    way = parser.add_mutually_exclusive_group(required=True)
    help = "reward runs whose models score"
    way.add_argument("--reward-run", nargs="+", metavar="ID", dest="reward_runs", help=help)
    help = "the instant reward model, fitted now to the rankings so far, on features that `rankloop features` has kept"
    way.add_argument("--instant", action="store_true", help=help)
    defaults = SelectionConfig()
    parser.add_argument(
        "--by", choices=tuple(By), default=defaults.by, help=f"what comes first (default {defaults.by})"
    )
    parser.add_argument(
        "--control", type=float, default=defaults.control, metavar="SHARE",
        help=f"this share is drawn by lot, to compare with (default {defaults.control})",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=defaults.seed, help="which are drawn by lot")
    parser.epilog = f"It is waited for the scores of reward runs: {WAIT_HELP}. --instant needs no run and no waiting."
    parser = add_word(group, "report", report, "show what people said on each arm, and whether selection beat random")
    parser.add_argument("name", metavar="NAME", help="name or id of the project")


def apply(arguments: argparse.Namespace, context: Context) -> Outcome:
    project = context.project(arguments.name)
    config = from_dict(SelectionConfig, {name: getattr(arguments, name) for name in ("by", "control", "seed")})
    if arguments.instant:
        return _apply_instant(context, project, config)
    for reward_run in arguments.reward_runs:
        outcome = _score(context, project, reward_run)
        if outcome is not None and outcome.status:
            return outcome
    made = apply_selection(context.store, OPERATOR, project.id, arguments.reward_runs, config)
    return _in_order(project, made, "reward runs", [])


def _apply_instant(context: Context, project: Project, config: SelectionConfig) -> Outcome:
    from app.actions.instant_selection import select_by_instant  # it loads SciPy, which the other words do not need

    made = select_by_instant(context.store, OPERATOR, context.home, project.id, config)
    missing = made.counts["without_features"]
    todo = f"{missing} waiting tasks have no cached features: `rankloop features` reads them, then apply again"
    return _in_order(project, made, "the instant reward model", [todo] if missing else [])


def _in_order(project: Project, made: Selected, model: str, todo: list[str]) -> Outcome:
    line = f"what waits to be ranked in {project.name!r} is in order by {made.by} of {model}"
    counts = dict(made.counts)
    return Outcome({"project_id": project.id, "by": made.by, "counts": counts}, [line, *counted(counts), *todo])


def report(arguments: argparse.Namespace, context: Context) -> Outcome:
    project = context.project(arguments.name)
    found = selection_report(context.store, project.id)
    return Outcome({"project_id": project.id, **as_document(found)}, _lines(found))


def _score(context: Context, project: Project, reward_run: str) -> Outcome | None:
    """Let the model score what it has not scored yet; None where there is nothing."""
    with context.store.read() as tx:
        run_id = get_run(tx, reward_run).id
        missing = without_scores(tx, untouched_tasks(tx, project.id), run_id)
    if not missing:
        return None
    config = ScoreConfig(unranked=True)
    return wait(
        context, queue_run(context.store, OPERATOR, RunKind.SCORE, config, project_id=project.id, reward_run_id=run_id)
    )


def _lines(report: SelectionReport) -> list[str]:
    rows = [
        (arm.name, arm.n_tasks, arm.n_ranked, arm.n_prompts, _share(arm.accuracy), _interval(arm.interval),
         None if arm.mean_margin is None else f"{arm.mean_margin:.3g}", _share(arm.tie_share), _share(arm.skip_share),
         None if arm.seconds is None else f"{arm.seconds:.0f}")
        for arm in report.arms
    ]  # fmt: skip
    header = ("ARM", "TASKS", "RANKED", "PROMPTS", "MODEL RIGHT", "95 %", "MARGIN", "TIES", "SKIPS", "SECONDS")
    return [*table(rows, header), "", report.verdict]


def _share(value: float | None) -> str | None:
    return None if value is None else f"{value:.1%}"


def _interval(interval: Interval | None) -> str | None:
    return None if interval is None else f"{interval[0]:.1%} to {interval[1]:.1%}"
