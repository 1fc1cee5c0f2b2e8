"""The start-up check of every process: the four packages must lie beside each other.

Their names are plain words, and another distribution, or a folder that happens to come first on the path, may have the
same ones. Standard library only.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from data.errors import ProjectError

PACKAGES = ("app", "labeling", "training", "data")


class PackageShadowed(ProjectError):
    """Python finds somebody else's package in the place of one of ours."""


def check_packages() -> None:
    """Raises PackageShadowed that names the package and what was found in its place."""
    root = Path(__file__).resolve().parents[1]
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        places = list(spec.submodule_search_locations or []) if spec else []
        folder = Path(places[0]).resolve() if places else None
        if folder != root / name:
            raise PackageShadowed(
                f"package {name!r} must come from {root / name}, but Python finds {folder or 'nothing'}; "
                "install rankloop in an environment of its own, or start it from another folder"
            )
