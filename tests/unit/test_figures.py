"""Figures of held-out rankings, against numbers counted by hand."""

from __future__ import annotations

import itertools
import math
import random
import re
from dataclasses import replace
from statistics import fmean

import numpy as np
import pytest

from data.intervals import ratio_interval
from training.measures.figures import (
    Judged,
    best_of,
    best_of_curve,
    by,
    exact_order,
    human_agreement,
    pair_accuracy,
    pair_columns,
    per_ranking,
    target_columns,
    tau,
    win_share,
)
from training.measures.verdicts import (
    compared,
    figures,
    length_figures,
    longer_wins,
    score_distribution,
    verdicts,
    worst_pairs,
)


def judged(ranks: tuple[int, ...], scores: tuple[float, ...], prompt: str = "p", **more: object) -> Judged:
    lengths = more.pop("lengths", tuple(range(1, len(ranks) + 1)))
    name = str(more.pop("name", f"r-{prompt}"))
    return Judged(name, prompt, ranks, scores, lengths, **more)  # type: ignore[arg-type]


ONE = judged((1, 2, 3), (3.0, 1.0, 2.0), "p1", annotator="a", flags=(("rude",), (), ()))  # one of three pairs is wrong
TWO = judged((1, 1, 2, 3), (0.0, 5.0, 0.0, -1.0), "p2", annotator="b")  # 5 pairs; (0, 2) has equal scores
THREE = judged((2, 1), (1.0, 0.0), "p3", annotator="a")  # wrong


def test_pairs_are_better_and_worse_and_weigh_alike_within_their_ranking() -> None:
    pairs = pair_columns([ONE, TWO, THREE])
    assert len(pairs.weight) == 3 + 5 + 1
    assert pairs.weight.tolist() == pytest.approx([1 / 3] * 3 + [1 / 5] * 5 + [1])
    assert pairs.prompt.tolist() == [0] * 3 + [1] * 5 + [2]
    assert pairs.margin.tolist() == [2, 1, -1, 0, 1, 5, 6, 1, -1]
    assert [each["distance"] for each in pairs.facts] == [1, 2, 1, 1, 2, 1, 2, 1, 1]
    assert pairs.facts[0]["flags"] == {"rude"} and pairs.facts[2]["flags"] == set()


def test_accuracy_is_the_mean_over_rankings_and_equal_scores_are_half_right() -> None:
    found = pair_accuracy(pair_columns([ONE, TWO, THREE]))
    assert found["value"] == pytest.approx((2 / 3 + 4.5 / 5 + 0) / 3)
    assert (found["n"], found["prompts"]) == (9, 3)
    assert 0 <= found["low"] <= found["value"] <= found["high"] <= 1


def test_an_interval_is_over_prompts_which_stay_whole() -> None:
    """A hundred rankings of two prompts tell no more than two prompts do."""
    many = [judged((1, 2), (1.0, 0.0), "good", name=str(n)) for n in range(50)]
    many += [judged((1, 2), (0.0, 1.0), "bad", name=str(n)) for n in range(50, 100)]
    found = pair_accuracy(pair_columns(many))
    assert (found["low"], found["value"], found["high"]) == (0, 0.5, 1)
    assert pair_accuracy(pair_columns(many[:50]))["low"] is None
    assert ratio_interval(np.array([1.0]), np.array([1.0])) == (None, None)


def test_an_interval_has_the_width_that_theory_gives() -> None:
    rng = random.Random(1)
    drawn = [judged((1, 2), (float(rng.random() < 0.7), 0.5), f"p{n}", name=str(n)) for n in range(400)]
    found = pair_accuracy(pair_columns(drawn))
    half = 1.96 * (found["value"] * (1 - found["value"]) / 400) ** 0.5
    assert found["high"] - found["low"] == pytest.approx(2 * half, rel=0.15)


def test_tables_by_what_pairs_have() -> None:
    pairs = pair_columns([ONE, TWO, THREE])
    by_distance = {row["of"]: row for row in by(pairs, lambda facts: [facts["distance"]])}
    near = [(1, 1 / 3), (0, 1 / 3), (0.5, 1 / 5), (1, 1 / 5), (1, 1 / 5), (0, 1)]
    assert by_distance[1]["value"] == pytest.approx(sum(r * w for r, w in near) / sum(w for _, w in near))
    assert by_distance[2]["value"] == 1
    assert [row["of"] for row in by(pairs, lambda facts: [facts["k"]])] == [2, 3, 4]
    of_a = next(row for row in by(pairs, lambda facts: [facts["annotator"]]) if row["of"] == "a")
    assert of_a["value"] == pytest.approx((2 / 3 + 0) / 2)
    (flagged,) = by(pairs, lambda facts: facts["flags"])
    assert (flagged["of"], flagged["value"], flagged["n"]) == ("rude", 1.0, 2)


def test_exact_order_and_tau() -> None:
    assert [exact_order(each) for each in (ONE, judged((1, 2, 2), (3.0, 0.0, 1.0)))] == [0, 1]
    assert tau(ONE) == pytest.approx(1 / 3)
    assert tau(judged((1, 2), (0.0, 0.0))) is None
    assert tau(judged((1, 2, 2), (3.0, 1.0, 0.0), unplaced=(1, 2))) is None
    assert per_ranking([ONE, judged((1, 2), (0.0, 0.0))], tau)["n"] == 1


def test_best_of_n_is_the_mean_over_all_ways_to_draw() -> None:
    values, scores = [0.1, 0.9, 0.4, 0.6, 0.2], [5.0, 1.0, 3.0, 2.0, 4.0]
    for n in range(1, 6):
        drawn = [values[max(places, key=scores.__getitem__)] for places in itertools.combinations(range(5), n)]
        assert best_of(values, scores, n) == pytest.approx(fmean(drawn))


def test_equal_scores_share_what_they_are_worth() -> None:
    assert best_of([1.0, 0.0], [2.0, 2.0], 2) == 0.5
    assert best_of([1.0, 0.0, 0.5], [2.0, 2.0, 1.0], 3) == 0.5


def test_best_of_curve_starts_at_chance_and_ends_at_the_first_choice() -> None:
    rankings = [ONE, judged((1, 2, 3), (1.0, 2.0, 3.0), "p9"), THREE]
    curve = best_of_curve(rankings)
    assert [point["n_samples"] for point in curve] == [1, 2, 3]
    assert curve[0]["value"] == pytest.approx(0.5)
    assert curve[-1]["value"] == pytest.approx((1 + 0) / 2)  # of ONE the best, of the other the worst
    assert win_share(TWO, 0) == pytest.approx((0.5 + 1 + 1) / 3)


def test_people_agree_where_both_saw_a_difference() -> None:
    rankings = [judged((1, 2, 3), (0.0,) * 3, "p", name="1"), judged((1, 3, 1), (0.0,) * 3, "p", name="2")]
    # The second person has the responses in another order: b, c, a. Pairs: ab: both a; ac: c tied with... b 1, c 3, a 1
    found = human_agreement(rankings, [["a", "b", "c"], ["b", "c", "a"]])
    # First: a < b < c. Second: b = a, both above c. ab: a tie of the second, left out; ac and bc: agreed.
    assert (found["value"], found["n"]) == (1.0, 2)
    other = human_agreement([rankings[0], judged((3, 2, 1), (0.0,) * 3, "p", name="2")], [["a", "b", "c"]] * 2)
    assert (other["value"], other["n"]) == (0.0, 3)
    assert human_agreement([ONE, TWO], [list("abc"), list("abcd")])["value"] is None


def test_length_is_the_baseline_in_the_direction_that_was_learnt() -> None:
    longer = judged((1, 2), (0.0, 1.0), lengths=(9, 3))
    shorter = judged((2, 1), (0.0, 1.0), lengths=(9, 3))
    assert longer_wins([longer]) and not longer_wins([shorter])
    found = length_figures([longer, shorter], pair_columns([longer, shorter]), is_longer_better=False)
    assert (found["baseline"], found["accuracy"]["value"]) == ("shorter wins", 0.5)
    assert found["correlation"] == pytest.approx(-1)
    constant = length_figures([ONE], pair_columns([judged((1, 2, 3), (3.0, 1.0, 2.0), lengths=(4, 4, 4))]), True)
    assert constant["accuracy"]["value"] == 0.5


def test_a_correlation_within_rankings_does_not_see_prompts() -> None:
    """Between prompts longer scores higher, within them shorter does."""
    rankings = [
        judged((1, 2), (1.0, 0.0), "p", lengths=(1, 2)),
        judged((1, 2), (11.0, 10.0), "q", lengths=(101, 102)),
    ]
    found = length_figures(rankings, pair_columns(rankings), is_longer_better=True)
    assert found["correlation"] > 0.9
    assert found["correlation_within_rankings"] == pytest.approx(-1)


def many(right: float, length_right: float, n: int = 300) -> list[Judged]:
    rng = random.Random(0)
    return [
        judged(
            (1, 2),
            (float(rng.random() < right), 0.5),
            f"p{number}",
            name=str(number),
            lengths=(9, 3) if rng.random() < length_right else (3, 9),
        )
        for number in range(n)
    ]


@pytest.mark.slow
def test_a_report_says_plainly_whether_length_is_beaten() -> None:
    for right, wanted in (
        (0.85, "The model beats length alone (longer wins): 0."),
        (0.62, "It can't be told whether the model beats length alone (longer wins): 0."),
        (0.4, "The model does worse than length alone (longer wins): 0."),
    ):
        rankings = many(right, 0.62)
        report = {"model": figures(rankings, rankings, [["a", "b"]] * len(rankings))}
        first, *_, ceiling = verdicts(report)
        assert first.startswith(wanted) and first.endswith(
            ("on 300 prompts.", "on 300 prompts, no more than chance allows.")
        )
        assert re.search(r"a difference of [+-]0\.\d+ \([+-]0\.\d+ to [+-]0\.\d+\)", first)
        assert "No held-out prompt was ranked by two people" in ceiling


def test_two_models_are_compared_pair_by_pair() -> None:
    rankings = many(0.8, 0.5)
    same = compared(rankings, rankings)
    others = 1 - 0.05 ** (1 / 300)  # of all prompts, as many as this may differ without one of 300 showing it
    assert (same["value"], same["low"], same["high"]) == (0, pytest.approx(-others), pytest.approx(others))


def test_scores_of_the_first_and_the_last() -> None:
    found = score_distribution([ONE, THREE])
    assert found["first"]["mean"] == pytest.approx((3 + 0) / 2)
    assert found["last"]["mean"] == pytest.approx((2 + 1) / 2)
    assert sum(found["all"]["counts"]) == 5 and len(found["edges"]) == len(found["all"]["counts"]) + 1


def test_the_worst_pairs_name_who_said_so_once_for_each_ranking() -> None:
    found = worst_pairs([ONE, TWO, THREE])
    assert [(each["ranking_id"], each["margin"]) for each in found] == [("r-p1", -1.0), ("r-p3", -1.0)]
    assert (found[1]["annotator"], found[1]["better"], found[1]["worse"]) == ("a", 1, 0)
    assert len(worst_pairs([ONE, TWO, THREE], n=1)) == 1
    again = judged((1, 2, 3), (3.0, 1.0, 2.0), "p1", name="second", annotator="b")
    assert [each["ranking_id"] for each in worst_pairs([ONE, again])] == ["r-p1"]


def test_a_report_is_whole_for_small_and_odd_rankings() -> None:
    found = figures([ONE], [], [["a", "b", "c"]])
    assert found["pair_accuracy"]["low"] is None and found["length"]["is_beaten"] is False
    flat = figures([judged((1, 2), (0.0, 0.0))], [], [["a", "b"]])
    assert flat["pair_accuracy"]["value"] == 0.5 and flat["tau"]["value"] is None
    assert flat["length"]["correlation"] is None


# Three people on three responses: a over b 2 of 3, a over c all, b and c even with one who sees no difference.
SOFT = judged(
    (1, 2, 2), (1.0, 2.0, 0.0), "soft", annotator="x,y,z",
    probabilities=(0, 2 / 3, 1, 1 / 3, 0, 0.5, 0, 0.5, 0), preferred=(0, 2, 3, 1, 0, 1, 0, 1, 0),
)  # fmt: skip


def test_merged_rankings_have_the_pairs_of_their_majorities() -> None:
    assert (SOFT.pairs, SOFT.even_pairs) == ([(0, 1), (0, 2)], [(2, 1)])
    pairs = pair_columns([SOFT, THREE])
    assert pair_accuracy(pairs)["value"] == pytest.approx((1 / 2 + 0) / 2)  # a over b is wrong, a over c is right
    assert (exact_order(SOFT), exact_order(replace(SOFT, scores=(3.0, 1.0, 2.0)))) == (0, 1)
    assert [row["of"] for row in by(pairs, lambda facts: [facts["annotator"]])] == ["", "a"]
    assert [row["of"] for row in figures([SOFT, THREE], [], [list("abc"), list("ab")])["by_annotator"]] == ["a"]


def test_merged_rankings_are_calibrated_against_how_sure_people_are() -> None:
    """Margins: a - b = -1 with 2/3, a - c = 1 with 1, c - b = -2 with 1/2; beside them a pair of one person."""
    margins, weights, targets = target_columns([SOFT, THREE])
    assert margins.tolist() == [-1, 1, -2, -1]
    assert weights.tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3, 1])
    assert targets.tolist() == pytest.approx([2 / 3, 1, 1 / 2, 1])
    a_b = 2 / 3 * math.log1p(math.exp(1)) + 1 / 3 * math.log1p(math.exp(-1))
    c_b = (math.log1p(math.exp(2)) + math.log1p(math.exp(-2))) / 2
    wanted = ((a_b + math.log1p(math.exp(-1)) + c_b) / 3 + math.log1p(math.exp(1))) / 2
    found = figures([SOFT, THREE], [], [list("abc"), list("ab")])["calibration"]
    assert found["loss"] == pytest.approx(wanted)
    # Confidences 0.7311 (a over c right, b over a by a third; the other person's pair wrong) and 0.8808 (even).
    assert [(each["from"], each["n"]) for each in found["bins"]] == [(0.7, 3), (0.85, 1)]
    assert [each["accuracy"] for each in found["bins"]] == pytest.approx([(1 / 3 * 1 / 3 + 1 / 3) / (5 / 3), 0.5])


def test_a_merged_response_beats_the_share_of_people_who_prefer_it() -> None:
    assert [win_share(SOFT, place) for place in range(3)] == pytest.approx([5 / 6, (1 / 3 + 1 / 2) / 2, 1 / 4])
    nobody = replace(SOFT, probabilities=(0, 1, 1, 0, 0, 0, 0, 0, 0))  # b and c were not compared
    assert [win_share(nobody, place) for place in range(3)] == [1, 0.25, 0.25]
    assert best_of_curve([SOFT])[0]["value"] == pytest.approx(0.5)


def test_majorities_in_a_circle_have_pairs_and_no_tau() -> None:
    circle = judged((1, 1, 1), (2.0, 1.0, 0.0), probabilities=(0, 0.6, 0.4, 0.4, 0, 0.6, 0.6, 0.4, 0))
    assert circle.pairs == [(0, 1), (1, 2), (2, 0)]
    assert tau(circle) is None
    assert [each["distance"] for each in pair_columns([circle]).facts] == [0, 0, 0]
    assert pair_accuracy(pair_columns([circle]))["value"] == pytest.approx(2 / 3)


def test_people_whose_rankings_were_merged_are_the_ceiling_too() -> None:
    """a, b: 2 against 1, so one of three agrees; a, c: three of three; b, c: one against one."""
    found = human_agreement([SOFT, replace(SOFT, ranking_id="again")], [list("abc")] * 2)
    assert (found["n"], found["value"]) == (14, pytest.approx((1 + 3 + 0) / 7))
    assert found["prompts"] == 1
