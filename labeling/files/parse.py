"""Rows of imported files, in the native format, as records. Every message says what was found and what is needed.

prompt    {"id"?, "prompt": "text" | "messages": [{"role", "content"}...], "split"?, "meta"?}
          {"instruction": "text", "input"?: "text"}, as Alpaca has it: the input stands behind the instruction
responses {"prompt_id" | "prompt" | "messages", "responses": ["text", ...] | [{"text", "model"?, "meta"?}...]}
ranking   {"prompt" | "messages", "responses": [...], "ranks": [1, 2, 2, 4], "annotator"?, "status"?, "gold"?, ...}

Each may have "facts": what annotators see beside the prompt.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Any

from data.errors import InvalidInput
from data.labels.projects import MAX_K, MIN_K
from data.messages import checked_text, parse_messages, structure
from data.records import Detail, NewPrompt, NewResponse, RankingStatus, Split
from data.text import clean_text, clean_value, text_fingerprint
from labeling.files.field_use import Watched
from labeling.judgement.ranks import competition_ranks

PROMPT_FIELDS = ("prompt", "messages", "instruction", "question", "text")
_SPLITS = (None, "", *Split)
PROMPT_ROW = frozenset({"id", "split", "meta", "facts"})
RESPONSES_ROW = PROMPT_ROW | {"prompt_id", "responses"}
RANKING_ROW = RESPONSES_ROW | {
    "ranks", "annotator", "status", "unplaced", "acceptable", "flags", "quality", "strength", "duration_ms",
    "skip_reason", "comment", "gold", "display_order", "ranking_id", "pair_of", "left_out", "expected", "adjudicated",
}  # fmt: skip


@dataclass(frozen=True)
class Expected:
    """What was expected of a gold task, by places in the row, and whose answer that was; empty: nobody's."""

    ranks: tuple[int, ...]
    unplaced: tuple[int, ...]
    annotator: str


@dataclass(frozen=True)
class ParsedRanking:
    """A finished answer from a file. `ranks` is None unless it is ranked; the detail goes by places in the row.

    `is_gold`: nobody's answer, but the ranking that is expected. `display_order[i]`: the place in the row of what stood
    in place i of the screen, None where the file does not say. What an export says of an answer: `ranking_id`, with
    commas between those of merged ones; `is_pair`: the row is one pair of that ranking; `left_out`: why it was no group
    of its own; `expected`, of an answer to a gold task; `is_decision`: a researcher's, on what annotators had said.
    """

    prompt: NewPrompt
    responses: tuple[NewResponse, ...]
    status: RankingStatus
    ranks: tuple[int, ...] | None
    annotator: str
    skip_reason: str | None
    comment: str
    duration_ms: int | None
    detail: Detail
    is_gold: bool = False
    display_order: tuple[int, ...] | None = None
    ranking_id: str = ""
    is_pair: bool = False
    left_out: str = ""
    expected: Expected | None = None
    is_decision: bool = False


def parse_prompt(
    row: dict[str, Any], prompt_field: str | None = None, *, own_fields: Set[str] = PROMPT_ROW
) -> NewPrompt:
    """Read a prompt row. `prompt_field` names the field with the text where it is none of the usual ones.

    What is neither the prompt nor one of `own_fields` is kept under `meta`. Raises InvalidInput.
    """
    field = prompt_field or next((name for name in PROMPT_FIELDS if name in row), None)
    if field is None or field not in row:
        wanted = f"field {prompt_field!r}" if prompt_field else f"field of {', '.join(map(repr, PROMPT_FIELDS))}"
        raise InvalidInput(f"no {wanted}; the row has {', '.join(map(repr, sorted(row))) or 'nothing'}")
    split = row.get("split")
    if split not in _SPLITS:
        raise InvalidInput(f"split {split!r}: only 'train', 'eval' or nothing is allowed")
    named = next((name for name in ("id", "prompt_id") if row.get(name) not in (None, "")), None)
    content, second = _content(row, field)
    unknown = {name: value for name, value in row.items() if name not in own_fields | {field, named, second}}
    if isinstance(row, Watched):
        row.keep(unknown)
    return NewPrompt(
        messages=parse_messages(content),
        split=Split(split) if split else None,
        external_id=None if named is None else clean_text(str(row[named])),
        meta=_object(row.get("meta"), "meta") | (clean_value(unknown) if unknown else {}),
        facts=_facts(row.get("facts")),
    )


def _content(row: dict[str, Any], field: str) -> tuple[Any, str | None]:
    """What the prompt's field holds, and the second field that belongs to it, if there is one. Raises InvalidInput."""
    if field == "messages":
        return structure(row[field]), None
    if field != "instruction" or row.get("input") in (None, ""):
        return row[field], None
    if not all(isinstance(row[name], str) for name in ("instruction", "input")):
        raise InvalidInput("'instruction' and 'input' are joined to one prompt, so both have to be texts")
    return f"{row['instruction']}\n\n{row['input']}" if row["instruction"].strip() else row["input"], "input"


def parse_responses(row: dict[str, Any]) -> tuple[NewResponse, ...]:
    """Read the `responses` of a row: texts, or objects with a text and where it came from. Raises InvalidInput."""
    values = structure(row.get("responses"))
    if not isinstance(values, list) or not values:
        raise InvalidInput("no 'responses': a list of texts, or of objects with a 'text', is needed")
    responses = []
    for number, value in enumerate(values, start=1):
        entry = {"text": value} if isinstance(value, str) else value
        if not isinstance(entry, dict) or not isinstance(entry.get("text"), str):
            raise InvalidInput(f"response {number} is {value!r:.60}; a text, or an object with a 'text', is needed")
        meta = _object(entry.get("meta"), f"response {number}: meta")
        provenance = {name: each for name, each in entry.items() if name not in ("text", "model", "meta")} | meta
        if isinstance(entry, Watched):
            entry.keep(provenance)
        text = checked_text(entry["text"], f"response {number}")
        model = clean_text(str(entry.get("model") or ""))
        responses.append(NewResponse(text, model, {"source": "import"} | clean_value(provenance)))
    return tuple(responses)


def parse_rankable(row: dict[str, Any]) -> tuple[NewResponse, ...]:
    """Read the `responses` of a row that is to be ranked. Raises InvalidInput unless 2 to 12 are distinct."""
    responses = parse_responses(row)
    n_distinct = len({text_fingerprint(each.text) for each in responses})
    if not MIN_K <= n_distinct <= MAX_K:
        found = f"{n_distinct} distinct responses (of {len(responses)})"
        raise InvalidInput(f"{found}: a ranking needs {MIN_K} to {MAX_K}")
    return responses


def parse_ranking(row: dict[str, Any]) -> ParsedRanking:
    """Read a finished answer. Dense and competition ranks are accepted. Raises InvalidInput."""
    prompt, responses = parse_prompt(row, own_fields=RANKING_ROW), parse_rankable(row)
    status, allowed = row.get("status") or RankingStatus.RANKED.value, [each.value for each in RankingStatus]
    if status not in allowed:
        raise InvalidInput(f"status {status!r}: one of {', '.join(allowed)} is needed")
    ranks = _ranks(row.get("ranks"), len(responses)) if status == RankingStatus.RANKED else None
    return ParsedRanking(
        prompt=prompt,
        responses=responses,
        status=RankingStatus(status),
        ranks=ranks,
        annotator=str(row.get("annotator") or ""),
        skip_reason=_skip_reason(row) if status == RankingStatus.SKIPPED else None,
        comment=clean_text(str(row.get("comment") or "")),
        duration_ms=_duration(row.get("duration_ms")),
        detail=_detail(row, ranks, len(responses)),
        is_gold=_is_gold(row.get("gold"), ranks),
        display_order=_display_order(row.get("display_order"), len(responses)),
        ranking_id=str(row.get("ranking_id") or row.get("pair_of") or ""),
        is_pair=bool(row.get("pair_of")),
        left_out=str(row.get("left_out") or ""),
        expected=_expected(row, len(responses)),
        is_decision=str(row.get("adjudicated") or "").lower() == "true",
    )


def _facts(value: Any) -> str:
    if value is not None and not isinstance(value, str):
        raise InvalidInput(f"facts is {type(value).__name__}; a text is needed")
    return checked_text(value, "facts", may_be_empty=True) if value else ""


def _is_gold(value: Any, ranks: tuple[int, ...] | None) -> bool:
    given = value.strip().lower() if isinstance(value, str) else value
    if given in (None, "", False, "false"):
        return False
    if given not in (True, "true"):
        raise InvalidInput(f"gold {value!r}: true, false or nothing is needed")
    if ranks is None:
        raise InvalidInput("a gold row needs ranks: nothing else can be expected of an annotator")
    return True


def _display_order(value: Any, n: int) -> tuple[int, ...] | None:
    given = structure(value)
    if given in (None, "", []):
        return None
    places = [_whole(place) for place in given] if isinstance(given, list) else []
    if any(type(place) is not int for place in places) or sorted(places) != [*range(n)]:
        raise InvalidInput(
            f"display_order {given!r:.200}: the places (from 0) of all {n} responses, in the order in which they were "
            "shown, are needed; leave it out where nobody knows"
        )
    return tuple(places)


def _expected(row: dict[str, Any], n: int) -> Expected | None:
    given = _object(row.get("expected"), "expected")
    if not given:
        return None
    ranks = _ranks(given.get("ranks"), n)
    return Expected(ranks, _unplaced(given.get("unplaced"), ranks), str(given.get("annotator") or ""))


def _skip_reason(row: dict[str, Any]) -> str:
    return clean_text(str(row.get("skip_reason") or "skipped in the imported file"))


def _ranks(value: Any, n: int) -> tuple[int, ...]:
    given = structure(value)
    if not isinstance(given, list) or len(given) != n:
        found = f"{len(given)} ranks" if isinstance(given, list) else "no 'ranks'"
        raise InvalidInput(f"{found} for {n} responses; one rank for each response is needed")
    return competition_ranks([_whole(rank) for rank in given])


def _detail(row: dict[str, Any], ranks: tuple[int, ...] | None, n: int) -> Detail:
    """What was said beside the ranks. Raises InvalidInput."""
    strength = _whole(row.get("strength"))
    if strength not in (None, "") and (ranks is None or type(strength) is not int or not 1 <= strength <= 4):
        raise InvalidInput(f"strength {strength!r}: a number from 1 to 4 is needed, beside ranks")
    acceptable = _list_of(row, "acceptable", n)
    if any(each is not None and type(each) is not bool for each in acceptable):
        raise InvalidInput(f"acceptable {list(acceptable)}: true, false or null is needed for each response")
    quality = tuple(_whole(each) for each in _list_of(row, "quality", n))
    if any(each is not None and (type(each) is not int or not 1 <= each <= 7) for each in quality):
        raise InvalidInput(f"quality {list(quality)}: a number from 1 to 7, or null, is needed for each response")
    flags = _list_of(row, "flags", n)
    if any(not isinstance(names, list) or any(not isinstance(name, str) for name in names) for names in flags):
        raise InvalidInput(f"flags {list(flags)!r:.200}: a list of names is needed for each response")
    return Detail(
        unplaced=_unplaced(row.get("unplaced"), ranks),
        acceptable=acceptable,
        flags=tuple(tuple(clean_text(name) for name in names) for names in flags),
        quality=quality,
        strength=strength if type(strength) is int else None,
    )


def _list_of(row: dict[str, Any], name: str, n: int) -> tuple[Any, ...]:
    """A list with one value for each response; none if nothing was said."""
    given = structure(row.get(name))
    if given in (None, "", []):
        return ()
    if not isinstance(given, list) or len(given) != n:
        raise InvalidInput(f"{name} {given!r:.200}: a list of {n} is needed, one value for each response")
    return tuple(given)


def _unplaced(value: Any, ranks: tuple[int, ...] | None) -> tuple[int, ...]:
    given = structure(value)
    if given in (None, "", []):
        return ()
    places = [_whole(place) for place in given] if isinstance(given, list) else []
    last = [place for place, rank in enumerate(ranks or ()) if rank == max(ranks or ())]
    if any(type(place) is not int for place in places) or sorted(places) != last or len(last) == len(ranks or ()):
        raise InvalidInput(
            f"unplaced {given!r:.200}: the places (from 0) of all responses with the last rank are needed, "
            f"here {last}, and others that rank above them"
        )
    return tuple(sorted(places))


def _duration(value: Any) -> int | None:
    if value in (None, ""):
        return None
    number = _whole(value)
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 2**31:
        raise InvalidInput(f"duration_ms {value!r}: a whole number of milliseconds is needed")
    return number


def _whole(value: Any) -> Any:
    """Numbers of other tools as whole ones: 2.0 (a table with gaps holds nothing else) and, in CSV, '2'."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return int(value) if isinstance(value, str) and value.strip().isdecimal() and len(value) < 12 else value


def _object(value: Any, what: str) -> dict[str, Any]:
    parsed = structure(value)
    if parsed in (None, ""):
        return {}
    if not isinstance(parsed, dict):
        raise InvalidInput(f"{what} is {type(parsed).__name__}; a JSON object is needed")
    return dict(clean_value(parsed))
