"""What is installed: exactly the four packages, every module of them, only named files, and a command that works."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest
from web_server import WebServer, pages_seen, signed_in

from data.files.paths import open_home
from data.packages import PACKAGES
from data.records import Role

ROOT = Path(__file__).resolve().parents[2]
BUILD_FILES = ("pyproject.toml", "README.md", "LICENSE")
LEFT_OUT = {  # for whoever works in a checkout: a template of migrations, and types of JavaScript
    "data/store/migrations/script.py.mako",
    *(path.relative_to(ROOT).as_posix() for path in (ROOT / "app" / "frontend").glob("*.d.ts")),
}
STRAYS = ("data/labels.db", "data/export.jsonl", "training/secret.json", "app/notes.txt", "app/demo/private.csv")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy of the tree in which private files and an old build lie about."""
    copy = tmp_path_factory.mktemp("tree")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in BUILD_FILES:
        shutil.copy(ROOT / name, copy / name)
    for stray in STRAYS:
        (copy / stray).parent.mkdir(exist_ok=True)
        (copy / stray).write_text("private")
    (copy / "tests").mkdir()
    (copy / "tests" / "__init__.py").touch()
    (copy / "scratch").mkdir()
    (copy / "scratch" / "__init__.py").touch()
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(copy)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (built,) = out.glob("*.whl")
    return built


def files_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def files_of_the_tree() -> set[str]:
    """What belongs to the packages in this checkout."""
    paths = (path for name in PACKAGES for path in (ROOT / name).rglob("*") if path.is_file())
    kept = (path for path in paths if "__pycache__" not in path.parts and path.suffix not in (".pyc", ".db"))
    return {path.relative_to(ROOT).as_posix() for path in kept}


def test_the_wheel_holds_the_four_packages_and_nothing_else(wheel: Path) -> None:
    assert {name.split("/", maxsplit=1)[0] for name in files_in(wheel)} == set(PACKAGES)


def test_the_wheel_holds_every_module(wheel: Path) -> None:
    modules = {name for name in files_of_the_tree() if name.endswith(".py")}
    assert {"data/store/migrations/env.py", "data/store/migrations/versions/0001_initial_tables.py"} <= modules
    assert modules - files_in(wheel) == set()


def test_the_wheel_holds_every_file_that_the_packages_need(wheel: Path) -> None:
    assert files_of_the_tree() - files_in(wheel) - LEFT_OUT == set()
    assert any(name.startswith("app/frontend/") for name in files_in(wheel))


def test_the_wheel_holds_no_stray_file(wheel: Path) -> None:
    assert files_in(wheel) & set(STRAYS) == set()
    assert files_in(wheel) - files_of_the_tree() == set()


def test_the_wheel_carries_its_licence_and_its_command(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        texts = {Path(name).name: archive.read(name).decode() for name in archive.namelist() if ".dist-info/" in name}
    assert "Apache License" in texts["LICENSE"]
    assert "rankloop = app.cli:main" in texts["entry_points.txt"]


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel in it, which sees the dependencies of the one that runs the tests."""
    place = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    python = place / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    done = subprocess.run([*command, str(wheel)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (packages,) = place.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return place


def run(installed: Path, *words: str, folder: Path, home: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [str(installed / "bin" / words[0]), *words[1:]], cwd=folder, env=environment | {"RANKLOOP_HOME": str(home)},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder in which packages of the same names lie: somebody's own project."""
    folder = tmp_path / "their project"
    for name in PACKAGES:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text("raise SystemExit('this is somebody else\\'s')\n")
    return folder


def test_the_installed_command_works_from_anywhere(installed: Path, elsewhere: Path, tmp_path: Path) -> None:
    helped = run(installed, "rankloop", "--help", folder=elsewhere, home=tmp_path)
    assert (helped.returncode, helped.stderr) == (0, "")
    assert "usage: rankloop" in helped.stdout
    written = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert run(installed, "rankloop", "--version", folder=elsewhere, home=tmp_path).stdout == f"rankloop {written}\n"
    made = run(installed, "rankloop", "project", "create", "Trial", "--json", folder=elsewhere, home=tmp_path)
    assert made.returncode == 0, made.stderr
    listed = run(installed, "rankloop", "project", "list", "--json", folder=elsewhere, home=tmp_path)
    assert [each["id"] for each in json.loads(listed.stdout)] == [json.loads(made.stdout)["id"]]


def test_the_installed_command_uses_the_installed_packages(installed: Path, tmp_path: Path) -> None:
    code = "import app, data; print(app.__file__); print(data.__file__)"
    found = run(installed, "python", "-c", code, folder=tmp_path, home=tmp_path).stdout.split()
    assert [Path(each).is_relative_to(installed) for each in found] == [True, True]


def test_the_installed_command_serves_from_anywhere(installed: Path, elsewhere: Path, tmp_path: Path) -> None:
    """The packages that a page imports are the installed ones, though Streamlit has the folder of the script on the
    path, and somebody's own lie in the working directory."""
    home = open_home(tmp_path / "home")
    with WebServer(home, program=(str(installed / "bin" / "rankloop"),), folder=elsewhere) as server:
        store = server.store()
        assert {"train", "people"} <= pages_seen(server, signed_in(store, Role.ADMIN))
        store.close()


def test_the_installed_worker_starts_from_anywhere(installed: Path, elsewhere: Path, tmp_path: Path) -> None:
    """As `--wait` and `serve` start it: from a folder whose packages must not be taken for ours."""
    code = (
        "import sys; sys.path.pop(0); from data.files.paths import open_home; "
        "from training.launch.process import start_worker; "
        "home = open_home(); sys.exit(start_worker(home, home.store_url, once=True).wait())"
    )
    done = run(installed, "python", "-c", code, folder=elsewhere, home=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
