"""How the screens say things: times, numbers, names of fields. Plain functions, no Streamlit."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Sequence
from typing import Any

from data.records import Detail, Messages, Run
from training.launch.kinds import KINDS

_ABBREVIATIONS = {"kl", "lora", "gae", "ppo", "sft", "dpo", "eos", "ptx", "id", "k", "cpu", "sha256", "trl", "rloo"}


def short_id(full_id: str) -> str:
    """The end of an id: enough to name a run, and what the command line accepts too."""
    return full_id[-6:]


def run_name(run: Run) -> str:
    return f"{KINDS[run.kind].title} {short_id(run.id)}"


def field_label(name: str) -> str:
    """`kl.coef` -> `KL coef`: a field's name as a label."""
    words = [word.upper() if word in _ABBREVIATIONS else word for word in re.split(r"[_.\s]+", name)]
    label = " ".join(words)
    return label[:1].upper() + label[1:]


def duration(seconds: float) -> str:
    """A length of time in its two largest units: `45 s`, `3 min 20 s`, `2 h 5 min`, `3 days`."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        minutes, rest = divmod(whole, 60)
        return f"{minutes} min {rest} s" if rest and minutes < 10 else f"{minutes} min"
    if whole < 86_400:
        hours, minutes = divmod(whole // 60, 60)
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days = whole // 86_400
    return f"{days} day{'s' if days > 1 else ''}"


def ago(seconds: float) -> str:
    """How long ago, roughly: `just now`, `3 min ago`, `2 h ago`."""
    if seconds < 60:
        return "just now"
    unit = 60 if seconds < 3600 else 3600 if seconds < 86_400 else 86_400
    return f"{duration(seconds // unit * unit)} ago"


def utc(seconds: float) -> str:
    """A moment, the same for whoever reads it."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def number(value: Any) -> str:
    """A number as people read it: four digits that count, thousands with commas; anything else as text."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "yes" if value is True else "no" if value is False else "none" if value is None else str(value)
    if isinstance(value, int) or (value.is_integer() and abs(value) < 1e15):
        return f"{int(value):,}"
    if not math.isfinite(value):
        return "not finite"
    if 1000 <= abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def count(how_many: int, thing: str) -> str:
    """`1 ranking`, `2,000 rankings`."""
    plural = f"{thing[:-1]}ies" if thing.endswith("y") else f"{thing}s"
    return f"{how_many:,} {thing if how_many == 1 else plural}"


def share_with_reach(value: float, low: float | None, high: float | None) -> str:
    """A share with its 95 % interval: `40% (21% to 63%)`."""
    return f"{value:.0%}" if low is None or high is None else f"{value:.0%} ({low:.0%} to {high:.0%})"


def prompt_text(prompt: Any) -> str:
    """A prompt as one text, from a text, from messages, or from whatever a run has written."""
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, list | tuple) and all(isinstance(each, dict) for each in prompt):
        messages = [each for each in prompt if "content" in each]
        if len(messages) == 1:
            return str(messages[0]["content"])
        return "\n\n".join(f"{each.get('role', '')}: {each['content']}" for each in messages)
    return "" if prompt is None else str(prompt)


def order_words(ranks: Sequence[int], unplaced: Sequence[int] = ()) -> str:
    """Ranks as the ranking page writes them: `B > A = C`, or `B > the rest (A, C)`."""
    letters = {rank: [chr(65 + place) for place, own in enumerate(ranks) if own == rank] for rank in sorted(set(ranks))}
    parts = [" = ".join(each) for each in letters.values()]
    if unplaced:
        parts[-1] = f"the rest ({', '.join(letters[max(ranks)])})"
    return " > ".join(parts)


def strength_words(strength: int) -> str:
    """How much better the best is than the next, as the annotator chose it: `strength 3 of 4 (4 significantly)`."""
    return f"strength {strength} of 4 (4 significantly)"


def said_of(detail: Detail, index: int) -> str:
    """What was said of one response beside its rank: `not acceptable, Rude, quality 2 of 7 (7 very good)`.

    A quality says which end is good: beside a rank, of which 1 is best, it would be read the other way round.
    """
    said = list(detail.flags[index]) if detail.flags else []
    if detail.acceptable and detail.acceptable[index] is not None:
        said.insert(0, "acceptable" if detail.acceptable[index] else "not acceptable")
    if detail.quality and detail.quality[index] is not None:
        said.append(f"quality {detail.quality[index]} of 7 (7 very good)")
    return ", ".join(said)


def first_line(messages: Messages, length: int = 300) -> str:
    """The last message of a prompt, cut to one line of a table."""
    text = " ".join(messages[-1]["content"].split()) if messages else ""
    return text if len(text) <= length else text[: length - 1] + "…"


def flatten(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested dicts as one level, with dotted names."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat
