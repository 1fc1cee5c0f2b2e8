"""Agreement against values computed by hand, and what is undefined."""

from __future__ import annotations

import pytest

from labeling.review.agreement import Answer, agreement

TOY = [
    Answer("p1", "t1", "ann", ("a", "b", "c"), (1, 2, 3)),
    Answer("p1", "t1", "bob", ("a", "b", "c"), (1, 3, 2)),
    Answer("p2", "t2", "ann", ("x", "y"), (1, 1)),
    Answer("p2", "t2", "bob", ("x", "y"), (1, 2)),
    Answer("p2", "t2", "cy", ("x", "y"), (1, 2)),
    Answer("p3", "t3", "ann", ("x", "y"), (1, 2)),  # nobody else: no unit
]


def test_a_toy_by_hand() -> None:
    found = agreement(TOY)
    assert (found.n_units, found.n_tasks, found.n_annotator_pairs) == (4, 2, 3)
    # t1: ab and ac equal, bc not; t2: ann-bob no, ann-cy no, bob-cy equal
    assert (found.pairs_with_ties.value, found.pairs_with_ties.n) == (3 / 6, 6)
    # without ann's tie only bob-cy is left of t2
    assert (found.pairs_without_ties.value, found.pairs_without_ties.n) == (3 / 4, 4)
    # t1: 2 concordant, 1 discordant of 3: 1/3; t2: undefined where ann takes part, bob-cy 1
    assert (found.tau.value, found.tau.n) == (pytest.approx((1 / 3 + 1) / 2), 2)
    # one as the truth, the other as the guess, a tie half. t1: 2 of 3 pairs right, both ways; t2: ann's tie asks
    # nothing and guesses half, twice; bob and cy foretell each other
    wanted = (2 / 3 + 2 / 3 + 0.5 + 0.5 + 1 + 1) / 6
    assert (found.human_accuracy.value, found.human_accuracy.n) == (pytest.approx(wanted), 6)
    # SHA-256 puts c before b before a, and x before y. t1: cb is > and <, ca is > >, ba is > >; t2: xy is = < <.
    # 9 values: 3 <, 1 =, 5 >. Disagreement: cb (4 - 2) / 1 = 2; xy (9 - 5) / 2 = 2; expected 81 - 9 - 1 - 25 = 46.
    assert (found.alpha.value, found.alpha.n) == (pytest.approx(1 - 8 * (2 + 2) / 46), 9)
    assert {each.name: (each.agreement, each.n) for each in found.annotators} == {
        "ann": (2 / 5, 5), "bob": (3 / 5, 5), "cy": (1 / 2, 2),
    }  # fmt: skip
    assert [(each.name, each.agreement) for each in found.worst_tasks] == [("t2", 1 / 3), ("t1", 2 / 3)]
    for figure in (found.pairs_with_ties, found.alpha):
        assert figure.low is not None
        assert figure.high is not None
        assert figure.low <= (figure.value or 0) <= figure.high


def test_pairs_within_an_unplaced_rest_are_nobody_s_ties() -> None:
    rest = Answer("p1", "t1", "cy", ("a", "b", "c"), (1, 2, 2), unplaced=(1, 2))
    found = agreement([TOY[0], rest])
    assert (found.pairs_with_ties.value, found.pairs_with_ties.n, found.tau.value) == (1.0, 2, None)


def test_what_can_not_be_known_is_none() -> None:
    for answers in ([], TOY[:1], [TOY[0], TOY[3]]):
        found = agreement(answers)
        for figure in (
            found.pairs_with_ties, found.pairs_without_ties, found.alpha, found.tau, found.human_accuracy,
        ):  # fmt: skip
            assert (figure.value, figure.low, figure.high, figure.n) == (None, None, None, 0)
    tied = agreement([TOY[2], Answer("p2", "t2", "bob", ("x", "y"), (1, 1))])
    assert (tied.pairs_with_ties.value, tied.alpha.value, tied.tau.value) == (1.0, None, None)
    assert tied.pairs_with_ties.low is None  # a single prompt has no interval
