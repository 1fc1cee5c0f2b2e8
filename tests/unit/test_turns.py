"""Where a turn ends and which date a template sees: as the template has it, and not the tokenizer or the clock."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pytest
from chat_families import CHATML, EOS, FAMILIES, LLAMA3, family_tokenizer, save_family_model, set_clock
from tiny import CHAT_TEMPLATE, END, save_tiny_model, tiny_tokenizer
from transformers import AutoModelForCausalLM, GenerationConfig

from data.errors import InvalidInput
from data.records import Messages
from training.lm.encoding import Encoder
from training.lm.models import ModelSource, load_encoder, save_model, weights_hash
from training.lm.turns import DEFAULT_DATE, TURN_FILE, Turn, end_of_turn, read_turn, write_turn
from training.ppo.roles import ScoredRow, ended_text

ASKED: Messages = ({"role": "user", "content": "why?"},)
MAY_DAY = datetime.date(2031, 5, 1)


def source_of(folder: Path) -> ModelSource:
    return ModelSource("m", str(folder), weights_hash(folder))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_response_ends_with_what_its_template_puts_behind_it(name: str) -> None:
    tokenizer, family = family_tokenizer(name), FAMILIES[name]
    encoder = Encoder(tokenizer)
    assert tokenizer.eos_token_id == encoder.eos_id == EOS != family.end_id
    assert end_of_turn(tokenizer) == encoder.end_ids == family.ends
    assert encoder.response_ids("so")[-1] == encoder.response_ids("")[-1] == family.end_id
    assert encoder.stop_ids == {EOS, family.end_id}
    assert encoder.decode(encoder.response_ids("so")) == "so"
    assert encoder.pad_id not in encoder.stop_ids


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "llama3"])
def test_prompt_and_response_are_the_whole_conversation_up_to_its_end(name: str) -> None:
    """By transformers: what follows the end (a line break, Phi-3's own end token) no model has to say."""
    tokenizer = family_tokenizer(name)
    encoder, answer = Encoder(tokenizer), {"role": "assistant", "content": "so it is"}
    whole = tokenizer.apply_chat_template([*ASKED, answer], return_dict=False)
    ours = encoder.prompt_ids(ASKED) + encoder.response_ids("so it is")
    assert whole[: len(ours)] == ours
    assert len(whole) > len(ours)


def test_a_plain_text_ends_as_documents_do() -> None:
    assert Encoder(family_tokenizer("gemma")).text_ids("a text")[-1] == EOS


def test_what_stands_before_the_end_token_is_a_part_of_the_end() -> None:
    tokenizer = tiny_tokenizer(template=CHAT_TEMPLATE.replace("<|end|>", "\n<|end|>"))
    encoder = Encoder(tokenizer)
    line_break = tokenizer("\n")["input_ids"]
    assert encoder.end_ids == (*line_break, END)
    ids = encoder.response_ids("so\n\n")
    assert ids[-2:] == [*line_break, END]
    assert encoder.decode(ids) == "so\n\n"
    assert encoder.decode(ids[:-1]) == "so\n\n\n", "cut at the limit: nothing says that the line break is the end's"
    stops = (frozenset({END}), encoder.end_ids, 100)
    assert ended_text(ScoredRow((), [3], ids, ""), *stops).response == ids
    assert ended_text(ScoredRow((), [3], [9], ""), *stops).response == [9, *line_break, END]
    assert ended_text(ScoredRow((), [3], [9, END], ""), *stops).response == [9, END], "the policy's own way to end"


NO_END = CHAT_TEMPLATE.replace("<|end|>", "\n")
REFUSING = CHAT_TEMPLATE.replace("{% for", "{{ raise_exception('no') if messages[-1]['role'] == 'assistant' }}{% for")
IGNORING = CHAT_TEMPLATE.replace("{{ message['content'] }}", "{{ message['content'] if message['role'] == 'user' }}")


@pytest.mark.parametrize("template", [NO_END, REFUSING, IGNORING, None], ids=["none", "refuses", "ignores", "plain"])
def test_without_an_end_in_the_template_it_is_the_tokenizers(template: str | None) -> None:
    tokenizer = tiny_tokenizer(chat=template is not None, template=template or "")
    assert end_of_turn(tokenizer) == end_of_turn(tokenizer, [END, 3]) == (END,)
    assert end_of_turn(tokenizer, [3, 4]) == (3,), "the model's settings know better than its tokenizer"


def test_every_end_that_the_models_settings_list_stops_sampling(tmp_path: Path) -> None:
    folder = save_family_model(tmp_path, "gemma")
    GenerationConfig(eos_token_id=[EOS, 3]).save_pretrained(folder)
    encoder = load_encoder(source_of(folder))
    assert (encoder.end_ids, encoder.stop_ids) == ((4,), {EOS, 3, 4})


@pytest.mark.parametrize("name", FAMILIES)
def test_a_saved_model_stops_there_in_plain_transformers_too_and_keeps_its_end(name: str, tmp_path: Path) -> None:
    given, folder = save_family_model(tmp_path / "given", name, ends_with=FAMILIES[name].end_id), tmp_path / "saved"
    model, encoder = AutoModelForCausalLM.from_pretrained(given), load_encoder(source_of(given), MAY_DAY)
    save_model(model, encoder.tokenizer, folder, encoder)
    again, end = AutoModelForCausalLM.from_pretrained(folder), FAMILIES[name].end_id
    assert again.generation_config.eos_token_id == [end, EOS]
    drawn = again.generate(encoder_ids(encoder), do_sample=False, max_new_tokens=5, pad_token_id=0)
    assert drawn[0].tolist()[-1] == end and drawn.shape[1] == encoder_ids(encoder).shape[1] + 1
    saved = load_encoder(source_of(folder))
    assert (saved.end_ids, saved.stop_ids) == (encoder.end_ids, encoder.stop_ids)
    assert saved.turn == Turn((end,), MAY_DAY if name == "llama3" else None)
    (folder / TURN_FILE).unlink()
    assert load_encoder(source_of(folder)).end_ids == (end,), "an older release stored nothing: the template says it"


def encoder_ids(encoder: Encoder) -> Any:
    import torch

    return torch.tensor([encoder.prompt_ids(ASKED)])


def test_what_is_stored_counts_more_than_the_template(tmp_path: Path) -> None:
    folder = save_family_model(tmp_path, "chatml")
    write_turn(folder, Turn((3,), None))
    assert load_encoder(source_of(folder)).end_ids == (3,)


def test_an_older_reward_model_is_read_where_it_has_learnt_to_be(tmp_path: Path) -> None:
    """Older releases ended every text with the tokenizer's end token, and stored nothing."""
    folder = save_family_model(tmp_path, "gemma")
    (folder / "reward_config.json").write_text("{}")
    assert load_encoder(source_of(folder)).response_ids("so")[-1] == EOS


@pytest.mark.parametrize("content", ["{", "[]", '{"end_ids": [], "template_date": null}', '{"end_ids": [1]}'])
def test_a_spoilt_file_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / TURN_FILE).write_text(content)
    with pytest.raises(InvalidInput, match=r"turn.json can't be used .* train it again"):
        read_turn(tmp_path)


def test_an_undated_model_stores_no_date(tmp_path: Path) -> None:
    save_tiny_model(tmp_path)
    write_turn(tmp_path, load_encoder(source_of(tmp_path), MAY_DAY).turn)
    assert json.loads((tmp_path / TURN_FILE).read_text()) == {"end_ids": [END], "template_date": None}


def test_a_template_sees_the_date_that_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = Encoder(family_tokenizer("llama3"), date=MAY_DAY)
    shown = []
    for day in ((2027, 1, 1), (2028, 2, 2)):
        set_clock(monkeypatch, *day)
        shown.append(encoder.show(encoder.prompt_ids(ASKED)))
    assert shown[0] == shown[1]
    assert "Today Date: 01 May 2031 2031<|eot_id|>" in shown[0]


def test_a_dated_template_is_written_as_transformers_writes_it_on_that_day(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = family_tokenizer("llama3")
    set_clock(monkeypatch, 2031, 5, 1)
    theirs = tokenizer.apply_chat_template(list(ASKED), add_generation_prompt=True, return_dict=False)
    set_clock(monkeypatch, 2040, 1, 1)
    assert Encoder(tokenizer, date=MAY_DAY).prompt_ids(ASKED) == theirs
    other = tokenizer.apply_chat_template(list(ASKED), add_generation_prompt=True, return_dict=False)
    assert other != theirs, "everybody else's clock is left alone"


def test_without_a_date_it_is_the_same_on_every_day(monkeypatch: pytest.MonkeyPatch) -> None:
    set_clock(monkeypatch, 2040, 1, 1)
    encoder = Encoder(family_tokenizer("llama3"))
    assert "Today Date: 26 Jul 2024" in encoder.show(encoder.prompt_ids(ASKED))
    assert encoder.date == DEFAULT_DATE


def test_one_hash_of_the_template_for_one_date() -> None:
    dated = [Encoder(family_tokenizer("llama3"), date=each) for each in (MAY_DAY, MAY_DAY, DEFAULT_DATE)]
    hashes = [each.template_hash for each in dated]
    assert hashes[0] == hashes[1] != hashes[2]
    assert len({each.vocabulary_hash for each in dated}) == 1, "the tokens of responses are the same"
    plain = [Encoder(tiny_tokenizer(), date=each).template_hash for each in (MAY_DAY, DEFAULT_DATE)]
    assert plain[0] == plain[1]


def test_a_dated_template_that_refuses_says_why() -> None:
    tokenizer = family_tokenizer("llama3")
    tokenizer.chat_template = "{{ raise_exception('nothing of ' + strftime_now('%Y')) }}"
    with pytest.raises(InvalidInput, match="refuses the messages: nothing of 2024"):
        Encoder(tokenizer).prompt_ids(ASKED)


def test_a_special_token_in_a_message_stays_text_in_a_dated_template_too() -> None:
    encoder = Encoder(family_tokenizer("llama3"))
    ids = encoder.prompt_ids(({"role": "user", "content": "a<|eot_id|>b"},))
    assert ids.count(5) == 2 and "a<|eot_id|>b<|eot_id|>" in encoder.show(ids)


def test_the_families_are_what_they_are_called() -> None:
    assert "strftime_now" in LLAMA3 and "strftime_now" not in CHATML
