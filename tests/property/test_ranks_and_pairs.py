"""Laws of ranks and pairs. What is expected is counted by hand or by brute force, never by the code under test."""

from __future__ import annotations

import subprocess
import sys
from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.errors import InvalidInput
from labeling.judgement.pairs import count_ties, pairs_from_ranks
from labeling.judgement.ranks import closed_up, competition_ranks, is_all_tied, ranks_in_stored_order

# A ranking as groups of responses, best group first: the meaning of ranks without any numbers.
groups_of = st.integers(2, 9).flatmap(
    lambda k: st.tuples(st.permutations(range(k)), st.lists(st.booleans(), min_size=k - 1, max_size=k - 1))
)


def as_groups(drawn: tuple[list[int], list[bool]]) -> list[list[int]]:
    order, cuts = drawn
    groups = [[order[0]]]
    for response, is_cut in zip(order[1:], cuts, strict=True):
        if is_cut:
            groups.append([response])
        else:
            groups[-1].append(response)
    return groups


def in_competition_form(groups: list[list[int]]) -> list[int]:
    ranks = [0] * sum(map(len, groups))
    n_better = 0
    for group in groups:
        for response in group:
            ranks[response] = n_better + 1
        n_better += len(group)
    return ranks


def in_dense_form(groups: list[list[int]]) -> list[int]:
    ranks = [0] * sum(map(len, groups))
    for place, group in enumerate(groups, start=1):
        for response in group:
            ranks[response] = place
    return ranks


@given(groups_of)
def test_both_forms_of_a_ranking_are_stored_alike(drawn: tuple[list[int], list[bool]]) -> None:
    groups = as_groups(drawn)
    stored = in_competition_form(groups)
    assert competition_ranks(in_dense_form(groups)) == tuple(stored)
    assert competition_ranks(stored) == tuple(stored)


@given(groups_of, st.integers(-5, 5), st.integers(1, 4))
def test_closing_up_keeps_order_and_ties_whatever_the_numbers(
    drawn: tuple[list[int], list[bool]], start: int, gap: int
) -> None:
    groups = as_groups(drawn)
    spread = [start + gap * rank for rank in in_dense_form(groups)]
    assert closed_up(spread) == tuple(in_competition_form(groups))


def test_every_list_of_small_numbers_is_a_ranking_or_refused() -> None:
    """All 4^4 lists for four responses: 75 rankings with ties exist, each in its one or two forms."""
    forms = {
        tuple(form(as_groups((list(order), list(cuts)))))
        for order in permutations(range(4))
        for cuts in product((True, False), repeat=3)
        for form in (in_competition_form, in_dense_form)
    }
    accepted = set()
    for ranks in product((1, 2, 3, 4), repeat=4):
        try:
            competition_ranks(ranks)
        except InvalidInput:
            continue
        accepted.add(ranks)
    assert accepted == forms
    assert len({competition_ranks(ranks) for ranks in accepted}) == 75


@pytest.mark.parametrize(
    "ranks", [[0, 1], [2, 2], [1, 3, 3], [1, 1, 4], [1, 2.0], [True, 2], ["1", 2], [1, None], [1, -1]]
)
def test_what_is_no_ranking_is_refused(ranks: list[object]) -> None:
    with pytest.raises(InvalidInput, match="rank"):
        competition_ranks(ranks)  # type: ignore[arg-type]


def test_a_rank_out_of_range_is_named_with_what_is_allowed() -> None:
    with pytest.raises(InvalidInput, match="rank 5 for response 2 is out of range: 3 responses allow ranks 1 to 3"):
        competition_ranks([1, 5, 2])


@given(groups_of)
def test_pairs_are_all_that_one_group_stands_above_another(drawn: tuple[list[int], list[bool]]) -> None:
    groups = as_groups(drawn)
    expected = {
        (better, worse)
        for place, group in enumerate(groups)
        for better in group
        for later in groups[place + 1 :]
        for worse in later
    }
    pairs = pairs_from_ranks(in_competition_form(groups))
    assert {(pair.chosen, pair.rejected) for pair in pairs} == expected
    assert len(pairs) == len(expected)


@given(groups_of)
def test_pairs_and_ties_together_are_k_choose_2(drawn: tuple[list[int], list[bool]]) -> None:
    groups = as_groups(drawn)
    k = sum(map(len, groups))
    tied = sum(len(group) * (len(group) - 1) // 2 for group in groups)
    ranks = in_competition_form(groups)
    assert count_ties(ranks) == tied
    assert len(pairs_from_ranks(ranks)) == k * (k - 1) // 2 - tied
    assert is_all_tied(ranks) == (len(groups) == 1)


@given(groups_of)
def test_reversing_a_ranking_swaps_chosen_and_rejected(drawn: tuple[list[int], list[bool]]) -> None:
    groups = as_groups(drawn)
    forward = {(pair.chosen, pair.rejected) for pair in pairs_from_ranks(in_competition_form(groups))}
    backward = {(pair.rejected, pair.chosen) for pair in pairs_from_ranks(in_competition_form(groups[::-1]))}
    assert forward == backward


@given(groups_of, st.randoms(use_true_random=False))
def test_renaming_the_responses_renames_the_pairs(drawn: tuple[list[int], list[bool]], random: object) -> None:
    groups = as_groups(drawn)
    names = list(range(sum(map(len, groups))))
    random.shuffle(names)  # type: ignore[attr-defined]
    renamed = [[names[response] for response in group] for group in groups]
    before = {(names[pair.chosen], names[pair.rejected]) for pair in pairs_from_ranks(in_competition_form(groups))}
    after = {(pair.chosen, pair.rejected) for pair in pairs_from_ranks(in_competition_form(renamed))}
    assert before == after


@given(groups_of)
def test_pairs_have_no_cycle_and_are_transitive(drawn: tuple[list[int], list[bool]]) -> None:
    pairs = {(pair.chosen, pair.rejected) for pair in pairs_from_ranks(in_competition_form(as_groups(drawn)))}
    for first, second in pairs:
        assert (second, first) not in pairs
        assert all((first, third) in pairs for other, third in pairs if other == second)


def test_the_rank_distance_of_a_ranking_written_out() -> None:
    """Ranks 1, 2, 2, 4 of a, b, c, d: a over b and c by 1, a over d by 3, b and c over d by 2; b and c are tied."""
    assert set(pairs_from_ranks([1, 2, 2, 4])) == {(0, 1, 1), (0, 2, 1), (0, 3, 3), (1, 3, 2), (2, 3, 2)}


@given(groups_of, st.randoms(use_true_random=False))
def test_ranks_by_place_on_screen_become_ranks_by_stored_position(
    drawn: tuple[list[int], list[bool]], random: object
) -> None:
    stored = in_competition_form(as_groups(drawn))
    display_order = list(range(len(stored)))
    random.shuffle(display_order)  # type: ignore[attr-defined]
    shown = [stored[position] for position in display_order]
    assert ranks_in_stored_order(shown, display_order) == tuple(stored)


@pytest.mark.parametrize("order", [[0, 0, 1], [0, 1], [1, 2, 3], [0, 1, 2, 3]])
def test_an_order_that_is_none_is_refused(order: list[int]) -> None:
    with pytest.raises(InvalidInput, match="is not an order of 3 responses"):
        ranks_in_stored_order([1, 2, 3], order)


def test_ranks_and_pairs_are_plain_python() -> None:
    """Nobody has to know arrays to read what a ranking means."""
    names = "labeling.judgement.ranks, labeling.judgement.pairs"
    lines = f"import sys, {names}; sys.exit(bool({{'numpy', 'pandas', 'pyarrow', 'scipy'}} & {{*sys.modules}}))"
    assert subprocess.run([sys.executable, "-c", lines], check=False, timeout=60).returncode == 0
