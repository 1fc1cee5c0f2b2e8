"""The report of a reward run: everything that is measured on held-out rankings, as one JSON file.

Every figure stands beside what a reader has to hold it against: the length of the response alone, the instant reward
model, and how often people agree with each other. docs/metrics.md, "The report of a reward run", defines each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data.intervals import LEAST_PROMPTS, Array, Told, told
from training.measures.calibration import calibration
from training.measures.figures import (
    DIFFERENCE,
    Judged,
    Pairs,
    best_of_curve,
    by,
    exact_order,
    human_agreement,
    pair_accuracy,
    pair_columns,
    per_ranking,
    rightness,
    share,
    target_columns,
    target_prompts,
    tau,
)

REPORT_FILE, SCHEMA = "report.json", 1
HISTOGRAM_BINS = 24


def figures(judged: Sequence[Judged], train: Sequence[Judged], names: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Figures of the model on held-out rankings.

    train: the rankings that it learnt from, for the direction of the length baseline; their scores are not used.
    names: what tells the responses of each held-out ranking apart, such as their ids.
    """
    pairs = pair_columns(judged)
    return {
        "rankings": len(judged),
        "pairs": len(pairs.weight),
        "pair_accuracy": pair_accuracy(pairs),
        "exact_order": per_ranking(judged, exact_order),
        "tau": per_ranking(judged, tau, DIFFERENCE),
        "by_distance": by(pairs, lambda facts: [facts["distance"]]),
        "by_k": by(pairs, lambda facts: [facts["k"]]),
        "by_annotator": by(pairs, lambda facts: [facts["annotator"]] if facts["annotator"] else []),
        "by_flag": by(pairs, lambda facts: facts["flags"]),
        "calibration": calibration(*target_columns(judged), target_prompts(judged)),
        "length": length_figures(judged, pairs, longer_wins(train)),
        "scores": score_distribution(judged),
        "best_of": best_of_curve(judged),
        "human_agreement": human_agreement(judged, names),
    }


def longer_wins(train: Sequence[Judged]) -> bool:
    """Whether longer responses won more pairs than shorter ones in the rankings that were learnt from."""
    pairs = pair_columns(train)
    return not len(pairs.weight) or float(np.average(rightness(pairs.length_margin), weights=pairs.weight)) >= 0.5


def length_figures(judged: Sequence[Judged], pairs: Pairs, is_longer_better: bool) -> dict[str, Any]:
    """The length-only baseline, and how far scores follow the length."""
    margin = pairs.length_margin if is_longer_better else -pairs.length_margin
    scores = np.concatenate([each.scores for each in judged])
    lengths = np.concatenate([each.lengths for each in judged]).astype(float)
    rankings = np.repeat(np.arange(len(judged)), [len(each.scores) for each in judged])
    difference = share(pairs.right - rightness(margin), pairs.weight, pairs.prompt, DIFFERENCE)
    return {
        "baseline": "longer wins" if is_longer_better else "shorter wins",
        "accuracy": share(rightness(margin), pairs.weight, pairs.prompt),
        "model_less_baseline": difference,
        "told": told_of(difference).value,
        "is_beaten": told_of(difference) is Told.MORE,
        "correlation": correlation(scores, lengths),
        "correlation_within_rankings": correlation(_centred(scores, rankings), _centred(lengths, rankings)),
    }


def correlation(one: Array, other: Array) -> float | None:
    """Pearson's; None where one of the two does not vary."""
    if len(one) < 2 or np.ptp(one) < 1e-12 or np.ptp(other) < 1e-12:
        return None
    return float(np.corrcoef(one, other)[0, 1])


def _centred(values: Array, groups: NDArray[np.int64]) -> Array:
    centred: Array = values - (np.bincount(groups, values) / np.bincount(groups))[groups]
    return centred


def score_distribution(judged: Sequence[Judged]) -> dict[str, Any]:
    """Histograms of the scores of all responses, of those ranked first, and of those ranked last."""
    parts: dict[str, list[float]] = {"all": [], "first": [], "last": []}
    for ranking in judged:
        parts["all"] += ranking.scores
        parts["first"] += [score for score, rank in zip(ranking.scores, ranking.ranks, strict=True) if rank == 1]
        last = max(ranking.ranks)
        parts["last"] += [score for score, rank in zip(ranking.scores, ranking.ranks, strict=True) if rank == last]
    edges = np.histogram_bin_edges(parts["all"], bins=HISTOGRAM_BINS)
    histograms: dict[str, Any] = {"edges": edges.tolist()}
    for name, values in parts.items():
        counts, _ = np.histogram(values, bins=edges)
        histograms[name] = {"mean": float(np.mean(values)), "std": float(np.std(values)), "counts": counts.tolist()}
    return histograms


def worst_pairs(judged: Sequence[Judged], n: int = 20) -> list[dict[str, Any]]:
    """The pairs that the model gets most wrong, one of each ranking: who judged, where, and by how much it is off.

    Of several people who said the same of the same responses the first is named.
    """
    pairs = pair_columns(judged)
    worst: dict[str, dict[str, Any]] = {}
    known: set[tuple[str, float]] = set()
    for index in np.argsort(pairs.margin, kind="stable"):
        facts = pairs.facts[index]
        ranking = judged[facts["ranking"]]
        if pairs.margin[index] >= 0 or len(worst) == n:
            break
        pair = (ranking.prompt_id, round(float(pairs.margin[index]), 3))  # equal margins: the same two responses
        if pair in known:
            continue
        known.add(pair)
        worst.setdefault(
            ranking.ranking_id,
            {
                "ranking_id": ranking.ranking_id,
                "prompt_id": ranking.prompt_id,
                "annotator": ranking.annotator,
                "margin": float(pairs.margin[index]),
                "better": facts["better"],
                "worse": facts["worse"],
                "flags": sorted(facts["flags"]),
            },
        )
    return list(worst.values())


def verdicts(report: dict[str, Any]) -> list[str]:
    """What a reader must not miss, in plain words: each with its n and its interval, or that it can't be told."""
    model, length = report["model"], report["model"]["length"]
    mine, theirs = model["pair_accuracy"]["value"], length["accuracy"]["value"]
    sentences = [against("length alone", f" ({length['baseline']})", mine, theirs, length["model_less_baseline"])]
    if (instant := report.get("instant")) is not None:
        accuracy = instant["pair_accuracy"]["value"]
        sentences.append(against("the instant reward model", "", mine, accuracy, report["model_less_instant"]))
    ceiling = model["human_agreement"]
    if ceiling["value"] is None:
        sentences.append("No held-out prompt was ranked by two people: how far people agree is not known.")
    else:
        reach = _reach(ceiling, "")
        sentences.append(
            f"Two people agree on {ceiling['value']:.3f}{reach} of these pairs: {ceiling['n']:,} comparisons on "
            f"{_prompts(ceiling['prompts'])}."
        )
    return sentences


def told_of(difference: dict[str, Any]) -> Told:
    """What a difference of shares with its interval allows to say."""
    return told(difference["low"], difference["high"], difference["prompts"])


def against(other: str, more: str, mine: float, theirs: float, difference: dict[str, Any]) -> str:
    """Whether the model is better than something else: `The model beats length alone (longer wins): 0.808 against
    0.650, a difference of +0.158 (+0.031 to +0.270) on 40 prompts.`"""
    verdict = told_of(difference)
    figures = f"{mine:.3f} against {theirs:.3f}"
    n = _prompts(difference["prompts"])
    if verdict is Told.TOO_FEW:
        return (
            f"Whether the model beats {other}{more} can't be told yet: {figures} on {n}; a verdict needs "
            f"{LEAST_PROMPTS} held-out prompts."
        )
    figures += f", a difference of {difference['value']:+.3f}{_reach(difference, '+')} on {n}"
    if verdict is Told.UNCLEAR:
        return f"It can't be told whether the model beats {other}{more}: {figures}, no more than chance allows."
    return f"The model {'beats' if verdict is Told.MORE else 'does worse than'} {other}{more}: {figures}."


def _reach(figure: dict[str, Any], sign: str) -> str:
    """` (-0.012 to +0.070)`; nothing where the prompts are too few for an interval that is worth the name."""
    if figure["low"] is None or figure["prompts"] < LEAST_PROMPTS:
        return ""
    return f" ({figure['low']:{sign}.3f} to {figure['high']:{sign}.3f})"


def _prompts(n: int) -> str:
    return f"{n:,} prompt{'' if n == 1 else 's'}"


def compared(model: Sequence[Judged], other: Sequence[Judged]) -> dict[str, Any]:
    """How much more accurate the model is than another on the same rankings, pair by pair."""
    one, two = pair_columns(model), pair_columns(other)
    return share(one.right - two.right, one.weight, one.prompt, DIFFERENCE)
