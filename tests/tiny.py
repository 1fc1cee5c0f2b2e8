"""Tiny real models, made in code: a byte-level tokenizer and transformers of a few thousand weights. No hub."""

from __future__ import annotations

from pathlib import Path

CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def tiny_tokenizer(*, chat: bool = True, pad: str | None = "<|pad|>"):
    """A byte-level tokenizer. `pad`: its padding token; None: it has none; '<|end|>': its end token, as SmolLM2's."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = ["<|pad|>", "<|end|>", "<|start|>", "<|user|>", "<|assistant|>", "<|system|>"]
    vocabulary = {token: place for place, token in enumerate(special + alphabet)}
    built = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    built.decoder = decoders.ByteLevel()
    present = special if pad == "<|pad|>" else special[1:]
    built.add_special_tokens(present)
    words = {"eos_token": "<|end|>", "bos_token": "<|start|>"} | ({"pad_token": pad} if pad else {})
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=built, **words)
    tokenizer.chat_template = CHAT_TEMPLATE if chat else None
    return tokenizer


def tiny_config(**changes):
    """A Llama of 2 layers and width 32 over the tokenizer's 262 tokens."""
    from transformers import LlamaConfig

    values = {
        "vocab_size": 262,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 512,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "bos_token_id": 2,
        "tie_word_embeddings": True,
    }
    return LlamaConfig(**(values | changes))


def tiny_language_model(seed: int = 0, **changes):
    import torch
    from transformers import LlamaForCausalLM

    torch.manual_seed(seed)
    return LlamaForCausalLM(tiny_config(**changes)).eval()


def save_tiny_model(folder: Path, *, seed: int = 0, chat: bool = True, pad: str | None = "<|pad|>", **changes) -> Path:
    """Write a tiny language model with its tokenizer to a folder, as a person would have one."""
    model = tiny_language_model(seed, **changes)
    model.save_pretrained(folder)
    tiny_tokenizer(chat=chat, pad=pad).save_pretrained(folder)
    return folder
