"""What the labels so far can tell: the instant reward model on a project's current rankings, in the web process.

Features come from where runs have kept them; the head is fitted here, without torch.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data.files.features import Features, about_features, feature_folders, load_features, read_keys, text_key
from data.files.paths import Home
from data.labels.rankings import current_rankings
from data.labels.tasks import get_tasks
from data.records import Messages, RankingStatus
from data.store import Store
from training.measures.figures import DIFFERENCE, Judged, Pairs, pair_accuracy, pair_columns, rightness, share
from training.measures.instant import Example, fit_head, out_of_fold_scores

FEWEST, MOST = 10, 2_000  # rankings with features, before which nothing is said; the last ones, which are looked at
_TASKS_AT_ONCE = 500


@dataclass(frozen=True)
class InstantAccuracy:
    """The accuracy of the instant reward model on prompts that it has not seen, and of length alone.

    `n_rankings`: with a pair and with features. `n_without`: with a pair, but without features. `fit_s`: the time that
    one fit of the head took. Shares are None with too few rankings.
    """

    n_rankings: int
    n_without: int
    model: str = ""
    accuracy: dict[str, Any] | None = None
    length: dict[str, Any] | None = None
    gain: dict[str, Any] | None = None
    fit_s: float = 0.0


@dataclass(frozen=True)
class Ranked:
    """A current ranking with a pair, and what was ranked."""

    ranking_id: str
    prompt_id: str
    messages: Messages
    texts: tuple[str, ...]
    ranks: tuple[int, ...]

    @property
    def keys(self) -> list[str]:
        return [text_key(self.messages, text) for text in self.texts]


def what_labels_tell(store: Store, home: Home, project_id: str) -> InstantAccuracy:
    """Fit the head to the project's current rankings, five times with a fifth of the prompts left out.

    Of very many rankings the last are taken: the panel has to answer at once.
    """
    ranked = list(rankings_with_pairs(store, project_id))[-MOST:]
    keys = [key for each in ranked for key in each.keys]
    folder, read = most_read(home, keys)
    known = load_features(folder, keys) if folder else {}
    kept = [each for each in ranked if read.issuperset(each.keys)]
    n_without = len(ranked) - len(kept)
    model = str(about_features(folder).get("model", "")) if folder else ""
    if len(kept) < FEWEST:
        return InstantAccuracy(len(kept), n_without, model)
    examples = [example(each, known) for each in kept]
    scores = out_of_fold_scores(examples)
    if scores is None:
        return InstantAccuracy(len(kept), n_without, model)
    start = time.perf_counter()
    fit_head(examples)
    fit_s = time.perf_counter() - start
    pairs = pair_columns([_judged(each, given) for each, given in zip(kept, scores, strict=True)])
    margin = _length_margin(pairs)
    return InstantAccuracy(
        len(kept),
        n_without,
        model,
        accuracy=pair_accuracy(pairs),
        length=share(rightness(margin), pairs.weight, pairs.prompt),
        gain=share(pairs.right - rightness(margin), pairs.weight, pairs.prompt, DIFFERENCE),
        fit_s=fit_s,
    )


def most_read(home: Home, keys: Iterable[str]) -> tuple[Path | None, set[str]]:
    """Where the features by the model that has read most of these texts are, and which of them it has read."""
    wanted = set(keys)
    read = {folder: read_keys(folder) & wanted for folder in feature_folders(home)}
    best = max(read, key=lambda folder: len(read[folder]), default=None)
    return (best, read[best]) if best is not None and read[best] else (None, set())


def rankings_with_pairs(store: Store, project_id: str) -> Iterator[Ranked]:
    """The project's current rankings that put a response before another."""
    with store.read() as tx:
        answers = [(ranking, prompt) for ranking, prompt in current_rankings(tx, project_id)
                   if ranking.status is RankingStatus.RANKED and len(set(ranking.ranks or ())) > 1]  # fmt: skip
        for start in range(0, len(answers), _TASKS_AT_ONCE):
            lot = answers[start : start + _TASKS_AT_ONCE]
            tasks = {each.id: each for each in get_tasks(tx, list({ranking.task_id for ranking, _ in lot}))}
            for ranking, prompt in lot:
                task = tasks[ranking.task_id]
                texts = tuple(response.text for response in task.responses)
                yield Ranked(ranking.id, prompt, task.messages, texts, ranking.ranks or ())


def example(ranked: Ranked, known: dict[str, Features]) -> Example:
    """What the head learns from it."""
    return Example(ranked.prompt_id, np.array([known[key] for key in ranked.keys], dtype=float), ranked.ranks)


def _judged(ranked: Ranked, scores: Any) -> Judged:
    lengths = tuple(map(len, ranked.texts))
    return Judged(ranked.ranking_id, ranked.prompt_id, ranked.ranks, tuple(scores.tolist()), lengths)


def _length_margin(pairs: Pairs) -> Any:
    """Of the direction that is right more often; with one switch to choose there is little to overfit."""
    is_longer = float(np.average(rightness(pairs.length_margin), weights=pairs.weight)) >= 0.5
    return pairs.length_margin if is_longer else -pairs.length_margin
