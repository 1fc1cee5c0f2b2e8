"""Makes a process compute in float64 whatever this project and its libraries would compute in float32.

Two ways of computing the same number (cut otherwise, shared out, padded, on another processor) differ by rounding, and
training makes a rounding as large as it likes: Adam's first step divides a gradient by its own size, so that one that
is nearly 0 moves its weight by a part of the rate. In float32 a bound on such a difference is a guess about one
processor's kernels. In float64 the same code has 29 more binary digits: what is left of a difference is 1e-10 or less
where the law holds, and as large as ever where it doesn't.

Every name of float32 becomes float64, also in the libraries: many norms are computed in `torch.float32` whatever their
input. What remains float32 is what PyTorch's own C++ makes without being asked for a type: nothing here depends on it.
"""

from __future__ import annotations

from typing import Any


def install() -> dict[str, Any]:
    """Put float64 in place of float32. Returns what stood there, for `restore`."""
    import safetensors.torch  # noqa: F401  its table of names, and transformers', must be made with the true types
    import torch
    import transformers.modeling_utils  # noqa: F401

    before = {"float32": torch.float32, "float": torch.float, "of_tensor": torch.Tensor.float}
    before |= {"of_module": torch.nn.Module.float, "default": torch.get_default_dtype()}
    _put(torch.float64, torch.float64, torch.Tensor.double, torch.nn.Module.double, torch.float64)
    return before


def restore(before: dict[str, Any]) -> None:
    _put(before["float32"], before["float"], before["of_tensor"], before["of_module"], before["default"])


def _put(float32: Any, float_: Any, of_tensor: Any, of_module: Any, default: Any) -> None:
    import torch

    torch.float32, torch.float = float32, float_
    torch.Tensor.float, torch.nn.Module.float = of_tensor, of_module  # type: ignore[method-assign]
    torch.set_default_dtype(default)
