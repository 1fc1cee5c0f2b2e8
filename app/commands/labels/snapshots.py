"""The words `snapshot` and `export`: freeze judgements, and write them for other libraries."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from app.commands.base.common import Context, Outcome, add_group, add_word, as_document, counted, named, table
from app.commands.base.fields import add_set, field_lines
from app.words.progress import ProgressLine
from data.errors import InvalidInput
from data.fields import from_words, to_dict
from data.files.snapshots import get_snapshot, list_snapshots
from data.labels.projects import project_counts
from data.labels.roles import OPERATOR
from data.records import Snapshot
from labeling.snapshot.export import FORMATS, export_snapshot
from labeling.snapshot.freeze import Plan, SnapshotConfig, freeze_snapshot, plan_snapshot


def add_words(words: Any) -> None:
    group = add_group(words, "snapshot", "freeze a project's rankings as preference pairs")
    fields = "\n".join(["fields for --set:", *field_lines(SnapshotConfig)])
    parser = add_word(group, "create", create, "count what a snapshot would hold, then freeze it", epilog=fields)
    parser.add_argument("--project", required=True, metavar="NAME", help="name or id of the project")
    add_set(parser, "the snapshot, listed below")
    parser.add_argument("--dry-run", action="store_true", help="stop after the counts")
    parser = add_word(group, "list", list_all, "list snapshots, the newest first")
    parser.add_argument("--project", metavar="NAME", help="only those of this project")
    parser = add_word(group, "show", show, "show a snapshot with every count")
    parser.add_argument("id", metavar="ID")

    parser = add_word(words, "export", export, "write a snapshot for another library")
    parser.add_argument("snapshot", metavar="SNAPSHOT", help="its id")
    parser.add_argument("--format", required=True, dest="format_name", metavar="|".join(FORMATS))
    parser.add_argument("--out", required=True, metavar="DIR", help="a folder that is new or empty")


def create(arguments: argparse.Namespace, context: Context) -> Outcome:
    config = from_words(SnapshotConfig, arguments.fields)
    project = context.project(arguments.project)
    with context.store.read() as tx:
        n_rankings = project_counts(tx, project.id)["rankings"]
    with ProgressLine("counting") as progress:
        plan = plan_snapshot(
            context.store, project.id, config, on_group=lambda n: progress.update(n, n_rankings, "rankings")
        )
    for line in _plan_lines(plan):
        context.say(line)
    if arguments.dry_run:
        counts = {"counts": plan.counts, "examples": plan.examples}
        document = {"dry_run": True, "project_id": project.id, "config": to_dict(config), **counts}
        if not plan.counts["pairs"]:
            problem = f"there would be no pair to freeze in {project.name!r}; rank some tasks first"
            return Outcome(document, status=2, problem=problem)
        return Outcome(document)
    n_used = plan.counts["rankings_used"]
    with ProgressLine("freezing") as progress:
        snapshot = freeze_snapshot(
            context.store, OPERATOR, context.home, project.id, config,
            on_group=lambda n: progress.update(n, n_used, "rankings"),
        )  # fmt: skip
    document = _document(snapshot, context)
    return Outcome(document, [f"frozen as snapshot {snapshot.id}", f"  files: {document['folder']}"])


def list_all(arguments: argparse.Namespace, context: Context) -> Outcome:
    project_id = context.project(arguments.project).id if arguments.project else None
    with context.store.read() as tx:
        snapshots = list_snapshots(tx, project_id)
    rows = [(each.id, each.counts["pairs"], each.counts["prompts"], each.project_id) for each in snapshots]
    lines = table(rows, ("ID", "PAIRS", "PROMPTS", "PROJECT"))
    none = ["no snapshot yet; `rankloop snapshot create` makes one"]
    return Outcome([_document(each, context) for each in snapshots], lines if rows else none)


def show(arguments: argparse.Namespace, context: Context) -> Outcome:
    with context.store.read() as tx:
        snapshot = get_snapshot(tx, arguments.id)
    document = _document(snapshot, context)
    lines = [f"snapshot {snapshot.id}", *counted(snapshot.counts), "  made with:", *named(snapshot.config, "    ")]
    lines += [f"  content hash: {snapshot.content_hash}", f"  files: {document['folder']}"]
    return Outcome(document, lines)


def export(arguments: argparse.Namespace, context: Context) -> Outcome:
    with context.store.read() as tx:
        snapshot = get_snapshot(tx, arguments.snapshot)
    target = Path(arguments.out).expanduser().absolute()
    if target.exists() and not target.is_dir():
        raise InvalidInput(f"--out {arguments.out}: that is a file; name a new folder")
    with ProgressLine("exporting") as progress:
        manifest = export_snapshot(
            context.home, snapshot, arguments.format_name, target,
            on_row=lambda done, total: progress.update(done, total, "rows"),
        )  # fmt: skip
    rows = ", ".join(f"{number:,} {side}" for side, number in manifest["rows"].items())
    lines = [f"exported to {target}: {rows} rows"]
    lines += [f"  left out: {number:,} {reason}" for reason, number in manifest["left_out"].items()]
    document = {"folder": str(target), **manifest}
    if not any(manifest["rows"].values()):
        problem = (
            f"snapshot {snapshot.id} has no row in the format {arguments.format_name}: only its manifest is written"
        )
        return Outcome(document, lines, status=1, problem=problem)
    return Outcome(document, lines)


def _plan_lines(plan: Plan) -> list[str]:
    lines = ["a snapshot would hold:", *counted(plan.counts)]
    for example in plan.examples:
        lines.append("  a pair:")
        lines += [f"    {name}: {' '.join(text.split())[:120]}" for name, text in example.items()]
    return lines


def _document(snapshot: Snapshot, context: Context) -> dict[str, Any]:
    return {**as_document(snapshot), "folder": str(context.home.snapshot_folder(snapshot.id))}
