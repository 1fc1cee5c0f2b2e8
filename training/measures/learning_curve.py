"""Accuracy against the number of rankings, and how many more one further point would take.

The curve is that of the instant reward model, which can be fitted again for every share. Its shape is taken to be
a - b / sqrt(n): what is still missing halves with four times the labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from data.intervals import SEED, Array
from training.measures.figures import rightness
from training.measures.instant import Example, Head, fit_head, pairs_of, subset_by_prompt

SHARES = (0.1, 0.2, 0.35, 0.5, 0.7, 1.0)
REPEATS, RESAMPLES, POINT = 10, 500, 0.01
FEWEST = 8  # rankings to learn from


@dataclass(frozen=True)
class Drawn:
    """What heads fitted on draws of a share of the training prompts reach.

    `rankings`: how many a draw has, on average. `fraction`: of the prompts that it has. `right`: (draws, held-out
    rankings), accuracies; of all prompts there is one draw.
    """

    rankings: float
    fraction: float
    right: Array


def learning_curve(train: Sequence[Example], held_out: Sequence[Example]) -> dict[str, Any] | None:
    """The curve on held-out rankings, its extrapolation and its intervals; None with too few rankings to draw one.

    Intervals are percentiles over held-out prompts drawn with replacement, to each of which an error is added of the
    size that other training prompts would make (`training_errors`).
    """
    wanted = [share for share in SHARES if share * len(train) >= FEWEST]
    if len(wanted) < 3 or not held_out:
        return None
    rng = np.random.default_rng(SEED)
    shares = [_at(train, held_out, share, rng) for share in wanted]
    table, prompts = np.array([each.right.mean(0) for each in shares]), sorted({each.prompt for each in held_out})
    owners = np.array([prompts.index(each.prompt) for each in held_out])
    n = np.array([each.rankings for each in shares])
    drawn = rng.multinomial(len(prompts), np.full(len(prompts), 1 / len(prompts)), RESAMPLES)
    weights = drawn[:, owners].astype(float)
    weights = weights[weights.sum(1) > 0]
    curves = weights @ table.T / weights.sum(1, keepdims=True)
    curves = (curves + training_errors(shares, len(curves), rng)).clip(0, 1)
    low, high = np.percentile(curves, [2.5, 97.5], axis=0)
    return {
        "of": "the instant reward model",
        "prompts": len(prompts),
        "points": [
            {"share": share, "rankings": each.rankings, "accuracy": float(row.mean()), "low": float(least),
             "high": float(most)}
            for share, each, row, least, most in zip(wanted, shares, table, low, high, strict=True)
        ],
        **extrapolation(n, table.mean(1), curves),
    }  # fmt: skip


def training_errors(shares: Sequence[Drawn], n: int, rng: np.random.Generator) -> Array:
    """(n, shares): what other training prompts might have added to each share's accuracy.

    R draws of a fraction f of the prompts, without replacement, vary by s^2 among each other: a training set of that
    size varies by v = s^2 / (1 - f). Of that, v f comes from the prompts that there are, which all shares have in
    common, and v (1 - f) / R from which of them were drawn. For f = 1 v is that of the largest share below, as in the
    delete-d jackknife (Shao and Wu 1989). s^2 is of few draws, so errors are Student's t with R - 1 degrees of freedom.
    """
    variance, common, own = 0.0, [], []
    for share in shares:
        repeats = len(share.right)
        if repeats > 1 and share.fraction < 1:
            variance = _between_draws(share.right) / (1 - share.fraction)
        common.append(np.sqrt(variance * share.fraction))
        own.append(np.sqrt(variance * (1 - share.fraction) / repeats))
    together, apart = rng.standard_t(REPEATS - 1, (n, 1)), rng.standard_t(REPEATS - 1, (n, len(shares)))
    errors: Array = together * np.array(common) + apart * np.array(own)
    return errors


def _between_draws(right: Array) -> float:
    """The variance of a draw's accuracy on all prompts that might be held out; `right`: (draws, held-out rankings).

    On the ones that are, draws also differ because each is lucky with others of them: that part, known by what is left
    of the table without the means of its rows and columns, is in the resamples of held-out prompts already.
    """
    n_draws, n = right.shape
    left = right - right.mean(0) - right.mean(1, keepdims=True) + right.mean()
    luck = float(np.square(left).sum()) / max((n_draws - 1) * (n - 1), 1) / n
    return float(max(np.var(right.mean(1), ddof=1) - luck, 0.0))


def _at(train: Sequence[Example], held_out: Sequence[Example], share: float, rng: np.random.Generator) -> Drawn:
    draws = [subset_by_prompt(train, share, rng) for _ in range(1 if share == 1 else REPEATS)]
    n_prompts = len({each.prompt for each in train})
    return Drawn(
        rankings=float(np.mean([len(each) for each in draws])),
        fraction=float(np.mean([len({one.prompt for one in each}) / n_prompts for each in draws])),
        right=np.array([_accuracies(fit_head(each), held_out) for each in draws]),
    )


def _accuracies(head: Head, held_out: Sequence[Example]) -> Array:
    """Of each ranking the share of pairs in the right order, equal scores half."""
    scores = head.scores(np.concatenate([each.features for each in held_out]))
    better, worse, weights = pairs_of(held_out)
    owners = np.repeat(np.arange(len(held_out)), [len(each.ranks) for each in held_out])[better]
    return np.bincount(owners, weights * rightness(scores[better] - scores[worse]), len(held_out)).astype(float)


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
