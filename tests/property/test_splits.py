"""Laws of the split: by prompt, named sides kept, the same everywhere and again."""

from __future__ import annotations

import random

from hypothesis import assume, given
from hypothesis import strategies as st

from data.records import Split
from labeling.snapshots import SnapshotConfig, split_prompts

sides = st.lists(st.sampled_from([None, None, Split.TRAIN, Split.EVAL]), min_size=1, max_size=60)
shares = st.floats(0.0, 0.9)


def prompts_with(named: list[Split | None]) -> dict[str, tuple[str, Split | None]]:
    return {f"id{number}": (f"print{number}", side) for number, side in enumerate(named)}


@given(sides, shares, st.integers(0, 5))
def test_every_prompt_has_one_side_and_named_ones_keep_theirs(
    named: list[Split | None], share: float, seed: int
) -> None:
    known = prompts_with(named)
    split = split_prompts(known, set(known), SnapshotConfig(eval_share=share, seed=seed))
    assert set(split) == set(known)
    assert all(split[each] is side for each, (_, side) in known.items() if side is not None)


@given(sides, shares)
def test_so_many_of_the_others_are_held_out(named: list[Split | None], share: float) -> None:
    known = prompts_with(named)
    split = split_prompts(known, set(known), SnapshotConfig(eval_share=share))
    n = named.count(None)
    n_eval = sum(split[each] is Split.EVAL for each, (_, side) in known.items() if side is None)
    assert abs(n_eval - share * n) <= 1
    assert n_eval < max(n, 1)  # never all of them
    assert n_eval >= 1 or n < 5 or share == 0


@given(st.integers(2, 60), shares, st.randoms(use_true_random=False))
def test_the_order_in_which_prompts_are_seen_changes_nothing(n: int, share: float, shuffler: random.Random) -> None:
    known = prompts_with([None] * n)
    mixed = list(known.items())
    shuffler.shuffle(mixed)
    config = SnapshotConfig(eval_share=share)
    assert split_prompts(dict(mixed), set(known), config) == split_prompts(known, set(known), config)


@given(st.integers(2, 60))
def test_the_side_depends_on_the_text_and_the_seed_alone(n: int) -> None:
    """Other ids, as another machine would give, split the same texts in the same way."""
    here = prompts_with([None] * n)
    there = {f"other{each}": facts for each, facts in here.items()}
    config = SnapshotConfig(eval_share=0.5, seed=3)
    one, other = split_prompts(here, set(here), config), split_prompts(there, set(there), config)
    assert {each: one[each] for each in here} == {each: other[f"other{each}"] for each in here}


@given(st.integers(20, 60))
def test_another_seed_holds_out_others(n: int) -> None:
    known = prompts_with([None] * n)
    splits = [split_prompts(known, set(known), SnapshotConfig(eval_share=0.5, seed=seed)) for seed in range(4)]
    assume(n > 1)
    assert any(split != splits[0] for split in splits[1:])


def test_known_split_of_ten_prompts() -> None:
    """Written down once (the three smallest SHA-256 of "0:printN"): a change would move what was held out before."""
    known = prompts_with([None] * 10)
    split = split_prompts(known, set(known), SnapshotConfig(eval_share=0.3))
    assert sorted(each for each, side in split.items() if side is Split.EVAL) == ["id0", "id2", "id5"]
