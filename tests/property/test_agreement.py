"""Agreement does not depend on names or orders, and people who say the same agree."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labeling.judgement.ranks import closed_up
from labeling.review.agreement import Agreement, Answer, agreement


@st.composite
def answers(draw: st.DrawFn) -> list[Answer]:
    made = []
    for task in range(draw(st.integers(1, 4))):
        texts = tuple("abcd"[: draw(st.integers(2, 4))])
        for person in range(draw(st.integers(1, 3))):
            ranks = draw(st.lists(st.integers(1, 3), min_size=len(texts), max_size=len(texts)))
            made.append(Answer(f"p{task}", f"t{task}", f"a{person}", texts, closed_up(ranks)))
    return made


def values(found: Agreement) -> list[float | None]:
    figures = (found.pairs_with_ties, found.pairs_without_ties, found.alpha, found.tau, found.human_accuracy)
    return [number for each in figures for number in (each.value, each.low, each.high, each.n)]


@settings(max_examples=15, deadline=None)
@given(answers())
def test_names_and_orders_change_nothing(given_answers: list[Answer]) -> None:
    names = {"a0": "zoe", "a1": "bob", "a2": "ann"}
    changed = []
    for each in given_answers:
        order = list(range(len(each.ranks)))[::-1]
        responses, ranks = tuple(each.responses[i] for i in order), tuple(each.ranks[i] for i in order)
        changed.append(replace(each, annotator=names[each.annotator], responses=responses, ranks=ranks))
    assert values(agreement(changed[::-1])) == pytest.approx(values(agreement(given_answers)), nan_ok=False)


@settings(max_examples=15, deadline=None)
@given(answers())
def test_people_who_say_the_same_agree_wholly(given_answers: list[Answer]) -> None:
    first = [each for each in given_answers if each.annotator == "a0"]
    found = agreement([*first, *[replace(each, annotator="b") for each in first]])
    for figure in (found.pairs_with_ties, found.pairs_without_ties, found.alpha, found.tau, found.human_accuracy):
        assert figure.value is None or figure.value == pytest.approx(1.0)
    assert found.pairs_with_ties.value == 1.0
    assert found.worst_tasks == []
