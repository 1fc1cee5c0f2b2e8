"""Which functions refer to which others in our packages, read from the source: what a screen can reach.

It takes a name for a call, so it finds too much rather than too little: a function that is handed on counts as called,
a class as all of its methods.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("app", "labeling", "training", "data")


@dataclass
class Function:
    """A function, or what a module does outside of all functions (`name` is then the module's)."""

    name: str
    node: ast.AST
    refers_to: set[str] = field(default_factory=set)

    @property
    def module(self) -> str:
        return self.name if isinstance(self.node, ast.Module) else self.name.rpartition(".")[0]

    @property
    def is_public(self) -> bool:
        return not self.name.rpartition(".")[2].startswith("_")


def functions(root: Path = ROOT) -> dict[str, Function]:
    """All of them by their full names; a method goes under its class's name, all methods of it together."""
    files = [file for package in PACKAGES for file in (root / package).rglob("*.py")]
    modules = {".".join(file.relative_to(root).with_suffix("").parts): ast.parse(file.read_text()) for file in files}
    modules = {name.removesuffix(".__init__"): tree for name, tree in modules.items()}
    found: dict[str, Function] = {}
    for name, tree in modules.items():
        known = _names(name, tree)
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                whole = f"{name}.{node.name}"
                found[whole] = Function(whole, node, _references(node, known))
        outside = [each for each in tree.body if not isinstance(each, ast.FunctionDef | ast.ClassDef)]
        found[name] = Function(name, tree, set().union(*(_references(each, known) for each in outside)))
    return found


def reachable(found: dict[str, Function], start: set[str]) -> set[str]:
    """What these refer to, directly or through others, and they themselves."""
    seen, to_do = set[str](), list(start)
    while to_do:
        name = to_do.pop()
        if name in found and name not in seen:
            seen.add(name)
            to_do += found[name].refers_to
    return seen


def calls_of_method(function: Function, method: str) -> bool:
    """Whether `something.method(...)` stands in it."""
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == method
        for node in ast.walk(function.node)
    )


def _names(module: str, tree: ast.Module) -> dict[str, str]:
    """What names mean in a module: its own functions, and what it imports anywhere."""
    known = {
        node.name: f"{module}.{node.name}"
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in PACKAGES:
            known |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
    return known


def _references(tree: ast.AST, known: dict[str, str]) -> set[str]:
    names = {known[node.id] for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in known}
    of_modules = {
        f"{known[node.value.id]}.{node.attr}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in known
    }
    return names | of_modules
