"""Every way to queue a run at a browser, with hostile paths; and that no screen knows another way."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from factories import make_finished_run, make_person, make_project, make_snapshot, make_task

from app.actions import context
from app.actions import runs as web_runs
from data.errors import InvalidInput
from data.fields import describe, from_dict
from data.files.paths import HOME_VARIABLE, Home
from data.files.readable import ROOTS_VARIABLE
from data.labels.roles import OPERATOR
from data.records import Role, Run, RunKind
from data.runs.state import list_runs
from data.store import Store
from data.store.tables import response
from training.launch import count, find
from training.launch import queue as launch
from training.launch.kinds import CONFIGS
from training.launch.settle import FILE_FIELDS, MODEL_FIELDS

ROOT = Path(__file__).resolve().parents[2]
ELSEWHERE = {"models", "second_reward_run", "beside", "prompt"}  # names of runs, and a text
PATHS = [
    (kind, info.name) for kind, config in CONFIGS.items() for info in describe(config)
    if info.name in (*FILE_FIELDS, *MODEL_FIELDS)
]  # fmt: skip


def test_every_field_that_may_hold_a_path_is_known() -> None:
    """A new field for a text is a path or is not: whoever adds it says so here."""
    fields = [info for config in CONFIGS.values() for info in describe(config)]
    texts = {info.name for info in fields if info.type is str and not info.choices}
    assert texts == {*FILE_FIELDS, *MODEL_FIELDS, *ELSEWHERE}
    assert {kind for kind, _ in PATHS} == set(CONFIGS)


def test_screens_queue_runs_within_the_readable_folders_alone() -> None:
    """What a screen takes from `training.launch` queues nothing; nor does a screen make a run itself."""
    taken: set[str] = set()
    for path in [*(ROOT / "app" / "screens").rglob("*.py"), *(ROOT / "app" / "widgets").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith(("training.launch.", "data.runs.")):
                taken |= {alias.name for alias in node.names}
            assert not (isinstance(node, ast.ImportFrom) and node.module in ("training", "training.launch")), path
            assert not (isinstance(node, ast.Import) and any("training" in each.name for each in node.names)), path
    offered = {name for module in (count, find, launch) for name, each in vars(module).items() if callable(each)}
    confined = {name for name in vars(web_runs) if name in offered}
    assert {"queue_run", "queue_seeds", "newest_check", "count_reward_data"} <= confined
    assert "best_policies" in taken
    assert taken & {"queue_run", "queue_seeds", "newest_check", "count_reward_data", "create_run"} == set()


@pytest.fixture
def served(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A server that may read its home and one root, and beside them what it may not. Returns what is above all."""
    above = home.root
    for name in ("served", "root", "root/model", "private/model"):
        (above / name).mkdir(parents=True)
    for name in ("root", "private"):
        (above / name / "p.jsonl").write_text('{"prompt": "hi", "responses": ["a"]}\n{"text": "hi"}\n')
    (above / "root" / "way").symlink_to(above / "private")
    monkeypatch.setenv(HOME_VARIABLE, str(above / "served"))
    monkeypatch.setenv(ROOTS_VARIABLE, str(above / "root"))
    yield above
    context.opened_home.clear()


@pytest.fixture
def links(sqlite_store: Store, home: Home, served: Path) -> dict[str, str]:
    """What the runs need."""
    assert served
    snapshot = make_snapshot(sqlite_store, home)
    reward = make_finished_run(sqlite_store, RunKind.REWARD, [])
    return {"snapshot_id": snapshot.id, "reward_run_id": reward.id}


def queue(store: Store, kind: RunKind, field: str, value: str, links: dict[str, str]) -> Run:
    words: dict[str, Any] = {"ptx_coef": 0.1} if field == "ptx_file" else {}
    words |= {"model_a": "demo", "model_b": "demo"} if kind is RunKind.COMPARE else {}
    config: Any = from_dict(CONFIGS[kind], words | {field: value})
    return web_runs.queue_run(store, make_person(store, Role.RESEARCHER), kind, config, **links)


HOSTILE = [
    "{0}/private/p.jsonl", "{0}/private/nothing", "{0}/private/model", "{0}/root/way/p.jsonl", "{0}/root/way/model",
    "{0}/served/../private/p.jsonl", "../../../../../../etc/passwd", "/etc/passwd", "/etc/nothing", "/", "~", "~root",
    "~nobody-has-this-name", "file:///etc/passwd", "/" + "x/" * 5_000, "x/" * 5_000, "\x00/",
]  # fmt: skip


def test_no_form_reaches_outside(sqlite_store: Store, served: Path, links: dict[str, str]) -> None:
    with sqlite_store.read() as tx:
        before = len(list_runs(tx))
    for (kind, field), written in itertools.product(PATHS, HOSTILE):
        value = written.format(served)
        with pytest.raises(InvalidInput) as caught:
            queue(sqlite_store, kind, field, value, links)
        shown, _, rest = str(caught.value).partition(": lies outside the folders that this server may read: ")
        assert rest.startswith(f"{served / 'served'}, {served / 'root'}. Put it into one of them"), (kind, field, shown)
        assert shown == f"{field} = {value if len(value) <= 200 else value[:200] + '...'!r}"
    with sqlite_store.read() as tx:
        assert len(list_runs(tx)) == before, "nothing is queued"


def test_nor_does_what_is_asked_before_a_run(sqlite_store: Store, served: Path, links: dict[str, str]) -> None:
    private = {"model": str(served / "private" / "model")}
    with pytest.raises(InvalidInput, match="lies outside the folders"):
        web_runs.newest_check(sqlite_store, from_dict(CONFIGS[RunKind.PPO], private), **links)
    config: Any = from_dict(CONFIGS[RunKind.REWARD], private)
    with pytest.raises(InvalidInput, match="lies outside the folders"):
        web_runs.count_reward_data(sqlite_store, Home(served), config, links["snapshot_id"])


def test_nor_does_a_model_that_an_import_names(sqlite_store: Store, served: Path) -> None:
    """An empty field is filled with what the responses say they are from; a file may say anything."""
    project = make_project(sqlite_store)
    make_task(sqlite_store, project)
    with sqlite_store.begin() as tx:
        tx.execute(sa.update(response).values(model=str(served / "private" / "model")))
    with pytest.raises(InvalidInput, match="lies outside the folders"):
        queue(sqlite_store, RunKind.FEATURES, "model", "", {"project_id": project.id})


def test_what_lies_inside_is_stored_as_the_place_it_is(
    sqlite_store: Store, served: Path, links: dict[str, str]
) -> None:
    """A link that is put elsewhere after the run was queued leads the worker nowhere else."""
    for kind, field in PATHS:
        name = "p.jsonl" if field in FILE_FIELDS else "model"
        link = served / "root" / "link"
        link.symlink_to(served / "root" / name)
        run = queue(sqlite_store, kind, field, str(link), links)
        assert run.config[field] == str(served / "root" / name)
        with pytest.raises(InvalidInput, match=f"{field} = '.*nothing.jsonl': .*there is no such f"):
            queue(sqlite_store, kind, field, str(served / "root" / "nothing.jsonl"), links)
        link.unlink()


def test_hub_ids_are_never_looked_for_on_disk(
    sqlite_store: Store, served: Path, links: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(served)
    for kind, field in PATHS:
        if field in MODEL_FIELDS:
            assert queue(sqlite_store, kind, field, "private/model", links).config[field] == "private/model"


def test_a_model_that_a_run_from_a_shell_has_named_may_be_used_again(
    sqlite_store: Store, served: Path, links: dict[str, str]
) -> None:
    """The empty field stands for it, and the table of baselines starts from it."""
    private = str(served / "private" / "model")
    launch.queue_run(
        sqlite_store, OPERATOR, RunKind.SFT, CONFIGS[RunKind.SFT](model=private), snapshot_id=links["snapshot_id"]
    )
    assert queue(sqlite_store, RunKind.BASELINES, "model", private, links).config["model"] == private
    with pytest.raises(InvalidInput, match="lies outside"):
        queue(sqlite_store, RunKind.BASELINES, "model", f"{private}/", links)


def test_the_command_line_may_name_anything(
    sqlite_store: Store, served: Path, links: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a path from its own working folder on, which is stored whole; what is not there is refused at once."""
    monkeypatch.setattr(web_runs, "queue_run", launch.queue_run)
    monkeypatch.chdir(served)
    for kind, field in PATHS:
        name = "private/p.jsonl" if field in FILE_FIELDS else "private/model"
        assert queue(sqlite_store, kind, field, f"./{name}", links).config[field] == str(served / name)
        for wrong in ("./nothing.jsonl", "~nobody-has-this-name/x.jsonl"):
            with pytest.raises(InvalidInput, match="there is no such f"):
                queue(sqlite_store, kind, field, wrong, links)
