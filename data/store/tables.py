"""The tables. Every rule of uniqueness stands here, not in code.

Times are seconds since the epoch as double precision; JSON is text that this program wrote. No foreign key cascades:
nothing that is deleted can take a ranking with it.
"""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    Table,
    Text,
    UniqueConstraint,
    false,
    text,
)

from data.store.columns import json, metadata, reference, time

person = Table(
    "person",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("role", Text, nullable=False),
    Column("password_hash", Text),
    Column("is_external", Boolean, nullable=False, server_default=false()),
    time("created_at"),
    time("disabled_at", nullable=True),
    CheckConstraint("role in ('annotator', 'reviewer', 'researcher', 'admin')", name="role"),
    CheckConstraint("not is_external or password_hash is null", name="external_has_no_password"),
)

# A browser's session, by the hash of its cookie.
web_session = Table(
    "web_session",
    metadata,
    Column("token_hash", Text, primary_key=True),
    reference("person_id", "person.id"),
    time("created_at"),
    time("expires_at"),
    Index("ix_web_session_person_id", "person_id"),
)

# A one-time link with which somebody chooses a password: the first admin (no person yet), or an invited one. Each has
# one at most that is open; `used_at`: when it was used, or spent by what ends it.
invitation = Table(
    "invitation",
    metadata,
    Column("token_hash", Text, primary_key=True),
    reference("person_id", "person.id", nullable=True),
    time("created_at"),
    time("expires_at"),
    time("used_at", nullable=True),
    Index(
        "uq_invitation_person_id_open",
        "person_id",
        unique=True,
        sqlite_where=text("used_at is null"),
        postgresql_where=text("used_at is null"),
    ),
)

project = Table(
    "project",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("k", Integer, nullable=False),
    Column("overlap", Integer, nullable=False),
    Column("guidelines", Text, nullable=False),
    Column("guidelines_version", Integer, nullable=False),
    json("skip_reasons"),
    Column("max_skips", Integer, nullable=False),
    Column("flags", Text, nullable=False, server_default="[]"),
    Column("settings", Text, nullable=False, server_default="{}"),
    Column("export_key", Text, nullable=False),
    Column("nonce", Text, unique=True),
    time("created_at"),
    CheckConstraint("k between 2 and 12", name="k"),
    CheckConstraint("overlap >= 1", name="overlap"),
)

prompt = Table(
    "prompt",
    metadata,
    Column("id", Text, primary_key=True),
    reference("project_id", "project.id"),
    Column("seq", Integer, nullable=False),
    Column("fingerprint", Text, nullable=False),
    json("messages"),
    Column("facts", Text, nullable=False, server_default=""),
    Column("split", Text),
    Column("external_id", Text),
    json("meta"),
    time("created_at"),
    UniqueConstraint("project_id", "fingerprint"),
    UniqueConstraint("project_id", "seq"),
    CheckConstraint("split in ('train', 'eval')", name="split"),
    Index("ix_prompt_project_id_external_id", "project_id", "external_id"),
)

# One sampled or imported text. A run that is resumed can't sample the same place twice.
response = Table(
    "response",
    metadata,
    Column("id", Text, primary_key=True),
    reference("prompt_id", "prompt.id"),
    Column("fingerprint", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("model", Text, nullable=False),
    json("provenance"),
    reference("run_id", "run.id", nullable=True),
    Column("sample_index", Integer),
    Column("badges", Text, nullable=False, server_default="[]"),
    time("created_at"),
    UniqueConstraint("run_id", "prompt_id", "sample_index"),
    Index("ix_response_prompt_id", "prompt_id"),
)

# One prompt with K responses, to be ranked. The hash is over its responses' fingerprints.
task = Table(
    "task",
    metadata,
    Column("id", Text, primary_key=True),
    reference("project_id", "project.id"),
    reference("prompt_id", "prompt.id"),
    Column("seq", Integer, nullable=False),
    Column("responses_hash", Text, nullable=False),
    Column("is_set_aside", Boolean, nullable=False, server_default=false()),
    time("created_at"),
    UniqueConstraint("prompt_id", "responses_hash"),
    UniqueConstraint("project_id", "seq"),
)

# No two responses of a task differ in white space only.
task_response = Table(
    "task_response",
    metadata,
    Column("task_id", Text, ForeignKey("task.id", ondelete="RESTRICT"), primary_key=True),
    Column("position", Integer, primary_key=True),
    reference("response_id", "response.id"),
    Column("fingerprint", Text, nullable=False),
    UniqueConstraint("task_id", "fingerprint"),
    CheckConstraint("position between 0 and 11", name="position"),
)

# As many numbered slots as annotators wanted for the task; beside them one for each check on an annotator: gold, or a
# repeat. A slot is free, leased to one annotator, or done. Its task's project and number stand here too: the next open
# slot is then found at once, however many are done. Slots are handed out by their turn, then by number: 0 where the
# project goes in order, else a number that was drawn once for each task.
slot = Table(
    "slot",
    metadata,
    Column("id", Text, primary_key=True),
    reference("project_id", "project.id"),
    reference("task_id", "task.id"),
    Column("task_seq", Integer, nullable=False),
    Column("slot_no", Integer),
    Column("purpose", Text, nullable=False, server_default="ordinary"),
    Column("turn", Double, nullable=False, server_default="0"),
    Column("status", Text, nullable=False),
    reference("annotator_id", "person.id", nullable=True),
    Column("lease_token", Text, unique=True),
    time("claimed_at", nullable=True),
    time("lease_expires_at", nullable=True),
    json("display_order", nullable=True),
    UniqueConstraint("task_id", "slot_no"),
    CheckConstraint("status in ('free', 'leased', 'done')", name="status"),
    CheckConstraint("(status = 'free') = (annotator_id is null)", name="free_has_no_annotator"),
    CheckConstraint("purpose in ('ordinary', 'gold', 'repeat')", name="purpose"),
    CheckConstraint("(purpose = 'ordinary') = (slot_no is not null)", name="ordinary_has_number"),
    Index(
        "uq_slot_task_id_annotator_id",
        "task_id",
        "annotator_id",
        unique=True,
        sqlite_where=text("purpose <> 'repeat'"),
        postgresql_where=text("purpose <> 'repeat'"),
    ),
    Index(
        "uq_slot_task_id_annotator_id_repeat",
        "task_id",
        "annotator_id",
        unique=True,
        sqlite_where=text("purpose = 'repeat'"),
        postgresql_where=text("purpose = 'repeat'"),
    ),
    Index("ix_slot_annotator_id_status", "annotator_id", "status"),
    Index("ix_slot_project_id_status", "project_id", "status"),
    Index(
        "ix_slot_open",
        "project_id",
        "turn",
        "task_seq",
        "slot_no",
        sqlite_where=text("status <> 'done'"),
        postgresql_where=text("status <> 'done'"),
    ),
)

draft = Table(
    "draft",
    metadata,
    Column("task_id", Text, ForeignKey("task.id", ondelete="RESTRICT"), primary_key=True),
    Column("annotator_id", Text, ForeignKey("person.id", ondelete="RESTRICT"), primary_key=True),
    json("body"),
    time("at"),
)

# Append-only. An edit is a new row that supersedes the old one. Beside an answer there may be one repeat of it.
# What a file does not say of an answer is null: the order of display, the duration, the guidelines that were read.
ranking = Table(
    "ranking",
    metadata,
    Column("id", Text, primary_key=True),
    reference("task_id", "task.id"),
    reference("annotator_id", "person.id"),
    reference("slot_id", "slot.id", nullable=True),
    Column("purpose", Text, nullable=False, server_default="ordinary"),
    Column("submission_key", Text, nullable=False, unique=True),
    Column("status", Text, nullable=False),
    json("ranks", nullable=True),
    json("display_order", nullable=True),
    Column("skip_reason", Text),
    Column("comment", Text, nullable=False, server_default=""),
    Column("detail", Text, nullable=False, server_default="{}"),
    Column("duration_ms", Integer),
    Column("guidelines_version", Integer),
    Column("is_late", Boolean, nullable=False, server_default=false()),
    Column("is_extra", Boolean, nullable=False, server_default=false()),
    Column("version", Integer, nullable=False, server_default="1"),
    reference("supersedes_id", "ranking.id", nullable=True),
    time("superseded_at", nullable=True),
    Column("source", Text, nullable=False),
    time("created_at"),
    UniqueConstraint("supersedes_id"),
    CheckConstraint("status in ('ranked', 'unacceptable', 'skipped')", name="status"),
    CheckConstraint("(status = 'ranked') = (ranks is not null)", name="ranked_has_ranks"),
    CheckConstraint("(status = 'skipped') = (skip_reason is not null)", name="skipped_has_reason"),
    CheckConstraint("purpose in ('ordinary', 'gold', 'repeat')", name="purpose"),
    Index(
        "uq_ranking_task_id_annotator_id_current",
        "task_id",
        "annotator_id",
        unique=True,
        sqlite_where=text("superseded_at is null and purpose <> 'repeat'"),
        postgresql_where=text("superseded_at is null and purpose <> 'repeat'"),
    ),
    Index(
        "uq_ranking_task_id_annotator_id_repeat",
        "task_id",
        "annotator_id",
        unique=True,
        sqlite_where=text("superseded_at is null and purpose = 'repeat'"),
        postgresql_where=text("superseded_at is null and purpose = 'repeat'"),
    ),
    Index(
        "uq_ranking_slot_id_current",
        "slot_id",
        unique=True,
        sqlite_where=text("superseded_at is null and status <> 'skipped'"),
        postgresql_where=text("superseded_at is null and status <> 'skipped'"),
    ),
    Index("ix_ranking_annotator_id_created_at", "annotator_id", "created_at"),
)

snapshot = Table(
    "snapshot",
    metadata,
    Column("id", Text, primary_key=True),
    reference("project_id", "project.id"),
    json("config"),
    json("counts"),
    Column("content_hash", Text, nullable=False),
    Column("prompts_hash", Text),
    Column("nonce", Text, unique=True),
    reference("created_by", "person.id", nullable=True),
    time("created_at"),
)

run = Table(
    "run",
    metadata,
    Column("id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("status", Text, nullable=False),
    reference("project_id", "project.id", nullable=True),
    reference("snapshot_id", "snapshot.id", nullable=True),
    reference("reward_run_id", "run.id", nullable=True),
    json("config"),
    json("versions"),
    json("result"),
    Column("nonce", Text, unique=True),
    Column("epoch", Integer, nullable=False, server_default="0"),
    Column("attempt", Integer, nullable=False, server_default="0"),
    Column("worker_id", Text),
    Column("step", Integer, nullable=False, server_default="0"),
    Column("total_steps", Integer),
    time("created_at"),
    time("started_at", nullable=True),
    time("heartbeat_at", nullable=True),
    time("lease_until", nullable=True),
    time("ended_at", nullable=True),
    time("cancel_requested_at", nullable=True),
    Column("error_kind", Text),
    Column("error_message", Text),
    reference("created_by", "person.id", nullable=True),
    CheckConstraint("status in ('queued', 'running', 'succeeded', 'failed', 'cancelled')", name="status"),
    CheckConstraint("(status = 'running') = (lease_until is not null)", name="running_has_lease"),
    Index("ix_run_status_created_at", "status", "created_at"),
)
