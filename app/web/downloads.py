"""Files of runs, snapshots and exports for researchers: streamed, always as a download, never outside their folder."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from app.web.gate import PERSON
from data.errors import NotFound
from data.files.paths import Home
from data.files.snapshots import get_snapshot
from data.records import Person, Role
from data.runs.state import get_run
from data.store import Store

_CHUNK = 2**20


class Downloads:
    """The routes /download/run/ID/PATH, /download/snapshot/ID/PATH and /download/export/PATH.

    A folder comes as a zip file that is made while it is sent. Symbolic links are neither followed nor packed.
    """

    def __init__(self, store: Store, home: Home) -> None:
        self._store, self._home = store, home

    def routes(self) -> list[Route]:
        return [
            Route("/download/run/{id}/{path:path}", self.run, methods=["GET"]),
            Route("/download/snapshot/{id}/{path:path}", self.snapshot, methods=["GET"]),
            Route("/download/export/{path:path}", self.export, methods=["GET"]),
        ]

    async def run(self, request: Request) -> Response:
        return await to_thread.run_sync(self._answer, request, "run")

    async def snapshot(self, request: Request) -> Response:
        return await to_thread.run_sync(self._answer, request, "snapshot")

    async def export(self, request: Request) -> Response:
        return await to_thread.run_sync(self._answer, request, "export")

    def _answer(self, request: Request, kind: str) -> Response:
        person = cast("Person | None", request.scope.get(PERSON))
        if person is None or not person.role.covers(Role.RESEARCHER):
            return PlainTextResponse("only researchers can download files", 403)
        try:
            root = self._root(kind, request.path_params.get("id", ""))
            path = find_inside(root, request.path_params["path"], may_be_root=kind != "export")
        except NotFound as error:
            return PlainTextResponse(str(error), 404)
        name = path.name if path != root else f"{kind}-{root.name}"
        if path.is_dir():
            return StreamingResponse(zip_chunks(path), media_type="application/zip", headers=_as_file(f"{name}.zip"))
        return FileResponse(path, media_type="application/octet-stream", headers=_as_file(name))

    def _root(self, kind: str, wanted_id: str) -> Path:
        """The folder of a run or a snapshot that the store knows: the id is looked up before it goes into a path."""
        if kind == "export":
            return self._home.exports
        with self._store.read() as tx:
            if kind == "run":
                return self._home.run_folder(get_run(tx, wanted_id).id)
            return self._home.snapshot_folder(get_snapshot(tx, wanted_id).id)


def find_inside(root: Path, relative: str, *, may_be_root: bool = True) -> Path:
    """The file or folder at `relative` below `root`. Raises NotFound for everything else, links included."""
    missing = NotFound(f"there is no file {relative!r} to download here")
    path = root
    try:
        for part in [part for part in relative.split("/") if part]:
            if part in (".", "..") or "\\" in part or "\x00" in part:
                raise missing
            path /= part
            if path.is_symlink():
                raise missing
        if not path.exists() or not path.resolve().is_relative_to(root.resolve()) or (path == root and not may_be_root):
            raise missing
    except OSError:  # such as a name that is longer than any file's
        raise missing from None
    return path


def zip_chunks(folder: Path) -> Iterator[bytes]:
    """Yield a zip file of a folder piece by piece, uncompressed: weights and Parquet do not get any smaller."""
    sink = _Sink()
    with zipfile.ZipFile(cast("Any", sink), "w", zipfile.ZIP_STORED) as archive:
        for path in _files(folder):
            info = zipfile.ZipInfo.from_file(path, f"{folder.name}/{path.relative_to(folder).as_posix()}")
            with path.open("rb") as source, archive.open(info, "w") as target:
                while chunk := source.read(_CHUNK):
                    target.write(chunk)
                    yield sink.take()
            yield sink.take()
    yield sink.take()


def _files(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder, followlinks=False):
        folders.sort()
        for name in sorted(names):
            path = Path(parent, name)
            if path.is_file() and not path.is_symlink():
                yield path


class _Sink:
    """What zipfile writes to: it keeps nothing but what has not been taken yet."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Nothing to flush: what is written is taken by the caller."""

    def take(self) -> bytes:
        data = b"".join(self._parts)
        self._parts.clear()
        return data


def _as_file(name: str) -> dict[str, str]:
    plain = "".join(char if char.isascii() and char.isprintable() and char not in '"\\' else "_" for char in name)
    return {"content-disposition": f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"}
