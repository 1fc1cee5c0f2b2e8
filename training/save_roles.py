"""Write a trained policy and critic in the Hugging Face layout: adapters are worked into float32 weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from training.encoding import Encoder
from training.models import save_model, write_json
from training.roles import Critic, Policy

CRITIC_FILE = "critic_config.json"


def save_policy(policy: Policy, tokenizer: Any, folder: Path, encoder: Encoder) -> None:
    """Save the policy so that `AutoModelForCausalLM` loads it."""
    inner = policy.language_model
    whole = AutoModelForCausalLM.from_config(inner.config, dtype=torch.float32)
    whole.load_state_dict(merged_state(inner, policy.trunk.adapter))
    whole.generation_config = inner.generation_config
    save_model(whole, tokenizer, folder, encoder)


def save_critic(critic: Critic, tokenizer: Any, folder: Path, encoder: Encoder) -> None:
    """Save the critic so that `AutoModelForSequenceClassification` loads it; the head's bias is a number beside it."""
    trunk = critic.trunk.model
    config = type(trunk.config).from_dict(trunk.config.to_dict() | {"num_labels": 1})
    whole = AutoModelForSequenceClassification.from_config(config, dtype=torch.float32)
    whole.base_model.load_state_dict(merged_state(trunk, critic.trunk.adapter))
    with torch.no_grad():
        whole.score.weight.copy_(critic.head.weight)
    save_model(whole, tokenizer, folder, encoder)
    write_json(folder / CRITIC_FILE, {"bias": critic.head.bias.item(), "reads": "the state before each token"})


def merged_state(model: Any, adapter: str | None) -> dict[str, Tensor]:
    """A model's weights as float32 on the CPU, with one adapter added to them and every other left out."""
    layers = {name: each for name, each in model.named_modules() if isinstance(each, BaseTunerLayer)}
    state: dict[str, Tensor] = {}
    for name, tensor in model.state_dict().items():
        if ".lora_" in name:
            continue
        plain = name.replace(".base_layer.", ".")
        value = tensor.detach().float().cpu()
        owner, _, kind = name.rpartition(".base_layer.")
        if adapter is not None and kind == "weight" and owner in layers:
            value = value + layers[owner].get_delta_weight(adapter).detach().float().cpu()
        state[plain] = value
    return state
