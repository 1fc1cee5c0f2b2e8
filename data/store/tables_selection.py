"""The tables of a selection: what reward models make of stored responses, and how a task came to be offered."""

from __future__ import annotations

from sqlalchemy import Column, Double, ForeignKey, Index, Table, Text

from data.store.columns import json, metadata, reference, time

# `run_id` is the reward run whose model gave the score. `heads`: of an ensemble, what each of its heads gives.
response_score = Table(
    "response_score",
    metadata,
    Column("response_id", Text, ForeignKey("response.id", ondelete="RESTRICT"), primary_key=True),
    Column("run_id", Text, ForeignKey("run.id", ondelete="RESTRICT"), primary_key=True),
    Column("score", Double, nullable=False),
    json("heads", nullable=True),
)

# The arm is "random" or the name of what selected; the reward runs are those that it went by, in either arm. `scores`:
# of a selection by the instant reward model, which no run keeps, what it made of the task's responses, by position.
task_arm = Table(
    "task_arm",
    metadata,
    Column("task_id", Text, ForeignKey("task.id", ondelete="RESTRICT"), primary_key=True),
    reference("project_id", "project.id"),
    Column("arm", Text, nullable=False),
    json("reward_run_ids"),
    time("created_at"),
    json("scores", nullable=True),
    Index("ix_task_arm_project_id", "project_id"),
)
