"""selection: scores of responses, arms of tasks

Revision ID: 0005
Revises: 0004
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "response_score",
        sa.Column("response_id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("score", sa.Double(), nullable=False),
        sa.Column("heads", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["response_id"], ["response.id"], name=op.f("fk_response_score_response_id"), ondelete="RESTRICT"
        ),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_response_score_run_id"), ondelete="RESTRICT"),
        sa.PrimaryKeyConstraint("response_id", "run_id", name=op.f("pk_response_score")),
    )
    op.create_table(
        "task_arm",
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("arm", sa.Text(), nullable=False),
        sa.Column("reward_run_ids", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["task_id"], ["task.id"], name=op.f("fk_task_arm_task_id"), ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(
            ["project_id"], ["project.id"], name=op.f("fk_task_arm_project_id"), ondelete="RESTRICT"
        ),
        sa.PrimaryKeyConstraint("task_id", name=op.f("pk_task_arm")),
    )
    op.create_index("ix_task_arm_project_id", "task_arm", ["project_id"])
