"""From a finished reward model to its report: held-out rankings with scores, the instant baseline, the texts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from data.errors import InvalidInput
from data.files.features import Features, text_key
from data.files.snapshots import Group, read_groups
from training.jobs.reporter import Reporter
from training.launch.config import RewardConfig
from training.lm.dataset import Encoded, EncodedGroup
from training.lm.encoding import Encoder
from training.lm.models import Machine, ModelSource
from training.measures.figures import Judged, pair_accuracy, pair_columns
from training.measures.instant import Example, fit_head
from training.measures.learning_curve import learning_curve
from training.measures.verdicts import REPORT_FILE, SCHEMA, compared, figures, verdicts, worst_pairs
from training.reward.features_run import ensure_features

SHOWN_CHARACTERS = 600


def judged_groups(encoded: Sequence[EncodedGroup], scores: Sequence[Tensor], groups: dict[str, Group]) -> list[Judged]:
    """Rankings as the figures want them; lengths are of the response, in tokens. No scores: all 0."""
    judged = []
    for number, encoded_group in enumerate(encoded):
        of, k = groups[encoded_group.ranking_id], len(groups[encoded_group.ranking_id].ranks)
        judged.append(
            Judged(
                ranking_id=encoded_group.ranking_id,
                prompt_id=encoded_group.prompt_id,
                ranks=tuple(encoded_group.ranks),
                scores=tuple(scores[number].tolist()) if scores else (0.0,) * encoded_group.n_responses,
                lengths=tuple(
                    len(ids) - n for ids, n in zip(encoded_group.sequences, encoded_group.prompt_lengths, strict=True)
                ),
                annotator=of.annotator,
                flags=tuple(of.flags[i] for i in encoded_group.places) if of.flags else (),
                unplaced=encoded_group.unplaced,
                probabilities=encoded_group.probabilities,
                preferred=tuple(of.preferred[i * k + j] for i in encoded_group.places for j in encoded_group.places)
                if encoded_group.probabilities and of.preferred
                else (),
            )
        )
    return judged


class ReportInput:
    """What the report of a run is made of: its snapshot's rankings, encoded and as they were given."""

    def __init__(self, folder: Path, encoded: Encoded) -> None:
        self.groups = {each.ranking_id: each for each in read_groups(folder)}
        self.encoded = encoded

    def report(
        self,
        scores: Sequence[Tensor],
        config: RewardConfig,
        reporter: Reporter,
        source: ModelSource,
        encoder: Encoder,
        machine: Machine,
    ) -> dict[str, Any]:
        """Measure everything and write it to report.json in the run's folder."""
        held_out = judged_groups(self.encoded.held_out, scores, self.groups)
        train = judged_groups(self.encoded.train, [], self.groups)
        names = [[self._response_id(each, i) for i in range(each.n_responses)] for each in self.encoded.held_out]
        report: dict[str, Any] = {
            "schema": SCHEMA,
            "run": reporter.run.id,
            "snapshot": reporter.run.snapshot_id,
            "base_model": {"name": source.name, "revision": source.revision},
            "train_rankings": len(train),
            "counts": dict(self.encoded.counts),
            "model": figures(held_out, train, names),
        }
        report |= self._instant(held_out, train, config, reporter, source, encoder, machine)
        report["worst"] = [self._with_texts(each) for each in worst_pairs(held_out)]
        report["verdicts"] = verdicts(report)
        content = json.dumps(report, ensure_ascii=False, indent=1, default=sorted, allow_nan=False)
        (reporter.folder / REPORT_FILE).write_text(content, encoding="utf-8")
        return report

    def _instant(
        self,
        held_out: list[Judged],
        train: list[Judged],
        config: RewardConfig,
        reporter: Reporter,
        source: ModelSource,
        encoder: Encoder,
        machine: Machine,
    ) -> dict[str, Any]:
        """The instant reward model on the same sides, and its learning curve; empty where it is not wanted or known."""
        known = self._features(config, reporter, source, encoder, machine)
        learnt = [each for group in self.encoded.train if (each := self._example(group, known)) is not None]
        asked = [self._example(group, known) for group in self.encoded.held_out]
        if not learnt or not all(asked):
            return {}
        head = fit_head(learnt)
        examples = [each for each in asked if each is not None]
        instant = [
            replace(each, scores=tuple(head.scores(of.features).tolist()))
            for each, of in zip(held_out, examples, strict=True)
        ]
        return {
            "instant": {"rankings": len(learnt), "of_rankings": len(train),
                        "pair_accuracy": pair_accuracy(pair_columns(instant))},
            "model_less_instant": compared(held_out, instant),
            "learning_curve": learning_curve(learnt, examples),
        }  # fmt: skip

    def _features(
        self, config: RewardConfig, reporter: Reporter, source: ModelSource, encoder: Encoder, machine: Machine
    ) -> dict[str, Features]:
        """Of the held-out rankings and of as many others as `instant_texts` allows."""
        texts = [text for group in self.encoded.held_out for text in self._texts(group)]
        for group in self.encoded.train:
            more = self._texts(group)
            if len(texts) + len(more) > config.evaluation.instant_texts:
                reporter.event("instant_texts_reached", limit=config.evaluation.instant_texts)
                break
            texts += more
        if not config.evaluation.instant_texts or len(texts) > config.evaluation.instant_texts:
            return {}
        try:
            return ensure_features(
                texts, source, encoder, machine, config.max_length, reporter, config.machine.micro_batch_tokens
            )
        except InvalidInput as error:
            reporter.event("no_instant_reward_model", reason=str(error))
            return {}

    def _texts(self, group: EncodedGroup) -> list[tuple[Any, str]]:
        of = self.groups[group.ranking_id]
        return [(of.messages, of.responses[i]) for i in group.places]

    def _example(self, group: EncodedGroup, known: dict[str, Features]) -> Example | None:
        rows = [known.get(text_key(*text)) for text in self._texts(group)]
        if any(row is None for row in rows):
            return None
        return Example(group.prompt_id, np.array(rows, dtype=float), tuple(group.ranks), group.probabilities)

    def _response_id(self, group: EncodedGroup, place: int) -> str:
        return self.groups[group.ranking_id].response_ids[group.places[place]]

    def _with_texts(self, worst: dict[str, Any]) -> dict[str, Any]:
        group = self.groups[worst["ranking_id"]]
        (encoded,) = (each for each in self.encoded.held_out if each.ranking_id == worst["ranking_id"])
        better, worse = (group.responses[encoded.places[worst[name]]] for name in ("better", "worse"))
        return worst | {
            "prompt": group.messages[-1]["content"][:SHOWN_CHARACTERS],
            "better": better[:SHOWN_CHARACTERS],
            "worse": worse[:SHOWN_CHARACTERS],
        }
