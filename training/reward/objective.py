"""What the loss of some rankings is asked: which pairs, how sure, and by what margin. Ranks in, tensors out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from training.launch.config import RewardConfig
from training.lm.dataset import EncodedGroup
from training.maths.losses import RankingLoss, plackett_luce_loss, ranking_loss

GREATEST_STRENGTH = 4


@dataclass(frozen=True)
class Objective:
    """The loss that a run is asked to minimise."""

    loss: str = "pairs"
    ties: str = "drop"
    margin: str = "none"
    margin_size: float = 1.0
    centring: float = 0.0

    @classmethod
    def of(cls, config: RewardConfig) -> Objective:
        return cls(
            config.ranking.loss,
            config.ranking.ties,
            config.ranking.margin,
            config.ranking.margin_size,
            config.ranking.centring,
        )

    def __call__(self, scores: Tensor, groups: Sequence[EncodedGroup]) -> RankingLoss:
        """The loss of the rankings whose responses' scores (N,) stand one after the other."""
        device = scores.device
        ranks = torch.tensor([rank for group in groups for rank in group.ranks], device=device)
        owners = torch.tensor([place for place, group in enumerate(groups) for _ in group.ranks], device=device)
        weights = torch.tensor([group.weight for group in groups], device=device)
        if self.loss == "plackett-luce":
            return plackett_luce_loss(scores, ranks, owners, weights, self.centring)
        preferences = _blocks([self.preferences(group) for group in groups]).to(device)
        margins = _blocks([self.margins(group) for group in groups]).to(device)
        return ranking_loss(scores, ranks, owners, weights, self.centring, preferences, margins)

    def preferences(self, group: EncodedGroup) -> Tensor:
        """(K, K): how sure it is that response i is better than j; 0 both ways where there is no pair."""
        k = group.n_responses
        if group.probabilities:
            return torch.tensor(group.probabilities, dtype=torch.float32).reshape(k, k)
        ranks = torch.tensor(group.ranks)
        preferred = (ranks[:, None] < ranks[None, :]).float()
        if self.ties == "half":
            preferred += 0.5 * (ranks[:, None] == ranks[None, :]).fill_diagonal_(False)
            rest = torch.tensor(group.unplaced, dtype=torch.long)  # left in no order, which is no tie
            preferred[rest[:, None], rest[None, :]] = 0
        return preferred

    def margins(self, group: EncodedGroup) -> Tensor:
        """(K, K): by how much the score of response i has to be above that of j.

        By ranks: in proportion to the levels between them, `margin_size` from the first to the last. By strength, which
        says how much better the first is than the next: from nothing at 1 to `margin_size` at 4, for pairs with it.
        """
        levels = torch.tensor([sorted(set(group.ranks)).index(rank) for rank in group.ranks], dtype=torch.float32)
        distances = levels[None, :] - levels[:, None]
        if self.margin == "ranks":
            return distances * (self.margin_size / max(float(levels.max()), 1.0))
        if self.margin == "strength" and group.strength is not None:
            of_first = distances.sign() * ((levels[:, None] == 0) | (levels[None, :] == 0))
            return of_first * (self.margin_size * (group.strength - 1) / (GREATEST_STRENGTH - 1))
        return torch.zeros_like(distances)


def _blocks(matrices: Sequence[Tensor]) -> Tensor:
    """(N, N): the matrices along the diagonal, 0 elsewhere."""
    together: Tensor = torch.block_diag(*matrices)  # type: ignore[no-untyped-call]
    return together
