"""One judgement from several annotators of a task: how sure each pair is, one ranking, how reliable each person is.

Disagreement stays visible: an even split is a tie, majorities that go in a circle are a tie and named as unresolved,
and nothing is ever settled by the order of ids or of display.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from labeling.judgement.pairs import compared

N_CLASSES = 3  # of a comparison: better, equal, worse
_MAX_ROUNDS, _TOLERANCE = 200, 1e-6
_PRIOR_RIGHT, _PRIOR_WRONG = 1.4, 0.6  # two comparisons' worth: somebody with little to go by is near 0.7


class Judgement(NamedTuple):
    """One annotator's ranking of the task; `unplaced` are places in the unordered rest."""

    ranks: tuple[int, ...]
    unplaced: tuple[int, ...] = ()


class Votes(NamedTuple):
    """How many annotators ranked i above j, and how many compared the two, at [i * K + j]."""

    preferred: tuple[int, ...]
    compared: tuple[int, ...]


class Merged(NamedTuple):
    """`ranks` in competition form. `unresolved`: pairs with a majority whose ranks are equal, since the majorities of
    the responses around them contradict each other."""

    ranks: tuple[int, ...]
    unresolved: list[tuple[int, int]]


def count_votes(judgements: Sequence[Judgement]) -> Votes:
    """Count the comparisons of a task's annotators."""
    k = len(judgements[0].ranks)
    preferred, n_compared = [0] * k * k, [0] * k * k
    for ranks, unplaced in judgements:
        for first, second in combinations(range(k), 2):
            value = compared(ranks, unplaced, first, second)
            if value is not None:
                n_compared[first * k + second] += 1  # both directions of a K x K table
                n_compared[second * k + first] += 1
                preferred[first * k + second] += value < 0
                preferred[second * k + first] += value > 0
    return Votes(tuple(preferred), tuple(n_compared))


def pair_probabilities(judgements: Sequence[Judgement], weights: Sequence[float]) -> tuple[float, ...]:
    """How sure it is that response i is better than j, at [i * K + j]: the weighted share that says so, a tie half.

    Both directions are 0 where nobody compared the two, and where nobody saw a difference: there is no pair then.
    Weights that are all 0 count as equal ones.
    """
    k = len(judgements[0].ranks)
    weights = weights if any(weights) else [1.0] * len(judgements)
    probabilities = [0.0] * k * k
    for first, second in combinations(range(k), 2):
        share = [0.0, 0.0, 0.0]  # of those who say better, equal, worse
        for (ranks, unplaced), weight in zip(judgements, weights, strict=True):
            value = compared(ranks, unplaced, first, second)
            if value is not None:
                share[value + 1] += weight  # -1, 0, 1 to a place
        if share[0] or share[2]:
            probabilities[first * k + second] = (share[0] + share[1] / 2) / sum(share)
            probabilities[second * k + first] = (share[2] + share[1] / 2) / sum(share)
    return tuple(probabilities)


def merged_ranking(probabilities: Sequence[float], k: int) -> Merged:
    """Merge pairs into one ranking: what a chain of majorities puts above another response ranks above it.

    Responses that can be reached from each other by pairs that are not lost (even ones, or majorities that go in a
    circle) share a rank.
    """
    there = np.array(probabilities, dtype=float).reshape(k, k)
    reaches = (there >= there.T) | np.eye(k, dtype=bool)  # (K, K)
    for middle in range(k):  # Warshall: chains by way of the responses up to `middle`
        reaches |= np.outer(reaches[:, middle], reaches[middle])
    is_above = reaches & ~reaches.T  # (K, K), [i, j]: i above j
    ranks = tuple(1 + int(is_above[:, place].sum()) for place in range(k))
    pairs = combinations(range(k), 2)
    return Merged(ranks, [(i, j) for i, j in pairs if ranks[i] == ranks[j] and there[i, j] != there[j, i]])


def annotator_accuracies(units: Iterable[Mapping[str, int]]) -> dict[str, float]:
    """How often each annotator's comparisons are right, where the truth is what their agreement makes likely.

    `units`: for each pair of responses of a task, annotator -> -1, 0 or 1. Expectation maximisation over one accuracy
    per annotator: wrong answers fall on the two other values alike, and better and worse are equally frequent, so that
    it does not matter which response of a pair comes first. Whoever shares no pair with others is left out.
    Source: Dawid and Skene 1979, with one number in place of each person's table.
    """
    shared = [unit for unit in units if len(unit) >= 2]
    names = sorted({name for unit in shared for name in unit})
    if not names:
        return {}
    number = {name: place for place, name in enumerate(names)}
    flat = [(place, number[name], value + 1) for place, unit in enumerate(shared) for name, value in unit.items()]
    unit_of, person_of, vote = np.array(flat).T  # (V,) each, of V comparisons; a vote is its column in `truth`
    n_votes = np.bincount(person_of)  # (A,), of A annotators
    truth = np.zeros((len(shared), N_CLASSES))  # (U, 3), how likely each value is for each of U pairs
    # A pair has several votes, and `truth[unit_of, vote] += 1` would count a place named twice once.
    np.add.at(truth, (unit_of, vote), 1.0)
    truth /= truth.sum(axis=1, keepdims=True)
    accuracy = np.zeros(len(names))
    for _ in range(_MAX_ROUNDS):
        right = np.bincount(person_of, weights=truth[unit_of, vote])  # (A,)
        new = (right + _PRIOR_RIGHT) / (n_votes + _PRIOR_RIGHT + _PRIOR_WRONG)
        if np.abs(new - accuracy).max() < _TOLERANCE:
            break
        accuracy = new
        frequency = truth.sum(axis=0) + 1  # (3,)
        frequency[[0, 2]] = frequency[[0, 2]].mean()  # better and worse alike, whichever comes first
        likelihood = np.tile(np.log(frequency / frequency.sum()), (len(shared), 1))  # (U, 3), as logarithms
        gain = np.log(accuracy) - np.log((1 - accuracy) / (N_CLASSES - 1))  # (A,), of the value voted for over another
        np.add.at(likelihood, (unit_of, vote), gain[person_of])
        likelihood -= likelihood.max(axis=1, keepdims=True)  # so that the exponential of the largest is 1
        truth = np.exp(likelihood)
        truth /= truth.sum(axis=1, keepdims=True)
    return dict(zip(names, accuracy.tolist(), strict=True))


def comparisons(judgements: Mapping[str, Judgement]) -> list[dict[str, int]]:
    """The pairs of a task that two or more annotators compared: for each, annotator -> -1, 0 or 1."""
    k = max((len(each.ranks) for each in judgements.values()), default=0)
    units = []
    for first, second in combinations(range(k), 2):
        values = {name: compared(*each, first, second) for name, each in judgements.items()}
        unit = {name: value for name, value in values.items() if value is not None}
        if len(unit) >= 2:
            units.append(unit)
    return units


def share_of_agreement(units: Iterable[Mapping[str, int]]) -> tuple[float | None, int]:
    """How often two annotators said the same of a pair of responses, and of how many such comparisons that is."""
    same = [one == other for unit in units for one, other in combinations(unit.values(), 2)]
    return (sum(same) / len(same) if same else None), len(same)


def accuracy_against(truth: Judgement, other: Judgement) -> float | None:
    """The share of the truth's pairs that the other has in the same order, a tie half: as a model's is counted.

    None where the other compared none of them.
    """
    right = []
    for first, second in combinations(range(len(truth.ranks)), 2):
        wanted, found = compared(*truth, first, second), compared(*other, first, second)
        if wanted and found is not None:
            right.append(1.0 if found == wanted else 0.5 if found == 0 else 0.0)
    return sum(right) / len(right) if right else None


def vote_weight(accuracy: float) -> float:
    """What an annotator's comparison counts for: 1 for somebody who is always right, 0 at chance and below."""
    chance = 1 / N_CLASSES
    return max(0.0, (accuracy - chance) / (1 - chance))
