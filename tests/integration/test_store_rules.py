"""Every rule of the schema, by trying to break it, on both databases."""

from __future__ import annotations

import factories as make
import pytest
import sqlalchemy as sa

import data.store.tables_adjudication
import data.store.tables_checks
import data.store.tables_runs
import data.store.tables_selection  # noqa: F401
from data.errors import Conflict
from data.store import Store
from data.store.columns import metadata

TABLES = metadata.tables
Rows = dict[str, list[dict[str, object]]]


def good_rows() -> Rows:
    """One or two good rows of each table, in the order in which they can go in."""
    people = [{"id": name, "name": name, "role": "annotator", "created_at": 1.0} for name in ("ann", "bob", "cat")]
    project = {
        "id": "pr", "name": "pr", "k": 4, "overlap": 1, "guidelines": "", "guidelines_version": 1, "skip_reasons": "[]",
        "max_skips": 3, "export_key": "k", "nonce": "n-pr", "created_at": 1.0,
    }  # fmt: skip
    prompts = [
        {"id": f"p{n}", "project_id": "pr", "seq": n, "fingerprint": f"f{n}", "messages": "[]", "meta": "{}",
         "created_at": 1.0} for n in (1, 2)
    ]  # fmt: skip
    snapshot = {
        "id": "sn", "project_id": "pr", "config": "{}", "counts": "{}", "content_hash": "h", "nonce": "n-sn",
        "created_at": 1.0,
    }  # fmt: skip
    run = {
        "id": "ru", "kind": "sample", "status": "queued", "config": "{}", "versions": "{}", "result": "{}",
        "nonce": "n-ru", "created_at": 1.0,
    }  # fmt: skip
    responses = [
        {"id": f"r{n}", "prompt_id": "p1", "fingerprint": f"f{n}", "text": "t", "model": "m", "provenance": "{}",
         "run_id": "ru", "sample_index": n, "created_at": 1.0} for n in (1, 2, 3)
    ]  # fmt: skip
    tasks = [
        {"id": f"t{n}", "project_id": "pr", "prompt_id": "p1", "seq": n, "responses_hash": f"h{n}", "created_at": 1.0}
        for n in (1, 2)
    ]
    places = [{"task_id": "t1", "position": n, "response_id": f"r{n + 1}", "fingerprint": f"f{n}"} for n in (0, 1)]
    slots = [
        {"id": "s0", "project_id": "pr", "task_id": "t1", "task_seq": 1, "purpose": "repeat", "status": "leased",
         "annotator_id": "ann", "lease_token": "tok0"},
        {"id": "s1", "project_id": "pr", "task_id": "t1", "task_seq": 1, "slot_no": 1, "status": "leased",
         "annotator_id": "ann", "lease_token": "tok1"},
        {"id": "s2", "project_id": "pr", "task_id": "t1", "task_seq": 1, "slot_no": 2, "status": "leased",
         "annotator_id": "bob", "lease_token": "tok2"},
    ]  # fmt: skip
    ranking = {
        "id": "k1", "task_id": "t1", "annotator_id": "ann", "slot_id": "s1", "submission_key": "key1",
        "status": "ranked", "ranks": "[1, 2]", "display_order": "[0, 1]", "guidelines_version": 1, "source": "app",
        "created_at": 1.0,
    }  # fmt: skip
    old = ranking | {"id": "k0", "submission_key": "key0", "superseded_at": 2.0}
    repeat = ranking | {"id": "kr", "submission_key": "keyr", "slot_id": "s0", "purpose": "repeat"}
    expected = {
        "id": "g1", "task_id": "t1", "ranks": "[1, 2]", "unplaced": "[]", "source": "answer", "author_id": "ann",
        "created_at": 1.0,
    }  # fmt: skip
    pause = {
        "id": "z1", "project_id": "pr", "annotator_id": "ann", "reason": "gold", "figures": "{}", "created_at": 1.0,
    }  # fmt: skip
    decision = {
        "id": "a1", "task_id": "t1", "decided_by": "cat", "submission_key": "akey1", "ranks": "[1, 2]",
        "unplaced": "[]", "chosen_id": "k1", "reason": "r", "seen": "[]", "created_at": 1.0,
    }  # fmt: skip
    gone = decision | {"id": "a0", "submission_key": "akey0", "superseded_at": 2.0}
    of_run = {"run_id": "ru", "step": 1}
    return {
        "person": people,
        "web_session": [{"token_hash": "th", "person_id": "ann", "created_at": 1.0, "expires_at": 2.0}],
        "invitation": [{"token_hash": "ih", "created_at": 1.0, "expires_at": 2.0}],
        "project": [project],
        "prompt": prompts,
        "snapshot": [snapshot],
        "run": [run],
        "response": responses,
        "task": tasks,
        "task_response": places,
        "slot": slots,
        "draft": [{"task_id": "t1", "annotator_id": "ann", "body": "{}", "at": 1.0}],
        "ranking": [repeat, old, ranking | {"supersedes_id": "k0"}],
        "adjudication": [gone, decision | {"supersedes_id": "a0"}],
        "gold": [expected],
        "pause": [pause],
        "run_event": [{"run_id": "ru", "seq": 1, "at": 1.0, "kind": "queued", "detail": "{}"}],
        "run_metric": [of_run | {"name": "loss", "value": 1.0}],
        "run_sample": [of_run | {"position": 0, "body": "{}"}],
        "checkpoint": [of_run | {"folder": "f", "epoch": 1, "created_at": 1.0}],
        "response_score": [{"response_id": "r1", "run_id": "ru", "score": 1.0}],
        "task_arm": [{"task_id": "t1", "project_id": "pr", "arm": "random", "reward_run_ids": "[]", "created_at": 1.0}],
    }


def fill(store: Store) -> Rows:
    with store.begin() as tx:
        rows = good_rows()
        for name, each in rows.items():
            for row in each:
                tx.execute(sa.insert(TABLES[name]).values(**row))
    return rows


# What differs from the last good row of its table, so that one rule and nothing else is in the way.
SLOT = {"id": "x", "slot_no": 3, "annotator_id": None, "status": "free", "lease_token": None}
RANKING = {"id": "x", "submission_key": "x", "supersedes_id": None}
OF_BOB = RANKING | {"annotator_id": "bob", "slot_id": None}
PROJECT = {"id": "x", "name": "x", "nonce": None}
BROKEN: dict[str, tuple[str, dict[str, object]]] = {
    "two people of one name": ("person", {"id": "x", "name": "ann"}),
    "a role that is none": ("person", {"id": "x", "name": "x", "role": "boss"}),
    "a password of an external person": (
        "person",
        {"id": "x", "name": "x", "is_external": True, "password_hash": "h"},
    ),
    "two sessions with one token": ("web_session", {}),
    "two invitations with one token": ("invitation", {}),
    "two projects of one name": ("project", {"id": "x", "nonce": None}),
    "two projects of one nonce": ("project", {"id": "x", "name": "x"}),
    "a project for single responses": ("project", PROJECT | {"k": 1}),
    "a project for thirteen": ("project", PROJECT | {"k": 13}),
    "a project without annotators": ("project", PROJECT | {"overlap": 0}),
    "one prompt twice in a project": ("prompt", {"id": "x", "seq": 9}),
    "two prompts of one number": ("prompt", {"id": "x", "fingerprint": "x"}),
    "a split that is none": ("prompt", {"id": "x", "seq": 9, "fingerprint": "x", "split": "test"}),
    "two snapshots of one nonce": ("snapshot", {"id": "x"}),
    "two runs of one nonce": ("run", {"id": "x"}),
    "a status that is none": ("run", {"id": "x", "nonce": None, "status": "paused"}),
    "a running run without a lease": ("run", {"id": "x", "nonce": None, "status": "running"}),
    "a queued run with a lease": ("run", {"id": "x", "nonce": None, "lease_until": 1.0}),
    "one place of a run sampled twice": ("response", {"id": "x"}),
    "two tasks of the same responses": ("task", {"id": "x", "seq": 9}),
    "two tasks of one number": ("task", {"id": "x", "responses_hash": "x"}),
    "two responses in one place": ("task_response", {"fingerprint": "x"}),
    "one text twice in a task": ("task_response", {"position": 2}),
    "a thirteenth response": ("task_response", {"position": 12, "fingerprint": "x"}),
    "two slots of one number": ("slot", SLOT | {"slot_no": 2}),
    "two slots of a task for one person": ("slot", SLOT | {"annotator_id": "bob", "status": "leased"}),
    "two leases of one token": ("slot", SLOT | {"lease_token": "tok2"}),
    "a slot in no known state": ("slot", SLOT | {"task_id": "t2", "annotator_id": "bob", "status": "lost"}),
    "a free slot of somebody": ("slot", SLOT | {"task_id": "t2", "annotator_id": "bob"}),
    "a leased slot of nobody": ("slot", SLOT | {"task_id": "t2", "status": "leased"}),
    "two repeats of a task for one person": (
        "slot",
        SLOT | {"slot_no": None, "purpose": "repeat", "annotator_id": "ann", "status": "leased"},
    ),
    "a slot without a number": ("slot", SLOT | {"slot_no": None}),
    "a slot for no known purpose": ("slot", SLOT | {"slot_no": None, "purpose": "fun"}),
    "two drafts of one person": ("draft", {}),
    "two current rankings of one person": ("ranking", RANKING | {"slot_id": None}),
    "one submission stored twice": ("ranking", OF_BOB | {"submission_key": "key1"}),
    "two current rankings of one slot": ("ranking", OF_BOB | {"slot_id": "s1"}),
    "two answers in one slot": ("ranking", OF_BOB | {"slot_id": "s1", "status": "unacceptable", "ranks": None}),
    "two edits of one ranking": ("ranking", OF_BOB | {"supersedes_id": "k0"}),
    "a ranking without ranks": ("ranking", OF_BOB | {"ranks": None}),
    "a skip without a reason": ("ranking", OF_BOB | {"ranks": None, "status": "skipped"}),
    "a skip with ranks": ("ranking", OF_BOB | {"status": "skipped", "skip_reason": "r"}),
    "a ranking in no known state": ("ranking", OF_BOB | {"ranks": None, "status": "lost"}),
    "two current repeats of one person": ("ranking", RANKING | {"slot_id": None, "purpose": "repeat"}),
    "a ranking for no known purpose": ("ranking", OF_BOB | {"purpose": "fun"}),
    "two expected rankings of a task": ("gold", {"id": "x"}),
    "an expected ranking from nowhere": ("gold", {"id": "x", "task_id": "t2", "source": "lost", "author_id": None}),
    "an expected answer of nobody": ("gold", {"id": "x", "task_id": "t2", "author_id": None}),
    "two pauses of one person": ("pause", {"id": "x"}),
    "a pause without a known reason": ("pause", {"id": "x", "annotator_id": "bob", "reason": "mood"}),
    "two current decisions on a task": ("adjudication", {"id": "x", "submission_key": "x", "supersedes_id": None}),
    "one decision stored twice": ("adjudication", {"id": "x", "task_id": "t2", "supersedes_id": None}),
    "two decisions in place of one": ("adjudication", {"id": "x", "submission_key": "x", "task_id": "t2"}),
    "a decision without a reason": (
        "adjudication",
        {"id": "x", "submission_key": "x", "task_id": "t2", "supersedes_id": None, "reason": ""},
    ),
    "two events of one number": ("run_event", {}),
    "one metric twice in a step": ("run_metric", {}),
    "two samples in one place": ("run_sample", {}),
    "two checkpoints of one step": ("checkpoint", {}),
    "two scores of one model": ("response_score", {}),
    "two arms of one task": ("task_arm", {}),
}
# The same with one more thing changed goes in: it was the rule that was in the way.
ALLOWED: dict[str, tuple[str, dict[str, object]]] = {
    "another place of a run": ("response", {"id": "x", "sample_index": 9}),
    "many imported responses": ("response", {"id": "x", "run_id": None, "sample_index": None}),
    "another slot of the task": ("slot", SLOT),
    "another person's ranking": ("ranking", OF_BOB | {"slot_id": "s2"}),
    "one more old version": ("ranking", RANKING | {"superseded_at": 2.0}),
    "a skip": ("ranking", OF_BOB | {"status": "skipped", "ranks": None, "skip_reason": "r"}),
    "no response is acceptable": ("ranking", OF_BOB | {"status": "unacceptable", "ranks": None}),
    "a decision on another task": (
        "adjudication",
        {"id": "x", "submission_key": "x", "task_id": "t2", "supersedes_id": None},
    ),
    "a repeat": ("ranking", OF_BOB | {"purpose": "repeat"}),
    "an expected ranking withdrawn": ("gold", {"id": "x", "withdrawn_at": 2.0}),
    "an expected ranking from a file": ("gold", {"id": "x", "task_id": "t2", "source": "import", "author_id": None}),
    "a pause that is over": ("pause", {"id": "x", "lifted_at": 2.0, "lifted_by": "cat"}),
    "a run without a nonce": ("run", {"id": "x", "nonce": None}),
    "a project of its own": ("project", PROJECT),
}


def refused(store: Store, rows: Rows, cases: dict[str, tuple[str, dict[str, object]]]) -> set[str]:
    """Which of the cases the database refuses, each tried on its own and taken back."""
    found = set()
    for what, (name, changes) in cases.items():
        with store.begin() as tx:
            try:
                with tx.savepoint():
                    tx.execute(sa.insert(TABLES[name]).values(**(rows[name][-1] | changes)))
                    raise Untouched
            except sa.exc.IntegrityError:
                found.add(what)
            except Untouched:
                pass
    return found


class Untouched(Exception):
    """Raised to take back what went in."""


def test_no_rule_can_be_broken(store: Store) -> None:
    assert set(BROKEN) - refused(store, fill(store), BROKEN) == set()


def test_what_breaks_no_rule_goes_in(store: Store) -> None:
    assert refused(store, fill(store), ALLOWED) == set()


def test_a_broken_rule_is_told_as_our_own_error(store: Store) -> None:
    fill(store)
    twice = sa.insert(TABLES["person"]).values(id="x", name="ann", role="annotator", created_at=1.0)
    with pytest.raises(Conflict, match="somebody else stored the same thing just now"), store.begin() as tx:
        tx.execute(twice)


def test_every_uniqueness_rule_of_the_schema_is_tried_above() -> None:
    rules = {table.name: [] for table in metadata.sorted_tables}
    for table in metadata.sorted_tables:
        unique = [each for each in table.constraints if isinstance(each, sa.UniqueConstraint | sa.CheckConstraint)]
        rules[table.name] = [*unique, *(index for index in table.indexes if index.unique)]
    tried = {name: sum(each == name for each, _ in BROKEN.values()) for name in rules}
    for name, each in rules.items():
        # primary keys of several columns, or that no other test sets, are tried too, so there may be more than rules
        assert tried[name] >= len(each), f"{name} has {len(each)} rules, of which {tried[name]} are tried"


def test_no_foreign_key_cascades() -> None:
    keys = [key for table in metadata.sorted_tables for key in table.foreign_keys]
    assert {key.ondelete for key in keys} == {"RESTRICT"}


def test_what_something_refers_to_can_not_be_deleted(store: Store) -> None:
    fill(store)
    for key in [key for table in metadata.sorted_tables for key in table.foreign_keys]:
        with store.read() as tx:
            used = tx.scalar(sa.select(key.parent).where(key.parent.is_not(None)).limit(1))
        if used is not None:
            gone = sa.delete(key.column.table).where(key.column == used)
            with pytest.raises(Conflict, match="does not exist, or is still in use"), store.begin() as tx:
                tx.execute(gone)


def test_nothing_refers_to_what_is_not_there(store: Store) -> None:
    rows = fill(store)
    others = {
        "id": "x", "submission_key": "x", "nonce": None, "fingerprint": "x", "seq": 99, "sample_index": 99,
        "lease_token": "x", "responses_hash": "x", "position": 9, "step": 99, "token_hash": "x", "slot_no": 99,
        "supersedes_id": None, "annotator_id": "cat", "slot_id": None, "superseded_at": 2.0, "task_id": "t2",
    }  # fmt: skip
    for table in metadata.sorted_tables:
        fitting = {name: value for name, value in others.items() if name in table.c}
        for key in table.foreign_keys:
            orphan = rows[table.name][-1] | fitting | {key.parent.name: "nobody"}
            with pytest.raises(Conflict, match="does not exist, or is still in use"), store.begin() as tx:
                tx.execute(sa.insert(table).values(**orphan))


def test_deleting_a_person_or_a_task_takes_no_ranking_with_it(store: Store) -> None:
    project, person = make.make_project(store), make.make_person(store)
    task = make.make_task(store, project)
    made = make.make_ranking(store, task, person, [1, 2, 3])
    for name, row_id in (("person", person.id), ("task", task.id), ("project", project.id), ("prompt", task.prompt_id)):
        with pytest.raises(Conflict), store.begin() as tx:
            tx.execute(sa.delete(TABLES[name]).where(TABLES[name].c.id == row_id))
    with store.read() as tx:
        assert tx.scalar(sa.select(TABLES["ranking"].c.id)) == made.id
