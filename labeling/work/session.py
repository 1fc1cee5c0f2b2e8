"""An annotator's work: what to rank next, a draft, an answer, the answers so far. Each use case is one transaction.

The role is asked for in that transaction, not only on the screen that leads here.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from data.errors import Conflict, InvalidInput, NotFound
from data.files.snapshots import list_snapshots
from data.labels.check_slots import REPEAT_AFTER, repeated_task
from data.labels.projects import get_project
from data.labels.rankings import (
    answer_of,
    count_answers,
    count_rankings,
    durations_since,
    edit_ranking,
    find_version,
    known_submissions,
    prompt_beginnings,
    rankings_of,
    save_ranking,
)
from data.labels.roles import acting, require
from data.labels.slots import (
    LEASE_MINUTES,
    Shuffle,
    Waiting,
    extend_leases,
    held_assignments,
    save_draft,
    shuffled,
    take_turns,
    waiting,
)
from data.labels.tasks import get_task
from data.records import Assignment, NewRanking, Person, Project, Purpose, Ranking, Role, SubmitOutcome, Task
from data.store import Store
from data.store.engine import Tx
from labeling.work.alarms import Paused, pause_if_alarmed, paused
from labeling.work.answers import read_answer
from labeling.work.handout import Dice, chance, hand_out

AHEAD = 4  # tasks that the browser holds: the one on screen and the next ones, drawn without waiting
HISTORY_PAGE = 20
DAY_S = 24 * 3600
MAX_DRAFT_BYTES = 40_000
_DRAFT_FIELDS = ("rest", "display_order", "acceptable", "flags", "quality", "strength", "rationale", "elapsed_ms")


@dataclass(frozen=True)
class Work:
    """What the ranking page shows: assignments in their order, what is done, and why there may be none.

    `pace_s`: the median time that today's answers took, None before the first. `paused`: why there is no work at all.
    """

    project: Project
    assignments: list[Assignment]
    n_done: int
    waiting: Waiting
    n_today: int = 0
    pace_s: float | None = None
    paused: Paused | None = None


@dataclass(frozen=True)
class Answered:
    """One line of an annotator's history. `is_frozen`: a snapshot was made after it, and stays as it is."""

    ranking: Ranking
    prompt: str
    is_frozen: bool


@dataclass(frozen=True)
class Ack:
    """The server's word on one submission. The browser keeps a submission until it gets one."""

    submission_key: str
    outcome: SubmitOutcome
    reason: str = ""


def next_work(
    store: Store,
    person: Person,
    project_id: str,
    *,
    n: int = AHEAD,
    shuffle: Shuffle = shuffled,
    lease_minutes: float = LEASE_MINUTES,
    utc_offset_minutes: int = 0,
    dice: Dice = chance,
    repeat_after: int = REPEAT_AFTER,
) -> Work:
    """Return the person's assignments in a project, claiming more until there are n.

    Who is paused gets none, and keeps what they hold no longer than its lease. Every tab of one person gets the same
    ones, with drafts. `utc_offset_minutes`: how far the person's clock is behind UTC, for what counts as today.
    Raises NotAllowed, NotFound.
    """
    with acting(store, person, Role.ANNOTATOR) as tx:
        project = get_project(tx, project_id)
        take_turns(tx, person.id)
        stopped, held = paused(tx, project_id, person.id), list[Assignment]()
        if stopped is None:
            extend_leases(tx, person.id, project_id, lease_minutes)
            held = held_assignments(tx, project_id, person.id)
            if len(held) < n:
                held += hand_out(
                    tx, project, person.id, n - len(held), shuffle=shuffle, lease_minutes=lease_minutes, dice=dice,
                    repeat_after=repeat_after,
                )  # fmt: skip
        left = Waiting(0, None) if held or stopped else waiting(tx, project_id, person.id)
        durations = durations_since(tx, person.id, project_id, _midnight(tx.now(), utc_offset_minutes))
        timed = [duration / 1000 for duration in durations if duration is not None]
        return Work(
            project=project,
            assignments=held,
            n_done=count_rankings(tx, person.id, project_id),
            waiting=left,
            n_today=len(durations),
            pace_s=statistics.median(timed) if timed else None,
            paused=stopped,
        )


def keep_draft(store: Store, person: Person, draft: Mapping[str, Any]) -> None:
    """Store a half-done answer as the browser sent it: `task_id`, `at`, `ranks` by display place, and the rest of it.

    The order is kept with it: a task that comes back in another order must not show ranks that nobody gave.
    What can't be right is left alone: a draft is a convenience, and the browser keeps its own copy.
    """
    ranks, at = draft.get("ranks"), draft.get("at")
    with acting(store, person, Role.ANNOTATOR) as tx:
        if not isinstance(ranks, list) or not isinstance(at, int | float) or not isinstance(draft.get("task_id"), str):
            return
        body = {"ranks": ranks} | {name: draft[name] for name in _DRAFT_FIELDS if draft.get(name) is not None}
        if len(json.dumps(body)) > MAX_DRAFT_BYTES:
            return
        try:
            task = get_task(tx, repeated_task(tx, draft["task_id"], person.id) or draft["task_id"])
        except NotFound:
            return
        if len(ranks) == len(task.responses) and all(rank is None or isinstance(rank, int) for rank in ranks):
            save_draft(tx, task.id, person.id, body, float(at))


def submit(store: Store, person: Person, submission: Mapping[str, Any]) -> Ack:
    """Store one answer from the browser and say what became of it. Sending it twice stores it once.

    `submission`: `submission_key`, `task_id`, `lease_token`, `display_order`, `duration_ms`, `guidelines_version`; one
    of `ranks` (by display place; with `unplaced`, the places that are worse in no order), `unacceptable` and
    `skip_reason`; and what was said beside (see `labeling.work.answers`). `edit_of`, the id of an own answer or its
    submission key, makes it a new version of that one. Raises NotAllowed; everything that is wrong with the answer
    comes back as REFUSED.
    """
    key = str(submission.get("submission_key"))[:80]
    for attempt in (1, 2):
        try:
            with acting(store, person, Role.ANNOTATOR) as tx:
                _check_key(submission.get("submission_key"))
                item = str(submission.get("task_id"))
                again = repeated_task(tx, item, person.id)
                task = get_task(tx, again or item)
                project = get_project(tx, task.project_id)
                sent = {**submission, "task_id": task.id}
                new = replace(read_answer(person, project, len(task.responses), sent), is_repeat=again is not None)
                edited = submission.get("edit_of")
                outcome = save_ranking(tx, new) if edited is None else _edit(tx, str(edited), new)
            break
        except Conflict:  # somebody stored the same thing between our look and our write: look again, once
            if attempt == 2:
                raise
        except (InvalidInput, NotFound) as error:
            return Ack(key, SubmitOutcome.REFUSED, str(error))
    if outcome is SubmitOutcome.STORED:
        pause_if_alarmed(store, project, task, new)
    reason = "you had answered this task already, in another tab" if outcome is SubmitOutcome.SUPERSEDED else ""
    return Ack(key, outcome, reason)


def history(
    store: Store, person: Person, project_id: str, *, offset: int = 0, limit: int = HISTORY_PAGE
) -> tuple[int, list[Answered]]:
    """How many answers and skips of the person's own the project has, and a page of them, the newest first."""
    with store.read() as tx:
        require(tx, person, Role.ANNOTATOR)
        rankings = rankings_of(tx, person.id, project_id, limit, offset)
        words = prompt_beginnings(tx, [ranking.task_id for ranking in rankings])
        frozen_at = max((snapshot.created_at for snapshot in list_snapshots(tx, project_id)), default=0.0)
        page = [
            Answered(ranking, words[ranking.task_id], is_frozen=ranking.created_at <= frozen_at) for ranking in rankings
        ]
        return count_answers(tx, person.id, project_id), page


def reopen(store: Store, person: Person, item: str) -> tuple[Task, Ranking]:
    """A task that the person has answered, with their current answer, to look at it or to change it.

    Raises NotFound if there is none.
    """
    with store.read() as tx:
        require(tx, person, Role.ANNOTATOR)
        again = repeated_task(tx, item, person.id)
        task_id = again or item
        return get_task(tx, task_id), answer_of(tx, task_id, person.id, is_repeat=again is not None)


def item_id(task_id: str, slot_id: str | None, purpose: Purpose) -> str:
    """What a browser calls a task that it shows: a repeat has another name than the task had the first time."""
    return slot_id if purpose is Purpose.REPEAT and slot_id is not None else task_id


def acknowledged(store: Store, keys: list[str]) -> set[str]:
    """Which submissions are stored: asked again when the page is drawn anew."""
    with store.read() as tx:
        return known_submissions(tx, keys)


def _check_key(key: object) -> None:
    if not isinstance(key, str) or not 8 <= len(key) <= 80 or not key.isascii() or not key.isprintable():
        raise InvalidInput("the submission has no proper key")


def _edit(tx: Tx, edited: str, new: NewRanking) -> SubmitOutcome:
    """A new version of an own answer. Raises NotFound where the answer is not theirs, or not the newest version."""
    old_id = find_version(tx, edited, new.annotator_id)
    if old_id is None:
        raise NotFound("the answer that this changes is not stored; rank the task again")
    try:
        return edit_ranking(tx, old_id, new)
    except NotFound:
        raise NotFound("you have changed this answer elsewhere meanwhile; the newer one is shown") from None


def _midnight(now: float, utc_offset_minutes: int) -> float:
    """When the day began that it is now, for a clock that is so many minutes behind UTC."""
    behind = utc_offset_minutes * 60
    return (now - behind) // DAY_S * DAY_S + behind
