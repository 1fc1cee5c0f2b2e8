"""checks on annotators: gold, silent repeats, pauses

Revision ID: 0004
Revises: 0003
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_PURPOSES = "purpose in ('ordinary', 'gold', 'repeat')"
_FIRST, _REPEAT = "purpose <> 'repeat'", "purpose = 'repeat'"


def upgrade() -> None:
    _slot()
    _ranking()
    _gold()
    _pause()


def _slot() -> None:
    """One slot of a person's own and one repeat may be of the same task; checks have no number."""
    with op.batch_alter_table("slot") as batch_op:
        batch_op.add_column(sa.Column("purpose", sa.Text(), server_default="ordinary", nullable=False))
        batch_op.alter_column("slot_no", existing_type=sa.Integer(), nullable=True)
        batch_op.drop_index("uq_slot_task_id_annotator_id")
        batch_op.create_check_constraint(op.f("ck_slot_purpose"), _PURPOSES)
        batch_op.create_check_constraint(
            op.f("ck_slot_ordinary_has_number"), "(purpose = 'ordinary') = (slot_no is not null)"
        )
    _unique("uq_slot_task_id_annotator_id", "slot", ["task_id", "annotator_id"], _FIRST)
    _unique("uq_slot_task_id_annotator_id_repeat", "slot", ["task_id", "annotator_id"], _REPEAT)


def _ranking() -> None:
    with op.batch_alter_table("ranking") as batch_op:
        batch_op.add_column(sa.Column("purpose", sa.Text(), server_default="ordinary", nullable=False))
        batch_op.drop_index("uq_ranking_task_id_annotator_id_current")
        batch_op.create_check_constraint(op.f("ck_ranking_purpose"), _PURPOSES)
    columns, current = ["task_id", "annotator_id"], "superseded_at is null and "
    _unique("uq_ranking_task_id_annotator_id_current", "ranking", columns, current + _FIRST)
    _unique("uq_ranking_task_id_annotator_id_repeat", "ranking", columns, current + _REPEAT)


def _gold() -> None:
    op.create_table(
        "gold",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("ranks", sa.Text(), nullable=False),
        sa.Column("unplaced", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("author_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("withdrawn_at", sa.Double(), nullable=True),
        sa.CheckConstraint("source in ('answer', 'import')", name=op.f("ck_gold_source")),
        sa.CheckConstraint("(source = 'answer') = (author_id is not null)", name=op.f("ck_gold_answer_has_author")),
        sa.ForeignKeyConstraint(["task_id"], ["task.id"], name=op.f("fk_gold_task_id"), ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(["author_id"], ["person.id"], name=op.f("fk_gold_author_id"), ondelete="RESTRICT"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_gold")),
    )
    _unique("uq_gold_task_id_current", "gold", ["task_id"], "withdrawn_at is null")


def _pause() -> None:
    op.create_table(
        "pause",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("annotator_id", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("figures", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("lifted_at", sa.Double(), nullable=True),
        sa.Column("lifted_by", sa.Text(), nullable=True),
        sa.Column("note", sa.Text(), server_default="", nullable=False),
        sa.CheckConstraint("reason in ('gold', 'haste')", name=op.f("ck_pause_reason")),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_pause_project_id"), ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(
            ["annotator_id"], ["person.id"], name=op.f("fk_pause_annotator_id"), ondelete="RESTRICT"
        ),
        sa.ForeignKeyConstraint(["lifted_by"], ["person.id"], name=op.f("fk_pause_lifted_by"), ondelete="RESTRICT"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pause")),
    )
    _unique("uq_pause_project_id_annotator_id_current", "pause", ["project_id", "annotator_id"], "lifted_at is null")


def _unique(name: str, table: str, columns: list[str], where: str) -> None:
    condition = sa.text(where)
    op.create_index(name, table, columns, unique=True, sqlite_where=condition, postgresql_where=condition)
