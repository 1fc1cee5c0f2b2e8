"""What an imported answer says by the stored places of its responses, and whether the project has it already.

An answer is known by the id that an export gave it, else by its content and its person. What differs is named: what is
stored is never replaced in silence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from data.errors import InvalidInput, NotFound
from data.labels.adjudications import find_adjudication
from data.labels.people import external_annotator, find_external, list_people
from data.labels.projects import export_key
from data.labels.rankings import find_ranking, versions_of
from data.labels.tasks import get_task, positions_in
from data.records import Adjudication, Detail, Ranking, RankingStatus, Task
from data.store import Tx
from data.text import messages_fingerprint, text_fingerprint
from labeling.files.parse import ParsedRanking
from labeling.judgement.ranks import closed_up
from labeling.snapshot.freeze import pseudonym
from labeling.snapshot.tables import conversation_text

Stored = Ranking | Adjudication


class People:
    """Who is meant by a name in a file: whom this project's exports call so, or else an author of imported answers."""

    def __init__(self, project_id: str) -> None:
        self.project_id = project_id
        self._by_pseudonym: dict[str, str] | None = None

    def find(self, tx: Tx, name: str) -> str | None:
        """The id of the person, if there is one yet."""
        return self._exported(tx, name) or find_external(tx, self.project_id, name)

    def find_or_add(self, tx: Tx, name: str) -> str:
        """The id of the person; an author that nobody has named before is added."""
        return self._exported(tx, name) or external_annotator(tx, self.project_id, name)

    def _exported(self, tx: Tx, name: str) -> str | None:
        if self._by_pseudonym is None:
            key, people = export_key(tx, self.project_id), list_people(tx, with_external=True)
            self._by_pseudonym = {pseudonym(key, each.id): each.id for each in people}
        return self._by_pseudonym.get(name)


@dataclass(frozen=True)
class Placed:
    """What a row says by the stored positions of its responses. `n_doubles`: responses that stood in the row before."""

    ranks: tuple[int, ...] | None
    detail: Detail
    display_order: tuple[int, ...] | None
    n_doubles: int


def place(parsed: ParsedRanking, positions: Sequence[int | None]) -> Placed:
    """`positions[i]`: where response i of the row is stored, None if it is a double. Of equal texts the first counts.

    With a double, what was shown where is no order of the stored responses any more, and so it is unknown.
    """
    place_of = {position: place for place, position in enumerate(positions) if position is not None}
    order = [place_of[position] for position in sorted(place_of)]
    shown, n_doubles = parsed.display_order, len(positions) - len(order)
    detail = Detail(
        unplaced=tuple(position for position, place in enumerate(order) if place in parsed.detail.unplaced),
        acceptable=_by_position(parsed.detail.acceptable, order),
        flags=_by_position(parsed.detail.flags, order),
        quality=_by_position(parsed.detail.quality, order),
        strength=parsed.detail.strength,
    )
    return Placed(
        ranks=None if parsed.ranks is None else closed_up(_by_position(parsed.ranks, order)),
        detail=detail,
        display_order=None if shown is None or n_doubles else tuple(order.index(each) for each in shown),
        n_doubles=n_doubles,
    )


def _by_position(values: Sequence[Any], order: Sequence[int]) -> tuple[Any, ...]:
    return tuple(values[place] for place in order) if values else ()


def is_known_by_id(tx: Tx, parsed: ParsedRanking, people: People) -> bool:
    """Whether the project has the ranking, or the rankings or the decision, that the row names by its id.

    An older version of an answer is known too. Raises InvalidInput where the row says something else than is stored.
    """
    ids = [each for each in parsed.ranking_id.split(",") if each]
    known = [stored for each in ids if (stored := _stored(tx, people.project_id, each)) is not None]
    if not known:
        return False
    if len(known) < len(ids):
        raise InvalidInput(
            f"the row merges {len(ids)} rankings, and {len(known)} of them are in this project; import an export of "
            "the format 'answers', which has each by itself"
        )
    differing = _differences_of(tx, parsed, known, people)
    if differing:
        raise InvalidInput(
            f"ranking {parsed.ranking_id} is in this project and says something else ({', '.join(differing)}); it "
            "stays as it is here. Take the row out, or import it into another project"
        )
    return True


def is_known_by_content(tx: Tx, task_id: str, annotator_id: str, parsed: ParsedRanking, placed: Placed) -> bool:
    """Whether the person has given just this answer to the task, or had done so before an edit.

    Raises InvalidInput where they have another one: a person has one answer to a task.
    """
    versions = versions_of(tx, task_id, annotator_id)
    if not versions:
        return False
    if any(not _differences(parsed, placed, each) for each in versions):
        return True
    differing = ", ".join(_differences(parsed, placed, versions[0]))
    raise InvalidInput(
        f"annotator {parsed.annotator!r} has another answer to just these texts, which is kept ({differing}); rows of "
        "different people need different names under 'annotator'"
    )


def _stored(tx: Tx, project_id: str, own_id: str) -> Stored | None:
    """A ranking or a decision of this project, current or not."""
    answer: Stored | None = find_adjudication(tx, own_id)
    if answer is None:
        try:
            answer = find_ranking(tx, own_id)
        except NotFound:
            return None
    return answer if get_task(tx, answer.task_id).project_id == project_id else None


def _differences_of(tx: Tx, parsed: ParsedRanking, known: Sequence[Stored], people: People) -> list[str]:
    """What a row says differently from what is stored under its id. Of merged rankings only the texts can be told."""
    first, task = known[0], get_task(tx, known[0].task_id)
    prints = [text_fingerprint(each.text) for each in parsed.responses]
    stored = {text_fingerprint(each.text) for each in task.responses}
    if not _is_prompt_of(parsed, task):
        return ["another prompt"]
    if not set(prints) <= stored or (set(prints) != stored and not parsed.is_pair):
        return ["other responses"]
    if len(known) > 1:
        return []
    placed = place(parsed, positions_in(tx, task.id, prints)) if not parsed.is_pair else None
    if placed is None:
        return _differences_of_pair(prints, first, task)
    author = first.decided_by if isinstance(first, Adjudication) else first.annotator_id
    is_other = bool(parsed.annotator) and people.find(tx, parsed.annotator) != author
    return [*(["another annotator"] if is_other else []), *_differences(parsed, placed, first)]


def _is_prompt_of(parsed: ParsedRanking, task: Task) -> bool:
    """Whether it is the task's prompt, as messages or, in a pair, as the text that exports of texts make of them."""
    own = parsed.prompt.messages
    if messages_fingerprint(own) == messages_fingerprint(task.messages):
        return True
    as_text = text_fingerprint(conversation_text(task.messages))
    return parsed.is_pair and len(own) == 1 and text_fingerprint(own[0]["content"]) == as_text


def _differences_of_pair(prints: Sequence[str], stored: Stored, task: Task) -> list[str]:
    """A pair says nothing but that its first response is better."""
    ranks = dict(zip((text_fingerprint(each.text) for each in task.responses), stored.ranks or (), strict=False))
    is_so = all(each in ranks for each in prints) and ranks[prints[0]] < ranks[prints[-1]]
    return [] if is_so else ["its ranks put the pair the other way round, or in no order"]


def _differences(parsed: ParsedRanking, placed: Placed, stored: Stored) -> list[str]:
    """What a row says differently, each with both values. What a row or the store does not say is no difference."""
    here, there = _values_of(stored), _values_of_row(parsed, placed)
    must = {"status", "ranks", "unplaced"}
    return [
        f"{name} {_shown(here[name])} here, {_shown(value)} in the row"
        for name, value in there.items()
        if name in here and (name in must or value not in (None, "", ())) and value != here[name]
    ]


def _values_of(stored: Stored) -> dict[str, Any]:
    if isinstance(stored, Adjudication):
        return {
            "status": RankingStatus.RANKED.value, "ranks": stored.ranks, "unplaced": stored.unplaced,
            "comment": stored.reason,
        }  # fmt: skip
    unknown = [name for name in ("duration_ms", "display_order") if getattr(stored, name) is None]
    values = _detail_values(stored.status, stored.detail) | {
        "status": stored.status.value, "ranks": stored.ranks, "comment": stored.comment,
        "skip_reason": stored.skip_reason, "duration_ms": stored.duration_ms, "display_order": stored.display_order,
    }  # fmt: skip
    return {name: value for name, value in values.items() if name not in unknown}


def _values_of_row(parsed: ParsedRanking, placed: Placed) -> dict[str, Any]:
    return _detail_values(parsed.status, placed.detail) | {
        "status": parsed.status.value, "ranks": placed.ranks, "comment": parsed.comment,
        "skip_reason": parsed.skip_reason, "duration_ms": parsed.duration_ms, "display_order": placed.display_order,
    }  # fmt: skip


def _detail_values(status: RankingStatus, detail: Detail) -> dict[str, Any]:
    """What was said beside the ranks. Lists that say nothing are empty; so is "none is acceptable" said of each, which
    an export says of whoever said it of all."""
    acceptable = detail.acceptable if any(each is not None for each in detail.acceptable) else ()
    says_it_twice = status is RankingStatus.UNACCEPTABLE and not any(acceptable) and None not in acceptable
    return {
        "unplaced": detail.unplaced,
        "acceptable": () if says_it_twice else acceptable,
        "flags": detail.flags if any(detail.flags) else (),
        "quality": detail.quality if any(each is not None for each in detail.quality) else (),
        "strength": detail.strength,
    }


def _shown(value: Any) -> str:
    if value in (None, "", ()):
        return "nothing"
    shown = repr(list(value)) if isinstance(value, tuple) else str(value)
    return shown if len(shown) <= 80 else f"{shown[:80]}..."
