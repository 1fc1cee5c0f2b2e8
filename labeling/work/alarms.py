"""Alarms about an annotator in a project, and the pauses that follow where the project wants it.

An alarm looks at what was answered since the last pause was lifted: who was talked to starts afresh.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum

from data.intervals import wilson
from data.label_settings import OnAlarm
from data.labels.check_answers import first_answers, gold_answers
from data.labels.gold import gold_of_tasks
from data.labels.pauses import Pause, current_pause, last_lifted_at, lift_pause, list_pauses, pause_annotator
from data.labels.people import list_people
from data.labels.projects import get_project
from data.labels.roles import Actor, acting
from data.labels.tasks import get_tasks
from data.records import NewRanking, Project, RankingStatus, Role, Task
from data.store.engine import Store, Tx
from labeling.judgement.haste import is_hasty, n_words
from labeling.judgement.pair_agreement import agreement_with_gold

LAST_ANSWERS = 100  # haste is a matter of these: a bad day long ago says nothing of today
MAX_NAMES = 3


class AlarmKind(StrEnum):
    GOLD = "gold"
    HASTE = "haste"


@dataclass(frozen=True)
class AnnotatorAlarm:
    """Gold: the pair agreement `value` on `n` items is below the threshold. Haste: a share of `n` answers is above.

    `low`, `high`: the 95 % interval of the value (Wilson's). The threshold is for the value, as the project asks: where
    the interval holds it, chance may have raised the alarm.
    """

    kind: AlarmKind
    value: float
    threshold: float
    n: int
    low: float | None = field(default=None, compare=False)
    high: float | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Paused:
    """What a paused annotator reads: why, in general, and whom to ask."""

    reason: AlarmKind
    ask: tuple[str, ...]


def alarms_of(tx: Tx, project: Project, annotator_id: str) -> list[AnnotatorAlarm]:
    """What is to be looked at in an annotator's newer answers, whatever the project makes follow from it."""
    since = last_lifted_at(tx, project.id, annotator_id)
    found = (_gold_alarm(tx, project, annotator_id, since), _haste_alarm(tx, project, annotator_id, since))
    return [alarm for alarm in found if alarm is not None]


def pause_if_alarmed(store: Store, project: Project, task: Task, answer: NewRanking) -> bool:
    """Pause the annotator if this answer, which is stored, raised an alarm that the project pauses for.

    Apart from storing it: an answer must never be lost because of what it says of its annotator.
    """
    settings = project.settings
    if OnAlarm.PAUSE not in (settings.on_low_gold, settings.on_haste):
        return False
    with store.read() as tx:
        since = last_lifted_at(tx, project.id, answer.annotator_id)
        alarm = None
        if settings.on_low_gold == OnAlarm.PAUSE and gold_of_tasks(tx, [task.id]):
            alarm = _gold_alarm(tx, project, answer.annotator_id, since)
        if alarm is None and settings.on_haste == OnAlarm.PAUSE and _is_hasty(answer, task):
            alarm = _haste_alarm(tx, project, answer.annotator_id, since)
    if alarm is None:
        return False
    with store.begin() as tx:
        return pause_annotator(tx, project.id, answer.annotator_id, alarm.kind.value, asdict(alarm))


def paused(tx: Tx, project_id: str, annotator_id: str) -> Paused | None:
    """What an annotator is to read who is paused in a project."""
    found = current_pause(tx, project_id, annotator_id)
    return None if found is None else Paused(AlarmKind(found.reason), _whom_to_ask(tx))


def pauses(store: Store, project_id: str) -> list[Pause]:
    """Who is paused in a project, and who was, the newest first. Raises NotFound."""
    with store.read() as tx:
        get_project(tx, project_id)
        return list_pauses(tx, project_id)


def lift(store: Store, who: Actor, project_id: str, annotator_id: str, note: str = "") -> None:
    """Let a paused annotator go on; who did it, when and why is recorded. Raises NotAllowed, NotFound."""
    with acting(store, who, Role.RESEARCHER) as tx:
        lift_pause(tx, project_id, annotator_id, by=who.id, note=note)


def _gold_alarm(tx: Tx, project: Project, annotator_id: str, since: float) -> AnnotatorAlarm | None:
    measured = agreement_with_gold(gold_answers(tx, project.id, annotator_id, since=since))
    threshold = project.settings.gold_threshold
    if measured.value is None or measured.n_items < project.settings.gold_min_items or measured.value >= threshold:
        return None
    return AnnotatorAlarm(AlarmKind.GOLD, measured.value, threshold, measured.n_items, measured.low, measured.high)


def _haste_alarm(tx: Tx, project: Project, annotator_id: str, since: float) -> AnnotatorAlarm | None:
    answers = first_answers(tx, project.id, annotator_id, since=since, limit=LAST_ANSWERS)
    tasks = {task.id: task for task in get_tasks(tx, list({each.task_id for each in answers}))}
    timed = [(each.duration_ms, tasks[each.task_id]) for each in answers if each.duration_ms is not None]
    threshold = project.settings.haste_threshold
    if len(timed) < project.settings.haste_min_answers:
        return None
    share = sum(is_hasty(duration, n_words(task)) for duration, task in timed) / len(timed)
    low, high = wilson(share, len(timed))
    return AnnotatorAlarm(AlarmKind.HASTE, share, threshold, len(timed), low, high) if share > threshold else None


def _is_hasty(answer: NewRanking, task: Task) -> bool:
    """Whether this answer may have raised the alarm: none but a hasty one does."""
    is_timed = answer.duration_ms is not None and answer.status is not RankingStatus.SKIPPED
    return is_timed and is_hasty(answer.duration_ms or 0, n_words(task))


def _whom_to_ask(tx: Tx) -> tuple[str, ...]:
    """The researchers, and where there is none the admins."""
    people = [each for each in list_people(tx) if each.disabled_at is None]
    for role in (Role.RESEARCHER, Role.ADMIN):
        if names := [each.name for each in people if each.role is role]:
            return tuple(names[:MAX_NAMES])
    return ()
