"""The word `agreement`: how far a project's annotators agree."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from app.commands.base.common import Context, Outcome, add_word, as_document, table
from data.intervals import LEAST_PROMPTS

if TYPE_CHECKING:
    from labeling.review.agreement import Figure

_FIGURES = {
    "pairs_with_ties": "pair agreement, ties included",
    "pairs_without_ties": "pair agreement, where both saw a difference",
    "alpha": "Krippendorff's alpha of pairs",
    "tau": "mean Kendall tau-b",
    "human_accuracy": "one person's ranking foretells another's, pairs right",
}


def add_words(words: Any) -> None:
    parser = add_word(words, "agreement", show, "show how far a project's annotators agree, with intervals")
    parser.add_argument("project", metavar="NAME", help="name or id of the project")


def show(arguments: argparse.Namespace, context: Context) -> Outcome:
    from labeling.review.agreement import project_agreement  # pandas with it, which other words have no use for

    agreement = project_agreement(context.store, context.project(arguments.project).id)
    lines = [
        f"{agreement.n_units:,} pairs of {agreement.n_tasks:,} tasks were compared by two people or more "
        f"({agreement.n_annotator_pairs:,} pairs of annotators); {agreement.n_unacceptable:,} answers unacceptable, "
        f"{agreement.n_skipped:,} skipped"
    ]
    lines += [f"  {words}: {_figure(getattr(agreement, name))}" for name, words in _FIGURES.items()]
    rows = [
        (each.name, _number(each.agreement), None if each.low is None else f"{each.low:.3f} to {each.high:.3f}", each.n,
         each.n_tasks)
        for each in agreement.annotators
    ]  # fmt: skip
    lines += table(rows, ("ANNOTATOR", "AGREES WITH OTHERS", "95 %", "COMPARISONS", "TASKS")) if rows else []
    return Outcome(as_document(agreement), lines)


def _figure(figure: Figure) -> str:
    interval = "no interval" if figure.low is None else f"{figure.low:.3f} to {figure.high:.3f}"
    few = "" if figure.is_told or figure.value is None else f": too few to tell, {LEAST_PROMPTS} are needed"
    return f"{_number(figure.value)} ({interval}, n = {figure.n:,} on {figure.n_prompts:,} prompts{few})"


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.3f}"
