"""What the demo writes: figures with their intervals, pictures, samples, and nothing that Markdown would act on."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from app.demo.report import mean_with_interval, measure, write_report
from app.demo.run import load_prompts
from data.errors import InvalidInput


def rows_of(side: str, lengths: dict[str, list[int]], score: float) -> list[dict[str, Any]]:
    return [
        {"side": side, "prompt": prompt, "response": f"{n} tokens", "n_tokens": n, "ended": True, "score": score}
        for prompt, each in lengths.items()
        for n in each
    ]


def test_the_interval_holds_the_mean_and_narrows_with_more_prompts() -> None:
    rng = random.Random(3)
    few = {str(place): [rng.gauss(0, 1)] for place in range(10)}
    many = {str(place): [rng.gauss(0, 1)] for place in range(160)}
    widths = []
    for values in (few, many):
        mean, low, high = mean_with_interval(values)
        assert mean == pytest.approx(sum(each[0] for each in values.values()) / len(values))
        assert low < mean < high
        widths.append(high - low)
    assert widths[1] < 0.5 * widths[0]  # a quarter is expected


def test_answers_to_one_prompt_do_not_count_as_independent() -> None:
    alone = {str(place): [float(place % 2)] for place in range(20)}
    repeated = {prompt: values * 9 for prompt, values in alone.items()}
    assert mean_with_interval(alone)[1:] == pytest.approx(mean_with_interval(repeated)[1:])


def test_values_that_do_not_vary_have_no_width() -> None:
    assert mean_with_interval({"a": [2.0], "b": [2.0, 2.0]}) == (2.0, 2.0, 2.0)


def test_figures_of_a_side() -> None:
    found = measure(rows_of("a", {"p": [20, 30], "q": [10]}, score=0.5))
    assert found["gold score"][0] == pytest.approx((1.0 + 0.6 + 0.6) / 3)
    assert found["length in tokens"][0] == 20
    assert found["ended by itself"] == (1.0, 1.0, 1.0)
    assert found["reward model's score"][0] == 0.5


def test_the_report_has_both_sides_its_pictures_and_its_figures(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script> [x](http://evil) ![y](z) `code` $m$ # a|b *c*\nnew line"
    rows = rows_of("a", {hostile: [40], "q": [50]}, 0.1) + rows_of("b", {hostile: [20], "q": [22]}, 1.9)
    summary: dict[str, Any] = {
        "counts": {"rankings_used": 8, "pairs": 40, "ties": 3, "rankings_eval": 2},
        "reward_held_out": {"pair_accuracy": 0.875, "length_accuracy": 0.25},
        "iterations": 2,
        "kl_last": 3.25,
        "seconds": {"whole": 12.0},
    }
    curves = {"reward/score_mean": [(1, 0.1), (2, 0.4)], "kl/k1_mean": [(1, 0.0), (2, 3.25)]}
    write_report(tmp_path / "demo", summary, curves, rows)
    written = {path.name for path in (tmp_path / "demo").iterdir()}
    assert written == {"report.md", "summary.json", "reward.png", "kl.png"}
    assert all((tmp_path / "demo" / name).read_bytes().startswith(b"\x89PNG") for name in ("reward.png", "kl.png"))
    figures = json.loads((tmp_path / "demo" / "summary.json").read_text())
    assert figures["before"]["gold score"][0] == pytest.approx((0.2 - 0.2) / 2)
    assert figures["after"]["gold score"][0] == pytest.approx((1.0 + 0.92) / 2)
    page = (tmp_path / "demo" / "report.md").read_text()
    assert "88%" in page and "75%" in page and "3.2 nats" in page and "| gold score |" in page
    assert "\nnew line" not in page and "x\\](http" in page
    assert "\\<script\\>alert(1)\\</script\\>" in page


def test_prompts_of_a_file_that_are_left_out_are_said(tmp_path: Path) -> None:
    path, said = tmp_path / "prompts.jsonl", list[str]()
    rows = [{"prompt": f"number {place}"} for place in range(30)]
    broken = [{"prompt": ""}, {"other": "x"}, {"prompt": "number 3"}, {"prompt": "long " * 40}]
    path.write_text("\n".join([*map(json.dumps, [*broken, *rows]), "{"]))
    assert len(load_prompts(path, 0.1, said.append)) == 24
    assert said[0].startswith("prompts.jsonl: 3 rows can't be read: line 1: ") and "; line 35: " in said[0]
    assert said[1:] == ["prompts.jsonl: left out: 1 prompt of 160 characters or more, and 1 that are there already"]
    path.write_text("\n".join(map(json.dumps, rows[:5])))
    with pytest.raises(InvalidInput, match="24 prompts of less than 160 characters are needed, found 5"):
        load_prompts(path, 0.1)
