"""The tables of what a run writes beside its row: events, metrics, texts to look at, checkpoints."""

from __future__ import annotations

from sqlalchemy import Column, Double, ForeignKey, Integer, Table, Text

from data.store.columns import json, metadata, time

run_event = Table(
    "run_event",
    metadata,
    Column("run_id", Text, ForeignKey("run.id", ondelete="RESTRICT"), primary_key=True),
    Column("seq", Integer, primary_key=True),
    time("at"),
    Column("kind", Text, nullable=False),
    json("detail"),
)

run_metric = Table(
    "run_metric",
    metadata,
    Column("run_id", Text, ForeignKey("run.id", ondelete="RESTRICT"), primary_key=True),
    Column("name", Text, primary_key=True),
    Column("step", Integer, primary_key=True),
    Column("value", Double),
)

# Texts that a run wants people to see: samples of a PPO iteration, both sides of a comparison.
run_sample = Table(
    "run_sample",
    metadata,
    Column("run_id", Text, ForeignKey("run.id", ondelete="RESTRICT"), primary_key=True),
    Column("step", Integer, primary_key=True),
    Column("position", Integer, primary_key=True),
    json("body"),
)

checkpoint = Table(
    "checkpoint",
    metadata,
    Column("run_id", Text, ForeignKey("run.id", ondelete="RESTRICT"), primary_key=True),
    Column("step", Integer, primary_key=True),
    Column("folder", Text, nullable=False),
    Column("epoch", Integer, nullable=False),
    time("created_at"),
)
