"""Does a model give the same numbers and gradients where the responses to a prompt share it? Asked before each run.

Not every architecture does: attention that is not softmax over a mask, positions that can't be given, windows that a
whole mask would override. Where it does not, each response has a forward pass of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from training.lm.dataset import EncodedGroup
from training.lm.scorer import bare, group_scores

SCORE_TOLERANCE, GRADIENT_TOLERANCE = 1e-5, 1e-4
HALF_TOLERANCE = 0.05  # of the largest number, where weights are in bf16: a wrong mask is wrong by much more
PROMPT_TOKENS, RESPONSE_TOKENS, _RESPONSES, _TENSORS = 24, (9, 5, 12), 3, 24


class SharingCheck(NamedTuple):
    """`reason`: why prompts are not shared; empty where they are.

    Differences are relative where numbers exceed 1, and in bf16.
    """

    reason: str
    output_difference: float = 0.0
    gradient_difference: float = 0.0

    @property
    def holds(self) -> bool:
        return not self.reason


def check_shared_prompts(classifier: Any, groups: Sequence[EncodedGroup], pad_id: int, max_length: int) -> SharingCheck:
    """Score the beginnings of two rankings both ways and compare scores and gradients. No gradient is left behind."""
    reason = why_not(bare(classifier), max_length)
    if reason:
        return SharingCheck(reason)
    probe = [_short(group) for group in groups[:2]]
    is_training = classifier.training
    classifier.eval()
    is_half = any(each.dtype != torch.float32 for each in classifier.parameters())
    try:
        return compare_both_ways(
            lambda shared: _numbers(classifier, probe, pad_id, is_shared=shared), 1, is_half=is_half
        )
    finally:
        classifier.train(is_training)


def why_not(model: Any, longest: int) -> str:
    """What in a model's configuration speaks against it; empty for nothing."""
    config = model.config.get_text_config()
    if config._attn_implementation != "sdpa":
        return f"attention is {config._attn_implementation!r}; only 'sdpa' takes a mask of blocks"
    window = getattr(config, "sliding_window", None)
    if window is not None and window < longest and getattr(config, "use_sliding_window", True):
        return f"attention has a window of {window} tokens, less than texts of {longest}"
    return ""


def compare_both_ways(numbers: Callable[[bool], list[Tensor]], n_outputs: int, *, is_half: bool) -> SharingCheck:
    """Compare what `numbers` gives for separate and for shared prompts: first the outputs, then the gradients."""
    try:
        separate, shared = numbers(False), numbers(True)
    except (TypeError, ValueError, RuntimeError, IndexError) as error:
        return SharingCheck(f"the model can't do it: {' '.join(str(error).split())[:200]}")
    least, limits = (0.0, (HALF_TOLERANCE,) * 2) if is_half else (1.0, (SCORE_TOLERANCE, GRADIENT_TOLERANCE))
    by_output = _difference(separate[:n_outputs], shared[:n_outputs], least)
    by_gradient = _difference(separate[n_outputs:], shared[n_outputs:], least)
    if by_output <= limits[0] and by_gradient <= limits[1]:
        return SharingCheck("", by_output, by_gradient)
    return SharingCheck("the model gives other numbers that way", by_output, by_gradient)


def _short(group: EncodedGroup) -> EncodedGroup:
    """A ranking's first responses, cut so short that asking costs nothing, to lengths that differ."""
    length = min(*group.prompt_lengths, PROMPT_TOKENS)
    sequences = [
        sequence[:length] + sequence[start:][:size]
        for sequence, start, size in zip(group.sequences, group.prompt_lengths, RESPONSE_TOKENS, strict=False)
    ]
    n = min(len(sequences), _RESPONSES)
    return replace(group, sequences=sequences[:n], prompt_lengths=[length] * n, ranks=group.ranks[:n])


def _numbers(classifier: Any, groups: list[EncodedGroup], pad_id: int, *, is_shared: bool) -> list[Tensor]:
    """The scores, and gradients of a mix of them: of some tensors that are trained, from the first to the last."""
    trained = [each for each in classifier.parameters() if each.requires_grad]
    with torch.enable_grad(), torch.autocast(trained[0].device.type, enabled=False):
        scores = group_scores(classifier, groups, pad_id, is_shared=is_shared).flatten()
        return [scores.detach(), *mixed_gradients(scores, trained)]


def mixed_gradients(outputs: Tensor, trained: Sequence[Tensor]) -> list[Tensor]:
    """Gradients of a mix of outputs (N,) with respect to some of the parameters, from the first to the last."""
    some = trained[:: -(-len(trained) // _TENSORS)]
    mix = torch.linspace(-1, 1, len(outputs), device=outputs.device)
    found = torch.autograd.grad((outputs * mix).sum(), some, allow_unused=True)
    return [each for each in found if each is not None]


def _difference(separate: Sequence[Tensor], shared: Sequence[Tensor], least: float) -> float:
    """The largest difference, over the largest wanted number or `least`. Infinite where one is no number."""
    largest = max([least, 1e-30, *(float(each.abs().max()) for each in separate)])
    differences = [float((one - other).abs().max()) for one, other in zip(separate, shared, strict=True)]
    return max(differences) / largest if all(map(math.isfinite, differences)) else math.inf
