"""An update that was stopped between two optimizer steps: a checkpoint holds it, and a resumed run goes on with it.

The rollout belongs to it, so nothing has to be sampled again, and what was already learnt from it is not lost.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any

import torch
from torch import Tensor

from training.lm.encoding import Sequences
from training.ppo.roles import ScoredRow
from training.ppo.rollout import Credit, Rollout

_OF_ROLLOUT = ("ended", "scores", "old_logprobs", "ref_logprobs", "old_values", "entropy")
_OF_CREDIT = tuple(each.name for each in fields(Credit) if each.name != "new_logprobs")


@dataclass
class Unfinished:
    """A rollout, what the loop made of it, and the figures of the optimizer steps that were done with it."""

    rollout: Rollout
    credit: Credit
    steps: list[dict[str, float]] = field(default_factory=list)

    def tensors(self) -> dict[str, Tensor]:
        """For a checkpoint, with `values`."""
        batch = {f"batch.{name}": each for name, each in self.rollout.batch._asdict().items()}
        return batch | {
            f"{name}.{each}": getattr(owner, each)
            for name, owner, names in (("rollout", self.rollout, _OF_ROLLOUT), ("credit", self.credit, _OF_CREDIT))
            for each in names
        }

    def values(self) -> dict[str, Any]:
        rows = [asdict(row) for row in self.rollout.rows]
        return {"rows": rows, "seconds": self.rollout.seconds, "steps": self.steps}


def read_unfinished(tensors: dict[str, Tensor], values: dict[str, Any], device: torch.device) -> Unfinished:
    """What a checkpoint holds of it."""
    there = {name: each.to(device) for name, each in tensors.items()}
    rows = [ScoredRow(**(row | {"messages": tuple(row["messages"])})) for row in values["rows"]]
    batch = Sequences(**{name: there[f"batch.{name}"] for name in Sequences._fields})
    found = {name: there[f"rollout.{name}"] for name in _OF_ROLLOUT}
    credit = Credit(**{name: there[f"credit.{name}"] for name in _OF_CREDIT})
    return Unfinished(Rollout(rows, batch, seconds=values["seconds"], **found), credit, values["steps"])
