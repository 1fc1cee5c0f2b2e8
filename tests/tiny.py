"""Tiny real models, made in code: a byte-level tokenizer and transformers of a few thousand weights. No hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
BOS_TEMPLATE = "{{ bos_token }}" + CHAT_TEMPLATE
STRICT_TEMPLATE = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    + CHAT_TEMPLATE.replace("message['content']", "message['content'] | trim")
)
SPECIAL = ("<|pad|>", "<|end|>", "<|start|>", "<|user|>", "<|assistant|>", "<|system|>")
PAD, END, START = 0, 1, 2
FAMILIES = ("llama", "qwen2", "gpt2")
_FOUR = {"num_local_experts": 4, "num_experts_per_tok": 2, "tie_word_embeddings": False, "initializer_range": 0.1}
_LATENT = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 16}
_EXPERTS: dict[str, dict[str, Any]] = {
    "mixtral": _FOUR,
    "qwen3_moe": _FOUR | {"head_dim": 16, "moe_intermediate_size": 24},
    "deepseek_v3": _FOUR | _LATENT | {"num_key_value_heads": 2, "moe_intermediate_size": 24, "n_group": 2,
                                      "topk_group": 1, "first_k_dense_replace": 1},
    "gpt_oss": _FOUR | {"head_dim": 16, "layer_types": ["full_attention"] * 2, "rope_parameters": None},
}  # fmt: skip
EXPERTS = tuple(_EXPERTS)


def tiny_tokenizer(
    *,
    chat: bool = True,
    pad: str | None = "<|pad|>",
    template: str = CHAT_TEMPLATE,
    adds_bos: bool = False,
    only_end: bool = False,
) -> Any:
    """A byte-level tokenizer.

    pad: its padding token; None: it has none; '<|end|>': its end token, as SmolLM2's. adds_bos: it puts its start token
    before every text, as Llama's does. only_end: its end token is its only special one, as GPT-2's.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = ["<|end|>"] if only_end else list(SPECIAL)
    vocabulary = {token: place for place, token in enumerate([*special, *alphabet])}
    built = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    built.decoder = decoders.ByteLevel()
    built.add_special_tokens([token for token in special if token != "<|pad|>" or pad == "<|pad|>"])
    if adds_bos:
        built.post_processor = processors.TemplateProcessing(
            single="<|start|> $A", special_tokens=[("<|start|>", START)]
        )
    words = {"eos_token": "<|end|>", "bos_token": "<|end|>" if only_end else "<|start|>"} | (
        {"pad_token": pad} if pad else {}
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=built, **words)
    tokenizer.chat_template = template if chat else None
    return tokenizer


def tiny_config(family: str = "llama", **changes: Any) -> Any:
    """A configuration of 2 layers and width 32 over 264 tokens: two more than the tokenizer's, as many models have."""
    import transformers

    ids = {"pad_token_id": PAD, "eos_token_id": END, "bos_token_id": START, "vocab_size": 264}
    if family == "gpt2":
        shape = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 512, "n_inner": 64}
        return transformers.GPT2Config(**(ids | shape | changes))
    shape = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 512,
        "tie_word_embeddings": True,
    }
    more = {"gemma2": {"head_dim": 16, "sliding_window": 16, "final_logit_softcapping": 5.0}} | _EXPERTS
    names = {"llama": "LlamaConfig", "qwen2": "Qwen2Config", "gemma2": "Gemma2Config", "cohere": "CohereConfig",
             "mixtral": "MixtralConfig", "qwen3_moe": "Qwen3MoeConfig", "deepseek_v3": "DeepseekV3Config",
             "gpt_oss": "GptOssConfig"}  # fmt: skip
    return getattr(transformers, names[family])(**(ids | shape | more.get(family, {}) | changes))


def tiny_language_model(seed: int = 0, family: str = "llama", **changes: Any) -> Any:
    """A causal language model with random weights, in evaluation mode."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(tiny_config(family, **changes)).eval()


def save_tiny_model(
    folder: Path,
    *,
    seed: int = 0,
    family: str = "llama",
    chat: bool = True,
    pad: str | None = "<|pad|>",
    tokenizer: Any = None,
    **changes: Any,
) -> Path:
    """Write a tiny language model with its tokenizer to a folder, as a person would have one."""
    tiny_language_model(seed, family, **changes).save_pretrained(folder)
    (tokenizer or tiny_tokenizer(chat=chat, pad=pad)).save_pretrained(folder)
    return folder
