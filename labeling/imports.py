"""Import prompts, finished responses and finished rankings from files. A dry run counts and stores nothing.

What is wrong with a line is reported with its number; everything else goes in.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from data.errors import InvalidInput, ProjectError
from data.files import Problem, read_rows
from data.gold import set_gold
from data.hygiene import BADGES, screen
from data.people import external_annotator
from data.projects import MIN_K, get_project
from data.prompts import add_prompts, get_prompt, known_fingerprints, prompt_by_external_id, prompt_id_of
from data.rankings import save_ranking
from data.records import Detail, NewPrompt, NewRanking, RankingStatus, Role, SubmitOutcome
from data.roles import Actor, acting, require
from data.store import Store, Tx
from data.tasks import add_task
from data.text import messages_fingerprint, text_fingerprint
from labeling.parse import RESPONSES_ROW, ParsedRanking, parse_prompt, parse_rankable, parse_ranking
from labeling.ranks import closed_up
from labeling.readers import READERS

ROWS_PER_TRANSACTION = 500
PROMPTS_PER_TRANSACTION = 2000
MAX_PROBLEMS_SHOWN = 50
_COUNTED_AS = {
    RankingStatus.RANKED: "rankings",
    RankingStatus.UNACCEPTABLE: "unacceptable",
    RankingStatus.SKIPPED: "skips",
}
_NumberedRow = tuple[int, dict[str, Any]]
_ROW_ERRORS = (ProjectError, KeyError, IndexError, TypeError, ValueError, AttributeError)
OnRow = Callable[[int], None]


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

    def add_problem(self, problem: Problem) -> None:
        self.n_problems += 1
        if len(self.problems) < MAX_PROBLEMS_SHOWN:
            self.problems.append(problem)

    def as_dict(self) -> dict[str, Any]:
        """The report as one JSON object."""
        shown = [{"line": problem.line, "message": problem.message} for problem in self.problems]
        head = {"file": self.file, "dry_run": self.dry_run, "rows": self.n_rows, **self.counts}
        return head | {"refused": self.n_problems, "problems": shown, "examples": self.examples}


def import_prompts(
    store: Store,
    who: Actor,
    project_id: str,
    path: Path,
    *,
    name: str | None = None,
    prompt_field: str | None = None,
    dry_run: bool = False,
    on_row: OnRow | None = None,
) -> ImportReport:
    """Add the prompts of a file. Counts: `new`, `known` (in the project or earlier in the file).

    `on_row` is called with the number of rows read so far, after each row.
    """
    report = ImportReport(name or path.name, dry_run)
    report.counts.update(new=0, known=0)
    with store.read() as tx:
        require(tx, who, Role.RESEARCHER)
        get_project(tx, project_id)
    seen: set[str] = set()
    for chunk in _chunks(_rows(report, path, on_row), PROMPTS_PER_TRANSACTION):
        batch = _parse_prompts(chunk, prompt_field, report)
        if dry_run:
            with store.read() as tx:
                known = known_fingerprints(tx, project_id, batch)
            for prompt in batch:
                fingerprint = messages_fingerprint(prompt.messages)
                report.counts["known" if fingerprint in known or fingerprint in seen else "new"] += 1
                seen.add(fingerprint)
        else:
            with acting(store, who, Role.RESEARCHER) as tx:
                added = add_prompts(tx, project_id, batch)
            report.counts.update(new=added.n_new, known=added.n_known)
    return report


def _parse_prompts(chunk: list[_NumberedRow], prompt_field: str | None, report: ImportReport) -> list[NewPrompt]:
    prompts = []
    for line, row in chunk:
        try:
            prompts.append(parse_prompt(row, prompt_field))
        except InvalidInput as error:
            report.add_problem(Problem(line, str(error)))
    for prompt in prompts[: 3 - len(report.examples)]:
        report.examples.append(prompt.messages[-1]["content"][:300])
    return prompts


def import_responses(
    store: Store,
    who: Actor,
    project_id: str,
    path: Path,
    *,
    name: str | None = None,
    dry_run: bool = False,
    on_row: OnRow | None = None,
) -> ImportReport:
    """Add finished responses; each row with two or more distinct ones becomes a task to rank.

    Counts: `tasks`, `known` (the prompt has a task of just these texts), `responses`, `doubles` (equal texts in a row).
    """
    report = ImportReport(name or path.name, dry_run)
    report.counts.update(tasks=0, known=0, responses=0, doubles=0)
    with store.read() as tx:
        require(tx, who, Role.RESEARCHER)
        overlap = get_project(tx, project_id).overlap

    def add(tx: Tx, line: int, row: dict[str, Any]) -> None:
        with _line(tx, report, line) as counts:
            _add_response_row(tx, project_id, row, overlap, counts)

    _for_each(store, who, _rows(report, path, on_row), add, dry_run)
    return report


def import_rankings(
    store: Store,
    who: Actor,
    project_id: str,
    path: Path,
    *,
    name: str | None = None,
    format_name: str = "native",
    dry_run: bool = False,
    on_row: OnRow | None = None,
) -> ImportReport:
    """Add finished rankings with their prompts and responses. Nobody is asked to rank them again.

    Counts: `rankings`, `skips`, `known` (just this answer of this annotator is there), `doubles` (equal texts in a
    row), and where there are any `unacceptable` (answers that no response is acceptable), `gold` (rankings that are
    expected: annotators get these tasks as a check) and `rows_without_ranking`.
    """
    if format_name not in READERS:
        raise InvalidInput(f"format {format_name!r}: one of {', '.join(READERS)} is needed")
    report = ImportReport(name or path.name, dry_run)
    report.counts.update(rankings=0, skips=0, known=0, doubles=0)
    with store.read() as tx:
        require(tx, who, Role.RESEARCHER)
        get_project(tx, project_id)

    def add(tx: Tx, line: int, row: dict[str, Any]) -> None:
        _add_ranking_row(tx, project_id, line, READERS[format_name](row), report)

    _for_each(store, who, _rows(report, path, on_row), add, dry_run)
    return report


def _add_ranking_row(
    tx: Tx, project_id: str, line: int, rankings: Iterator[dict[str, Any]], report: ImportReport
) -> None:
    """Add each ranking of a row; one that is wrong does not cost the others."""
    n_found = 0
    try:
        for n_found, native in enumerate(rankings, start=1):  # noqa: B007
            with _line(tx, report, line) as counts:
                _add_ranking(tx, project_id, parse_ranking(native), counts)
        report.counts.update([] if n_found else ["rows_without_ranking"])
    except _ROW_ERRORS as error:
        report.add_problem(_problem(line, error))


def _add_response_row(tx: Tx, project_id: str, row: dict[str, Any], overlap: int, counts: Counter[str]) -> None:
    responses = parse_rankable(row)
    if row.get("prompt_id") not in (None, ""):
        prompt_id = prompt_by_external_id(tx, project_id, str(row["prompt_id"]))
    else:
        prompt_id = prompt_id_of(tx, project_id, parse_prompt(row, own_fields=RESPONSES_ROW))
    settings = get_project(tx, project_id).settings
    offered, found = screen(get_prompt(tx, prompt_id).messages, responses, settings)
    dropped = [BADGES[name.removeprefix("dropped_")] for name in found if name.startswith("dropped_")]
    if dropped and len(offered) < MIN_K:
        raise InvalidInput(
            f"fewer than {MIN_K} responses are left without what the project drops: {', '.join(dropped)}"
        )
    counts.update(found)
    made = add_task(tx, project_id, prompt_id, offered, slots=overlap)
    doubles = sum(position is None for position in made.positions)
    counts["tasks" if made.is_new else "known"] += 1
    counts["responses"] += len(offered) - doubles if made.is_new else 0
    counts["doubles"] += doubles


def _add_ranking(tx: Tx, project_id: str, parsed: ParsedRanking, counts: Counter[str]) -> None:
    _refuse_contradiction(parsed)
    prompt_id = prompt_id_of(tx, project_id, parsed.prompt)
    made = add_task(tx, project_id, prompt_id, parsed.responses, slots=0)
    kept = [place for place, position in enumerate(made.positions) if position is not None]
    ranks = None
    if parsed.ranks is not None:
        by_position = {made.positions[place]: parsed.ranks[place] for place in kept}
        ranks = closed_up([by_position[position] for position in range(len(kept))])
    detail = _by_position(parsed.detail, made.positions)
    counts["doubles"] += len(parsed.responses) - len(kept)
    if parsed.is_gold:
        counts["gold" if set_gold(tx, made.task_id, ranks or (), unplaced=detail.unplaced) else "known"] += 1
        return
    annotator_id = external_annotator(tx, project_id, parsed.annotator)
    answer = [made.task_id, annotator_id, parsed.status, ranks, asdict(detail)]
    key = hashlib.sha256(json.dumps(answer).encode()).hexdigest()[:40]
    new = NewRanking(
        task_id=made.task_id,
        annotator_id=annotator_id,
        submission_key=f"import-{key}",
        status=parsed.status,
        ranks=ranks,
        display_order=tuple(range(len(kept))),
        skip_reason=parsed.skip_reason,
        comment=parsed.comment,
        detail=detail,
        duration_ms=parsed.duration_ms,
        source="import",
    )
    outcome = save_ranking(tx, new)
    if outcome is SubmitOutcome.SUPERSEDED:
        raise InvalidInput(
            f"annotator {parsed.annotator!r} has another answer to just these texts, which is kept; rows of different "
            "people need different names under 'annotator'"
        )
    is_new = outcome is SubmitOutcome.STORED
    counts[_COUNTED_AS[parsed.status] if is_new else "known"] += 1


def _by_position(detail: Detail, positions: Sequence[int | None]) -> Detail:
    """What a row says by its places, by the stored positions of its responses; of equal texts the first one counts."""
    place_of = {position: place for place, position in enumerate(positions) if position is not None}
    order = [place_of[position] for position in range(len(place_of))]
    return Detail(
        unplaced=tuple(position for position, place in enumerate(order) if place in detail.unplaced),
        acceptable=tuple(detail.acceptable[place] for place in order if detail.acceptable),
        flags=tuple(detail.flags[place] for place in order if detail.flags),
        quality=tuple(detail.quality[place] for place in order if detail.quality),
        strength=detail.strength,
    )


def _refuse_contradiction(parsed: ParsedRanking) -> None:
    """The same text twice can't stand on both sides of another one. Raises InvalidInput."""
    if parsed.ranks is None:
        return
    places: dict[str, list[int]] = {}
    for response, rank in zip(parsed.responses, parsed.ranks, strict=True):
        places.setdefault(text_fingerprint(response.text), []).append(rank)
    for text, own in places.items():
        others = [rank for other, ranks in places.items() if other != text for rank in ranks]
        if min(own) != max(own) and any(min(own) <= rank <= max(own) for rank in others):
            raise InvalidInput(f"the same text has the ranks {own}, with another text between them")


def _rows(report: ImportReport, path: Path, on_row: OnRow | None) -> Iterator[_NumberedRow]:
    for row in read_rows(path, report.file):
        report.n_rows += 1
        if on_row is not None:
            on_row(report.n_rows)
        if isinstance(row, Problem):
            report.add_problem(row)
        else:
            report.counts.update(["repaired"] if row.is_repaired else [])
            yield row.line, row.value
    if report.n_rows == 0:
        raise InvalidInput(f"{report.file}: the file has no rows")


def _chunks(rows: Iterator[_NumberedRow], size: int) -> Iterator[list[_NumberedRow]]:
    while chunk := list(itertools.islice(rows, size)):
        yield chunk


def _for_each(
    store: Store,
    who: Actor,
    rows: Iterator[_NumberedRow],
    add: Callable[[Tx, int, dict[str, Any]], None],
    dry_run: bool,
) -> None:
    """Add rows in lots of one transaction each; rehearse them in one, so that doubles are seen across lots."""
    if dry_run:
        with store.rehearse() as tx:
            for line, row in rows:
                add(tx, line, row)
        return
    for chunk in _chunks(rows, ROWS_PER_TRANSACTION):
        with acting(store, who, Role.RESEARCHER) as tx:
            for line, row in chunk:
                add(tx, line, row)


@contextlib.contextmanager
def _line(tx: Tx, report: ImportReport, line: int) -> Iterator[Counter[str]]:
    """What one line does: if it is refused, nothing of it is stored or counted, and the report says why."""
    counts = Counter[str]()
    try:
        with tx.savepoint():
            yield counts
    except _ROW_ERRORS as error:
        report.add_problem(_problem(line, error))
    else:
        report.counts.update(+counts)


def _problem(line: int, error: Exception) -> Problem:
    known = isinstance(error, ProjectError)
    return Problem(line, str(error) if known else f"the row is not as this format has it: {error!r}")
