"""Accuracy against the number of rankings, and how many more one further point would take.

The curve is that of the instant reward model, which can be fitted again for every share. Its shape is taken to be
a - b / sqrt(n): what is still missing halves with four times the labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from training.figures import SEED, Array, Judged, pair_columns
from training.instant import Example, fit_head, subset_by_prompt

SHARES = (0.1, 0.2, 0.35, 0.5, 0.7, 1.0)
REPEATS, RESAMPLES, POINT = 5, 500, 0.01
FEWEST = 8  # rankings to learn from


def learning_curve(train: Sequence[Example], held_out: Sequence[Example]) -> dict[str, Any] | None:
    """The curve on held-out rankings, its extrapolation and its intervals; None with too few rankings to draw one.

    Intervals are percentiles over held-out prompts drawn with replacement.
    """
    shares = [share for share in SHARES if share * len(train) >= FEWEST]
    if len(shares) < 3 or not held_out:
        return None
    sizes, rows = [], []
    for share in shares:
        size, right = _at(train, held_out, share)
        sizes.append(size)
        rows.append(right)
    table, prompts = np.array(rows), sorted({each.prompt for each in held_out})
    owners = np.array([prompts.index(each.prompt) for each in held_out])
    n = np.array(sizes)
    drawn = np.random.default_rng(SEED).multinomial(len(prompts), np.full(len(prompts), 1 / len(prompts)), RESAMPLES)
    weights = drawn[:, owners].astype(float)
    weights = weights[weights.sum(1) > 0]
    curves = weights @ table.T / weights.sum(1, keepdims=True)
    low, high = np.percentile(curves, [2.5, 97.5], axis=0)
    return {
        "of": "the instant reward model",
        "points": [
            {"share": share, "rankings": size, "accuracy": float(row.mean()), "low": float(least), "high": float(most)}
            for share, size, row, least, most in zip(shares, sizes, table, low, high, strict=True)
        ],
        **extrapolation(n, table.mean(1), curves),
    }


def _at(train: Sequence[Example], held_out: Sequence[Example], share: float) -> tuple[float, Array]:
    """How many rankings a share has, and the accuracy on each held-out ranking, over some draws of it."""
    rng, n, right = np.random.default_rng(SEED), 0, np.zeros(len(held_out))
    repeats = 1 if share == 1 else REPEATS
    for _ in range(repeats):
        chosen = subset_by_prompt(train, share, rng)
        head = fit_head(chosen)
        n += len(chosen)
        right += np.array([_accuracy(each, head.scores(each.features)) for each in held_out])
    return n / repeats, right / repeats


def _accuracy(example: Example, scores: Array) -> float:
    lengths = (0,) * len(example.ranks)
    judged = Judged(
        "", example.prompt, example.ranks, tuple(scores.tolist()), lengths, probabilities=example.probabilities
    )
    return float(pair_columns([judged]).right.mean())


def extrapolation(n: Array, accuracy: Array, curves: Array) -> dict[str, Any]:
    """The line through (1 / sqrt(n), accuracy), what it says of twice the rankings, and how many more one point takes.

    curves: (B, points), the same accuracies on resampled prompts. `more_for_one_point` is None where the curve flattens
    before it; its interval is None at a side where it does so in more than 2.5 % of the resamples.
    """
    now = float(n[-1])
    a, b = fit_line(n, accuracy)
    lines = [fit_line(n, curve) for curve in curves]
    doubled = [at(one, other, 2 * now) for one, other in lines]
    needed = np.array([more_for(POINT, other, now) for _, other in lines])
    low, high = (float(each) for each in np.percentile(doubled, [2.5, 97.5]))
    fewest, most = (float(each) for each in np.quantile(needed, [0.025, 0.975], method="nearest"))
    more = more_for(POINT, b, now)
    return {
        "limit": a,
        "at_twice": {"rankings": 2 * now, "accuracy": at(a, b, 2 * now), "low": low, "high": high},
        "more_for_one_point": {"rankings": _finite(more), "low": _finite(fewest), "high": _finite(most)},
    }


def fit_line(n: Array, accuracy: Array) -> tuple[float, float]:
    """(a, b) of accuracy = a - b / sqrt(n) by least squares."""
    x = 1 / np.sqrt(n)
    slope = float(((x - x.mean()) * (accuracy - accuracy.mean())).sum() / ((x - x.mean()) ** 2).sum())
    return float(accuracy.mean() - slope * x.mean()), -slope


def at(a: float, b: float, n: float) -> float:
    return a - b / float(np.sqrt(n))


def more_for(points: float, b: float, now: float) -> float:
    """How many rankings more until accuracy has grown by `points`; infinite where it never does."""
    left = 1 / float(np.sqrt(now)) - points / b if b > 0 else 0.0
    return 1 / left**2 - now if left > 0 else float("inf")


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
