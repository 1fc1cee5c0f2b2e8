"""Ranks of the responses of one task: 1 is best, equal ranks are a tie. Plain Python, no input or output.

The stored form is competition ranks (1, 2, 2, 4): a rank is one more than the number of responses that are better.
"""

from __future__ import annotations

from collections.abc import Sequence

from data.errors import InvalidInput


def competition_ranks(ranks: Sequence[int]) -> tuple[int, ...]:
    """Return the competition form of ranks given in competition (1, 2, 2, 4) or dense form (1, 2, 2, 3).

    Raises InvalidInput for anything else: no rank 1, a gap, a number out of range, something that is not a number.
    """
    n = len(ranks)
    for place, rank in enumerate(ranks, start=1):
        if isinstance(rank, bool) or not isinstance(rank, int):
            raise InvalidInput(f"rank {rank!r} for response {place} is not a whole number")
        if not 1 <= rank <= n:
            raise InvalidInput(f"rank {rank} for response {place} is out of range: {n} responses allow ranks 1 to {n}")
    competition = closed_up(ranks)
    dense = tuple(1 + len({other for other in ranks if other < rank}) for rank in ranks)
    if tuple(ranks) not in (competition, dense):
        raise InvalidInput(
            f"ranks {list(ranks)} have a gap: write {list(competition)} (ties share the better place) "
            f"or {list(dense)} (no numbers left out)"
        )
    return competition


def closed_up(ranks: Sequence[int]) -> tuple[int, ...]:
    """Return the competition form of any whole numbers where less is better: only their order and their ties count."""
    return tuple(1 + sum(other < rank for other in ranks) for rank in ranks)


def ranks_in_stored_order(shown: Sequence[int], display_order: Sequence[int]) -> tuple[int, ...]:
    """Turn ranks by display place into ranks by stored position; `display_order[place]` is the stored position.

    Raises InvalidInput unless `display_order` is an order of all the places.
    """
    if sorted(display_order) != list(range(len(shown))):
        raise InvalidInput(f"display order {list(display_order)} is not an order of {len(shown)} responses")
    by_position = dict(zip(display_order, shown, strict=True))
    return tuple(by_position[position] for position in range(len(shown)))


def is_all_tied(ranks: Sequence[int]) -> bool:
    """Whether every response has the same rank, so that no pair comes of it."""
    return len(set(ranks)) <= 1
