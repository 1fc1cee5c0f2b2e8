"""answers from files: the order of display and the guidelines that nobody stated are unknown, not made up

Revision ID: 0008
Revises: 0007
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("ranking") as batch_op:
        batch_op.alter_column("display_order", existing_type=sa.Text(), nullable=True)
        batch_op.alter_column("guidelines_version", existing_type=sa.Integer(), nullable=True)
    # Until now an import stored the order of the file's row as the one on the screen, and the project's newest
    # guidelines as those that were read. No answer from a file was ever edited here: nobody can sign in as its author.
    made_up = sa.table("ranking", sa.column("display_order"), sa.column("guidelines_version"), sa.column("source"))
    op.execute(
        sa.update(made_up).where(made_up.c.source == "import").values(display_order=None, guidelines_version=None)
    )
