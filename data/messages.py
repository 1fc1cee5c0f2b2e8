"""Prompts and texts of people's files, checked: what every reader of rows agrees on."""

from __future__ import annotations

import json
from typing import Any

from data.errors import InvalidInput
from data.records import Messages
from data.text import clean_text, clean_value

ROLES = ("system", "user", "assistant")
MAX_TEXT_LENGTH = 1_000_000


def parse_messages(value: Any) -> Messages:
    """A prompt's text, or its chat messages, as messages that end with the user's. Raises InvalidInput."""
    if isinstance(value, str):
        return ({"role": "user", "content": checked_text(value, "the prompt")},)
    if not isinstance(value, list) or not value:
        raise InvalidInput(f"the prompt is {value!r:.60}; a text or a list of messages is needed")
    messages = []
    for number, message in enumerate(value, start=1):
        if not isinstance(message, dict) or not isinstance(message.get("content"), str):
            raise InvalidInput(f"message {number} is {message!r:.60}; an object with 'role' and 'content' is needed")
        role = {"prompter": "user", "human": "user"}.get(str(message.get("role")), message.get("role"))
        if role not in ROLES:
            raise InvalidInput(f"message {number} has the role {message.get('role')!r}; one of {ROLES} is needed")
        content = checked_text(message["content"], f"message {number}", may_be_empty=role != "user")
        messages.append({"role": role, "content": content})
    if messages[-1]["role"] != "user":
        raise InvalidInput(f"the last message is from {messages[-1]['role']!r}; a prompt ends with the user's message")
    return tuple(messages)


def structure(value: Any) -> Any:
    """A list or an object that a table holds as JSON text, as such; everything else as it is."""
    if isinstance(value, str) and value.strip()[:1] in ("[", "{"):
        try:
            return clean_value(json.loads(value))
        except (ValueError, RecursionError):
            return value
    return value


def checked_text(value: str, what: str, *, may_be_empty: bool = False) -> str:
    """The text, clean. Raises InvalidInput if it is empty or too long."""
    text = clean_text(value)
    if not text.strip() and not may_be_empty:
        raise InvalidInput(f"{what} is empty")
    if len(text) > MAX_TEXT_LENGTH:
        raise InvalidInput(f"{what} has {len(text):,} characters; at most {MAX_TEXT_LENGTH:,} are allowed")
    return text
