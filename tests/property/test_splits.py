"""Laws of the split: by prompt, named sides kept, the same everywhere and again."""

from __future__ import annotations

import random

from hypothesis import assume, given
from hypothesis import strategies as st

from data.records import Split
from labeling.snapshot.splits import Known, side_of_other, split_prompts

sides = st.lists(st.sampled_from([None, None, Split.TRAIN, Split.EVAL]), min_size=1, max_size=60)
shares = st.floats(0.0, 0.9)


def prompts_with(named: list[Split | None]) -> dict[str, tuple[str, Split | None]]:
    return {f"id{number}": (f"print{number}", side) for number, side in enumerate(named)}


def split_of(known: Known, wanted: set[str], share: float, seed: int = 0) -> dict[str, Split]:
    return split_prompts(known, wanted, eval_share=share, seed=seed)


@given(sides, shares, st.integers(0, 5))
def test_every_prompt_has_one_side_and_named_ones_keep_theirs(
    named: list[Split | None], share: float, seed: int
) -> None:
    known = prompts_with(named)
    split = split_of(known, set(known), share, seed)
    assert set(split) == set(known)
    assert all(split[each] is side for each, (_, side) in known.items() if side is not None)


@given(sides, shares)
def test_some_of_the_others_are_held_out_but_never_all(named: list[Split | None], share: float) -> None:
    known = prompts_with(named)
    split = split_of(known, set(known), share)
    n = named.count(None)
    n_eval = sum(split[each] is Split.EVAL for each, (_, side) in known.items() if side is None)
    assert n_eval < max(n, 1)
    assert n_eval >= 1 or n < 5 or share == 0
    assert n_eval == 0 or share > 0


def test_about_the_share_is_held_out() -> None:
    """2,000 prompts, share 0.1: 200 expected, standard deviation 13.4; within four of them."""
    known = prompts_with([None] * 2000)
    split = split_of(known, set(known), 0.1)
    assert 146 <= sum(side is Split.EVAL for side in split.values()) <= 254


@given(st.integers(20, 40), st.integers(0, 40), st.floats(0.3, 0.7))
def test_prompts_that_come_later_move_none_to_the_other_side(n: int, n_more: int, share: float) -> None:
    """Else a reward model would meet prompts that it was trained on among the held-out ones of a newer snapshot."""
    known = prompts_with([None] * (n + n_more))
    first = set(list(known)[:n])
    before, after = split_of(known, first, share), split_of(known, set(known), share)
    assert {each: after[each] for each in first} == before


@given(st.integers(2, 60), shares, st.randoms(use_true_random=False))
def test_the_order_in_which_prompts_are_seen_changes_nothing(n: int, share: float, shuffler: random.Random) -> None:
    known = prompts_with([None] * n)
    mixed = list(known.items())
    shuffler.shuffle(mixed)
    assert split_of(dict(mixed), set(known), share) == split_of(known, set(known), share)


@given(st.integers(2, 60))
def test_the_side_depends_on_the_text_and_the_seed_alone(n: int) -> None:
    """Other ids, as another machine would give, split the same texts in the same way."""
    here = prompts_with([None] * n)
    there = {f"other{each}": facts for each, facts in here.items()}
    one, other = split_of(here, set(here), 0.5, seed=3), split_of(there, set(there), 0.5, seed=3)
    assert {each: one[each] for each in here} == {each: other[f"other{each}"] for each in here}


@given(st.integers(20, 60))
def test_another_seed_holds_out_others(n: int) -> None:
    known = prompts_with([None] * n)
    splits = [split_of(known, set(known), 0.5, seed) for seed in range(4)]
    assume(n > 1)
    assert any(split != splits[0] for split in splits[1:])


def test_known_split_of_ten_prompts() -> None:
    """Written down once (SHA-256 of "0:printN" below 0.3 * 2^256): a change would move what was held out before."""
    known = prompts_with([None] * 10)
    split = split_of(known, set(known), 0.3)
    assert sorted(each for each, side in split.items() if side is Split.EVAL) == ["id0", "id2", "id5"]


def test_a_prompt_without_a_pair_goes_by_its_name_or_its_hash_alone() -> None:
    known = prompts_with([None] * 10) | {"named": ("x", Split.EVAL)}
    found = {each: side_of_other(known, each, eval_share=0.3, seed=0) for each in known}
    assert sorted(each for each, side in found.items() if side is Split.EVAL) == ["id0", "id2", "id5", "named"]
    assert side_of_other(known, "named", eval_share=0.0, seed=0) is Split.EVAL
