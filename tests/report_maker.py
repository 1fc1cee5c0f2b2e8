"""A reward run's report made of invented held-out rankings, for tests of what shows it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from training.measures.figures import Judged, pair_accuracy, pair_columns
from training.measures.verdicts import compared, figures, verdicts, worst_pairs


def invented(n: int, accuracy: float, *, people: int = 1, seed: int = 0) -> list[Judged]:
    """Rankings of three responses, in which the score follows the order in about this share."""
    rng = random.Random(seed)
    found = []
    for number in range(n):
        for person in range(people):
            ranks = rng.sample([1, 2, 3], 3)
            sign = 1 if rng.random() < accuracy else -1
            scores = tuple(-sign * rank + rng.gauss(0, 0.3) for rank in ranks)
            lengths = tuple(rng.randint(5, 60) for _ in ranks)
            flags = (("rude",), (), ()) if number % 3 == 0 else ((), (), ())
            found.append(
                Judged(f"r{number}-{person}", f"p{number}", tuple(ranks), scores, lengths, f"ann-{person}", flags)
            )
    return found


def write_report(folder: Path, accuracy: float = 0.8, n: int = 60, **more: Any) -> dict[str, Any]:
    """Write report.json as a run would; returns what it holds."""
    held_out = invented(n, accuracy, people=2)
    names = [[f"{each.prompt_id}-{i}" for i in range(3)] for each in held_out]
    instant = [Judged(e.ranking_id, e.prompt_id, e.ranks, invented(1, 1, seed=i)[0].scores, e.lengths) for i, e in
               enumerate(held_out)]  # fmt: skip
    report: dict[str, Any] = {
        "schema": 1,
        "train_rankings": 200,
        "model": figures(held_out, held_out, names),
        "instant": {"rankings": 200, "of_rankings": 200, "pair_accuracy": pair_accuracy(pair_columns(instant))},
        "model_less_instant": compared(held_out, instant),
        "learning_curve": {
            "of": "the instant reward model",
            "points": [
                {"share": 0.5, "rankings": 100.0, "accuracy": 0.62, "low": 0.55, "high": 0.7},
                {"share": 1.0, "rankings": 200.0, "accuracy": 0.66, "low": 0.58, "high": 0.73},
            ],
            "limit": 0.75,
            "at_twice": {"rankings": 400.0, "accuracy": 0.69, "low": 0.6, "high": 0.77},
            "more_for_one_point": {"rankings": 45.0, "low": 20.0, "high": None},
        },
        "worst": [
            each | {"prompt": f"Prompt {n}", "better": "Preferred", "worse": "Not preferred"}
            for n, each in enumerate(worst_pairs(held_out))
        ],
    }
    report["verdicts"] = verdicts(report)
    report |= more
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(json.dumps(report, default=sorted), encoding="utf-8")
    return report
