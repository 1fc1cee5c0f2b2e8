"""The word `adjudicate`: tasks whose annotators disagree, and a researcher's decision on them."""

from __future__ import annotations

import argparse
import uuid
from typing import Any

from app.commands.base.common import Context, Outcome, add_group, add_word, as_document, table
from app.words.values import order_words, prompt_text
from data.errors import InvalidInput
from data.labels.people import person_by_name
from data.labels.rankings import prompt_beginnings
from labeling.review.adjudication import decide as decide_case
from labeling.review.adjudication import disputed_tasks, open_case


def add_words(words: Any) -> None:
    group = add_group(words, "adjudicate", "decide on tasks whose annotators disagree")
    waiting = add_word(group, "list", list_all, "list the tasks that wait for a decision, the least agreed first")
    shown = add_word(group, "show", show, "show a task with its responses and rankings")
    decided = add_word(group, "decide", decide, "decide on a task; snapshots then use the decision")
    for parser in (waiting, shown, decided):
        parser.add_argument("project", metavar="PROJECT", help="name or id of the project")
    for parser in (shown, decided):
        parser.add_argument("task", metavar="TASK", help="the task's id")
    decided.add_argument("--by", required=True, metavar="NAME", help="the researcher who decides")
    decided.add_argument("--reason", required=True, metavar="TEXT", help="why")
    how = decided.add_mutually_exclusive_group(required=True)
    how.add_argument("--like", metavar="RANKING", help="the ranking with this id is right")
    how.add_argument(
        "--ranks", metavar="1,2,2", help="ranks of your own, 1 is best, for the responses in the order of `show`"
    )


def list_all(arguments: argparse.Namespace, context: Context) -> Outcome:
    project = context.project(arguments.project)
    disputed = disputed_tasks(context.store, project.id)
    with context.store.read() as tx:
        prompts = prompt_beginnings(tx, [each.task_id for each in disputed], 60)
    rows = [
        (each.task_id, None if each.agreement is None else f"{each.agreement:.2f}", each.n, each.n_rankings,
         each.n_unacceptable, prompts[each.task_id])
        for each in disputed
    ]  # fmt: skip
    none = [f"no task waits: none has an agreement below {project.settings.adjudicate_below:g} (`adjudicate_below`)"]
    lines = table(rows, ("TASK", "AGREEMENT", "COMPARISONS", "RANKINGS", "UNACCEPTABLE", "PROMPT")) if rows else none
    return Outcome(as_document(disputed), lines)


def show(arguments: argparse.Namespace, context: Context) -> Outcome:
    project = context.project(arguments.project)
    case = open_case(context.store, project.id, arguments.task)
    lines = ["prompt:", prompt_text(case.task.messages)]
    for place, response in enumerate(case.task.responses):
        lines += ["", f"response {chr(65 + place)}:", response.text]
    lines.append("")
    for ranking in case.rankings:
        said = f": {' '.join(ranking.comment.split())}" if ranking.comment else ""
        lines.append(f"ranking {ranking.id}: {order_words(ranking.ranks or (), ranking.detail.unplaced)}{said}")
    if case.n_unacceptable:
        lines.append(f"no response is acceptable: {case.n_unacceptable} of {len(case.seen)} say so")
    if case.decision is not None:
        decided = order_words(case.decision.ranks, case.decision.unplaced)
        lines.append(f"decided: {decided}, because: {case.decision.reason}")
    return Outcome(as_document(case), lines)


def decide(arguments: argparse.Namespace, context: Context) -> Outcome:
    project = context.project(arguments.project)
    with context.store.read() as tx:
        person = person_by_name(tx, arguments.by)
    case = open_case(context.store, project.id, arguments.task)
    made = decide_case(
        context.store, person, project.id, arguments.task,
        reason=arguments.reason, submission_key=uuid.uuid4().hex, seen=case.seen,
        supersedes_id=case.decision.id if case.decision else None,
        chosen_id=arguments.like, ranks=_ranks(arguments.ranks),
    )  # fmt: skip
    return Outcome(as_document(made), [f"decided: {order_words(made.ranks, made.unplaced)} (id {made.id})"])


def _ranks(words: str | None) -> list[int] | None:
    if words is None:
        return None
    parts = words.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise InvalidInput(f"--ranks {words!r}: one number for each response is needed, as in 1,2,2")
    return [int(part) for part in parts]
