"""The tables of the checks on annotators: expected rankings, and who is paused. As strict as `data.store.tables`."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, Index, Table, Text, text

from data.store.columns import json, metadata, reference, time

# The ranking that is expected of a task. Append-only: a new one, or none, withdraws the one before.
gold = Table(
    "gold",
    metadata,
    Column("id", Text, primary_key=True),
    reference("task_id", "task.id"),
    json("ranks"),
    json("unplaced"),
    Column("source", Text, nullable=False),
    reference("author_id", "person.id", nullable=True),
    time("created_at"),
    time("withdrawn_at", nullable=True),
    CheckConstraint("source in ('answer', 'import')", name="source"),
    CheckConstraint("(source = 'answer') = (author_id is not null)", name="answer_has_author"),
    Index(
        "uq_gold_task_id_current",
        "task_id",
        unique=True,
        sqlite_where=text("withdrawn_at is null"),
        postgresql_where=text("withdrawn_at is null"),
    ),
)

# An annotator gets no work in a project until somebody lifts the pause. `figures` says what the alarm was about.
pause = Table(
    "pause",
    metadata,
    Column("id", Text, primary_key=True),
    reference("project_id", "project.id"),
    reference("annotator_id", "person.id"),
    Column("reason", Text, nullable=False),
    json("figures"),
    time("created_at"),
    time("lifted_at", nullable=True),
    reference("lifted_by", "person.id", nullable=True),
    Column("note", Text, nullable=False, server_default=""),
    CheckConstraint("reason in ('gold', 'haste')", name="reason"),
    Index(
        "uq_pause_project_id_annotator_id_current",
        "project_id",
        "annotator_id",
        unique=True,
        sqlite_where=text("lifted_at is null"),
        postgresql_where=text("lifted_at is null"),
    ),
)
