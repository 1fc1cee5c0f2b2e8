"""adjudications of tasks whose annotators disagree

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "adjudication",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("decided_by", sa.Text(), nullable=False),
        sa.Column("submission_key", sa.Text(), nullable=False),
        sa.Column("ranks", sa.Text(), nullable=False),
        sa.Column("unplaced", sa.Text(), nullable=False),
        sa.Column("chosen_id", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("seen", sa.Text(), nullable=False),
        sa.Column("agreement", sa.Double(), nullable=True),
        sa.Column("supersedes_id", sa.Text(), nullable=True),
        sa.Column("superseded_at", sa.Double(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.CheckConstraint("reason <> ''", name=op.f("ck_adjudication_has_a_reason")),
        *(
            sa.ForeignKeyConstraint([own], [target], name=op.f(f"fk_adjudication_{own}"), ondelete="RESTRICT")
            for own, target in (
                ("task_id", "task.id"),
                ("decided_by", "person.id"),
                ("chosen_id", "ranking.id"),
                ("supersedes_id", "adjudication.id"),
            )
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_adjudication")),
        sa.UniqueConstraint("submission_key", name=op.f("uq_adjudication_submission_key")),
        sa.UniqueConstraint("supersedes_id", name=op.f("uq_adjudication_supersedes_id")),
    )
    is_current = sa.text("superseded_at is null")
    op.create_index(
        "uq_adjudication_task_id_current",
        "adjudication",
        ["task_id"],
        unique=True,
        sqlite_where=is_current,
        postgresql_where=is_current,
    )
