"""The token inspector: what it reads, its scales and sums, and that it shows what was recorded."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from factories import make_person, make_project
from run_makers import running

import app.widgets.policies.token_inspector as inspector
from app.widgets.policies.token_inspector import LABELS, changes_frame, component_data, measured, scale_limits
from data.files.paths import Home
from data.files.rollouts import HELD_OUT, TOKEN_COLUMNS, TRAIN, write_rollout
from data.records import Role, RunKind
from data.store import Store


def row(key: str = "p1", n: int = 3, size: float = 1.0, text: str = "abc") -> dict[str, Any]:
    numbers = {name: [size * (place + 1) * (-1) ** place for place in range(n)] for name in TOKEN_COLUMNS}
    numbers["ratio"] = [math.exp(size * place) for place in range(n)]
    return {
        "prompt_key": key, "prompt": "<b>why</b>?", "response": text, "score": size, "score_after_penalty": size,
        "kl": 0.5, "ended": True, "ids": list(range(n)), "tokens": list(text[:n]),
        "clipped": [False] * (n - 1) + [True],
        **numbers,
    }  # fmt: skip


def test_one_scale_is_for_all_rows_of_the_update_and_for_measures_of_one_unit() -> None:
    small, large = row(size=1.0), row(size=2.0)
    large["ref_logprob"] = [-9.0, 0.0, 0.0]
    limits = scale_limits([small, large])
    assert limits["logprob"] == limits["ref_logprob"] == 9.0
    assert limits["reward"] == limits["value"] == limits["return"] == 6.0
    assert (limits["advantage"], limits["ratio"]) == (6.0, 4.0)
    data = component_data([small, large], [("this", small, None)])
    assert {each["name"]: each["limit"] for each in data["measures"]} == limits
    assert scale_limits([row(size=0.0)])["advantage"] == 1.0, "a scale is never 0"


def test_a_panel_has_the_sums_of_what_it_shows() -> None:
    (panel,) = component_data([row()], [("this", row(), "logprob")])["panels"]
    assert panel["sums"]["reward"] == 1 - 2 + 3
    assert panel["sums"]["ratio"] == pytest.approx(0 + 1 + 2), "of the ratio the logarithm"
    assert "probability" not in panel["sums"], "a sum of probabilities says nothing"
    assert panel["clipped"] == [False, False, True] and panel["measure"] == "logprob"


def test_what_follows_from_the_recorded_numbers_is_shown_too() -> None:
    one = row(n=2)
    one["logprob"], one["ref_logprob"] = [math.log(0.5), math.log(0.2)], [math.log(0.25), math.log(0.4)]
    found = measured(one)
    assert found["log_ratio"] == pytest.approx([math.log(2), -math.log(2)])
    assert found["k3"] == pytest.approx([0.5 - 1 + math.log(2), 2 - 1 - math.log(2)])
    assert found["probability"] == pytest.approx([0.5, 0.2])
    assert found["ref_probability"] == pytest.approx([0.25, 0.4])
    assert {*found} == {*LABELS}
    one["ref_logprob"] = [0.0, -1e5]
    one["logprob"] = [-1e5, 0.0]
    assert all(math.isfinite(value) for values in measured(one).values() for value in values)


def test_changes_of_a_prompt_read_few_columns_of_few_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for iteration in range(0, 100):
        write_rollout(tmp_path, HELD_OUT, iteration, [row("other"), row("p1", text=f"t{iteration:03}")])
    seen: list[tuple[int, Any]] = []
    original = inspector.read_rollout

    def spy(folder: Path, side: str, iteration: int, columns: Any = None) -> Any:
        seen.append((iteration, columns))
        return original(folder, side, iteration, columns)

    monkeypatch.setattr(inspector, "read_rollout", spy)
    frame = changes_frame(tmp_path, list(range(100)), "p1")
    assert len(seen) == len(frame) <= 26 and {columns for _, columns in seen} == {inspector.BRIEF}
    assert (frame["iteration"].iloc[0], frame["iteration"].iloc[-1]) == (0, 99)
    assert frame["response"].iloc[-1] == "t099"


def test_the_page_reads_one_file_and_shows_what_it_holds(
    sqlite_store: Store, home: Home, open_app: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = running(sqlite_store, RunKind.PPO, make_project(sqlite_store))
    folder = home.run_folder(run.id)
    for iteration in (1, 2, 3):
        write_rollout(folder, TRAIN, iteration, [row(size=iteration), row(size=iteration + 0.5)])
    for iteration in (0, 2):
        write_rollout(folder, HELD_OUT, iteration, [row("a", text="old" if not iteration else "new")])
    read: list[Path] = []
    original = inspector.read_rollout
    monkeypatch.setattr(inspector, "read_rollout", lambda *words: read.append(words[2]) or original(*words))
    app = open_app(make_person(sqlite_store, Role.RESEARCHER))
    app.switch_page("screens/runs.py")
    app.query_params["run"] = run.id
    app.query_params["runs.tab"] = "Tokens"
    app.run()
    assert not app.exception
    assert set(read) == {3}
    assert any(each.value == "<b>why</b>?" for each in app.text)
    key = f"runs.tokens.{run.id}"
    app.get_by_key(f"{key}.iteration.train").set_value(1).run()
    assert not app.exception and set(read) == {3, 1}
    app.get_by_key(f"{key}.side").set_value(HELD_OUT).run()
    assert not app.exception
    (changes,) = [each.value for each in app.dataframe if "iteration" in each.value.columns]
    assert list(changes["response"]) == ["old", "new"]


def test_a_spoilt_file_is_told_and_the_page_stays(sqlite_store: Store, home: Home, open_app: Any) -> None:
    run = running(sqlite_store, RunKind.PPO, make_project(sqlite_store))
    write_rollout(home.run_folder(run.id), TRAIN, 1, [row()]).write_bytes(b"not parquet")
    app = open_app(make_person(sqlite_store, Role.RESEARCHER))
    app.switch_page("screens/runs.py")
    app.query_params["run"] = run.id
    app.query_params["runs.tab"] = "Tokens"
    app.run()
    assert not app.exception
    assert "can't be read" in app.error[0].value.replace("\\", "")
