"""The module path as it is settled before the first page run, however the app was started."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest
from streamlit.runtime.scriptrunner.exec_code import modified_sys_path

from app.script_folder import FOLDER, settle
from app.web.server import MAIN

ROOT = str(Path(__file__).resolve().parents[2])
STARTS = {
    "streamlit run, not installed": ([FOLDER, "/bin", "/lib"], [ROOT, "/bin", "/lib", FOLDER]),
    "another copy installed": ([FOLDER, "/lib", "/lib/site-packages"], [ROOT, "/lib", "/lib/site-packages", FOLDER]),
    "installed": ([FOLDER, "/lib", ROOT, "/more"], ["/lib", ROOT, "/more", FOLDER]),
    "python -m app": ([ROOT, "/lib"], [ROOT, "/lib", FOLDER]),
    "python -c in the checkout": (["", "/lib"], ["", "/lib", FOLDER]),
    "twice": ([FOLDER, ROOT, FOLDER], [ROOT, FOLDER]),
}


@pytest.mark.parametrize("start", STARTS)
def test_ours_come_from_beside_the_script_and_the_script_folder_hides_nothing(
    monkeypatch: pytest.MonkeyPatch, start: str
) -> None:
    before, after = STARTS[start]
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "path", list(before))
    settle()
    assert sys.path == after
    same = sys.path
    settle()
    assert (sys.path, sys.path is same) == (after, True)


def test_streamlit_leaves_a_settled_path_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the mend rests on: a folder that is on the path already is neither put there nor taken off."""
    monkeypatch.setattr(sys, "path", [ROOT, "/lib"])
    with modified_sys_path(str(MAIN)):
        assert sys.path == [FOLDER, ROOT, "/lib"], "without it Streamlit changes the path around each run"
    settle()
    with modified_sys_path(str(MAIN)):
        assert sys.path == [ROOT, "/lib", FOLDER]
    assert sys.path == [ROOT, "/lib", FOLDER]


def test_many_that_settle_at_once_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [FOLDER, "/lib"])
    barrier = threading.Barrier(16)
    threads = [threading.Thread(target=lambda: (barrier.wait(), settle())) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sys.path == [ROOT, "/lib", FOLDER]
