"""Several annotators into one judgement, against numbers worked out by hand; nothing hangs on an order of ids."""

from __future__ import annotations

import random
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labeling.judgement.consensus import (
    Judgement,
    Merged,
    accuracy_against,
    annotator_accuracies,
    comparisons,
    count_votes,
    merged_ranking,
    pair_probabilities,
    vote_weight,
)


def merged(*rankings: tuple[int, ...]) -> Merged:
    judgements = [Judgement(ranks) for ranks in rankings]
    return merged_ranking(pair_probabilities(judgements, [1.0] * len(judgements)), len(rankings[0]))


def test_votes_and_probabilities_of_three_people() -> None:
    """A against B: better, better, worse. A against C: better, equal, equal. B against C: all three better."""
    judgements = [Judgement((1, 2, 3)), Judgement((1, 1, 3)), Judgement((2, 1, 3))]
    votes = count_votes(judgements)
    assert votes.preferred == (0, 1, 3, 1, 0, 3, 0, 0, 0)
    assert votes.compared == (0, 3, 3, 3, 0, 3, 3, 3, 0)
    sure = pair_probabilities(judgements, [1, 1, 1])
    assert sure == pytest.approx((0, 0.5, 1, 0.5, 0, 1, 0, 0, 0))
    assert pair_probabilities(judgements, [2, 1, 1])[1] == pytest.approx((2 + 0.5) / 4)
    assert pair_probabilities(judgements, [0, 0, 0]) == sure


def test_what_nobody_compared_or_nobody_told_apart_is_no_pair() -> None:
    judgements = [Judgement((1, 2, 2, 2), (2, 3)), Judgement((1, 2, 3, 3), (2, 3))]
    assert count_votes(judgements).compared[2 * 4 + 3] == 0
    sure = pair_probabilities(judgements, [1, 1])
    assert (sure[2 * 4 + 3], sure[3 * 4 + 2]) == (0, 0)
    assert sure[1 * 4 + 2] == 0.75  # one tie, one better
    assert pair_probabilities([Judgement((1, 1)), Judgement((1, 1))], [1, 1]) == (0,) * 4


@pytest.mark.parametrize(
    ("rankings", "expected", "unresolved"),
    [
        ([(1, 2, 3)], (1, 2, 3), []),
        ([(1, 2, 3), (3, 2, 1)], (1, 1, 1), []),  # Open-Assistant's merge made the first one of this
        ([(1, 2, 3), (2, 3, 1), (3, 1, 2)], (1, 1, 1), [(0, 1), (0, 2), (1, 2)]),  # a circle
        ([(1, 2, 3), (1, 2, 3), (3, 2, 1)], (1, 2, 3), []),
        ([(1, 2, 3), (2, 1, 3)], (1, 1, 3), []),
        ([(1, 2, 3, 4), (2, 3, 1, 4), (3, 1, 2, 4)], (1, 1, 1, 4), [(0, 1), (0, 2), (1, 2)]),
        ([(1, 1, 2), (1, 2, 2)], (1, 2, 3), []),
    ],
)
def test_rankings_are_merged_as_the_majority_says(
    rankings: list[tuple[int, ...]], expected: tuple[int, ...], unresolved: list[tuple[int, int]]
) -> None:
    found = merged(*rankings)
    assert (found.ranks, found.unresolved) == (expected, unresolved)


def test_even_with_what_is_even_but_better_stays_unresolved() -> None:
    assert merged_ranking((0, 0.5, 1, 0.5, 0, 0.5, 0, 0.5, 0), 3) == Merged((1, 1, 1), [(0, 2)])


rankings_of_four = st.lists(
    st.lists(st.integers(1, 4), min_size=4, max_size=4).map(
        lambda each: tuple(1 + sum(other < rank for other in each) for rank in each)
    ),
    min_size=1,
    max_size=5,
)


@given(rankings_of_four, st.permutations(range(4)))
def test_another_order_of_responses_or_of_people_changes_nothing(
    rankings: list[tuple[int, ...]], order: list[int]
) -> None:
    turned = [tuple(ranking[place] for place in order) for ranking in reversed(rankings)]
    found = merged(*rankings)
    assert merged(*turned).ranks == tuple(found.ranks[place] for place in order)
    assert len(merged(*turned).unresolved) == len(found.unresolved)


@given(rankings_of_four)
def test_one_person_or_people_of_one_mind_are_merged_into_what_they_said(rankings: list[tuple[int, ...]]) -> None:
    assert merged(rankings[0], rankings[0]) == Merged(rankings[0], [])
    reversed_ = [tuple(5 - rank for rank in ranking) for ranking in rankings]
    probabilities = [
        pair_probabilities([Judgement(each) for each in side], [1.0] * len(side)) for side in (rankings, reversed_)
    ]
    assert all(
        probabilities[0][i * 4 + j] == pytest.approx(probabilities[1][j * 4 + i]) for i, j in permutations(range(4), 2)
    )


def test_planted_accuracies_are_found() -> None:
    rng = random.Random(5)
    planted = {"ann": 0.95, "bob": 0.8, "cy": 0.6, "di": 1 / 3}
    units = []
    for _ in range(3000):
        truth = rng.choice([-1, -1, 0, 1, 1])
        people = rng.sample(sorted(planted), 3)
        wrong = [value for value in (-1, 0, 1) if value != truth]
        units.append({who: truth if rng.random() < planted[who] else rng.choice(wrong) for who in people})
    found = annotator_accuracies(units)
    assert found == pytest.approx(planted, abs=0.04)
    turned = [{who: -value for who, value in unit.items()} for unit in units]
    assert annotator_accuracies(turned) == pytest.approx(found, abs=1e-6)
    assert [round(vote_weight(each), 2) for each in (1.0, 2 / 3, 1 / 3, 0.1)] == [1, 0.5, 0, 0]


def test_people_who_share_nothing_have_no_accuracy() -> None:
    assert annotator_accuracies([{"ann": 1}, {"bob": 0}]) == {}
    assert list(annotator_accuracies([{"ann": 1, "bob": 1}, {"cy": 0}])) == ["ann", "bob"]
    one, two = annotator_accuracies([{"ann": 1, "bob": -1}] * 50).values()
    assert one == pytest.approx(two)


def test_units_are_pairs_that_two_compared() -> None:
    units = comparisons({"ann": Judgement((1, 2, 2), (1, 2)), "bob": Judgement((2, 1, 3)), "cy": Judgement((1, 1, 1))})
    assert units == [{"ann": -1, "bob": 1, "cy": 0}, {"ann": -1, "bob": -1, "cy": 0}, {"bob": -1, "cy": 0}]
    assert comparisons({"ann": Judgement((1, 2))}) == []


def test_one_person_against_another_is_counted_as_a_model_is() -> None:
    """Of three pairs: one right, one turned round, one a tie to the other."""
    assert accuracy_against(Judgement((1, 2, 3)), Judgement((2, 1, 2))) == pytest.approx((0 + 0.5 + 1) / 3)
    assert accuracy_against(Judgement((1, 2, 2)), Judgement((1, 3, 2))) == 1  # the truth's tie asks nothing
    assert accuracy_against(Judgement((1, 1)), Judgement((1, 2))) is None
    assert accuracy_against(Judgement((1, 2, 3)), Judgement((1, 2, 2), (1, 2))) == 1  # what was not compared: neither
