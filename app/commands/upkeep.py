"""The words `backup` and `doctor`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from app.commands.base.common import Context, Outcome, add_word, as_document, counted
from app.commands.doctor import Verdict, examine
from data.files.paths import STORE_VARIABLE
from data.store.backup import backup


def add_words(words: Any) -> None:
    parser = add_word(words, "backup", back_up, "write a checked copy of the store, also while others write to it")
    parser.add_argument("file", metavar="FILE", help="a new file")
    add_word(words, "doctor", doctor, "look at everything that rankloop needs; status 1 if there is a problem")


def back_up(arguments: argparse.Namespace, context: Context) -> Outcome:
    made = backup(context.store, Path(arguments.file).expanduser().absolute())
    lines = [
        f"backed up to {made['file']} ({made['bytes']:,} bytes); the copy was checked",
        *counted({"rows": made["rows"]}),
    ]
    return Outcome(made, lines)


def doctor(arguments: argparse.Namespace, context: Context) -> Outcome:
    url = getattr(arguments, "store", None) or os.environ.get(STORE_VARIABLE)
    findings = []
    for finding in examine(getattr(arguments, "home", None), url):
        findings.append(finding)
        context.say(f"{finding.verdict:<8} {finding.name}: {finding.found}")
        if finding.advice:
            context.say(f"{'':<8} -> {finding.advice}")
    problems = [finding.name for finding in findings if finding.verdict is Verdict.PROBLEM]
    document = {"ok": not problems, "findings": as_document(findings)}
    if problems:
        return Outcome(document, status=1, problem=f"there is a problem with: {', '.join(problems)}")
    return Outcome(document, ["all is well"])
