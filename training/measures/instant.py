"""The instant reward model: a Bradley-Terry head on features of a frozen model, fitted in well under a second.

No torch here: the web process fits it on features that a run has computed (`data.files.features`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from data.intervals import Array

FOLDS = 5


@dataclass(frozen=True)
class Head:
    """score = (features - mean) / scale @ weights."""

    mean: Array
    scale: Array
    weights: Array

    def scores(self, features: Array) -> Array:
        result: Array = (features - self.mean) / self.scale @ self.weights
        return result


@dataclass(frozen=True)
class Example:
    """One ranking on features: `features` (K, d), one row for each response; `ranks` (K), 1 is best.

    `probabilities`: of several merged rankings, as in `training.measures.figures.Judged`.
    """

    prompt: str
    features: Array
    ranks: tuple[int, ...]
    probabilities: tuple[float, ...] = ()


def fit_head(examples: Sequence[Example], start: Head | None = None) -> Head:
    """The most likely head: pairwise loss of Bradley and Terry, one weight for each ranking, and a normal prior.

    The prior gives each of the d weights the variance 1/d, so that scores of standardised features vary by about 1
    before anything is known. `start`: where to begin, such as the head before the newest ranking.
    Raises ValueError without a pair.
    """
    everything = np.concatenate([each.features for each in examples]).astype(float)
    mean, scale = everything.mean(0), everything.std(0)
    scale[scale < 1e-6] = 1.0
    standard = (everything - mean) / scale
    better, worse, weights = pairs_of(examples)
    if not len(weights):
        raise ValueError("no ranking has a pair to learn from")
    n, d = standard.shape

    def loss(theta: Array) -> tuple[float, Array]:
        scores = standard @ theta
        margins = scores[better] - scores[worse]
        pull = weights * expit(-margins)
        pulls = np.bincount(better, pull, n) - np.bincount(worse, pull, n)
        value = weights @ np.logaddexp(0, -margins) + d / 2 * theta @ theta
        return float(value), d * theta - pulls @ standard

    begin = np.zeros(d) if start is None or start.weights.shape != (d,) else start.weights
    found = minimize(loss, begin, jac=True, method="L-BFGS-B", options={"maxiter": 200, "gtol": 1e-5})
    return Head(mean, scale, found.x)


def pairs_of(examples: Sequence[Example]) -> tuple[NDArray[np.int64], NDArray[np.int64], Array]:
    """The places of the better and of the worse response of each pair, and the pairs' weights; all (P,).

    Of merged rankings the pairs with a majority, as if everybody had said so.
    """
    betters, worses, weights, start = [], [], [], 0
    for example in examples:
        sure = np.reshape(example.probabilities, (len(example.ranks),) * 2) if example.probabilities else None
        better, worse = np.nonzero(np.less.outer(example.ranks, example.ranks) if sure is None else sure > sure.T)
        betters.append(better + start)
        worses.append(worse + start)
        weights.append(np.full(len(better), 1 / max(len(better), 1)))
        start += len(example.ranks)
    return np.concatenate(betters), np.concatenate(worses), np.concatenate(weights)


def bootstrap_heads(examples: Sequence[Example], head: Head, n: int, seed: int = 0) -> list[Head]:
    """Heads fitted on as many prompts, drawn with replacement and whole: where they differ, the rankings don't settle.

    `head`: of all the examples, where each fit begins.
    """
    of_prompt: dict[str, list[Example]] = {}
    for each in examples:
        of_prompt.setdefault(each.prompt, []).append(each)
    prompts, rng = sorted(of_prompt), np.random.default_rng(seed)
    draws = rng.integers(0, len(prompts), (n, len(prompts)))
    return [fit_head([each for place in drawn for each in of_prompt[prompts[place]]], head) for drawn in draws]


def out_of_fold_scores(examples: Sequence[Example], seed: int = 0) -> list[Array] | None:
    """Scores of each ranking's responses by a head that has not seen its prompt; None with fewer than two prompts."""
    prompts = sorted({each.prompt for each in examples})
    if len(prompts) < 2:
        return None
    order = np.random.default_rng(seed).permutation(len(prompts))
    fold = {prompts[place]: number % min(FOLDS, len(prompts)) for number, place in enumerate(order)}
    scores: list[Array] = [np.empty(0)] * len(examples)
    for number in range(min(FOLDS, len(prompts))):
        head = fit_head([each for each in examples if fold[each.prompt] != number])
        for place, each in enumerate(examples):
            if fold[each.prompt] == number:
                scores[place] = head.scores(each.features)
    return scores


def subset_by_prompt(examples: Sequence[Example], share: float, rng: np.random.Generator) -> list[Example]:
    """The rankings of a random share of the prompts, at least two of them."""
    prompts = sorted({each.prompt for each in examples})
    n = min(len(prompts), max(2, round(share * len(prompts))))
    chosen = {prompts[place] for place in rng.permutation(len(prompts))[:n]}
    return [each for each in examples if each.prompt in chosen]
