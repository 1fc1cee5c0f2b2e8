"""Other tools' formats as rows of the native ranking format. One generator per format: row in, native rows out.

A row that the format does not explain raises InvalidInput, which the importer reports with its line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from data.errors import InvalidInput
from labeling.judgement.ranks import closed_up

Native = dict[str, Any]
Reader = Callable[[Native], Iterator[Native]]


def read_native(row: Native) -> Iterator[Native]:
    """Our own format: nothing to do."""
    yield row


def read_trl(row: Native) -> Iterator[Native]:
    """TRL preference rows, as texts or as messages: with a `prompt`, or with one that both message lists begin with."""
    sides = [row.get("chosen"), row.get("rejected")]
    if any(side is None for side in sides):
        raise InvalidInput("'chosen' and 'rejected' are needed, with or without a 'prompt'")
    heads, texts = zip(*(_head_and_last(side) for side in sides), strict=True)
    prompt = row.get("prompt")
    if heads[0] != heads[1]:
        raise InvalidInput("'chosen' and 'rejected' must differ in the last message only")
    if heads[0]:
        if prompt is not None and not _ends_with(heads[0], prompt):
            raise InvalidInput("the messages before the last one are not the 'prompt'")
        prompt = heads[0]
    elif prompt is None:
        raise InvalidInput("no 'prompt', and 'chosen' has no messages before its last one")
    yield {"prompt": prompt, "responses": list(texts), "ranks": [1, 2]} | _of_our_export(row)


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
        replies = [reply for reply in node.get("replies") or [] if not reply.get("deleted")]
        ranked = [reply for reply in replies if reply.get("rank") is not None]
        if node.get("role") == "prompter" and len(ranked) >= 2:
            yield {
                "messages": messages,
                "responses": [{"text": reply["text"], "model": reply.get("model_name") or ""} for reply in ranked],
                "ranks": list(closed_up([int(reply["rank"]) for reply in ranked])),
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
    """Label Studio tasks: the Ranker in both its forms, and Pairwise (left, right). A cancelled one is a skip."""
    source = row.get("data")
    if not isinstance(source, dict):
        raise InvalidInput("no 'data': an exported Label Studio task is needed")
    prompt = next((source[name] for name in ("prompt", "instruction", "question", "text") if name in source), None)
    for annotation in row.get("annotations") or []:
        who = {"prompt": prompt, "annotator": str(annotation.get("completed_by", ""))}
        if annotation.get("was_cancelled"):
            texts = list(_items(source).values()) or _pair(source)
            yield who | {"responses": texts, "status": "skipped", "skip_reason": "cancelled in Label Studio"}
            continue
        for result in annotation.get("result") or []:
            if result.get("type") == "ranker":
                yield who | _ranker_order(_items(source), result)
            elif result.get("type") == "pairwise":
                side = result["value"].get("selected")
                if side not in ("left", "right"):
                    raise InvalidInput(f"the pair's 'selected' is {side!r}; 'left' or 'right' is needed")
                yield who | {"responses": _pair(source), "ranks": [1, 2] if side == "left" else [2, 1]}


def read_argilla(row: Native) -> Iterator[Native]:
    """Argilla records exported with `to_list(flatten=True)`: a ranking question; equal ranks are ties."""
    questions = [name[: -len(".responses")] for name in row if name.endswith(".responses")]
    for question in questions:
        statuses = row.get(f"{question}.responses.status") or []
        people = row.get(f"{question}.responses.users") or []
        for index, answer in enumerate(row[f"{question}.responses"] or []):
            if not isinstance(answer, list) or (index < len(statuses) and statuses[index] != "submitted"):
                continue
            yield {
                "prompt": row.get("prompt", row.get("instruction")),
                "responses": [row.get(each["value"]) for each in answer],
                "ranks": list(closed_up([int(each["rank"]) for each in answer])),  # Argilla's may have gaps
                "annotator": str(people[index]) if index < len(people) else "",
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


def _of_our_export(row: Native) -> Native:
    """Of a pair that an export of ours has written: which ranking it comes from, and the side of its prompt."""
    if not row.get("ranking_id") or row.get("rank_distance") is None:
        return {}
    return {"pair_of": row["ranking_id"], "split": row.get("split")}


def _items(source: Native) -> dict[str, str]:
    """Texts of a Ranker's items by id: of the first list in the task's data that looks like one."""
    lists = [value for value in source.values() if isinstance(value, list) and value]
    found = next((each for each in lists if all(isinstance(item, dict) and "id" in item for item in each)), [])
    return {str(item["id"]): item.get("body") or item.get("html") or item.get("title") or "" for item in found}


def _ranker_order(items: dict[str, str], result: Native) -> Native:
    """A Ranker's result: a bare list of ids (older exports), or such a list under the Ranker's name."""
    value = result["value"]["ranker"]
    if isinstance(value, dict):
        name = result.get("from_name")
        value = value.get(name) if name in value else value.get("rank")
    if not isinstance(value, list):
        raise InvalidInput("items sorted into buckets are not in an order; a Ranker without buckets is needed")
    ids = [str(each) for each in value]
    if sorted(ids) != sorted(items):
        raise InvalidInput(f"the ranking names {ids}, but the task's items are {sorted(items)}; all of them are needed")
    return {"responses": [items[each] for each in ids], "ranks": list(range(1, len(ids) + 1))}


def _pair(source: Native) -> list[Any]:
    """The two texts of a pairwise task, left and right, under one of the usual names."""
    names = (("answer1", "answer2"), ("response1", "response2"), ("response_a", "response_b"), ("left", "right"))
    fields = next((pair for pair in names if all(name in source for name in pair)), None)
    if fields is None:
        raise InvalidInput(
            f"no two texts: {' or '.join(map(str, names))} are looked for, the task has {sorted(source)}"
        )
    return [source[name] for name in fields]


def _head_and_last(side: Any) -> tuple[list[Native], Any]:
    """What stands before the response, and the response: of a text nothing, of messages all but the last one."""
    if isinstance(side, list) and side and all(isinstance(each, dict) for each in side):
        turns = [{"role": each.get("role"), "content": each.get("content")} for each in side]
        return turns[:-1], turns[-1]["content"]
    return [], side


def _ends_with(head: list[Native], prompt: Any) -> bool:
    if isinstance(prompt, str):
        return bool(head[-1]["content"] == prompt)
    turns, last = _head_and_last(prompt)
    return [each["content"] for each in head[-len(turns) - 1 :]] == [*(each["content"] for each in turns), last]


def _transcript(text: Any) -> list[Native]:
    if not isinstance(text, str) or "\n\nAssistant:" not in text:
        raise InvalidInput("a transcript with '\\n\\nHuman:' and '\\n\\nAssistant:' turns is needed")
    preface, *parts = text.split("\n\nHuman:")
    turns: list[Native] = [{"role": "system", "content": preface.strip()}] if preface.strip() else []
    for part in parts:
        human, *replies = part.split("\n\nAssistant:")
        turns.append({"role": "user", "content": human.strip()})
        turns += [{"role": "assistant", "content": reply.strip()} for reply in replies]
    return turns
