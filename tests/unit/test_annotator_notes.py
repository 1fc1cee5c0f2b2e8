"""What is conspicuous in an annotator's work: each note at its limit, and nothing below it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.words.annotators import notes_of, nothing_words, p_words
from labeling.judgement.bias import LengthBias, PositionBias
from labeling.judgement.pair_agreement import PairAgreement
from labeling.review.agreement import Share
from labeling.work.alarms import AlarmKind, AnnotatorAlarm
from labeling.work.checks import AnnotatorRow

CALM = AnnotatorRow(
    annotator_id="a", name="Ann", n_ranked=100, n_unacceptable=0, n_skipped=0, n_late=0, median_seconds=30.0, n_hasty=0,
    n_timed=100, busiest_minute=3, position=PositionBias((25.0, 25.0), (25.0, 25.0), 0.0, 1.0, 50),
    length=LengthBias(0.5, 0.4, 0.6, 1.0, 100), gold=PairAgreement(None, 0, 0), consistency=PairAgreement(None, 0, 0),
    alarms=[], is_paused=False,
)  # fmt: skip


def test_calm_work_has_no_note() -> None:
    assert notes_of(CALM, Share("Ann", 0.8, 100), 1) == []
    assert notes_of(CALM, None, 1) == []


@pytest.mark.parametrize(
    ("changes", "beginning"),
    [
        ({"n_hasty": 6}, "6 of 100 answers came faster than their texts can be read, 6% (3% to 12%). Look"),
        ({"busiest_minute": 10}, "10 answers were stored within one minute"),
        ({"n_skipped": 60}, "Skipped 60 of 160 tasks, 38% (30% to 45%). Read"),
        (
            {"position": PositionBias((40.0, 10.0), (25.0, 25.0), 18.0, 0.00002, 50)},
            "Rank 1 stood 40 times at place A on the screen, 25 are expected by chance (50 rankings, p < 0.0001)",
        ),
        (
            {"position": PositionBias((10.0, 40.0), (25.0, 25.0), 18.0, 0.01, 50)},
            "Rank 1 stood 40 times at place B on the screen, 25 are expected by chance (50 rankings, p 0.0100)",
        ),
        ({"is_paused": True}, "Gets no work in this project now"),
        (
            {"alarms": [AnnotatorAlarm(AlarmKind.GOLD, 0.5, 0.7, 6, 0.19, 0.81)]},
            "Agrees with gold on 50% (19% to 81%) of the comparisons in 6 tasks, below 70%, which may be chance, for "
            "the interval holds that. Go",
        ),
        (
            {"alarms": [AnnotatorAlarm(AlarmKind.GOLD, 0.2, 0.7, 60, 0.12, 0.32)]},
            "Agrees with gold on 20% (12% to 32%) of the comparisons in 60 tasks, below 70%. Go",
        ),
        (
            {"consistency": PairAgreement(0.59, 15, 5, 0.22, 0.88)},
            "Agrees with themselves on 59% (22% to 88%) of the comparisons in 5 tasks",
        ),
        (
            {"length": LengthBias(0.7, 0.6, 0.8, 0.001, 100)},
            "Prefers the longer responses in 70% (60% to 80%) of 100 rankings",
        ),
        (
            {"length": LengthBias(0.2, 0.1, 0.35, 0.001, 100)},
            "Prefers the shorter responses in 80% (65% to 90%) of 100 rankings",
        ),
    ],
)
def test_each_note_says_what_was_seen(changes: dict[str, object], beginning: str) -> None:
    (note,) = notes_of(replace(CALM, **changes), None, 1)  # type: ignore[arg-type]
    assert note.startswith(beginning)


@pytest.mark.parametrize(
    "changes",
    [
        {"n_hasty": 5},
        {"alarms": [AnnotatorAlarm(AlarmKind.HASTE, 0.5, 0.2, 30)]},  # the share of hasty answers says it
        {"consistency": PairAgreement(0.6, 15, 5)},
        {"consistency": PairAgreement(0.0, 12, 4)},
        {"n_hasty": 2, "n_timed": 3},  # too few to say anything
        {"busiest_minute": 9},
        {"n_skipped": 40},
        {"n_ranked": 5, "n_skipped": 10},
        {"position": PositionBias((3.0, 1.0), (2.0, 2.0), None, None, 4)},
        {"length": LengthBias(None, None, None, None, 0)},
    ],
)
def test_below_its_limit_there_is_none(changes: dict[str, object]) -> None:
    assert notes_of(replace(CALM, **changes), None, 1) == []  # type: ignore[arg-type]


def test_the_limit_of_a_test_is_shared_between_all_who_are_tested() -> None:
    leaning = replace(CALM, length=LengthBias(0.7, 0.6, 0.8, 0.01, 100))
    assert len(notes_of(leaning, None, 4)) == 1
    assert notes_of(leaning, None, 5) == []


def test_low_agreement_is_said_where_there_is_enough_to_go_by() -> None:
    (note,) = notes_of(CALM, Share("Ann", 0.4, 30, 10, 0.17, 0.69), 3)
    assert note.startswith("Agrees with others on 40% (17% to 69%) of 30 comparisons in 10 tasks")
    assert notes_of(CALM, Share("Ann", 0.4, 29), 3) == []
    assert notes_of(CALM, Share("Ann", 0.5, 100), 3) == []
    assert notes_of(CALM, Share("Ann", None, 0), 3) == []


def test_p_values_in_words() -> None:
    assert [p_words(each) for each in (None, 0.5, 0.0001, 0.00009)] == ["undefined", "0.5000", "0.0001", "< 0.0001"]


def test_nothing_conspicuous_is_said_of_how_many_answers() -> None:
    few = replace(CALM, n_ranked=5)
    assert nothing_words([CALM, CALM], "anybody's") == "Nothing conspicuous in anybody's way of working: 200 answers."
    assert nothing_words([CALM, few], "anybody's") == (
        "Nothing conspicuous in anybody's way of working yet: 105 answers, 5 of who has fewest; most checks say "
        "nothing below 20 answers."
    )
