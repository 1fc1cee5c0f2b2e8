"""An annotator's work: what to rank next, a draft, an answer. Each use case opens its own transaction.

The role is checked here, where the write happens, not only on the screen that leads here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from data.errors import Conflict, InvalidInput, NotAllowed, NotFound
from data.projects import get_project
from data.rankings import count_rankings, known_submissions, save_ranking
from data.records import Assignment, Detail, NewRanking, Person, Project, RankingStatus, Role, SubmitOutcome
from data.slots import (
    LEASE_MINUTES,
    Shuffle,
    Waiting,
    claim_slots,
    extend_leases,
    held_assignments,
    save_draft,
    shuffled,
    take_turns,
    waiting,
)
from data.store import Store
from data.tasks import get_task
from data.text import clean_text
from labeling.ranks import competition_ranks, ranks_in_stored_order

AHEAD = 4  # tasks that the browser holds: the one on screen and the next ones, drawn without waiting
MAX_REASON_LENGTH = 500


@dataclass(frozen=True)
class Work:
    """What the ranking page shows: assignments in their order, what is done, and why there may be none."""

    project: Project
    assignments: list[Assignment]
    n_done: int
    waiting: Waiting


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
) -> Work:
    """Return the person's assignments in a project, claiming more until there are n.

    Every tab of one person gets the same ones, with drafts. Raises NotAllowed, NotFound.
    """
    require(person, Role.ANNOTATOR)
    with store.begin() as tx:
        project = get_project(tx, project_id)
        take_turns(tx, person.id)
        extend_leases(tx, person.id, project_id, lease_minutes)
        held = held_assignments(tx, project_id, person.id)
        if len(held) < n:
            missing = n - len(held)
            held += claim_slots(tx, project_id, person.id, missing, shuffle=shuffle, lease_minutes=lease_minutes)
        left = Waiting(0, None) if held else waiting(tx, project_id, person.id)
        return Work(project, held, count_rankings(tx, person.id, project_id), left)


def keep_draft(store: Store, person: Person, draft: Mapping[str, Any]) -> None:
    """Store a half-done ranking as the browser sent it: `task_id`, `ranks` by display place, `display_order`, `at`.

    The order is kept with it: a task that comes back in another order must not show ranks that nobody gave.
    What can't be right is left alone: a draft is a convenience, and the browser keeps its own copy.
    """
    require(person, Role.ANNOTATOR)
    ranks, at = draft.get("ranks"), draft.get("at")
    if not isinstance(ranks, list) or not isinstance(at, int | float) or not isinstance(draft.get("task_id"), str):
        return
    with store.begin() as tx:
        try:
            task = get_task(tx, draft["task_id"])
        except NotFound:
            return
        if len(ranks) == len(task.responses) and all(rank is None or isinstance(rank, int) for rank in ranks):
            rest = draft.get("rest")
            body = {
                "ranks": ranks,
                "rest": rest if isinstance(rest, list) else [],
                "display_order": draft.get("display_order"),
            }
            save_draft(tx, task.id, person.id, body, float(at))


def submit(store: Store, person: Person, submission: Mapping[str, Any]) -> Ack:
    """Store one answer from the browser and say what became of it. Sending it twice stores it once.

    `submission`: `submission_key`, `task_id`, `lease_token`, `display_order`, `duration_ms`, and one of `ranks` (by
    display place; with `unplaced`, the places that were put last together in no order), `unacceptable` (true: no
    response is acceptable) and `skip_reason`. Raises NotAllowed; everything that is wrong with the answer comes back
    as REFUSED.
    """
    require(person, Role.ANNOTATOR)
    key = submission.get("submission_key")
    if not isinstance(key, str) or not 8 <= len(key) <= 80 or not key.isascii() or not key.isprintable():
        return Ack(str(key)[:80], SubmitOutcome.REFUSED, "the submission has no proper key")
    for attempt in (1, 2):
        try:
            with store.begin() as tx:
                task = get_task(tx, str(submission.get("task_id")))
                allow_partial = get_project(tx, task.project_id).settings.allow_partial
                new = _new_ranking(person, submission, n=len(task.responses), allow_partial=allow_partial)
                outcome = save_ranking(tx, new)
            break
        except Conflict:  # somebody stored the same thing between our look and our write: look again, once
            if attempt == 2:
                raise
        except (InvalidInput, NotFound) as error:
            return Ack(key, SubmitOutcome.REFUSED, str(error))
    reason = "you had answered this task already, in another tab" if outcome is SubmitOutcome.SUPERSEDED else ""
    return Ack(key, outcome, reason)


def acknowledged(store: Store, keys: list[str]) -> set[str]:
    """Which submissions are stored: asked again when the page is drawn anew."""
    with store.read() as tx:
        return known_submissions(tx, keys)


def require(person: Person, role: Role) -> None:
    """Raises NotAllowed unless the person's role covers `role`."""
    if person.disabled_at is not None or not person.role.covers(role):
        raise NotAllowed(f"{person.name} is {person.role}; this needs the role {role}")


def _new_ranking(person: Person, submission: Mapping[str, Any], *, n: int, allow_partial: bool) -> NewRanking:
    order = submission.get("display_order")
    if not isinstance(order, list) or any(type(place) is not int for place in order) or sorted(order) != [*range(n)]:
        raise InvalidInput(f"display order {order!r} is not an order of this task's {n} responses")
    reason, is_unacceptable = submission.get("skip_reason"), submission.get("unacceptable") is True
    if is_unacceptable and (reason is not None or submission.get("ranks") is not None):
        raise InvalidInput("an answer is a ranking, or that no response is acceptable, or a skip: not two of them")
    ranks: tuple[int, ...] | None = None
    unplaced: tuple[int, ...] = ()
    if reason is None and not is_unacceptable:
        shown = submission.get("ranks")
        if not isinstance(shown, list) or len(shown) != n:
            raise InvalidInput(f"ranks {shown!r}: {n} ranks are needed, one for each response")
        competition = competition_ranks(shown)
        unplaced = _unplaced(submission.get("unplaced"), competition, order, allow_partial=allow_partial)
        ranks = ranks_in_stored_order(competition, order)
    elif reason is not None and (not isinstance(reason, str) or not reason.strip()):
        raise InvalidInput("a skip needs a reason")
    duration = submission.get("duration_ms")
    status = RankingStatus.UNACCEPTABLE if is_unacceptable else RankingStatus.SKIPPED
    return NewRanking(
        task_id=str(submission["task_id"]),
        annotator_id=person.id,
        submission_key=str(submission["submission_key"]),
        status=RankingStatus.RANKED if ranks else status,
        ranks=ranks,
        display_order=tuple(order),
        lease_token=str(submission.get("lease_token")),
        skip_reason=clean_text(reason.strip())[:MAX_REASON_LENGTH] if reason else None,
        detail=Detail(unplaced=unplaced),
        duration_ms=duration if type(duration) is int and 0 <= duration < 2**31 else None,
    )


def _unplaced(places: object, ranks: tuple[int, ...], order: Sequence[int], *, allow_partial: bool) -> tuple[int, ...]:
    """The stored positions of a rest in no order. Raises InvalidInput unless it is all that has the last rank."""
    if places is None or places == []:
        return ()
    if not allow_partial:
        raise InvalidInput("this project wants every response placed")
    last = [place for place, rank in enumerate(ranks) if rank == max(ranks)]
    if places != last or len(last) == len(ranks):
        raise InvalidInput(f"unplaced {places!r}: a rest is all that has the last rank, and something stands before it")
    return tuple(sorted(order[place] for place in last))
