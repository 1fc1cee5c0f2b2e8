"""Whatever a screen can write, it writes in somebody's name, and the store is asked for their role as it does so.

The use cases are found in the source, by following calls from the screens; each is called with every role, with an
account that was closed or demoted after it was read, and with one that is gone. What is refused changes nothing.
"""

from __future__ import annotations

import ast
import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import factories as make
import pytest
from call_graph import Function, calls_of_method, functions, reachable

import app.actions.instant_selection
import app.actions.runs
import app.demo.project
import labeling.files.imports
import labeling.projects
import labeling.review.adjudication
import labeling.snapshot.freeze
import labeling.work.alarms
import labeling.work.gold
import labeling.work.session
import training.launch.queue
from app.actions import people
from data.errors import InvalidInput, NotAllowed
from data.files.paths import Home, open_home
from data.labels.gold import set_gold
from data.labels.pauses import pause_annotator
from data.labels.people import disable_person, set_role
from data.records import Person, Role, RunKind
from data.runs.state import request_cancel
from data.store import Store, open_store
from labeling.review import comparison, selection
from labeling.review.selection import Opinion, SelectionConfig
from labeling.snapshot.freeze import SnapshotConfig
from training.launch.config import RewardConfig, SampleConfig

FUNCTIONS = functions()
SCREENS = ("app.screens", "app.widgets")
ROOTS = {
    name for name, each in FUNCTIONS.items() if each.module.startswith((*SCREENS, "app.main", "app.actions.context"))
}
REACHED = reachable(FUNCTIONS, ROOTS)
# Writes of the program itself, in nobody's name: what follows from an answer that was let in, or from the clock.
NOBODYS = {"data.labels.roles.acting", "labeling.work.alarms.pause_if_alarmed", "training.launch.queue.note_lost_runs"}


def asks(name: str) -> bool:
    return "data.labels.roles.require" in reachable(FUNCTIONS, {name})


USE_CASES = {
    name
    for name in REACHED
    if asks(name)
    and not FUNCTIONS[name].module.startswith((*SCREENS, "app.main", "data.labels.roles"))
    and FUNCTIONS[name].is_public
    and not isinstance(FUNCTIONS[name].node, ast.Module)
}


@dataclass(frozen=True)
class World:
    """Something of everything that can be changed, and everybody who might try. `stale`: as they were read before."""

    file: Path
    home: Home
    ids: dict[str, str]
    people: dict[str, Person]
    upload: Path


@dataclass(frozen=True)
class UseCase:
    """The least role that may, how it is called, and what an allowed call raises where this world has too little."""

    role: Role
    call: Callable[[Store, Person, World], object]
    raises: type[Exception] | None = None
    writes: bool = True


def submission(world: World) -> dict[str, object]:
    return {
        "submission_key": "a good key",
        "task_id": world.ids["task"],
        "display_order": [0, 1, 2],
        "ranks": [1, 2, 3],
    }


def draft(world: World) -> dict[str, object]:
    return {"task_id": world.ids["task"], "at": 1.0, "ranks": [1, None, None]}


def decision(store: Store, who: Person, world: World) -> object:
    case = labeling.review.adjudication.open_case(store, world.ids["project"], world.ids["ranked"])
    return labeling.review.adjudication.decide(
        store, who, world.ids["project"], world.ids["ranked"], reason="so", submission_key="a good key", seen=case.seen,
        ranks=[1, 2, 3],
    )  # fmt: skip


def opinions(store: Store, who: Person, world: World) -> object:
    found = {world.ids["task"]: Opinion((0.0, 1.0, 2.0), ((0.0, 1.0, 2.0), (2.0, 1.0, 0.0)))}
    return selection.apply_opinions(store, who, world.ids["project"], found, SelectionConfig())


def imported(name: str) -> UseCase:
    function = getattr(labeling.files.imports, name)
    return UseCase(Role.RESEARCHER, lambda store, who, w: function(store, who, w.ids["project"], w.upload))


CALLS = {
    "app.demo.project.create_demo_project": UseCase(
        Role.RESEARCHER, lambda store, who, _: app.demo.project.create_demo_project(store, who)
    ),
    "app.actions.instant_selection.select_by_instant": UseCase(
        Role.RESEARCHER,
        lambda store, who, w: app.actions.instant_selection.select_by_instant(
            store, who, w.home, w.ids["project"], SelectionConfig()
        ),
        raises=InvalidInput,  # nothing was read by a frozen model
    ),
    "app.actions.people.add": UseCase(Role.ADMIN, lambda store, who, _: people.add(store, who, "Eve", Role.ADMIN)),
    "app.actions.people.new_link": UseCase(Role.ADMIN, lambda store, who, w: people.new_link(store, who, w.ids["ann"])),
    "app.actions.people.change_role": UseCase(
        Role.ADMIN, lambda store, who, w: people.change_role(store, who, w.ids["ann"], Role.ADMIN)
    ),
    "app.actions.people.disable": UseCase(Role.ADMIN, lambda store, who, w: people.disable(store, who, w.ids["ann"])),
    "labeling.review.adjudication.decide": UseCase(Role.RESEARCHER, decision),
    "labeling.work.alarms.lift": UseCase(
        Role.RESEARCHER, lambda store, who, w: labeling.work.alarms.lift(store, who, w.ids["project"], w.ids["ann"])
    ),
    "labeling.review.comparison.create_comparison": UseCase(
        Role.RESEARCHER,
        lambda store, who, w: comparison.create_comparison(store, who, w.home, [w.ids["compared"]], "blind"),
    ),
    "labeling.work.gold.make_gold": UseCase(
        Role.RESEARCHER, lambda store, who, w: labeling.work.gold.make_gold(store, who, w.ids["ranked"])
    ),
    "labeling.work.gold.unmake_gold": UseCase(
        Role.RESEARCHER, lambda store, who, w: labeling.work.gold.unmake_gold(store, who, w.ids["gold"])
    ),
    "labeling.files.imports.import_prompts": imported("import_prompts"),
    "labeling.files.imports.import_responses": imported("import_responses"),
    "labeling.files.imports.import_rankings": imported("import_rankings"),
    "labeling.projects.new_project": UseCase(
        Role.RESEARCHER, lambda store, who, _: labeling.projects.new_project(store, who, "mine")
    ),
    "labeling.projects.change_project": UseCase(
        Role.RESEARCHER,
        lambda store, who, w: labeling.projects.change_project(store, who, w.ids["project"], guidelines="Be rude."),
    ),
    "labeling.review.selection.apply_opinions": UseCase(Role.RESEARCHER, opinions),
    "labeling.review.selection.apply_selection": UseCase(
        Role.RESEARCHER,
        lambda store, who, w: selection.apply_selection(store, who, w.ids["project"], [], SelectionConfig()),
        raises=InvalidInput,  # no reward run
    ),
    "labeling.work.session.next_work": UseCase(
        Role.ANNOTATOR, lambda store, who, w: labeling.work.session.next_work(store, who, w.ids["project"])
    ),
    "labeling.work.session.keep_draft": UseCase(
        Role.ANNOTATOR, lambda store, who, w: labeling.work.session.keep_draft(store, who, draft(w))
    ),
    "labeling.work.session.submit": UseCase(
        Role.ANNOTATOR, lambda store, who, w: labeling.work.session.submit(store, who, submission(w))
    ),
    "labeling.work.session.history": UseCase(
        Role.ANNOTATOR, lambda store, who, w: labeling.work.session.history(store, who, w.ids["project"]), writes=False
    ),
    "labeling.work.session.reopen": UseCase(
        Role.ANNOTATOR, lambda store, who, w: labeling.work.session.reopen(store, who, w.ids["ranked"]), writes=False
    ),
    "labeling.snapshot.freeze.freeze_snapshot": UseCase(
        Role.RESEARCHER,
        lambda store, who, w: labeling.snapshot.freeze.freeze_snapshot(
            store, who, w.home, w.ids["project"], SnapshotConfig(eval_share=0)
        ),
    ),
    "training.launch.queue.queue_run": UseCase(
        Role.RESEARCHER,
        lambda store, who, w: training.launch.queue.queue_run(
            store, who, RunKind.SAMPLE, SampleConfig(), project_id=w.ids["project"]
        ),
    ),
    "training.launch.queue.queue_seeds": UseCase(
        Role.RESEARCHER,
        lambda store, who, w: training.launch.queue.queue_seeds(
            store, who, RunKind.REWARD, RewardConfig(), 2, snapshot_id=w.ids["snapshot"]
        ),
    ),
    "app.actions.runs.queue_run": UseCase(
        Role.RESEARCHER,
        lambda store, who, w: app.actions.runs.queue_run(
            store, who, RunKind.SAMPLE, SampleConfig(), project_id=w.ids["project"]
        ),
    ),
    "app.actions.runs.queue_seeds": UseCase(
        Role.RESEARCHER,
        lambda store, who, w: app.actions.runs.queue_seeds(
            store, who, RunKind.REWARD, RewardConfig(), 2, snapshot_id=w.ids["snapshot"]
        ),
    ),
    "training.launch.queue.cancel": UseCase(
        Role.RESEARCHER, lambda store, who, w: training.launch.queue.cancel(store, who, w.ids["queued"])
    ),
    "training.launch.queue.resume": UseCase(
        Role.RESEARCHER, lambda store, who, w: training.launch.queue.resume(store, who, w.ids["cancelled"])
    ),
}
# How somebody may stand in the store, and the role that they have there; None where they can do nothing.
STANDING: dict[str, Role | None] = {
    **{role.value: role for role in Role},
    "an admin whose account was closed since": None,
    "an admin who is an annotator since": Role.ANNOTATOR,
    "an admin whom the store does not know": None,
}


def test_every_use_case_that_a_screen_reaches_is_called_here() -> None:
    assert sorted(CALLS) == sorted(USE_CASES)


def test_no_screen_reaches_a_write_in_nobodys_name() -> None:
    """A screen, and all that it calls, opens a transaction that writes by `acting` alone, and never as the operator."""
    open_the_store = ("data.store.engine", "data.store.migrate")
    written = {name for name in REACHED if not FUNCTIONS[name].module.startswith(open_the_store)}
    bare = {name for name in written if calls_of_method(FUNCTIONS[name], "begin")}
    assert bare == NOBODYS
    assert [name for name in REACHED if "data.labels.roles.OPERATOR" in FUNCTIONS[name].refers_to] == []
    own = [
        name for name in ROOTS if FUNCTIONS[name].refers_to & {"data.labels.roles.acting", "data.labels.roles.require"}
    ]
    assert own == [], "a screen calls a use case, which says what role it takes"


def test_callbacks_that_change_something_ask_who_is_signed_in() -> None:
    """A callback runs before its page has asked, and its arguments may be those of an older run."""
    found = {name for each in FUNCTIONS.values() if each.name in ROOTS for name in callbacks(each)}
    assert "app.screens.people._disable" in found
    changing = {name for name in found if USE_CASES & reachable(FUNCTIONS, {name})}
    assert changing
    asked = {"app.actions.context.signed_in", "app.actions.context.find_person"}
    assert [name for name in changing if not asked & reachable(FUNCTIONS, {name})] == []


def test_every_page_fragment_and_dialog_asks_who_looks() -> None:
    """Each of these can be run alone over an open stream."""
    pages = {f"{each.module}.render" for each in FUNCTIONS.values() if each.module.startswith("app.screens.")}
    parts = {name for each in FUNCTIONS.values() if each.name in ROOTS for name in run_alone(each)}
    assert {"app.widgets.runs.status._draw", "app.screens.projects._new_project"} <= parts
    silent = [name for name in pages | parts if "app.actions.context.person" not in reachable(FUNCTIONS, {name})]
    assert silent == []


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    home = open_home(tmp_path_factory.mktemp("world"))
    file, upload = home.root / "rankloop.db", home.root / "rows.jsonl"
    upload.write_text(json.dumps({"prompt": "new?", "responses": ["a", "b"], "ranks": [1, 2], "annotator": "x"}))
    store = open_store(f"sqlite:///{file}")
    project = make.make_project(store, k=3, overlap=9)
    task, ranked, gold = (make.make_task(store, project) for _ in range(3))
    people = {role.value: make.make_person(store, role) for role in Role}
    ann, admins = make.make_person(store), [make.make_person(store, Role.ADMIN) for _ in range(3)]
    for person in [*people.values(), admins[1]]:
        make.make_ranking(store, ranked, person, [1, 2, 3])
    compared = make_compared(store)
    cancelled, queued = make.make_run(store), make.make_run(store)
    snapshot = make.make_snapshot(store, home)
    with store.begin() as tx:
        set_gold(tx, gold.id, (1, 2, 3))
        pause_annotator(tx, project.id, ann.id, "gold", {"value": 0.1, "threshold": 0.5, "n": 9})
        request_cancel(tx, cancelled.id)
        disable_person(tx, admins[0].id)
        set_role(tx, admins[1].id, Role.ANNOTATOR)
    people |= dict(zip(list(STANDING)[len(Role) :], [*admins[:2], replace(admins[2], id="nobody")], strict=True))
    store.close()
    ids = {
        "project": project.id, "task": task.id, "ranked": ranked.id, "gold": gold.id, "ann": ann.id,
        "cancelled": cancelled.id, "queued": queued.id, "compared": compared, "snapshot": snapshot.id,
    }  # fmt: skip
    return World(file, home, ids, people, upload)


@pytest.fixture
def fresh(world: World, tmp_path: Path) -> Iterator[Callable[[], Store]]:
    """Opens a copy of the world's store, as it was."""
    opened: list[Store] = []

    def copy() -> Store:
        target = tmp_path / f"copy-{len(opened)}.db"
        shutil.copyfile(world.file, target)
        opened.append(open_store(f"sqlite:///{target}", migrate=False))
        return opened[-1]

    yield copy
    for store in opened:
        store.close()


@pytest.mark.parametrize("name", sorted(CALLS))
def test_a_use_case_asks_for_the_role_as_it_writes(name: str, world: World, fresh: Callable[[], Store]) -> None:
    use = CALLS[name]
    refused = fresh()
    before = content(refused)
    for standing, role in STANDING.items():
        who = world.people[standing]
        if role is None or not role.covers(use.role):
            with pytest.raises(NotAllowed):
                use.call(refused, who, world)
            assert content(refused) == before, standing
        else:
            store = fresh()
            if use.raises is None:
                use.call(store, who, world)
                assert (content(store) != before) == use.writes, standing
            else:
                with pytest.raises(use.raises):
                    use.call(store, who, world)


def content(store: Store) -> list[str]:
    """All that the store holds."""
    assert store.file is not None
    with sqlite3.connect(store.file) as connection:
        lines = list(connection.iterdump())
    connection.close()
    return lines


def make_compared(store: Store) -> str:
    asked = {"messages": [{"role": "user", "content": "p"}], "prompt": "p", "revision": "x"}
    rows = [asked | {"side": side, "model": side, "response": f"by {side}"} for side in "ab"]
    return make.make_finished_run(store, RunKind.COMPARE, rows, make.make_project(store)).id


def callbacks(function: Function) -> set[str]:
    """The functions of a screen's module that it hands to a widget to call."""
    given = {
        keyword.value.id
        for node in ast.walk(function.node)
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg and keyword.arg.startswith("on_") and isinstance(keyword.value, ast.Name)
    }
    return {f"{function.module}.{name}" for name in given} & set(FUNCTIONS)


def run_alone(function: Function) -> set[str]:
    """The functions that it makes a fragment or a dialog: by a call, or itself by its decorator."""
    kinds = ("fragment", "dialog")
    if isinstance(function.node, ast.FunctionDef):
        marks = [each.func if isinstance(each, ast.Call) else each for each in function.node.decorator_list]
        if any(isinstance(each, ast.Attribute) and each.attr in kinds for each in marks):
            return {function.name}
    given = {
        node.args[0].id
        for node in ast.walk(function.node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in kinds
        if node.args and isinstance(node.args[0], ast.Name)
    }
    return {f"{function.module}.{name}" for name in given}
