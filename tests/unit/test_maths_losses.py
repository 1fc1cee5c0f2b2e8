"""The ranking loss, the two clipped losses and log-probabilities, against numbers worked out by hand."""

from __future__ import annotations

import math
from itertools import combinations

import pytest
import torch
from torch import Tensor

from training.maths.losses import (
    entropy,
    penalised_policy_loss,
    policy_loss,
    ranking_loss,
    selected_logprobs,
    value_loss,
)

pytestmark = pytest.mark.float64

NATURAL_LOG_OF_2 = 0.6931471806


def vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def whole(*values: int) -> Tensor:
    return torch.tensor(values)


def ranked(*scores: float) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, given from the best to the worst rank, as one group."""
    n = len(scores)
    return vector(*scores).requires_grad_(), torch.arange(1, n + 1), torch.zeros(n, dtype=torch.long)


@pytest.mark.parametrize(
    ("scores", "loss", "gradient"),
    [
        ((2, 1, 0), 0.2511504620, [-0.1293814478, 0.0, 0.1293814478]),
        ((2, 1, 0, -1), 0.2070380727, [-0.0725950361, -0.0198671537, 0.0198671537, 0.0725950361]),
    ],
)
def test_a_whole_ranking_costs_the_mean_of_its_pairs(
    scores: tuple[float, ...], loss: float, gradient: list[float]
) -> None:
    given, ranks, groups = ranked(*scores)
    found = ranking_loss(given, ranks, groups)
    found.loss.backward()
    assert found.loss.item() == pytest.approx(loss, abs=1e-10)
    assert found.loss.dtype == torch.float64
    assert given.grad is not None
    assert given.grad.tolist() == pytest.approx(gradient, abs=1e-9)
    assert found.pair_accuracy.item() == pytest.approx(1.0)
    pairs = [math.log1p(math.exp(low - high)) for high, low in combinations(scores, 2)]
    assert found.loss.item() == pytest.approx(sum(pairs) / len(pairs))


def test_pairs_of_three_cost_what_they_cost_alone() -> None:
    costs = [ranking_loss(*ranked(*pair)).loss.item() for pair in ((2, 1), (2, 0), (1, 0))]
    assert costs == pytest.approx([0.3132616875, 0.1269280110, 0.3132616875], abs=1e-10)


def test_a_prompt_with_many_responses_weighs_no_more_than_one_with_few() -> None:
    scores, ranks, groups = vector(2, 1, 0, -1, 0, 1), whole(1, 2, 3, 4, 1, 2), whole(0, 0, 0, 0, 1, 1)
    found = ranking_loss(scores, ranks, groups)
    assert found.loss.item() == pytest.approx(0.7601498801, abs=1e-10)  # pooled pairs would give .3650700177
    assert found.pair_accuracy.item() == pytest.approx(0.5)
    assert found.n_groups == 2


def test_weights_scale_the_terms_of_their_groups() -> None:
    scores, ranks, groups = vector(2, 1, 0, -1, 0, 1), whole(1, 2, 3, 4, 1, 2), whole(0, 0, 0, 0, 1, 1)
    found = ranking_loss(scores, ranks, groups, weights=vector(0.5, 1.5))
    assert found.loss.item() == pytest.approx((0.5 * 0.2070380727 + 1.5 * 1.3132616875) / 2, abs=1e-9)


def test_a_tie_gives_no_pair() -> None:
    found = ranking_loss(vector(1, 0.5, 0.5, 0), whole(1, 2, 2, 3), whole(0, 0, 0, 0))
    assert found.loss.item() == pytest.approx(0.4419139248, abs=1e-10)  # five pairs, not six


def test_equal_scores_count_half_and_cost_the_logarithm_of_two() -> None:
    scores, ranks, groups = ranked(0.4, 0.4)
    found = ranking_loss(scores, ranks, groups)
    found.loss.backward()
    assert found.loss.item() == pytest.approx(NATURAL_LOG_OF_2, abs=1e-10)
    assert scores.grad is not None
    assert scores.grad.tolist() == [-0.5, 0.5]
    assert found.pair_accuracy.item() == 0.5


def test_the_same_text_on_both_sides_moves_no_weight() -> None:
    weight = vector(0.3, -0.2).requires_grad_()
    features = torch.stack([vector(1, 2), vector(1, 2)])
    ranking_loss(features @ weight, whole(1, 2), whole(0, 0)).loss.backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [0.0, 0.0]


def test_a_constant_added_to_every_score_changes_nothing() -> None:
    results = []
    for shift in (0.0, 7.5):
        scores, ranks, groups = ranked(0.3, 1.1, -0.4)
        found = ranking_loss(scores + shift, ranks, groups)
        found.loss.backward()
        assert scores.grad is not None
        results.append([found.loss.item(), found.pair_accuracy.item(), *scores.grad.tolist()])
    assert results[0] == pytest.approx(results[1], abs=1e-12)


def test_a_ranking_that_is_all_ties_gives_no_term_and_no_nan() -> None:
    scores = vector(2, 1, 0, 5, 5).requires_grad_()
    found = ranking_loss(scores, whole(1, 2, 3, 1, 1), whole(0, 0, 0, 1, 1))
    found.loss.backward()
    assert found.loss.item() == pytest.approx(0.2511504620, abs=1e-10)
    assert found.n_groups == 1
    assert scores.grad is not None
    assert scores.grad[3:].tolist() == [0.0, 0.0]


def test_a_batch_of_ties_alone_is_refused() -> None:
    with pytest.raises(ValueError, match="all ranks are tied"):
        ranking_loss(vector(1, 2), whole(1, 1), whole(0, 0))


@pytest.mark.parametrize(("margin", "loss", "slope"), [(-5, 5.0067153, -0.99331), (-10, 10.0000454, -0.99995)])
def test_a_pair_that_is_far_wrong_still_pulls(margin: float, loss: float, slope: float) -> None:
    scores, ranks, groups = ranked(margin, 0)
    found = ranking_loss(scores, ranks, groups)
    found.loss.backward()
    assert scores.grad is not None
    assert found.loss.item() == pytest.approx(loss, abs=1e-7)
    assert scores.grad[0].item() == pytest.approx(slope, abs=1e-5)  # without the logarithm: -.0066481, -4.54e-5


@pytest.mark.float32
def test_a_margin_that_underflows_a_sigmoid_keeps_its_loss() -> None:
    scores = torch.tensor([-120.0, 0.0])
    assert ranking_loss(scores, whole(1, 2), whole(0, 0)).loss.item() == 120.0
    assert torch.isinf(torch.sigmoid(scores[0]).log())


@pytest.mark.float32
def test_scores_in_half_precision_are_compared_in_float32() -> None:
    found = ranking_loss(torch.tensor([2.0, 1.0, 0.0], dtype=torch.bfloat16), whole(1, 2, 3), whole(0, 0, 0))
    assert found.loss.dtype == torch.float32
    # Of numbers up to 2 a handful of float32 operations, each off by at most 2^-24 of its result.
    assert found.loss.item() == pytest.approx(0.2511504620, abs=8 * 2**-23)


def test_centring_weighs_the_squared_mean_score_of_each_ranking() -> None:
    scores, ranks, groups = vector(3, 1, 1, -1), whole(1, 2, 1, 2), whole(0, 0, 1, 1)
    plain = ranking_loss(scores, ranks, groups).loss
    centred = ranking_loss(scores, ranks, groups, centring=0.01).loss
    # Means 2 and 0. The squared sum of a pair, as TRL has it, is four times as much.
    assert (centred - plain).item() == pytest.approx(0.01 * (4 + 0) / 2)


def test_of_pairs_a_centring_of_four_times_trls_is_trls() -> None:
    """The pairs (2, 0) and (1, -1): TRL's term at 0.01 is 0.01 * mean((2 + 0)^2, (1 - 1)^2) = 0.02."""
    scores, ranks, groups = vector(2, 0, 1, -1), whole(1, 2, 1, 2), whole(0, 0, 1, 1)
    plain = ranking_loss(scores, ranks, groups).loss
    assert (ranking_loss(scores, ranks, groups, centring=0.04).loss - plain).item() == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("advantage", "ratio", "loss", "slope"),
    [(1, 1.5, -1.2, 0), (1, 0.5, -0.5, -1), (-1, 1.5, 1.5, 1), (-1, 0.5, 0.8, 0), (2, 1.1, -2.2, -2)],
)
def test_the_policy_is_clipped_where_it_would_gain_only(
    advantage: float, ratio: float, loss: float, slope: float
) -> None:
    old = vector(-1.3)[None]
    new = (old + math.log(ratio)).requires_grad_()
    found, stats = policy_loss(new, old, vector(advantage)[None], vector(1.0)[None], clip_range=0.2)
    found.backward()
    assert not any(each.requires_grad for each in stats)
    assert new.grad is not None
    assert found.item() == pytest.approx(loss)
    assert new.grad.item() / ratio == pytest.approx(slope)  # d ratio / d log-probability = ratio
    assert stats.clip_fraction.item() == (slope == 0)
    assert stats.ratio.item() == pytest.approx(ratio)
    assert stats.max_ratio_deviation.item() == pytest.approx(abs(ratio - 1))


def test_approximate_kl_between_the_old_and_the_new_policy() -> None:
    old, new = vector(-1, -2, -3)[None], vector(-1.1, -1.9, -3)[None]
    _, stats = policy_loss(new, old, vector(1, 1, 1)[None], vector(1 / 3, 1 / 3, 1 / 3)[None], clip_range=0.2)
    # mean(old - new) is 0 and half the squared difference .0033333: both miss what the third estimator sees.
    assert stats.approx_kl.item() == pytest.approx(0.0033361, abs=1e-7)


@pytest.mark.parametrize(("log_ratio", "expected"), [(0.3, 0.0498588076), (-0.3, 0.0408182207)])
def test_approximate_kl_is_that_of_the_policy_that_sampled(log_ratio: float, expected: float) -> None:
    _, stats = policy_loss(vector(log_ratio - 1)[None], vector(-1)[None], vector(1)[None], vector(1)[None], 0.2)
    assert stats.approx_kl.item() == pytest.approx(expected, abs=1e-9)


def test_figures_of_the_policy_leave_out_padding() -> None:
    weights = vector(0.5, 0.5, 0)[None]
    old, new = vector(-1, -1, -9)[None], vector(-1, -1 + math.log(1.5), 40)[None]
    _, stats = policy_loss(new, old, vector(1, 1, 1)[None], weights, clip_range=0.2)
    assert stats.clip_fraction.item() == 0.5
    assert stats.ratio.item() == pytest.approx(1.25)
    assert stats.max_ratio_deviation.item() == pytest.approx(0.5)


def test_the_first_minibatch_has_ratio_one_and_a_loss_of_zero() -> None:
    advantages = vector(1.5, -0.5, -1.0)[None]  # mean 0, as after whitening
    logprobs = vector(-1.0, -0.3, -2.2)[None]
    weights = vector(1 / 3, 1 / 3, 1 / 3)[None]
    loss, stats = policy_loss(logprobs, logprobs.clone(), advantages, weights, clip_range=0.2)
    assert loss.item() == pytest.approx(0, abs=1e-12)
    assert (stats.clip_fraction.item(), stats.approx_kl.item(), stats.max_ratio_deviation.item()) == (0, 0, 0)


@pytest.mark.parametrize(
    ("value", "loss", "slope"), [(5, 48.02, 0), (-5, 112.5, -15), (0.1, 98.01 / 2, -9.9), (10.3, 48.02, 0)]
)
def test_the_value_is_clipped_around_its_old_one(value: float, loss: float, slope: float) -> None:
    values = vector(value)[None].requires_grad_()
    found, clipped = value_loss(values, vector(0)[None], vector(10)[None], vector(1)[None], clip_range=0.2)
    found.backward()
    assert values.grad is not None
    assert found.item() == pytest.approx(loss)
    assert values.grad.item() == pytest.approx(slope)
    assert clipped.item() == (slope == 0)


def test_without_a_clip_the_value_loss_is_half_the_squared_error() -> None:
    values = vector(5, -5)[None].requires_grad_()
    found, clipped = value_loss(values, vector(0, 0)[None], vector(10, 10)[None], vector(0.5, 0.5)[None], None)
    found.backward()
    assert values.grad is not None
    assert found.item() == pytest.approx(0.5 * (25 + 225) / 2)
    assert values.grad.tolist() == [[-2.5, -7.5]]
    assert clipped.item() == 0


def test_log_probabilities_and_entropy_at_a_temperature() -> None:
    logits, tokens = vector(2, 1, 0).expand(3, 3), whole(0, 1, 2)
    cold = selected_logprobs(logits, tokens, 1.0)
    assert cold.tolist() == pytest.approx([-0.407606, -1.407606, -2.407606], abs=1e-6)
    assert entropy(logits[:1], 1.0).item() == pytest.approx(0.832396, abs=1e-6)
    warm = selected_logprobs(logits, tokens, 0.7)
    assert warm.tolist() == pytest.approx([-0.260118, -1.688690, -3.117261], abs=1e-6)
    by_hand = -sum(p * math.log(p) for p in (math.exp(each) for each in warm.tolist()))
    assert entropy(logits[:1], 0.7).item() == pytest.approx(by_hand, abs=1e-9)


@pytest.mark.float32
def test_log_probabilities_of_half_precision_logits_are_computed_in_float32() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0]], dtype=torch.bfloat16)
    found = selected_logprobs(logits, whole(1), 1.0)
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(-1.4076059644, abs=8 * 2**-23)  # bf16 would be off by 0.004


def sure(n: int, pairs: dict[tuple[int, int], float]) -> Tensor:
    matrix = torch.zeros(n, n, dtype=torch.float64)
    for (first, second), probability in pairs.items():
        matrix[first, second], matrix[second, first] = probability, 1 - probability
    return matrix


def test_soft_pairs_cost_their_cross_entropy() -> None:
    """Scores 2, 0, 1. Pair (0, 1) is sure to 0.75; (1, 2) is even, has no better side, and is in no accuracy."""
    scores, alone = vector(2, 0, 1).requires_grad_(), whole(0, 0, 0)
    found = ranking_loss(scores, whole(1, 1, 1), alone, preferences=sure(3, {(0, 1): 0.75, (1, 2): 0.5}))
    first = 0.75 * math.log1p(math.exp(-2)) + 0.25 * math.log1p(math.exp(2))  # 0.626928
    second = 0.5 * math.log1p(math.exp(-1)) + 0.5 * math.log1p(math.exp(1))  # 0.813262
    assert (first, second) == pytest.approx((0.626928011, 0.8132616875))
    assert found.loss.item() == pytest.approx((first + second) / 2, abs=1e-9)
    assert found.pair_accuracy.item() == 1
    found.loss.backward()
    assert scores.grad is not None
    # sigmoid(margin) - target, by pair: sigmoid(2) - 0.75 = 0.1307970780, sigmoid(-1) - 0.5 = -0.2310585786
    assert scores.grad.tolist() == pytest.approx([0.065398539, -0.065398539 - 0.1155292893, 0.1155292893], abs=1e-9)


def test_sure_pairs_cost_what_ranks_cost_bit_for_bit() -> None:
    torch.manual_seed(0)
    scores = torch.randn(9, dtype=torch.float32, requires_grad=True)
    ranks, groups, weights = (
        whole(1, 2, 2, 4, 3, 1, 2, 2, 1),
        whole(0, 0, 0, 0, 1, 1, 1, 2, 2),
        torch.tensor([1, 0.5, 2]),
    )
    hard = ((groups[:, None] == groups[None, :]) & (ranks[:, None] < ranks[None, :])).float()
    found = [ranking_loss(scores, ranks, groups, weights, 0.01, preferences=each) for each in (None, hard)]
    assert found[0].loss.item() == found[1].loss.item()
    assert found[0].pair_accuracy.item() == found[1].pair_accuracy.item()
    assert found[0].n_groups == found[1].n_groups == 3
    gradients = [torch.autograd.grad(each.loss, scores)[0] for each in found]
    assert torch.equal(gradients[0], gradients[1])


def test_a_group_whose_pairs_are_all_even_gives_no_term() -> None:
    scores, groups = vector(3, 1, 5, 0), whole(0, 0, 1, 1)
    matrix = sure(4, {(0, 1): 0.9, (2, 3): 0.5})
    found = ranking_loss(scores, whole(1, 2, 1, 1), groups, preferences=matrix)
    alone = ranking_loss(scores[:2], whole(1, 2), whole(0, 0), preferences=sure(2, {(0, 1): 0.9}))
    assert (found.loss.item(), found.n_groups) == (alone.loss.item(), 1)
    with pytest.raises(ValueError, match="no pair to learn from"):
        ranking_loss(scores, whole(1, 1, 1, 1), groups, preferences=sure(4, {(2, 3): 0.5}))


def test_the_penalised_surrogate_by_hand() -> None:
    old, new = torch.tensor([[-1.0, -2.0, 9.0]]), torch.tensor([[-0.9, -2.3, -9.0]], requires_grad=True)
    advantages, weights = torch.tensor([[1.0, -2.0, 7.0]]), torch.tensor([[0.5, 0.5, 0.0]])
    loss, stats = penalised_policy_loss(new, old, advantages, weights, kl_coef=3.0)
    ratios = [math.exp(0.1), math.exp(-0.3)]
    kl = [ratios[0] - 1 - 0.1, ratios[1] - 1 + 0.3]
    assert loss.item() == pytest.approx(-0.5 * (ratios[0] - 3 * kl[0]) - 0.5 * (-2 * ratios[1] - 3 * kl[1]), abs=1e-6)
    assert stats.approx_kl.item() == pytest.approx(sum(kl) / 2, abs=1e-6)
    assert (stats.clip_fraction.item(), stats.ratio.item()) == (0, pytest.approx(sum(ratios) / 2))
    loss.backward()
    assert new.grad is not None
    wanted = [-0.5 * (ratio * a - 3 * (ratio - 1)) for ratio, a in zip(ratios, (1.0, -2.0), strict=True)]
    assert new.grad[0].tolist() == pytest.approx([*wanted, 0.0], abs=1e-6)


def test_the_penalty_has_the_gradient_of_the_exact_kl_of_old_and_new() -> None:
    """Over a whole vocabulary, weighted by the policy that sampled."""
    generator = torch.Generator().manual_seed(0)
    old = torch.randn(6, generator=generator, dtype=torch.float64).log_softmax(0)
    logits = torch.randn(6, generator=generator, dtype=torch.float64, requires_grad=True)
    new = logits.log_softmax(0)
    loss, _ = penalised_policy_loss(new[None], old[None], torch.zeros(1, 6), old.exp()[None], kl_coef=1.0)
    (estimated,) = torch.autograd.grad(loss, logits, retain_graph=True)
    (exact,) = torch.autograd.grad((old.exp() * (old - new)).sum(), logits)
    assert torch.allclose(estimated, exact, atol=1e-12, rtol=0)


def test_at_ratio_one_both_surrogates_have_the_policy_gradient() -> None:
    """In float64, through a whole softmax: -sum of weights * A * grad log policy."""
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(3, 4, 7, generator=generator, dtype=torch.float64, requires_grad=True)
    chosen = torch.randint(7, (3, 4), generator=generator)
    advantages = torch.randn(3, 4, generator=generator, dtype=torch.float64)
    weights = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]], dtype=torch.float64) / 7
    new = logits.log_softmax(-1).gather(-1, chosen[..., None]).squeeze(-1)
    (wanted,) = torch.autograd.grad(-(weights * advantages * new).sum(), logits, retain_graph=True)
    for loss, _ in (
        policy_loss(new, new.detach(), advantages, weights, 0.2),
        penalised_policy_loss(new, new.detach(), advantages, weights, 5.0),
    ):
        (found,) = torch.autograd.grad(loss, logits, retain_graph=True)
        assert torch.allclose(found, wanted, atol=1e-12, rtol=0)
