"""What runs in the web process's many threads changes nothing that they share: told by the source.

`tests/screens/test_process_wide.py` and `tests/integration/test_pages_at_once.py` watch it happen, or rather not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Once in a process, before or after it serves, or in the process of a command: no page run and no request comes here.
ONCE = {
    "app/script_folder.py": {"settle"},
    "app/web/server.py": {"serve", "once", "_interruptible"},
    "app/commands/base/waiting.py": {"_ctrl_c_noted"},
    "data/files/rows.py": {""},
}
# Of the process as a whole: who calls or sets one changes it for every thread.
CALLS = {
    "os.chdir", "os.umask", "os.putenv", "os.unsetenv", "os.environ.update", "os.environ.pop",
    "os.environ.setdefault", "os.environ.clear", "os.environ.popitem", "sys.path.append", "sys.path.insert",
    "sys.path.remove", "sys.path.extend", "sys.path.pop", "sys.path.clear", "sys.modules.pop",
    "sys.modules.setdefault", "sys.setrecursionlimit", "sys.setswitchinterval", "sys.settrace", "sys.addaudithook",
    "warnings.simplefilter", "warnings.filterwarnings", "warnings.resetwarnings", "warnings.catch_warnings",
    "logging.basicConfig", "logging.disable", "logging.captureWarnings", "signal.signal", "signal.alarm",
    "locale.setlocale", "random.seed", "random.setstate", "np.random.seed", "np.random.set_state", "np.seterr",
    "np.set_printoptions", "numpy.random.seed", "pd.set_option", "pd.reset_option", "pandas.set_option",
    "csv.field_size_limit", "socket.setdefaulttimeout", "gc.disable", "gc.enable", "gc.freeze", "gc.set_threshold",
    "mimetypes.add_type", "decimal.setcontext", "time.tzset", "faulthandler.enable", "contextlib.redirect_stdout",
    "contextlib.redirect_stderr", "contextlib.chdir", "importlib.reload", "multiprocessing.set_start_method",
    "st.set_option", "json.encoder", "alt.themes.enable", "alt.theme.enable", "alt.data_transformers.enable",
    "alt.renderers.enable", "sa.event.listen", "threading.setprofile",
}  # fmt: skip
PLACES = (
    "os.environ",
    "sys.path",
    "sys.modules",
    "sys.stdout",
    "sys.stderr",
    "sys.argv",
    "sys.excepthook",
    "warnings.",
)


def modules() -> list[Path]:
    """What the web process imports of ours: everything but what only workers have."""
    folders = ("app", "labeling", "data", "training/launch", "training/measures")
    found = [path for name in folders for path in sorted((ROOT / name).rglob("*.py")) if "migrations" not in path.parts]
    return found


def dotted(node: ast.AST) -> str:
    """`os.environ` of such an expression; empty for anything else."""
    if isinstance(node, ast.Attribute):
        inner = dotted(node.value)
        return f"{inner}.{node.attr}" if inner else ""
    if isinstance(node, ast.Subscript):
        return dotted(node.value)
    return node.id if isinstance(node, ast.Name) else ""


def changes(tree: ast.AST, names: frozenset[str] = frozenset(), where: str = "") -> Iterator[tuple[str, int, str]]:
    """(function, line, what) of everything in the source that changes the process. `names`: imported modules."""
    for node in ast.iter_child_nodes(tree):
        inside = node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else where
        if isinstance(node, ast.Global):
            yield where, node.lineno, f"global {', '.join(node.names)}"
        if isinstance(node, ast.Call) and ((name := dotted(node.func)) in CALLS or name.endswith(".setLevel")):
            yield where, node.lineno, name
        targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else []
        targets = [node.target] if isinstance(node, ast.AugAssign | ast.AnnAssign) else targets
        for target in targets:
            name = dotted(target)
            is_module = isinstance(target, ast.Attribute) and dotted(target.value) in names
            if name.startswith(PLACES) or is_module:
                yield where, node.lineno, f"{name} = ..."
        yield from changes(node, names, inside)


def imported(tree: ast.AST) -> frozenset[str]:
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Import)]
    return frozenset(alias.asname or alias.name.split(".")[0] for node in nodes for alias in node.names)


def mutable_globals(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Names of a module for something that can be changed in place, and is: by an item, or by a method."""
    made = (ast.Dict, ast.List, ast.Set, ast.DictComp, ast.ListComp, ast.SetComp)
    shared = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, made)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    changers = {"append", "add", "update", "pop", "setdefault", "clear", "extend", "insert", "remove", "discard"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in changers:
            found: ast.AST = node.func.value
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            found = node.value
        else:
            continue
        if isinstance(found, ast.Name) and found.id in shared:
            yield node.lineno, found.id


def test_no_page_run_and_no_request_changes_the_process() -> None:
    found = []
    for path in modules():
        name, tree = path.relative_to(ROOT).as_posix(), ast.parse(path.read_text())
        here = [each for each in changes(tree, imported(tree)) if each[0] not in ONCE.get(name, ())]
        found += [f"{name}:{line}: {what} in {where or 'the module'}" for where, line, what in here]
        found += [f"{name}:{line}: {what} is changed in place" for line, what in mutable_globals(tree)]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "sys.path[:] = []", "sys.path.insert(0, 'x')", "os.environ['A'] = 'b'", "os.environ |= {}",
        "del os.environ['A']", "def f():\n    global x", "warnings.simplefilter('error')",
        "with warnings.catch_warnings(): pass",
        "import json\njson.dumps = None", "log.setLevel(10)", "os.umask(0)", "sys.path = []", "np.random.seed(1)",
    ],
)  # fmt: skip
def test_the_search_finds(line: str) -> None:
    tree = ast.parse(line)
    assert list(changes(tree, imported(tree)))


@pytest.mark.parametrize(
    "line", ["known = {}\ndef f():\n    known['a'] = 1", "known = []\ndef f():\n    known.append(1)"]
)
def test_the_search_finds_what_a_module_remembers(line: str) -> None:
    assert list(mutable_globals(ast.parse(line)))


def test_the_exceptions_are_still_there() -> None:
    """A name in `ONCE` that changes nothing any more would hide what is put there later."""
    for name, functions in ONCE.items():
        tree = ast.parse((ROOT / name).read_text())
        assert {where for where, _, _ in changes(tree, imported(tree))} == functions, name
