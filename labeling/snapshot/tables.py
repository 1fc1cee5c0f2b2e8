"""Groups as pairs and as the rows of exports, a batch of columns at a time: ten million rows are too many one by one.

Columns are those of `data.files.snapshots`. What a pair is says `labeling.judgement.pairs`; here it is only carried out
on tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from data.files.snapshots import MESSAGE_LIST, PAIR_COLUMNS
from data.records import Messages, RankingStatus
from labeling.judgement.pairs import Pair, pairs_from_probabilities, pairs_from_ranks

KWISE_NAMES = (
    "responses", "ranks", "unplaced", "acceptable", "flags", "quality", "strength", "comment", "facts",
    "duration_ms",
)  # fmt: skip
ANSWER_NAMES = (*KWISE_NAMES, "annotator", "display_order")
MAX_BYTES = 32 * 2**20  # of one batch of pairs: texts stand in it once for each pair


def pair_batches(groups: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The preference pairs of groups, as rows of pairs.parquet. A pair's weight is its group's over its pairs.

    Groups with long texts come in several batches.
    """
    ranks = [tuple(each) for each in groups["ranks"].to_pylist()]
    probabilities = groups["probabilities"].to_pylist()
    widest = max(map(len, ranks), default=0)
    if groups.num_rows > 1 and groups.nbytes * widest > MAX_BYTES:
        half = groups.num_rows // 2
        yield from pair_batches(groups.slice(0, half))
        yield from pair_batches(groups.slice(half))
        return
    pairs = [
        pairs_from_probabilities(sure, own) if sure else _pairs(own)
        for own, sure in zip(ranks, probabilities, strict=True)
    ]
    counts = np.array([len(each) for each in pairs], dtype=np.int64)
    starts = np.cumsum([0, *map(len, ranks)])[:-1].repeat(counts)
    flat = np.array([each for group in pairs for each in group], dtype=np.int64).reshape(-1, 3)
    place = pa.array(np.arange(len(pairs)).repeat(counts))
    columns = {name: groups[name].take(place) for name in ("prompt_id", "ranking_id", "split", "messages", "annotator")}
    for number, side in enumerate(("chosen", "rejected")):
        at = pa.array(starts + flat[:, number])
        columns[side] = groups["responses"].flatten().take(at)
        columns[f"{side}_id"] = groups["response_ids"].flatten().take(at)
    columns["rank_distance"] = pa.array(flat[:, 2].astype(np.int32))
    columns["weight"] = pa.array(groups["weight"].to_numpy().repeat(counts) / counts.repeat(counts))
    columns |= _agreement(groups, pairs)
    yield pa.RecordBatch.from_arrays([columns[name] for name in PAIR_COLUMNS.names], schema=PAIR_COLUMNS)


def _agreement(groups: pa.RecordBatch, pairs: list[list[Pair]]) -> dict[str, pa.Array]:
    """For each pair, how many of the annotators who compared it agree, and how sure it is."""
    n_pairs = sum(map(len, pairs))
    agree, of, sure = np.ones(n_pairs, np.int32), np.ones(n_pairs, np.int32), np.ones(n_pairs)
    if len(groups["preferred"].flatten()):
        start = 0
        columns = (groups[name].to_pylist() for name in ("ranks", "preferred", "compared", "probabilities"))
        for own, ranks, preferred, compared, probabilities in zip(pairs, *columns, strict=True):
            end, at = start + len(own), [pair.chosen * len(ranks) + pair.rejected for pair in own]
            if preferred:
                agree[start:end], of[start:end] = [preferred[each] for each in at], [compared[each] for each in at]
            if probabilities:
                sure[start:end] = [probabilities[each] for each in at]
            start = end
    return {"n_agree": pa.array(agree), "n_annotators": pa.array(of), "probability": pa.array(sure)}


@lru_cache(maxsize=10_000)
def _pairs(ranks: tuple[int, ...]) -> list[Pair]:
    return pairs_from_ranks(ranks)


def text_pairs(pairs: pa.RecordBatch) -> dict[str, pa.Array]:
    """Prompt, chosen and rejected as texts that can be joined as they are."""
    return {"prompt": _conversations(pairs)} | {
        side: pc.binary_join_element_wise(pa.scalar(" "), pairs[side], pa.scalar("")) for side in ("chosen", "rejected")
    }


def chat_pairs(pairs: pa.RecordBatch) -> dict[str, pa.Array]:
    """Prompt, chosen and rejected as lists of messages."""
    return {"prompt": pairs["messages"]} | {side: as_messages(pairs[side]) for side in ("chosen", "rejected")}


def kwise_rows(groups: pa.RecordBatch) -> dict[str, pa.Array]:
    """Whole rankings, with what was said beside the ranks."""
    status = pa.array([RankingStatus.RANKED.value] * groups.num_rows, pa.string())
    return {"prompt": groups["messages"], "status": status} | {name: groups[name] for name in KWISE_NAMES}


def single_groups(groups: pa.RecordBatch) -> pa.RecordBatch:
    """Those groups that are one answer; what was merged or overruled stands among the snapshot's others, one by one."""
    is_merged = pc.greater(pc.list_value_length(groups["probabilities"]), 0)
    return groups.filter(pc.invert(pc.or_(is_merged, groups["adjudicated"])))


def unacceptable_answers(others: pa.RecordBatch) -> pa.RecordBatch:
    """Of the answers that are no groups, those that no response is acceptable."""
    return others.filter(pc.equal(others["left_out"], RankingStatus.UNACCEPTABLE.value))


def answer_rows(answers: pa.RecordBatch) -> dict[str, pa.Array]:
    """Answers of any kind. Groups have no status of their own: they are ranked, and used."""
    n, ranked = answers.num_rows, RankingStatus.RANKED.value
    beside = {"status": pa.array([ranked] * n, pa.string())}
    beside |= dict.fromkeys(("skip_reason", "left_out"), pa.nulls(n, pa.string()))
    beside |= {name: answers[name] for name in beside if name in answers.schema.names}
    return {"prompt": answers["messages"], **beside} | {
        name: answers[name] for name in ANSWER_NAMES if name in answers.schema.names
    }


def unpaired_rows(groups: pa.RecordBatch) -> tuple[dict[str, pa.Array], pa.Array, int]:
    """Responses as true or false; also each row's group, and how many responses are left out.

    What the annotator called acceptable is true, what they called unacceptable is false; where nothing was said, the
    first rank is true, the last one false, and what lies between is left out. Without ranks all are false: somebody
    said that no response is acceptable.
    """
    kept, labels, places, start = [], [], [], 0
    columns = (groups["ranks"].to_pylist(), groups["acceptable"].to_pylist())
    for group, (ranks, acceptable) in enumerate(zip(*columns, strict=True)):
        for number, rank in enumerate(ranks):
            said = acceptable[number] if acceptable else None
            if said is not None or (rank in (1, max(ranks)) and max(ranks) > 1):
                kept.append(start + number)
                labels.append(rank == 1 if said is None else said)
                places.append(group)
        if not ranks:  # no response is acceptable
            kept += range(start, start + len(acceptable))
            labels += [False] * len(acceptable)
            places += [group] * len(acceptable)
        start += len(ranks or acceptable)
    rows = {
        "prompt": groups["messages"].take(pa.array(places, pa.int64())),
        "completion": as_messages(groups["responses"].flatten().take(pa.array(kept, pa.int64()))),
        "label": pa.array(labels, pa.bool_()),
    }
    return rows, pa.array(places, pa.int64()), start - len(kept)


def as_messages(texts: pa.StringArray) -> pa.ListArray:
    """Each text as a list of one assistant's message."""
    roles = pa.array(["assistant"]).take(pa.array(np.zeros(len(texts), dtype=np.int64)))
    messages = pa.StructArray.from_arrays([roles, texts], fields=list(MESSAGE_LIST.value_type))
    return pa.ListArray.from_arrays(pa.array(np.arange(len(texts) + 1, dtype=np.int32)), messages).cast(MESSAGE_LIST)


def conversation_text(messages: Messages) -> str:
    """A prompt as text: `\\n\\nHuman: ...\\n\\nAssistant:`, the convention of Anthropic's HH data. A system message
    comes first, without a name."""
    names = {"user": "\n\nHuman: ", "assistant": "\n\nAssistant: ", "system": ""}
    return "".join(names[each["role"]] + each["content"] for each in messages) + "\n\nAssistant:"


def _conversations(pairs: pa.RecordBatch) -> pa.Array:
    """The prompts as texts, each made once: the pairs of a prompt follow each other."""
    codes: Any = pairs["prompt_id"].dictionary_encode()
    indices = codes.indices.to_numpy()
    _, first = np.unique(indices, return_index=True)
    prompts = pairs["messages"].take(pa.array(first)).to_pylist()
    return pa.array([conversation_text(tuple(each)) for each in prompts]).take(codes.indices)
