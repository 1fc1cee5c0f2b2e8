"""The counts of a snapshot: everything that goes in and everything that is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import permutations
from statistics import fmean
from typing import Any

from data.files.snapshots import Group
from data.records import Purpose, Split
from labeling.judgement.consensus import accuracy_against
from labeling.snapshot.groups import MERGED, JudgedTask, TaskOutcome, count_pairs, judgement, pairs_of_group

OnGroup = Callable[[int], None]


class SnapshotCounter:
    """Counts what becomes of each task, and keeps three pairs as examples."""

    def __init__(self, never_used: dict[str, int], on_group: OnGroup | None = None) -> None:
        self._on_group = on_group
        self.left_out = Counter[str](skipped=0, unacceptable=0, all_tied=0, extra=0, gold=0)
        self.never_used = never_used
        self.totals = Counter[str](groups=0, rankings=0, rankings_eval=0, pairs_eval=0, late=0, gold=0)
        self.pairs = Counter[str](pairs=0, ties=0, split=0, not_compared=0)
        self.k = Counter[str]()
        self.prompts: dict[str, Split] = {}
        self.annotators: set[str] = set()
        self.human: list[float] = []
        self.examples: list[dict[str, str]] = []

    def add(self, outcome: TaskOutcome) -> None:
        """Take in a task: what is used of it, and what is left out."""
        self._add_answers(outcome.judged, outcome.split)
        for group in outcome.groups:
            self._add_group(group)

    def _add_answers(self, task: JudgedTask, split: Split) -> None:
        """What is left out; and, on the held-out side, how well one person foretells another."""
        self.left_out.update(reason for _, reason in task.aside if reason != MERGED)
        for answer in (answer for part in task.parts for answer in part.rankings):
            self.totals.update(late=answer.is_late, gold=answer.purpose is Purpose.GOLD)
        if split is Split.EVAL and task.parts:
            for truth, other in permutations(task.rankings, 2):
                accuracy = accuracy_against(judgement(truth), judgement(other))
                self.human += [] if accuracy is None else [accuracy]

    def _add_group(self, group: Group) -> None:
        counts, annotators = count_pairs(group), group.annotator.split(",")
        is_eval = group.split is Split.EVAL
        self.pairs.update(counts)
        self.totals.update(groups=1, rankings=len(annotators), rankings_eval=len(annotators) if is_eval else 0)
        self.totals.update(adjudicated=group.adjudicated)
        self.totals.update(pairs_eval=counts["pairs"] if is_eval else 0)
        self.k[str(len(group.ranks))] += len(annotators)
        self.prompts[group.prompt_id] = group.split
        self.annotators.update([] if group.adjudicated else annotators)
        if len(self.examples) < 3:
            first = pairs_of_group(group)[0]
            texts = (group.messages[-1]["content"], group.responses[first.chosen], group.responses[first.rejected])
            self.examples.append(dict(zip(("prompt", "chosen", "rejected"), (t[:500] for t in texts), strict=True)))
        if self._on_group is not None:
            self._on_group(self.totals["rankings"])

    def as_counts(self) -> dict[str, Any]:
        n_eval = sum(side is Split.EVAL for side in self.prompts.values())
        return {
            "rankings_used": self.totals["rankings"],
            "rankings_train": self.totals["rankings"] - self.totals["rankings_eval"],
            "rankings_eval": self.totals["rankings_eval"],
            "rankings_late": self.totals["late"],
            "rankings_gold": self.totals["gold"],
            "groups": self.totals["groups"],
            "adjudicated": self.totals["adjudicated"],
            "pairs": self.pairs["pairs"],
            "pairs_train": self.pairs["pairs"] - self.totals["pairs_eval"],
            "pairs_eval": self.totals["pairs_eval"],
            "ties": self.pairs["ties"],
            "evenly_split": self.pairs["split"],
            "not_compared": self.pairs["not_compared"],
            "prompts": len(self.prompts),
            "prompts_train": len(self.prompts) - n_eval,
            "prompts_eval": n_eval,
            "annotators": len(self.annotators),
            "responses_per_ranking": dict(sorted(self.k.items(), key=lambda each: int(each[0]))),
            "left_out": dict(self.left_out) | self.never_used,
            "human_pair_accuracy": fmean(self.human) if self.human else None,
            "human_pair_accuracy_n": len(self.human),
        }
