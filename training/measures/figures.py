"""How well scores order responses as people did: figures with intervals over prompts. Plain arrays, no torch.

A pair is two responses of a ranking of which people put one higher. Every ranking counts once, so a pair weighs one
over the number of its ranking's pairs. Equal scores are half right. What can't be computed is None, with its n.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kendalltau

from data.intervals import Array, Interval, ratio_interval

SHARE, DIFFERENCE = (0.0, 1.0), (-1.0, 1.0)  # what values can be; a difference's, of two shares


@dataclass(frozen=True)
class Judged:
    """A ranking with a score and a length for each response. Ranks as people gave them, 1 is best.

    Of several merged rankings (`data.files.snapshots.Group`): `probabilities[i * K + j]` says how sure they are that i
    is better than j, both ways 0 where there is no pair; `preferred[i * K + j]` of them rank i above j.
    """

    ranking_id: str
    prompt_id: str
    ranks: tuple[int, ...]
    scores: tuple[float, ...]
    lengths: tuple[int, ...]
    annotator: str = ""
    flags: tuple[tuple[str, ...], ...] = ()
    unplaced: tuple[int, ...] = ()
    probabilities: tuple[float, ...] = ()
    preferred: tuple[int, ...] = ()

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """(better, worse), as people saw it, or as most of them did."""
        k = len(self.ranks)
        if self.probabilities:
            return [(i, j) for i in range(k) for j in range(k) if self.sureness(i, j) > self.sureness(j, i)]
        return [(i, j) for i in range(k) for j in range(k) if self.ranks[i] < self.ranks[j]]

    @property
    def even_pairs(self) -> list[tuple[int, int]]:
        """Pairs of which as many people say the one as the other."""
        k = len(self.ranks) if self.probabilities else 0
        return [(i, j) for i in range(k) for j in range(i) if self.sureness(i, j) == self.sureness(j, i) > 0]

    def sureness(self, better: int, worse: int) -> float:
        """How sure people are of a pair: 1 where one person said it."""
        return self.probabilities[better * len(self.ranks) + worse] if self.probabilities else 1.0


@dataclass(frozen=True)
class Pairs:
    """The pairs of some rankings as columns. `margin`: score of the better less score of the worse."""

    prompt: NDArray[np.int64]
    margin: Array
    length_margin: Array
    weight: Array
    facts: list[dict[str, Any]]

    @property
    def right(self) -> Array:
        return rightness(self.margin)


def rightness(margin: Array) -> Array:
    """1 where the margin is above 0, one half where it is 0."""
    right: Array = np.where(margin > 0, 1.0, np.where(margin == 0, 0.5, 0.0))
    return right


def pair_columns(judged: Sequence[Judged]) -> Pairs:
    """All pairs of the rankings, each with what a table may be made by."""
    prompts = {each: number for number, each in enumerate(dict.fromkeys(ranking.prompt_id for ranking in judged))}
    rows: list[tuple[int, float, int, float]] = []
    facts: list[dict[str, Any]] = []
    for number, ranking in enumerate(judged):
        levels = sorted(set(ranking.ranks))
        for better, worse in ranking.pairs:
            margin = ranking.scores[better] - ranking.scores[worse]
            longer = ranking.lengths[better] - ranking.lengths[worse]
            rows.append((prompts[ranking.prompt_id], margin, longer, 1 / len(ranking.pairs)))
            named = {name for i in (better, worse) for name in (ranking.flags[i] if ranking.flags else ())}
            distance = levels.index(ranking.ranks[worse]) - levels.index(ranking.ranks[better])
            annotator = "" if ranking.probabilities else ranking.annotator  # what most say is nobody's own
            facts.append({"ranking": number, "better": better, "worse": worse, "distance": distance,
                          "k": len(ranking.ranks), "annotator": annotator, "flags": named})  # fmt: skip
    table = np.array(rows, dtype=float).reshape(-1, 4)
    return Pairs(table[:, 0].astype(np.int64), table[:, 1], table[:, 2], table[:, 3], facts)


def target_columns(judged: Sequence[Judged]) -> tuple[Array, Array, Array]:
    """Margins, weights and targets of all that people compared: how sure they are that the first of two is better.

    Beside the pairs these are the even ones of merged rankings, with one half as the target. Every ranking weighs 1.
    """
    rows: list[tuple[float, float, float]] = []
    for ranking in judged:
        both = ranking.pairs + ranking.even_pairs
        rows += [(ranking.scores[i] - ranking.scores[j], 1 / len(both), ranking.sureness(i, j)) for i, j in both]
    table = np.array(rows, dtype=float).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2]


def target_prompts(judged: Sequence[Judged]) -> NDArray[np.int64]:
    """Whose prompt each row of `target_columns` is of."""
    numbers = {each: number for number, each in enumerate(dict.fromkeys(ranking.prompt_id for ranking in judged))}
    counts = [len(ranking.pairs) + len(ranking.even_pairs) for ranking in judged]
    return np.repeat([numbers[ranking.prompt_id] for ranking in judged], counts).astype(np.int64)


def share(
    values: Array, weights: Array, prompts: NDArray[np.int64], within: Interval = SHARE
) -> dict[str, float | int | None]:
    """A weighted mean with its 95 % interval: percentiles over prompts drawn with replacement. `within`: what a value
    can be."""
    total = float(weights.sum())
    if not total:
        return {"value": None, "low": None, "high": None, "n": 0, "prompts": 0}
    known, places = np.unique(prompts, return_inverse=True)
    parts: Array = np.bincount(places, values * weights).astype(float)
    low, high = ratio_interval(parts, np.bincount(places, weights).astype(float), within)
    value = float((values * weights).sum() / total)
    return {"value": value, "low": low, "high": high, "n": len(values), "prompts": len(known)}


def pair_accuracy(pairs: Pairs) -> dict[str, Any]:
    return share(pairs.right, pairs.weight, pairs.prompt)


def by(pairs: Pairs, key: Callable[[dict[str, Any]], Iterable[Hashable]]) -> list[dict[str, Any]]:
    """Pair accuracy by something that the pairs have, such as the distance of ranks; a pair may have several of it."""
    of_value: dict[Any, list[int]] = {}
    for place, facts in enumerate(pairs.facts):
        for value in key(facts):
            of_value.setdefault(value, []).append(place)
    return [
        {"of": value, **share(pairs.right[places], pairs.weight[places], pairs.prompt[places])}
        for value, places in sorted(of_value.items())
    ]


def per_ranking(
    judged: Sequence[Judged], figure: Callable[[Judged], float | None], within: Interval = SHARE
) -> dict[str, Any]:
    """The mean over rankings of a figure, where it is defined, with its interval over prompts."""
    found = [(figure(ranking), ranking.prompt_id) for ranking in judged]
    kept = [(value, prompt) for value, prompt in found if value is not None]
    _, prompts = np.unique([prompt for _, prompt in kept], return_inverse=True)
    values = np.array([value for value, _ in kept], dtype=float)
    return share(values, np.ones_like(values), prompts, within)


def exact_order(ranking: Judged) -> float:
    """1 if every pair is in the right order, of merged rankings every pair with a majority."""
    return float(all(ranking.scores[i] > ranking.scores[j] for i, j in ranking.pairs))


def tau(ranking: Judged) -> float | None:
    """Kendall's tau-b between ranks and scores; None where all of either are equal, or a rest is in no order."""
    if len(set(ranking.scores)) == 1 or len(set(ranking.ranks)) == 1 or ranking.unplaced:
        return None
    return float(kendalltau([-rank for rank in ranking.ranks], ranking.scores, variant="b").statistic)


def win_share(ranking: Judged, index: int) -> float:
    """Share of the other responses that people put below this one; equal ranks count half.

    Of merged rankings the mean of how sure people are that it is better; one half where there is no pair.
    """
    if ranking.probabilities:
        both = [
            (ranking.sureness(index, i), ranking.sureness(i, index)) for i in range(len(ranking.ranks)) if i != index
        ]
        return sum(mine if mine + theirs else 0.5 for mine, theirs in both) / len(both)
    mine, others = ranking.ranks[index], [rank for i, rank in enumerate(ranking.ranks) if i != index]
    return sum((mine < rank) + 0.5 * (mine == rank) for rank in others) / len(others)


def best_of(values: Sequence[float], scores: Sequence[float], n: int) -> float:
    """What the best-scored of n of these is worth on average, over all ways to draw n of them; n at most their number.

    Of K by falling score, the j-th is the best of n with probability C(K - j, n - 1) / C(K, n), j from 1. Equal scores
    share what they are worth.
    """
    means = {score: float(np.mean([v for v, s in zip(values, scores, strict=True) if s == score])) for score in scores}
    order = sorted(scores, reverse=True)
    k = len(order)
    return sum(means[each] * math.comb(k - j, n - 1) for j, each in enumerate(order, start=1)) / math.comb(k, n)


def best_of_curve(judged: Sequence[Judged]) -> list[dict[str, Any]]:
    """Share of the other responses that the best-scored of n beats in people's eyes; 0.5 is a response at random.

    All n are of the rankings with as many responses as most have, so that points can be compared.
    """
    sizes = [len(ranking.ranks) for ranking in judged]
    usual = max(set(sizes), key=lambda size: (sizes.count(size), size))
    chosen = [ranking for ranking in judged if len(ranking.ranks) == usual]

    def at(n: int) -> dict[str, Any]:
        return per_ranking(
            chosen, lambda each: best_of([win_share(each, i) for i in range(usual)], list(each.scores), n)
        )

    return [{"n_samples": n, **at(n)} for n in range(1, usual + 1)]


def human_agreement(judged: Sequence[Judged], texts: Sequence[Sequence[Hashable]]) -> dict[str, Any]:
    """How often two people agree on a pair of the same prompt, where both saw a difference: the ceiling.

    texts: what tells the responses of each ranking apart, such as their ids. Merged rankings say themselves how many
    were for either side of a pair.
    """
    numbers: dict[str, int] = {}
    by_prompt: dict[int, list[dict[Any, int]]] = {}
    values: list[float] = []
    prompts: list[int] = []
    for ranking, names in zip(judged, texts, strict=True):
        number = numbers.setdefault(ranking.prompt_id, len(numbers))
        if ranking.probabilities:
            within = _agreement_within(ranking)
            values += within
            prompts += [number] * len(within)
        else:
            by_prompt.setdefault(number, []).append(dict(zip(names, ranking.ranks, strict=True)))
    for number, rankings in by_prompt.items():
        for place, one in enumerate(rankings):
            for other in rankings[place + 1 :]:
                shared = [each for each in one if each in other]
                for i, first in enumerate(shared):
                    for second in shared[i + 1 :]:
                        mine, theirs = one[first] - one[second], other[first] - other[second]
                        if mine and theirs:
                            values.append(float((mine < 0) == (theirs < 0)))
                            prompts.append(number)
    return share(np.array(values), np.ones(len(values)), np.array(prompts, dtype=np.int64))


def _agreement_within(ranking: Judged) -> list[float]:
    """Whether two people agree, for each two whose rankings were merged and each pair where both saw a difference."""
    k, found = len(ranking.ranks), list[float]()
    for i in range(k if ranking.preferred else 0):
        for j in range(i):
            one, other = ranking.preferred[i * k + j], ranking.preferred[j * k + i]
            found += [1.0] * (math.comb(one, 2) + math.comb(other, 2)) + [0.0] * (one * other)
    return found
