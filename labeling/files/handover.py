"""People's files as the plain rows that runs read: checked here, once, so that training needs no parser.

{"line": 3, "messages": [{"role", "content"}...], "responses": ["text", ...], "facts"?: "text"}
"""

from __future__ import annotations

import json
from pathlib import Path

from data.errors import InvalidInput
from data.files.language_texts import Unfit, read_texts
from data.files.rows import Problem, read_rows
from data.records import Split
from labeling.files.parse import parse_prompt, parse_responses


def hand_over(source: Path, target: Path, *, with_responses: bool) -> tuple[int, list[Problem]]:
    """Write the good rows of `source` to `target`; return their number and what is wrong with the others.

    With responses they are to be scored; without, prompts to learn from, and the held-out ones are not handed over.
    Raises InvalidInput for what concerns the whole file, and if no row is good.
    """
    problems: list[Problem] = []
    written = 0
    with target.open("w", encoding="utf-8") as file:
        for row in read_rows(source):
            if isinstance(row, Problem):
                problems.append(row)
                continue
            try:
                responses = [each.text for each in parse_responses(row.value)] if with_responses else []
                prompt = parse_prompt({name: value for name, value in row.value.items() if name != "responses"})
            except InvalidInput as error:
                problems.append(Problem(row.line, str(error)))
                continue
            if prompt.split is Split.EVAL and not with_responses:
                problems.append(Problem(row.line, "its split is 'eval': no policy may learn from a held-out prompt"))
                continue
            plain = {"line": row.line, "messages": list(prompt.messages), "responses": responses}
            if prompt.facts:
                plain["facts"] = prompt.facts
            file.write(json.dumps(plain, ensure_ascii=False) + "\n")
            written += 1
    _refuse_if_none(source, written, problems)
    return written, problems


def hand_over_texts(source: Path, target: Path) -> tuple[int, list[Problem]]:
    """The same for texts that a language model learns from: {"line", "text"}, or {"line", "messages", "response"}."""
    problems: list[Problem] = []
    written = 0
    with target.open("w", encoding="utf-8") as file:
        for row in read_texts(source):
            if isinstance(row, Unfit):
                problems.append(Problem(row.line, row.message))
                continue
            plain = {"text": row.text} if row.messages is None else {"messages": row.messages, "response": row.text}
            file.write(json.dumps({"line": row.line, **plain}, ensure_ascii=False) + "\n")
            written += 1
    _refuse_if_none(source, written, problems)
    return written, problems


def _refuse_if_none(source: Path, written: int, problems: list[Problem]) -> None:
    if not written:
        first = f"; line {problems[0].line}: {problems[0].message}" if problems else ""
        raise InvalidInput(f"{source.name}: no row can be used{first}")
