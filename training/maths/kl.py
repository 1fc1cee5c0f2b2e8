"""Estimates of KL(policy || reference) from sampled tokens, and the controller of its weight.

Source: Schulman 2020, "Approximating KL divergence" (k1, k2, k3); Ziegler et al. 2019, section 2.2 (the controller).
"""

from __future__ import annotations

import torch
from torch import Tensor

MAX_ADAPTATION = 0.2


def kl_estimate(logprobs: Tensor, ref_logprobs: Tensor, estimator: str) -> Tensor:
    """Estimate KL(policy || reference) at each sampled token, in nats; same shape as the arguments.

    k1 = d, k2 = d^2 / 2, k3 = exp(-d) - 1 + d, where d = log policy - log reference. k1 is unbiased and may be
    negative; k3 is unbiased and never negative; k2 has the right gradient. Raises ValueError for another estimator.
    """
    difference = logprobs - ref_logprobs
    if estimator == "k1":
        return difference
    if estimator == "k2":
        return difference.square() / 2
    if estimator == "k3":
        return torch.expm1(-difference) + difference
    raise ValueError(f"estimator = {estimator!r}: k1, k2 or k3 is needed")


def kl_loss(logprobs: Tensor, ref_logprobs: Tensor, estimator: str) -> Tensor:
    """The KL as a term of the loss: the value of the estimator, the gradient of the exact KL.

    Differentiating k1 gives 0 in the mean, differentiating k3 gives the gradient of another divergence. The gradient
    of KL(policy || reference) is E[d * grad log policy], which is the gradient of k2; so k2 carries the gradient
    whatever is shown. Exact for tokens sampled from the policy itself.
    """
    carrier = kl_estimate(logprobs, ref_logprobs, "k2")
    shown = kl_estimate(logprobs.detach(), ref_logprobs, estimator)
    return carrier + (shown - carrier.detach())


def adapted_kl_coef(kl_coef: float, kl: float, target: float, n_responses: int, horizon: int) -> float:
    """Move the KL weight towards a target: kl_coef * (1 + e * n / horizon), e = clip(kl / target - 1, -0.2, 0.2).

    kl, target: nats per response. horizon: responses over which the weight adapts.
    """
    error = max(-MAX_ADAPTATION, min(MAX_ADAPTATION, kl / target - 1))
    return kl_coef * (1 + error * n_responses / horizon)


def adapted_update_kl_coef(kl_coef: float, kl: float, target: float) -> float:
    """The weight of KL(old, new) for the next iteration: halved below target / 1.5, doubled above target * 1.5.

    Source: Schulman et al. 2017, section 4.
    """
    if kl < target / 1.5:
        return kl_coef / 2
    return kl_coef * 2 if kl > target * 1.5 else kl_coef
