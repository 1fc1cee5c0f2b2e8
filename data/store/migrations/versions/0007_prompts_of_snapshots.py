"""the prompts of a snapshot's project as they were: the hash of the file that holds them

Revision ID: 0007
Revises: 0006
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("snapshot", sa.Column("prompts_hash", sa.Text(), nullable=True))
