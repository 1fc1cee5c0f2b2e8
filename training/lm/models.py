"""Find, load and save models: safetensors only; no code from a model's folder is ever run; no dropout anywhere."""

from __future__ import annotations

import datetime
import hashlib
import json
import logging
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

from data.errors import InvalidInput
from data.files.paths import Home
from data.files.readable import is_hub_id
from data.runs.best_policy import BEST_FOLDER, is_best, run_of
from training.jobs.reporter import Recorder
from training.launch.config import DEMO_MODEL, MachineOptions, SamplingOptions
from training.lm.checkpoint import misfits
from training.lm.demo_model import ensure_demo_model
from training.lm.encoding import Encoder
from training.lm.turns import Turn, read_turn, write_turn

_NUMBER = re.compile(r"\.(\d+)\.")  # of a layer, in a weight's name
_WITH_REPORT = {"use_safetensors": True, "output_loading_info": True}
MODEL_FOLDER, ADAPTER_FOLDER, REWARD_FILE = "model", "adapter", "reward_config.json"
_TOKENIZER_FILES = ("tokenizer*", "*_tokens*.json", "vocab*", "merges*", "spiece*", "chat_template*",
                    "generation_config.json")  # fmt: skip
UNKNOWN = "unknown"  # a revision that the hub did not tell
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ModelSource:
    """Where a model is loaded from. `name`: as the person wrote it. `revision`: hub commit, or hash of the weights."""

    name: str
    place: str
    revision: str


@dataclass(frozen=True)
class Machine:
    """The device and the precision of a run. `is_bf16`: autocast to bf16, frozen weights in bf16."""

    device: torch.device
    is_bf16: bool

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.is_bf16)

    @property
    def frozen_dtype(self) -> torch.dtype:
        return torch.bfloat16 if self.is_bf16 else torch.float32


def set_up_machine(options: MachineOptions) -> Machine:
    """Choose device, precision and threads, and seed every random source. Raises InvalidInput for a missing device."""
    available = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    device = next(name for name in available if available[name]) if options.device == "auto" else options.device
    if not available[device]:
        raise InvalidInput(f"device = {device!r}: this machine has none; use auto or cpu")
    if options.threads:
        torch.set_num_threads(options.threads)
    import transformers

    transformers.set_seed(options.seed)
    is_bf16 = options.precision == "bf16" or (options.precision == "auto" and device == "cuda")
    return Machine(torch.device(device), is_bf16)


def versions(machine: Machine) -> dict[str, Any]:
    """What a run computes with, for its record."""
    from importlib.metadata import version

    packages = {name: version(name) for name in ("torch", "transformers", "trl", "peft", "accelerate", "datasets")}
    name = torch.cuda.get_device_name(machine.device) if machine.device.type == "cuda" else machine.device.type
    return packages | {"device": name, "bf16": machine.is_bf16, "threads": torch.get_num_threads()}


def find_model(name: str, home: Home, reporter: Recorder) -> ModelSource:
    """Turn what a person wrote ('demo', run:ID, run:ID/best, a folder, a hub id) into a place to load from.

    Its revision is noted.

    Raises InvalidInput for a folder or a run without a model.
    """
    source = _locate(name, home, reporter)
    reporter.models[name] = source.revision
    if Path(source.place).is_dir():
        reporter.models[f"{name} (tokenizer)"] = tokenizer_hash(Path(source.place))
    return source


def _locate(name: str, home: Home, reporter: Recorder) -> ModelSource:
    if name == DEMO_MODEL:
        folder = ensure_demo_model(home, lambda words: reporter.event("demo_model", message=words))
    elif (run_id := run_of(name)) is not None:
        folder = home.run_folder(run_id) / (BEST_FOLDER if is_best(name) else MODEL_FOLDER)
    else:
        folder = Path(name).expanduser()
        if is_hub_id(name) and folder.exists():
            raise InvalidInput(f"model {name!r}: a folder of that name lies in {Path.cwd()}; write its whole path")
    if folder.is_dir():
        if not (folder / "config.json").is_file() or not any(folder.glob("*.safetensors")):
            raise InvalidInput(f"model {name!r}: {folder} holds no config.json with .safetensors weights")
        return ModelSource(name, str(folder), weights_hash(folder))
    if name == DEMO_MODEL or name.startswith(("run:", "/", ".", "~")):
        raise InvalidInput(f"model {name!r}: there is no folder {folder}")
    return ModelSource(name, name, _hub_commit(name))


def weights_hash(folder: Path) -> str:
    """A hash of a model's weights and configuration: equal hashes mean the same model."""
    return _hash_of([folder / "config.json", *sorted(folder.glob("*.safetensors"))])


def tokenizer_hash(folder: Path) -> str:
    """A hash of what makes token ids of texts, and ends responses: tokenizer, template, generation settings."""
    return _hash_of(sorted({path for pattern in _TOKENIZER_FILES for path in folder.glob(pattern) if path.is_file()}))


def adapter_hash(run_folder: Path) -> str:
    """A hash of a reward run's adapter, and of its model's zero."""
    return _hash_of([*sorted((run_folder / ADAPTER_FOLDER).glob("adapter_*")), run_folder / MODEL_FOLDER / REWARD_FILE])


def _hash_of(paths: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.name.encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]


def context_length(config: Any) -> int:
    """The longest text that a model with this configuration reads, in tokens; a huge number if it does not say."""
    return int(getattr(config.get_text_config(), "max_position_embeddings", 0) or 2**30)


def context_of(source: ModelSource) -> int:
    """The same for a model that is not loaded."""
    return context_length(_load(AutoConfig, source))


def longest_prompt(sampling: SamplingOptions, context: int) -> int:
    """The most tokens that a prompt may have, so that a whole response fits after it. Raises InvalidInput for none."""
    if sampling.max_new_tokens >= context:
        raise InvalidInput(
            f"max_new_tokens = {sampling.max_new_tokens} leaves no room for a prompt: the model reads {context} tokens"
        )
    return int(min(sampling.max_prompt_tokens, context - sampling.max_new_tokens))


def fitting_length(wanted: int, source: ModelSource, reporter: Recorder) -> int:
    """The wanted length of training texts, or what the model reads if that is less, which is then recorded."""
    context = context_of(source)
    if wanted > context:
        reporter.event("max_length_lowered", asked=wanted, model_reads=context)
    return min(wanted, context)


def load_tokenizer(source: ModelSource) -> Any:
    """Raises InvalidInput if the tokenizer can't be loaded."""
    return _load(AutoTokenizer, source)


def load_encoder(source: ModelSource, date: datetime.date | None = None) -> Encoder:
    """The tokenizer with its template, and every token that the model's own settings say ends a response.

    What ends a turn is as it is stored with the model, else as its template has it. `date`: that templates see; else
    what the model was trained with, where that is stored. Raises InvalidInput.
    """
    from transformers import GenerationConfig

    tokenizer = load_tokenizer(source)
    try:
        listed = GenerationConfig.from_pretrained(source.place, **_pinned(source)).eos_token_id
    except OSError:
        listed = None
    extra = listed if isinstance(listed, list) else [] if listed is None else [listed]
    stored = stored_turn(Path(source.place), tokenizer)
    turn: dict[str, Any] = {} if stored is None else {"end_ids": stored.end_ids}
    if known := date or (stored.date if stored else None):
        turn["date"] = known
    return Encoder(tokenizer, extra_stop_ids=extra, **turn)


def encoder_of_run(source: ModelSource, recorder: Recorder) -> Encoder:
    """The same for a run, whose templates see one date from its first start to its end.

    What is not the tokenizer's end token, and the date where the template asks for it, is recorded.
    """
    encoder = load_encoder(source, recorder.template_date)
    if encoder.is_dated or encoder.end_ids != (encoder.eos_id,):
        dated = {"date": encoder.date.isoformat()} if encoder.is_dated else {}
        recorder.event("template", model=source.name, responses_end_with=encoder.show(encoder.end_ids), **dated)
    return encoder


def stored_turn(folder: Path, tokenizer: Any) -> Turn | None:
    """What a model in `folder` was trained to read and to say at a turn's end; None where nothing says it.

    Older releases stored nothing and trained reward models on the tokenizer's end token, whatever the template had.
    """
    turn = read_turn(folder)
    if turn is None and (folder / REWARD_FILE).is_file() and tokenizer.eos_token_id is not None:
        return Turn((tokenizer.eos_token_id,), None)
    return turn


def load_language_model(source: ModelSource, dtype: torch.dtype) -> Any:
    """A causal language model without dropout, in evaluation mode. Raises InvalidInput.

    So it is for a weight of the file that finds no place in the model, and for one of the model that the file lacks.
    """
    model, report = _load(AutoModelForCausalLM, source, dtype=dtype, **_WITH_REPORT)
    _check_weights(source, surplus=report["unexpected_keys"], missing=report["missing_keys"])
    return _without_dropout(model)


def load_classifier(
    source: ModelSource, dtype: torch.dtype, pad_id: int | None = None, *, heads: int = 1, layers: int = 0
) -> Any:
    """The model with a scalar head named `score` in float32, without dropout, in evaluation mode. Raises InvalidInput.

    `heads`: so many scalar heads, all new where there are several. `layers`: the first ones only; 0: all.

    A head that is new is drawn from N(0, 1 / (d + 1)), as Stiennon et al. 2020 do, and has no bias: a bias would be
    lost when the model is loaded again.
    """
    had_head = is_classifier(source)
    options = {"config": _first_layers(source, layers)} if layers else {"num_labels": 1}
    model, report = _load(AutoModelForSequenceClassification, source, dtype=dtype, **_WITH_REPORT, **options)
    if not isinstance(getattr(model, "score", None), nn.Linear):
        raise InvalidInput(f"model {source.name!r}: {type(model).__name__} has no linear head named 'score'")
    _check_weights(
        source,
        surplus=set(report["unexpected_keys"])
        - _left_behind(source, model, report["unexpected_keys"], layers, had_head),
        missing=set(report["missing_keys"]) - (set() if had_head else {"score.weight", "score.bias"}),
    )
    if heads > 1:
        model.score = nn.Linear(model.score.in_features, heads, bias=False)
    if not had_head or heads > 1:
        nn.init.normal_(model.score.weight, std=1 / math.sqrt(model.score.in_features + 1))
    model.score.bias = None
    model.score.to(torch.float32)
    if pad_id is not None:
        model.config.get_text_config().pad_token_id = model.config.pad_token_id = pad_id
    return _without_dropout(model)


def backbone(model: Any) -> Any:
    """The transformer under a head: ids in, hidden states out."""
    return model.base_model


def save_model(model: Any, tokenizer: Any, folder: Path, encoder: Encoder | None = None) -> None:
    """Write a model and its tokenizer in the Hugging Face layout, whole or not at all.

    `encoder`: what its texts were encoded by. What ends a response is stored, for us and, in the settings of a model
    that generates, for plain transformers and for servers, which read them.
    """
    staging = folder.with_name(f".{folder.name}.part")
    if staging.exists():
        _remove(staging)
    staging.mkdir(parents=True)
    if encoder is not None:
        write_turn(staging, encoder.turn)
        stop_as(model, encoder)
    model.save_pretrained(staging, safe_serialization=True)
    tokenizer.save_pretrained(staging)
    if folder.exists():
        _remove(folder)
    staging.rename(folder)


def stop_as(model: Any, encoder: Encoder) -> None:
    """Let the generation of transformers stop where our sampling does; the token that is learnt comes first."""
    settings = getattr(model, "generation_config", None)
    if settings is not None:
        settings.eos_token_id = [encoder.end_id, *sorted(encoder.stop_ids - {encoder.end_id})]


def write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True), encoding="utf-8")


def _remove(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder)


def _load(loader: Any, source: ModelSource, **options: Any) -> Any:
    try:
        return loader.from_pretrained(source.place, trust_remote_code=False, **_pinned(source), **options)
    except torch.OutOfMemoryError:
        raise
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        reason = " ".join(str(error).split())[:300]
        raise InvalidInput(
            f"model {source.name!r} can't be loaded: {reason}; name a folder with safetensors weights, or a hub id"
        ) from error


def _left_behind(source: ModelSource, model: Any, names: Iterable[str], layers: int, had_head: bool) -> set[str]:
    """Which weights of a file a classifier leaves behind on purpose: further layers, and the language model's head."""
    dropped = {name for name in names if layers and (number := _NUMBER.search(name)) and int(number[1]) >= layers}
    if had_head or not (others := set(names) - dropped):
        return dropped
    with torch.device("meta"):
        whole = AutoModelForCausalLM.from_config(_load(AutoConfig, source))
    heads = {name for name in whole.state_dict() if not name.startswith(f"{model.base_model_prefix}.")}
    return dropped | (others & heads)


def _check_weights(source: ModelSource, surplus: Iterable[str], missing: Iterable[str]) -> None:
    """Raises InvalidInput if a weight finds no place: transformers leaves it out, or draws a new one, and goes on."""
    if problems := misfits(surplus, missing):
        raise InvalidInput(
            f"model {source.name!r} can't be loaded whole: {problems}; name a model that was saved whole, and of the "
            "kind that is asked for"
        )


def _pinned(source: ModelSource) -> dict[str, str]:
    """What makes the hub give the commit that was found first, for every file; nothing for a folder."""
    is_commit = source.revision not in ("", UNKNOWN) and not Path(source.place).is_dir()
    return {"revision": source.revision} if is_commit else {}


def _first_layers(source: ModelSource, layers: int) -> Any:
    """The model's configuration, for its first layers alone. Raises InvalidInput if it has fewer."""
    config = _load(AutoConfig, source, num_labels=1)
    text = config.get_text_config()
    if layers > text.num_hidden_layers:
        raise InvalidInput(f"layers = {layers}: model {source.name!r} has {text.num_hidden_layers}")
    text.num_hidden_layers = layers
    if getattr(text, "layer_types", None):
        text.layer_types = text.layer_types[:layers]
    return config


def is_classifier(source: ModelSource) -> bool:
    config = _load(AutoConfig, source)
    return any("SequenceClassification" in name for name in config.architectures or [])


def _hub_commit(name: str) -> str:
    config = _load(AutoConfig, ModelSource(name, name, ""))
    return str(getattr(config, "_commit_hash", None) or UNKNOWN)


def _without_dropout(model: Any) -> Any:
    for module in model.modules():
        for attribute, value in list(vars(module).items()):
            if "dropout" in attribute and isinstance(value, float):
                setattr(module, attribute, 0.0)
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model.eval()
