"""Which folders a person at a browser may name files and models in. The command line, whose user has a shell, is free.

A path is told apart by its words alone first, so that nothing outside is even looked at, and again with its links
resolved. What lies outside gets one answer, whether there is something or not.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from data.errors import InvalidInput
from data.files.paths import Home

ROOTS_VARIABLE = "RANKLOOP_ROOTS"
_SHOWN = 200  # characters of a path in a message
# An account's or a library's model on the hub; what has another form can only be a path.
_HUB_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,95}(/[A-Za-z0-9_][A-Za-z0-9_.-]{0,95})?")


@dataclass(frozen=True)
class ReadableFolders:
    """The folders, each as it was named; links in their paths are resolved when a path is compared with them."""

    roots: tuple[Path, ...]

    def inside(self, field: str, written: str) -> Path:
        """The place that a field's value names, without `..` and links. Raises InvalidInput unless it lies inside."""
        folders = ", ".join(map(str, self.roots))
        outside = InvalidInput(
            f"{field} = {_short(written)}: lies outside the folders that this server may read: {folders}. "
            "Put it into one of them, or ask an admin to add its folder (`rankloop serve --root DIR`)"
        )
        resolved = [Path(os.path.realpath(root)) for root in self.roots]
        wanted = Path(os.path.normpath(absolute(written)))
        if not any(wanted.is_relative_to(root) for root in (*self.roots, *resolved)):
            raise outside
        try:
            resolved_path = Path(os.path.realpath(wanted))
        except ValueError:  # no path at all: a NUL, or half a character
            raise outside from None
        if not any(resolved_path.is_relative_to(root) for root in resolved):
            raise outside
        return resolved_path

    @property
    def words(self) -> str:
        """For a form's help."""
        return f"On this server, paths may lie in: {', '.join(map(str, self.roots))}"


def readable_folders(home: Home) -> ReadableFolders:
    """The home folder, and what `rankloop serve --root` and the environment name."""
    return ReadableFolders(tuple(dict.fromkeys((home.root, *named_roots()))))


def named_roots() -> tuple[Path, ...]:
    """The folders that the environment names: whole paths, as PATH has them. What is not whole is none."""
    words = os.environ.get(ROOTS_VARIABLE, "").split(os.pathsep)
    return tuple(Path(word) for word in words if os.path.isabs(word))


def check_roots(named: Iterable[str]) -> tuple[Path, ...]:
    """Folders that an admin names, absolute. Raises InvalidInput for one that is not there."""
    roots = []
    for word in named:
        folder = Path(os.path.normpath(absolute(word)))
        if not folder.is_dir() or os.pathsep in str(folder):
            raise InvalidInput(f"--root {word!r}: there is no such folder, or its name has a {os.pathsep!r}")
        roots.append(folder)
    return tuple(roots)


def absolute(written: str) -> Path:
    """The path with the user's folder in place of ~, from the working folder on. Looks at nothing."""
    return Path(os.path.abspath(os.path.expanduser(written)))


def is_hub_id(written: str) -> bool:
    """Whether this has the form of a model's name on the hub, which is never taken for a path."""
    return _HUB_ID.fullmatch(written) is not None and ".." not in written


def _short(written: str) -> str:
    return repr(written if len(written) <= _SHOWN else f"{written[:_SHOWN]}...")
