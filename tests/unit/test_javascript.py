"""The JavaScript of the pages that has no elements, by Node's own test runner; with elements: tests/browser."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parents[1] / "javascript"
FILES = sorted(HERE.glob("*.test.mjs"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name.removesuffix(".test.mjs"))
def test_what_is_without_elements(file: Path) -> None:
    node = shutil.which("node", path=str(Path(sys.executable).parent))
    assert node is not None, "there is no Node beside this Python: install the dev extras, which bring one"
    quiet = "--disable-warning=MODULE_TYPELESS_PACKAGE_JSON"
    ended = subprocess.run(
        [node, "--test", "--test-reporter=tap", quiet, str(file)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    passed = re.search(r"^# pass (\d+)$", ended.stdout, re.MULTILINE)
    assert passed is not None and int(passed[1]) > 3, ended.stdout


def test_every_file_of_ours_is_checked() -> None:
    assert len(FILES) == 5
