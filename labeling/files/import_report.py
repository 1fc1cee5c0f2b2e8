"""What an import did, or would do: counts, refused lines with their reasons, and what became of each field."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from data.files.rows import Problem
from labeling.files.field_use import FieldUses

MAX_PROBLEMS_SHOWN = 50
GOES_IN = ("new", "tasks", "rankings", "skips", "unacceptable", "gold")  # counts of what is new in the project


@dataclass
class ImportReport:
    """What an import did, or would do. `counts` names everything that went in or was known, and how often.

    Any import may count `repaired` too: rows whose texts had NULs or lone surrogates, which were taken out.
    """

    file: str
    dry_run: bool
    n_rows: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[Problem] = field(default_factory=list)
    n_problems: int = 0
    examples: list[str] = field(default_factory=list)
    fields: FieldUses = field(default_factory=FieldUses)

    @property
    def n_in(self) -> int:
        """How much went in, or would."""
        return sum(self.counts[name] for name in GOES_IN)

    @property
    def why_nothing(self) -> str | None:
        """What to say of a file of which nothing could be used; None if something went in, or is known already."""
        if self.n_in or self.counts["known"]:
            return None
        first = self.problems[0] if self.problems else None
        refused = f"{self.n_problems:,} refused (line {first.line}: {first.message})" if first else ""
        without = self.counts["rows_without_ranking"]
        silent = f"{without:,} without a ranking in this format; is it the right one?" if without else ""
        words = ", ".join(filter(None, (refused, silent)))
        return f"{self.file}: nothing in it can be used; {self.n_rows:,} rows, {words}"

    def add_problem(self, problem: Problem) -> None:
        self.n_problems += 1
        if len(self.problems) < MAX_PROBLEMS_SHOWN:
            self.problems.append(problem)

    def as_dict(self) -> dict[str, Any]:
        """The report as one JSON object."""
        shown = [{"line": problem.line, "message": problem.message} for problem in self.problems]
        head = {"file": self.file, "dry_run": self.dry_run, "rows": self.n_rows, **self.counts}
        found = {"fields": self.fields.as_rows(), "examples": self.examples}
        return head | {"refused": self.n_problems, "problems": shown, **found}
