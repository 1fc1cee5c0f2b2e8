"""Which paths a person at a browser may name: inside is inside, and of the outside nothing is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from data.errors import InvalidInput
from data.files.paths import Home
from data.files.readable import ROOTS_VARIABLE, ReadableFolders, check_roots, is_hub_id, readable_folders


@pytest.fixture
def folders(tmp_path: Path) -> ReadableFolders:
    """A home, and a root that is a link; beside them a secret, and in the home links that lead to it."""
    for name in ("home/uploads", "real/models", "outside"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "root").symlink_to(tmp_path / "real")
    (tmp_path / "outside" / "secret.jsonl").write_text('{"prompt": "secret"}\n')
    (tmp_path / "home" / "a.jsonl").write_text('{"prompt": "hi"}\n')
    (tmp_path / "home" / "link.jsonl").symlink_to(tmp_path / "outside" / "secret.jsonl")
    (tmp_path / "home" / "dead").symlink_to(tmp_path / "outside" / "nothing")
    (tmp_path / "home" / "way").symlink_to(tmp_path / "outside")
    (tmp_path / "home" / "loop").symlink_to(tmp_path / "home" / "loop")
    (tmp_path / "home" / "near").symlink_to(tmp_path / "home" / "a.jsonl")
    return ReadableFolders((tmp_path / "home", tmp_path / "root"))


@pytest.mark.parametrize(
    ("written", "place"),
    [
        ("home/a.jsonl", "home/a.jsonl"),
        ("home/uploads/../a.jsonl", "home/a.jsonl"),
        ("home", "home"),
        ("home/near", "home/a.jsonl"),
        ("home/not there yet", "home/not there yet"),
        ("root/models", "real/models"),
        ("real/models/x", "real/models/x"),
        ("root/../root/models", "real/models"),
    ],
)
def test_what_lies_inside_is_stored_without_links(
    folders: ReadableFolders, tmp_path: Path, written: str, place: str
) -> None:
    assert folders.inside("model", str(tmp_path / written)) == tmp_path / place


OUTSIDE = [
    "{0}/outside/secret.jsonl", "{0}/outside/none.jsonl", "{0}/outside", "{0}/home/../outside/secret.jsonl",
    "{0}/home/link.jsonl", "{0}/home/dead", "{0}/home/way/secret.jsonl", "{0}/home/way/none.jsonl", "{0}/home/way",
    "{0}/homework", "{0}/home/../home2/x", "{0}/outside/../outside/x", "/etc/passwd", "/etc/not there", "/", "//", "~",
    "~root", "~root/x", "~nobody-of-this-name/x", "file:///etc/passwd", "../../../etc/passwd", "etc/passwd", ".", "",
    " ", "\x00", "{0}/home/a.jsonl\x00", "{0}/home/\ud800", "x" * 100_000, "/" + "y/" * 10_000, "\ud800", "a\nb",
]  # fmt: skip


@pytest.mark.parametrize("written", OUTSIDE, ids=range(len(OUTSIDE)))
def test_what_lies_outside_gets_one_answer(folders: ReadableFolders, tmp_path: Path, written: str) -> None:
    """The same whether something is there or not: a file, a folder, a link, somebody's account."""
    given = written.format(tmp_path)
    with pytest.raises(InvalidInput) as caught:
        folders.inside("prompts_file", given)
    shown, _, rest = str(caught.value).partition(": lies outside")
    assert rest == (
        f" the folders that this server may read: {tmp_path / 'home'}, {tmp_path / 'root'}. "
        "Put it into one of them, or ask an admin to add its folder (`rankloop serve --root DIR`)"
    )
    assert shown == f"prompts_file = {given if len(given) <= 200 else given[:200] + '...'!r}"


@pytest.mark.parametrize("inside", ["home/loop/x", "home/" + "z" * 5_000])
def test_a_place_that_can_not_be_is_no_crash(folders: ReadableFolders, tmp_path: Path, inside: str) -> None:
    assert folders.inside("model", str(tmp_path / inside)).is_relative_to(tmp_path / "home")


def test_nothing_outside_is_looked_at(
    folders: ReadableFolders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the path's own words lead out of is refused before the disk is asked: its time tells nothing either."""
    looked: list[str] = []
    look = os.lstat
    monkeypatch.setattr(os, "lstat", lambda path, **words: (looked.append(str(path)), look(path, **words))[1])
    for written in ("/etc/passwd", str(tmp_path / "home" / ".." / "outside" / "secret.jsonl")):
        with pytest.raises(InvalidInput):
            folders.inside("model", written)
    assert looked, "the roots themselves are"
    assert not [path for path in looked if "passwd" in path or "secret" in path]


@pytest.mark.parametrize("name", ["gpt2", "Qwen/Qwen3-0.6B", "org/a.b_c-1", "_x/y"])
def test_ids_on_the_hub(name: str) -> None:
    assert is_hub_id(name)


@pytest.mark.parametrize(
    "name",
    ["", "/a", "a/b/c", "../a", "a/..", "..", ".", "./a", "~/a", "a/.b", "file:a", "a b", "a\n", "a/b/", "x" * 97, "é"],
)
def test_what_is_no_id_can_only_be_a_path(name: str) -> None:
    assert not is_hub_id(name)


def test_roots_come_from_the_command_line_and_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    assert check_roots(["models", str(tmp_path / "models" / ".." / "models")]) == (tmp_path / "models",) * 2
    for wrong in ("nothing", "", f"models{os.pathsep}models"):
        with pytest.raises(InvalidInput, match="--root '"):
            check_roots([wrong] if wrong else ["models/x"])
    home = Home(tmp_path / "home")
    assert readable_folders(home).roots == (home.root,)
    monkeypatch.setenv(ROOTS_VARIABLE, os.pathsep.join(["/data", "", "relative", str(home.root), "/more"]))
    assert readable_folders(home).roots == (home.root, Path("/data"), Path("/more"))
    assert readable_folders(home).words == f"On this server, paths may lie in: {home.root}, /data, /more"
