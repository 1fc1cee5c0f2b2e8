"""The scoring run: prompts with responses in, the reward model's scores out.

Rows of a file give JSON lines; a project's tasks that wait to be ranked get their scores in the store, for a selection.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from data.errors import InvalidInput
from data.files.prompt_rows import PromptRow, read_prompts, told
from data.files.rows import Problem
from data.labels.scores import save_scores, untouched_tasks, without_scores
from data.labels.tasks import get_tasks
from data.records import Task
from data.runs.state import owned_update
from training.jobs.left_out import LeftOut
from training.jobs.reporter import Reporter
from training.launch.config import ScoreConfig
from training.lm.models import Machine, set_up_machine, versions
from training.lm.scorer import Scorer
from training.measures.figures import best_of

SCORES_FILE = "scores.jsonl"
ROWS_AT_ONCE = 64
ADVICE = "Take a reward model whose template reads such prompts"


def run(config: ScoreConfig, reporter: Reporter) -> dict[str, Any]:
    """Score the input file or the project's waiting tasks. What was cut or refused is counted."""
    machine = set_up_machine(config.machine)
    reporter.versions(versions(machine))
    score = _score_project if config.unranked else _score_file
    return score(config, reporter, machine)


def _score_file(config: ScoreConfig, reporter: Reporter, machine: Machine) -> dict[str, Any]:
    """Score every row of the input file into scores.jsonl in the run's folder.

    A row whose messages the model's template refuses gets the scores null and the reason. What is no row to score is
    counted in an event, with the first lines and what is wrong there.
    """
    found = list(read_prompts(Path(config.input_file), with_responses=True))
    rows = [_as_values(row) for row in found if isinstance(row, PromptRow)]
    if problems := [row for row in found if isinstance(row, Problem)]:
        reporter.event("rows_left_out", rows=len(problems), first=told(problems))
    ids = [reporter.run.reward_run_id or "", *filter(None, config.beside.split(","))]
    scorers = [Scorer(reporter.home, each, machine, config.machine.batch_size) for each in ids]
    counts = [Counter[str](rows=0, responses=0, rows_refused=0, prompts_cut=0, responses_cut=0) for _ in ids]
    best, left_out = BestOf(), LeftOut("rows", len(rows))
    part = reporter.folder / f"{SCORES_FILE}.part"
    with part.open("w", encoding="utf-8") as file:
        for start in range(0, len(rows), ROWS_AT_ONCE):
            reporter.raise_if_stopping()
            batch = rows[start : start + ROWS_AT_ONCE]
            of_each = [
                score_rows(scorer, batch, counted, centre_prompts=config.centre_prompts)
                for scorer, counted in zip(scorers, counts, strict=True)
            ]
            for row in map(together, zip(*of_each, strict=True)):
                best.add(row)
                _note_refused(row, left_out)
                row.pop("heads", None)  # of use to a selection only
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
            reporter.step(start + len(batch), len(rows))
    left_out.report(reporter, ADVICE)
    part.rename(reporter.folder / SCORES_FILE)
    known: dict[str, Any] = {"file": SCORES_FILE, "reward_model": scorers[0].source.revision, "best_of": best.means()}
    if len(scorers) > 1:
        revisions = [each.source.revision for each in scorers[1:]]
        known["beside"] = {
            run_id: {"reward_model": revision, **counted}
            for run_id, revision, counted in zip(ids[1:], revisions, counts[1:], strict=True)
        }
    return dict(counts[0]) | known


def _as_values(row: PromptRow) -> dict[str, Any]:
    values = {"line": row.line, "messages": list(row.messages), "responses": list(row.responses)}
    return values | ({"facts": row.facts} if row.facts else {})


def together(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One row as several models scored it: the mean of their scores, each from its own zero, and the standard deviation
    between them. A row that one of them refuses has no scores."""
    if len(rows) == 1:
        return rows[0]
    for row in rows:
        if row["scores"] is None:
            return row
    of_response = list(zip(*(row["scores"] for row in rows), strict=True))
    return rows[0] | {"scores": [fmean(each) for each in of_response], "stds": [pstdev(each) for each in of_response]}


class BestOf:
    """What choosing the best-scored of n responses gives, in scores, over all ways to draw n of a prompt's."""

    def __init__(self) -> None:
        self._rows: dict[int, list[list[float]]] = {}

    def add(self, row: dict[str, Any]) -> None:
        if row["scores"]:
            self._rows.setdefault(len(row["scores"]), []).append(row["scores"])

    def means(self) -> dict[str, float]:
        """Mean score by n, of the prompts with the most usual number of responses."""
        if not self._rows:
            return {}
        k, rows = max(self._rows.items(), key=lambda each: (len(each[1]), each[0]))
        return {str(n): fmean(best_of(scores, scores, n) for scores in rows) for n in range(1, k + 1)}


def _score_project(config: ScoreConfig, reporter: Reporter, machine: Machine) -> dict[str, Any]:
    """Score the responses of every task that waits to be ranked and that this model has not scored yet."""
    run = reporter.run
    reward_run_id = run.reward_run_id or ""
    with reporter.store.read() as tx:
        waiting = untouched_tasks(tx, run.project_id or "")
        wanted = without_scores(tx, waiting, reward_run_id)
    if not waiting and not run.step:  # a resumed run may find that people have ranked the rest
        raise InvalidInput("no task waits to be ranked, so there is nothing to score; sample or import responses first")
    left_out = LeftOut("tasks", len(waiting))  # those that have scores by now are of use too
    scorer = Scorer(reporter.home, reward_run_id, machine, config.machine.batch_size)
    counts = Counter[str](rows=0, responses=0, rows_refused=0, prompts_cut=0, responses_cut=0)
    for start in range(0, len(wanted), ROWS_AT_ONCE):
        reporter.raise_if_stopping()
        with reporter.store.read() as tx:
            tasks = get_tasks(tx, wanted[start : start + ROWS_AT_ONCE])
        scored = score_rows(scorer, [_row(each) for each in tasks], counts)
        with reporter.store.begin() as tx:
            owned_update(tx, run.id, run.epoch)
            for task, row in zip(tasks, scored, strict=True):
                _note_refused(row, left_out)
                if row["scores"] is not None:
                    ids = [response.id for response in task.responses]
                    heads = dict(zip(ids, row["heads"], strict=True)) if "heads" in row else None
                    save_scores(tx, reward_run_id, dict(zip(ids, row["scores"], strict=True)), heads)
        reporter.step(start + len(tasks), len(wanted))
    left_out.report(reporter, ADVICE)
    return dict(counts) | {"reward_model": scorer.source.revision}


def _note_refused(row: dict[str, Any], left_out: LeftOut) -> None:
    if row["scores"] is None:
        left_out.add(row["problem"])


def _row(task: Task) -> dict[str, Any]:
    texts = [response.text for response in task.responses]
    return {"messages": task.messages, "responses": texts, "facts": task.facts}


def score_rows(
    scorer: Scorer, rows: list[dict[str, Any]], counts: Counter[str], *, centre_prompts: bool = False
) -> list[dict[str, Any]]:
    """The rows with their scores, in their order.

    Where the model has several heads, also `heads`, what each of them says of each response, and their `stds`.
    """
    problems: list[str | None] = []
    sequences: list[list[int]] = []
    for row in rows:
        counts["rows"] += 1
        try:
            fitted = [scorer.encode(tuple(row["messages"]), text, row.get("facts", "")) for text in row["responses"]]
        except InvalidInput as error:
            counts["rows_refused"] += 1
            problems.append(str(error))
            continue
        problems.append(None)
        sequences += [each.prompt + each.response for each in fitted]
        counts.update(
            responses=len(fitted),
            prompts_cut=any(each.is_prompt_cut for each in fitted),
            responses_cut=sum(each.is_response_cut for each in fitted),
        )
    scores, of_heads = iter(scorer.score_ids(sequences).tolist()), scorer.head_scores(sequences)
    heads = None if of_heads is None else iter(of_heads.tolist())
    done = []
    for row, problem in zip(rows, problems, strict=True):
        if problem is not None:
            done.append(row | {"scores": None, "problem": problem})
            continue
        result: dict[str, Any] = {"scores": [next(scores) for _ in row["responses"]]}
        if centre_prompts:
            mean = fmean(result["scores"])
            result["scores"] = [score - mean for score in result["scores"]]
        if heads is not None:
            result["heads"] = [next(heads) for _ in row["responses"]]
            result["stds"] = [pstdev(each) for each in result["heads"]]
        done.append(row | result)
    return done
