"""What the tables are made of: their metadata, with names for every constraint, and the kinds of columns."""

from __future__ import annotations

from sqlalchemy import Column, Double, ForeignKey, MetaData, Text

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(column_0_N_label)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def time(name: str, *, nullable: bool = False) -> Column[float]:
    """Seconds since the epoch."""
    return Column(name, Double, nullable=nullable)


def json(name: str, *, nullable: bool = False) -> Column[str]:
    """JSON that this program wrote."""
    return Column(name, Text, nullable=nullable)


def reference(name: str, target: str, *, nullable: bool = False) -> Column[str]:
    """A foreign key. None cascades."""
    return Column(name, Text, ForeignKey(target, ondelete="RESTRICT"), nullable=nullable)
