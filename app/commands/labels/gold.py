"""The words `gold` and `pause`: tasks whose ranking is known, and annotators who get no work for now."""

from __future__ import annotations

import argparse
import datetime
from dataclasses import asdict
from typing import Any

from app.commands.base.common import Context, Outcome, add_group, add_word, as_document, table
from data.errors import InvalidInput, NotFound
from data.labels.pauses import Pause, lift_pause, list_pauses
from data.labels.people import person_by_name
from data.labels.rankings import current_rankings
from data.labels.roles import OPERATOR, acting
from data.records import Person, RankingStatus, Role
from data.store import Tx
from labeling.judgement.ranks import is_all_tied
from labeling.work.gold import gold_from_answer, list_gold, unmake_all

_ABOUT = """\
A row of `rankloop import rankings` with "gold": true makes its task gold too. How often gold comes is the project's
setting gold_share; what follows from low agreement are gold_min_items, gold_threshold and on_low_gold."""


def add_words(words: Any) -> None:
    group = add_group(words, "gold", "say which ranking is expected of a task, to check annotators with it")
    parser = add_word(group, "add", add, "make tasks gold by somebody's own rankings of them", epilog=_ABOUT)
    parser.add_argument("project", metavar="NAME", help="name or id of the project")
    parser.add_argument("--from", required=True, dest="author", metavar="PERSON", help="whose rankings are expected")
    parser.add_argument("--tasks", nargs="+", metavar="ID", help="only these; else all that the person has ranked")
    parser = add_word(group, "list", show, "list a project's gold tasks")
    parser.add_argument("project", metavar="NAME", help="name or id of the project")
    parser = add_word(group, "remove", remove, "make gold tasks ordinary ones again")
    parser.add_argument("tasks", nargs="+", metavar="ID")
    group = add_group(words, "pause", "see which annotators are paused, and let them go on")
    parser = add_word(group, "list", show_pauses, "list a project's pauses, lifted ones too, the newest first")
    parser.add_argument("project", metavar="NAME", help="name or id of the project")
    parser = add_word(group, "lift", lift, "let a paused annotator go on")
    parser.add_argument("project", metavar="NAME", help="name or id of the project")
    parser.add_argument("person", metavar="PERSON", help="name of the annotator")
    parser.add_argument("--note", default="", metavar="TEXT", help="why, for the record")


def add(arguments: argparse.Namespace, context: Context) -> Outcome:
    project = context.project(arguments.project)
    with acting(context.store, OPERATOR, Role.RESEARCHER) as tx:
        author = person_by_name(tx, arguments.author)
        task_ids = arguments.tasks or _ranked_by(tx, project.id, author)
        if not task_ids:
            raise InvalidInput(
                f"{author.name} has ranked no task of {project.name!r}; rank some on the Rank page first"
            )
        n_new = sum(gold_from_answer(tx, author.id, task_id) for task_id in task_ids)
    document = {"project_id": project.id, "tasks": task_ids, "new": n_new}
    return Outcome(document, [f"{n_new:,} of {len(task_ids):,} tasks are gold now; the others were"])


def _ranked_by(tx: Tx, project_id: str, author: Person) -> list[str]:
    """What a person has ranked with some order in it."""
    return [
        ranking.task_id
        for ranking, _ in current_rankings(tx, project_id, with_gold=True)
        if ranking.annotator_id == author.id
        and ranking.status is RankingStatus.RANKED
        and not is_all_tied(ranking.ranks or ())
    ]


def show(arguments: argparse.Namespace, context: Context) -> Outcome:
    gold_tasks = list_gold(context.store, context.project(arguments.project).id)
    rows = [(each.task_id, list(each.ranks), each.author or "a file", each.prompt[:50]) for each in gold_tasks]
    none = ["no gold task yet; `rankloop gold add` makes some"]
    return Outcome(
        as_document(gold_tasks), table(rows, ("TASK", "RANKS (1 IS BEST)", "FROM", "PROMPT")) if rows else none
    )


def remove(arguments: argparse.Namespace, context: Context) -> Outcome:
    with acting(context.store, OPERATOR, Role.RESEARCHER) as tx:
        unmake_all(tx, arguments.tasks)
    return Outcome({"tasks": arguments.tasks}, [f"{len(arguments.tasks):,} tasks are ordinary ones again"])


def show_pauses(arguments: argparse.Namespace, context: Context) -> Outcome:
    project = context.project(arguments.project)
    with context.store.read() as tx:
        paused = list_pauses(tx, project.id)
    rows = [(each.annotator, each.reason, _figures(each), _when(each.created_at), _when(each.lifted_at), each.note)
            for each in paused]  # fmt: skip
    header = ("ANNOTATOR", "REASON", "FIGURES", "SINCE", "LIFTED", "NOTE")
    return Outcome(as_document(paused), table(rows, header) if rows else ["nobody is or was paused"])


def lift(arguments: argparse.Namespace, context: Context) -> Outcome:
    project = context.project(arguments.project)
    with acting(context.store, OPERATOR, Role.RESEARCHER) as tx:
        person = person_by_name(tx, arguments.person)
        try:
            lift_pause(tx, project.id, person.id, note=arguments.note)
        except NotFound:
            raise NotFound(f"{person.name} is not paused in {project.name!r}") from None
        latest = list_pauses(tx, project.id, person.id)[0]
    return Outcome(asdict(latest), [f"{person.name} may go on in {project.name!r}"])


def _figures(pause: Pause) -> str:
    figures = pause.figures
    return f"{figures['value']:.2f} (threshold {figures['threshold']:.2f}, n {figures['n']})"


def _when(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
