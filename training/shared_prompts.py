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

from training.dataset import EncodedGroup
from training.encoding import Encoder, pack
from training.roles import Roles, ScoredRow
from training.rollout import PromptItem
from training.scorer import bare, group_scores

SCORE_TOLERANCE, GRADIENT_TOLERANCE = 1e-5, 1e-4
HALF_TOLERANCE = 0.05  # of the largest number, where weights are in bf16: a wrong mask is wrong by much more
_PROMPT_TOKENS, _RESPONSE_TOKENS, _RESPONSES, _TENSORS = 24, (9, 5, 12), 3, 24


class Check(NamedTuple):
    """`reason`: why prompts are not shared; empty where they are.

    Differences are relative where numbers exceed 1, and in bf16.
    """

    reason: str
    output_difference: float = 0.0
    gradient_difference: float = 0.0

    @property
    def holds(self) -> bool:
        return not self.reason


def check_shared_prompts(classifier: Any, groups: Sequence[EncodedGroup], pad_id: int, max_length: int) -> Check:
    """Score the beginnings of two rankings both ways and compare scores and gradients. No gradient is left behind."""
    reason = _why_not(bare(classifier), max_length)
    if reason:
        return Check(reason)
    probe = [_short(group) for group in groups[:2]]
    is_training = classifier.training
    classifier.eval()
    is_half = any(each.dtype != torch.float32 for each in classifier.parameters())
    try:
        return _compare(lambda shared: _numbers(classifier, probe, pad_id, is_shared=shared), 1, is_half=is_half)
    finally:
        classifier.train(is_training)


def check_shared_roles(roles: Roles, prompts: Sequence[PromptItem], encoder: Encoder, longest: int) -> Check:
    """The same for the roles of PPO: log-probabilities, values and their gradients, and scores.

    longest: tokens of the longest text to come. The roles are left as they were.
    """
    if not roles.policy.has_plain_head:
        return Check("the policy's logits are not what its head gives, but scaled or capped")
    reading = roles.reward_model.reading
    is_same_text = reading.shares_prompts and not reading.info.reads_facts
    for model, tokens in (
        (roles.policy.language_model, longest),
        (roles.critic.trunk.model, longest),
        (roles.reward_model.model, longest if is_same_text else reading.info.max_length),
    ):
        reason = _why_not(model, tokens)
        if reason:
            return Check(reason)
    probe = [
        ScoredRow(prompt.messages, prompt.ids[:_PROMPT_TOKENS], response, encoder.decode(response))
        for prompt in prompts[:2]
        for size in _RESPONSE_TOKENS
        for response in [[*(prompt.ids * size)[-size:], encoder.end_id]]
    ]
    batch = pack([row.prompt for row in probe], [row.response for row in probe], encoder.pad_id)
    batch = batch.to(roles.policy.trunk.machine.device)
    was_shared, is_half = roles.shares_prompts, roles.policy.trunk.machine.is_bf16
    policy, critic = (list(each.values()) for each in (roles.policy_parameters, roles.critic_parameters))

    def numbers(is_shared: bool) -> list[Tensor]:
        roles.share_prompts(wanted=is_shared)
        with torch.enable_grad():
            logprobs = roles.policy.token_scores(batch).logprobs[batch.mask]
            gradients = _gradients(logprobs, policy)
            values = roles.critic.values(batch)[batch.mask]
            outputs = [logprobs.detach(), values.detach(), roles.reward_model.score(probe)]
            return [*outputs, *gradients, *_gradients(values, critic)]

    try:
        return _compare(numbers, 3, is_half=is_half)
    finally:
        roles.share_prompts(wanted=was_shared)


def _why_not(model: Any, longest: int) -> str:
    """What in a model's configuration speaks against it; empty for nothing."""
    config = model.config.get_text_config()
    if config._attn_implementation != "sdpa":
        return f"attention is {config._attn_implementation!r}; only 'sdpa' takes a mask of blocks"
    window = getattr(config, "sliding_window", None)
    if window is not None and window < longest and getattr(config, "use_sliding_window", True):
        return f"attention has a window of {window} tokens, less than texts of {longest}"
    return ""


def _compare(numbers: Callable[[bool], list[Tensor]], n_outputs: int, *, is_half: bool) -> Check:
    """Compare what `numbers` gives for separate and for shared prompts: first the outputs, then the gradients."""
    try:
        separate, shared = numbers(False), numbers(True)
    except (TypeError, ValueError, RuntimeError, IndexError) as error:
        return Check(f"the model can't do it: {' '.join(str(error).split())[:200]}")
    least, limits = (0.0, (HALF_TOLERANCE,) * 2) if is_half else (1.0, (SCORE_TOLERANCE, GRADIENT_TOLERANCE))
    by_output = _difference(separate[:n_outputs], shared[:n_outputs], least)
    by_gradient = _difference(separate[n_outputs:], shared[n_outputs:], least)
    if by_output <= limits[0] and by_gradient <= limits[1]:
        return Check("", by_output, by_gradient)
    return Check("the model gives other numbers that way", by_output, by_gradient)


def _short(group: EncodedGroup) -> EncodedGroup:
    """A ranking's first responses, cut so short that asking costs nothing, to lengths that differ."""
    length = min(*group.prompt_lengths, _PROMPT_TOKENS)
    sequences = [
        sequence[:length] + sequence[start:][:size]
        for sequence, start, size in zip(group.sequences, group.prompt_lengths, _RESPONSE_TOKENS, strict=False)
    ]
    n = min(len(sequences), _RESPONSES)
    return replace(group, sequences=sequences[:n], prompt_lengths=[length] * n, ranks=group.ranks[:n])


def _numbers(classifier: Any, groups: list[EncodedGroup], pad_id: int, *, is_shared: bool) -> list[Tensor]:
    """The scores, and gradients of a mix of them: of some tensors that are trained, from the first to the last."""
    trained = [each for each in classifier.parameters() if each.requires_grad]
    with torch.enable_grad(), torch.autocast(trained[0].device.type, enabled=False):
        scores = group_scores(classifier, groups, pad_id, is_shared=is_shared).flatten()
        return [scores.detach(), *_gradients(scores, trained)]


def _gradients(outputs: Tensor, trained: Sequence[Tensor]) -> list[Tensor]:
    """Gradients of a mix of outputs (N,) with respect to some of the parameters, from the first to the last."""
    some = trained[:: -(-len(trained) // _TENSORS)]
    mix = torch.linspace(-1, 1, len(outputs), device=outputs.device)
    found = torch.autograd.grad((outputs * mix).sum(), some, allow_unused=True)
    return [each for each in found if each is not None]


def _difference(wanted: Sequence[Tensor], found: Sequence[Tensor], least: float) -> float:
    """The largest difference, over the largest wanted number or `least`. Infinite where one is no number."""
    largest = max([least, 1e-30, *(float(each.abs().max()) for each in wanted)])
    differences = [float((one - other).abs().max()) for one, other in zip(wanted, found, strict=True)]
    return max(differences) / largest if all(map(math.isfinite, differences)) else math.inf
