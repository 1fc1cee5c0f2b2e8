"""A snapshot's groups as token ids, with everything that was cut or left out counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from data.errors import InvalidInput
from data.files.snapshots import Group, read_groups
from data.records import Split
from training.lm.encoding import Encoder, fit, with_facts


@dataclass(frozen=True)
class EncodedGroup:
    """One ranking as token ids: `sequences[i]` is the prompt with response i and its end token.

    `probabilities[i * K + j]`: how sure it is that i is better than j, where several annotators are merged; else empty.
    `unplaced`: which i were left as "worse, in no order". `places[i]`: where response i stands in the snapshot's group.
    """

    ranking_id: str
    prompt_id: str
    sequences: list[list[int]]
    prompt_lengths: list[int]
    ranks: list[int]
    weight: float
    probabilities: tuple[float, ...] = ()
    unplaced: tuple[int, ...] = ()
    strength: int | None = None
    places: tuple[int, ...] = ()

    @property
    def n_responses(self) -> int:
        return len(self.ranks)


@dataclass
class Encoded:
    """Both sides of a snapshot, and counts of what encoding had to do."""

    train: list[EncodedGroup]
    held_out: list[EncodedGroup]
    counts: Counter[str]


def encode_snapshot(folder: Path, encoder: Encoder, max_length: int, *, reads_facts: bool = False) -> Encoded:
    """Encode the groups of the snapshot in `folder`, each sequence within `max_length` tokens.

    A response that became the same as an earlier one by being cut is left out of its group; a group without a pair is
    left out whole. Weights are scaled to 1 in the mean over the training side.
    Raises InvalidInput if the training side is empty.
    """
    counts = Counter[str](
        prompts_refused=0, prompts_cut=0, responses_cut=0, responses_same_when_cut=0, groups_without_pair=0
    )
    sides: dict[Split, list[EncodedGroup]] = {Split.TRAIN: [], Split.EVAL: []}
    for group in read_groups(folder):
        read = replace(group, messages=with_facts(group.messages, group.facts)) if reads_facts else group
        if reads_facts:
            counts["prompts_with_facts"] += bool(group.facts)
        encoded = _encode(read, encoder, max_length, counts)
        if encoded is not None:
            sides[group.split].append(encoded)
    train = sides[Split.TRAIN]
    if not train:
        lost = ", ".join(f"{name} {number:,}" for name, number in counts.items() if number)
        why = f" (counted: {lost})" if lost else ""
        raise InvalidInput(f"the snapshot's training side has no ranking with a pair{why}; rank more prompts")
    mean = sum(group.weight for group in train) / len(train)
    scaled = {side: [replace(group, weight=group.weight / mean) for group in groups] for side, groups in sides.items()}
    return Encoded(scaled[Split.TRAIN], scaled[Split.EVAL], counts)


def _encode(group: Group, encoder: Encoder, max_length: int, counts: Counter[str]) -> EncodedGroup | None:
    try:
        prompt = encoder.prompt_ids(group.messages)
    except InvalidInput:
        counts["prompts_refused"] += 1
        return None
    kept: dict[tuple[int, ...], tuple[int, int]] = {}  # token ids -> (length of the prompt, place)
    is_prompt_cut = False
    for index, text in enumerate(group.responses):
        fitted = fit(prompt, encoder.response_ids(text), max_length)
        is_prompt_cut |= fitted.is_prompt_cut
        counts["responses_cut"] += fitted.is_response_cut
        key = tuple(fitted.prompt + fitted.response)
        if key in kept:
            counts["responses_same_when_cut"] += 1
        else:
            kept[key] = (len(fitted.prompt), index)
    counts["prompts_cut"] += is_prompt_cut
    places = [place for _, place in kept.values()]
    ranks, sure = [group.ranks[place] for place in places], _probabilities(group, places)
    if not (_has_majority(sure, len(places)) if sure else len(set(ranks)) > 1):
        counts["groups_without_pair"] += 1
        return None
    return EncodedGroup(
        ranking_id=group.ranking_id,
        prompt_id=group.prompt_id,
        sequences=[list(key) for key in kept],
        prompt_lengths=[length for length, _ in kept.values()],
        ranks=ranks,
        weight=group.weight,
        probabilities=sure,
        unplaced=tuple(i for i, place in enumerate(places) if place in group.unplaced),
        strength=group.strength,
        places=tuple(places),
    )


def _probabilities(group: Group, places: list[int]) -> tuple[float, ...]:
    """How sure the pairs of these responses are; empty where the ranks say all."""
    k = len(group.ranks)
    return tuple(group.probabilities[i * k + j] for i in places for j in places) if group.probabilities else ()


def _has_majority(probabilities: tuple[float, ...], k: int) -> bool:
    return any(probabilities[i * k + j] != probabilities[j * k + i] for i in range(k) for j in range(i))
