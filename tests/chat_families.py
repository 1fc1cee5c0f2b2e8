"""Tokenizers whose turns end with another token than the tokenizer's own end, with the templates of real families."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tiny import tiny_language_model
from transformers.utils import chat_template_utils

_LOOP = "{% for message in messages %}"
_PROMPT = "{% endfor %}{% if add_generation_prompt %}"
GEMMA = (  # its assistant is called model
    "{{ bos_token }}" + _LOOP + "{% set role = 'model' if message['role'] == 'assistant' else message['role'] %}"
    "{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}"
    + _PROMPT + "{{ '<start_of_turn>model\n' }}{% endif %}"
)  # fmt: skip
PHI3 = (  # a whole conversation gets the tokenizer's end token on top
    _LOOP + "{{ '<|' + message['role'] + '|>\n' + message['content'] + '<|end|>\n' }}"
    + _PROMPT + "{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}"
)  # fmt: skip
CHATML = (  # on a base model whose documents end with <|endoftext|>, as Qwen's
    _LOOP + "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    + _PROMPT + "{{ '<|im_start|>assistant\n' }}{% endif %}"
)  # fmt: skip
LLAMA3 = (  # with today's date, as Llama 3.2's, in a macro as well
    "{% if not date_string is defined %}{% if strftime_now is defined %}"
    "{% set date_string = strftime_now('%d %b %Y') %}{% else %}{% set date_string = '26 Jul 2024' %}{% endif %}"
    "{% endif %}{% macro year() %}{{ strftime_now('%Y') }}{% endmacro %}"
    "{{ bos_token + '<|start_header_id|>system<|end_header_id|>\n\nToday Date: ' + date_string + ' ' + year() }}"
    "{{ '<|eot_id|>' }}" + _LOOP +
    "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' }}"
    + _PROMPT + "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)  # fmt: skip


@dataclass(frozen=True)
class ChatFamily:
    """special: padding (id 0), the tokenizer's end (1), its start (2), then the others. ends: ids behind a response."""

    special: tuple[str, ...]
    template: str
    ends: tuple[int, ...]

    @property
    def end_id(self) -> int:
        return self.ends[-1]


EOS = 1
FAMILIES = {
    "gemma": ChatFamily(("<pad>", "<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>"), GEMMA, (4,)),
    "phi3": ChatFamily(
        ("<unk>", "<|endoftext|>", "<s>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>"), PHI3, (6,)
    ),
    "chatml": ChatFamily(("<pad>", "<|endoftext|>", "<s>", "<|im_start|>", "<|im_end|>"), CHATML, (4,)),
    "llama3": ChatFamily(
        (
            "<pad>", "<|end_of_text|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
            "<|eot_id|>",
        ),
        LLAMA3,
        (5,),
    ),
}  # fmt: skip


def family_tokenizer(name: str, **changes: Any) -> Any:
    """A byte-level tokenizer with a family's special tokens and template. `changes`: of the special ones."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    family = FAMILIES[name]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: place for place, token in enumerate([*family.special, *alphabet])}
    built = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    built.decoder = decoders.ByteLevel()
    built.add_special_tokens(list(family.special))
    pad, eos, bos = family.special[:3]
    words = {"pad_token": pad, "eos_token": eos, "bos_token": bos} | changes
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=built, **words)
    tokenizer.chat_template = family.template
    return tokenizer


def save_family_model(folder: Path, name: str, *, ends_with: int | None = None, seed: int = 0) -> Path:
    """A tiny GPT-2 in a folder. `ends_with`: a token that it says next with a probability of a half, whatever came."""
    import math

    import torch

    model = tiny_language_model(seed, "gpt2", tie_word_embeddings=False)
    if ends_with is not None:
        with torch.no_grad():
            model.transformer.ln_f.weight.zero_()
            model.transformer.ln_f.bias.zero_()
            model.transformer.ln_f.bias[0] = 1.0
            model.lm_head.weight.zero_()
            model.lm_head.weight[ends_with, 0] = math.log(263)  # of 264 tokens
    model.save_pretrained(folder)
    family_tokenizer(name).save_pretrained(folder)
    return folder


def set_clock(monkeypatch: pytest.MonkeyPatch, *day: int) -> None:
    """What transformers gives to templates as today."""

    class Clock(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:  # type: ignore[override]
            return datetime.datetime(*day, tzinfo=tz)  # type: ignore[misc]

    monkeypatch.setattr(chat_template_utils, "datetime", Clock)
