"""Where an assistant's turn ends, and the date that a chat template sees: decided here, and stored with every model.

A tokenizer's end token (eos) ends documents. Many chat models end a turn with another one, which their template puts
after an assistant's content: Gemma's <end_of_turn>, Phi-3's <|end|>, <|im_end|> on a base that ends with
<|endoftext|>, Llama 3's <|eot_id|>. A model that is taught eos there unlearns to stop.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data.errors import InvalidInput
from data.records import Message

TURN_FILE = "turn.json"  # beside a model that we saved
DEFAULT_DATE = datetime.date(2024, 7, 26)  # where no run says which: what Llama 3's template takes without a clock
_CONTENT = "\ue000x\ue001"  # private-use characters that no template looks for
_CLOCK = "strftime_now"  # the only way in which a template can ask for the date


@dataclass(frozen=True)
class Turn:
    """end_ids: what stands after a response, up to the token that ends it. date: what a dated template was given."""

    end_ids: tuple[int, ...]
    date: datetime.date | None


def end_of_turn(tokenizer: Any, listed: Sequence[int] = ()) -> tuple[int, ...]:
    """The ids that stand after a response: what the template puts behind an assistant's content, up to and including
    its first special token. What a template puts behind that (a line break) no model has to say.

    Without a template, or one that puts no such token there: the tokenizer's end token, or the first of those that the
    model's generation settings list (`listed`) if its own is not among them.
    """
    added = {int(place) for place, token in tokenizer.added_tokens_decoder.items() if str(token).strip()}
    known = {*added, *listed, tokenizer.eos_token_id}  # some have white space among their added tokens: not that
    behind = _ids_behind(tokenizer, _text_behind_content(tokenizer))
    end = next((place for place, token in enumerate(behind) if token in known), None)
    if end is not None:
        return tuple(behind[: end + 1])
    return (listed[0] if listed and tokenizer.eos_token_id not in listed else tokenizer.eos_token_id,)


def render(
    tokenizer: Any, messages: Sequence[Message], date: datetime.date, *, add_generation_prompt: bool = True
) -> str:
    """The messages as the tokenizer's template writes them, on `date` whatever the clock says."""
    if not is_dated(tokenizer):
        words = {"tokenize": False, "add_generation_prompt": add_generation_prompt}
        return str(tokenizer.apply_chat_template(list(messages), **words))
    # transformers gives templates its clock as a global name and passes no function on; what is handed to the compiled
    # template itself comes before global names, and changes nothing for anybody else.
    from transformers.utils.chat_template_utils import _compile_jinja_template

    def strftime_now(form: str) -> str:
        return datetime.datetime.combine(date, datetime.time()).strftime(form)

    given = {"messages": [dict(each) for each in messages], "tools": None, "documents": None, _CLOCK: strftime_now}
    template = _compile_jinja_template(tokenizer.chat_template)
    return str(template.render(tokenizer.special_tokens_map | given, add_generation_prompt=add_generation_prompt))


def is_dated(tokenizer: Any) -> bool:
    """Whether the tokenizer's template asks for the date."""
    return _CLOCK in (tokenizer.chat_template or "")


def write_turn(folder: Path, turn: Turn) -> None:
    """Store it beside a model."""
    content = {"end_ids": list(turn.end_ids), "template_date": turn.date.isoformat() if turn.date else None}
    (folder / TURN_FILE).write_text(json.dumps(content, indent=2), encoding="utf-8")


def read_turn(folder: Path) -> Turn | None:
    """What is stored beside a model; None for one that others or an older release made. Raises InvalidInput for a file
    that is spoilt: responses would end with another token than the model learnt."""
    path = folder / TURN_FILE
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        date = content["template_date"]
        end_ids = tuple(int(each) for each in content["end_ids"])
        if not end_ids:
            raise ValueError("end_ids is empty")
        return Turn(end_ids, datetime.date.fromisoformat(date) if date else None)
    except (ValueError, TypeError, KeyError) as error:
        raise InvalidInput(
            f"{path} can't be used ({error}); copy the model's folder again, or train it again"
        ) from error


def _text_behind_content(tokenizer: Any) -> str:
    """What the template writes behind the last assistant's content; nothing where it has no such turn."""
    if not tokenizer.chat_template:
        return ""
    messages = ({"role": "user", "content": "x"}, {"role": "assistant", "content": _CONTENT})
    try:
        rendered = render(tokenizer, messages, DEFAULT_DATE, add_generation_prompt=False)
    except Exception:  # a template is a program of its own and may raise anything
        return ""
    return rendered.rpartition(_CONTENT)[2] if _CONTENT in rendered else ""


def _ids_behind(tokenizer: Any, text: str) -> list[int]:
    """The ids of a text that stands behind a word: some tokenizers put a space before whatever is first."""
    word, both = (list(tokenizer(each, add_special_tokens=False)["input_ids"]) for each in ("x", f"x{text}"))
    if both[: len(word)] == word:
        return both[len(word) :]
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])
