"""The scoring run: rows of prompts with responses in, the reward model's scores out, as JSON lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from data.files import Row, read_rows
from training.config import ScoreConfig
from training.models import set_up_machine, versions
from training.reporter import Reporter
from training.scorer import Scorer

SCORES_FILE = "scores.jsonl"
ROWS_AT_ONCE = 64


def run(config: ScoreConfig, reporter: Reporter) -> dict[str, Any]:
    """Score every row of the input file (as `labeling.handover` wrote it) into scores.jsonl in the run's folder."""
    machine = set_up_machine(config)
    reporter.versions(versions(machine))
    rows = [row.value for row in read_rows(Path(config.input_file)) if isinstance(row, Row)]
    scorer = Scorer(reporter.home, reporter.run.reward_run_id or "", machine, config.batch_size)
    part = reporter.folder / f"{SCORES_FILE}.part"
    n_texts = 0
    with part.open("w", encoding="utf-8") as file:
        for start in range(0, len(rows), ROWS_AT_ONCE):
            reporter.raise_if_stopping()
            lot = rows[start : start + ROWS_AT_ONCE]
            texts = [(tuple(row["messages"]), text) for row in lot for text in row["responses"]]
            scores = iter(scorer.score(texts).tolist())
            for row in lot:
                scored = row | {"scores": [next(scores) for _ in row["responses"]]}
                file.write(json.dumps(scored, ensure_ascii=False) + "\n")
            n_texts += len(texts)
            reporter.step(min(start + ROWS_AT_ONCE, len(rows)), len(rows))
    part.rename(reporter.folder / SCORES_FILE)
    return {"rows": len(rows), "responses": n_texts, "file": SCORES_FILE, "reward_model": scorer.source.revision}
