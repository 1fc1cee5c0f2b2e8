"""Means, variances and whitening over what a mask lets count."""

from __future__ import annotations

import torch
from torch import Tensor


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over the True places of `mask` (same shape, bool); 0 where there are none. Gradients flow."""
    return torch.where(mask, values, 0).sum() / mask.sum().clamp(min=1)


def masked_variance(values: Tensor, mask: Tensor) -> Tensor:
    """Biased variance over the True places of `mask`; 0 where there are none."""
    return masked_mean((values - masked_mean(values, mask)).square(), mask)


def whiten(values: Tensor, mask: Tensor, eps: float = 1e-8, *, keeps_mean: bool = False) -> Tensor:
    """Shift and scale to mean 0 and variance 1 (biased) over the True places of `mask`; 0 elsewhere.

    One True place gives 0, none gives zeros: never NaN. `keeps_mean`: only the spread becomes 1. Source: Ziegler et al.
    2019, whose rewards keep their mean and whose advantages do not.
    """
    mean = masked_mean(values, mask)
    scaled = (values - mean) * torch.rsqrt(masked_variance(values, mask) + eps)
    return torch.where(mask, scaled + mean if keeps_mean else scaled, 0)


def token_weights(mask: Tensor, over: str) -> Tensor:
    """Weights (B, T) that sum to 1: a sum becomes the mean over tokens, or over responses of their token means.

    `mask`: (B, T) bool. `over`: "token" or "response". Made once for a whole minibatch and cut along with it, so that
    the loss does not depend on how the minibatch is cut. Rows without a True place get no weight. Raises ValueError for
    another word.
    """
    counted = mask.to(torch.float32)
    if over == "token":
        return counted / counted.sum().clamp(min=1)
    if over != "response":
        raise ValueError(f"over = {over!r}: token or response is needed")
    lengths = counted.sum(dim=1, keepdim=True)
    n_rows = (lengths > 0).sum().clamp(min=1)
    return counted / lengths.clamp(min=1) / n_rows
