"""One answer as the browser sends it, read into the record that is stored. Every field is checked here.

Lists come by display place and are turned into the responses' stored order. What is wrong raises InvalidInput with a
reason that the annotator reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from data.errors import InvalidInput
from data.records import Detail, NewRanking, Person, Project, RankingStatus
from data.text import clean_text
from labeling.judgement.ranks import competition_ranks, ranks_in_stored_order

MAX_REASON_LENGTH = 500
MAX_RATIONALE_LENGTH = 5000
BEST_QUALITY, BEST_STRENGTH = 7, 4
T = TypeVar("T")


def read_answer(person: Person, project: Project, n: int, sent: Mapping[str, Any]) -> NewRanking:
    """The answer to a task of n responses. Raises InvalidInput."""
    order = sent.get("display_order")
    if not isinstance(order, list) or any(type(place) is not int for place in order) or sorted(order) != [*range(n)]:
        raise InvalidInput(f"display order {order!r} is not an order of this task's {n} responses")
    status = _status(sent)
    ranks: tuple[int, ...] | None = None
    unplaced: tuple[int, ...] = ()
    reason = None
    if status is RankingStatus.RANKED:
        ranks, unplaced = _ranks(sent, order, allow_partial=project.settings.allow_partial)
    if status is RankingStatus.SKIPPED:
        reason = _text(sent, "skip_reason", MAX_REASON_LENGTH)
        if not reason:
            raise InvalidInput("a skip needs a reason")
    duration, token = sent.get("duration_ms"), sent.get("lease_token")
    return NewRanking(
        task_id=str(sent["task_id"]),
        annotator_id=person.id,
        submission_key=str(sent["submission_key"]),
        status=status,
        ranks=ranks,
        display_order=tuple(order),
        lease_token=None if token is None else str(token),
        skip_reason=reason,
        comment=_text(sent, "rationale", MAX_RATIONALE_LENGTH),
        detail=_detail(sent, order, project, unplaced),
        duration_ms=duration if type(duration) is int and 0 <= duration < 2**31 else None,
        guidelines_version=_guidelines_version(sent, project),
    )


def _status(sent: Mapping[str, Any]) -> RankingStatus:
    named = {
        RankingStatus.RANKED: sent.get("ranks") is not None,
        RankingStatus.UNACCEPTABLE: sent.get("unacceptable") is True,
        RankingStatus.SKIPPED: sent.get("skip_reason") is not None,
    }
    given = [status for status, is_given in named.items() if is_given]
    if len(given) > 1:
        raise InvalidInput(f"an answer is {' or '.join(given)}, not both")
    return given[0] if given else RankingStatus.RANKED  # which then says that its ranks are missing


def _ranks(
    sent: Mapping[str, Any], order: Sequence[int], *, allow_partial: bool
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Ranks, and the positions that are worse in no order, both by stored position."""
    shown, n = sent.get("ranks"), len(order)
    if not isinstance(shown, list) or len(shown) != n:
        raise InvalidInput(f"ranks {shown!r}: {n} ranks are needed, one for each response")
    ranks = competition_ranks(shown)
    rest = sent.get("unplaced")
    if rest in (None, []):
        return ranks_in_stored_order(ranks, order), ()
    if not allow_partial:
        raise InvalidInput("this project wants every response placed")
    last = [place for place, rank in enumerate(ranks) if rank == max(ranks)]
    if not isinstance(rest, list) or rest != last or len(last) == n:
        raise InvalidInput(f"unplaced {rest!r}: the rest is all that shares the last rank, and others come before it")
    return ranks_in_stored_order(ranks, order), tuple(sorted(order[place] for place in last))


def _detail(sent: Mapping[str, Any], order: Sequence[int], project: Project, unplaced: tuple[int, ...]) -> Detail:
    acceptable = _by_position(sent, "acceptable", order)
    if any(each is not None and type(each) is not bool for each in acceptable):
        raise InvalidInput(f"acceptable {list(acceptable)!r}: each is true, false or null")
    flags = _by_position(sent, "flags", order)
    for names in flags:
        if not isinstance(names, list):
            raise InvalidInput(f"flags {names!r}: a list of names is needed for each response")
        unknown = [name for name in names if name not in project.flags]
        if unknown:
            raise InvalidInput(f"{unknown[0]!r} is not a flag of this project; reload the page for its list")
    quality = _by_position(sent, "quality", order)
    for each in quality:
        if each is not None and not _is_in(each, 1, BEST_QUALITY):
            raise InvalidInput(f"quality {each!r} is out of range: 1 to {BEST_QUALITY}")
    strength = sent.get("strength")
    if strength is not None and not _is_in(strength, 1, BEST_STRENGTH):
        raise InvalidInput(f"strength {strength!r} is out of range: 1 to {BEST_STRENGTH}")
    return Detail(
        unplaced=unplaced,
        acceptable=acceptable if any(each is not None for each in acceptable) else (),
        flags=tuple(tuple(dict.fromkeys(names)) for names in flags) if any(flags) else (),
        quality=quality if any(each is not None for each in quality) else (),
        strength=strength,
    )


def _by_position(sent: Mapping[str, Any], name: str, order: Sequence[int]) -> tuple[Any, ...]:
    """A list by display place, turned into stored order; empty where nothing was sent."""
    shown = sent.get(name)
    if shown in (None, []):
        return ()
    if not isinstance(shown, list) or len(shown) != len(order):
        raise InvalidInput(f"{name} {shown!r}: {len(order)} values are needed, one for each response")
    by_position = dict(zip(order, shown, strict=True))
    return tuple(by_position[position] for position in range(len(order)))


def by_place(values: Sequence[T], order: Sequence[int]) -> list[T]:
    """The other way: values by stored position in the order in which the responses are shown; empty stays empty."""
    return [values[position] for position in order] if values else []


def _guidelines_version(sent: Mapping[str, Any], project: Project) -> int | None:
    """The version that the annotator saw; None where the browser does not say."""
    seen = sent.get("guidelines_version")
    if seen is None:
        return None
    if not _is_in(seen, 1, project.guidelines_version):
        raise InvalidInput(f"guidelines version {seen!r}: the project has 1 to {project.guidelines_version}")
    return int(seen)


def _text(sent: Mapping[str, Any], name: str, longest: int) -> str:
    value = sent.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidInput(f"{name} {value!r} is not a text")
    cleaned = clean_text(value).strip()
    if len(cleaned) > longest:
        raise InvalidInput(f"{name} has {len(cleaned):,} characters; {longest:,} are allowed")
    return cleaned


def _is_in(value: object, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most
