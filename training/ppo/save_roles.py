"""Write a trained policy and critic in the Hugging Face layout: adapters are worked into float32 weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from training.lm.adapters import merged_state
from training.lm.encoding import Encoder
from training.lm.models import save_model, write_json
from training.ppo.roles import Critic, Policy

CRITIC_FILE = "critic_config.json"


def save_policy(policy: Policy, tokenizer: Any, folder: Path, encoder: Encoder) -> None:
    """Save the policy so that `AutoModelForCausalLM` loads it."""
    inner = policy.language_model
    with torch.device("meta"):
        whole = AutoModelForCausalLM.from_config(inner.config, dtype=torch.float32)
    whole.load_state_dict(merged_state(inner, policy.trunk.adapter), assign=True)
    whole.tie_weights()
    whole.generation_config = inner.generation_config
    save_model(whole, tokenizer, folder, encoder)


def save_critic(critic: Critic, tokenizer: Any, folder: Path, encoder: Encoder) -> None:
    """Save the critic so that `AutoModelForSequenceClassification` loads it; the head's bias is a number beside it."""
    trunk = critic.trunk.model
    config = type(trunk.config).from_dict(trunk.config.to_dict() | {"num_labels": 1})
    with torch.device("meta"):
        whole = AutoModelForSequenceClassification.from_config(config, dtype=torch.float32)
    whole.base_model.load_state_dict(merged_state(trunk, critic.trunk.adapter), assign=True)
    whole.score.load_state_dict({"weight": critic.head.weight.detach().float().cpu()}, assign=True)
    save_model(whole, tokenizer, folder, encoder)
    write_json(folder / CRITIC_FILE, {"bias": critic.head.bias.item(), "reads": "the state before each token"})
