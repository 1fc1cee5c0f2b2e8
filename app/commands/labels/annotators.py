"""The word `annotators`: how each of a project's annotators works."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from app.commands.base.common import Context, Outcome, add_word, as_document, table

if TYPE_CHECKING:
    from labeling.judgement.pair_agreement import PairAgreement
    from labeling.work.checks import AnnotatorRow

_HEADER = (
    "ANNOTATOR", "RANKED", "UNACCEPTABLE", "SKIPPED", "LATE", "MEDIAN S", "HASTY", "PER MINUTE", "PLACE P", "LONGER",
    "LONGER P", "GOLD", "ITSELF", "ALARMS",
)  # fmt: skip
_ABOUT = """\
Hasty: answered faster than the texts can be read. Per minute: the most answers within a minute.
Place p: of rank 1 falling on the places of the screen as unevenly by chance. Longer: the share of rankings whose
longer responses won more pairs than they lost, with its 95 % interval, and p of a share as far from a half by chance.
A small p is a reason to look at the rankings, no verdict; of twenty annotators one is below 0.05 by chance.
Gold: pair agreement with what is expected of gold tasks. Itself: pair agreement of first answers and silent repeats.
Both with their 95 % intervals (Wilson's, of the tasks).
Alarms: gold below the project's threshold, or haste above it, since the last pause was lifted."""


def add_words(words: Any) -> None:
    about = "show how each annotator works: answers, time, haste, favoured places and lengths"
    parser = add_word(words, "annotators", show, about, epilog=_ABOUT)
    parser.add_argument("project", metavar="NAME", help="name or id of the project")


def show(arguments: argparse.Namespace, context: Context) -> Outcome:
    from labeling.work.checks import annotator_table  # SciPy with it, which other words have no use for

    rows = annotator_table(context.store, context.project(arguments.project).id)
    lines = [*table([_cells(row) for row in rows], _HEADER), "", *_ABOUT.splitlines()] if rows else ["no answer yet"]
    return Outcome(as_document(rows), lines)


def _cells(row: AnnotatorRow) -> tuple[Any, ...]:
    length = row.length
    longer = None if length.share is None else f"{length.share:.2f} ({length.low:.2f}-{length.high:.2f}, n {length.n})"
    return (
        row.name, row.n_ranked, row.n_unacceptable, row.n_skipped, row.n_late,
        None if row.median_seconds is None else f"{row.median_seconds:.1f}",
        f"{row.n_hasty} of {row.n_timed}", row.busiest_minute,
        _p(row.position.p_value), longer, _p(length.p_value), _agreed(row.gold), _agreed(row.consistency), _alarms(row),
    )  # fmt: skip


def _agreed(agreement: PairAgreement) -> str | None:
    if agreement.value is None:
        return None
    return (
        f"{agreement.value:.2f} ({agreement.low:.2f}-{agreement.high:.2f}, {agreement.n} pairs of {agreement.n_items})"
    )


def _alarms(row: AnnotatorRow) -> str | None:
    words = [f"{each.kind} {each.value:.2f} ({each.low:.2f}-{each.high:.2f}, n {each.n})" for each in row.alarms]
    words += ["paused"] * row.is_paused
    return ", ".join(words) or None


def _p(value: float | None) -> str | None:
    return None if value is None else f"{value:.4f}" if value >= 0.0001 else "<0.0001"
