"""Which side of a snapshot a prompt is on. By prompt, never by pair, and the same everywhere and again."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Set

from data.records import Split

Known = Mapping[str, tuple[str, Split | None]]  # prompt id -> (fingerprint, the side that its import named)


def split_prompts(known: Known, wanted: Set[str], *, eval_share: float, seed: int) -> dict[str, Split]:
    """Give each wanted prompt its side: the one that its import named, else by a hash of its text and the seed.

    A prompt is held out if its hash, as a number in [0, 1), is below the share; so it stays on its side when others
    come, and no reward model meets a prompt that it was trained on. Of five or more at least one is held out, and never
    all: the one with the lowest or highest hash has to move then.
    """
    places = {prompt_id: _unit_hash(seed, known[prompt_id][0]) for prompt_id in wanted if known[prompt_id][1] is None}
    held_out = {prompt_id for prompt_id, place in places.items() if place < eval_share}
    if not held_out and eval_share > 0 and len(places) >= 5:
        held_out = {min(places, key=places.__getitem__)}
    if places and len(held_out) == len(places):
        held_out.remove(max(places, key=places.__getitem__))
    sides = {prompt_id: Split.EVAL if prompt_id in held_out else Split.TRAIN for prompt_id in places}
    return sides | {prompt_id: side for prompt_id in wanted if (side := known[prompt_id][1]) is not None}


def side_of_other(known: Known, prompt_id: str, *, eval_share: float, seed: int) -> Split:
    """The side of a prompt that gives no pair: the one that its import named, else by its hash alone."""
    fingerprint, side = known[prompt_id]
    return side or (Split.EVAL if _unit_hash(seed, fingerprint) < eval_share else Split.TRAIN)


def _unit_hash(seed: int, fingerprint: str) -> float:
    digest = hashlib.sha256(f"{seed}:{fingerprint}".encode()).digest()
    return int.from_bytes(digest[:6]) / 2**48
