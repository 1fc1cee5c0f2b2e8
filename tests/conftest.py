"""What every test stands on: a store on a real database, a home folder, a clock, and guards around each test.

`store` runs a test twice, on SQLite and on PostgreSQL; `sqlite_store` once. A test that asks for `clock` too gets a
store that goes by that clock; otherwise the store goes by its database's clock, as in the product.
"""

from __future__ import annotations

import functools
import gc
import os
import shutil
import socket
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import sqlalchemy as sa
from hypothesis import settings

_KEPT = ("RANKLOOP_FORBID_SKIPS", "RANKLOOP_TEST_DATA")
for _name in [name for name in os.environ if name.startswith(("RANKLOOP_", "HF_")) and name not in _KEPT]:
    del os.environ[_name]
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TOKENIZERS_PARALLELISM": "false"}
os.environ.setdefault("OMP_NUM_THREADS", "1")  # of torch too, here and in the runs that tests make

from kept_results import keep_result  # noqa: E402
from postgres_server import PostgresServer, start_postgres  # noqa: E402

from data.files.paths import Home, open_home  # noqa: E402
from data.store import Store, open_store  # noqa: E402

# The same examples in every run; `pytest --hypothesis-profile explore` looks for new ones.
settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=500)
settings.load_profile("same")


_BEGAN = time.monotonic()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--keep-result", type=Path, metavar="PAGE", help="add what was found to the table of this page")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """With `--keep-result`, add a row to that page; the process that gathers the results does it, once."""
    if (page := config.getoption("keep_result")) is not None and not hasattr(config, "workerinput"):
        keep_result(page, config.option.markexpr or "all", terminalreporter.stats, time.monotonic() - _BEGAN)


_COMPUTE = ("torch", "numpy", "from rig import", "approx(")


@functools.cache
def _computes(file: Path) -> bool:
    source = file.read_text(encoding="utf-8")
    return any(word in source for word in _COMPUTE)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests of files that compute are marked `numeric`.

    Where processes share the tests, file by file, the files that take longest come first, so that the processes end at
    about the same time."""
    for item in items:
        if _computes(item.path):
            item.add_marker("numeric")
    if hasattr(config, "workerinput"):
        n_tests = Counter(item.path for item in items)
        seconds = {path: _seconds(path, n) for path, n in n_tests.items()}
        items.sort(key=lambda item: (-seconds[item.path], str(item.path)))


# What a test takes on the mean, by folder; and files of few tests that take long. Seconds, on two cores.
_OF_A_TEST = {"learning": 15.0, "browser": 3.5, "integration": 1.5, "screens": 1.0}
_OF_A_FILE = {
    "test_accelerate_launch": 80, "test_adjudication": 25, "test_annotator_checks": 50, "test_blind_comparison": 25,
    "test_cli_selection": 35, "test_finetune_runs": 120, "test_frontier": 25, "test_kill_and_resume": 170,
    "test_pages_at_once": 30, "test_preflight": 100, "test_ranking_journeys": 60, "test_research": 40,
    "test_reward_processes": 90, "test_reward_run": 160, "test_run_overlay": 20, "test_sign_in": 30,
    "test_trainer_eval": 90, "test_wheel": 25, "test_whole_loop": 60,
}  # fmt: skip


def _seconds(path: Path, n_tests: int) -> float:
    return max(_OF_A_FILE.get(path.stem, 0), n_tests * _OF_A_TEST.get(path.parent.name, 0.2))


@pytest.fixture(scope="module", autouse=True)
def _little_to_collect() -> None:
    """What is there before a file, such as imported libraries, is left out of garbage collections from then on.

    Trainers collect after each run, and Python by itself ever so often: with a gigabyte of modules to walk through,
    that took more time than the runs.
    """
    gc.collect()
    gc.freeze()


class Clock:
    """A clock that stands still until it is told otherwise."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home folder; the SQLite store of `store` and `sqlite_store` lies where the home folder wants it."""
    return open_home(tmp_path)


@pytest.fixture(scope="session")
def _sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("template") / "rankloop.db"
    open_store(f"sqlite:///{file}").close()
    return file


@pytest.fixture(scope="session")
def _postgres() -> Iterator[PostgresServer]:
    with start_postgres() as server:
        server.create("template_rankloop")
        open_store(server.url("template_rankloop")).close()
        yield server


def _clock_of(request: pytest.FixtureRequest) -> Clock | None:
    return request.getfixturevalue("clock") if "clock" in request.fixturenames else None


@pytest.fixture
def sqlite_store(request: pytest.FixtureRequest, tmp_path: Path, _sqlite_template: Path) -> Iterator[Store]:
    """A fresh store in a SQLite file."""
    file = tmp_path / "rankloop.db"
    shutil.copyfile(_sqlite_template, file)
    store = open_store(f"sqlite:///{file}", _clock_of(request))
    yield store
    store.close()


@pytest.fixture
def postgres_store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """A fresh store in a database of the session's PostgreSQL server."""
    server: PostgresServer = request.getfixturevalue("_postgres")
    name = server.create_from("template_rankloop")
    store = open_store(server.url(name), _clock_of(request))
    yield store
    store.close()
    server.drop(name)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def store(request: pytest.FixtureRequest) -> Store:
    """A fresh store, on each database in turn."""
    found: Store = request.getfixturevalue(f"{request.param}_store")
    return found


@pytest.fixture(autouse=True)
def _torch_threads() -> None:
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(int(os.environ["OMP_NUM_THREADS"]))


_FLOAT64 = Path(__file__).parent / "float64"


@pytest.fixture(scope="module", autouse=True)
def _module_in_float64(request: pytest.FixtureRequest) -> Iterator[None]:
    """The tests and fixtures of a file that is marked `float64` compute in it, and so do their child processes."""
    if request.node.get_closest_marker("float64") is None:
        yield
        return
    from float64 import everywhere

    with pytest.MonkeyPatch.context() as patch, everywhere.float64():
        patch.setenv("PYTHONPATH", str(_FLOAT64), prepend=os.pathsep)
        yield


@pytest.fixture(autouse=True)
def _test_in_float32(request: pytest.FixtureRequest, _module_in_float64: None) -> Iterator[None]:
    """In such a file, a test that is marked `float32` does not. Its models are its own: see `float64.everywhere`."""
    if request.node.get_closest_marker("float32") is None:
        yield
        return
    from float64 import everywhere

    with pytest.MonkeyPatch.context() as patch, everywhere.float32():
        patch.delenv("PYTHONPATH")
        yield


class _NetworkUse(OSError):
    """Raised to whoever opens a connection to another machine; the test fails even if that is caught."""


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Only this machine can be reached from a test."""
    tried: list[str] = []
    local = {"localhost", "::1", "0.0.0.0", "", None}

    def is_local(address: object) -> bool:
        host = address[0] if isinstance(address, tuple) else None
        return host in local or str(host).startswith("127.")

    def guard(original: str) -> None:
        inner = getattr(socket.socket, original)

        def connect(self: socket.socket, address: object) -> object:
            if self.family != socket.AF_UNIX and not is_local(address):
                if self.type != socket.SOCK_DGRAM:  # a datagram socket that connects sends nothing
                    tried.append(str(address))
                raise _NetworkUse(f"tests must not reach {address!r}")
            return inner(self, address)

        monkeypatch.setattr(socket.socket, original, connect)

    guard("connect")
    guard("connect_ex")
    yield
    if tried:
        pytest.fail(f"the test tried to reach {', '.join(tried)}")


@pytest.fixture(autouse=True)
def _leaves_nothing_behind() -> Iterator[None]:
    """Fail a test that leaves a child process, or a transaction, open."""
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    begun: dict[int, str] = {}
    lock = threading.Lock()

    def on_begin(connection: sa.Connection) -> None:
        with lock:
            begun[id(connection)] = "".join(traceback.format_stack(limit=12)[:-1])

    def on_end(connection: sa.Connection) -> None:
        with lock:
            begun.pop(id(connection), None)

    listeners = (("begin", on_begin), ("commit", on_end), ("rollback", on_end))
    for name, listener in listeners:
        sa.event.listen(sa.Engine, name, listener)
    yield
    for name, listener in listeners:
        sa.event.remove(sa.Engine, name, listener)
    left = _children_left(before)
    if left:
        pytest.fail(f"the test left child processes: {left}")
    if begun:
        pytest.fail(f"the test left a transaction open, begun at\n{next(iter(begun.values()))}")


def _children_left(before: set[int], patience_s: float = 2.0) -> list[str]:
    """Children that are still there after a moment, which are then killed. Python's own helper does not count."""
    end = time.monotonic() + patience_s
    while True:
        left = [child for child in psutil.Process().children(recursive=True) if child.pid not in before]
        left = [child for child in left if _matters(child)]
        if not left or time.monotonic() > end:
            break
        time.sleep(0.05)
    words = []
    for child in left:
        words.append(f"{child.pid} {child.name()}")
        child.kill()
    return words


def _matters(child: psutil.Process) -> bool:
    try:
        return child.status() != psutil.STATUS_ZOMBIE and "multiprocessing.resource_tracker" not in " ".join(
            child.cmdline()
        )
    except psutil.NoSuchProcess:
        return False
