"""Alembic's entry. The connection comes from `data.store.migrate`; batch mode, because SQLite can't alter in place."""

from __future__ import annotations

from alembic import context

import data.store.tables
import data.store.tables_adjudication
import data.store.tables_checks
import data.store.tables_runs
import data.store.tables_selection  # noqa: F401
from data.store.columns import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    compare_type=True,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
