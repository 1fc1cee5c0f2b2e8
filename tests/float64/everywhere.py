"""Makes a process compute in float64 whatever this project and its libraries would compute in float32.

Two ways of computing the same number (cut otherwise, shared out, padded, on another processor) differ by rounding, and
training makes a rounding as large as it likes: Adam's first step divides a gradient by its own size, so that one that
is nearly 0 moves its weight by a part of the rate. In float32 a bound on such a difference is a guess about one
processor's kernels. In float64 the same code has 29 more binary digits: what is left of a difference is 1e-10 or less
where the law holds, and as large as ever where it doesn't.

Every name of float32 becomes float64, also in the libraries: many norms are computed in `torch.float32` whatever their
input. Models are saved in float64 then. One that was saved in float32 can't be read meanwhile: safetensors looks up
`torch.float32` by its name.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any


@contextmanager
def float64() -> Iterator[None]:
    """Put float64 in place of float32 for a while."""
    single = _single()  # looked up before anything is replaced
    install()
    try:
        yield
    finally:
        _put(*single)


@contextmanager
def float32() -> Iterator[None]:
    """Within that, the true float32 for a while."""
    _put(*_single())
    try:
        yield
    finally:
        install()


def install() -> None:
    """Put float64 in place of float32 for good."""
    import torch

    _single()
    _put(torch.float64, torch.Tensor.double, torch.nn.Module.double)


@cache
def _single() -> tuple[Any, Any, Any]:
    """What the names stand for in truth."""
    import safetensors.torch  # noqa: F401  its table of types, and that of transformers, must be made with these
    import torch
    import transformers.modeling_utils  # noqa: F401

    return torch.float32, torch.Tensor.float, torch.nn.Module.float


def _put(dtype: Any, of_tensor: Any, of_module: Any) -> None:
    import torch

    torch.float32 = torch.float = dtype
    torch.Tensor.float, torch.nn.Module.float = of_tensor, of_module  # type: ignore[method-assign]
    torch.set_default_dtype(dtype)
