"""Rows of imported files, in the native format, as records. Every message says what was found and what is needed.

prompt    {"id"?, "prompt": "text" | "messages": [{"role", "content"}...], "split"?, "meta"?}
responses {"prompt_id" | "prompt" | "messages", "responses": ["text", ...] | [{"text", "model"?, "meta"?}...]}
ranking   {"prompt" | "messages", "responses": [...], "ranks": [1, 2, 2, 4], "annotator"?, "status"?, ...}
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from data.errors import InvalidInput
from data.records import Messages, NewPrompt, NewResponse, Split
from data.text import clean_text
from labeling.ranks import competition_ranks

ROLES = ("system", "user", "assistant")
PROMPT_FIELDS = ("prompt", "messages", "instruction", "question", "text")
MAX_TEXT_LENGTH = 1_000_000
_OWN_FIELDS = {"id", "prompt", "messages", "split", "meta", "prompt_id", "responses", "ranks"}
_RANKING_FIELDS = {"annotator", "status", "flags", "duration_ms", "skip_reason", "comment"}


@dataclass(frozen=True)
class ParsedRanking:
    """A finished ranking from a file. `ranks` is None for a skipped one."""

    prompt: NewPrompt
    responses: tuple[NewResponse, ...]
    ranks: tuple[int, ...] | None
    annotator: str
    skip_reason: str | None
    comment: str
    duration_ms: int | None


def parse_prompt(row: dict[str, Any], prompt_field: str | None = None) -> NewPrompt:
    """Read a prompt row. `prompt_field` names the field with the text where it is none of the usual ones.

    Fields that are not ours are kept under `meta`. Raises InvalidInput.
    """
    field = prompt_field or next((name for name in PROMPT_FIELDS if name in row), None)
    if field is None or field not in row:
        wanted = f"field {prompt_field!r}" if prompt_field else f"field of {', '.join(map(repr, PROMPT_FIELDS))}"
        raise InvalidInput(f"no {wanted}; the row has {', '.join(map(repr, sorted(row))) or 'nothing'}")
    split = row.get("split")
    if split not in (None, "", *Split):
        raise InvalidInput(f"split {split!r}: only 'train', 'eval' or nothing is allowed")
    meta = row.get("meta") or {}
    if not isinstance(meta, dict):
        raise InvalidInput(f"meta is {type(meta).__name__}; a JSON object is needed")
    unknown = {name: value for name, value in row.items() if name not in _OWN_FIELDS | _RANKING_FIELDS | {field}}
    external = row.get("id", row.get("prompt_id"))
    return NewPrompt(
        messages=parse_messages(row[field]),
        split=Split(split) if split else None,
        external_id=None if external is None else str(external),
        meta=meta | unknown,
    )


def parse_messages(value: Any) -> Messages:
    """A prompt's text, or its chat messages, as messages that end with the user's. Raises InvalidInput."""
    if isinstance(value, str):
        return ({"role": "user", "content": _text(value, "the prompt")},)
    if not isinstance(value, list) or not value:
        raise InvalidInput(f"the prompt is {value!r:.60}; a text or a list of messages is needed")
    messages = []
    for place, message in enumerate(value, start=1):
        if not isinstance(message, dict) or not isinstance(message.get("content"), str):
            raise InvalidInput(f"message {place} is {message!r:.60}; an object with 'role' and 'content' is needed")
        role = {"prompter": "user", "human": "user"}.get(str(message.get("role")), message.get("role"))
        if role not in ROLES:
            raise InvalidInput(f"message {place} has the role {message.get('role')!r}; one of {ROLES} is needed")
        content = message["content"] if role != "user" else _text(message["content"], f"message {place}")
        messages.append({"role": role, "content": clean_text(content)})
    if messages[-1]["role"] != "user":
        raise InvalidInput(f"the last message is from {messages[-1]['role']!r}; a prompt ends with the user's message")
    return tuple(messages)


def parse_responses(row: dict[str, Any]) -> tuple[NewResponse, ...]:
    """Read the `responses` of a row: texts, or objects with a text and where it came from. Raises InvalidInput."""
    values = row.get("responses")
    if not isinstance(values, list) or not values:
        raise InvalidInput("no 'responses': a list of texts, or of objects with a 'text', is needed")
    responses = []
    for place, value in enumerate(values, start=1):
        entry = {"text": value} if isinstance(value, str) else value
        if not isinstance(entry, dict) or not isinstance(entry.get("text"), str):
            raise InvalidInput(f"response {place} is {value!r:.60}; a text, or an object with a 'text', is needed")
        meta = entry.get("meta") or {}
        if not isinstance(meta, dict):
            raise InvalidInput(f"response {place}: meta is {type(meta).__name__}; a JSON object is needed")
        provenance = {name: each for name, each in entry.items() if name not in ("text", "model", "meta")} | meta
        text = _text(entry["text"], f"response {place}")
        responses.append(NewResponse(text, str(entry.get("model") or ""), {"source": "import"} | provenance))
    return tuple(responses)


def parse_ranking(row: dict[str, Any]) -> ParsedRanking:
    """Read a finished ranking. Dense and competition ranks are accepted. Raises InvalidInput."""
    prompt, responses = parse_prompt(row), parse_responses(row)
    status = row.get("status") or "ranked"
    if status not in ("ranked", "skipped"):
        raise InvalidInput(f"status {status!r}: only 'ranked' or 'skipped' is allowed")
    ranks = None
    if status == "ranked":
        given = row.get("ranks")
        if not isinstance(given, list) or len(given) != len(responses):
            found = f"{len(given)} ranks" if isinstance(given, list) else "no 'ranks'"
            raise InvalidInput(f"{found} for {len(responses)} responses; one rank for each response is needed")
        ranks = competition_ranks(given)
    duration = row.get("duration_ms")
    return ParsedRanking(
        prompt=prompt,
        responses=responses,
        ranks=ranks,
        annotator=str(row.get("annotator") or ""),
        skip_reason=None if ranks else str(row.get("skip_reason") or "skipped in the imported file"),
        comment=clean_text(str(row.get("comment") or "")),
        duration_ms=duration if isinstance(duration, int) and 0 <= duration < 2**31 else None,
    )


def _text(value: str, what: str) -> str:
    text = clean_text(value)
    if not text.strip():
        raise InvalidInput(f"{what} is empty")
    if len(text) > MAX_TEXT_LENGTH:
        raise InvalidInput(f"{what} has {len(text):,} characters; at most {MAX_TEXT_LENGTH:,} are allowed")
    return text
