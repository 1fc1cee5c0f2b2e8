"""Which metrics share a chart, and how long curves are thinned."""

from __future__ import annotations

import math

from app.widgets.policies.frontier import frontier_frame
from app.widgets.runs.metric_chart import CHARTS, charts_of, curves_of, thinned
from data.records import MetricPoint


def test_each_metric_is_in_one_chart() -> None:
    names = [
        "reward/pair_accuracy", "reward/held_out_pair_accuracy", "reward/loss", "policy/loss", "kl/k1_sum_mean",
        "kl/coef", "policy/clip_fraction", "response/length_mean", "value/explained_variance", "something/new",
    ]  # fmt: skip
    charts = charts_of(names)
    assert sorted(series["name"] for chart in charts for series in chart["series"]) == sorted(names)
    by_title = {chart["title"]: [series["label"] for series in chart["series"]] for chart in charts}
    assert by_title["Accuracy"] == ["held out pair accuracy", "pair accuracy"]
    assert by_title["Loss"] == ["policy/loss", "reward/loss"], "of two families: the whole name"
    assert by_title["something/new"] == ["new"]
    known = [chart.title for chart in CHARTS]
    assert [title for title in by_title if title in known] == [title for title in known if title in by_title]


def test_a_chart_of_its_own_has_the_note_of_its_family() -> None:
    (chart,) = charts_of(["policy/odd"])
    assert chart["note"] == "Of the policy's update."


def test_curves_keep_gaps() -> None:
    points = [MetricPoint(1, "a", 0.5), MetricPoint(2, "a", None), MetricPoint(2, "b", 1.0)]
    assert curves_of(points) == {"a": ([1, 2], [0.5, None]), "b": ([2], [1.0])}


def test_a_long_curve_keeps_its_peaks_its_gaps_and_its_end() -> None:
    values: list[float | None] = [0.0] * 10_000
    values[4321], values[777], values[5000] = 9.0, -9.0, None
    steps, kept = thinned(list(range(10_000)), values, 200)
    assert len(steps) <= 202
    assert steps == sorted(set(steps))
    at = dict(zip(steps, kept, strict=True))
    assert (at[4321], at[777], at[5000], steps[-1]) == (9.0, -9.0, None, 9_999)


def test_a_short_curve_is_left_as_it_is() -> None:
    assert thinned([1, 2], [0.1, None], 2) == ([1, 2], [0.1, None])


def test_score_over_kl_takes_iterations_that_have_both() -> None:
    points = [
        MetricPoint(2, "kl/k1_mean", 0.2), MetricPoint(2, "reward/score_mean", 1.2), MetricPoint(1, "kl/k1_mean", 0.1),
        MetricPoint(3, "kl/k1_mean", 0.3), MetricPoint(3, "reward/score_mean", None),
    ]  # fmt: skip
    assert frontier_frame(points).to_dict("records") == [
        {"iteration": 2, "root of KL": math.sqrt(0.2), "score": 1.2, "of": "rollouts"}
    ]
