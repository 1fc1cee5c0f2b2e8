"""A real PostgreSQL server for the tests, from the system's programs, in a temporary folder, behind a Unix socket."""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import factories
import psycopg

# Nothing here outlives the session, so nothing needs to reach the disk.
_SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "listen_addresses": "",
    "max_connections": "200",
    "shared_buffers": "32MB",
}


class PostgresServer:
    """A running server. Databases are made and dropped through one connection."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._admin = psycopg.connect(host=str(folder), user="postgres", dbname="postgres", autocommit=True)
        self._numbers = itertools.count(1)

    def url(self, database: str) -> str:
        return f"postgresql+psycopg://postgres@/{database}?host={self._folder}"

    def create(self, name: str) -> None:
        self._admin.execute(f"create database {name}")

    def create_from(self, template: str) -> str:
        name = f"test_{next(self._numbers)}"
        self._admin.execute(f"create database {name} template {template}")
        return name

    def drop(self, name: str) -> None:
        self._admin.execute(f"drop database {name} with (force)")

    def close(self) -> None:
        self._admin.close()


@contextlib.contextmanager
def start_postgres() -> Iterator[PostgresServer]:
    """Start a server and stop it at the end; skips the test where the programs are missing."""
    programs = _programs()
    if programs is None:
        factories.skip("PostgreSQL's server programs were found neither on PATH nor under /usr/lib/postgresql")
    who = _unprivileged()
    folder = Path(tempfile.mkdtemp(prefix="rankloop-pg-"))
    cluster = folder / "cluster"
    try:
        if who is not None:
            os.chown(folder, who.pw_uid, who.pw_gid)
        _run(who, folder, programs / "initdb", "-D", cluster, "-U", "postgres", "-A", "trust", "-E", "UTF8", "-N",
             "--locale=C")  # fmt: skip
        options = " ".join(f"-c {name}={value}" for name, value in _SETTINGS.items())
        options += f" -c unix_socket_directories={folder}"
        control = (programs / "pg_ctl", "-D", cluster, "-w")
        _run(who, folder, *control, "-l", folder / "log.txt", "-o", options, "start")
        try:
            server = PostgresServer(folder)
            yield server
            server.close()
        finally:
            _run(who, folder, *control, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _programs() -> Path | None:
    """The folder of initdb and pg_ctl: the newest under /usr/lib/postgresql, else where PATH finds them."""
    installed = [each.parent for each in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if installed:
        return max(installed, key=lambda each: float(each.parent.name))
    found = shutil.which("initdb")
    return Path(found).resolve().parent if found and shutil.which("pg_ctl") else None


def _unprivileged() -> pwd.struct_passwd | None:
    """Whom to run the server as: PostgreSQL refuses to run as root. None: as ourselves."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    factories.skip("PostgreSQL does not run as root, and there is no user 'postgres' or 'nobody'")


def _run(who: pwd.struct_passwd | None, folder: Path, *words: object) -> None:
    done = subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "TZ": "UTC"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        **({"user": who.pw_uid, "group": who.pw_gid, "extra_groups": []} if who else {}),
    )
    if done.returncode != 0:
        log = folder / "log.txt"
        raise RuntimeError(f"{words[0]}: {done.stdout}{log.read_text() if log.exists() else ''}")
