"""What the loss is asked: ties, margins, sure pairs, choices one by one; numbers worked out by hand."""

from __future__ import annotations

import math
from itertools import permutations

import pytest
import torch
from torch import Tensor

from training.lm.dataset import EncodedGroup
from training.maths.losses import plackett_luce_loss, ranking_loss
from training.reward.objective import Objective

pytestmark = pytest.mark.float64


def ranking(*ranks: int, weight: float = 1.0, **more: object) -> EncodedGroup:
    n = len(ranks)
    return EncodedGroup("r", "p", [[1, 2]] * n, [1] * n, list(ranks), weight, **more)  # type: ignore[arg-type]


def vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def cost(margin: float) -> float:
    return math.log1p(math.exp(-margin))


def test_without_options_it_is_the_plain_loss() -> None:
    scores, groups = vector(2, 1, 0, -1, 0, 1), [ranking(1, 2, 3, 4), ranking(1, 2)]
    found = Objective()(scores, groups)
    assert found.loss.item() == pytest.approx(0.7601498801, abs=1e-10)
    weighted = Objective()(scores, [ranking(1, 2, 3, 4, weight=0.5), ranking(1, 2, weight=1.5)])
    assert weighted.loss.item() == pytest.approx((0.5 * 0.2070380727 + 1.5 * 1.3132616875) / 2, abs=1e-9)


def test_a_tie_is_half_a_win_for_each_or_nothing() -> None:
    scores, groups = vector(1, 0.5, 0.2, 0), [ranking(1, 2, 2, 4)]
    strict = [cost(1 - 0.5), cost(1 - 0.2), cost(1 - 0), cost(0.5), cost(0.2)]
    assert Objective()(scores, groups).loss.item() == pytest.approx(sum(strict) / 5)
    tie = (cost(0.3) + cost(-0.3)) / 2
    found = Objective(ties="half")(scores, groups)
    assert found.loss.item() == pytest.approx((sum(strict) + tie) / 6)
    assert found.pair_accuracy.item() == 1.0  # a tie has no right order


def test_a_tie_pulls_scores_together() -> None:
    scores = vector(3, 1, 0).requires_grad_()
    Objective(ties="half")(scores, [ranking(1, 1, 3)]).loss.backward()
    assert scores.grad is not None
    # (sigmoid(2) - 0.5) / 3 from the tie, less (1 - sigmoid(3)) / 3 from the pair with the last
    assert scores.grad[0].item() == pytest.approx((0.8807970780 - 0.5 - 0.0474258732) / 3, abs=1e-9)


def test_a_rest_in_no_order_is_no_tie() -> None:
    scores = vector(1, 0.5, 0.2, 0)
    found = Objective(ties="half")(scores, [ranking(1, 1, 3, 3, unplaced=(2, 3))])
    pairs = [cost(1 - 0.2), cost(1.0), cost(0.5 - 0.2), cost(0.5), (cost(0.5) + cost(-0.5)) / 2]
    assert found.loss.item() == pytest.approx(sum(pairs) / 5)


def test_a_margin_by_ranks_grows_with_their_distance() -> None:
    scores = vector(2, 1, 0)
    found = Objective(margin="ranks", margin_size=0.6)(scores, [ranking(1, 2, 3)])
    assert found.loss.item() == pytest.approx((cost(1 - 0.3) + cost(2 - 0.6) + cost(1 - 0.3)) / 3)
    tied = Objective(margin="ranks", margin_size=0.6)(scores, [ranking(1, 1, 3)])  # two levels only
    assert tied.loss.item() == pytest.approx((cost(2 - 0.6) + cost(1 - 0.6)) / 2)
    assert found.pair_accuracy.item() == 1.0


@pytest.mark.parametrize(("strength", "margin"), [(1, 0.0), (2, 1 / 3), (4, 1.0), (None, 0.0)])
def test_a_margin_by_strength_is_between_the_first_and_the_others(strength: int | None, margin: float) -> None:
    found = Objective(margin="strength")(vector(2, 1, 0), [ranking(1, 2, 3, strength=strength)])
    assert found.loss.item() == pytest.approx((cost(1 - margin) + cost(2 - margin) + cost(1)) / 3)


def test_a_margin_moves_the_target_of_a_sure_pair_too() -> None:
    """0.75 sure, margin 0.5: cross-entropy at a difference that is 0.5 less."""
    group = ranking(1, 2, probabilities=(0.0, 0.75, 0.25, 0.0))
    found = Objective(margin="ranks", margin_size=0.5)(vector(2, 0), [group])
    assert found.loss.item() == pytest.approx(0.75 * cost(1.5) + 0.25 * cost(-1.5))


def test_pairs_may_be_as_sure_as_their_annotators_agree() -> None:
    """Scores 2, 0, 1. Pair (0, 1) is sure to 0.75; (1, 2) is even, and in no accuracy."""
    sure = (0.0, 0.75, 0.0, 0.25, 0.0, 0.5, 0.0, 0.5, 0.0)
    scores = vector(2, 0, 1).requires_grad_()
    found = Objective()(scores, [ranking(1, 2, 2, probabilities=sure)])
    assert found.loss.item() == pytest.approx((0.626928011 + 0.8132616875) / 2, abs=1e-9)
    assert found.pair_accuracy.item() == 1
    found.loss.backward()
    assert scores.grad is not None
    assert scores.grad.tolist() == pytest.approx([0.065398539, -0.065398539 - 0.1155292893, 0.1155292893], abs=1e-7)


def test_certain_pairs_cost_what_ranks_cost() -> None:
    torch.manual_seed(0)
    scores, ranks, groups = torch.randn(5), torch.tensor([1, 2, 2, 1, 2]), torch.tensor([0, 0, 0, 1, 1])
    hard = ((groups[:, None] == groups[None, :]) & (ranks[:, None] < ranks[None, :])).float()
    one, other = ranking_loss(scores, ranks, groups), ranking_loss(scores, ranks, groups, preferences=hard)
    assert torch.equal(one.loss, other.loss)
    assert torch.equal(one.pair_accuracy, other.pair_accuracy)


def one_by_one(scores: list[float]) -> float:
    """-log of the probability of this order, by the products of the choices."""
    left, total = list(scores), 0.0
    while len(left) > 1:
        total -= math.log(math.exp(left[0]) / sum(map(math.exp, left)))
        left.pop(0)
    return total


def test_choices_one_by_one() -> None:
    scores = vector(2, 1, 0).requires_grad_()
    found = plackett_luce_loss(scores, torch.tensor([1, 2, 3]), torch.zeros(3, dtype=torch.long))
    assert found.loss.item() == pytest.approx((0.4076059644 + 0.3132616875) / 2, abs=1e-9)
    assert found.loss.item() == pytest.approx(one_by_one([2, 1, 0]) / 2)
    found.loss.backward()
    assert scores.grad is not None
    first = [math.exp(s) / (1 + math.e + math.e**2) for s in (2, 1, 0)]
    second = math.e / (1 + math.e)
    wanted = [(first[0] - 1) / 2, (first[1] + second - 1) / 2, (first[2] + 1 - second) / 2]
    assert scores.grad.tolist() == pytest.approx(wanted, abs=1e-9)


def test_the_orders_of_three_are_all_there_is() -> None:
    scores, owners = vector(0.3, -1.2, 0.9), torch.zeros(3, dtype=torch.long)
    ranks = permutations((1, 2, 3))
    logs = [2 * plackett_luce_loss(scores, torch.tensor(each), owners).loss.item() for each in ranks]
    assert sum(math.exp(-each) for each in logs) == pytest.approx(1)


def test_two_responses_are_a_pair_by_either_loss() -> None:
    scores, groups = vector(0.4, 1.3, -2, 0.1), [ranking(1, 2), ranking(2, 1, weight=0.5)]
    one, other = (Objective(loss=each, centring=0.1)(scores, groups) for each in ("pairs", "plackett-luce"))
    assert one.loss.item() == pytest.approx(other.loss.item())
    assert one.pair_accuracy.item() == other.pair_accuracy.item() == 0.5


def test_equal_ranks_are_chosen_from_the_same_rest() -> None:
    found = plackett_luce_loss(vector(2, 1, 0), torch.tensor([1, 1, 3]), torch.zeros(3, dtype=torch.long))
    everything = math.log(math.exp(2) + math.exp(1) + 1)
    assert found.loss.item() == pytest.approx((everything - 2 + everything - 1) / 2)
    assert found.pair_accuracy.item() == 1.0
    with pytest.raises(ValueError, match="no pair to learn from"):
        plackett_luce_loss(vector(1, 2), torch.tensor([1, 1]), torch.zeros(2, dtype=torch.long))
