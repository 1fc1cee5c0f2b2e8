"""selection by a model that no run has kept: its scores beside the arm

Revision ID: 0006
Revises: 0005
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("task_arm", sa.Column("scores", sa.Text(), nullable=True))
