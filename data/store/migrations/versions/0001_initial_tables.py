"""initial tables

Revision ID: 0001
Revises: nothing
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "person",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("password_hash", sa.Text(), nullable=True),
        sa.Column("is_external", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("disabled_at", sa.Double(), nullable=True),
        sa.CheckConstraint("role in ('annotator', 'reviewer', 'researcher', 'admin')", name=op.f("ck_person_role")),
        sa.CheckConstraint("not is_external or password_hash is null", name=op.f("ck_person_external_has_no_password")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_person")),
        sa.UniqueConstraint("name", name=op.f("uq_person_name")),
    )
    op.create_table(
        "project",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("k", sa.Integer(), nullable=False),
        sa.Column("overlap", sa.Integer(), nullable=False),
        sa.Column("guidelines", sa.Text(), nullable=False),
        sa.Column("guidelines_version", sa.Integer(), nullable=False),
        sa.Column("skip_reasons", sa.Text(), nullable=False),
        sa.Column("max_skips", sa.Integer(), nullable=False),
        sa.Column("export_key", sa.Text(), nullable=False),
        sa.Column("nonce", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.CheckConstraint("k between 2 and 12", name=op.f("ck_project_k")),
        sa.CheckConstraint("overlap >= 1", name=op.f("ck_project_overlap")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_project")),
        sa.UniqueConstraint("name", name=op.f("uq_project_name")),
        sa.UniqueConstraint("nonce", name=op.f("uq_project_nonce")),
    )
    op.create_table(
        "invitation",
        sa.Column("token_hash", sa.Text(), nullable=False),
        sa.Column("person_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.Column("used_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["person_id"], ["person.id"], name=op.f("fk_invitation_person_id"), ondelete="RESTRICT"
        ),
        sa.PrimaryKeyConstraint("token_hash", name=op.f("pk_invitation")),
    )
    op.create_table(
        "prompt",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("messages", sa.Text(), nullable=False),
        sa.Column("split", sa.Text(), nullable=True),
        sa.Column("external_id", sa.Text(), nullable=True),
        sa.Column("meta", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.CheckConstraint("split in ('train', 'eval')", name=op.f("ck_prompt_split")),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_prompt_project_id"), ondelete="RESTRICT"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_prompt")),
        sa.UniqueConstraint("project_id", "fingerprint", name=op.f("uq_prompt_project_id_fingerprint")),
        sa.UniqueConstraint("project_id", "seq", name=op.f("uq_prompt_project_id_seq")),
    )
    op.create_index("ix_prompt_project_id_external_id", "prompt", ["project_id", "external_id"])
    op.create_table(
        "snapshot",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("config", sa.Text(), nullable=False),
        sa.Column("counts", sa.Text(), nullable=False),
        sa.Column("content_hash", sa.Text(), nullable=False),
        sa.Column("nonce", sa.Text(), nullable=True),
        sa.Column("created_by", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["created_by"], ["person.id"], name=op.f("fk_snapshot_created_by"), ondelete="RESTRICT"
        ),
        sa.ForeignKeyConstraint(
            ["project_id"], ["project.id"], name=op.f("fk_snapshot_project_id"), ondelete="RESTRICT"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_snapshot")),
        sa.UniqueConstraint("nonce", name=op.f("uq_snapshot_nonce")),
    )
    op.create_table(
        "web_session",
        sa.Column("token_hash", sa.Text(), nullable=False),
        sa.Column("person_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["person_id"], ["person.id"], name=op.f("fk_web_session_person_id"), ondelete="RESTRICT"
        ),
        sa.PrimaryKeyConstraint("token_hash", name=op.f("pk_web_session")),
    )
    with op.batch_alter_table("web_session", schema=None) as batch_op:
        batch_op.create_index("ix_web_session_person_id", ["person_id"], unique=False)

    op.create_table(
        "run",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=True),
        sa.Column("snapshot_id", sa.Text(), nullable=True),
        sa.Column("reward_run_id", sa.Text(), nullable=True),
        sa.Column("config", sa.Text(), nullable=False),
        sa.Column("versions", sa.Text(), nullable=False),
        sa.Column("result", sa.Text(), nullable=False),
        sa.Column("nonce", sa.Text(), nullable=True),
        sa.Column("epoch", sa.Integer(), server_default="0", nullable=False),
        sa.Column("attempt", sa.Integer(), server_default="0", nullable=False),
        sa.Column("worker_id", sa.Text(), nullable=True),
        sa.Column("step", sa.Integer(), server_default="0", nullable=False),
        sa.Column("total_steps", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("heartbeat_at", sa.Double(), nullable=True),
        sa.Column("lease_until", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("cancel_requested_at", sa.Double(), nullable=True),
        sa.Column("error_kind", sa.Text(), nullable=True),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("created_by", sa.Text(), nullable=True),
        sa.CheckConstraint("(status = 'running') = (lease_until is not null)", name=op.f("ck_run_running_has_lease")),
        sa.CheckConstraint(
            "status in ('queued', 'running', 'succeeded', 'failed', 'cancelled')", name=op.f("ck_run_status")
        ),
        sa.ForeignKeyConstraint(["created_by"], ["person.id"], name=op.f("fk_run_created_by"), ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_run_project_id"), ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(["reward_run_id"], ["run.id"], name=op.f("fk_run_reward_run_id"), ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(["snapshot_id"], ["snapshot.id"], name=op.f("fk_run_snapshot_id"), ondelete="RESTRICT"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_run")),
        sa.UniqueConstraint("nonce", name=op.f("uq_run_nonce")),
    )
    with op.batch_alter_table("run", schema=None) as batch_op:
        batch_op.create_index("ix_run_status_created_at", ["status", "created_at"], unique=False)

    op.create_table(
        "task",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("prompt_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("responses_hash", sa.Text(), nullable=False),
        sa.Column("is_set_aside", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_task_project_id"), ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(["prompt_id"], ["prompt.id"], name=op.f("fk_task_prompt_id"), ondelete="RESTRICT"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_task")),
        sa.UniqueConstraint("project_id", "seq", name=op.f("uq_task_project_id_seq")),
        sa.UniqueConstraint("prompt_id", "responses_hash", name=op.f("uq_task_prompt_id_responses_hash")),
    )
    op.create_table(
        "checkpoint",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("folder", sa.Text(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_checkpoint_run_id"), ondelete="RESTRICT"),
        sa.PrimaryKeyConstraint("run_id", "step", name=op.f("pk_checkpoint")),
    )
    op.create_table(
        "draft",
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("annotator_id", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["annotator_id"], ["person.id"], name=op.f("fk_draft_annotator_id"), ondelete="RESTRICT"
        ),
        sa.ForeignKeyConstraint(["task_id"], ["task.id"], name=op.f("fk_draft_task_id"), ondelete="RESTRICT"),
        sa.PrimaryKeyConstraint("task_id", "annotator_id", name=op.f("pk_draft")),
    )
    op.create_table(
        "response",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("prompt_id", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("provenance", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("sample_index", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["prompt_id"], ["prompt.id"], name=op.f("fk_response_prompt_id"), ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_response_run_id"), ondelete="RESTRICT"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_response")),
        sa.UniqueConstraint(
            "run_id", "prompt_id", "sample_index", name=op.f("uq_response_run_id_prompt_id_sample_index")
        ),
    )
    with op.batch_alter_table("response", schema=None) as batch_op:
        batch_op.create_index("ix_response_prompt_id", ["prompt_id"], unique=False)

    op.create_table(
        "run_event",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_run_event_run_id"), ondelete="RESTRICT"),
        sa.PrimaryKeyConstraint("run_id", "seq", name=op.f("pk_run_event")),
    )
    op.create_table(
        "run_metric",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("value", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_run_metric_run_id"), ondelete="RESTRICT"),
        sa.PrimaryKeyConstraint("run_id", "name", "step", name=op.f("pk_run_metric")),
    )
    op.create_table(
        "run_sample",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_run_sample_run_id"), ondelete="RESTRICT"),
        sa.PrimaryKeyConstraint("run_id", "step", "position", name=op.f("pk_run_sample")),
    )
    op.create_table(
        "slot",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("task_seq", sa.Integer(), nullable=False),
        sa.Column("slot_no", sa.Integer(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("annotator_id", sa.Text(), nullable=True),
        sa.Column("lease_token", sa.Text(), nullable=True),
        sa.Column("claimed_at", sa.Double(), nullable=True),
        sa.Column("lease_expires_at", sa.Double(), nullable=True),
        sa.Column("display_order", sa.Text(), nullable=True),
        sa.CheckConstraint("(status = 'free') = (annotator_id is null)", name=op.f("ck_slot_free_has_no_annotator")),
        sa.CheckConstraint("status in ('free', 'leased', 'done')", name=op.f("ck_slot_status")),
        sa.ForeignKeyConstraint(
            ["annotator_id"], ["person.id"], name=op.f("fk_slot_annotator_id"), ondelete="RESTRICT"
        ),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_slot_project_id"), ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(["task_id"], ["task.id"], name=op.f("fk_slot_task_id"), ondelete="RESTRICT"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_slot")),
        sa.UniqueConstraint("lease_token", name=op.f("uq_slot_lease_token")),
        sa.UniqueConstraint("task_id", "slot_no", name=op.f("uq_slot_task_id_slot_no")),
    )
    with op.batch_alter_table("slot", schema=None) as batch_op:
        batch_op.create_index("ix_slot_annotator_id_status", ["annotator_id", "status"], unique=False)
        batch_op.create_index("ix_slot_project_id_status", ["project_id", "status"], unique=False)
        batch_op.create_index(
            "ix_slot_open",
            ["project_id", "task_seq", "slot_no"],
            unique=False,
            sqlite_where=sa.text("status <> 'done'"),
            postgresql_where=sa.text("status <> 'done'"),
        )
        batch_op.create_index("uq_slot_task_id_annotator_id", ["task_id", "annotator_id"], unique=True)

    op.create_table(
        "ranking",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("annotator_id", sa.Text(), nullable=False),
        sa.Column("slot_id", sa.Text(), nullable=True),
        sa.Column("submission_key", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("ranks", sa.Text(), nullable=True),
        sa.Column("display_order", sa.Text(), nullable=False),
        sa.Column("skip_reason", sa.Text(), nullable=True),
        sa.Column("comment", sa.Text(), server_default="", nullable=False),
        sa.Column("duration_ms", sa.Integer(), nullable=True),
        sa.Column("guidelines_version", sa.Integer(), nullable=False),
        sa.Column("is_late", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("is_extra", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("version", sa.Integer(), server_default="1", nullable=False),
        sa.Column("supersedes_id", sa.Text(), nullable=True),
        sa.Column("superseded_at", sa.Double(), nullable=True),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.CheckConstraint("(status = 'ranked') = (ranks is not null)", name=op.f("ck_ranking_ranked_has_ranks")),
        sa.CheckConstraint(
            "(status = 'skipped') = (skip_reason is not null)", name=op.f("ck_ranking_skipped_has_reason")
        ),
        sa.CheckConstraint("status in ('ranked', 'skipped')", name=op.f("ck_ranking_status")),
        sa.ForeignKeyConstraint(
            ["annotator_id"], ["person.id"], name=op.f("fk_ranking_annotator_id"), ondelete="RESTRICT"
        ),
        sa.ForeignKeyConstraint(["slot_id"], ["slot.id"], name=op.f("fk_ranking_slot_id"), ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(
            ["supersedes_id"], ["ranking.id"], name=op.f("fk_ranking_supersedes_id"), ondelete="RESTRICT"
        ),
        sa.ForeignKeyConstraint(["task_id"], ["task.id"], name=op.f("fk_ranking_task_id"), ondelete="RESTRICT"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ranking")),
        sa.UniqueConstraint("submission_key", name=op.f("uq_ranking_submission_key")),
        sa.UniqueConstraint("supersedes_id", name=op.f("uq_ranking_supersedes_id")),
    )
    with op.batch_alter_table("ranking", schema=None) as batch_op:
        batch_op.create_index("ix_ranking_annotator_id_created_at", ["annotator_id", "created_at"], unique=False)
        batch_op.create_index(
            "uq_ranking_slot_id_current",
            ["slot_id"],
            unique=True,
            sqlite_where=sa.text("superseded_at is null and status = 'ranked'"),
            postgresql_where=sa.text("superseded_at is null and status = 'ranked'"),
        )
        batch_op.create_index(
            "uq_ranking_task_id_annotator_id_current",
            ["task_id", "annotator_id"],
            unique=True,
            sqlite_where=sa.text("superseded_at is null"),
            postgresql_where=sa.text("superseded_at is null"),
        )

    op.create_table(
        "task_response",
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("response_id", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.CheckConstraint("position between 0 and 11", name=op.f("ck_task_response_position")),
        sa.ForeignKeyConstraint(
            ["response_id"], ["response.id"], name=op.f("fk_task_response_response_id"), ondelete="RESTRICT"
        ),
        sa.ForeignKeyConstraint(["task_id"], ["task.id"], name=op.f("fk_task_response_task_id"), ondelete="RESTRICT"),
        sa.PrimaryKeyConstraint("task_id", "position", name=op.f("pk_task_response")),
        sa.UniqueConstraint("task_id", "fingerprint", name=op.f("uq_task_response_task_id_fingerprint")),
    )


def downgrade() -> None:
    op.drop_table("task_response")
    with op.batch_alter_table("ranking", schema=None) as batch_op:
        batch_op.drop_index(
            "uq_ranking_task_id_annotator_id_current",
            sqlite_where=sa.text("superseded_at is null"),
            postgresql_where=sa.text("superseded_at is null"),
        )
        batch_op.drop_index(
            "uq_ranking_slot_id_current",
            sqlite_where=sa.text("superseded_at is null and status = 'ranked'"),
            postgresql_where=sa.text("superseded_at is null and status = 'ranked'"),
        )
        batch_op.drop_index("ix_ranking_annotator_id_created_at")

    op.drop_table("ranking")
    with op.batch_alter_table("slot", schema=None) as batch_op:
        batch_op.drop_index("uq_slot_task_id_annotator_id")
        batch_op.drop_index("ix_slot_open")
        batch_op.drop_index("ix_slot_project_id_status")
        batch_op.drop_index("ix_slot_annotator_id_status")

    op.drop_table("slot")
    op.drop_table("run_sample")
    op.drop_table("run_metric")
    op.drop_table("run_event")
    with op.batch_alter_table("response", schema=None) as batch_op:
        batch_op.drop_index("ix_response_prompt_id")

    op.drop_table("response")
    op.drop_table("draft")
    op.drop_table("checkpoint")
    op.drop_table("task")
    with op.batch_alter_table("run", schema=None) as batch_op:
        batch_op.drop_index("ix_run_status_created_at")

    op.drop_table("run")
    with op.batch_alter_table("web_session", schema=None) as batch_op:
        batch_op.drop_index("ix_web_session_person_id")

    op.drop_table("web_session")
    op.drop_table("snapshot")
    op.drop_index("ix_prompt_project_id_external_id", "prompt")
    op.drop_table("prompt")
    op.drop_table("invitation")
    op.drop_table("project")
    op.drop_table("person")
