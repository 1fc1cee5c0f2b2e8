"""Texts that a language model learns from: plain ones, and prompts with a response, from people's files.

plain     {"text": "..."}
a pair    {"prompt": "text" | "messages": [{"role", "content"}...], "response": "text"}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from data.errors import InvalidInput
from data.files.rows import Problem, Row, read_rows
from data.messages import checked_text, parse_messages, structure
from data.records import Messages

_FIELDS = ("text", "prompt", "messages", "response")


class LanguageText(NamedTuple):
    """A plain text, or a response to `messages`."""

    line: int
    text: str
    messages: Messages | None = None


class Unfit(NamedTuple):
    """A row that is neither. `reason`: one word to count it by: unreadable, no_text, both_kinds, empty, bad_text or
    bad_prompt."""

    line: int
    reason: str
    message: str


def read_texts(path: Path) -> Iterator[LanguageText | Unfit]:
    """Yield the rows of a file in their order. Raises InvalidInput for what concerns the whole file."""
    for row in read_rows(path):
        yield Unfit(row.line, "unreadable", row.message) if isinstance(row, Problem) else _text_of(row)


def check_has_text(path: Path) -> None:
    """Raises InvalidInput if no row of the file can be used; reads up to the first that can."""
    reasons, first = Counter[str](), ""
    for row in read_texts(path):
        if isinstance(row, LanguageText):
            return
        reasons[row.reason] += 1
        first = first or f"line {row.line}: {row.message}"
    raise InvalidInput(f"{path.name}: no row can be used as a text{found_words(reasons)}; {first or 'it has none'}")


def found_words(reasons: Counter[str]) -> str:
    """` (2 empty, 1 no text)`; nothing where there is nothing to count."""
    words = ", ".join(f"{n} {reason.replace('_', ' ')}" for reason, n in reasons.items() if n)
    return f" ({words})" if words else ""


def _text_of(row: Row) -> LanguageText | Unfit:
    value = {name: each for name, each in row.value.items() if name in _FIELDS and each not in (None, "")}
    kinds = set(value)
    if not kinds & {"text", "response"}:
        if any(name in row.value for name in ("text", "response")):
            return Unfit(row.line, "empty", "the text or the response is empty")
        has = ", ".join(map(repr, sorted(row.value))) or "nothing"
        return Unfit(row.line, "no_text", f"no 'text', and no 'response' with its prompt; the row has {has}")
    if (kinds - {"text"} and "text" in kinds) or {"prompt", "messages"} <= kinds:
        words = "a row is a plain text ('text'), or a 'response' with one of 'prompt' and 'messages'"
        return Unfit(row.line, "both_kinds", f"{words}; this one has {', '.join(map(repr, sorted(kinds)))}")
    if kinds == {"response"}:
        return Unfit(row.line, "no_text", "a 'response' without its 'prompt' or 'messages'; a plain text is a 'text'")
    return _checked(row.line, value)


def _checked(line: int, value: dict[str, Any]) -> LanguageText | Unfit:
    name = "text" if "text" in value else "response"
    if not isinstance(value[name], str):
        return Unfit(line, "bad_text", f"{name} is {value[name]!r:.60}; a text is needed")
    if not value[name].strip():
        return Unfit(line, "empty", f"the {name} is empty")
    try:
        text = checked_text(value[name], f"the {name}")
    except InvalidInput as error:
        return Unfit(line, "bad_text", str(error))
    if name == "text":
        return LanguageText(line, text)
    try:
        given = value["prompt"] if "prompt" in value else structure(value["messages"])
        return LanguageText(line, text, parse_messages(given))
    except InvalidInput as error:
        return Unfit(line, "bad_prompt", str(error))
