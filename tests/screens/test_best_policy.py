"""The best policy of a PPO run on its page and in the lists of models."""

from __future__ import annotations

from typing import Any

import pytest
from factories import make_person, make_snapshot
from run_makers import ended, watched

from app.widgets.base.models import model_name, model_suggestions
from data.files.paths import Home
from data.records import Role, Run, RunKind, RunStatus, Snapshot
from data.runs.state import list_runs
from data.store import Store


@pytest.fixture
def snapshot(sqlite_store: Store, home: Home) -> Snapshot:
    return make_snapshot(sqlite_store, home)


def page(store: Store, open_app: Any, run: Run, tab: str = "Curves") -> Any:
    app = open_app(make_person(store, Role.RESEARCHER), "runs")
    app.query_params["run"] = run.id
    app.query_params["runs.tab"] = tab
    app.run()
    assert not app.exception
    return app


def words_of(app: Any) -> str:
    return "\n".join(each.value for each in [*app.text, *app.caption])


def test_the_page_says_which_is_best_beside_the_last_and_offers_it(
    sqlite_store: Store, home: Home, snapshot: Snapshot, open_app: Any
) -> None:
    run = watched(sqlite_store, snapshot, {0: 0.1, 2: 0.7, 4: 0.4})
    (home.run_folder(run.id) / "best").mkdir(parents=True)
    app = page(sqlite_store, open_app, run)
    # Differences of 16 prompts: 4 are 0.2 more, 4 are 0.2 less; t(15) at 1 - 0.025 / 2 is 2.4899, s is 0.1461.
    words = (
        "Best policy: iteration 2, by held_out/objective: 0.7. It is better than the start, by 0.6 (0.5091 to 0.6909). "
        "It is better than the next, iteration 4, by 0.3 (0.2091 to 0.3909). (16 prompts, the best of 3 evaluations; "
        "paired 95 % intervals that allow for the choice.) The last one measured, iteration 4, has 0.4."
    )
    assert words in words_of(app)
    assert f"run:{run.id}/best" in words_of(app)
    assert app.get_by_key(f"runs.best.download.{run.id}").proto.url == f"/download/run/{run.id}/best"


@pytest.mark.parametrize(
    ("figures", "status", "words"),
    [
        ({0: 0.5, 2: 0.45}, RunStatus.SUCCEEDED, "No policy has a higher held_out/objective than the start: 0.5. "
         "Whether the start is better than the next, iteration 2, can't be told: 0.05 (-0.02783 to 0.1278). (16 "
         "prompts, the best of 2 evaluations; paired 95 % intervals that allow for the choice.) The last one measured, "
         "iteration 2, has 0.45. No best is kept."),
        ({0: 0.5, 2: 0.9}, RunStatus.SUCCEEDED, "Best policy: iteration 2, by held_out/objective: 0.9. It is better "
         "than the start, by 0.4 (0.3222 to 0.4778). (16 prompts, the best of 2 evaluations; paired 95 % intervals "
         "that allow for the choice.) It is the last one measured."),
        ({0: 0.5, 2: 0.9, 4: 0.85}, None, "Best policy so far: iteration 2, by held_out/objective: 0.9. It is better "
         "than the start, by 0.4 (0.3091 to 0.4909). Whether it is better than the next, iteration 4, can't be told: "
         "0.05 (-0.04092 to 0.1409). (16 prompts, the best of 3 evaluations; paired 95 % intervals that allow for the "
         "choice.) The last one measured, iteration 4, has 0.85."),
        ({}, RunStatus.SUCCEEDED, "No held-out prompts were measured, so no policy is known to be the best."),
    ],
)  # fmt: skip
def test_what_is_said_where_there_is_none_or_it_is_the_last(
    sqlite_store: Store,
    snapshot: Snapshot,
    open_app: Any,
    figures: dict[int, float],
    status: RunStatus | None,
    words: str,
) -> None:
    run = watched(sqlite_store, snapshot, figures, status)
    app = page(sqlite_store, open_app, run)
    assert words in words_of(app)
    assert f"runs.best.download.{run.id}" not in {each.key for each in app.get("link_button")}


@pytest.mark.parametrize(
    ("prompts", "words"),
    [
        (4, "Which policy is best can't be told: 4 prompts, and 10 are needed. The highest held_out/objective: "
         "iteration 2, 0.9. It is the last one measured."),
        (0, "Which policy is best can't be told: how many prompts were asked is not known. The highest "
         "held_out/objective: iteration 2, 0.9. It is the last one measured."),
    ],
)  # fmt: skip
def test_too_few_prompts_are_no_verdict(
    sqlite_store: Store, snapshot: Snapshot, open_app: Any, prompts: int, words: str
) -> None:
    run = watched(sqlite_store, snapshot, {0: 0.5, 2: 0.9}, prompts=prompts)
    said = words_of(page(sqlite_store, open_app, run))
    assert words in said and "Best policy" not in said


def test_the_lists_of_models_have_it_behind_its_run(sqlite_store: Store, snapshot: Snapshot, open_app: Any) -> None:
    stopped = watched(sqlite_store, snapshot, {0: 0.1, 6: 0.7, 8: 0.4}, RunStatus.FAILED)
    start = watched(sqlite_store, snapshot, {0: 0.5, 2: 0.3})
    run = watched(sqlite_store, snapshot, {0: 0.1, 2: 0.7, 4: 0.4})
    with sqlite_store.read() as tx:
        found = model_suggestions(tx, snapshot.project_id)
        assert model_name(tx, f"run:{run.id}/best") == f"PPO {run.id[-6:]} best (iteration 2)"
        assert model_name(tx, "run:gone/best") == "run:gone/best"
    names = ["demo", f"run:{run.id}", f"run:{run.id}/best", f"run:{start.id}", f"run:{stopped.id}/best",
             "test/model"]  # fmt: skip
    assert list(found) == names
    assert found[f"run:{run.id}/best"] == f"PPO {run.id[-6:]} best (iteration 2), just now"
    app = open_app(make_person(sqlite_store, Role.RESEARCHER), "compare")
    assert app.get_by_key("compare.model_b").value == f"run:{run.id}", "the last one is what is offered first"
    app.get_by_key("compare.model_a").set_value(f"run:{run.id}/best")
    next(each for each in app.button if each.label == "Compare").click().run()
    assert not app.exception
    with sqlite_store.read() as tx:
        (queued,) = list_runs(tx, kinds=(RunKind.COMPARE,))
    assert (queued.config["model_a"], queued.config["model_b"]) == (f"run:{run.id}/best", f"run:{run.id}")


def test_the_lineage_on_the_pages_says_best(sqlite_store: Store, snapshot: Snapshot, open_app: Any) -> None:
    run = watched(sqlite_store, snapshot, {0: 0.1, 2: 0.7, 4: 0.4})
    tuned = ended(sqlite_store, RunKind.SFT, snapshot=snapshot, model=f"run:{run.id}/best")
    app = page(sqlite_store, open_app, tuned, "Lineage")
    assert app.get_by_key(f"lineage.run.{run.id}").label == f"PPO {run.id[-6:]}, best"
    assert app.get_by_key(f"runs.to.run.{run.id}").label == f"Starts from PPO {run.id[-6:]}, best"
    app = page(sqlite_store, open_app, run)
    assert app.get_by_key(f"runs.to.run.{tuned.id}").label == f"Best used by SFT {tuned.id[-6:]}"


def test_the_table_of_baselines_has_the_best_where_it_is_not_the_last(
    sqlite_store: Store, snapshot: Snapshot, open_app: Any
) -> None:
    reward = ended(sqlite_store, RunKind.REWARD, snapshot=snapshot, model="demo")
    other = watched(sqlite_store, snapshot, {0: 0.1, 4: 0.4}, model="demo", result={"iterations": 4})
    run = watched(
        sqlite_store, snapshot, {0: 0.1, 2: 0.7, 4: 0.4}, model="demo", reward_run=reward, result={"iterations": 4}
    )
    app = page(sqlite_store, open_app, run)
    app.get_by_key("runs.to_baselines").click().run()
    assert not app.exception
    with sqlite_store.read() as tx:
        (queued,) = list_runs(tx, kinds=(RunKind.BASELINES,))
    assert queued.config["models"] == f"run:{run.id} run:{run.id}/best run:{other.id}"
