"""Estimates of the KL, their gradients on a whole vocabulary, and the controller."""

from __future__ import annotations

import math

import pytest
import torch

from training.maths.kl import adapted_kl_coef, adapted_update_kl_coef, kl_estimate, kl_loss

pytestmark = pytest.mark.float64


@pytest.mark.parametrize(
    ("difference", "k1", "k2", "k3"), [(0.3, 0.3, 0.045, 0.0408182207), (-0.3, -0.3, 0.045, 0.0498588076)]
)
def test_estimators_at_one_token(difference: float, k1: float, k2: float, k3: float) -> None:
    policy, reference = torch.tensor([-1.0 + difference], dtype=torch.float64), torch.tensor([-1.0])
    found = [kl_estimate(policy, reference.double(), name).item() for name in ("k1", "k2", "k3")]
    assert found == pytest.approx([k1, k2, k3], abs=1e-10)


def test_equal_policies_have_a_kl_of_exactly_zero() -> None:
    logprobs = torch.tensor([-0.1, -3.7, -60.0])
    for name in ("k1", "k2", "k3"):
        assert (kl_estimate(logprobs, logprobs.clone(), name) == 0).all()


def test_k1_and_k3_are_unbiased_over_a_whole_vocabulary() -> None:
    policy = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)
    reference = torch.tensor([0.2, 0.2, 0.2, 0.4], dtype=torch.float64)
    exact = sum(p * math.log(p / q) for p, q in zip(policy.tolist(), reference.tolist(), strict=True))
    for name in ("k1", "k3"):
        assert (policy * kl_estimate(policy.log(), reference.log(), name)).sum().item() == pytest.approx(exact)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_the_loss_has_the_estimators_value_and_the_gradient_of_the_exact_kl(estimator: str) -> None:
    logits = torch.tensor([0.3, -1.2, 2.0, 0.0, 0.7], dtype=torch.float64, requires_grad=True)
    log_reference = torch.log_softmax(torch.tensor([1.0, 0.5, -0.4, 0.2, 0.0], dtype=torch.float64), 0)
    log_policy = torch.log_softmax(logits, 0)
    exact = (log_policy.exp() * (log_policy - log_reference)).sum()
    (wanted,) = torch.autograd.grad(exact, logits, retain_graph=True)
    probability = log_policy.detach().exp()
    # Each token of the vocabulary as often as the policy samples it: the expectation, without any noise.
    found = kl_loss(log_policy, log_reference, estimator)
    (gradient,) = torch.autograd.grad((probability * found).sum(), logits)
    assert gradient.tolist() == pytest.approx(wanted.tolist(), abs=1e-12)
    assert found.tolist() == pytest.approx(kl_estimate(log_policy, log_reference, estimator).tolist(), abs=1e-12)


@pytest.mark.parametrize(
    ("kl", "expected"), [(12, 0.151536), (6.6, 0.150768), (3, 0.148464), (6, 0.15), (-4, 0.148464)]
)
def test_the_controller_moves_by_at_most_a_fifth_of_its_horizon(kl: float, expected: float) -> None:
    assert adapted_kl_coef(0.15, kl, target=6, n_responses=512, horizon=10_000) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("kl", "wanted"), [(0.006, 0.5), (0.0067, 1.0), (0.0149, 1.0), (0.0151, 2.0)])
def test_the_penalty_on_the_update_is_halved_or_doubled(kl: float, wanted: float) -> None:
    assert adapted_update_kl_coef(1.0, kl, target=0.01) == wanted


def test_an_unknown_estimator_is_refused() -> None:
    one = torch.zeros(2)
    with pytest.raises(ValueError, match="estimator = 'k4': k1, k2 or k3 is needed"):
        kl_estimate(one, one, "k4")
    with pytest.raises(ValueError, match="estimator = 'K3'"):
        kl_loss(one, one, "K3")
