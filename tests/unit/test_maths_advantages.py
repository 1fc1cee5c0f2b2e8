"""Rewards per token, generalised advantages and explained variance, against numbers worked out by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from training.maths.advantages import centred_explained_variance, explained_variance, gae, token_rewards

pytestmark = pytest.mark.float64


def row(*values: float) -> Tensor:
    return torch.tensor([values], dtype=torch.float64)


def full(n: int) -> Tensor:
    return torch.ones(1, n, dtype=torch.bool)


@pytest.mark.parametrize(
    ("lam", "advantages", "returns"),
    [
        (0.95, [0.320625, 0.3375, 0.25], [0.820625, 0.9375, 0.95]),
        (1.0, [0.35, 0.35, 0.25], [0.85, 0.95, 0.95]),
        (0.0, [0.0, 0.1, 0.25], [0.5, 0.7, 0.95]),
    ],
)
def test_advantages_without_discount(lam: float, advantages: list[float], returns: list[float]) -> None:
    found = gae(row(-0.1, 0.0, 0.95), row(0.5, 0.6, 0.7), full(3), gamma=1.0, lam=lam)
    assert found[0][0].tolist() == pytest.approx(advantages, abs=1e-12)
    assert found[1][0].tolist() == pytest.approx(returns, abs=1e-12)


def test_advantages_with_discount() -> None:
    advantages, returns = gae(row(1, 1, 1), row(0.5, 0.5, 0.5), full(3), gamma=0.9, lam=0.8)
    assert advantages[0].tolist() == pytest.approx([1.8932, 1.31, 0.5], abs=1e-12)
    assert returns[0].tolist() == pytest.approx([2.3932, 1.81, 1.0], abs=1e-12)


@pytest.mark.parametrize("n_pads", [1, 2, 7])
def test_values_at_padding_never_leak_into_advantages(n_pads: int) -> None:
    mask = torch.tensor([[True, True] + [False] * n_pads])
    rewards, values = row(0, 1, *[0] * n_pads), row(0, 0, *[100] * n_pads)
    advantages, returns = gae(rewards, values, mask, gamma=1.0, lam=0.95)
    assert advantages[0].tolist() == pytest.approx([0.95, 1.0] + [0.0] * n_pads)  # leaking would give 5.7, 6.0
    assert returns[0].tolist() == pytest.approx([0.95, 1.0] + [0.0] * n_pads)


@pytest.mark.parametrize(("kl_coef", "expected"), [(0.1, [-0.02, 0.03, 0.70]), (0.02, [-0.004, 0.006, 0.7])])
@pytest.mark.parametrize("places", [(0, 3), (2, 3), (0, 5)], ids=["no padding", "padding before", "padding after"])
def test_the_penalty_is_at_every_token_and_the_score_at_the_last(
    kl_coef: float, expected: list[float], places: tuple[int, int]
) -> None:
    start, width = places[0], places[0] + places[1]
    log_policy, log_reference = [-1.0, -2.0, -0.5], [-1.2, -1.7, -0.5]
    mask = torch.zeros(1, width, dtype=torch.bool)
    mask[0, start : start + 3] = True
    kl = torch.full((1, width), 77.0, dtype=torch.float64)
    kl[0, start : start + 3] = row(*log_policy)[0] - row(*log_reference)[0]
    rewards = token_rewards(torch.tensor([0.7], dtype=torch.float64), kl, mask, kl_coef)
    assert rewards[mask].tolist() == pytest.approx(expected, abs=1e-12)
    assert (rewards[~mask] == 0).all()
    assert rewards.sum().item() == pytest.approx(0.7 - kl_coef * -0.1)


def test_rows_of_unlike_length_each_get_their_score_at_their_own_end() -> None:
    mask = torch.tensor([[True, True, True], [True, False, False]])
    rewards = token_rewards(torch.tensor([5.0, -3.0]), torch.zeros(2, 3), mask, 0.5)
    assert rewards.tolist() == [[0.0, 0.0, 5.0], [-3.0, 0.0, 0.0]]


def test_a_response_without_a_token_is_refused() -> None:
    with pytest.raises(ValueError, match="without a token"):
        token_rewards(torch.tensor([1.0]), torch.zeros(1, 2), torch.zeros(1, 2, dtype=torch.bool), 0.1)


def test_explained_variance_sees_a_constant_error() -> None:
    returns, values = row(1, 2, 3, 4), row(1.1, 1.9, 3.2, 3.8)
    assert explained_variance(values, returns, full(4)).item() == pytest.approx(0.98)
    # The form with the variance of the error would say .98 here, too.
    assert explained_variance(values + 1, returns, full(4)).item() == pytest.approx(0.18)


def test_explained_variance_of_returns_that_do_not_vary_is_zero() -> None:
    assert explained_variance(row(1, 2), row(3, 3), full(2)).item() == 0.0
    assert explained_variance(row(1, 2), row(3, 4), torch.zeros(1, 2, dtype=torch.bool)).item() == 0.0
    masked = torch.tensor([[True, True, False]])
    assert explained_variance(row(1, 2, 9), row(1, 2, -50), masked).item() == pytest.approx(1.0)


def test_the_centred_form_is_blind_to_a_constant_error() -> None:
    returns, mask = torch.tensor([1.0, 2.0, 3.0, 4.0, 99.0]), torch.tensor([True, True, True, True, False])
    values = torch.tensor([1.1, 1.9, 3.2, 3.8, -99.0])
    for shift in (0.0, 1.0, -5.0):
        assert centred_explained_variance(values + shift, returns, mask).item() == pytest.approx(0.98, abs=1e-5)
    assert explained_variance(values + 1, returns, mask).item() == pytest.approx(0.18, abs=1e-5)
    assert centred_explained_variance(values, returns, torch.zeros(5, dtype=torch.bool)).item() == 0
