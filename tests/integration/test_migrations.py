"""Migrations: from nothing, from an older release with rows in it, and from a newer one; by several at once."""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import factories as make
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from spawned import spawning

import data.store.migrate
from data.errors import Conflict, StoreTooNew, StoreUnavailable
from data.label_settings import LabelSettings
from data.labels.projects import get_project
from data.labels.rankings import current_rankings
from data.labels.tasks import get_task
from data.records import Detail, Project
from data.store import Store, open_store
from data.store.columns import metadata
from data.store.engine import sqlite_module
from data.store.migrate import current_revision, upgrade
from data.store.tables import invitation

# What a later release may have to do: rebuild a table that others refer to. It is the hardest kind on SQLite.
REBUILDS_PARENTS = """
import sqlalchemy as sa
from alembic import op

revision, down_revision, branch_labels, depends_on = "9999", "{head}", None, None

def upgrade():
    how = "always" if op.get_bind().dialect.name == "sqlite" else "never"
    for name in ("person", "project", "prompt", "task", "slot", "ranking"):
        with op.batch_alter_table(name, recreate=how) as batch:
            batch.add_column(sa.Column("note", sa.Text(), nullable=False, server_default="new"))
"""
LOSES_ROWS = """
from alembic import op

revision, down_revision, branch_labels, depends_on = "9999", "{head}", None, None

def upgrade():
    op.execute("delete from draft")
    op.execute("delete from web_session")
    op.execute("create table half_done (id text)")
"""
HEAD = "0009"  # the newest revision of this release


@pytest.fixture
def next_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Make this program one that knows a second revision with the given code."""
    folder = tmp_path / "migrations"

    def release(code: str) -> None:
        shutil.copytree(Path(data.store.migrate.__file__).with_name("migrations"), folder)
        (folder / "versions" / "9999_next.py").write_text(code.replace("{head}", HEAD))
        config = Config()
        config.set_main_option("script_location", str(folder))
        config.set_main_option("path_separator", "os")
        monkeypatch.setattr(data.store.migrate, "alembic_config", lambda: config)

    return release


def rows_of(store: Store) -> dict[str, list[tuple[object, ...]]]:
    with store.read() as tx:
        return {
            table.name: sorted((tuple(row) for row in tx.rows(sa.select(table))), key=repr)
            for table in metadata.sorted_tables
        }


def fill(store: Store) -> Project:
    project = make.make_ranked_project(store, n_prompts=3)
    person = make.make_person(store)
    make.make_session(store, person)
    make.lease(store, make.make_task(store, project), person)
    return project


def test_the_tables_are_those_of_the_schema(store: Store) -> None:
    with store.write_engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []
    # what Alembic does not compare: defaults, checks, the conditions of indexes, what happens on delete
    assert _details(store.write_engine) == _details_of_schema(store)


def _details(engine: sa.Engine) -> dict[str, object]:
    found: dict[str, object] = {}
    inspector = sa.inspect(engine)
    for name in metadata.tables:
        found[f"{name} columns"] = sorted(
            (each["name"], str(each["type"]), each["nullable"], each["default"]) for each in inspector.get_columns(name)
        )
        found[f"{name} checks"] = sorted(str(each["name"]) for each in inspector.get_check_constraints(name))
        found[f"{name} keys"] = sorted(
            (each["constrained_columns"][0], each["referred_table"], each["options"].get("ondelete"))
            for each in inspector.get_foreign_keys(name)
        )
        found[f"{name} indexes"] = sorted(
            (str(each["name"]), tuple(map(str, each["column_names"])), bool(each["unique"]), _condition(each))
            for each in inspector.get_indexes(name)
            if not each.get("duplicates_constraint")
        )
    return found


def _condition(index: object) -> str:
    options = index.get("dialect_options", {})  # type: ignore[attr-defined]
    return str(options.get("sqlite_where", options.get("postgresql_where", "")))


def _details_of_schema(store: Store) -> dict[str, object]:
    """The same of tables that are made from the schema itself, in a place of their own."""
    if store.is_sqlite:
        assert store.file is not None
        engine = sa.create_engine(f"sqlite:///{store.file.with_name('schema.db')}")
        metadata.create_all(engine)
        found = _details(engine)
        engine.dispose()
        return found
    with store.write_engine.begin() as connection:
        for table in reversed(metadata.sorted_tables):
            table.drop(connection)
        metadata.create_all(connection)
    return _details(store.write_engine)


def test_a_second_start_changes_nothing(store: Store) -> None:
    fill(store)
    before = rows_of(store)
    upgrade(store)
    assert rows_of(store) == before
    assert current_revision(store) == HEAD


def test_an_upgrade_keeps_every_row_though_parents_are_rebuilt(
    store: Store, next_release: Callable[[str], None]
) -> None:
    project = fill(store)
    before = rows_of(store)
    next_release(REBUILDS_PARENTS)
    upgrade(store)
    assert current_revision(store) == "9999"
    assert rows_of(store) == before
    with store.read() as tx:
        assert tx.scalar(sa.text("select distinct note from ranking")) == "new"
        assert len(list(current_rankings(tx, project.id))) == 3
    # the keys hold again, also on the connection that migrated
    for name in ("person", "task"):
        with pytest.raises(Exception, match="still in use"), store.begin() as tx:
            tx.execute(sa.text(f"delete from {name}"))


FIRST_RELEASE = """
insert into person (id, name, role, created_at) values ('a', 'Ann', 'annotator', 1.0);
insert into project (id, name, k, overlap, guidelines, guidelines_version, skip_reasons, max_skips, export_key,
                     created_at) values ('p', 'old', 2, 1, '', 1, '["no"]', 3, 'k', 1.0);
insert into prompt (id, project_id, seq, fingerprint, messages, meta, created_at)
                    values ('q', 'p', 1, 'f', '[{"role": "user", "content": "hi"}]', '{}', 1.0);
insert into response (id, prompt_id, fingerprint, text, model, provenance, created_at)
                    values ('r', 'q', 'f', 'one', '', '{}', 1.0), ('s', 'q', 'g', 'two', '', '{}', 1.0);
insert into task (id, project_id, prompt_id, seq, responses_hash, created_at) values ('t', 'p', 'q', 1, 'h', 1.0);
insert into task_response (task_id, position, response_id, fingerprint)
                    values ('t', 0, 'r', 'f'), ('t', 1, 's', 'g');
insert into slot (id, project_id, task_id, task_seq, slot_no, status, annotator_id)
                    values ('x', 'p', 't', 1, 1, 'done', 'a');
insert into ranking (id, task_id, annotator_id, slot_id, submission_key, status, ranks, display_order,
                     guidelines_version, source, created_at)
                    values ('k', 't', 'a', 'x', 'key-12345', 'ranked', '[2, 1]', '[0, 1]', 1, 'app', 1.0)
"""


def test_a_store_of_the_first_release_comes_along(store: Store) -> None:
    old = _store_at(store, "0001")
    with old.begin() as tx:
        for statement in FIRST_RELEASE.split(";"):
            tx.execute(sa.text(statement.replace(":", "\\:")))
    upgrade(old)
    assert current_revision(old) == HEAD
    with old.read() as tx:
        [(found, prompt_id)] = current_rankings(tx, "p")
        project, task = get_project(tx, "p"), get_task(tx, found.task_id)
    assert (found.ranks, found.detail, prompt_id) == ((2, 1), Detail(), "q")
    assert (project.settings, project.flags) == (LabelSettings(), ())
    assert ([each.badges for each in task.responses], task.facts) == ([(), ()], "")
    with pytest.raises(Conflict), old.begin() as tx:
        tx.execute(sa.text("update ranking set status = 'nonsense'"))
    old.close()


WITH_A_FILE = (
    FIRST_RELEASE
    + """;
insert into person (id, name, role, is_external, created_at) values ('b', 'Bob (imported, p)', 'annotator', true, 1.0);
insert into ranking (id, task_id, annotator_id, submission_key, status, ranks, display_order, guidelines_version,
                     duration_ms, source, created_at)
                    values ('m', 't', 'b', 'import-1', 'ranked', '[1, 2]', '[0, 1]', 1, 700, 'import', 2.0)
"""
)


def test_what_older_imports_made_up_is_unknown_again(store: Store) -> None:
    """The order of the row and the guidelines of the day. What the file said, and what people here saw, stays."""
    old = _store_at(store, "0006")
    with old.begin() as tx:
        for statement in WITH_A_FILE.split(";"):
            tx.execute(sa.text(statement.replace(":", "\\:")))
    upgrade(old)
    with old.read() as tx:
        here, from_file = (each for each, _ in current_rankings(tx, "p"))
    assert (here.display_order, here.guidelines_version) == ((0, 1), 1)
    assert (from_file.display_order, from_file.guidelines_version) == (None, None)
    assert (from_file.ranks, from_file.duration_ms, from_file.source) == ((1, 2), 700, "import")
    old.close()


OLD_PEOPLE = """
insert into person (id, name, role, created_at, disabled_at, password_hash) values
    ('a', 'Ann', 'annotator', 1.0, null, null), ('b', 'Bo', 'annotator', 1.0, null, 'hash'),
    ('c', 'Cy', 'annotator', 1.0, 5.0, null), ('d', 'Di', '{admin}', 1.0, null, 'hash');
insert into invitation (token_hash, person_id, created_at, expires_at, used_at) values
    ('a1', 'a', 1.0, 9e9, null), ('a2', 'a', 3.0, 9e9, null), ('a3', 'a', 2.0, 9e9, null),
    ('b1', 'b', 1.0, 9e9, null), ('b2', 'b', 2.0, 9e9, 2.5), ('b3', 'b', 3.0, 9e9, null), ('b4', 'b', 3.0, 9e9, null),
    ('c1', 'c', 1.0, 9e9, null), ('e1', 'd', 1.0, 9e9, null), ('e2', 'd', 4.0, 9e9, 4.5),
    ('s1', null, 1.0, 9e9, null), ('s2', null, 2.0, 9e9, null)
"""


@pytest.mark.parametrize(("di", "set_up"), [("admin", set()), ("annotator", {"s2"})])
def test_an_older_store_keeps_the_newest_link_alone(store: Store, di: str, set_up: set[str]) -> None:
    """Older than a link that was used: spent. Of closed accounts: spent. The set-up link: not with an admin there."""
    old = _store_at(store, "0006")
    with old.begin() as tx:
        for statement in OLD_PEOPLE.format(admin=di).split(";"):
            tx.execute(sa.text(statement))
    upgrade(old)
    with old.read() as tx:
        still = {row.token_hash for row in tx.rows(sa.select(invitation)) if row.used_at is None}
        used = tx.scalar(sa.select(invitation.c.used_at).where(invitation.c.token_hash == "b2"))
        assert len(tx.rows(sa.select(invitation))) == 12, "no row is lost"
    assert still - {"b3", "b4"} == {"a2", *set_up}
    assert len(still & {"b3", "b4"}) == 1, "of two of the same moment, one"
    assert used == 2.5
    with pytest.raises(Conflict), old.begin() as tx:
        tx.execute(sa.insert(invitation).values(token_hash="a9", person_id="a", created_at=9.0, expires_at=9e9))
    old.close()


def _store_at(store: Store, revision: str) -> Store:
    """A store with nothing in it, as an older release left it."""
    if store.is_sqlite:
        assert store.file is not None
        old = Store(f"sqlite:///{store.file.with_name('old.db')}")
    else:
        with store.begin() as tx:
            tx.execute(sa.text("drop schema public cascade"))
            tx.execute(sa.text("create schema public"))
        old = Store(store.url)
    upgrade(old, revision)
    return old


def test_an_upgrade_of_a_sqlite_store_leaves_a_copy_of_the_old_one(
    sqlite_store: Store, next_release: Callable[[str], None]
) -> None:
    fill(sqlite_store)
    before = rows_of(sqlite_store)
    next_release(REBUILDS_PARENTS)
    upgrade(sqlite_store)
    assert sqlite_store.file is not None
    old = Store(f"sqlite:///{sqlite_store.file.with_name('rankloop.before-9999.db')}")
    assert current_revision(old) == HEAD
    assert rows_of(old) == before
    old.close()


def test_a_migration_that_would_lose_rows_is_taken_back_whole(
    store: Store, next_release: Callable[[str], None]
) -> None:
    fill(store)
    before = rows_of(store)
    next_release(LOSES_ROWS)
    with pytest.raises(StoreUnavailable, match=r"would lose data: web_session \(1 rows, then 0\); nothing was changed"):
        upgrade(store)
    assert rows_of(store) == before
    assert current_revision(store) == HEAD
    assert "half_done" not in sa.inspect(store.write_engine).get_table_names()


def test_a_store_of_a_newer_release_is_refused_and_left_alone(store: Store) -> None:
    with store.begin() as tx:
        tx.execute(sa.text("update alembic_version set version_num = '0099'"))
    with pytest.raises(StoreTooNew) as caught:
        open_store(store.url)
    assert f"its schema is '0099', this program knows up to '{HEAD}'" in str(caught.value)
    assert "update rankloop" in str(caught.value)


def _open(url: str, start: float) -> str:
    import time

    time.sleep(max(0.0, start - time.time()))
    store = open_store(url)
    try:
        return str(current_revision(store))
    finally:
        store.close()


def test_several_processes_may_open_a_new_store_at_once(store: Store, tmp_path: Path) -> None:
    import time

    if store.is_sqlite:
        url = f"sqlite:///{tmp_path / 'new.db'}"
    else:
        url = store.url
        with store.begin() as tx:
            tx.execute(sa.text("drop schema public cascade"))
            tx.execute(sa.text("create schema public"))
        store.close()
    with spawning() as processes, processes.Pool(6) as pool:
        found = pool.starmap(_open, [(url, time.time() + 4.0)] * 6)
        pool.close()
        pool.join()
    assert found == [HEAD] * 6


def test_a_store_that_somebody_is_just_making_is_waited_for(tmp_path: Path) -> None:
    """Before its first switch to the write-ahead log, a writer makes that switch fail at once for everybody else."""
    file = tmp_path / "new.db"
    maker = sqlite_module().connect(file, isolation_level=None, check_same_thread=False)
    maker.execute("create table made (x)")
    maker.execute("begin immediate")
    maker.execute("insert into made values (1)")
    release = threading.Timer(0.5, maker.execute, ("commit",))
    release.start()
    store = open_store(f"sqlite:///{file}")
    release.join()
    assert current_revision(store) == HEAD
    store.close()
    maker.close()


def test_the_migrations_are_found_where_the_package_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder whose name has a percent sign or a space is read as it is."""
    odd = Path("/some/100%/fo lder/migrate.py")
    monkeypatch.setattr(data.store.migrate, "__file__", str(odd))
    config = data.store.migrate.alembic_config()
    assert config.get_main_option("script_location") == str(odd.with_name("migrations"))
    assert "alembic" in sys.modules
