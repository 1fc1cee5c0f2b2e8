"""the depth of labelling: settings, details of an answer, gold, repeats, pauses, adjudication, scores

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
    op.create_table(
        "pause",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("annotator_id", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("lifted_at", sa.Double(), nullable=True),
        sa.Column("lifted_by", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["annotator_id"], ["person.id"], name=op.f("fk_pause_annotator_id"), ondelete="RESTRICT"
        ),
        sa.ForeignKeyConstraint(["lifted_by"], ["person.id"], name=op.f("fk_pause_lifted_by"), ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_pause_project_id"), ondelete="RESTRICT"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pause")),
    )
    with op.batch_alter_table("pause", schema=None) as batch_op:
        batch_op.create_index(
            "uq_pause_project_id_annotator_id_current",
            ["project_id", "annotator_id"],
            unique=True,
            sqlite_where=sa.text("lifted_at is null"),
            postgresql_where=sa.text("lifted_at is null"),
        )

    op.create_table(
        "adjudication",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("reviewer_id", sa.Text(), nullable=False),
        sa.Column("nonce", sa.Text(), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("ranks", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("superseded_at", sa.Double(), nullable=True),
        sa.CheckConstraint("(outcome = 'ranked') = (ranks is not null)", name=op.f("ck_adjudication_ranked_has_ranks")),
        sa.CheckConstraint("outcome in ('ranked', 'unacceptable', 'unresolved')", name=op.f("ck_adjudication_outcome")),
        sa.ForeignKeyConstraint(
            ["reviewer_id"], ["person.id"], name=op.f("fk_adjudication_reviewer_id"), ondelete="RESTRICT"
        ),
        sa.ForeignKeyConstraint(["task_id"], ["task.id"], name=op.f("fk_adjudication_task_id"), ondelete="RESTRICT"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_adjudication")),
        sa.UniqueConstraint("nonce", name=op.f("uq_adjudication_nonce")),
    )
    with op.batch_alter_table("adjudication", schema=None) as batch_op:
        batch_op.create_index(
            "uq_adjudication_task_id_current",
            ["task_id"],
            unique=True,
            sqlite_where=sa.text("superseded_at is null"),
            postgresql_where=sa.text("superseded_at is null"),
        )

    op.create_table(
        "gold",
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("ranks", sa.Text(), nullable=False),
        sa.Column("note", sa.Text(), server_default="", nullable=False),
        sa.Column("created_by", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["created_by"], ["person.id"], name=op.f("fk_gold_created_by"), ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(["task_id"], ["task.id"], name=op.f("fk_gold_task_id"), ondelete="RESTRICT"),
        sa.PrimaryKeyConstraint("task_id", name=op.f("pk_gold")),
    )
    op.create_table(
        "response_score",
        sa.Column("response_id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("score", sa.Double(), nullable=False),
        sa.Column("spread", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["response_id"], ["response.id"], name=op.f("fk_response_score_response_id"), ondelete="RESTRICT"
        ),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_response_score_run_id"), ondelete="RESTRICT"),
        sa.PrimaryKeyConstraint("response_id", "run_id", name=op.f("pk_response_score")),
    )
    op.create_table(
        "repeat",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("annotator_id", sa.Text(), nullable=False),
        sa.Column("ranking_id", sa.Text(), nullable=False),
        sa.Column("lease_token", sa.Text(), nullable=False),
        sa.Column("display_order", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("submission_key", sa.Text(), nullable=True),
        sa.Column("ranks", sa.Text(), nullable=True),
        sa.Column("duration_ms", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("done_at", sa.Double(), nullable=True),
        sa.CheckConstraint("(status = 'ranked') = (ranks is not null)", name=op.f("ck_repeat_ranked_has_ranks")),
        sa.CheckConstraint("status in ('open', 'ranked', 'unacceptable', 'skipped')", name=op.f("ck_repeat_status")),
        sa.ForeignKeyConstraint(
            ["annotator_id"], ["person.id"], name=op.f("fk_repeat_annotator_id"), ondelete="RESTRICT"
        ),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_repeat_project_id"), ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(["ranking_id"], ["ranking.id"], name=op.f("fk_repeat_ranking_id"), ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(["task_id"], ["task.id"], name=op.f("fk_repeat_task_id"), ondelete="RESTRICT"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_repeat")),
        sa.UniqueConstraint("lease_token", name=op.f("uq_repeat_lease_token")),
        sa.UniqueConstraint("submission_key", name=op.f("uq_repeat_submission_key")),
        sa.UniqueConstraint("task_id", "annotator_id", name=op.f("uq_repeat_task_id_annotator_id")),
    )
    with op.batch_alter_table("repeat", schema=None) as batch_op:
        batch_op.create_index("ix_repeat_annotator_id_project_id", ["annotator_id", "project_id"], unique=False)

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

    with op.batch_alter_table("task", schema=None) as batch_op:
        batch_op.add_column(sa.Column("arm", sa.Text(), nullable=True))


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
