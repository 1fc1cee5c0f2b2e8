"""Do the roles of PPO give the same numbers and gradients where the responses to a prompt share it?"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from training.lm.encoding import Encoder, pack
from training.lm.sharing import (
    PROMPT_TOKENS,
    RESPONSE_TOKENS,
    SharingCheck,
    compare_both_ways,
    mixed_gradients,
    why_not,
)
from training.ppo.roles import Roles, ScoredRow
from training.ppo.rollout import PromptItem


def check_shared_roles(roles: Roles, prompts: Sequence[PromptItem], encoder: Encoder, longest: int) -> SharingCheck:
    """The same for the roles of PPO: log-probabilities, values and their gradients, and scores.

    longest: tokens of the longest text to come. The roles are left as they were.
    """
    if not roles.policy.has_plain_head:
        return SharingCheck("the policy's logits are not what its head gives, but scaled or capped")
    reading = roles.reward_model.reading
    is_same_text = reading.shares_prompts and not reading.info.reads_facts
    for model, tokens in (
        (roles.policy.language_model, longest),
        (roles.critic.trunk.model, longest),
        (roles.reward_model.model, longest if is_same_text else reading.info.max_length),
    ):
        reason = why_not(model, tokens)
        if reason:
            return SharingCheck(reason)
    probe = [
        ScoredRow(prompt.messages, prompt.ids[:PROMPT_TOKENS], response, encoder.decode(response))
        for prompt in prompts[:2]
        for size in RESPONSE_TOKENS
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
            gradients = mixed_gradients(logprobs, policy)
            values = roles.critic.values(batch)[batch.mask]
            outputs = [logprobs.detach(), values.detach(), roles.reward_model.score(probe)]
            return [*outputs, *gradients, *mixed_gradients(values, critic)]

    try:
        return compare_both_ways(numbers, 3, is_half=is_half)
    finally:
        roles.share_prompts(wanted=was_shared)
