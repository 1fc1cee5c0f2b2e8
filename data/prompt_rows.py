"""Prompts of a file that runs sample from, in the native format, as in an import.

{"prompt": "text" | "messages": [{"role", "content"}...], "facts"?: "text"}; further fields are for other readers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from data.errors import InvalidInput
from data.files import Problem, Row, read_rows
from data.messages import checked_text, parse_messages, structure
from data.records import Messages

MOST_TOLD = 5


class PromptRow(NamedTuple):
    line: int
    messages: Messages
    facts: str = ""


def read_prompts(path: Path) -> Iterator[PromptRow | Problem]:
    """Yield the prompts of a file and what is wrong with its other lines, in their order.

    Raises InvalidInput for what concerns the whole file.
    """
    for row in read_rows(path):
        try:
            yield row if isinstance(row, Problem) else _prompt_of(row)
        except InvalidInput as error:
            yield Problem(row.line, str(error))


def check_has_prompt(path: Path) -> None:
    """Raises InvalidInput if no row of the file is a prompt; reads up to the first that is."""
    problems: list[Problem] = []
    for row in read_prompts(path):
        if isinstance(row, PromptRow):
            return
        problems.append(row)
    raise InvalidInput(f"{path.name}: no row can be used as a prompt; {told(problems) or 'it has none'}")


def told(problems: list[Problem]) -> str:
    """`line 3: no 'prompt' ...; line 4: ...`, the first few, and how many more there are."""
    words = [f"line {each.line}: {each.message}" for each in problems[:MOST_TOLD]]
    more = len(problems) - MOST_TOLD
    return "; ".join(words) + (f"; and {more} more" if more > 0 else "")


def _prompt_of(row: Row) -> PromptRow:
    given = {name: row.value[name] for name in ("prompt", "messages") if row.value.get(name) not in (None, "")}
    if not given and ("prompt" in row.value or "messages" in row.value):
        raise InvalidInput("the prompt is empty")
    if not given:
        has = ", ".join(map(repr, sorted(row.value))) or "nothing"
        raise InvalidInput(f"no 'prompt' and no 'messages'; the row has {has}")
    if len(given) > 1:
        raise InvalidInput("both 'prompt' and 'messages'; one of them is needed")
    value = structure(given["messages"]) if "messages" in given else given["prompt"]
    facts = row.value.get("facts")
    if facts is not None and not isinstance(facts, str):
        raise InvalidInput(f"facts is {facts!r:.60}; a text is needed")
    return PromptRow(row.line, parse_messages(value), checked_text(facts or "", "facts", may_be_empty=True))
