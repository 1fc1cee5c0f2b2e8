"""Prompts of a file that runs sample from, and prompts with responses that runs score, in the native format.

{"prompt": "text" | "messages": [{"role", "content"}...], "responses"?: ["text", ...] | [{"text"}...], "facts"?: "text"}
Further fields are for other readers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from data.errors import InvalidInput
from data.files.rows import Problem, Row, read_rows
from data.messages import checked_text, parse_messages, structure
from data.records import Messages

MOST_TOLD = 5


class PromptRow(NamedTuple):
    line: int
    messages: Messages
    facts: str = ""
    responses: tuple[str, ...] = ()


def read_prompts(path: Path, *, with_responses: bool = False) -> Iterator[PromptRow | Problem]:
    """Yield the prompts of a file and what is wrong with its other lines, in their order.

    Raises InvalidInput for what concerns the whole file.
    """
    for row in read_rows(path):
        try:
            yield row if isinstance(row, Problem) else _prompt_of(row, with_responses=with_responses)
        except InvalidInput as error:
            yield Problem(row.line, str(error))


def check_has_prompt(path: Path) -> None:
    """Raises InvalidInput if no row of the file is a prompt; reads up to the first that is."""
    _check_some(path, read_prompts(path), "a prompt")


def check_has_responses(path: Path) -> None:
    """Raises InvalidInput if no row of the file is a prompt with its responses; reads up to the first that is."""
    _check_some(path, read_prompts(path, with_responses=True), "a prompt with responses")


def _check_some(path: Path, rows: Iterable[PromptRow | Problem], what: str) -> None:
    problems: list[Problem] = []
    for row in rows:
        if isinstance(row, PromptRow):
            return
        problems.append(row)
    raise InvalidInput(f"{path.name}: no row can be used as {what}; {told(problems) or 'it has none'}")


def told(problems: list[Problem]) -> str:
    """`line 3: no 'prompt' ...; line 4: ...`, the first few, and how many more there are."""
    words = [f"line {each.line}: {each.message}" for each in problems[:MOST_TOLD]]
    more = len(problems) - MOST_TOLD
    return "; ".join(words) + (f"; and {more} more" if more > 0 else "")


def _prompt_of(row: Row, *, with_responses: bool) -> PromptRow:
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
    line = row.value.get("line")  # of the file that the row was taken from
    return PromptRow(
        line if isinstance(line, int) else row.line,
        parse_messages(value),
        checked_text(facts or "", "facts", may_be_empty=True),
        _responses_of(row.value.get("responses")) if with_responses else (),
    )


def _responses_of(given: Any) -> tuple[str, ...]:
    values = structure(given)
    if not isinstance(values, list) or not values:
        raise InvalidInput("no 'responses': a list of texts, or of objects with a 'text', is needed")
    texts: list[str] = []
    for number, entry in enumerate(values, start=1):
        text = entry.get("text") if isinstance(entry, dict) else entry
        if not isinstance(text, str):
            raise InvalidInput(f"response {number} is {entry!r:.60}; a text, or an object with a 'text', is needed")
        texts.append(checked_text(text, f"response {number}"))
    return tuple(texts)
