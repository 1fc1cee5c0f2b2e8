"""The running standard deviation."""

from __future__ import annotations

import pytest
import torch

from training.maths.spread import RunningSpread

pytestmark = pytest.mark.float64


def test_in_parts_it_is_the_standard_deviation_of_everything() -> None:
    values = torch.randn(50, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3 + 100
    spread = RunningSpread()
    for part in (values[:1], values[1:20], values[20:]):
        spread = spread.with_values(part)
    assert (spread.n, spread.mean) == (50, pytest.approx(values.mean().item()))
    assert spread.std == pytest.approx(values.std(correction=0).item(), rel=1e-9)


def test_numbers_that_do_not_vary_are_divided_by_one() -> None:
    assert RunningSpread().std == 1
    assert RunningSpread().with_values(torch.tensor([2.0, 2.0])).std == 1
