"""What a researcher sees of each annotator's way of working: how much, how fast, and with which habits.

All of it is computed from the answers as they are stored; annotators never see it. A person is no row of numbers: an
alarm here is a reason to look at rankings, not a verdict.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from statistics import median

from data.labels.check_answers import gold_answers, repeats
from data.labels.gold import Gold
from data.labels.pauses import list_pauses
from data.labels.people import get_person
from data.labels.projects import get_project
from data.labels.rankings import current_rankings
from data.labels.tasks import get_tasks
from data.records import Ranking, RankingStatus, Task
from data.store import Store, Tx
from labeling.judgement.bias import LengthBias, PositionBias, length_bias, length_lean, position_bias
from labeling.judgement.haste import is_hasty, n_words
from labeling.judgement.pair_agreement import PairAgreement, agreement_with_gold, self_consistency
from labeling.work.alarms import AnnotatorAlarm, alarms_of

_MINUTE_S = 60.0
AT_ONCE = 500


@dataclass(frozen=True)
class AnnotatorRow:
    """One annotator's current answers in a project.

    `median_seconds`: of the time that a task was in sight until it was answered, skips left out; None where no time is
    known. `n_hasty` of `n_timed` answers were given faster than their texts can be read. `busiest_minute`: the most
    answers stored within 60 seconds (those that waited for a lost connection come together). None of these three looks
    at edits or at answers from files. `gold`: pair agreement with what was expected. `consistency`: with themselves, of
    tasks that came twice. `alarms`: what is to be looked at. `is_paused`: whether they get no work now.
    """

    annotator_id: str
    name: str
    n_ranked: int
    n_unacceptable: int
    n_skipped: int
    n_late: int
    median_seconds: float | None
    n_hasty: int
    n_timed: int
    busiest_minute: int
    position: PositionBias
    length: LengthBias
    gold: PairAgreement
    consistency: PairAgreement
    alarms: list[AnnotatorAlarm]
    is_paused: bool


@dataclass
class _AnnotatorTally:
    """What is gathered of one annotator."""

    statuses: Counter[RankingStatus] = field(default_factory=Counter)
    leans: Counter[int] = field(default_factory=Counter)
    shown: list[tuple[int, ...]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    stored_at: list[float] = field(default_factory=list)
    n_late: int = 0
    n_hasty: int = 0
    of_gold: list[tuple[Ranking, Gold]] = field(default_factory=list)
    twice: list[tuple[Ranking, Ranking]] = field(default_factory=list)

    def add(self, ranking: Ranking, task: Task) -> None:
        self.statuses[ranking.status] += 1
        self.n_late += ranking.is_late
        if ranking.source == "app" and ranking.version == 1:
            self._add_time(ranking, task)
        if ranking.ranks is not None:
            if ranking.display_order is not None:
                self.shown.append(tuple(ranking.ranks[position] for position in ranking.display_order))
            lengths = [len(response.text) for response in task.responses]
            self.leans[length_lean(ranking.ranks, lengths, ranking.detail.unplaced)] += 1

    def _add_time(self, ranking: Ranking, task: Task) -> None:
        """Only of first versions: who corrects an answer has read the texts before."""
        self.stored_at.append(ranking.created_at)
        if ranking.status is not RankingStatus.SKIPPED and ranking.duration_ms is not None:
            self.seconds.append(ranking.duration_ms / 1000)
            self.n_hasty += is_hasty(ranking.duration_ms, n_words(task))

    def row(self, annotator_id: str, name: str, alarms: list[AnnotatorAlarm], *, is_paused: bool) -> AnnotatorRow:
        return AnnotatorRow(
            annotator_id=annotator_id,
            name=name,
            n_ranked=self.statuses[RankingStatus.RANKED],
            n_unacceptable=self.statuses[RankingStatus.UNACCEPTABLE],
            n_skipped=self.statuses[RankingStatus.SKIPPED],
            n_late=self.n_late,
            median_seconds=median(self.seconds) if self.seconds else None,
            n_hasty=self.n_hasty,
            n_timed=len(self.seconds),
            busiest_minute=busiest_minute(self.stored_at),
            position=position_bias(self.shown),
            length=length_bias(self.leans[1], self.leans[-1]),
            gold=agreement_with_gold(self.of_gold),
            consistency=self_consistency(self.twice),
            alarms=alarms,
            is_paused=is_paused,
        )


def annotator_table(store: Store, project_id: str) -> list[AnnotatorRow]:
    """One row for each annotator with an answer in the project, by name. Raises NotFound."""
    with store.read() as tx:
        project = get_project(tx, project_id)
        tallies: dict[str, _AnnotatorTally] = defaultdict(_AnnotatorTally)
        for ranking, task in _answers(tx, project_id):
            tallies[ranking.annotator_id].add(ranking, task)
        for ranking, gold in gold_answers(tx, project_id):
            tallies[ranking.annotator_id].of_gold.append((ranking, gold))
        for first, second in repeats(tx, project_id):
            tallies[first.annotator_id].twice.append((first, second))
        stopped = {each.annotator_id for each in list_pauses(tx, project_id) if each.lifted_at is None}
        rows = [
            tally.row(
                person_id,
                get_person(tx, person_id).name,
                alarms_of(tx, project, person_id),
                is_paused=person_id in stopped,
            )
            for person_id, tally in tallies.items()
        ]
    return sorted(rows, key=lambda row: row.name)


def busiest_minute(times: list[float]) -> int:
    """The largest number of these times, in seconds, within one minute."""
    ordered = sorted(times)
    most = first = 0
    for last, time in enumerate(ordered):
        while time - ordered[first] >= _MINUTE_S:
            first += 1
        most = max(most, last - first + 1)
    return most


def _answers(tx: Tx, project_id: str) -> Iterator[tuple[Ranking, Task]]:
    """All current answers with their tasks, some hundreds at a time."""
    found = (ranking for ranking, _ in current_rankings(tx, project_id, with_gold=True))
    while lot := list(islice(found, AT_ONCE)):
        tasks = {task.id: task for task in get_tasks(tx, list({ranking.task_id for ranking in lot}))}
        for ranking in lot:
            yield ranking, tasks[ranking.task_id]
