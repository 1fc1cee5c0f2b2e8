"""What a saved reward model said of a few texts, kept beside it; and how far off other ways to the numbers may be."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from data.errors import InvalidInput
from training.lm.models import Machine, write_json

# Of the largest number, or of 1 where all are smaller: sums of some thousand float32 products in another order, and a
# merged weight rounded once, differ by 1e-6 to 1e-5.
TOLERANCE = 1e-4
# In bf16, with 8 bits for a number, by some hundredths in the middle; by much more where rounding sends a token to
# another expert, so the median is looked at. HALF_OF_EFFECT: of what the adapters move, where that is known.
HALF_TOLERANCE, HALF_OF_EFFECT = 0.05, 0.25
RECORDED_FILE = "recorded_scores.json"  # in a reward run's folder
TEXTS = 8


def difference(what: str, found: Tensor, wanted: Tensor, *, is_half: bool, bare: Tensor | None = None) -> float:
    """The largest difference, in bf16 the median one. bare: the numbers with the adapters off.

    Raises InvalidInput if it is more than rounding explains, or no number.
    """
    found, wanted = (each.detach().double().cpu() for each in (found, wanted))
    largest, differences = float(wanted.abs().max()), (found - wanted).abs()
    if not is_half:
        apart, allowed = float(differences.max()), TOLERANCE * max(1.0, largest)
    else:
        apart, allowed = float(differences.median()), HALF_TOLERANCE * largest
        if bare is not None:
            allowed = HALF_OF_EFFECT * float((wanted - bare.detach().double().cpu()).abs().median())
    if not apart <= allowed:
        raise InvalidInput(
            f"{what}: off by {apart:.2g}, where rounding explains {allowed:.1g}; the run would learn from, or save, "
            "other numbers. Use adapter=full, or report this with the model's name"
        )
    return apart


def record_scores(folder: Path, texts: Sequence[Sequence[int]], scores: Tensor, machine: Machine) -> None:
    """Keep what a saved reward model said of a few texts: raw scores (N,), before its zero is taken from them."""
    content = {"texts": [list(text) for text in texts[:TEXTS]], "scores": scores[:TEXTS].tolist()}
    write_json(folder / RECORDED_FILE, content | {"is_bf16": machine.is_bf16})


def recorded_scores(path: Path) -> tuple[list[list[int]], Tensor, bool]:
    """The texts as ids, their raw scores (N,), and whether those are of bf16. Raises InvalidInput."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return content["texts"], torch.tensor(content["scores"]), bool(content["is_bf16"])
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"{path} can't be used ({error}); delete it, the saved model is then asked") from error
