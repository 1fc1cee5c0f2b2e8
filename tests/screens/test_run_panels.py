"""The table of what a run's page shows: something for every kind, and nothing twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from factories import make_project
from run_makers import queued

from app.widgets.run_page.panels import NEXT_STEPS, RESULTS, TABS, Panel, panels_of
from data.records import Run, RunKind, RunStatus
from data.store import Store

COMMON = ["Curves", "Samples", "Events", "Configuration", "Lineage", "Log"]


@pytest.mark.parametrize("kind", list(RunKind))
@pytest.mark.parametrize("rows", [NEXT_STEPS, RESULTS, TABS])
def test_no_kind_has_two_panels_of_one_name(kind: RunKind, rows: Sequence[Panel]) -> None:
    names = Counter(row.name for row in rows if kind in row.kinds)
    assert [name for name, n in names.items() if n > 1] == []


@pytest.mark.parametrize("kind", list(RunKind))
@pytest.mark.usefixtures("home")
def test_every_kind_has_the_common_tabs_in_their_order_and_a_result(kind: RunKind, sqlite_store: Store) -> None:
    run: Run = queued(sqlite_store, kind, make_project(sqlite_store))
    tabs = list(panels_of([row for row in TABS if row.name in COMMON], run))
    assert tabs == COMMON
    assert len([row for row in RESULTS if kind in row.kinds and row.name in ("Baselines", "Check", "Result")]) == 1
    assert run.status is RunStatus.QUEUED
