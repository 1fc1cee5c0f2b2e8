"""Features of texts under a frozen model, computed once and kept: <home>/features/<model>/*.npz beside model.json.

Each file holds `keys` (N, 32 characters) and `features` (N, d, half precision); files are only ever added. A key is a
hash of the prompt's messages and the response.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data.files.paths import Home
from data.records import Messages
from data.store.ids import new_id

ABOUT = "model.json"
Features = NDArray[np.float32]


def text_key(messages: Messages, response: str) -> str:
    """What a text is known by."""
    content = json.dumps([list(messages), response], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(content.encode()).hexdigest()[:32]


def feature_folders(home: Home) -> list[Path]:
    """The models of which there are features."""
    root = home.root / "features"
    return sorted(path.parent for path in root.glob(f"*/{ABOUT}")) if root.is_dir() else []


def count_files(home: Home) -> int:
    """How many files of features there are: more, as soon as something else has been read."""
    return sum(len(list(folder.glob("*.npz"))) for folder in feature_folders(home))


def about_features(folder: Path) -> dict[str, Any]:
    """Of which model, layer and length the features in a folder are."""
    found: dict[str, Any] = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
    return found


def read_keys(folder: Path) -> set[str]:
    """The keys of all texts that have features. A file that is spoilt counts as missing."""
    keys: set[str] = set()
    for path in sorted(folder.glob("*.npz")):
        try:
            with np.load(path, allow_pickle=False) as file:
                keys |= {key.decode() for key in file["keys"]}
        except (OSError, ValueError, KeyError, zipfile.BadZipFile):
            continue
    return keys


def load_features(folder: Path, keys: Sequence[str]) -> dict[str, Features]:
    """The features of those texts that have some. A file that is spoilt counts as missing."""
    wanted, features_of = set(keys), dict[str, Features]()
    for path in sorted(folder.glob("*.npz")):
        try:
            with np.load(path, allow_pickle=False) as file:
                places = {key.decode(): place for place, key in enumerate(file["keys"]) if key.decode() in wanted}
                if places:
                    features = file["features"]
                    features_of |= {key: features[place].astype(np.float32) for key, place in places.items()}
        except (OSError, ValueError, KeyError, zipfile.BadZipFile):
            continue
    return features_of


def add_features(folder: Path, about: dict[str, Any], keys: Sequence[str], features: NDArray[Any], now: float) -> None:
    """Add a file of features, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / ABOUT).is_file():
        _write(folder / ABOUT, json.dumps(about, indent=2, sort_keys=True).encode())
    target = folder / f"{new_id(now)}.npz"
    part = target.with_suffix(".part")
    with part.open("wb") as file:
        np.savez(file, keys=np.array(list(keys), dtype="S32"), features=features.astype(np.float16))
    part.rename(target)


def _write(path: Path, content: bytes) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_bytes(content)
    part.rename(path)
