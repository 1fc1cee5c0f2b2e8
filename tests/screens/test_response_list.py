"""The recorded responses of an update: order, search, the gap to the start, histograms, other runs beside it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from factories import make_person, make_project
from run_makers import ended

import app.widgets.policies.token_inspector as inspector
from app.widgets.policies.distributions import gap_words, gaps_of, scores_frame
from app.widgets.policies.response_list import ORDERS, RECORDED, figures_of, ordered, searched, table_of
from data.files.paths import Home
from data.files.rollouts import HELD_OUT, TOKEN_COLUMNS, TRAIN, write_rollout
from data.records import Project, Role, Run, RunKind
from data.store import Store


def row(key: str, score: float, n: int = 2, text: str = "blue", **changes: Any) -> dict[str, Any]:
    numbers = {name: [0.5] * n for name in TOKEN_COLUMNS}
    known = {
        "prompt_key": key, "prompt": f"why {key}?", "response": text, "score": score, "score_after_penalty": score,
        "kl": 0.1, "ended": True, "ids": [7] * n, "tokens": ["x"] * n, "clipped": [False] * n,
    }  # fmt: skip
    return known | numbers | changes


ROWS = [
    row("a", 1.0, n=5, text="The sky <b>scatters</b>", kl=0.3, second_score=0.5, second_spread=0.1),
    row("b", -2.0, n=1, text="No idea", kl=2.0, clipped=[True], second_score=-1.0, second_spread=0.7),
    row("c", 4.0, n=9, text="SKY", kl=float("nan")),
]
START = {"a": 3.0, "b": -2.5}


@pytest.mark.parametrize(
    ("order", "places"),
    [(RECORDED, [0, 1, 2]), ("highest score", [2, 0, 1]), ("lowest score", [1, 0, 2]), ("largest gap", [1, 0, 2]),
     ("smallest gap", [0, 1, 2]), ("highest KL", [1, 0, 2]), ("most tokens", [2, 0, 1]), ("fewest tokens", [1, 0, 2]),
     ("most clipped", [1, 0, 2]), ("lowest second score", [1, 0, 2]), ("widest spread", [1, 0, 2])],
)  # fmt: skip
def test_each_order_and_what_has_no_figure_comes_last(order: str, places: list[int]) -> None:
    figures = [figures_of(each, START.get(each["prompt_key"])) for each in ROWS]
    assert ordered(figures, [0, 1, 2], order) == places
    assert order in ORDERS


def test_every_order_is_tested() -> None:
    marks = test_each_order_and_what_has_no_figure_comes_last.pytestmark  # type: ignore[attr-defined]
    assert {order for order, _ in marks[0].args[1]} == set(ORDERS)


def test_figures_count_tokens_not_characters_and_k3_is_no_difference_of_sums() -> None:
    one = row("a", 2.0, n=2, text="many characters", clipped=[True, False])
    one["logprob"], one["ref_logprob"] = [math.log(0.5), math.log(0.2)], [math.log(0.25), math.log(0.2)]
    found = figures_of(one, 0.5)
    assert (found["tokens"], found["clipped"], found["gap"]) == (2, 0.5, 1.5)
    assert found["k3"] == pytest.approx(0.5 - 1 + math.log(2))


def test_a_search_reads_prompts_and_responses_in_any_case() -> None:
    assert searched(ROWS, "sky") == [0, 2]
    assert searched(ROWS, " WHY B") == [1]
    assert searched(ROWS, "") == [0, 1, 2]
    assert searched(ROWS, "nowhere") == []


def test_the_table_has_the_gap_only_where_a_start_is_known() -> None:
    known, unknown = (
        table_of(ROWS, [figures_of(each, start.get(each["prompt_key"])) for each in ROWS], [2, 0])
        for start in (START, {})
    )
    assert list(known["no"]) == [3, 1] and known["response"].iloc[1] == "The sky <b>scatters</b>"
    assert known["gap"].iloc[1] == -2.0 and math.isnan(known["gap"].iloc[0])
    assert not {"gap", "start"} & {*unknown.columns}
    assert list(known["second"])[1:] == list(unknown["second"])[1:] == [0.5] and known["spread"].iloc[1] == 0.1
    alone = [row("a", 1.0)]
    assert not {"second", "spread"} & {*table_of(alone, [figures_of(alone[0], None)], [0]).columns}


def test_the_histograms_are_of_the_scores_and_of_the_gaps_prompt_by_prompt() -> None:
    scores = scores_frame(ROWS, START | {"other": 9.0})
    assert [tuple(each) for each in scores.to_numpy()] == [
        ("policy", 1.0), ("policy", -2.0), ("policy", 4.0), ("start", 3.0), ("start", -2.5),
    ]  # fmt: skip
    gaps = gaps_of(ROWS, START)
    assert gaps == [-2.0, 0.5]
    assert gap_words([*gaps, 0.0]) == (
        "3 prompts: 1 scored higher than at the start, 1 lower. Whether the mean rose can't be told: 3 prompts, and 10 "
        "are needed."
    )


def policy(store: Store, project: Project) -> Run:
    return ended(store, RunKind.PPO, project)


def opened(store: Store, open_app: Any, run: Run) -> Any:
    app = open_app(make_person(store, Role.RESEARCHER))
    app.switch_page("screens/runs.py")
    app.query_params["run"], app.query_params["runs.tab"] = run.id, "Tokens"
    return app.run()


def panels(seen: list[Any]) -> list[tuple[str, list[str]]]:
    return [(each["title"], each["tokens"]) for each in seen[-1]["panels"]]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the component was given, draw by draw."""
    seen: list[Any] = []
    original = inspector.mount
    monkeypatch.setattr(inspector, "mount", lambda **words: seen.append(words["data"]) or original(**words))
    return seen


def test_the_first_of_the_order_is_drawn_and_a_search_narrows(
    sqlite_store: Store, home: Home, open_app: Any, drawn: list[Any]
) -> None:
    run = policy(sqlite_store, make_project(sqlite_store))
    write_rollout(home.run_folder(run.id), TRAIN, 1, ROWS)
    app = opened(sqlite_store, open_app, run)
    assert not app.exception
    assert panels(drawn)[0][0] == "Response 1" and any("3 of 3 recorded" in each.value for each in app.caption)
    key = f"runs.tokens.{run.id}.list.{TRAIN}"
    assert "largest gap" not in app.get_by_key(f"{key}.order").options, "of rollouts no start is known"
    app.get_by_key(f"{key}.order").set_value("lowest score").run()
    assert panels(drawn)[0][0] == "Response 2"
    app.get_by_key(f"{key}.search").set_value("sky").run()
    assert panels(drawn)[0][0] == "Response 1" and any("2 of 3 recorded" in each.value for each in app.caption)
    n = len(drawn)
    app.get_by_key(f"{key}.search").set_value("nowhere").run()
    assert not app.exception and len(drawn) == n
    assert any("None of 3 responses has it" in each.value for each in app.caption)


def test_other_runs_answers_to_the_same_prompt_stand_beside(
    sqlite_store: Store, home: Home, open_app: Any, drawn: list[Any]
) -> None:
    project = make_project(sqlite_store)
    run, other, without = (policy(sqlite_store, project) for _ in range(3))
    for each, tokens, iterations in ((run, "ab", (0, 4)), (other, "cd", (0, 3, 10))):
        for iteration in iterations:
            rows = [row("p", float(iteration), tokens=[tokens[0], str(iteration)]), row("q", 0.0)]
            write_rollout(home.run_folder(each.id), HELD_OUT, iteration, rows)
    app = opened(sqlite_store, open_app, run)
    assert not app.exception
    assert panels(drawn) == [("At the start", ["a", "0"]), ("After iteration 4", ["a", "4"])]
    beside = app.get_by_key(f"runs.tokens.{run.id}.held_out.runs")
    assert len(beside.options) == 1 and without.id[-6:] not in beside.options[0]
    beside.set_value([other.id]).run()
    assert not app.exception
    assert panels(drawn)[-1] == (f"PPO {other.id[-6:]} after iteration 3", ["c", "3"])


def test_a_chosen_prompt_stays_while_one_goes_through_the_iterations(
    sqlite_store: Store, home: Home, open_app: Any, drawn: list[Any]
) -> None:
    run = policy(sqlite_store, make_project(sqlite_store))
    for iteration in (0, 1, 2):
        rows = [row(key, score, tokens=[key, str(iteration)]) for key, score in (("p", 1.0 - iteration), ("q", 0.5))]
        write_rollout(home.run_folder(run.id), HELD_OUT, iteration, rows)
    app = opened(sqlite_store, open_app, run)
    key = f"runs.tokens.{run.id}"
    app.session_state[f"{key}.list.{HELD_OUT}.chosen"] = "q"
    for iteration in (1, 0):
        app.get_by_key(f"{key}.iteration.{HELD_OUT}").set_value(iteration).run()
        assert not app.exception
        assert panels(drawn)[-1][1] == ["q", str(iteration)]
    app.get_by_key(f"{key}.list.{HELD_OUT}.order").set_value("highest score").run()
    assert panels(drawn)[-1][1] == ["p", "0"], "another order begins at its first"


def test_only_one_update_is_read_and_of_the_start_only_its_scores(
    sqlite_store: Store, home: Home, open_app: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = policy(sqlite_store, make_project(sqlite_store))
    for iteration in range(0, 40):
        write_rollout(home.run_folder(run.id), TRAIN, iteration + 1, [row("p", 1.0)])
    read: list[tuple[int, Any]] = []
    original = inspector.read_rollout

    def spy(folder: Path, side: str, iteration: int, columns: Any = None) -> Any:
        read.append((iteration, columns))
        return original(folder, side, iteration, columns)

    monkeypatch.setattr(inspector, "read_rollout", spy)
    assert not opened(sqlite_store, open_app, run).exception
    assert set(read) == {(40, None)}
    for iteration in (0, 5):
        write_rollout(home.run_folder(run.id), HELD_OUT, iteration, [row("p", 1.0)])
    read.clear()
    assert inspector.start_scores(home.run_folder(run.id)) == {"p": 1.0}
    assert read == [(0, ("prompt_key", "score"))]
