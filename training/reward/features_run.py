"""Features of texts for the instant reward model: the middle layer of the frozen model, mean over the response.

Layers behind the middle one are not computed. Texts are read as the reward model reads them; what was computed once is
kept (`data.files.features`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from data.errors import InvalidInput
from data.files.features import Features, add_features, load_features, text_key
from data.files.paths import Home
from data.labels.tasks import texts_of_project
from data.records import Messages
from training.jobs.left_out import LeftOut
from training.jobs.reporter import Reporter
from training.launch.config import FeaturesConfig
from training.lm.encoding import Encoder, fit
from training.lm.models import (
    Machine,
    ModelSource,
    context_of,
    encoder_of_run,
    find_model,
    load_language_model,
    set_up_machine,
    versions,
)
from training.lm.scorer import pad_right

POOLING = "mean over the response"
TEXTS_AT_ONCE = 256
Text = tuple[Messages, str]


class _Enough(Exception):
    """The middle layer has said what it had to say."""


class Middle:
    """A frozen model, cut at its middle layer. Raises InvalidInput for a model without a list of layers."""

    def __init__(self, model: Any, machine: Machine) -> None:
        layers = [each for each in model.base_model.children() if isinstance(each, nn.ModuleList)]
        if not layers:
            raise InvalidInput(f"{type(model).__name__} has no list of layers to take features from")
        self.number = (len(layers[0]) + 1) // 2
        self._model, self._layer = model.base_model.to(machine.device).eval(), layers[0][self.number - 1]
        self._machine = machine

    @torch.no_grad()
    def features(self, sequences: Sequence[Sequence[int]], starts: Sequence[int]) -> Tensor:
        """(N, d) float32: mean over the tokens from `starts` on."""
        ids, attention = pad_right(sequences, 0)  # any token will do: no text sees what stands after it
        kept: list[Tensor] = []

        def take(_module: nn.Module, _given: Any, output: Any) -> None:
            kept.append(output[0] if isinstance(output, tuple) else output)
            raise _Enough

        hook = self._layer.register_forward_hook(take)
        device = self._machine.device
        try:
            with self._machine.autocast():
                self._model(input_ids=ids.to(device), attention_mask=attention.to(device), use_cache=False)
        except _Enough:
            pass
        finally:
            hook.remove()
        counts = attention & (torch.arange(ids.shape[1])[None] >= torch.tensor(starts)[:, None])
        weights = (counts.float() / counts.sum(1, keepdim=True)).to(device)
        return torch.einsum("ns,nsd->nd", weights, kept[0].float()).cpu()


def feature_folder(home: Home, source: ModelSource, encoder: Encoder, max_length: int) -> Path:
    """Where features of texts read in this way lie."""
    ends = "" if encoder.end_ids == (encoder.eos_id,) else "".join(f"-{each}" for each in encoder.end_ids)
    return home.root / "features" / f"{source.revision}-{encoder.template_hash}-{max_length}{ends}"


def ensure_features(
    texts: Sequence[Text],
    source: ModelSource,
    encoder: Encoder,
    machine: Machine,
    max_length: int,
    reporter: Reporter,
    budget: int = 4096,
    on_progress: Callable[[int, int], None] | None = None,
) -> dict[str, Features]:
    """Features by `text_key`; those that are missing are computed and kept. Texts whose prompt the template
    refuses have none.

    Raises Cancelled if the run is asked to stop; what was computed until then is kept.
    """
    folder = feature_folder(reporter.home, source, encoder, max_length)
    wanted = {text_key(*each): each for each in texts}
    features_of = load_features(folder, list(wanted))
    missing = [key for key in wanted if key not in features_of]
    if not missing:
        return features_of
    middle = Middle(load_language_model(source, machine.frozen_dtype), machine)
    about = {"model": source.name, "revision": source.revision, "layer": middle.number, "pooling": POOLING}
    for start in range(0, len(missing), TEXTS_AT_ONCE):
        reporter.raise_if_stopping()
        batch = missing[start : start + TEXTS_AT_ONCE]
        keys, features = _computed({key: wanted[key] for key in batch}, middle, encoder, max_length, budget)
        if keys:
            add_features(folder, about, keys, features, time.time())
        features_of |= dict(zip(keys, features, strict=True))
        if on_progress is not None:
            on_progress(start + len(batch), len(missing))
    return features_of


def _computed(
    texts: dict[str, Text], middle: Middle, encoder: Encoder, max_length: int, budget: int
) -> tuple[list[str], NDArray[np.float32]]:
    """Keys and features of some texts, in batches of like length."""
    fitted: dict[str, tuple[list[int], int]] = {}
    for key, (messages, response) in texts.items():
        try:
            text = fit(encoder.prompt_ids(messages), encoder.response_ids(response), max_length)
        except InvalidInput:
            continue
        fitted[key] = (text.prompt + text.response, len(text.prompt))
    keys = sorted(fitted, key=lambda key: len(fitted[key][0]))
    parts: list[Tensor] = []
    start = 0
    while start < len(keys):
        end = start + 1
        while end < len(keys) and (end + 1 - start) * len(fitted[keys[end]][0]) <= budget:
            end += 1
        batch = [fitted[key] for key in keys[start:end]]
        parts.append(middle.features([ids for ids, _ in batch], [n for _, n in batch]))
        start = end
    return keys, torch.cat(parts).numpy() if parts else np.empty((0, 0), np.float32)


def run(config: FeaturesConfig, reporter: Reporter) -> dict[str, Any]:
    """Compute the features of all responses of the run's project."""
    machine = set_up_machine(config.machine)
    reporter.versions(versions(machine))
    source = find_model(config.model, reporter.home, reporter)
    encoder = encoder_of_run(source, reporter)
    with reporter.store.read() as tx:
        texts = texts_of_project(tx, reporter.run.project_id or "")
    if not texts:
        raise InvalidInput("the project has no responses to read; sample some, or import them")
    length = min(config.max_length, context_of(source))
    features = ensure_features(
        texts, source, encoder, machine, length, reporter, config.machine.batch_tokens, reporter.step
    )
    n_texts = len({text_key(*each) for each in texts})
    reason = "the model's template refuses its prompt"
    LeftOut("texts", n_texts, n_texts - len(features), reason).report(reporter, "Take a model that reads such prompts")
    return {"texts": n_texts, "with_features": len(features)}
