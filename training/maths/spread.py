"""The standard deviation of a stream of numbers, kept as three numbers."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class RunningSpread(NamedTuple):
    """Count, mean and sum of squared deviations of all numbers so far (Chan et al. 1979)."""

    n: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def with_values(self, values: Tensor) -> RunningSpread:
        """The same with more numbers, any shape."""
        added = values.detach().double().flatten()
        n = self.n + added.numel()
        mean, squares = float(added.mean()), float((added - added.mean()).square().sum())
        gap = mean - self.mean
        return RunningSpread(
            n,
            self.mean + gap * added.numel() / n,
            self.squares + squares + gap * gap * self.n * added.numel() / n,
        )

    @property
    def std(self) -> float:
        """The biased standard deviation; 1 while the numbers do not vary, so that dividing by it is safe."""
        found = (self.squares / self.n) ** 0.5 if self.n else 0.0
        return found if found > 0 else 1.0
