"""A worker that a server started for itself ends when the server is gone, however that ended. Real processes."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil

from data.files.paths import Home
from data.store import Store

ROOT = Path(__file__).resolve().parents[2]
STARTER = """
import sys, time
from data.files.paths import open_home
from training.launch.process import start_worker
home = open_home(sys.argv[1])
print(start_worker(home, home.store_url, quiet=True).pid, flush=True)
time.sleep(120)
"""


def test_a_worker_ends_when_its_server_was_killed(home: Home, sqlite_store: Store) -> None:
    command = [sys.executable, "-c", textwrap.dedent(STARTER), str(home.root)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        worker = psutil.Process(int(server.stdout.readline()))
        try:
            time.sleep(1.0)
            assert worker.is_running()
            server.kill()
            server.wait(10)
            psutil.wait_procs([worker], timeout=20)
            assert not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE
        finally:
            if worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE:
                worker.kill()
