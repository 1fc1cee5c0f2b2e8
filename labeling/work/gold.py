"""Making tasks gold: a researcher ranks them as anybody would, and then says that this is what is expected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from data.errors import InvalidInput, NotFound
from data.labels.gold import Gold, gold_of_project, set_gold, withdraw_gold
from data.labels.people import get_person
from data.labels.projects import get_project
from data.labels.rankings import answer_of, prompt_beginnings
from data.labels.roles import Actor, acting
from data.labels.tasks import get_task
from data.records import Person, RankingStatus, Role
from data.store.engine import Store, Tx


@dataclass(frozen=True)
class GoldTask:
    """One line of a project's list of gold tasks. `author`: whose answer it is, empty where it came from a file."""

    task_id: str
    prompt: str
    ranks: tuple[int, ...]
    unplaced: tuple[int, ...]
    author: str


def make_gold(store: Store, who: Person, task_id: str) -> bool:
    """Make a task gold by one's own answer; False if it was just this. Raises NotAllowed, NotFound, InvalidInput."""
    with acting(store, who, Role.RESEARCHER) as tx:
        return gold_from_answer(tx, who.id, task_id)


def gold_from_answer(tx: Tx, annotator_id: str, task_id: str) -> bool:
    """Make a task gold by a person's current answer. Raises NotFound, InvalidInput where that is no ranking."""
    answer = answer_of(tx, get_task(tx, task_id).id, annotator_id)
    if answer.status is not RankingStatus.RANKED or answer.ranks is None:
        raise InvalidInput(f"the answer to task {task_id} is {answer.status}; only a ranking can be gold")
    return set_gold(tx, task_id, answer.ranks, unplaced=answer.detail.unplaced, author_id=annotator_id)


def unmake_gold(store: Store, who: Actor, task_id: str) -> None:
    """Make a gold task an ordinary one again. Raises NotAllowed, NotFound."""
    with acting(store, who, Role.RESEARCHER) as tx:
        unmake_all(tx, [task_id])


def unmake_all(tx: Tx, task_ids: Sequence[str]) -> None:
    """Make gold tasks ordinary ones again. Raises NotFound for one that is not gold."""
    for task_id in task_ids:
        if not withdraw_gold(tx, task_id):
            raise NotFound(f"task {task_id!r} is not gold; `rankloop gold list` shows those that are")


def list_gold(store: Store, project_id: str) -> list[GoldTask]:
    """A project's gold tasks, in the order in which they were made. Raises NotFound."""
    with store.read() as tx:
        get_project(tx, project_id)
        found = gold_of_project(tx, project_id)
        words = prompt_beginnings(tx, list(found))
        return [_line(tx, each, words[each.task_id]) for each in found.values()]


def _line(tx: Tx, gold: Gold, prompt: str) -> GoldTask:
    author = "" if gold.author_id is None else get_person(tx, gold.author_id).name
    return GoldTask(gold.task_id, prompt, gold.ranks, gold.unplaced, author)
