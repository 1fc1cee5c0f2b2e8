"""Other tools' formats as rows of the native ranking format. One generator per format: row in, native rows out.

A row that the format does not explain raises InvalidInput, which the importer reports with its line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from data.errors import InvalidInput

Native = dict[str, Any]
Reader = Callable[[Native], Iterator[Native]]


def read_native(row: Native) -> Iterator[Native]:
    """Our own format: nothing to do."""
    yield row


def read_trl(row: Native) -> Iterator[Native]:
    """TRL preference rows with an explicit prompt: `{"prompt", "chosen", "rejected"}`, as texts or as messages."""
    sides = [row.get("chosen"), row.get("rejected")]
    if "prompt" not in row or any(side is None for side in sides):
        raise InvalidInput("'prompt', 'chosen' and 'rejected' are needed")
    prompt = row["prompt"]
    head = {"messages": prompt} if isinstance(prompt, list) else {"prompt": prompt}
    yield head | {"responses": [_last_text(side) for side in sides], "ranks": [1, 2]}


def read_hh(row: Native) -> Iterator[Native]:
    """Anthropic HH: two transcripts that share all but the last assistant turn."""
    chosen, rejected = (_transcript(row.get(side)) for side in ("chosen", "rejected"))
    if chosen[:-1] != rejected[:-1] or chosen[-1]["role"] != "assistant" or rejected[-1]["role"] != "assistant":
        raise InvalidInput("'chosen' and 'rejected' must differ in the last assistant turn only")
    yield {"messages": chosen[:-1], "responses": [chosen[-1]["content"], rejected[-1]["content"]], "ranks": [1, 2]}


def read_oasst(row: Native) -> Iterator[Native]:
    """Open-Assistant trees: every message with two or more ranked replies gives one ranking (their rank 0 is best)."""
    root = row.get("prompt")
    if not isinstance(root, dict) or "text" not in root:
        raise InvalidInput("no tree: an object 'prompt' with 'text' and 'replies' is needed")
    stack = [([{"role": "user", "content": root["text"]}], root)]
    while stack:
        messages, node = stack.pop()
        replies = [reply for reply in node.get("replies", []) if not reply.get("deleted")]
        ranked = [reply for reply in replies if reply.get("rank") is not None]
        if node.get("role") == "prompter" and len(ranked) >= 2:
            order = sorted(ranked, key=lambda reply: int(reply["rank"]))
            yield {
                "messages": messages,
                "responses": [{"text": reply["text"], "model": reply.get("model_name") or ""} for reply in order],
                "ranks": list(range(1, len(order) + 1)),
                "annotator": "Open-Assistant consensus",
            }
        for reply in replies:
            role = "user" if reply.get("role") == "prompter" else "assistant"
            stack.append(([*messages, {"role": role, "content": reply["text"]}], reply))


def read_fastchat(row: Native) -> Iterator[Native]:
    """FastChat battles: the winner's conversation against the other's; both ties give equal ranks."""
    ranks = {"model_a": [1, 2], "model_b": [2, 1], "tie": [1, 1], "tie (bothbad)": [1, 1]}.get(str(row.get("winner")))
    sides = [row.get("conversation_a"), row.get("conversation_b")]
    if ranks is None or not all(isinstance(side, list) and len(side) >= 2 for side in sides):
        raise InvalidInput("'winner', 'conversation_a' and 'conversation_b' of a battle are needed")
    turns = [[{"role": each.get("role"), "content": each.get("content")} for each in side] for side in sides if side]
    if turns[0][:-1] != turns[1][:-1]:
        raise InvalidInput("the two conversations differ before the last turn, so they can't be ranked as one prompt")
    yield {
        "messages": turns[0][:-1],
        "responses": [
            {"text": turns[0][-1]["content"], "model": str(row.get("model_a", ""))},
            {"text": turns[1][-1]["content"], "model": str(row.get("model_b", ""))},
        ],
        "ranks": ranks,
        "annotator": str(row.get("judge", "")),
    }


def read_label_studio(row: Native) -> Iterator[Native]:
    """Label Studio tasks: the Ranker in both its forms, and Pairwise (left, right)."""
    source = row.get("data")
    if not isinstance(source, dict):
        raise InvalidInput("no 'data': an exported Label Studio task is needed")
    prompt = next((source[name] for name in ("prompt", "instruction", "question", "text") if name in source), None)
    for annotation in row.get("annotations") or []:
        if annotation.get("was_cancelled"):
            continue
        who = {"prompt": prompt, "annotator": str(annotation.get("completed_by", ""))}
        for result in annotation.get("result") or []:
            if result.get("type") == "ranker":
                yield who | _ranker_order(source, result["value"]["ranker"])
            elif result.get("type") == "pairwise":
                left = result["value"].get("selected") == "left"
                texts = [source.get(name) for name in ("answer1", "answer2")]
                yield who | {"responses": texts, "ranks": [1, 2] if left else [2, 1]}


def read_argilla(row: Native) -> Iterator[Native]:
    """Argilla records exported with `to_list(flatten=True)`: a ranking question; equal ranks are ties."""
    questions = [name[: -len(".responses")] for name in row if name.endswith(".responses")]
    for question in questions:
        statuses = row.get(f"{question}.responses.status") or []
        people = row.get(f"{question}.responses.users") or []
        for place, answer in enumerate(row[f"{question}.responses"] or []):
            if not isinstance(answer, list) or (place < len(statuses) and statuses[place] != "submitted"):
                continue
            yield {
                "prompt": row.get("prompt", row.get("instruction")),
                "responses": [row.get(each["value"]) for each in answer],
                "ranks": _closed_up([int(each["rank"]) for each in answer]),
                "annotator": str(people[place]) if place < len(people) else "",
            }


READERS: dict[str, Reader] = {
    "native": read_native,
    "trl": read_trl,
    "hh": read_hh,
    "oasst": read_oasst,
    "fastchat": read_fastchat,
    "label-studio": read_label_studio,
    "argilla": read_argilla,
}


def _ranker_order(source: Native, value: Any) -> Native:
    ids = value.get("rank", []) if isinstance(value, dict) else value
    items = {str(item["id"]): item for item in source.get("items", [])}
    if not ids or any(str(each) not in items for each in ids):
        raise InvalidInput(f"the ranking names {ids!r}, but the task's items are {sorted(items)}")
    texts = [items[str(each)].get("body") or items[str(each)].get("html") for each in ids]
    return {"responses": texts, "ranks": list(range(1, len(ids) + 1))}


def _closed_up(ranks: list[int]) -> list[int]:
    """Argilla's ranks may have gaps; the order and the ties are what counts."""
    return [1 + len({other for other in ranks if other < rank}) for rank in ranks]


def _last_text(side: Any) -> Any:
    return side[-1].get("content") if isinstance(side, list) and side and isinstance(side[-1], dict) else side


def _transcript(text: Any) -> list[Native]:
    if not isinstance(text, str) or "\n\nAssistant:" not in text:
        raise InvalidInput("a transcript with '\\n\\nHuman:' and '\\n\\nAssistant:' turns is needed")
    turns: list[Native] = []
    for part in text.split("\n\nHuman:")[1:]:
        human, *replies = part.split("\n\nAssistant:")
        turns.append({"role": "user", "content": human.strip()})
        turns += [{"role": "assistant", "content": reply.strip()} for reply in replies]
    return turns
