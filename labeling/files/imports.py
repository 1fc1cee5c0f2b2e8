"""Import prompts, finished responses and finished rankings from files. A dry run counts and stores nothing.

What is wrong with a line is reported with its number; everything else goes in.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from data.errors import InvalidInput, ProjectError
from data.files.rows import Problem, read_rows
from data.hygiene import BADGES, screen
from data.labels.gold import gold_of_tasks, set_gold
from data.labels.projects import MIN_K, get_project
from data.labels.prompts import add_prompts, get_prompt, prompt_by_external_id, prompt_id_of, sides_of
from data.labels.rankings import save_ranking
from data.labels.roles import Actor, acting, require
from data.labels.tasks import NewTask, add_task
from data.records import Detail, NewPrompt, NewRanking, Purpose, RankingStatus, Role, Split, SubmitOutcome
from data.store import Store, Tx
from data.text import messages_fingerprint, text_fingerprint
from labeling.files.field_use import Watched
from labeling.files.import_report import ImportReport
from labeling.files.known_answers import People, Placed, is_known_by_content, is_known_by_id, place
from labeling.files.parse import RESPONSES_ROW, ParsedRanking, parse_prompt, parse_rankable, parse_ranking
from labeling.files.readers import READERS, Reader
from labeling.snapshot.groups import OVERRULED

ROWS_PER_TRANSACTION = 500
PROMPTS_PER_TRANSACTION = 2000
_EXTRA = "extra"  # one answer more than was wanted
_COUNTED_AS = {
    RankingStatus.RANKED: "rankings",
    RankingStatus.UNACCEPTABLE: "unacceptable",
    RankingStatus.SKIPPED: "skips",
}
_NumberedRow = tuple[int, dict[str, Any]]
_ROW_ERRORS = (ProjectError, KeyError, IndexError, TypeError, ValueError, AttributeError)
OnRow = Callable[[int], None]


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
    """Add the prompts of a file. Counts: `new`, `known` (in the project or earlier in the file), and where there are
    any `side_kept`: known ones for which the file names another side than they have; they keep theirs.

    `on_row` is called with the number of rows read so far, after each row.
    """
    report = ImportReport(name or path.name, dry_run)
    report.counts.update(new=0, known=0)
    with store.read() as tx:
        require(tx, who, Role.RESEARCHER)
        get_project(tx, project_id)
    seen: dict[str, Split | None] = {}
    for chunk in _chunks(_rows(report, path, on_row), PROMPTS_PER_TRANSACTION):
        batch = _parse_prompts(chunk, prompt_field, report)
        if dry_run:
            with store.read() as tx:
                seen |= sides_of(tx, project_id, batch)
            for prompt in batch:
                report.counts["known" if messages_fingerprint(prompt.messages) in seen else "new"] += 1
                _note_side(prompt, seen, report.counts)
        else:
            with acting(store, who, Role.RESEARCHER) as tx:
                sides = sides_of(tx, project_id, batch) if any(prompt.split for prompt in batch) else {}
                added = add_prompts(tx, project_id, batch)
            report.counts.update(new=added.n_new, known=added.n_known)
            for prompt in batch if any(prompt.split for prompt in batch) else []:
                _note_side(prompt, sides, report.counts)
    return report


def _parse_prompts(chunk: list[_NumberedRow], prompt_field: str | None, report: ImportReport) -> list[NewPrompt]:
    prompts = []
    for line, plain in chunk:
        row, n_problems = Watched(plain), report.n_problems
        try:
            prompts.append(parse_prompt(row, prompt_field))
        except InvalidInput as error:
            report.add_problem(Problem(line, str(error)))
        report.fields.add(row, is_refused=report.n_problems > n_problems)
    for prompt in prompts[: 3 - len(report.examples)]:
        report.examples.append(prompt.messages[-1]["content"][:300])
    return prompts


def _note_side(prompt: NewPrompt, sides: dict[str, Split | None], counts: Counter[str]) -> None:
    """Count a known prompt for which a file names another side than it has. `sides`: of those that were met before."""
    has = sides.setdefault(messages_fingerprint(prompt.messages), prompt.split)
    counts.update(["side_kept"] if prompt.split is not None and prompt.split is not has else [])


def _note_kept(tx: Tx, prompt_id: str, prompt: NewPrompt, counts: Counter[str]) -> None:
    """Count a known prompt of which something else is kept than a row says: its side, or what is under `meta`."""
    if prompt.split is None and not prompt.meta:
        return
    kept = get_prompt(tx, prompt_id)
    counts.update(["side_kept"] if prompt.split is not None and kept.split is not prompt.split else [])
    is_other = any(name not in kept.meta or kept.meta[name] != value for name, value in prompt.meta.items())
    counts.update(["meta_kept"] if is_other else [])


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

    Counts: `tasks`, `known` (the prompt has a task of just these texts), `responses`, `doubles` (equal texts in a row),
    and where there are any `side_kept` (rows that name another side than their prompt has here; it keeps that) and
    `meta_kept` (rows with further fields than were kept under `meta` when their prompt came in; it keeps those).
    """
    report = ImportReport(name or path.name, dry_run)
    report.counts.update(tasks=0, known=0, responses=0, doubles=0)
    with store.read() as tx:
        require(tx, who, Role.RESEARCHER)
        overlap = get_project(tx, project_id).overlap

    def add(tx: Tx, line: int, plain: dict[str, Any]) -> None:
        row, n_problems = Watched(plain), report.n_problems
        with _line(tx, report, line) as counts:
            _add_response_row(tx, project_id, row, overlap, counts)
        report.fields.add(row, is_refused=report.n_problems > n_problems)

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

    What the project has already is known by the id that an export gave it, else by its content and its annotator, whom
    exports of this project may call by their pseudonym.

    Counts: `rankings`, `skips`, `known` (the answer is there), `doubles` (equal texts in a row), and where there are
    any `unacceptable` (answers that no response is acceptable), `gold` (tasks of which a ranking is expected now:
    annotators get them as a check), `gold_kept` (answers for which the file expects something else than is expected
    here), `side_kept` and `meta_kept` (as for responses), `rows_without_ranking`; and of the new answers those
    that were `extra` where they were given, that a decision had `overruled`, or that are such `decisions` themselves.
    """
    if format_name not in READERS:
        raise InvalidInput(f"format {format_name!r}: one of {', '.join(READERS)} is needed")
    report = ImportReport(name or path.name, dry_run)
    report.counts.update(rankings=0, skips=0, known=0, doubles=0)
    with store.read() as tx:
        require(tx, who, Role.RESEARCHER)
        get_project(tx, project_id)
    people = People(project_id)

    def add(tx: Tx, line: int, plain: dict[str, Any]) -> None:
        row, n_problems = Watched(plain), report.n_problems
        found = _read(report, line, READERS[format_name], row)
        n_added = sum(_add_ranking_row(tx, people, line, native, report) for native in found)
        report.counts.update([] if found or report.n_problems > n_problems else ["rows_without_ranking"])
        report.fields.add(row, is_refused=not n_added and report.n_problems > n_problems)

    _for_each(store, who, _rows(report, path, on_row), add, dry_run)
    return report


def _read(report: ImportReport, line: int, reader: Reader, row: Watched) -> list[dict[str, Any]]:
    """The rankings that another tool's row holds, with what the format does not read of it under `meta`.

    One that is wrong does not cost those before it.
    """
    natives: list[dict[str, Any]] = []
    try:
        for native in reader(row):
            natives.append(native)
    except _ROW_ERRORS as error:
        report.add_problem(_problem(line, error))
    if natives and natives[0] is row:  # our own format: who parses it keeps the rest
        return natives
    rest = row.keep_unread() if natives else {}
    return [native | {"meta": rest | (native.get("meta") or {})} if rest else native for native in natives]


def _add_ranking_row(tx: Tx, people: People, line: int, native: dict[str, Any], report: ImportReport) -> bool:
    """Add one ranking of a row; whether it could be read."""
    n_problems = report.n_problems
    with _line(tx, report, line) as counts:
        _add_ranking(tx, people, parse_ranking(native), counts)
    return report.n_problems == n_problems


def _add_response_row(tx: Tx, project_id: str, row: dict[str, Any], overlap: int, counts: Counter[str]) -> None:
    responses = parse_rankable(row)
    if row.get("prompt_id") not in (None, ""):
        prompt_id = prompt_by_external_id(tx, project_id, str(row["prompt_id"]))
    else:
        prompt = parse_prompt(row, own_fields=RESPONSES_ROW)
        prompt_id = prompt_id_of(tx, project_id, prompt)
        _note_kept(tx, prompt_id, prompt, counts)
    settings = get_project(tx, project_id).settings
    offered, badges = screen(get_prompt(tx, prompt_id).messages, responses, settings)
    dropped = [BADGES[name.removeprefix("dropped_")] for name in badges if name.startswith("dropped_")]
    if dropped and len(offered) < MIN_K:
        raise InvalidInput(
            f"fewer than {MIN_K} responses are left without what the project drops: {', '.join(dropped)}"
        )
    counts.update(badges)
    new_task = add_task(tx, project_id, prompt_id, offered, slots=overlap)
    doubles = sum(position is None for position in new_task.positions)
    counts["tasks" if new_task.is_new else "known"] += 1
    counts["responses"] += len(offered) - doubles if new_task.is_new else 0
    counts["doubles"] += doubles


def _add_ranking(tx: Tx, people: People, parsed: ParsedRanking, counts: Counter[str]) -> None:
    _refuse_contradiction(parsed)
    if not parsed.is_gold and is_known_by_id(tx, parsed, people):
        counts["known"] += 1
        return
    prompt_id = prompt_id_of(tx, people.project_id, parsed.prompt)
    _note_kept(tx, prompt_id, parsed.prompt, counts)
    new_task = add_task(tx, people.project_id, prompt_id, parsed.responses, slots=0)
    placed = place(parsed, new_task.positions)
    counts["doubles"] += placed.n_doubles
    if parsed.is_gold:
        is_new = set_gold(tx, new_task.task_id, placed.ranks or (), unplaced=placed.detail.unplaced)
        counts["gold" if is_new else "known"] += 1
        return
    annotator_id = people.find_or_add(tx, parsed.annotator)
    if is_known_by_content(tx, new_task.task_id, annotator_id, parsed, placed):
        counts["known"] += 1
        return
    _expect(tx, people, parsed, new_task, counts)
    outcome = save_ranking(tx, _new_ranking(new_task.task_id, annotator_id, parsed, placed))
    if outcome is SubmitOutcome.SUPERSEDED:
        raise InvalidInput(
            f"annotator {parsed.annotator!r} has just given another answer to these texts, which is kept"
        )
    counts[_COUNTED_AS[parsed.status] if outcome is SubmitOutcome.STORED else "known"] += 1
    counts.update(["decisions"] if parsed.is_decision else [])
    counts.update([parsed.left_out] if parsed.left_out in (_EXTRA, OVERRULED) else [])


def _new_ranking(task_id: str, annotator_id: str, parsed: ParsedRanking, placed: Placed) -> NewRanking:
    answer = [task_id, annotator_id, parsed.status, placed.ranks, asdict(placed.detail)]
    key = hashlib.sha256(json.dumps(answer).encode()).hexdigest()[:40]
    return NewRanking(
        task_id=task_id,
        annotator_id=annotator_id,
        submission_key=f"import-{key}",
        status=parsed.status,
        ranks=placed.ranks,
        display_order=placed.display_order,
        skip_reason=parsed.skip_reason,
        comment=parsed.comment,
        detail=placed.detail,
        duration_ms=parsed.duration_ms,
        source="import",
        is_extra=parsed.left_out == _EXTRA,
    )


def _expect(tx: Tx, people: People, parsed: ParsedRanking, new_task: NewTask, counts: Counter[str]) -> None:
    """An answer to a gold task stays one: the task becomes gold here too, if nothing else is expected of it already.

    Raises InvalidInput where nobody knows what was expected: as an ordinary one, the answer would be learnt from.
    """
    gold = gold_of_tasks(tx, [new_task.task_id]).get(new_task.task_id)
    if parsed.expected is None:
        if parsed.left_out == Purpose.GOLD and gold is None:
            raise InvalidInput(
                "this is an answer to a gold task, and the row does not say what was expected ('expected'): import the "
                'expected ranking first ("gold": true), or take a newer export'
            )
        return
    expected = replace(parsed, ranks=parsed.expected.ranks, detail=Detail(unplaced=parsed.expected.unplaced))
    wanted = place(expected, new_task.positions)
    ranks, unplaced = wanted.ranks or (), wanted.detail.unplaced
    if gold is None:
        author_id = people.find_or_add(tx, parsed.expected.annotator) if parsed.expected.annotator else None
        counts["gold"] += set_gold(tx, new_task.task_id, ranks, unplaced=unplaced, author_id=author_id)
    else:
        counts.update(["gold_kept"] if (gold.ranks, gold.unplaced) != (ranks, unplaced) else [])


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
