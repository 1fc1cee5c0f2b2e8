"""No module in `app/` may be named like another package: Streamlit puts that folder first on the path."""

from __future__ import annotations

import sys
from importlib.metadata import packages_distributions
from pathlib import Path

from data.packages import PACKAGES

ROOT = Path(__file__).resolve().parents[2]


def names_in(folder: Path) -> set[str]:
    """What `import` would find in a folder: modules, and folders, with an `__init__.py` or not."""
    modules = {path.stem for path in folder.glob("*.py")}
    return modules | {path.name for path in folder.iterdir() if path.is_dir()} - {"__pycache__"}


def test_names_in_app_hide_nothing() -> None:
    ours = {name for name, owners in packages_distributions().items() if set(owners) == {"rankloop"}}
    others = set(PACKAGES) | sys.stdlib_module_names | (set(packages_distributions()) - ours)
    found = names_in(ROOT / "app") - {"__init__", "__main__"}
    assert {"cli", "commands", "main", "screens"} <= found
    assert found & others == set()


def test_every_package_folder_has_an_init_file() -> None:
    """setuptools leaves a folder without one out of the wheel, and says nothing."""
    modules = [path for name in PACKAGES for path in (ROOT / name).rglob("*.py")]
    without = {path.parent for path in modules if not (path.parent / "__init__.py").is_file()}
    assert without == set()


def test_version_control_does_not_ignore_the_data_package() -> None:
    """A line `data/` in .gitignore once left the package out of the wheel without a word."""
    lines = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert {line.strip("/* ") for line in lines} & set(PACKAGES) == set()
