"""What is wrong with a sampled or imported response before anybody reads it. Plain Python on texts; nothing is changed.

Each finding is the name of one of `LabelSettings`' fields without its `on_`. The rules are few and strict: a badge that
is often wrong would be read past.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from data.label_settings import Hygiene, LabelSettings
from data.records import Messages, NewResponse

# What annotators read on a response.
BADGES = {
    "empty": "empty",
    "echo": "repeats the prompt",
    "cut": "cut at the length limit",
    "near_duplicate": "almost the same as another",
    "wrong_language": "another script than the prompt",
    "error_text": "looks like an error message",
    "self_identification": "says what model it is",
}
NEAR_DUPLICATE_SHARE = 0.9  # of the shingles of two texts, so many are in both
ECHO_SHARE = 0.9  # of a response's words, so many stand in one run of the prompt, which is half of it or more:
# a sentence taken from a long text may be its summary
_SHINGLE = 3
_HAN = r"\u3040-\u30ff\u3400-\u9fff"  # written without spaces: each sign counts as a word
_WORD = re.compile(rf"[{_HAN}]|[^\W{_HAN}]+")
_CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_ASKS_FOR_A_LANGUAGE = re.compile(
    r"translat|traduc|traduz|tradui|\u00fcbersetz|\u043f\u0435\u0440\u0435\u0432\u0435\u0434|\u7ffb\u8bd1|\u7ffb\u8b6f|\u7ffb\u8a33|"
    r"\b(?:in|into|to) (?:arabic|chinese|mandarin|japanese|korean|russian|ukrainian|greek|hebrew|hindi|thai|english)\b",
    re.IGNORECASE,
)
_SHORT, _LONG = 8, 20  # words: below 20, one word more may be the answer
_ERROR = re.compile(
    r"\A\s*(?:(?:<!doctype html|<html)(?s:.{0,500}?)<title>[^<]*(?:\b[45]\d\d\b|error|bad gateway|unavailable)|"
    r"traceback \(most recent call last\):|\{\s*\"error\"\s*:|"
    r"(?:error|http)\s*:?\s*(?:4\d\d|5\d\d)\b|(?:internal server error|bad gateway|service unavailable|"
    r"gateway time-?out|too many requests|rate limit (?:exceeded|reached)|you exceeded your current quota|"
    r"network error(?: due to high traffic)?|an error (?:has )?occurred)\b)",
    re.IGNORECASE,
)
_MAKERS = r"openai|anthropic|google|deepmind|meta ai|meta|microsoft|mistral ai|alibaba|hugging ?face|cohere|lmsys"
_MODELS = r"chatgpt|gpt-?\d\w*|claude|bard|gemini|llama|vicuna|alpaca|mistral|qwen|koala|smollm\d?"
_SELF = re.compile(
    r"\bas an? (?:large )?(?:ai|artificial intelligence)(?: language)?(?: model| assistant)\b|"
    r"\bas a (?:large )?language model\b|"
    rf"\bi(?:['\u2019]m| am) (?:{_MODELS})\b|\bi(?:['\u2019]m| am) an? (?:large )?(?:ai )?language model\b|"
    rf"\b(?:developed|trained|created|made) by (?:{_MAKERS})\b",
    re.IGNORECASE,
)


def findings(messages: Messages, texts: Sequence[str], finish_reasons: Sequence[str | None]) -> list[tuple[str, ...]]:
    """For each response of one prompt, the names of what is wrong with it, in the order of `BADGES`.

    Of two that are almost the same, the later one is named.
    """
    prompt = messages[-1]["content"]
    shingles = [_shingles(text) for text in texts]
    by_response = []
    for number, (text, reason) in enumerate(zip(texts, finish_reasons, strict=True)):
        checks = {
            "empty": is_empty(text),
            "echo": is_echo(prompt, text),
            "cut": reason == "length",
            "near_duplicate": any(_overlap(shingles[number], shingles[other]) for other in range(number)),
            "wrong_language": has_another_script(prompt, text),
            "error_text": _ERROR.search(text) is not None,
            "self_identification": _SELF.search(text) is not None,
        }
        by_response.append(tuple(name for name in BADGES if checks[name]))
    return by_response


def screen(
    messages: Messages, responses: Sequence[NewResponse], settings: LabelSettings
) -> tuple[list[NewResponse], Counter[str]]:
    """The responses that the project wants offered, with their badges, and counts: `dropped_...` and `badge_...`.

    How a response ended is read from its provenance (`finish_reason`).
    """
    counts, kept = Counter[str](), []
    reasons = [each.provenance.get("finish_reason") for each in responses]
    for response, reasons_found in zip(
        responses, findings(messages, [each.text for each in responses], reasons), strict=True
    ):
        reason = dropped_for(reasons_found, settings)
        if reason is not None:
            counts[f"dropped_{reason}"] += 1
            continue
        shown = tuple(name for name in reasons_found if getattr(settings, f"on_{name}") == Hygiene.BADGE)
        counts.update(f"badge_{name}" for name in shown)
        kept.append(replace(response, badges=shown))
    return kept, counts


def dropped_for(found: Sequence[str], settings: LabelSettings) -> str | None:
    """The first finding for which the project does not want a response offered, or None."""
    return next((name for name in found if getattr(settings, f"on_{name}") == Hygiene.DROP), None)


def is_empty(text: str) -> bool:
    """Whether nothing of the text can be seen: white space, control and format characters only."""
    return all(char.isspace() or unicodedata.category(char) in ("Cc", "Cf", "Zs") for char in text)


def is_echo(prompt: str, text: str) -> bool:
    """Whether the response says nothing but the prompt: the same words, or nine of ten in one run of most of it."""
    asked, said = words_of(prompt), words_of(text)
    if not said or not asked:
        return False
    if said == asked:
        return True
    run = _common_run(asked, said) if len(said) >= _SHORT else 0
    needed = len(said) if len(said) < _LONG else ECHO_SHARE * len(said)
    return run >= needed and 2 * run >= len(asked)


def has_another_script(prompt: str, text: str) -> bool:
    """Whether most letters of the response are of another script than most of the prompt's.

    Both need 20 letters. Kana and Han count as one: Japanese is written with both. Where the prompt asks
    for a language there is no finding.
    Code does not count.
    """
    if _ASKS_FOR_A_LANGUAGE.search(prompt):
        return False
    wanted, found = _script(prompt), _script(text)
    return wanted is not None and found is not None and wanted != found


def _script(text: str) -> str | None:
    prose = _CODE.sub(" ", text[:20_000])
    names = Counter(_script_of(char) for char in prose if char.isalpha())
    if names.total() < 20:
        return None
    name, number = names.most_common(1)[0]
    return name if number > names.total() / 2 else None


def _script_of(char: str) -> str:
    if char.isascii():
        return "LATIN"
    name = unicodedata.name(char, "?").split(maxsplit=1)[0]
    return "HAN" if name in ("CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA") else name


def words_of(text: str) -> list[str]:
    """The words of a text; in writing without spaces, its signs."""
    return _WORD.findall(text)


def _shingles(text: str) -> set[tuple[str, ...]]:
    words = words_of(text)
    if len(words) < _SHORT:
        return set()
    return {tuple(words[start : start + _SHINGLE]) for start in range(len(words) - _SHINGLE + 1)}


def _overlap(one: set[tuple[str, ...]], other: set[tuple[str, ...]]) -> bool:
    union = len(one | other)
    return union > 0 and len(one & other) >= NEAR_DUPLICATE_SHARE * union


def _common_run(asked: Sequence[str], said: Sequence[str]) -> int:
    """The length of the longest run of words of `said` that stands as it is in `asked`."""
    best, ends = 0, dict.fromkeys(range(len(asked) + 1), 0)
    for word in said[:5_000]:
        before = 0
        for index, other in enumerate(asked[:5_000], start=1):
            kept = ends[index]
            ends[index] = before + 1 if word == other else 0
            best = max(best, ends[index])
            before = kept
    return best
