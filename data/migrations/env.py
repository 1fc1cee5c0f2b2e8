"""Alembic's entry. The connection comes from `data.migrate`; batch mode, because SQLite can't alter in place."""

from __future__ import annotations

from alembic import context

import data.schema
import data.schema_adjudication
import data.schema_checks
import data.schema_runs
import data.schema_selection  # noqa: F401
from data.columns import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    compare_type=True,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
