"""Dates as chat templates and frozen data name them."""

from __future__ import annotations

import datetime


def utc_date(seconds: float) -> datetime.date:
    """The day, in UTC, of a time in seconds since the epoch."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).date()
