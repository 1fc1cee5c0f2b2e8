"""Which files may be downloaded, and the zip file that is made while it is sent."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from app.web.downloads import find_inside, zip_chunks
from data.errors import NotFound


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "runs" / "r1"
    (root / "model").mkdir(parents=True)
    (root / "model" / "weights.bin").write_bytes(b"w" * 10)
    (root / "log.txt").write_text("log")
    (tmp_path / "secret.txt").write_text("secret")
    (root / "link").symlink_to(tmp_path)
    (root / "file_link").symlink_to(root / "log.txt")
    return root


@pytest.mark.parametrize("path", ["log.txt", "model", "model/weights.bin", "model//weights.bin", "/log.txt"])
def test_what_is_inside_is_found(folder: Path, path: str) -> None:
    assert find_inside(folder, path).is_relative_to(folder)


@pytest.mark.parametrize(
    "path",
    ["../../secret.txt", "..", "model/../../../secret.txt", "./log.txt", "link/secret.txt", "link", "file_link",
     "nothing", "..\\..\\secret.txt", "log.txt\x00"],
)  # fmt: skip
def test_what_is_outside_or_a_link_is_not(folder: Path, path: str) -> None:
    with pytest.raises(NotFound):
        find_inside(folder, path)


def test_the_folder_itself_only_where_allowed(folder: Path) -> None:
    assert find_inside(folder, "") == folder
    with pytest.raises(NotFound):
        find_inside(folder, "", may_be_root=False)


def test_a_zip_comes_in_pieces_and_is_whole(folder: Path) -> None:
    big = bytes(range(256)) * 20_000
    (folder / "model" / "big.bin").write_bytes(big)
    (folder / "empty.txt").touch()
    pieces = list(zip_chunks(folder))
    assert max(len(piece) for piece in pieces) < 2 * 2**20
    with zipfile.ZipFile(io.BytesIO(b"".join(pieces))) as archive:
        assert archive.testzip() is None
        assert set(archive.namelist()) == {"r1/log.txt", "r1/empty.txt", "r1/model/weights.bin", "r1/model/big.bin"}
        assert archive.read("r1/model/big.bin") == big
        assert archive.getinfo("r1/model/big.bin").compress_type == zipfile.ZIP_STORED


def test_an_empty_folder_is_an_empty_zip(tmp_path: Path) -> None:
    assert zipfile.ZipFile(io.BytesIO(b"".join(zip_chunks(tmp_path)))).namelist() == []


def test_a_name_longer_than_any_files_is_not_there(folder: Path) -> None:
    """It was an error of the server."""
    with pytest.raises(NotFound, match="there is no file"):
        find_inside(folder, "a" * 400)
    with pytest.raises(NotFound, match="there is no file"):
        find_inside(folder, "/".join(["a" * 200] * 40))
