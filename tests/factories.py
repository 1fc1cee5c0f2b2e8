"""Makers of records for tests, each one line to call. They go through the same functions as the product.

`store` may be given where a transaction is wanted: then each maker opens one of its own.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest
import sqlalchemy as sa

from data.files.paths import Home
from data.labels.people import add_person, open_session
from data.labels.projects import create_project
from data.labels.prompts import prompt_id_of
from data.labels.rankings import as_ranking, save_ranking
from data.labels.roles import OPERATOR
from data.labels.tasks import add_task, get_task
from data.records import (
    Detail,
    Messages,
    NewPrompt,
    NewRanking,
    NewResponse,
    Person,
    Project,
    Ranking,
    RankingStatus,
    Role,
    Run,
    RunKind,
    RunStatus,
    Snapshot,
    Split,
    SubmitOutcome,
    Task,
)
from data.runs.metrics import report_step
from data.runs.state import claim_run, create_run, finish_run, get_run
from data.store import Store, Tx
from data.store.tables import ranking, slot
from labeling.snapshot.freeze import SnapshotConfig, freeze_snapshot

LEASE_S = 1800.0
_numbers = itertools.count(1)


def skip(reason: str) -> NoReturn:
    """Skip the test, or fail it where skips are forbidden (RANKLOOP_FORBID_SKIPS=1, as in CI)."""
    if os.environ.get("RANKLOOP_FORBID_SKIPS") == "1":
        pytest.fail(f"a skip is forbidden here: {reason}")
    pytest.skip(reason)


def real_data(*parts: str) -> Path:
    """A file of real data that is not in the repository; skips the test where it is absent.

    Looked for in RANKLOOP_TEST_DATA, else in `shared/data` in the checkout, beside it, or beside what it stands in.
    """
    root = Path(__file__).resolve().parents[1]
    named = os.environ.get("RANKLOOP_TEST_DATA")
    folders = [Path(named)] if named else [each / "shared" / "data" for each in (root, root.parent, root.parent.parent)]
    for folder in folders:
        if folder.joinpath(*parts).is_file():
            return folder.joinpath(*parts)
    # Not `skip`: the folder is nobody's to install, so its absence fails nothing anywhere.
    pytest.skip(f"no {'/'.join(parts)} under RANKLOOP_TEST_DATA or a folder shared/data near the checkout")


@contextlib.contextmanager
def _open(where: Store | Tx) -> Iterator[Tx]:
    if isinstance(where, Store):
        with where.begin() as tx:
            yield tx
    else:
        yield where


def make_person(where: Store | Tx, role: Role = Role.ANNOTATOR, name: str | None = None) -> Person:
    with _open(where) as tx:
        return add_person(tx, name or f"{role.value} {next(_numbers)}", role)


def make_session(where: Store | Tx, person: Person) -> str:
    """Sign the person in; returns the token that the browser's cookie would hold."""
    with _open(where) as tx:
        return open_session(tx, person.id)


def make_project(
    where: Store | Tx, name: str | None = None, *, k: int = 4, overlap: int = 1, max_skips: int = 3
) -> Project:
    with _open(where) as tx:
        return create_project(tx, name or f"project {next(_numbers)}", k=k, overlap=overlap, max_skips=max_skips)


def make_task(
    where: Store | Tx,
    project: Project,
    *texts: str,
    prompt: str | Messages | None = None,
    split: Split | None = None,
    slots: int | None = None,
) -> Task:
    """A task with the given response texts (three if none is given) and as many free slots as the project wants."""
    number = next(_numbers)
    texts = texts or tuple(f"response {letter} to prompt {number}" for letter in "abc")
    with _open(where) as tx:
        asked = prompt or f"prompt {number}"
        messages = ({"role": "user", "content": asked},) if isinstance(asked, str) else asked
        prompt_id = prompt_id_of(tx, project.id, NewPrompt(messages, split))
        responses = [NewResponse(text, model="test/model") for text in texts]
        wanted = project.overlap if slots is None else slots
        return get_task(tx, add_task(tx, project.id, prompt_id, responses, slots=wanted).task_id)


def lease(where: Store | Tx, task: Task, person: Person) -> str:
    """Lease a free slot of just this task to the person; returns the lease token."""
    token = secrets.token_hex(8)
    with _open(where) as tx:
        free = sa.select(slot.c.id).where(slot.c.task_id == task.id, slot.c.status == "free").order_by(slot.c.slot_no)
        values = {"status": "leased", "annotator_id": person.id, "lease_token": token, "claimed_at": tx.now()}
        values |= {"lease_expires_at": tx.now() + LEASE_S, "display_order": json.dumps(_in_order(task))}
        tx.execute(sa.update(slot).where(slot.c.id == tx.scalar(free.limit(1))).values(**values))
    return token


def make_ranking(
    where: Store | Tx,
    task: Task,
    person: Person,
    ranks: Sequence[int] | None = None,
    *,
    status: RankingStatus | None = None,
    detail: Detail | None = None,
    comment: str = "",
) -> Ranking:
    """The person's ranking of the task under a proper lease; `ranks` None: a skip. Ranks are by stored position."""
    status = status or (RankingStatus.SKIPPED if ranks is None else RankingStatus.RANKED)
    with _open(where) as tx:
        new = NewRanking(
            task_id=task.id,
            annotator_id=person.id,
            submission_key=secrets.token_hex(8),
            status=status,
            ranks=None if ranks is None else tuple(ranks),
            display_order=tuple(_in_order(task)),
            lease_token=lease(tx, task, person),
            skip_reason="I can't judge this topic" if status is RankingStatus.SKIPPED else None,
            comment=comment,
            detail=detail or Detail(),
            duration_ms=1000,
        )
        assert save_ranking(tx, new) is SubmitOutcome.STORED
        row = tx.row(sa.select(ranking).where(ranking.c.submission_key == new.submission_key))
        assert row is not None
        return as_ranking(row)


def make_ranked_project(store: Store, n_prompts: int = 6, k: int = 3) -> Project:
    """A project with one ranking of every task: response 0 is the best one everywhere."""
    project, person = make_project(store, k=k), make_person(store)
    for number in range(n_prompts):
        texts = [f"response {place} to question {number}" for place in range(k)]
        task = make_task(store, project, *texts, prompt=f"question {number} of {project.name}?")
        make_ranking(store, task, person, range(1, k + 1))
    return project


def make_snapshot(store: Store, home: Home, n_prompts: int = 6, k: int = 3, eval_share: float = 0.2) -> Snapshot:
    """A frozen snapshot of a ranked project, files and all."""
    project = make_ranked_project(store, n_prompts, k)
    return freeze_snapshot(store, OPERATOR, home, project.id, SnapshotConfig(eval_share=eval_share))


def make_run(where: Store | Tx, kind: RunKind = RunKind.REWARD, project: Project | None = None) -> Run:
    """A queued run with an empty configuration."""
    with _open(where) as tx:
        return create_run(tx, kind, {}, project_id=project.id if project else None)


def make_finished_run(
    where: Store | Tx, kind: RunKind, samples: list[dict[str, Any]], project: Project | None = None
) -> Run:
    """A run that has reported these samples and succeeded."""
    with _open(where) as tx:
        run = make_run(tx, kind, project)
        claimed = claim_run(tx, "worker")
        assert claimed is not None
        assert claimed.id == run.id
        report_step(tx, run.id, claimed.epoch, 1, total_steps=1, metrics={}, samples=samples)
        finish_run(tx, run.id, claimed.epoch, RunStatus.SUCCEEDED)
        return get_run(tx, run.id)


def _in_order(task: Task) -> list[int]:
    return list(range(len(task.responses)))
