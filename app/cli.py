"""The console command `rankloop`: puts the words together, and turns what comes out of them into text and a status.

Exit status: 0 done; 1 the work failed; 2 the words or the input are wrong; 130 waiting was broken off with Ctrl-C.
An error is one line on standard error. Nothing but the standard library is imported before the packages are checked.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.commands.base.common import Context, Outcome, WordParser

_EPILOG = """\
Exit status: 0 done; 1 the work failed; 2 the words or the input are wrong (one line says what, where and what to do).
`rankloop WORD --help` explains a word.
A model is 'demo', a folder, a hub id, run:ID (what a run ended with), or run:ID/best (the best policy a PPO run kept).
"""


def main(words: list[str] | None = None) -> int:
    """Do what the words say (by default those of the process) and return the exit status."""
    try:
        from data.packages import check_packages
    except ImportError:
        import data

        found = list(getattr(data, "__path__", []))
        print(
            f"rankloop: package 'data' is somebody else's: Python finds {found}; use an environment of its own",
            file=sys.stderr,
        )
        return 2
    words = sys.argv[1:] if words is None else words
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a name in another script must not end the command
    from app.commands.base.common import INTERRUPTED, Context
    from data.errors import Fenced, ProjectError, WorkFailed

    context = Context(json="--json" in words)
    try:
        check_packages()
        arguments = build_parser().parse_args(words)
        context = Context(getattr(arguments, "home", None), getattr(arguments, "store", None), json=context.json)
        return _report(arguments.handler(arguments, context), context)
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return _fail(context, "interrupted", INTERRUPTED)
    except ProjectError as error:
        return _fail(context, str(error), 1 if isinstance(error, WorkFailed | Fenced) else 2)
    except OSError as error:
        is_input = isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError | NotADirectoryError)
        return _fail(context, _os_error_text(error), 2 if is_input else 1)
    finally:
        context.close()


def build_parser() -> WordParser:
    """The parser of all words."""
    from app.commands import people, services, upkeep
    from app.commands.base.common import WordParser
    from app.commands.labels import (
        adjudication,
        agreement,
        annotators,
        comparison,
        gold,
        imports,
        projects,
        selection,
        snapshots,
    )
    from app.commands.runs import look, start

    parser = WordParser(
        prog="rankloop",
        description="From prompts and people's rankings to a reward model and a better policy.",
        epilog=_EPILOG,
    )
    parser.add_argument("--version", action="version", version=f"rankloop {_version()}", help="print it and exit")
    all_words = parser.add_subparsers(required=True, metavar="WORD", title="words")
    judging = (agreement, annotators, gold, adjudication, comparison, selection)
    for module in (services, projects, imports, start, look, snapshots, *judging, people, upkeep):
        module.add_words(all_words)
    return parser


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("rankloop")
    except PackageNotFoundError:
        return "(version unknown: a checkout that is not installed)"


def _report(outcome: Outcome, context: Context) -> int:
    from app.commands.base.common import plain

    context.emit(outcome.document)
    if outcome.lines and not context.json:
        print("\n".join(plain(line) for line in outcome.lines), flush=True)
    if outcome.problem:
        context.warn(f"rankloop: {_one_line(outcome.problem)}")
    return outcome.status


def _fail(context: Context, message: str, status: int) -> int:
    message = _one_line(message)
    context.emit({"error": message, "status": status})
    context.warn(f"rankloop: {message}")
    return status


def _os_error_text(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}"


def _one_line(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    sys.exit(main())
