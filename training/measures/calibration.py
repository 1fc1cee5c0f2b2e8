"""Whether the probabilities that scores stand for are true: sigmoid(margin) against how often people agreed.

`targets`: how sure people are that the first response of each pair is better. 1 where one person said so; of several
people, the share that did.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import expit

from data.intervals import Array, Z, told

BINS = 10
TEMPERATURES = (0.01, 100.0)


def negative_log_likelihood(margins: Array, weights: Array, targets: Array, temperature: float = 1.0) -> float:
    """Weighted mean of the cross-entropy of sigmoid(margin / temperature) with the targets."""
    losses = targets * np.logaddexp(0, -margins / temperature) + (1 - targets) * np.logaddexp(0, margins / temperature)
    return float(np.average(losses, weights=weights))


def reliability(
    margins: Array, weights: Array, targets: Array, temperature: float = 1.0
) -> list[dict[str, float | int]]:
    """Bins of the probability that the model gives to the response that it prefers, from 0.5 to 1, and how often people
    preferred that one. Empty bins are left out."""
    confidence = expit(np.abs(margins) / temperature)
    places = np.minimum(((confidence - 0.5) * 2 * BINS).astype(int), BINS - 1)
    right, rows = np.where(margins > 0, targets, np.where(margins < 0, 1 - targets, 0.5)), []
    for number in range(BINS):
        chosen = places == number
        if weights[chosen].sum() > 0:
            rows.append(
                {
                    "from": 0.5 + number / (2 * BINS),
                    "to": 0.5 + (number + 1) / (2 * BINS),
                    "confidence": float(np.average(confidence[chosen], weights=weights[chosen])),
                    "accuracy": float(np.average(right[chosen], weights=weights[chosen])),
                    "share": float(weights[chosen].sum() / weights.sum()),
                    "n": int(chosen.sum()),
                }
            )
    return rows


def expected_calibration_error(bins: list[dict[str, float | int]]) -> float:
    """Mean over the bins, by their share, of the distance between confidence and accuracy (Naeini et al. 2015)."""
    return float(sum(each["share"] * abs(each["confidence"] - each["accuracy"]) for each in bins))


def fitted_temperature(margins: Array, weights: Array, targets: Array) -> float:
    """The number to divide scores by that makes the pairs most likely (Guo et al. 2017), from 0.01 to 100."""
    low, high = np.log(TEMPERATURES)
    fitted = minimize_scalar(
        lambda log: negative_log_likelihood(margins, weights, targets, float(np.exp(log))),
        bounds=(low, high),
        method="bounded",
        options={"xatol": 1e-4},
    )
    return float(np.exp(fitted.x))


def temperature_interval(
    margins: Array, weights: Array, targets: Array, prompts: NDArray[np.int64], temperature: float
) -> tuple[float | None, float | None]:
    """The 95 % interval of a fitted temperature: normal in its logarithm, with the sandwich variance over prompts
    (White 1980, clustered). None for fewer than two prompts, and at the ends of what is tried, where it is no minimum.
    """
    u = margins / temperature
    pull = expit(u) - targets
    slopes = np.bincount(np.unique(prompts, return_inverse=True)[1], -weights * u * pull)
    curvature = float((weights * (expit(u) * expit(-u) * u * u + pull * u)).sum())
    at_an_end = min(abs(math.log(temperature / each)) for each in TEMPERATURES) < 0.01
    if len(slopes) < 2 or at_an_end or curvature <= 0:
        return None, None
    n = len(slopes)
    error = math.sqrt(n / (n - 1) * float((slopes**2).sum())) / curvature
    return temperature * math.exp(-Z * error), temperature * math.exp(Z * error)


def calibration(margins: Array, weights: Array, targets: Array, prompts: NDArray[np.int64]) -> dict[str, Any]:
    """All of it, as given and at the fitted temperature, which is fitted on the same pairs.

    prompts: whose pairs they are. `told`: whether the temperature is above 1, so that the model is too sure.
    """
    temperature = fitted_temperature(margins, weights, targets)
    low, high = temperature_interval(margins, weights, targets, prompts, temperature)
    n_prompts = len(set(prompts.tolist()))
    bins = reliability(margins, weights, targets)
    cooled = reliability(margins, weights, targets, temperature)
    return {
        "bins": bins,
        "error": expected_calibration_error(bins),
        "loss": negative_log_likelihood(margins, weights, targets),
        "temperature": temperature,
        "temperature_low": low,
        "temperature_high": high,
        "told": told(low, high, n_prompts, mark=1.0).value,
        "prompts": n_prompts,
        "n": len(margins),
        "error_at_temperature": expected_calibration_error(cooled),
        "loss_at_temperature": negative_log_likelihood(margins, weights, targets, temperature),
    }
