"""What `rankloop train ppo --dry-run` prints: every check, the memory by part, and a sample as the models read it."""

from __future__ import annotations

from typing import Any

from app.commands.base.common import Context, Outcome, table
from app.commands.base.waiting import wait
from data.records import Run

PARTS = ("weights", "gradients", "optimizer", "activations", "cache")


def checked(context: Context, run: Run) -> Outcome:
    """Wait for a check; status 1 unless all of it is green."""
    outcome = wait(context, run)
    if outcome.status:
        return outcome
    report = outcome.document["result"]
    if report["ok"]:
        return Outcome(outcome.document, report_lines(report))
    failed = next(check for check in report["checks"] if check["state"] == "failed")
    return Outcome(outcome.document, report_lines(report), 1, f"{failed['name']}: {failed['words']}")


def report_lines(report: dict[str, Any]) -> list[str]:
    """The report for people."""
    checks = [(check["state"], check["name"], check["words"]) for check in report["checks"]]
    lines = table(checks, ("STATE", "CHECK", "FOUND"))
    if parts := report["memory"].get("parts_mb"):
        rows = [(part["name"], *(f"{part[name]:,.1f}" for name in PARTS)) for part in parts]
        lines += ["", "memory in MB, by prediction:", *table(rows, ("ROLE", *(part.upper() for part in PARTS)))]
    for shown in report.get("samples", []):
        notes = shown["notes"] or "nothing is cut"
        lines += [
            "",
            f"a sample as the {shown['reader']} reads it ({shown['tokens']:,} tokens; {notes}):",
            shown["text"],
        ]
    return lines
