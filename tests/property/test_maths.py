"""Laws of the maths on tensors. What is expected comes from a plain loop, a symmetry or a limit, in float64."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import Tensor

from training.maths.advantages import explained_variance, gae, token_rewards
from training.maths.kl import adapted_kl_coef, kl_estimate, kl_loss
from training.maths.losses import policy_loss, ranking_loss, selected_logprobs, value_loss
from training.maths.masked import masked_mean, masked_variance, token_weights, whiten

pytestmark = pytest.mark.float64

numbers = st.floats(-3, 3, allow_nan=False).map(lambda value: round(value, 3))
rates = st.floats(0, 1, allow_nan=False)
ANYTHING = [1e30, -1e30, float("nan"), float("inf"), -7.0]


@st.composite
def ragged(draw: st.DrawFn, n_tensors: int = 3) -> tuple[Tensor, list[Tensor]]:
    """A mask of rows that start at place 0 and hold at least one token, and tensors of that shape, 0 at padding."""
    lengths = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    width = max(lengths)
    mask = torch.arange(width)[None] < torch.tensor(lengths)[:, None]
    tensors = []
    for _ in range(n_tensors):
        values = draw(st.lists(numbers, min_size=mask.numel(), max_size=mask.numel()))
        tensors.append(torch.where(mask, torch.tensor(values, dtype=torch.float64).reshape(mask.shape), 0))
    return mask, tensors


def spoilt(values: Tensor, mask: Tensor) -> Tensor:
    """The same with all sorts of things at padding."""
    filling = torch.tensor(ANYTHING, dtype=values.dtype).repeat(mask.numel())[: mask.numel()].reshape(mask.shape)
    return torch.where(mask, values, filling)


def widened(values: Tensor, by: int) -> Tensor:
    return torch.cat([values, torch.full((len(values), by), False if values.dtype == torch.bool else 5.0)], dim=1)


@given(ragged(2), rates, rates)
def test_advantages_are_the_sum_that_defines_them(drawn: tuple[Tensor, list[Tensor]], gamma: float, lam: float) -> None:
    mask, (rewards, values) = drawn
    advantages, returns = gae(rewards, values, mask, gamma, lam)
    for row, length in enumerate(mask.sum(1).tolist()):
        r, v = rewards[row].tolist(), [*values[row, :length].tolist(), 0.0]
        deltas = [r[t] + gamma * v[t + 1] - v[t] for t in range(length)]
        for t in range(length):
            wanted = sum((gamma * lam) ** (later - t) * deltas[later] for later in range(t, length))
            assert advantages[row, t].item() == pytest.approx(wanted, abs=1e-9)
            assert returns[row, t].item() == pytest.approx(wanted + v[t], abs=1e-9)


@given(ragged(2))
def test_advantages_at_both_ends_of_lambda(drawn: tuple[Tensor, list[Tensor]]) -> None:
    mask, (rewards, values) = drawn
    to_the_end = torch.where(mask, rewards.flip(1).cumsum(1).flip(1), 0)
    advantages, returns = gae(rewards, values, mask, gamma=1.0, lam=1.0)
    assert torch.allclose(returns, to_the_end)
    assert torch.allclose(advantages, to_the_end - values)
    one_step, _ = gae(rewards, values, mask, gamma=1.0, lam=0.0)
    following = torch.cat([values[:, 1:], torch.zeros(len(values), 1, dtype=values.dtype)], dim=1)
    assert torch.allclose(one_step, torch.where(mask, rewards + following - values, 0))


@given(ragged(3), st.integers(0, 3))
def test_whatever_stands_in_padding_changes_no_advantage(drawn: tuple[Tensor, list[Tensor]], by: int) -> None:
    mask, (rewards, values, kl) = drawn
    scores = rewards[:, 0]
    clean = gae(rewards, values, mask, 0.9, 0.8)
    wide_mask = widened(mask, by)
    dirty = gae(spoilt(widened(rewards, by), wide_mask), spoilt(widened(values, by), wide_mask), wide_mask, 0.9, 0.8)
    for one, other in zip(clean, dirty, strict=True):
        assert torch.equal(one, other[:, : mask.shape[1]])
        assert (other[~wide_mask] == 0).all()
    penalties = token_rewards(scores, kl, mask, 0.1)
    assert torch.equal(
        penalties, token_rewards(scores, spoilt(widened(kl, by), wide_mask), wide_mask, 0.1)[:, : mask.shape[1]]
    )
    assert torch.equal(
        explained_variance(values, rewards, mask), explained_variance(spoilt(values, mask), spoilt(rewards, mask), mask)
    )


@given(ragged(1))
def test_whitened_values_have_mean_0_and_variance_1(drawn: tuple[Tensor, list[Tensor]]) -> None:
    mask, (values,) = drawn
    found = whiten(values, mask)
    assert torch.equal(found, whiten(spoilt(values, mask), mask))
    assert (found[~mask] == 0).all()
    counted = values[mask]
    spread = counted.var(correction=0).item()
    assert masked_variance(spoilt(values, mask), mask).item() == pytest.approx(spread, abs=1e-12)
    assert masked_mean(found, mask).item() == pytest.approx(0, abs=1e-6)
    if spread > 1e-3:
        assert found[mask].square().mean().item() == pytest.approx(1, abs=1e-4)
        order = [place for _, place in sorted((value, place) for place, value in enumerate(counted.tolist()))]
        ranked = found[mask][order]
        assert bool((ranked[1:] >= ranked[:-1] - 1e-12).all())


@given(ragged(4), st.sampled_from(["token", "response"]), st.sampled_from([None, 0.2]))
def test_losses_ignore_padding_and_give_it_no_gradient(
    drawn: tuple[Tensor, list[Tensor]], over: str, value_clip: float | None
) -> None:
    mask, (new, old, target, other) = drawn
    weights = token_weights(mask, over).double()

    def both(spoil: bool) -> tuple[list[float], list[Tensor]]:
        parts = [spoilt(each, mask) if spoil else each for each in (new, old, target, other)]
        learnt = parts[0].clone().requires_grad_()
        policy, stats = policy_loss(learnt, parts[1], parts[2], weights, 0.2)
        (of_policy,) = torch.autograd.grad(policy, learnt)
        value, clipped = value_loss(learnt, parts[1], parts[3], weights, value_clip)
        (of_value,) = torch.autograd.grad(value, learnt)
        figures = [policy.item(), value.item(), clipped.item(), *(each.item() for each in stats)]
        return figures, [of_policy, of_value]

    clean, clean_gradients = both(spoil=False)
    dirty, dirty_gradients = both(spoil=True)
    assert clean == dirty
    for one, two in zip(clean_gradients, dirty_gradients, strict=True):
        assert torch.equal(one, two)
        assert (two[~mask] == 0).all()


@given(ragged(4), st.sampled_from(["token", "response"]), st.randoms(use_true_random=False))
def test_a_loss_depends_neither_on_how_its_rows_are_cut_nor_on_their_order(
    drawn: tuple[Tensor, list[Tensor]], over: str, rng: object
) -> None:
    mask, (new, old, target, other) = drawn
    weights = token_weights(mask, over).double()
    assert weights.sum().item() == pytest.approx(1)

    def total(lots: list[list[int]]) -> tuple[float, Tensor]:
        learnt = new.clone().requires_grad_()
        loss = sum(
            policy_loss(learnt[lot], old[lot], target[lot], weights[lot], 0.2)[0]
            + value_loss(learnt[lot], old[lot], other[lot], weights[lot], 0.2)[0]
            + (weights[lot] * kl_loss(learnt[lot], old[lot], "k3")).sum()
            for lot in lots
        )
        assert isinstance(loss, Tensor)
        return loss.item(), torch.autograd.grad(loss, learnt)[0]

    order = list(range(len(mask)))
    rng.shuffle(order)  # type: ignore[attr-defined]
    cut = rng.randint(0, len(order))  # type: ignore[attr-defined]
    whole, of_whole = total([list(range(len(mask)))])
    parts, of_parts = total([lot for lot in (order[:cut], order[cut:]) if lot])
    assert parts == pytest.approx(whole, abs=1e-9)
    assert torch.allclose(of_whole, of_parts, atol=1e-9)


@given(ragged(2), st.floats(0, 0.5))
def test_at_ratio_1_the_gradient_is_that_of_the_plain_policy_gradient(
    drawn: tuple[Tensor, list[Tensor]], clip: float
) -> None:
    mask, (logprobs, advantages) = drawn
    weights = token_weights(mask, "token").double()
    learnt = logprobs.clone().requires_grad_()
    (found,) = torch.autograd.grad(policy_loss(learnt, logprobs, advantages, weights, clip + 1e-6)[0], learnt)
    (plain,) = torch.autograd.grad(-(weights * advantages * learnt).sum(), learnt)
    assert torch.allclose(found, plain, atol=1e-9)


@given(ragged(3), st.floats(0.01, 0.5))
def test_the_clipped_loss_is_never_below_the_unclipped_one(drawn: tuple[Tensor, list[Tensor]], clip: float) -> None:
    mask, (new, old, advantages) = drawn
    weights = token_weights(mask, "token").double()
    unclipped = -(weights * (new - old).exp() * advantages).sum().item()
    loss, stats = policy_loss(new, old, advantages, weights, clip)
    assert loss.item() >= unclipped - 1e-9
    assert stats.approx_kl.item() >= 0
    assert 0 <= stats.clip_fraction.item() <= 1 + 1e-6


@st.composite
def rankings(draw: st.DrawFn) -> list[tuple[list[float], list[int]]]:
    """Scores and ranks of some groups, each with at least one pair."""
    groups = []
    for _ in range(draw(st.integers(1, 4))):
        k = draw(st.integers(2, 5))
        ranks = draw(st.lists(st.integers(1, 3), min_size=k, max_size=k).filter(lambda each: len(set(each)) > 1))
        groups.append((draw(st.lists(numbers, min_size=k, max_size=k)), ranks))
    return groups


def as_batch(groups: list[tuple[list[float], list[int]]]) -> tuple[Tensor, Tensor, Tensor]:
    scores = torch.tensor([score for scores, _ in groups for score in scores], dtype=torch.float64)
    ranks = torch.tensor([rank for _, ranks in groups for rank in ranks])
    return scores, ranks, torch.tensor([place for place, (_, ranks) in enumerate(groups) for _ in ranks])


@given(rankings())
def test_the_ranking_loss_is_what_a_double_loop_over_pairs_gives(groups: list[tuple[list[float], list[int]]]) -> None:
    losses, accuracies = [], []
    for scores, ranks in groups:
        pairs = [(a, b) for a in range(len(ranks)) for b in range(len(ranks)) if ranks[a] < ranks[b]]
        margins = [scores[a] - scores[b] for a, b in pairs]
        losses.append(sum(math.log1p(math.exp(-margin)) for margin in margins) / len(pairs))
        accuracies.append(sum((margin > 0) + 0.5 * (margin == 0) for margin in margins) / len(pairs))
    found = ranking_loss(*as_batch(groups))
    assert found.loss.item() == pytest.approx(sum(losses) / len(losses), abs=1e-9)
    assert found.pair_accuracy.item() == pytest.approx(sum(accuracies) / len(accuracies), abs=1e-9)


@given(rankings(), numbers, st.randoms(use_true_random=False))
def test_order_of_responses_and_a_shift_of_scores_do_not_matter(
    groups: list[tuple[list[float], list[int]]], shift: float, rng: object
) -> None:
    scores, ranks, owners = as_batch(groups)
    plain = ranking_loss(scores, ranks, owners)
    order = list(range(len(scores)))
    rng.shuffle(order)  # type: ignore[attr-defined]
    mixed = ranking_loss(scores[order] + shift, ranks[order], owners[order])
    assert mixed.loss.item() == pytest.approx(plain.loss.item(), abs=1e-9)
    reversed_ = ranking_loss(-scores, ranks.max() + 1 - ranks, owners)
    assert reversed_.loss.item() == pytest.approx(plain.loss.item(), abs=1e-9)


@given(rankings())
def test_one_forward_pass_per_response_learns_the_same_as_one_per_pair(
    groups: list[tuple[list[float], list[int]]],
) -> None:
    weight = torch.tensor([0.7, -0.4], dtype=torch.float64, requires_grad=True)

    def score(value: float) -> Tensor:  # a model of two weights that sees one feature
        return torch.tanh(weight[0] * value) + weight[1] * value * value

    grouped_scores = torch.stack([score(value) for values, _ in groups for value in values])
    _, ranks, owners = as_batch(groups)
    (grouped,) = torch.autograd.grad(ranking_loss(grouped_scores, ranks, owners).loss, weight)
    total = torch.zeros((), dtype=torch.float64)
    for values, each_ranks in groups:
        pairs = [(a, b) for a in range(len(values)) for b in range(len(values)) if each_ranks[a] < each_ranks[b]]
        for a, b in pairs:  # K(K - 1) forward passes
            margin = score(values[a]) - score(values[b])
            total = total + torch.log1p(torch.exp(-margin)) / len(pairs) / len(groups)
    (paired,) = torch.autograd.grad(total, weight)
    assert torch.allclose(grouped, paired, atol=1e-9)


@given(st.lists(numbers, min_size=2, max_size=6), st.lists(numbers, min_size=6, max_size=6))
def test_k3_is_never_negative_and_every_estimate_is_zero_at_home(policy: list[float], other: list[float]) -> None:
    one, two = torch.tensor(policy, dtype=torch.float64), torch.tensor(other[: len(policy)], dtype=torch.float64)
    assert bool((kl_estimate(one, two, "k3") >= 0).all())
    assert bool((kl_estimate(one, two, "k2") >= 0).all())
    assert all(bool((kl_estimate(one, one, name) == 0).all()) for name in ("k1", "k2", "k3"))


@given(st.lists(numbers, min_size=2, max_size=6), st.floats(0.1, 3))
def test_log_probabilities_at_a_temperature_are_those_of_the_divided_logits(
    values: list[float], temperature: float
) -> None:
    logits = torch.tensor([values], dtype=torch.float64)
    total = sum(math.exp(value / temperature) for value in values)
    for place, value in enumerate(values):
        found = selected_logprobs(logits, torch.tensor([place]), temperature).item()
        assert found == pytest.approx(value / temperature - math.log(total), abs=1e-9)


@given(st.floats(0.001, 1), st.floats(-50, 50), st.floats(0.1, 20), st.integers(1, 1000))
def test_the_controller_moves_towards_its_target_and_never_far(coef: float, kl: float, target: float, n: int) -> None:
    moved = adapted_kl_coef(coef, kl, target, n, 10_000)
    assert abs(moved / coef - 1) <= 0.2 * n / 10_000 + 1e-12
    assert (moved > coef) == (kl > target) or kl == pytest.approx(target)
