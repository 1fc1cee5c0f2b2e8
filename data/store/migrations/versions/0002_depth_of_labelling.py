"""the depth of labelling: settings, flags, facts, badges, details of an answer, turns

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("project", schema=None) as batch_op:
        batch_op.add_column(sa.Column("flags", sa.Text(), server_default="[]", nullable=False))
        batch_op.add_column(sa.Column("settings", sa.Text(), server_default="{}", nullable=False))

    with op.batch_alter_table("prompt", schema=None) as batch_op:
        batch_op.add_column(sa.Column("facts", sa.Text(), server_default="", nullable=False))

    _ranking()

    with op.batch_alter_table("response", schema=None) as batch_op:
        batch_op.add_column(sa.Column("badges", sa.Text(), server_default="[]", nullable=False))

    with op.batch_alter_table("slot", schema=None) as batch_op:
        batch_op.add_column(sa.Column("turn", sa.Double(), server_default="0", nullable=False))
        batch_op.drop_index("ix_slot_open", sqlite_where=sa.text("status <> 'done'"))
        batch_op.create_index(
            "ix_slot_open",
            ["project_id", "turn", "task_seq", "slot_no"],
            unique=False,
            sqlite_where=sa.text("status <> 'done'"),
            postgresql_where=sa.text("status <> 'done'"),
        )


def _ranking() -> None:
    """A third status changes a check, for which SQLite rebuilds the table, and the index that goes by it."""
    with op.batch_alter_table("ranking") as batch_op:
        batch_op.add_column(sa.Column("detail", sa.Text(), server_default="{}", nullable=False))
        batch_op.drop_index("uq_ranking_slot_id_current")
        batch_op.drop_constraint(op.f("ck_ranking_status"), type_="check")
        batch_op.create_check_constraint(op.f("ck_ranking_status"), "status in ('ranked', 'unacceptable', 'skipped')")
    is_answer = sa.text("superseded_at is null and status <> 'skipped'")
    op.create_index(
        "uq_ranking_slot_id_current",
        "ranking",
        ["slot_id"],
        unique=True,
        sqlite_where=is_answer,
        postgresql_where=is_answer,
    )
