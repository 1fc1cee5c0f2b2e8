"""TRL's RewardTrainer with whole rankings as batch elements, cut into forward passes by a budget of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import torch
from torch import Tensor
from trl import RewardTrainer

from training.dataset import EncodedGroup
from training.hf import ReportingTrainer
from training.models import Machine
from training.packing import cut_in_lots
from training.scorer import group_scores
from training.targets import Objective

METRIC_NAMES = {
    "loss": "reward/loss",
    "pair_accuracy": "reward/pair_accuracy",
    "score_mean": "reward/score_mean",
    "score_std": "reward/score_std",
    "grad_norm": "reward/grad_norm",
    "learning_rate": "reward/learning_rate",
}


def as_batch(examples: Sequence[dict[str, Any]]) -> dict[str, list[int]]:
    """The collator: which rankings are in the step. The trainer has them."""
    return {"places": [int(example["place"]) for example in examples]}


class RankingTrainer(ReportingTrainer, RewardTrainer):  # type: ignore[misc]
    """A step's rankings come as one batch. Loss and figures are means over all of its rankings, and all scores: how it
    is cut into forward passes changes nothing.

    Set every attribute below before training.
    """

    groups: list[EncodedGroup]
    objective: Objective
    machine: Machine
    pad_id: int
    micro_batch_tokens: int
    is_shared: bool
    head_weights: Tensor  # (groups, heads): how much each ranking counts for each head
    loss_is_scaled_for_ga = True

    def _prepare_dataset(self, dataset: Any, *_args: Any, **_kwargs: Any) -> Any:
        return dataset  # it holds places

    def training_step(self, model: Any, inputs: dict[str, list[int]], _n: Any = None) -> Tensor:
        """Gradients of the step's loss, lot by lot; returns the loss."""
        model.train()
        groups, weights = [self.groups[place] for place in inputs["places"]], self.head_weights[inputs["places"]]
        total, accuracy, scores = torch.zeros((), device=self.machine.device), 0.0, list[Tensor]()
        for lot in cut_in_lots(groups, self.micro_batch_tokens, is_shared=self.is_shared):
            chosen = [groups[place] for place in lot]
            with self.machine.autocast():
                found = group_scores(model, chosen, self.pad_id, is_shared=self.is_shared)
            loss, right = self._loss(found, chosen, weights[lot])
            share = len(chosen) / len(groups)
            self.accelerator.backward(loss * share)
            total += loss.detach() * share
            accuracy += right * share
            scores.append(found.detach())
        together = torch.cat(scores)
        figures = {"score_mean": together.mean().item(), "score_std": together.std(correction=0).item()}
        for name, value in (figures | {"pair_accuracy": accuracy}).items():
            self._metrics["train"][name] = [value]
        return total

    def _loss(self, scores: Tensor, groups: list[EncodedGroup], weights: Tensor) -> tuple[Tensor, float]:
        """Loss and pair accuracy, means over the heads; every group has a pair, or it would not be here."""
        if scores.ndim == 1:
            result = self.objective(scores, groups)
            return result.loss, float(result.pair_accuracy)
        results = [
            self.objective(scores[:, head], [replace(each, weight=each.weight * float(weights[place, head]))
                                             for place, each in enumerate(groups)])
            for head in range(scores.shape[1])
        ]  # fmt: skip
        loss = torch.stack([each.loss for each in results]).mean()
        return loss, fmean(float(each.pair_accuracy) for each in results)
