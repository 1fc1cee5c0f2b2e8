"""The report of a reward run on its page: the verdict first, every figure, and hostile texts as they are."""

from __future__ import annotations

from typing import Any

import pytest
from factories import make_person, make_snapshot
from hostile import HOSTILE, markdown_of
from report_maker import write_report
from run_makers import ended

from app.widgets.rewards.report import more_words, share_words
from data.files.paths import Home
from data.records import Role, Run, RunKind
from data.store import Store


def opened(store: Store, home: Home, open_app: Any, **words: Any) -> tuple[Any, Run, dict[str, Any]]:
    run = ended(store, RunKind.REWARD, snapshot=make_snapshot(store, home))
    report = write_report(home.run_folder(run.id), **words)
    app = open_app(make_person(store, Role.RESEARCHER), "runs")
    app.query_params["run"] = run.id
    app.run()
    assert not app.exception
    return app, run, report


def test_the_report_is_what_a_finished_reward_run_shows_first(sqlite_store: Store, home: Home, open_app: Any) -> None:
    app, _, report = opened(sqlite_store, home, open_app)
    assert next(tab.label for tab in app.tabs) == "Report"
    assert report["model"]["length"]["is_beaten"]
    assert "beats length alone" in app.success[0].value
    headers = [header.value for header in app.header]
    for wanted in ("Pair accuracy on held-out prompts", "Calibration", "Scores", "Best of n", "More labels"):
        assert wanted in headers
    parts = next(table.value for table in app.dataframe if "accuracy" in table.value)
    assert set(parts["by"]) == {"distance of ranks", "responses", "annotator", "flag"}
    worst = next(table.value for table in app.dataframe if "margin" in table.value)
    assert len(worst) == len(report["worst"])
    assert float(worst["margin"].iloc[0]) == pytest.approx(report["worst"][0]["margin"])


def test_a_model_that_does_not_beat_length_is_said_plainly(sqlite_store: Store, home: Home, open_app: Any) -> None:
    app, _, report = opened(sqlite_store, home, open_app, accuracy=0.52)
    assert not report["model"]["length"]["is_beaten"]
    assert "be told whether the model beats length alone" in app.warning[0].value
    assert not app.success


def test_without_the_instant_model_the_rest_is_there(sqlite_store: Store, home: Home, open_app: Any) -> None:
    app, _, _ = opened(sqlite_store, home, open_app, learning_curve=None)
    assert any("Too few rankings" in each.value for each in app.caption)


@pytest.mark.parametrize("text", HOSTILE)
def test_texts_of_models_and_people_are_no_markdown(text: str, sqlite_store: Store, home: Home, open_app: Any) -> None:
    worst = {"ranking_id": "r1", "prompt_id": "p1", "annotator": text, "margin": -2.0, "flags": [text]}
    worst |= dict.fromkeys(("prompt", "better", "worse"), text)
    app, _, _ = opened(sqlite_store, home, open_app, worst=[worst])
    assert text not in markdown_of(app)
    assert sum(text in each.value for each in app.text) >= 3


def test_a_run_without_a_report_has_no_such_tab(sqlite_store: Store, home: Home, open_app: Any) -> None:
    run = ended(sqlite_store, RunKind.REWARD, snapshot=make_snapshot(sqlite_store, home))
    app = open_app(make_person(sqlite_store, Role.RESEARCHER), "runs")
    app.query_params["run"] = run.id
    app.run()
    assert "Report" not in [tab.label for tab in app.tabs]


def test_a_report_of_another_release_is_told_apart(sqlite_store: Store, home: Home, open_app: Any) -> None:
    app, _, _ = opened(sqlite_store, home, open_app, schema=2)
    assert any("another release" in each.value for each in app.caption)


def test_words_for_shares_and_for_what_more_labels_give() -> None:
    assert share_words({"value": 0.625, "low": 0.5, "high": 0.75}) == "62 % (50 % to 75 %)"
    assert share_words({"value": 0.5, "low": None, "high": None}) == "50 %"
    assert share_words({"value": None, "low": None, "high": None}) == "unknown"
    twice = {"accuracy": 0.69, "low": 0.6, "high": 0.771}
    more = {"rankings": 45.2, "low": 20.0, "high": None}
    words = more_words({"more_for_one_point": more, "at_twice": twice})
    assert words.startswith("About 45 more rankings for one more point (95 %: 20 to never).")
    assert "69.0 % (60.0 % to 77.1 %)" in words
    flat = more_words({"more_for_one_point": dict.fromkeys(("rankings", "low", "high")), "at_twice": twice})
    assert flat.startswith("The curve has flattened")
