"""Means, variances, whitening and token weights, against numbers worked out by hand."""

from __future__ import annotations

import pytest
import torch

from training.maths.masked import masked_mean, masked_variance, token_weights, whiten

pytestmark = pytest.mark.float64

VALUES = torch.tensor([1.0, 2.0, 3.0, 4.0, 99.0], dtype=torch.float64)
MASK = torch.tensor([True, True, True, True, False])


def test_mean_and_biased_variance_leave_out_what_does_not_count() -> None:
    assert masked_mean(VALUES, MASK).item() == 2.5
    assert masked_variance(VALUES, MASK).item() == 1.25  # (2.25 + 0.25 + 0.25 + 2.25) / 4, not / 3


def test_whitened_numbers_are_the_biased_ones() -> None:
    expected = [-1.341641, -0.447214, 0.447214, 1.341641, 0.0]  # unbiased would give 1.161895, .387298
    assert whiten(VALUES, MASK).tolist() == pytest.approx(expected, abs=1e-6)


def test_whitened_rewards_keep_their_mean() -> None:
    values = torch.tensor([[1.2, 1.3, 1.4], [1.5, 1.6, 1.7], [1.8, 1.9, 2.0]], dtype=torch.float64)
    found = whiten(values, torch.ones_like(values, dtype=torch.bool), keeps_mean=True)
    assert found[0, 0].item() == pytest.approx(0.050807, abs=1e-6)  # unbiased would give .139407
    assert found.mean().item() == pytest.approx(1.6)
    assert whiten(VALUES, MASK, keeps_mean=True)[4] == 0


@pytest.mark.parametrize("mask", [[True, False, False], [False, False, False]])
def test_one_value_or_none_gives_zeros_and_no_nan(mask: list[bool]) -> None:
    values = torch.tensor([7.0, float("nan"), float("inf")])
    assert whiten(values, torch.tensor(mask)).tolist() == [0.0, 0.0, 0.0]
    assert masked_variance(values, torch.tensor(mask)).item() == 0.0
    assert masked_mean(values, torch.tensor([False] * 3)).item() == 0.0


def test_a_mean_over_tokens_weighs_every_token_alike() -> None:
    mask = torch.tensor([[True, False, False], [True, True, True]])
    losses = torch.tensor([[4.0, 50.0, 50.0], [0.0, 0.0, 0.0]])
    weights = token_weights(mask, "token")
    assert weights.tolist() == [[0.25, 0.0, 0.0], [0.25, 0.25, 0.25]]
    # One token of loss 4 in one micro-batch, three of loss 0 in the other: 1, where a mean of means gives 2.
    assert (weights[:1] * losses[:1]).sum() + (weights[1:] * losses[1:]).sum() == 1.0


def test_a_mean_over_responses_weighs_every_response_alike() -> None:
    mask = torch.tensor([[True, False], [True, True], [False, False]])
    assert token_weights(mask, "response").tolist() == [[0.5, 0.0], [0.25, 0.25], [0.0, 0.0]]
    assert token_weights(torch.zeros(2, 3, dtype=torch.bool), "response").sum() == 0
    assert token_weights(torch.zeros(2, 3, dtype=torch.bool), "token").sum() == 0


def test_gradients_of_a_mean_stay_inside_the_mask() -> None:
    values = VALUES.clone().requires_grad_()
    masked_mean(values, MASK).backward()
    assert values.grad is not None
    assert values.grad.tolist() == [0.25, 0.25, 0.25, 0.25, 0.0]


def test_an_unknown_mean_is_refused() -> None:
    with pytest.raises(ValueError, match="over = 'sequence': token or response is needed"):
        token_weights(torch.ones(2, 3, dtype=torch.bool), "sequence")
