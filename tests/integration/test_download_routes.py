"""Downloading files of runs, snapshots and exports over real HTTP: who may, and what stays inside."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

from factories import make_project, make_run, make_snapshot
from web_server import (
    Answer,
    WebServer,
    signed_in,
)

from data.records import Role
from data.store import Store


def test_downloads(server: WebServer, server_store: Store, tmp_path: Path) -> None:
    token = signed_in(server_store, Role.RESEARCHER)
    run = make_run(server_store, project=make_project(server_store))
    folder = server.home.run_folder(run.id)
    (folder / "model").mkdir(parents=True)
    (folder / "model" / "weights.bin").write_bytes(b"\x00\x01" * 700_000)
    (folder / "log.txt").write_text("<script>alert(1)</script>")
    (folder / "out").symlink_to(server.home.root)
    (folder / "model" / "passwords").symlink_to("/etc/passwd")

    def get(path: str, token: str = token) -> Answer:
        return server.request("GET", path, token=token)

    log = get(f"/download/run/{run.id}/log.txt")
    assert (log.status, log.text) == (200, "<script>alert(1)</script>")
    assert log.headers["content-disposition"].startswith('attachment; filename="log.txt"')
    assert log.headers["content-type"] == "application/octet-stream"
    packed = get(f"/download/run/{run.id}/model")
    (tmp_path / "model.zip").write_bytes(packed.body)
    with zipfile.ZipFile(tmp_path / "model.zip") as archive:
        assert archive.testzip() is None
        assert archive.namelist() == ["model/weights.bin"], "links are not packed"
        assert archive.read("model/weights.bin") == (folder / "model" / "weights.bin").read_bytes()
    (folder / "best").mkdir()
    (folder / "best" / "weights.bin").write_bytes(b"\x02" * 700_000)
    best = get(f"/download/run/{run.id}/best")
    assert 'filename="best.zip"' in best.headers["content-disposition"]
    (tmp_path / "best.zip").write_bytes(best.body)
    with zipfile.ZipFile(tmp_path / "best.zip") as archive:
        assert archive.read("best/weights.bin") == b"\x02" * 700_000
    bad = ["out", "out/rankloop.db", "model/passwords", "../../rankloop.db", "%2e%2e/%2e%2e/rankloop.db", "nothing"]
    for path in bad:
        assert get(f"/download/run/{run.id}/{path}").status in (400, 404), path
    for path in ("/download/run/../rankloop.db", "/download/run/%2e%2e/rankloop.db", "/download/run/unknown/log.txt"):
        assert get(path).status in (400, 404), path
    for role in (Role.ANNOTATOR, Role.REVIEWER):
        assert get(f"/download/run/{run.id}/log.txt", signed_in(server_store, role)).status == 403
    assert server.request("GET", f"/download/run/{run.id}/log.txt").status == 401


def test_snapshots_and_exports_can_be_downloaded(server: WebServer, server_store: Store) -> None:
    token = signed_in(server_store, Role.RESEARCHER)
    snapshot = make_snapshot(server_store, server.home)
    manifest = server.request("GET", f"/download/snapshot/{snapshot.id}/manifest.json", token=token)
    assert json.loads(manifest.body)
    whole = server.request("GET", f"/download/snapshot/{snapshot.id}/", token=token)
    assert f"snapshot-{snapshot.id}.zip" in whole.headers["content-disposition"]
    export = server.home.exports / "Ärger trl"
    export.mkdir()
    (export / "train.jsonl").write_text("{}\n")
    answer = server.request("GET", "/download/export/%C3%84rger%20trl", token=token)
    assert (answer.status, answer.body[:2]) == (200, b"PK")
    assert "filename*=UTF-8''%C3%84rger%20trl.zip" in answer.headers["content-disposition"]
    assert server.request("GET", "/download/export/", token=token).status == 404, "never everybody's exports at once"
