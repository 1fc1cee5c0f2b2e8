"""The word `project`: create, list, show."""

from __future__ import annotations

import argparse
from typing import Any

from app.commands.common import (
    Context,
    Outcome,
    add_group,
    add_word,
    as_document,
    counted,
    existing_file,
    table,
)
from data.projects import DEFAULT_GUIDELINES, MAX_K, MIN_K, create_project, list_projects, project_counts
from data.text import decode_utf8


def add_words(words: Any) -> None:
    group = add_group(words, "project", "make projects, and see what is in them")
    parser = add_word(group, "create", create, "make a project")
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--k", type=int, default=4, help=f"responses per prompt, {MIN_K} to {MAX_K} (default 4)")
    parser.add_argument("--overlap", type=int, default=1, help="annotators per task (default 1)")
    parser.add_argument("--guidelines", metavar="F", help="a text file that tells annotators how to rank")
    add_word(group, "list", list_all, "list the projects, the oldest first")
    parser = add_word(group, "show", show, "show a project with its counts and its guidelines")
    parser.add_argument("name", metavar="NAME", help="its name or id")


def create(arguments: argparse.Namespace, context: Context) -> Outcome:
    guidelines = DEFAULT_GUIDELINES
    if arguments.guidelines:
        path = existing_file(arguments.guidelines)
        guidelines = decode_utf8(path.read_bytes(), arguments.guidelines)
    with context.store.begin() as tx:
        project = create_project(tx, arguments.name, k=arguments.k, overlap=arguments.overlap, guidelines=guidelines)
    line = f"project {project.name!r} is made (id {project.id}, k {project.k}, overlap {project.overlap})"
    return Outcome(as_document(project), [line])


def list_all(_arguments: argparse.Namespace, context: Context) -> Outcome:
    with context.store.read() as tx:
        rows = [(project, project_counts(tx, project.id)) for project in list_projects(tx)]
    header = ("NAME", "K", "PROMPTS", "TASKS", "RANKINGS", "ID")
    lines = table([(each.name, each.k, n["prompts"], n["tasks"], n["rankings"], each.id) for each, n in rows], header)
    documents = [as_document(project) | {"counts": counts} for project, counts in rows]
    return Outcome(documents, lines if rows else ["no project yet; `rankloop project create NAME` makes one"])


def show(arguments: argparse.Namespace, context: Context) -> Outcome:
    project = context.project(arguments.name)
    with context.store.read() as tx:
        counts = project_counts(tx, project.id)
    lines = [
        f"project {project.name} (id {project.id})",
        f"  responses per prompt: {project.k}",
        f"  annotators per task: {project.overlap}",
        *counted(counts),
        f"guidelines, version {project.guidelines_version}:",
        project.guidelines,
    ]
    return Outcome(as_document(project) | {"counts": counts}, lines)
