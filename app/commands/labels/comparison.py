"""The word `comparison`: have people rank models' responses blind, and see whose they prefer."""

from __future__ import annotations

import argparse
from typing import Any

from app.commands.base.common import Context, Outcome, add_group, add_word, as_document, counted, table
from data.labels.roles import OPERATOR
from labeling.judgement.win_rates import NOT_CONNECTED, Interval, Rate
from labeling.review.comparison import ComparisonReport, comparison_report, create_comparison


def add_words(words: Any) -> None:
    group = add_group(words, "comparison", "compare models blind, by people's rankings")
    parser = add_word(group, "create", create, "make a project in which the responses of comparison runs are ranked")
    parser.add_argument("name", metavar="NAME", help="of the new project")
    parser.add_argument("--runs", nargs="+", required=True, metavar="ID", help="finished comparison runs")
    parser.add_argument("--overlap", type=int, default=1, help="annotators per task (default 1)")
    parser = add_word(group, "show", show, "show the win rates between a project's models")
    parser.add_argument("name", metavar="NAME", help="name or id of the project")


def create(arguments: argparse.Namespace, context: Context) -> Outcome:
    words = (arguments.runs, arguments.name)
    made = create_comparison(context.store, OPERATOR, context.home, *words, overlap=arguments.overlap)
    line = f"project {made.project.name!r} is made (id {made.project.id}) to compare {', '.join(made.models)}"
    counts = dict(made.counts)
    document = as_document(made.project) | {"models": made.models, "counts": counts, "not_known": list(made.not_known)}
    unsure = [f"  it is not known whether the prompts are held out: {why}" for why in made.not_known]
    return Outcome(document, [line, *counted(counts), *unsure])


def show(arguments: argparse.Namespace, context: Context) -> Outcome:
    project = context.project(arguments.name)
    report = comparison_report(context.store, context.home, project.id)
    return Outcome({"project_id": project.id, **as_document(report)}, _lines(report))


def _lines(report: ComparisonReport) -> list[str]:
    rates, strengths = report.rates.rates, report.rates.strengths
    if not rates:
        return ["nothing to compare yet: no ranking has responses of two models"]
    lines = _rate_lines(rates)
    ranks = [(each.model, f"{each.value:+.2f}", _interval(each.interval, 1, "")) for each in strengths]
    apart = [f"no strengths: {NOT_CONNECTED}"]
    lines += ["", *(table(ranks, ("MODEL", "STRENGTH", "95 %")) if ranks else apart), ""]
    if report.rates_with_same:
        lines += ["with those to which all models said the same as ties:", *_rate_lines(report.rates_with_same), ""]
    lines.append(
        f"{report.n_rankings} rankings, {report.n_unacceptable} without an acceptable response, {report.n_skipped} "
        f"skips; {report.n_same} prompts to which all models said the same are not in it"
    )
    lines.append(report.held_out_words)
    return lines


def _rate_lines(rates: list[Rate]) -> list[str]:
    rows = [
        (each.first, each.second, f"{each.wins:.1%}", f"{each.ties:.1%}", f"{each.losses:.1%}", f"{each.rate:.1%}",
         _interval(each.interval, 100, "%"), each.n_prompts)
        for each in rates
    ]  # fmt: skip
    return table(rows, ("MODEL", "AGAINST", "WINS", "TIES", "LOSSES", "RATE", "95 %", "PROMPTS"))


def _interval(interval: Interval | None, factor: float, unit: str) -> str | None:
    return None if interval is None else f"{interval[0] * factor:.1f} to {interval[1] * factor:.1f}{unit}"
