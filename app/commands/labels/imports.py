"""The word `import`: prompts, finished responses and finished rankings from files."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from app.commands.base.common import Context, Outcome, add_word, existing_file, table
from app.words.progress import ProgressLine
from data.errors import InvalidInput
from data.files.rows import SUFFIXES
from data.labels.roles import OPERATOR
from labeling.files.import_report import ImportReport
from labeling.files.imports import import_prompts, import_rankings, import_responses
from labeling.files.readers import READERS

_NATIVE = "native"
_EPILOG = """\
A line that can't be used is named with its number and its reason, and the rest goes in: the exit status is then 0.
It is 2 if nothing in the file could be used. A file can be imported again; what is known is counted, not doubled.
Each field of the file is named: what it is used for, whether it is kept under `meta`, or that it is ignored.
"""


def add_words(words: Any) -> None:
    parser = add_word(
        words, "import", import_file, "import prompts, finished responses or finished rankings", epilog=_EPILOG
    )
    parser.add_argument("what", choices=("prompts", "responses", "rankings"), metavar="prompts|responses|rankings")
    parser.add_argument("file", metavar="FILE", help=f"its kind is told by its suffix: {', '.join(SUFFIXES)}")
    parser.add_argument("--project", required=True, metavar="NAME", help="name or id of the project")
    parser.add_argument(
        "--format", default=_NATIVE, dest="format_name", metavar="FORMAT", help=f"of rankings: {', '.join(READERS)}"
    )
    parser.add_argument("--prompt-field", metavar="F", help="of prompts: the field or column that holds the text")
    parser.add_argument("--dry-run", action="store_true", help="count what would go in, and store nothing")


def import_file(arguments: argparse.Namespace, context: Context) -> Outcome:
    what: str = arguments.what
    if what != "rankings" and arguments.format_name != _NATIVE:
        raise InvalidInput(f"--format {arguments.format_name}: other tools' formats are read for rankings, not {what}")
    if what != "prompts" and arguments.prompt_field:
        raise InvalidInput(f"--prompt-field is for prompts, not for {what}")
    path = existing_file(arguments.file)
    project = context.project(arguments.project)
    with ProgressLine(f"importing {path.name}") as progress:
        total = _count_lines(path)
        settings: dict[str, Any] = {
            "name": path.name,
            "dry_run": arguments.dry_run,
            "on_row": lambda n: progress.update(n, total, "lines"),
        }
        to = (context.store, OPERATOR, project.id)
        if what == "prompts":
            report = import_prompts(*to, path, prompt_field=arguments.prompt_field, **settings)
        elif what == "responses":
            report = import_responses(*to, path, **settings)
        else:
            report = import_rankings(*to, path, format_name=arguments.format_name, **settings)
    return _outcome(report, project.id)


def _outcome(report: ImportReport, project_id: str) -> Outcome:
    verb = "would import" if report.dry_run else "imported"
    counts = ", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in report.counts.items())
    lines = [f"{verb} from {report.file}: {report.n_rows:,} rows, {counts}, {report.n_problems:,} refused"]
    lines += [f"  line {problem.line}: {problem.message}" for problem in report.problems]
    if report.n_problems > len(report.problems):
        lines.append(f"  and {report.n_problems - len(report.problems):,} more")
    lines += _field_lines(report)
    if not report.n_in and report.counts["known"]:
        lines.append(f"everything in {report.file} that can be used was known already")
    document = {"project_id": project_id, **report.as_dict()}
    if (problem := report.why_nothing) is not None:
        return Outcome(document, lines, status=2, problem=problem)
    return Outcome(document, lines)


def _field_lines(report: ImportReport) -> list[str]:
    """What each field of the file is used for, with the rows that have something there."""
    found = report.fields.as_rows()
    header = ("FIELD", "USED FOR", "ROWS")
    return ["", *table([(each["field"], each["use"], each["rows"]) for each in found], header)] if found else []


def _count_lines(path: Path) -> int | None:
    """About how many rows a file has, for the estimate of the time left; None where counting needs parsing."""
    if SUFFIXES.get(path.suffix.lower()) not in ("jsonl", "csv", "tsv"):
        return None
    with path.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
