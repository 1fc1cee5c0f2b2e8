"""What is wrong with a response: each rule with a text that has it and its nearest neighbour that has not."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

import pytest
from factories import real_data

from data.fields import describe
from data.hygiene import BADGES, dropped_for, findings, screen
from data.label_settings import Hygiene, LabelSettings
from data.records import Messages, NewResponse

PROMPT = "Name the three largest rivers of Europe and say in one sentence where each of them ends"

JAPANESE = "日本で一番高い山は何ですか。その高さと場所も教えてください。"


def asked(text: str) -> Messages:
    return ({"role": "user", "content": text},)


def found(text: str, prompt: str = PROMPT, reason: str | None = "stop") -> tuple[str, ...]:
    return findings(asked(prompt), [text], [reason])[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Volga ends in the Caspian Sea.", ()),
        ("", ("empty",)),
        (" \n\t\u200b\ufeff", ("empty",)),
        ("0", ()),
        (PROMPT, ("echo",)),
        (f"{PROMPT}:", ("echo",)),
        (f"{PROMPT}. The Volga, the Danube and the Ural; they end in the Caspian and the Black Sea.", ()),
        ("Traceback (most recent call last):\n  File x", ("error_text",)),
        ('{"error": {"message": "overloaded"}}', ("error_text",)),
        ("Rate limit exceeded. Try again later.", ("error_text",)),
        ("HTTP 503 Service Unavailable", ("error_text",)),
        ("<html><head><title>502 Bad Gateway</title></head></html>", ("error_text",)),
        ("<html><head><title>My survey</title></head></html>", ()),
        ("An internal server error is a fault of the server: it answers 500.", ()),
        ("As an AI language model, I can't say.", ("self_identification",)),
        ("I'm ChatGPT and was trained by OpenAI.", ("self_identification",)),
        ("I am Claude Monet's greatest admirer.", ("self_identification",)),  # a price of the rule: it is a badge only
        ("A language model predicts the next word.", ()),
        ("OpenAI was founded in 2015.", ()),
    ],
)
def test_a_text_has_what_it_has(text: str, expected: tuple[str, ...]) -> None:
    assert found(text) == expected


def test_a_short_answer_in_the_words_of_its_question_is_no_echo() -> None:
    prompt = "What is the smallest positive integer number that is divisible by 5?"
    assert found("5 is the smallest positive integer number that is divisible by 5.", prompt) == ()


def test_a_sentence_taken_from_a_long_text_is_no_echo() -> None:
    first = "Roma ended their four-month winless streak at home with a victory over Napoli on Saturday in a key match"
    assert found(first, f"Summarise: {first}. {'They had been waiting for it for a long time. ' * 9}") == ()


def test_a_response_that_stopped_at_the_limit_is_named() -> None:
    assert found("The Volga", reason="length") == ("cut",)
    assert found("The Volga", reason=None) == ()


def test_of_two_that_are_almost_the_same_the_later_is_named() -> None:
    first = "The Volga ends in the Caspian Sea, the Danube in the Black Sea, and the Ural in the Caspian Sea as well."
    other = first.replace("as well", "too")  # 19 of 21 shingles in the first, 18 in common
    assert findings(asked(PROMPT), [first, other, first + " Yes."], [None] * 3) == [(), (), ("near_duplicate",)]
    assert findings(asked(PROMPT), [first, first.upper()], [None] * 2) == [(), ()]  # the prompt may ask for capitals


def test_texts_of_a_few_words_are_never_almost_the_same() -> None:
    assert findings(asked("2 + 2?"), ["The answer is 4", "The answer is 5"], [None] * 2) == [(), ()]


@pytest.mark.parametrize(
    ("prompt", "text", "expected"),
    [
        (JAPANESE, "Mount Fuji is the highest mountain of Japan.", True),
        (JAPANESE, "富士山です。標高は三千七百七十六メートルで静岡県にあります。", False),
        ("请用一句话介绍长江在中国的位置和它的长度以及终点在哪里", JAPANESE, False),
        ("What is the highest mountain of Japan?", "Самая высокая гора Японии называется Фудзи.", True),
        ("Say in Russian what the highest mountain is.", "Самая высокая гора Японии называется Фудзи.", False),
        ("Translate: the highest mountain of Japan", "Самая высокая гора Японии называется Фудзи.", False),
        ("Что такое словарь в языке Python, объясни", "```python\nd = {'first': 1, 'next': 2, 'last': 3}\n```", False),
        ("What is the highest mountain of Japan?", "富士山", False),  # too short to tell
    ],
)  # fmt: skip
def test_another_script_than_the_prompts(prompt: str, text: str, expected: bool) -> None:
    assert (found(text, prompt) == ("wrong_language",)) is expected


def test_the_project_decides_what_is_shown_and_what_is_dropped() -> None:
    cut = NewResponse("The Volga", provenance={"finish_reason": "length"})
    fine = NewResponse("The Volga, the Danube and the Ural.", provenance={"finish_reason": "stop"})
    model = NewResponse("As an AI language model, I can't say.")
    settings = LabelSettings(on_cut=Hygiene.DROP, on_self_identification=Hygiene.IGNORE)
    kept, counts = screen(asked(PROMPT), [cut, fine, model], settings)
    assert kept == [fine, model]
    assert counts == Counter(dropped_cut=1)
    kept, counts = screen(asked(PROMPT), [cut, fine, model], LabelSettings())
    assert [each.badges for each in kept] == [("cut",), (), ("self_identification",)]
    assert counts == Counter(badge_cut=1, badge_self_identification=1)
    assert dropped_for(("echo", "cut"), settings) == "cut"


def test_every_finding_has_its_setting_and_its_words() -> None:
    fields = [each.name for each in describe(LabelSettings) if each.choices == tuple(Hygiene)]
    settings = {name.removeprefix("on_") for name in fields}
    assert settings == set(BADGES)


def _pandalm() -> Iterator[tuple[str, list[str]]]:
    for row in json.loads(real_data("pandalm", "testset-v1.json").read_text(encoding="utf-8")):
        texts = [row["response1"], row["response2"]]
        if all(isinstance(text, str) for text in texts):  # the file has `false` for some of them
            yield f"{row['instruction']}\n{row['input']}".strip(), texts


@pytest.mark.slow
def test_on_real_responses_few_are_named() -> None:
    """Counted on answers of five models to real prompts, and looked at: the echoes and the empty ones are what they are
    called; nobody in there says what it is, stops with an error, or answers in another script."""
    total, counts = 0, Counter[str]()
    for prompt, texts in _pandalm():
        total += 2
        counts.update(name for each in findings(asked(prompt), texts, [None, None]) for name in each)
    assert total == 1986
    assert set(counts) == {"echo", "empty", "near_duplicate"}
    assert counts["empty"] == sum(not text.strip() for _, texts in _pandalm() for text in texts)
    assert counts["near_duplicate"] < 0.01 * total
    assert counts["echo"] < 0.04 * total
