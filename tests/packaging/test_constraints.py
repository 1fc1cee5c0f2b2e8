"""constraints.txt pins what pyproject.toml asks for, in a form that any machine can install."""

from __future__ import annotations

import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]


def pins() -> dict[str, Version]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(name): Version(version) for name, version in pairs}


def test_every_dependency_is_pinned_to_a_version_that_it_allows() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [Requirement(text) for text in project["dependencies"] + project["optional-dependencies"]["dev"]]
    pinned = pins()
    assert {each.name for each in wanted if canonicalize_name(each.name) not in pinned} == set()
    wrong = [str(each) for each in wanted if pinned[canonicalize_name(each.name)] not in each.specifier]
    assert wrong == []


def test_no_version_is_bound_to_one_kind_of_machine() -> None:
    assert [f"{name}=={version}" for name, version in pins().items() if version.local] == []
