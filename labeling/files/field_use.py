"""What becomes of each field of an imported row: used for something, kept under `meta`, or ignored. None goes missing.

A row notes which of its fields are read, and so do the objects in it, one level after the other, under a path:
`data.prompt`, `annotations[].completed_by`. What nobody reads and nobody keeps is ignored, and counted as such.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

META = "kept under meta"
IGNORED = "ignored"
REFUSED = "refused with its row"
_SOMETHING = "read by this format"
_USES = {
    "the prompt": ("prompt", "messages", "instruction", "question", "text", "role", "content"),
    "the prompt, behind the instruction": ("input",),
    "the prompt's own id": ("id", "prompt_id"),
    "the side: training or held out": ("split",),
    "reference facts beside the prompt": ("facts",),
    META: ("meta",),
    "the responses": ("responses", "conversation_a", "conversation_b", "replies", "body", "html", "title"),
    "the better response": ("chosen",),
    "the worse response": ("rejected",),
    "the model of a response": ("model", "model_a", "model_b", "model_name"),
    "the ranks": ("ranks", "rank", "winner", "value", "selected", "ranker", "unplaced"),
    "who ranked": ("annotator", "judge", "completed_by"),
    "the state of the answer": ("status", "skip_reason", "was_cancelled", "deleted", "left_out", "gold", "expected"),
    "what was said beside the ranks": ("acceptable", "flags", "quality", "strength", "comment"),
    "how it was shown, and how long it took": ("display_order", "duration_ms"),
    "which answer of an export it is": ("ranking_id", "pair_of", "rank_distance", "adjudicated"),
    "the task's texts": ("data",),
    "the answers": ("annotations", "result"),
}
_PARTS = ("role", "content", "text")
_USE_OF = {name: use for use, names in _USES.items() for name in names}


class Watched(dict[str, Any]):
    """A row of a file, or an object in it, that notes which of its fields are read by name.

    Reading it as a whole (`items`, `sorted`, `in`) notes nothing.
    """

    def __init__(self, value: dict[str, Any], path: str = "") -> None:
        super().__init__(value)
        self._path = path
        self._read: set[str] = set()
        self._kept: set[str] = set()
        self._inside: dict[str, Any] = {}

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default  # noqa: SIM401  it is this method that is written here

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        self._read.add(name)
        if name not in self._inside:
            self._inside[name] = self._watched(name, value)
        return self._inside[name]

    def _watched(self, name: str, value: Any) -> Any:
        if isinstance(value, dict):
            return Watched(value, f"{self._path}{name}.")
        if isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
            return [Watched(each, f"{self._path}{name}[].") for each in value]
        return value

    def keep(self, names: Iterable[str]) -> None:
        """Note that these fields go under `meta` as they are."""
        self._kept |= set(names)

    def keep_unread(self) -> dict[str, Any]:
        """What nobody has read, of the row itself and of the objects in it, to be kept under `meta`."""
        unread = {name: value for name, value in self.items() if name not in self._read and not is_empty(value)}
        self.keep(unread)
        for name in self._read:
            inside = self._inside[name]
            if isinstance(inside, Watched) and (rest := inside.keep_unread()):
                unread[name] = rest
        return unread

    def uses(self) -> Iterator[tuple[str, str]]:
        """Path and use of each field that is not empty; of a field that was opened, those of the fields in it."""
        for name, value in self.items():
            if is_empty(value):
                continue
            inside = self._inside.get(name)
            opened = [inside] if isinstance(inside, Watched) else inside if isinstance(inside, list) else []
            opened = [each for each in opened if isinstance(each, Watched) and each.is_opened]
            if name in self._kept or not opened:
                yield self._path + name, self._use(name)
            for each in opened:
                yield from each.uses()

    @property
    def is_opened(self) -> bool:
        """Whether something was read in it; else whoever read it took it whole."""
        return bool(self._read)

    def _use(self, name: str) -> str:
        if name in self._kept:
            return META
        return _words(name, self._path) if name in self._read else IGNORED


class FieldUses:
    """In how many rows each field of a file was put to which use. A row counts a path once for each use."""

    def __init__(self) -> None:
        self.rows: Counter[tuple[str, str]] = Counter()

    def add(self, row: dict[str, Any], *, is_refused: bool) -> None:
        """Count the fields of a row: of one that was refused, all as refused with it."""
        if is_refused:
            self.rows.update({(name, REFUSED) for name, value in row.items() if not is_empty(value)})
        elif isinstance(row, Watched):
            self.rows.update(set(row.uses()))

    def as_rows(self) -> list[dict[str, Any]]:
        """The table: what is ignored comes last but for what was refused."""
        order = [META, IGNORED, REFUSED]
        found = sorted(self.rows.items(), key=lambda each: each[0][1] in order and 1 + order.index(each[0][1]))
        return [{"field": path, "use": use, "rows": n} for (path, use), n in found]


def is_empty(value: Any) -> bool:
    """Whether nothing can be lost with it."""
    return value is None or value in ("", [], {})


def _words(name: str, path: str) -> str:
    if name in _PARTS and path:  # `chosen[].content`: as what it is a part of
        name = path.removesuffix(".").removesuffix("[]").rpartition(".")[2]
    if name in _USE_OF:
        return _USE_OF[name]
    if name.endswith(".responses"):
        return "the answers"
    if name.endswith(".responses.users"):
        return "who ranked"
    return "the state of the answer" if name.endswith(".responses.status") else _SOMETHING
