"""What all words share: where to work, what to hand back, the options that each takes."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from data.errors import InvalidInput
from data.files.paths import HOME_VARIABLE, STORE_VARIABLE, Home, open_home
from data.labels.projects import project_by_name
from data.records import Project
from data.store import Store, open_store

INTERRUPTED = 130
Words = "argparse._SubParsersAction[WordParser]"


@dataclass(frozen=True)
class Outcome:
    """What a word did: a document for `--json`, lines for people, and the exit status.

    `problem` goes to standard error in either case, and into the document where there is none.
    """

    document: Any
    lines: list[str] = field(default_factory=list)
    status: int = 0
    problem: str = ""


Handler = Callable[[argparse.Namespace, "Context"], Outcome]


class Context:
    """Where one command works. The home folder and the store are opened when they are first asked for."""

    def __init__(self, home: str | None = None, store: str | None = None, *, json: bool = False) -> None:
        self._home_folder, self._store_url, self.json = home, store, json
        self._has_emitted = False

    @cached_property
    def home(self) -> Home:
        return open_home(self._home_folder)

    @property
    def store_url(self) -> str:
        return self._store_url or os.environ.get(STORE_VARIABLE) or self.home.store_url

    @cached_property
    def store(self) -> Store:
        return open_store(self.store_url)

    def close(self) -> None:
        if "store" in self.__dict__:
            self.store.close()

    def project(self, name: str) -> Project:
        """The project with this name or id. Raises NotFound."""
        with self.store.read() as tx:
            return project_by_name(tx, name)

    def emit(self, document: Any) -> None:
        """Print the one document of `--json`; later calls, and a command without `--json`, print nothing."""
        if self.json and not self._has_emitted:
            self._has_emitted = True
            print(json_text(document), flush=True)

    def say(self, text: str) -> None:
        """Tell a person something while the work goes on; with `--json`, not on standard output."""
        print(plain(text), file=sys.stderr if self.json else sys.stdout, flush=True)

    def warn(self, text: str) -> None:
        """Tell a person something that is no result: always on standard error."""
        print(plain(text), file=sys.stderr, flush=True)


class WordParser(argparse.ArgumentParser):
    """A parser that has the common options, reads no abbreviations, and whose errors are one line."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **settings)
        common = self.add_argument_group("options of every word")
        hide = argparse.SUPPRESS  # a word's own default would hide what stands before the word
        common.add_argument("--home", metavar="D", default=hide, help=f"the home folder (or {HOME_VARIABLE})")
        common.add_argument(
            "--store", metavar="URL", default=hide,
            help=f"sqlite:///FILE or postgresql+psycopg://... (or {STORE_VARIABLE}); else in the home folder",
        )  # fmt: skip
        common.add_argument(
            "--json", action="store_true", default=hide, help="print one JSON document, and nothing else, on stdout"
        )

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        sys.stdout.flush()  # here it can be caught that whoever reads the help has seen enough
        super().exit(status, message)

    def error(self, message: str) -> NoReturn:
        raise InvalidInput(f"{message}; `{self.prog} --help` shows what is allowed")


def add_word(words: Any, name: str, handler: Handler, help: str, **settings: Any) -> WordParser:
    """Add a word that does something."""
    parser: WordParser = words.add_parser(name, help=help, description=sentence(help), **settings)
    parser.set_defaults(handler=handler)
    return parser


def add_group(words: Any, name: str, help: str, **settings: Any) -> Any:
    """Add a word that has words of its own, and return where to add them."""
    parser: WordParser = words.add_parser(name, help=help, description=sentence(help), **settings)
    return parser.add_subparsers(required=True, metavar="WORD", title="words")


def as_document(value: Any) -> Any:
    """A record, or a list of records, as what JSON can hold."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return [as_document(each) for each in value] if isinstance(value, list) else value


def json_text(document: Any) -> str:
    """One JSON document in ASCII: any terminal and any pipe can carry it."""
    return json.dumps(document, indent=2)


def plain(text: str) -> str:
    """Text for a terminal: control characters, which could move its cursor or colour it, are shown as escapes."""
    return "".join(
        char if char in "\n\t" or char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


def table(rows: list[tuple[Any, ...]], header: tuple[str, ...]) -> list[str]:
    """Rows as lines with aligned columns."""
    texts = [header, *[tuple("-" if cell is None else str(cell) for cell in row) for row in rows]]
    widths = [max(len(row[place]) for row in texts) for place in range(len(header))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in texts]


def counted(counts: dict[str, Any], indent: str = "  ") -> list[str]:
    """Counts as lines in words, one each, those inside a count below it."""
    lines = []
    for name, value in counts.items():
        words = name.replace("_", " ")
        if isinstance(value, dict):
            lines += [f"{indent}{words}:", *counted(value, indent + "  ")]
        else:
            lines.append(f"{indent}{words}: {_shown(value) if isinstance(value, float | None) else f'{value:,}'}")
    return lines


def named(values: dict[str, Any], indent: str = "  ") -> list[str]:
    """Values as lines under their exact names, as `--set` and the documentation have them."""
    lines = []
    for name, value in values.items():
        if isinstance(value, dict):
            lines += [f"{indent}{name}:", *named(value, indent + "  ")]
        else:
            lines.append(f"{indent}{name}: {_shown(value)}")
    return lines


def _shown(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def existing_file(name: str) -> Path:
    """The absolute path of a file that a person named. Raises InvalidInput where there is none."""
    path = Path(name).expanduser().absolute()
    if not path.is_file():
        raise InvalidInput(f"{name}: there is no such file")
    return path
