"""Pair agreement with gold and with oneself, against numbers worked out by hand; each comment shows the arithmetic."""

from __future__ import annotations

from dataclasses import replace

import pytest

from data.labels.gold import Gold
from data.records import Detail, Ranking, RankingStatus
from labeling.judgement.pair_agreement import PairAgreement, agreement_with_gold, self_consistency


def ranked(*ranks: int, unplaced: tuple[int, ...] = ()) -> Ranking:
    return Ranking(
        id="r", task_id="t", annotator_id="a", submission_key="k", status=RankingStatus.RANKED, ranks=ranks,
        display_order=tuple(range(len(ranks))), skip_reason=None, comment="", duration_ms=None, guidelines_version=1,
        is_late=False, is_extra=False, version=1, supersedes_id=None, source="app", created_at=0.0,
        detail=Detail(unplaced=unplaced),
    )  # fmt: skip


def none_acceptable() -> Ranking:
    return replace(ranked(), ranks=None, display_order=(0, 1, 2), status=RankingStatus.UNACCEPTABLE)


def gold(*ranks: int, unplaced: tuple[int, ...] = ()) -> Gold:
    return Gold("t", ranks, unplaced, None, 0.0)


@pytest.mark.parametrize(
    ("given", "expected", "value", "n"),
    [
        (ranked(1, 2, 3), gold(1, 2, 3), 1.0, 3),
        (ranked(3, 2, 1), gold(1, 2, 3), 0.0, 3),
        (ranked(1, 3, 2), gold(1, 2, 3), 2 / 3, 3),  # AB and AC right, BC wrong
        (ranked(1, 1, 3), gold(1, 2, 3), 2.5 / 3, 3),  # AB called equal: a half
        (ranked(1, 1, 1), gold(1, 2, 3), 0.5, 3),  # all equal: chance
        (ranked(1, 2, 3), gold(1, 2, 2), 1.0, 2),  # gold leaves BC equal: no comparison
        (ranked(1, 2, 2, unplaced=(1, 2)), gold(1, 2, 3), 1.0, 2),  # BC has no order: no comparison
        (ranked(2, 1, 3), gold(1, 2, 2, unplaced=(1, 2)), 0.5, 2),  # AB wrong, AC right
        (none_acceptable(), gold(1, 2, 3), 0.0, 3),  # an order is expected: all wrong
        (none_acceptable(), gold(1, 2, 2), 0.0, 2),  # as many pairs as a ranking is measured by
        (none_acceptable(), gold(1, 2, 2, unplaced=(1, 2)), 0.0, 2),
    ],
)
def test_agreement_with_gold(given: Ranking, expected: Gold, value: float, n: int) -> None:
    assert agreement_with_gold([(given, expected)]) == PairAgreement(pytest.approx(value), n, 1)


@pytest.mark.parametrize(
    ("first", "second", "value", "n"),
    [
        (ranked(1, 2, 3), ranked(1, 2, 3), 1.0, 3),
        (ranked(1, 1, 3), ranked(1, 1, 3), 1.0, 3),  # equal both times is the same
        (ranked(1, 1, 3), ranked(1, 2, 3), 2 / 3, 3),  # AB was equal, is not now
        (ranked(1, 2, 2, unplaced=(1, 2)), ranked(1, 2, 3), 1.0, 2),  # BC had no order
    ],
)
def test_self_consistency(first: Ranking, second: Ranking, value: float, n: int) -> None:
    assert self_consistency([(first, second)]) == PairAgreement(pytest.approx(value), n, 1)


def test_pairs_of_several_tasks_count_alike_and_nothing_is_undefined_not_zero() -> None:
    both = [(ranked(1, 2), gold(2, 1)), (ranked(1, 2, 3), gold(1, 2, 3))]
    assert agreement_with_gold(both) == PairAgreement(0.75, 4, 2)  # 0 of 1 and 3 of 3
    assert agreement_with_gold([]) == PairAgreement(None, 0, 0)
    nothing = [(ranked(1, 1, unplaced=()), gold(1, 1))]
    assert agreement_with_gold(nothing) == PairAgreement(None, 0, 0)
