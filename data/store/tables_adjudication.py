"""The table of adjudications: what a researcher decided where a task's annotators disagree."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, Double, Index, Table, Text, UniqueConstraint, text

from data.store.columns import json, metadata, reference, time

# Append-only: another decision on the same task supersedes the one before. `seen` are the answers that it was made on.
adjudication = Table(
    "adjudication",
    metadata,
    Column("id", Text, primary_key=True),
    reference("task_id", "task.id"),
    reference("decided_by", "person.id"),
    Column("submission_key", Text, nullable=False, unique=True),
    json("ranks"),
    json("unplaced"),
    reference("chosen_id", "ranking.id", nullable=True),
    Column("reason", Text, nullable=False),
    json("seen"),
    Column("agreement", Double),
    reference("supersedes_id", "adjudication.id", nullable=True),
    time("superseded_at", nullable=True),
    time("created_at"),
    UniqueConstraint("supersedes_id"),
    CheckConstraint("reason <> ''", name="has_a_reason"),
    Index(
        "uq_adjudication_task_id_current",
        "task_id",
        unique=True,
        sqlite_where=text("superseded_at is null"),
        postgresql_where=text("superseded_at is null"),
    ),
)
