"""From the answers to one task to the groups of a snapshot: each ranking by itself, or all of them merged into one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from itertools import combinations
from typing import Any, NamedTuple

from data.files.snapshots import Group
from data.labels.gold import Gold
from data.records import Adjudication, Detail, Purpose, Ranking, RankingStatus, Split, Task
from labeling.judgement.consensus import Judgement, count_votes, merged_ranking, pair_probabilities
from labeling.judgement.pairs import Pair, count_not_compared, count_ties, pairs_from_probabilities, pairs_from_ranks
from labeling.judgement.ranks import is_all_tied

MERGED = "merged"  # why an answer is no group by itself, though it is used
OVERRULED = "overruled"  # by a researcher's decision on the task


class Merge(StrEnum):
    """What becomes of several rankings of a task."""

    EACH = "each"
    SOFT = "soft"


class Aside(NamedTuple):
    """An answer that is no group by itself, and why."""

    answer: Ranking
    reason: str


class GroupSource(NamedTuple):
    """What becomes one group: one ranking, several with how sure each pair is, or a researcher's decision on the task.

    `weight`: before it is shared out.
    """

    rankings: tuple[Ranking, ...]
    ranks: tuple[int, ...]
    probabilities: tuple[float, ...]
    weight: float
    decision: Adjudication | None = None


class JudgedTask(NamedTuple):
    """A task, the rankings of it that are used, the groups that they become, and its answers that are none."""

    task_id: str
    prompt_id: str
    rankings: list[Ranking]
    parts: list[GroupSource]
    aside: list[Aside]


class TaskOutcome(NamedTuple):
    """What becomes of the answers to a task: the groups that are used; and those set aside, as rows of others.parquet,
    where they are asked for."""

    judged: JudgedTask
    split: Split
    groups: list[Group]
    others: list[dict[str, Any]]


def usable(answers: Sequence[Ranking], *, include_extra: bool, with_gold: bool) -> tuple[list[Ranking], list[Aside]]:
    """The rankings of a task that a snapshot can use, and its other answers."""
    rankings, aside = [], []
    for answer in answers:
        if answer.purpose is Purpose.GOLD and not with_gold:
            aside.append(Aside(answer, "gold"))
        elif answer.is_extra and not include_extra:
            aside.append(Aside(answer, "extra"))
        elif answer.status is not RankingStatus.RANKED:
            aside.append(Aside(answer, answer.status.value))
        else:
            rankings.append(answer)
    return rankings, aside


def judgement(ranking: Ranking) -> Judgement:
    """The comparisons in a ranking."""
    return Judgement(ranking.ranks or (), ranking.detail.unplaced)


def parts_of_task(
    rankings: Sequence[Ranking], weight_of: Callable[[str], float], merge: str
) -> tuple[list[GroupSource], list[Aside]]:
    """The groups of a task that have a pair; and the rankings that are no group by themselves.

    Merged, a ranking where all are tied counts too: it makes the others less sure.
    """
    tied = [each for each in rankings if is_all_tied(each.ranks or ())]
    if merge == Merge.EACH or len(rankings) < 2:
        single = [each for each in rankings if not is_all_tied(each.ranks or ())]
        parts = [GroupSource((each,), each.ranks or (), (), weight_of(each.annotator_id)) for each in single]
        return parts, [Aside(each, "all_tied") for each in tied]
    weights = [weight_of(each.annotator_id) for each in rankings]
    probabilities = pair_probabilities([judgement(each) for each in rankings], weights)
    ranks = merged_ranking(probabilities, len(rankings[0].ranks or ())).ranks
    if not pairs_from_probabilities(probabilities, ranks):
        reason = "all_tied" if len(tied) == len(rankings) else "evenly_split"
        return [], [Aside(each, reason) for each in rankings]
    return [GroupSource(tuple(rankings), ranks, probabilities, sum(weights))], [
        Aside(each, MERGED) for each in rankings
    ]


def decided_part(
    decision: Adjudication, answers: Sequence[Ranking], weight_of: Callable[[str], float]
) -> tuple[list[GroupSource], list[Aside]]:
    """The group of a task on which a researcher has decided, if it has a pair; all else that was said is overruled."""
    overruled = [Aside(each, "skipped" if each.status is RankingStatus.SKIPPED else OVERRULED) for each in answers]
    if is_all_tied(decision.ranks):
        return [], overruled
    seen = [each for each in answers if each.id in decision.seen and each.status is RankingStatus.RANKED]
    weight = sum(weight_of(each.annotator_id) for each in seen)
    return [GroupSource((), decision.ranks, (), weight or 1.0, decision)], overruled


def build_group(
    part: GroupSource,
    task: Task,
    rankings: Sequence[Ranking],
    *,
    split: Split,
    name_of: Callable[[str], str],
    weight: float,
) -> Group:
    """A part as a row of the snapshot. `rankings`: all of the task, which say how many agree of how many."""
    decision, only = part.decision, part.rankings[0] if len(part.rankings) == 1 else None
    has_votes = len(rankings) > 1 or (decision is not None and rankings)
    votes = count_votes([judgement(each) for each in rankings]) if has_votes else None
    detail, comment = Detail(acceptable=_acceptable(part.rankings or rankings)), ""
    authors = [(each.id, each.annotator_id) for each in part.rankings]
    if only is not None:
        detail, comment = only.detail, only.comment
    if decision is not None:
        detail, comment = replace(detail, unplaced=decision.unplaced), decision.reason
        authors = [(decision.id, decision.decided_by)]
    return Group(
        ranking_id=",".join(own_id for own_id, _ in authors),
        task_id=task.id,
        prompt_id=task.prompt_id,
        split=split,
        messages=task.messages,
        responses=tuple(response.text for response in task.responses),
        response_ids=tuple(response.id for response in task.responses),
        models=tuple(response.model for response in task.responses),
        ranks=part.ranks,
        annotator=",".join(name_of(person_id) for _, person_id in authors),
        weight=weight,
        unplaced=detail.unplaced,
        acceptable=detail.acceptable,
        flags=detail.flags,
        quality=detail.quality,
        strength=detail.strength,
        comment=comment,
        facts=task.facts,
        duration_ms=None if only is None else only.duration_ms,
        display_order=() if only is None else only.display_order or (),
        preferred=votes.preferred if votes else (),
        compared=votes.compared if votes else (),
        probabilities=part.probabilities,
        adjudicated=decision is not None,
    )


def other_row(
    aside: Aside, task: Task, *, split: Split, name_of: Callable[[str], str], gold: Gold | None = None
) -> dict[str, Any]:
    """An answer that is no group by itself, as a row of the snapshot's others. One that no response is acceptable says
    so of each; one to a gold task says what was expected."""
    answer, detail = aside.answer, aside.answer.detail
    none_acceptable = answer.status is RankingStatus.UNACCEPTABLE
    group = Group(
        ranking_id=answer.id,
        task_id=task.id,
        prompt_id=task.prompt_id,
        split=split,
        messages=task.messages,
        responses=tuple(response.text for response in task.responses),
        response_ids=tuple(response.id for response in task.responses),
        models=tuple(response.model for response in task.responses),
        ranks=answer.ranks or (),
        annotator=name_of(answer.annotator_id),
        weight=1.0,
        unplaced=detail.unplaced,
        acceptable=(False,) * len(task.responses) if none_acceptable else detail.acceptable,
        flags=detail.flags,
        quality=detail.quality,
        strength=detail.strength,
        comment=answer.comment,
        facts=task.facts,
        duration_ms=answer.duration_ms,
        display_order=answer.display_order or (),
    )
    return group.as_row() | {
        "status": answer.status.value, "skip_reason": answer.skip_reason, "left_out": aside.reason,
        "expected": None if gold is None else _expected(gold, name_of),
    }  # fmt: skip


def _expected(gold: Gold, name_of: Callable[[str], str]) -> dict[str, Any]:
    author = "" if gold.author_id is None else name_of(gold.author_id)
    return {"ranks": list(gold.ranks), "unplaced": list(gold.unplaced), "annotator": author}


def pairs_of_group(group: Group) -> list[Pair]:
    """The preference pairs of a group."""
    if group.probabilities:
        return pairs_from_probabilities(group.probabilities, group.ranks)
    return pairs_from_ranks(group.ranks)


def count_pairs(group: Group) -> Counter[str]:
    """How many of the C(K, 2) pairs are `pairs`, `ties`, `split` evenly between annotators, or `not_compared`."""
    n_pairs, k = len(pairs_of_group(group)), len(group.ranks)
    if not group.probabilities:
        ties = count_ties(group.ranks, group.unplaced)
        return Counter(pairs=n_pairs, ties=ties, split=0, not_compared=count_not_compared(group.unplaced))
    not_compared = (sum(number == 0 for number in group.compared) - k) // 2
    sides = [(group.probabilities[i * k + j], group.probabilities[j * k + i]) for i, j in combinations(range(k), 2)]
    n_split = sum(there == back > 0 for there, back in sides)
    ties = k * (k - 1) // 2 - n_pairs - n_split - not_compared
    return Counter(pairs=n_pairs, ties=ties, split=n_split, not_compared=not_compared)


def _acceptable(rankings: Sequence[Ranking]) -> tuple[bool | None, ...]:
    """What most of those who said something called each response; None where they are even."""
    said = [each.detail.acceptable for each in rankings if each.detail.acceptable]
    sums = [sum((value is True) - (value is False) for value in values) for values in zip(*said, strict=True)]
    return tuple(None if total == 0 else total > 0 for total in sums)
