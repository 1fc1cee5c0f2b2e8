"""TRL's RewardTrainer with whole rankings as batch elements, cut into forward passes by a budget of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import torch
from accelerate.data_loader import prepare_data_loader
from torch import Tensor
from torch.utils.data import DataLoader
from trl import RewardTrainer

from training.lm.dataset import EncodedGroup
from training.lm.models import Machine
from training.lm.packing import cut_in_micro_batches
from training.lm.processes import add_up_gradients, n_processes, process_index, total
from training.lm.scorer import group_scores, score_groups
from training.lm.trl_trainer import ReportingTrainer
from training.reward.objective import Objective

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
    is cut into forward passes, or shared out between processes, changes nothing.

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

    def get_train_dataloader(self) -> Any:
        """Every process goes through all batches, in the same order, and takes its part of each."""
        if n_processes() == 1:
            return super().get_train_dataloader()
        loader: DataLoader[Any] = DataLoader(
            self.train_dataset,
            batch_size=self.args.per_device_train_batch_size,
            sampler=self._get_train_sampler(),
            collate_fn=self.data_collator,
        )
        return prepare_data_loader(
            loader, num_processes=1, process_index=0, use_seedable_sampler=True, data_seed=self.args.data_seed
        )

    def training_step(self, model: Any, inputs: dict[str, list[int]], _n: Any = None) -> Tensor:
        """Gradients of the step's loss, lot by lot; returns the loss.

        The model's wrapper for several processes is passed by: what it does at each backward pass is done once, at the
        end.
        """
        model.train()
        mine = inputs["places"][process_index() :: n_processes()]
        groups, weights = [self.groups[place] for place in mine], self.head_weights[mine]
        sums = torch.zeros(5, dtype=torch.float64)  # loss, accuracy; of scores: number, sum, sum of squares
        for micro_batch in cut_in_micro_batches(groups, self.micro_batch_tokens, is_shared=self.is_shared):
            chosen = [groups[place] for place in micro_batch]
            with self.machine.autocast():
                raw_scores = group_scores(self.model, chosen, self.pad_id, is_shared=self.is_shared)
            loss, right = self._loss(raw_scores, chosen, weights[micro_batch])
            share = len(chosen) / len(inputs["places"])
            with self.accelerator.no_sync(model):
                self.accelerator.backward(loss * share)
            scores = raw_scores.detach().cpu().double()
            moments = [scores.numel(), scores.sum().item(), scores.square().sum().item()]
            sums += torch.tensor([float(loss.detach()) * share, right * share, *moments], dtype=torch.float64)
        add_up_gradients(self.model)
        step_loss, accuracy, n, summed, squared = self._over_processes(sums).tolist()
        mean = summed / n
        spread = max(squared / n - mean**2, 0.0) ** 0.5
        for name, value in {"score_mean": mean, "score_std": spread, "pair_accuracy": accuracy}.items():
            self._metrics["train"][name] = [value]
        return torch.tensor(step_loss, dtype=torch.float32, device=self.machine.device)

    def scores(self, groups: Sequence[EncodedGroup]) -> list[Tensor]:
        """Raw scores of each ranking's responses, (K,) float32, or (K, heads); each process scores its part."""
        mine = range(process_index(), len(groups), n_processes())
        model, chosen = self.model, [groups[place] for place in mine]
        own_scores = score_groups(
            model, chosen, self.pad_id, self.machine, self.micro_batch_tokens, is_shared=self.is_shared
        )
        if n_processes() == 1:
            return own_scores
        heads = self.head_weights.shape[1]
        whole = [torch.zeros((group.n_responses, heads), dtype=torch.float64) for group in groups]
        for place, part in zip(mine, own_scores, strict=True):
            whole[place] = part.reshape(-1, heads).double()
        together = self._over_processes(torch.cat(whole)).float()
        parts = torch.split(together, [group.n_responses for group in groups])
        return [part.squeeze(-1) if heads == 1 else part for part in parts]

    def _over_processes(self, values: Tensor) -> Tensor:
        return total(values.to(self.machine.device)).cpu() if n_processes() > 1 else values

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
