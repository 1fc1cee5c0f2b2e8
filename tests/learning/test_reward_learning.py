"""Does the reward model find a planted preference, and nothing where there is none?"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from statistics import fmean
from typing import Any

import pytest
import torch
from rig import Rig, noisy_ranks_by_z, planted_responses
from scipy.stats import binom

from data.records import RunKind
from training.lm.models import Machine
from training.lm.scorer import Scorer

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::FutureWarning")]
CPU = Machine(torch.device("cpu"), is_bf16=False)


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("reward-learning"))
    yield made
    made.close()


@pytest.mark.parametrize(
    ("adapter", "rate", "more"),
    [
        ("lora", 1e-2, {}),
        pytest.param("full", 3e-3, {}, marks=pytest.mark.long),
        pytest.param("lora", 1e-2, {"loss": "plackett-luce"}, marks=pytest.mark.long),
        pytest.param("lora", 1e-2, {"ties": "half", "heads": 3}, marks=pytest.mark.long),
    ],
)
def test_a_planted_preference_is_found(adapter: str, rate: float, more: dict[str, Any], rig: Rig) -> None:
    """The more of one letter the better; responses differ in length, which alone would be right on 83 % of pairs."""
    snapshot = rig.snapshot(rig.project(n_prompts=200, lengths=(1, 8)))
    words = {"model": rig.model(), "adapter": adapter, "learning_rate": rate, "epochs": 5} | more
    run = rig.here(rig.queue(RunKind.REWARD, snapshot=snapshot, **words))
    found = run.result["held_out"]
    assert run.result["held_out_rankings"] > 30
    assert found["pair_accuracy"] > 0.95
    assert found["length_accuracy"] < 0.9
    assert found["exact_order"] > 0.8
    report = json.loads((rig.folder(run) / "report.json").read_text(encoding="utf-8"))
    assert report["model"]["length"]["is_beaten"]
    assert report["model"]["pair_accuracy"]["low"] > 0.9
    assert report["model"]["best_of"][-1]["value"] > 0.9  # people tie responses: the best beats 0.94


def test_a_planted_utility_is_recovered_from_noisy_rankings(rig: Rig) -> None:
    """Annotators see the utility with noise, so they are right on some 72 % of pairs; the model is all the same."""
    project = rig.project(n_prompts=300, lengths=(1, 8), ranks=noisy_ranks_by_z(random.Random(0)))
    words = {"model": rig.model(), "learning_rate": 1e-2, "epochs": 2}
    run = rig.here(rig.queue(RunKind.REWARD, snapshot=rig.snapshot(project), **words))
    # Texts that nobody ranked, for one prompt: between prompts rankings say nothing of the zero.
    texts = planted_responses(random.Random(99), k=300, lengths=(1, 8))
    asked = ({"role": "user", "content": "prompt 999"},)
    scores = Scorer(rig.home, run.id, CPU).score([(asked, text) for text in texts])
    counts = torch.tensor([float(text.count("z")) for text in texts])
    assert torch.corrcoef(torch.stack([scores, counts]))[0, 1].item() > 0.95
    # Pairs of texts that differ in utility, each way of looking at 300 of them.
    pairs = [(a, b) for a in range(300) for b in range(300) if counts[a] > counts[b]]
    assert fmean(float(scores[a] > scores[b]) for a, b in pairs) > 0.95


def test_where_annotators_rank_at_random_nothing_is_found(rig: Rig) -> None:
    """Two responses each, so that held-out pairs are independent: the accuracy is a coin's, for one seed in 10,000."""
    rng = random.Random(4)
    project = rig.project(n_prompts=240, k=2, lengths=(1, 8), ranks=lambda _: rng.sample([1, 2], 2))
    snapshot = rig.snapshot(project, eval_share=0.5)
    words = {"model": rig.model(), "learning_rate": 1e-2, "epochs": 3}
    run = rig.here(rig.queue(RunKind.REWARD, snapshot=snapshot, **words))
    n = run.result["held_out_rankings"]
    low, high = binom.interval(0.9999, n, 0.5)
    assert n > 80
    assert low / n <= run.result["held_out"]["pair_accuracy"] <= high / n
    assert run.result["held_out"]["loss"] > 0.65  # far from the 0.1 of a preference that is there
    report = json.loads((rig.folder(run) / "report.json").read_text(encoding="utf-8"))
    for found in (report["model"]["pair_accuracy"], report["instant"]["pair_accuracy"]):
        assert found["n"] == n and low / n <= found["value"] <= high / n
        assert found["low"] < 0.5 < found["high"]  # of 95 %, with fixed seeds
    assert not report["model"]["length"]["is_beaten"]


def test_rankings_in_reverse_give_the_reverse_score(rig: Rig) -> None:
    def reverse(texts: list[str]) -> list[int]:
        counts = [text.count("z") for text in texts]
        return [1 + sum(other < mine for other in counts) for mine in counts]

    snapshot = rig.snapshot(rig.project(n_prompts=80, ranks=reverse))
    words = {"model": rig.model(), "learning_rate": 1e-2, "epochs": 4}
    run = rig.here(rig.queue(RunKind.REWARD, snapshot=snapshot, **words))
    scores = Scorer(rig.home, run.id, CPU).score(
        [(({"role": "user", "content": "x"},), text) for text in ("zzzzab", "zzabab", "ababab")]
    )
    assert scores[0] < scores[1] < scores[2]
