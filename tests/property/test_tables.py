"""Pairs and export rows by columns say the same as a plain loop over the groups."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import labeling.snapshot.tables
from data.files.snapshots import GROUP_COLUMNS, PAIR_COLUMNS
from labeling.snapshot.tables import chat_pairs, pair_batches, text_pairs, unpaired_rows

Row = dict[str, Any]


@st.composite
def group_rows(draw: st.DrawFn) -> Row:
    k = draw(st.integers(2, 6))
    number = draw(st.integers(0, 3))
    dense = draw(st.lists(st.integers(1, k), min_size=k, max_size=k))
    ranks = [1 + sum(other < rank for other in dense) for rank in dense]
    texts = draw(st.lists(st.text(max_size=8), min_size=k, max_size=k))
    votes = draw(st.sampled_from([0, 3]))  # one annotator, or several
    preferred, compared, sure = [0] * k * k, [0] * k * k, [0.0] * k * k
    for i, j in combinations(range(k), 2) if votes else ():
        there, ties = draw(st.integers(0, votes)), draw(st.integers(0, 1))
        there, back = min(there, votes - ties), votes - ties - min(there, votes - ties)
        preferred[i * k + j], preferred[j * k + i] = there, back
        compared[i * k + j] = compared[j * k + i] = votes
        sure[i * k + j], sure[j * k + i] = (there + ties / 2) / votes, (back + ties / 2) / votes
    is_merged = bool(votes) and draw(st.booleans())
    return {
        "ranking_id": draw(st.text("abc", min_size=3, max_size=3)),
        "task_id": "t",
        "prompt_id": f"p{number}",
        "split": draw(st.sampled_from(["train", "eval"])),
        "messages": [{"role": "system", "content": "be brief"}] * (number % 2)
        + [{"role": "user", "content": f"say {number} \u202e é"}],
        "responses": texts,
        "response_ids": [f"{number}-{place}" for place in range(k)],
        "models": ["m"] * k,
        "ranks": ranks,
        "annotator": "a",
        "weight": draw(st.sampled_from([1.0, 0.5, 0.25])),
        "preferred": preferred if votes else [],
        "compared": compared if votes else [],
        "probabilities": sure if is_merged else [],
        "adjudicated": False,
    }


def pairs_by_hand(groups: list[Row]) -> list[Row]:
    rows = []
    for group in groups:
        k, sure = len(group["ranks"]), group["probabilities"]
        places = range(k)
        better = [
            (i, j)
            for i in places
            for j in places
            if i != j and (sure[i * k + j] > sure[j * k + i] if sure else group["ranks"][i] < group["ranks"][j])
        ]
        for i, j in sorted(better, key=lambda pair: (min(pair), max(pair))):
            votes = (group["preferred"][i * k + j], group["compared"][i * k + j]) if group["preferred"] else (1, 1)
            rows.append(
                {
                    "prompt_id": group["prompt_id"],
                    "ranking_id": group["ranking_id"],
                    "split": group["split"],
                    "messages": group["messages"],
                    "chosen": group["responses"][i],
                    "rejected": group["responses"][j],
                    "chosen_id": group["response_ids"][i],
                    "rejected_id": group["response_ids"][j],
                    "rank_distance": group["ranks"][j] - group["ranks"][i],
                    "annotator": group["annotator"],
                    "weight": group["weight"] / len(better),
                    "n_agree": votes[0],
                    "n_annotators": votes[1],
                    "probability": sure[i * k + j] if sure else 1.0,
                }
            )
    return rows


def batch_of(groups: list[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(groups, schema=GROUP_COLUMNS)


@given(st.lists(group_rows(), max_size=6))
def test_pairs_by_columns_are_the_pairs_by_hand(groups: list[Row]) -> None:
    made = [row for pairs in pair_batches(batch_of(groups)) for row in pairs.to_pylist()]
    assert made == pairs_by_hand(groups)


@given(st.lists(group_rows(), max_size=6), st.integers(0, 5))
def test_a_slice_of_a_batch_gives_its_own_pairs_only(groups: list[Row], start: int) -> None:
    made = [row for pairs in pair_batches(batch_of(groups).slice(start)) for row in pairs.to_pylist()]
    assert made == pairs_by_hand(groups[start:])


def test_long_texts_come_in_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = [_group(number, ["x" * 1000, "y" * 1000, "z"]) for number in range(8)]
    monkeypatch.setattr(labeling.snapshot.tables, "MAX_BYTES", 20_000)
    batches = list(pair_batches(batch_of(groups)))
    assert len(batches) > 1
    assert [row for pairs in batches for row in pairs.to_pylist()] == pairs_by_hand(groups)


@given(st.lists(group_rows(), min_size=1, max_size=6))
def test_pairs_as_texts_and_as_messages(groups: list[Row]) -> None:
    expected = pairs_by_hand(groups)
    pairs = pa.RecordBatch.from_pylist(expected, schema=PAIR_COLUMNS)
    texts = {name: column.to_pylist() for name, column in text_pairs(pairs).items()}
    chats = {name: column.to_pylist() for name, column in chat_pairs(pairs).items()}
    for place, row in enumerate(expected):
        prompt = "be brief" * (len(row["messages"]) - 1) + f"\n\nHuman: {row['messages'][-1]['content']}\n\nAssistant:"
        assert texts["prompt"][place] == prompt
        assert texts["chosen"][place] == " " + row["chosen"]
        assert texts["rejected"][place] == " " + row["rejected"]
        assert chats["prompt"][place] == row["messages"]
        assert chats["chosen"][place] == [{"role": "assistant", "content": row["chosen"]}]
        assert chats["rejected"][place] == [{"role": "assistant", "content": row["rejected"]}]


@given(st.lists(group_rows(), min_size=1, max_size=6))
def test_unpaired_rows_are_the_first_and_the_last_ranks(groups: list[Row]) -> None:
    expected, n_between = [], 0
    for place, group in enumerate(groups):
        for text, rank in zip(group["responses"], group["ranks"], strict=True):
            if rank == min(group["ranks"]) != max(group["ranks"]):
                expected.append((place, text, True))
            elif rank == max(group["ranks"]) != min(group["ranks"]):
                expected.append((place, text, False))
            else:
                n_between += 1
    rows, places, n_left_out = unpaired_rows(batch_of(groups))
    texts = [each[0]["content"] for each in rows["completion"].to_pylist()]
    assert list(zip(places.to_pylist(), texts, rows["label"].to_pylist(), strict=True)) == expected
    assert rows["prompt"].to_pylist() == [groups[place]["messages"] for place, _, _ in expected]
    assert n_left_out == n_between


def _group(number: int, texts: list[str]) -> Row:
    k = len(texts)
    return {
        "ranking_id": f"r{number}", "task_id": "t", "prompt_id": f"p{number}", "split": "train",
        "messages": [{"role": "user", "content": "?"}], "responses": texts,
        "response_ids": [f"{number}-{place}" for place in range(k)], "models": ["m"] * k,
        "ranks": list(range(1, k + 1)), "annotator": "a", "weight": 1.0,
        "preferred": [], "compared": [], "probabilities": [], "adjudicated": False,
    }  # fmt: skip
