"""Text to ids and back: the template applied once, the end token always there, what people wrote stays text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from tiny import BOS_TEMPLATE, END, SPECIAL, START, STRICT_TEMPLATE, save_tiny_model, tiny_tokenizer

from data.errors import InvalidInput
from data.records import Messages
from data.text import clean_text
from training.lm.encoding import Encoder, Sequences, fit, pack
from training.lm.models import ModelSource, load_encoder, weights_hash

ASSISTANT = SPECIAL.index("<|assistant|>")
PLAIN = tiny_tokenizer()


def asked(text: str, system: str | None = None) -> Messages:
    before = () if system is None else ({"role": "system", "content": system},)
    return (*before, {"role": "user", "content": text})


def by_transformers(tokenizer: Any, messages: Messages) -> list[int]:
    ids: list[int] = tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, return_dict=False)
    return ids


@given(st.text(max_size=40).map(clean_text))
def test_ordinary_text_has_the_ids_that_transformers_gives_it(text: str) -> None:
    messages = asked(text, "Be brief.")
    assert Encoder(PLAIN).prompt_ids(messages) == by_transformers(PLAIN, messages)


@pytest.mark.parametrize("special", SPECIAL)
def test_a_special_token_in_a_message_stays_text(special: str) -> None:
    encoder = Encoder(PLAIN)
    ids = encoder.prompt_ids(asked(f"a{special}b {special}", f"{special}"))
    ours = encoder.prompt_ids(asked("a-b -", "-"))
    counted = {token: sum(each == place for each in ids) for place, token in enumerate(SPECIAL)}
    assert counted == {token: sum(each == place for each in ours) for place, token in enumerate(SPECIAL)}
    assert encoder.show(ids) == f"<|system|>{special}<|end|><|user|>a{special}b {special}<|end|><|assistant|>"


pieces = st.lists(st.sampled_from([*SPECIAL, "<|", "end", "|>", " ", "é", "\ue0000\ue001", "x"]), max_size=8)


@given(pieces, pieces)
def test_no_text_can_forge_a_token_or_change_what_is_read(one: list[str], two: list[str]) -> None:
    messages = asked("".join(one), "".join(two))
    ids = Encoder(PLAIN).prompt_ids(messages)
    special = [each for each in ids if each < len(SPECIAL)]
    assert special == [5, END, 3, END, ASSISTANT]
    shown = Encoder(PLAIN).show(ids)
    assert shown == f"<|system|>{messages[0]['content']}<|end|><|user|>{messages[1]['content']}<|end|><|assistant|>"


def test_a_special_token_in_a_response_stays_text_and_does_not_end_it() -> None:
    ids = Encoder(PLAIN).response_ids("so<|end|>on")
    assert ids.count(END) == 1 and ids[-1] == END
    assert Encoder(PLAIN).decode(ids) == "so<|end|>on"


def test_a_template_sees_the_message_itself_also_where_a_special_token_is_in_it() -> None:
    encoder = Encoder(tiny_tokenizer(template=STRICT_TEMPLATE))  # it trims what people wrote
    assert encoder.show(encoder.prompt_ids(asked("  <|end|>, no?  "))) == "<|user|><|end|>, no?<|end|><|assistant|>"


def test_every_response_ends_with_the_end_token_once() -> None:
    encoder = Encoder(PLAIN)
    assert encoder.response_ids("") == [END]
    assert encoder.response_ids("ab")[-1] == END
    assert encoder.response_ids("ab").count(END) == 1


@pytest.mark.parametrize("chat", [True, False])
def test_the_start_token_comes_once(chat: bool) -> None:
    tokenizer = tiny_tokenizer(chat=chat, adds_bos=True, template=BOS_TEMPLATE)
    ids = Encoder(tokenizer).prompt_ids(asked("hello"))
    assert ids.count(START) == 1 and ids[0] == START
    assert Encoder(tokenizer).response_ids("hello").count(START) == 0
    wanted = by_transformers(tokenizer, asked("hello")) if chat else tokenizer("hello")["input_ids"]
    assert ids == wanted


def test_without_a_template_the_messages_are_joined_as_plain_text() -> None:
    encoder = Encoder(tiny_tokenizer(chat=False))
    ids = encoder.prompt_ids(asked("What now? <|end|>", "Be brief."))
    assert encoder.show(ids) == "Be brief.\n\nWhat now? <|end|>"
    assert all(each >= len(SPECIAL) for each in ids)


def test_a_template_that_refuses_says_why() -> None:
    encoder = Encoder(tiny_tokenizer(template=STRICT_TEMPLATE))
    with pytest.raises(InvalidInput, match=r"chat template refuses the messages: System role not supported"):
        encoder.prompt_ids(asked("hello", "Be brief."))


def test_a_prompt_without_a_token_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no token"):
        Encoder(tiny_tokenizer(chat=False)).prompt_ids(asked(""))


def test_a_tokenizer_without_an_end_token_is_refused() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.eos_token = None
    with pytest.raises(InvalidInput, match="no end token"):
        Encoder(tokenizer)


def test_padding_is_the_tokenizers_own_where_that_ends_nothing() -> None:
    encoder = Encoder(PLAIN)
    assert (encoder.pad_id, encoder.is_pad_shared) == (0, False)


@pytest.mark.parametrize("pad", [None, "<|end|>"], ids=["no padding token", "padding is the end token"])
def test_padding_is_another_unused_special_token_where_there_is_one(pad: str | None) -> None:
    encoder = Encoder(tiny_tokenizer(pad=pad))
    assert encoder.pad_id not in encoder.stop_ids
    assert encoder.tokenizer.added_tokens_decoder[encoder.pad_id].special
    assert not encoder.is_pad_shared


def test_padding_is_any_token_but_the_end_where_the_end_is_the_only_special_one() -> None:
    encoder = Encoder(tiny_tokenizer(only_end=True, pad=None))
    assert encoder.stop_ids == {0}
    assert encoder.pad_id not in encoder.stop_ids
    assert encoder.is_pad_shared


def test_the_demo_models_case_padding_equal_to_end_changes_no_id() -> None:
    shared, own = Encoder(tiny_tokenizer(pad="<|end|>")), Encoder(PLAIN)
    assert shared.prompt_ids(asked("hello")) == own.prompt_ids(asked("hello"))
    batch = pack([[9, 9]], [shared.response_ids("ab")], shared.pad_id)
    assert batch.mask.sum() == 3  # the end token counts although the tokenizer calls it padding


def test_end_tokens_may_be_a_list_in_the_models_own_settings(tmp_path: Path) -> None:
    from transformers import GenerationConfig

    save_tiny_model(tmp_path)
    GenerationConfig(eos_token_id=[END, 3]).save_pretrained(tmp_path)
    encoder = load_encoder(ModelSource("m", str(tmp_path), weights_hash(tmp_path)))
    assert encoder.stop_ids == {END, 3}
    assert encoder.eos_id == END
    assert encoder.decode([*encoder.response_ids("hm")[:-1], 3]) == "hm"


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),  # a lone surrogate
        (b"caf\xc3", "caf\ufffd"),  # half a letter
        (b"a\x00b", "ab"),
        (b"one\r\ntwo", "one\ntwo"),
    ],
)
def test_broken_output_becomes_text_that_everything_can_store(raw: bytes, text: str) -> None:
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    letters = bytes_to_unicode()
    ids = PLAIN.convert_tokens_to_ids([letters[each] for each in raw])
    decoded = Encoder(PLAIN).decode([*ids, END])
    assert decoded == text
    assert Encoder(PLAIN).decode(Encoder(PLAIN).response_ids(decoded)) == text


@pytest.mark.parametrize("text", ["it 's here .", " two  spaces ", "", "\n\n", "🙂 é ü"])
def test_a_text_comes_back_as_it_was(text: str) -> None:
    encoder = Encoder(PLAIN)
    assert encoder.decode(encoder.response_ids(text)) == text


def test_fit_cuts_the_prompt_on_its_left_and_keeps_the_response() -> None:
    fitted = fit([1, 2, 3, 4, 5], [6, 7, END], 6)
    assert (fitted.prompt, fitted.response) == ([3, 4, 5], [6, 7, END])
    assert (fitted.is_prompt_cut, fitted.is_response_cut) == (True, False)


def test_fit_cuts_a_response_only_if_it_must_and_keeps_its_end() -> None:
    fitted = fit([1, 2, 3], [*range(10, 20), END], 6)
    assert (fitted.prompt, fitted.response) == ([3], [10, 11, 12, 13, END])
    assert (fitted.is_prompt_cut, fitted.is_response_cut) == (True, True)


@given(st.integers(1, 30), st.integers(0, 30), st.integers(8, 40))
def test_what_fits_has_a_prompt_token_an_end_and_at_most_the_length(n_prompt: int, n_words: int, limit: int) -> None:
    prompt, response = list(range(100, 100 + n_prompt)), [*range(10, 10 + n_words), END]
    fitted = fit(prompt, response, limit)
    assert len(fitted.prompt) >= 1 and fitted.response[-1] == END
    assert len(fitted.prompt) + len(fitted.response) <= limit
    assert fitted.prompt == prompt[-len(fitted.prompt) :]
    assert fitted.response[:-1] == response[: len(fitted.response) - 1]
    assert fitted.is_prompt_cut == (fitted.prompt != prompt)
    assert fitted.is_response_cut == (fitted.response != response)
    assert (fitted.prompt, fitted.response) == (prompt, response) or n_prompt + n_words + 1 > limit


def test_pack_puts_padding_after_everything_that_counts() -> None:
    batch = pack([[5, 6, 7], [8]], [[9, END], [10, 11, 12, END]], pad_id=0)
    assert batch.ids.tolist() == [[5, 6, 7, 9, END], [8, 10, 11, 12, END]]
    assert batch.mask.tolist() == [[True, True, False, False], [True] * 4]
    assert batch.prompt_lengths.tolist() == [3, 1]
    assert batch.response_tokens().tolist() == [9, END, 10, 11, 12, END]
    with pytest.raises(ValueError, match="at least one token"):
        pack([[1]], [[]], pad_id=0)


@pytest.mark.parametrize(
    ("response", "length", "ended"),
    [([9, 5, END], 3, True), ([9, 5, 4, 7, 8], 5, False), ([END], 1, True)],
    ids=["ends", "is cut off", "is the end token alone"],
)
def test_a_response_is_as_long_as_its_tokens_with_the_end_among_them(
    response: list[int], length: int, ended: bool
) -> None:
    batch = pack([[3]], [response], pad_id=0)
    assert int(batch.mask.sum()) == length
    assert (batch.response_tokens()[-1] == END) == ended


def test_rows_of_a_batch_lose_only_padding() -> None:
    batch = pack([[5, 6, 7], [8], [4, 4]], [[9, END], [10, 11, 12, END], [END]], pad_id=0)
    part = batch.rows(torch.tensor([2, 0]))
    alone = pack([[4, 4], [5, 6, 7]], [[END], [9, END]], pad_id=0)
    assert isinstance(part, Sequences)
    for one, other in zip(part, alone, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_vocabulary_and_template_together_make_the_hash(family: str, tmp_path: Path) -> None:
    save_tiny_model(tmp_path, family=family)
    loaded = load_encoder(ModelSource("m", str(tmp_path), weights_hash(tmp_path)))
    assert loaded.vocabulary_hash == Encoder(PLAIN).vocabulary_hash
    assert loaded.template_hash == Encoder(PLAIN).template_hash
    assert Encoder(tiny_tokenizer(template=BOS_TEMPLATE)).vocabulary_hash != loaded.vocabulary_hash
    assert Encoder(tiny_tokenizer(only_end=True, pad=None)).vocabulary_hash != loaded.vocabulary_hash
