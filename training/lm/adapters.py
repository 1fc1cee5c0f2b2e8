"""Low-rank adapters (Hu et al. 2022): what they are put on, how a saved one is loaded, and how one is merged.

Most layers are linear modules. The experts of a mixture lie together in one parameter (experts, out, in) instead, which
PEFT adapts as a "target parameter"; its own choice of those leaves some families' experts out.
"""

from __future__ import annotations

import copy
import re
import warnings
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from peft import LoraConfig, TaskType, get_peft_model, set_peft_model_state_dict
from peft.tuners.lora.layer import ParamWrapper
from peft.tuners.tuners_utils import BaseTunerLayer
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from data.errors import InvalidInput
from training.jobs.reporter import Recorder
from training.lm.checkpoint import misfits

HEAD = "score.weight"
_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_HEADS = {"classifier", "score"}  # what PEFT saves beside the adapter of a model with a head
_SHOWN = 4  # names in a message


class NotAdapted(NamedTuple):
    """Weights that training with adapters leaves as they are, by their name without the layer's number.

    share: of all weights, embeddings and head included.
    """

    numbers: dict[str, int]
    share: float

    @property
    def words(self) -> str:
        names = sorted(self.numbers, key=lambda name: -self.numbers[name])
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        return f"{self.share:.1%} of the weights are not adapted: {', '.join(names[:_SHOWN])}{more}"


def adapter_on(model: Any, rank: int, alpha: int, task: TaskType) -> LoraConfig:
    """Adapters for every linear layer but the head, experts included. The model is not changed."""
    options = {"r": rank, "lora_alpha": alpha, "lora_dropout": 0.0, "target_modules": "all-linear", "task_type": task}
    return LoraConfig(**options, target_parameters=without_adapter(model, LoraConfig(**options)) or None)


def attach(model: Any, config: LoraConfig, name: str = "default") -> Any:
    """The model with an adapter of this name in float32; its own weights are frozen."""
    with warnings.catch_warnings():
        # PEFT says so of every pattern that matches a parameter instead of a module; it is used all the same.
        warnings.filterwarnings("ignore", "The following (rank|alpha)_pattern keys", RuntimeWarning)
        if hasattr(model, "peft_config"):
            model.add_adapter(name, config)
            return model
        return get_peft_model(model, config, adapter_name=name)


def saved_adapter(folder: Path) -> LoraConfig:
    """The whole configuration of a saved adapter, for a language model: what stands above its trunk has another head.

    Raises InvalidInput if it can't be read, or if it was trained together with other weights than adapter and head.
    """
    try:
        config = LoraConfig.from_pretrained(str(folder))
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InvalidInput(f"{folder / _CONFIG} can't be read ({error}); train the reward model again") from error
    if others := sorted(set(config.modules_to_save or ()) - _HEADS):
        raise InvalidInput(f"{folder / _CONFIG} also trains {', '.join(others)}, which no other role can share")
    config.task_type, config.modules_to_save = TaskType.CAUSAL_LM, None
    config.lora_dropout, config.inference_mode = 0.0, False
    return config


def saved_weights(folder: Path) -> tuple[dict[str, Tensor], Tensor]:
    """A saved reward adapter's weights, and its head (1, d) in float32. Raises InvalidInput."""
    try:
        weights = load_file(folder / _WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise InvalidInput(f"{folder / _WEIGHTS} can't be read ({error}); train the reward model again") from error
    heads = [name for name in weights if name.endswith(HEAD)]
    if len(heads) != 1:
        raise InvalidInput("the reward model's adapter holds no scalar head named 'score'; train the model again")
    return weights, weights.pop(heads[0]).float()


def fill_adapter(model: Any, adapter: str, weights: Mapping[str, Tensor]) -> None:
    """Copy saved adapter weights into the adapter of this name. Raises InvalidInput unless each finds its place."""
    try:
        misplaced = set_peft_model_state_dict(model, dict(weights), adapter_name=adapter)
    except RuntimeError as error:
        raise _does_not_fit(" ".join(str(error).split())[:300]) from error
    surplus = sorted(misplaced.unexpected_keys)
    missing = sorted(name for name in misplaced.missing_keys if ".lora_" in name and f".{adapter}" in name)
    if problems := misfits(surplus, missing):
        raise _does_not_fit(problems)


def merged_state(model: Any, adapter: str | None) -> dict[str, Tensor]:
    """A model's weights as float32 on the CPU, with one adapter added to them and every other left out.

    PEFT merges each layer in a copy of it, one at a time: the model's own weights stay as they are, to the last bit.
    """
    layers = _outermost(model)
    inside = tuple(f"{name}." for name in layers)
    state = {name: each for name, each in model.state_dict().items() if not name.startswith(inside)}
    for name, layer in layers.items():
        merged = _merged(layer, adapter).state_dict()
        state |= {f"{name}.{kind}": each for kind, each in merged.items()}
    return {name: each.detach().float().cpu() for name, each in state.items()}


def not_adapted(model: Any) -> NotAdapted:
    """The matrices of a model with adapters that no adapter is on. Embeddings, the head, and vectors never have one."""
    adapted, skipped = set(), set()
    for layer in model.modules():
        if isinstance(layer, BaseTunerLayer):
            adapted.add(id(layer.get_param() if isinstance(layer, ParamWrapper) else layer.get_base_layer().weight))
        elif isinstance(layer, nn.Embedding):
            skipped.add(id(layer.weight))
    skipped |= {id(each) for head in _heads(model) for each in head.parameters()}
    own = {name: each for name, each in model.named_parameters() if ".lora_" not in name}
    numbers = Counter[str]()
    for name, each in own.items():
        if each.ndim >= 2 and not name.endswith("bias") and id(each) not in adapted | skipped:
            numbers[_without_number(name)] += each.numel()
    return NotAdapted(dict(numbers), sum(numbers.values()) / max(1, sum(each.numel() for each in own.values())))


def report_not_adapted(model: Any, recorder: Recorder) -> str:
    """Say in an event what training with adapters will leave as it is; the same in words, empty for nothing."""
    left = not_adapted(model)
    if not left.numbers:
        return ""
    recorder.event("weights_not_adapted", share=left.share, **left.numbers)
    return left.words


def copied_weights(model: Any) -> tuple[int, int]:
    """Bytes of experts and the like that PEFT makes anew, with their adapter, in each pass: of all layers together,
    which a pass with gradients keeps, and of the largest."""
    wrapped = [each.get_param() for each in model.modules() if isinstance(each, ParamWrapper)]
    sizes = [each.numel() * each.element_size() for each in wrapped]
    return sum(sizes), max(sizes, default=0)


def without_adapter(model: Any, plain: LoraConfig) -> list[str]:
    """What of a model with experts PEFT would put no adapter on: experts, their router, linear layers beside them.

    Tried on a copy without data. Names are those within a layer.
    """
    if not any(_is_expert(module, each) for module in model.modules() for each in module.parameters(recurse=False)):
        return []
    with torch.device("meta"):
        probe = attach(type(model)(model.config), plain).get_base_model()
    left, names = not_adapted(probe).numbers, set()
    for owner, module in probe.named_modules():
        for own, each in module.named_parameters(recurse=False):
            name = _without_number(f"{owner}.{own}")
            if name in left and (_is_expert(module, each) or (own == "weight" and each.ndim == 2)):
                names.add(_within_layer(name))
    return sorted(names)


def _is_expert(module: nn.Module, parameter: Tensor) -> bool:
    """Whether it holds the weights of several experts. torch's own modules hold kernels, of convolutions."""
    is_own = type(module).__module__.startswith("torch.nn")
    return parameter.ndim == 3 and parameter.shape[0] > 1 and not is_own


def _outermost(model: nn.Module) -> dict[str, BaseTunerLayer]:
    """Adapted layers by name; PEFT nests those of several parameters of one module."""
    layers: dict[str, BaseTunerLayer] = {}
    for name, module in model.named_modules():
        if isinstance(module, BaseTunerLayer) and not any(name.startswith(f"{outer}.") for outer in layers):
            layers[name] = module
    return layers


def _merged(layer: Any, adapter: str | None) -> nn.Module:
    copied = copy.deepcopy(layer).float()
    if adapter is None:
        return copied.get_base_layer()  # type: ignore[no-any-return]
    if hasattr(copied, "unload_and_optionally_merge_module"):
        words = {"merge": True, "safe_merge": False, "adapter_names": [adapter]}
        return copied.unload_and_optionally_merge_module(**words)  # type: ignore[no-any-return]
    copied.merge(adapter_names=[adapter])
    return copied.get_base_layer()  # type: ignore[no-any-return]


def _heads(model: Any) -> list[nn.Module]:
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    found = [inner.get_output_embeddings(), getattr(inner, "score", None)]
    return [each for each in found if each is not None]


def _without_number(name: str) -> str:
    """A weight's name in every layer alike, and as it was before adapters were put on."""
    plain = re.sub(r"(\.base_layer)+(?=\.)", "", name.removeprefix("base_model.model."))
    return re.sub(r"\.\d+(?=\.)", ".*", plain)


def _within_layer(name: str) -> str:
    return name.rpartition(".*.")[2]


def _does_not_fit(reason: str) -> InvalidInput:
    return InvalidInput(
        f"the reward model's adapter does not fit the policy: {reason}; train the reward model from the policy's own "
        "model, or with adapter=full"
    )
