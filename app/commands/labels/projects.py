"""The word `project`: create, set, list, show."""

from __future__ import annotations

import argparse
from typing import Any

from app.commands.base.common import (
    Context,
    Outcome,
    add_group,
    add_word,
    as_document,
    counted,
    existing_file,
    table,
)
from app.commands.base.fields import add_set, field_lines
from data.errors import InvalidInput
from data.fields import from_words, to_dict
from data.label_settings import DEFAULT_FLAGS, LabelSettings, changed_settings
from data.labels.projects import (
    DEFAULT_GUIDELINES,
    MAX_K,
    MIN_K,
    list_projects,
    project_counts,
)
from data.labels.roles import OPERATOR
from data.records import Project
from data.text import decode_utf8
from labeling.projects import change_project, new_project


def add_words(words: Any) -> None:
    group = add_group(words, "project", "make projects, and see what is in them")
    parser = add_word(group, "create", create, "make a project")
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--k", type=int, default=4, help=f"responses per prompt, {MIN_K} to {MAX_K} (default 4)")
    parser.add_argument("--overlap", type=int, default=1, help="annotators per task (default 1)")
    parser.add_argument("--guidelines", metavar="F", help="a text file that tells annotators how to rank")
    _add_settings(parser)
    parser = add_word(group, "set", change, "change what a project asks of its annotators")
    parser.add_argument("name", metavar="NAME", help="its name or id")
    parser.add_argument("--skip-reasons", metavar="F", help="a text file with the reasons to skip, one a line")
    parser.add_argument("--guidelines", metavar="F", help="a text file with new guidelines")
    _add_settings(parser)
    add_word(group, "list", list_all, "list the projects, the oldest first")
    parser = add_word(group, "show", show, "show a project with its counts and its guidelines")
    parser.add_argument("name", metavar="NAME", help="its name or id")


def _add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--flags", metavar="F", help="a text file with the flags for responses, one a line")
    add_set(parser, "the settings for labelling")
    parser.epilog = "\n".join(["fields of --set:", *field_lines(LabelSettings)])


def create(arguments: argparse.Namespace, context: Context) -> Outcome:
    guidelines = DEFAULT_GUIDELINES if arguments.guidelines is None else _text(arguments.guidelines)
    settings = from_words(LabelSettings, arguments.fields)
    flags = DEFAULT_FLAGS if arguments.flags is None else _lines(arguments.flags)
    project = new_project(
        context.store, OPERATOR, arguments.name, k=arguments.k, overlap=arguments.overlap, guidelines=guidelines,
        flags=flags, settings=settings,
    )  # fmt: skip
    line = f"project {project.name!r} is made (id {project.id}, k {project.k}, overlap {project.overlap})"
    return Outcome(as_document(project), [line])


def change(arguments: argparse.Namespace, context: Context) -> Outcome:
    before = context.project(arguments.name)
    lists = {name: _lines(file) for name in ("flags", "skip_reasons") if (file := getattr(arguments, name)) is not None}
    settings = from_words(LabelSettings, arguments.fields, to_dict(before.settings)) if arguments.fields else None
    guidelines = None if arguments.guidelines is None else _text(arguments.guidelines)
    if settings is None and guidelines is None and not lists:
        raise InvalidInput("nothing to change: give --set field=value, --flags, --skip-reasons or --guidelines")
    project = change_project(context.store, OPERATOR, before.id, settings=settings, guidelines=guidelines, **lists)
    return Outcome(as_document(project), [f"project {project.name!r} is changed", *_settings_lines(project)])


def _settings_lines(project: Project) -> list[str]:
    changed = changed_settings(project.settings)
    lines = [f"  {name}: {value}" for name, value in changed.items()]
    return ["settings that differ from the defaults:", *lines] if lines else ["settings: the defaults"]


def _text(file: str) -> str:
    return decode_utf8(existing_file(file).read_bytes(), file)


def _lines(file: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in _text(file).splitlines() if line.strip())


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
        *_settings_lines(project),
        f"guidelines, version {project.guidelines_version}:",
        project.guidelines,
    ]
    return Outcome(as_document(project) | {"counts": counts}, lines)
