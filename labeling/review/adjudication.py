"""Adjudication: tasks whose annotators disagree, and a researcher's decision on them, with its reason.

A decision takes the place of the annotators' rankings in snapshots; theirs stay as they are. Annotators never see it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from data.errors import Conflict, InvalidInput, NotFound
from data.labels.adjudications import (
    adjudication_of,
    adjudication_of_key,
    answers_to_task,
    current_adjudications,
    save_adjudication,
)
from data.labels.projects import get_project
from data.labels.rankings import current_rankings
from data.labels.roles import acting
from data.labels.tasks import get_task
from data.records import Adjudication, NewAdjudication, Person, Ranking, RankingStatus, Role, Task
from data.store import Store
from data.store.engine import Tx
from data.text import clean_text
from labeling.judgement.consensus import comparisons, share_of_agreement
from labeling.judgement.pairs import compared
from labeling.judgement.ranks import competition_ranks
from labeling.snapshot.groups import judgement

MAX_REASON = 4_000


@dataclass(frozen=True)
class Disputed:
    """A task that waits for a decision. `agreement`: of its annotators, over `n` comparisons of two of them; None where
    there is none. `n_unacceptable`: so many said that no response is acceptable, while others ranked.

    `is_again`: it was decided before, and its answers have changed since.
    """

    task_id: str
    agreement: float | None
    n: int
    n_rankings: int
    n_unacceptable: int
    is_again: bool


@dataclass(frozen=True)
class Case:
    """A task with what its annotators said, and what was decided on it, if anything was."""

    task: Task
    answers: tuple[Ranking, ...]
    agreement: float | None
    n: int
    decision: Adjudication | None

    @property
    def rankings(self) -> tuple[Ranking, ...]:
        """Those of the answers that are rankings: what can be chosen."""
        return tuple(each for each in self.answers if each.status is RankingStatus.RANKED)

    @property
    def n_unacceptable(self) -> int:
        """How many said that no response is acceptable."""
        return sum(each.status is RankingStatus.UNACCEPTABLE for each in self.answers)

    @property
    def seen(self) -> tuple[str, ...]:
        """The answers that a decision made now is made on: all but the skips."""
        return _seen(self.answers)

    @property
    def seen_differently(self) -> list[tuple[int, int]]:
        """The pairs of responses, by position, on which two of the rankings differ."""
        judgements = [judgement(each) for each in self.rankings]
        pairs = itertools.combinations(range(len(self.task.responses)), 2)
        return [pair for pair in pairs if len({compared(*each, *pair) for each in judgements} - {None}) > 1]


def disputed_tasks(store: Store, project_id: str) -> list[Disputed]:
    """The project's tasks whose annotators agree on too little, by its settings; those that agree least first.

    So do those who rank and those who say that no response is acceptable, however well the former agree. A task that
    was decided comes back when its answers change. Raises NotFound.
    """
    with store.read() as tx:
        below = get_project(tx, project_id).settings.adjudicate_below
        decided = {each.task_id: each.seen for each in current_adjudications(tx, project_id)}
        tasks = [
            disputed
            for task_id, answers in _answers_by_task(tx, project_id)
            if decided.get(task_id) != _seen(answers)
            and (disputed := _disputed(task_id, answers, below, is_again=task_id in decided)) is not None
        ]
    return sorted(tasks, key=lambda each: (each.agreement or 0.0, -each.n))


def _disputed(task_id: str, answers: Sequence[Ranking], below: float, *, is_again: bool) -> Disputed | None:
    """The task, if its annotators agree on too little."""
    rankings = [each for each in answers if each.status is RankingStatus.RANKED]
    n_unacceptable = sum(each.status is RankingStatus.UNACCEPTABLE for each in answers)
    agreement, n = _agreement(rankings)
    is_split = bool(rankings) and n_unacceptable > 0 and below > 0
    if not is_split and (agreement is None or agreement >= below):
        return None
    return Disputed(task_id, agreement, n, len(rankings), n_unacceptable, is_again=is_again)


def open_case(store: Store, project_id: str, task_id: str) -> Case:
    """A task with all that was said about it. Raises NotFound."""
    with store.read() as tx:
        return _case(tx, project_id, task_id)


def decide(
    store: Store,
    person: Person,
    project_id: str,
    task_id: str,
    *,
    reason: str,
    submission_key: str,
    seen: Sequence[str],
    supersedes_id: str | None = None,
    chosen_id: str | None = None,
    ranks: Sequence[int] | None = None,
) -> Adjudication:
    """Decide on a task: by one of its rankings (`chosen_id`) or by ranks of one's own, with a reason.

    `seen` and `supersedes_id` are those of the case that was looked at. Sent again, it returns what was stored.
    Raises NotAllowed, NotFound, InvalidInput; Conflict if the answers have changed, or somebody else has decided.
    """
    reason = clean_text(reason).strip()
    if not reason or len(reason) > MAX_REASON:
        raise InvalidInput(f"the reason has {len(reason):,} characters; 1 to {MAX_REASON:,} are needed")
    if (chosen_id is None) == (ranks is None):
        raise InvalidInput("either one of the annotators' rankings or a ranking of your own is needed")
    with acting(store, person, Role.RESEARCHER) as tx:
        stored = adjudication_of_key(tx, submission_key)
        if stored is not None:
            return stored
        case = _case(tx, project_id, task_id)
        if tuple(seen) != case.seen:
            raise Conflict("an annotator has answered this task meanwhile; look at it again")
        final, unplaced = _decision(case, chosen_id, ranks)
        new = NewAdjudication(
            task_id=task_id,
            decided_by=person.id,
            submission_key=submission_key,
            ranks=final,
            unplaced=unplaced,
            chosen_id=chosen_id,
            reason=reason,
            seen=tuple(seen),
            agreement=case.agreement,
            supersedes_id=supersedes_id,
        )
        return save_adjudication(tx, new)


def _decision(
    case: Case, chosen_id: str | None, ranks: Sequence[int] | None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ranks that were decided on, and which places are left in no order."""
    if ranks is not None:
        k = len(case.task.responses)
        if len(ranks) != k:
            raise InvalidInput(f"{len(ranks)} ranks for {k} responses; one rank for each response is needed")
        return competition_ranks(ranks), ()
    chosen = next((each for each in case.rankings if each.id == chosen_id), None)
    if chosen is None:
        raise NotFound(f"ranking {chosen_id!r} is no current ranking of task {case.task.id!r}; look at it again")
    return chosen.ranks or (), chosen.detail.unplaced


def _case(tx: Tx, project_id: str, task_id: str) -> Case:
    task = get_task(tx, task_id)
    if task.project_id != project_id:
        raise NotFound(f"no task {task_id!r} in this project")
    answers = tuple(answers_to_task(tx, task_id))
    agreement, n = _agreement([each for each in answers if each.status is RankingStatus.RANKED])
    return Case(task, answers, agreement, n, adjudication_of(tx, task_id))


def _answers_by_task(tx: Tx, project_id: str) -> Iterator[tuple[str, list[Ranking]]]:
    by_task = itertools.groupby(current_rankings(tx, project_id), lambda each: each[0].task_id)
    for task_id, answers in by_task:
        yield task_id, [answer for answer, _ in answers]


def _seen(answers: Sequence[Ranking]) -> tuple[str, ...]:
    return tuple(each.id for each in answers if each.status is not RankingStatus.SKIPPED)


def _agreement(rankings: Sequence[Ranking]) -> tuple[float | None, int]:
    return share_of_agreement(comparisons({each.annotator_id: judgement(each) for each in rankings}))
