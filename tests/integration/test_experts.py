"""Models of experts with adapters: what is learnt, scored and saved is what plain transformers makes of the files.

Experts lie in three-dimensional parameters, which PEFT wraps in another way than linear layers. Llama is the control.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from rig import Rig
from tiny import EXPERTS
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

import training.ppo_run
from training.encoding import pack
from training.roles import Roles, ScoredRow
from training.scorer import Scorer

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    # PEFT says so of patterns that match a parameter and no module; they are used all the same.
    pytest.mark.filterwarnings("ignore:The following (rank|alpha)_pattern keys:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:.*experimental.*:UserWarning"),
]
FAMILIES = ("llama", *EXPERTS)
# A merged weight is rounded to float32 once, the sums of two passes are in other orders: some hundred roundings of
# 6e-8 of numbers of size 1. What an adapter that is left out moves is 0.1 and more.
ROUNDING, MOVED = 1e-4, 1e-2
BATCH = pack([[3, 77, 78, 1, 4], [3, 90, 1, 4]], [[70, 71, 72, 1], [81, 1]], pad_id=0)


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("experts"))
    yield made
    made.close()


def scored_rows() -> list[ScoredRow]:
    asked = ({"role": "user", "content": "x"},)
    return [ScoredRow(asked, [3, 97, 1, 4], [*letters, 1], "") for letters in ([71, 72], [97, 98, 99], [90])]


@torch.no_grad()
def logprobs_of(folder: Any) -> Tensor:
    """Log-probabilities of the batch's response tokens, by plain transformers."""
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    logits = model(input_ids=BATCH.ids, attention_mask=BATCH.attention).logits
    row, token = BATCH.mask.nonzero(as_tuple=True)
    before = BATCH.prompt_lengths[row] + token - 1
    return torch.log_softmax(logits[row, before], -1)[torch.arange(len(row)), BATCH.ids[row, before + 1]]


@torch.no_grad()
def logprobs_in(roles: Roles, role: str = "policy") -> Tensor:
    found: Tensor = getattr(roles, role).token_scores(BATCH).logprobs[BATCH.mask]
    return found


@torch.no_grad()
def plain_scores(folder: Any, rows: list[ScoredRow]) -> Tensor:
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    return torch.cat([model(input_ids=torch.tensor([row.prompt + row.response])).logits[0] for row in rows])


def apart(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max())


def test_the_shared_reward_model_gives_the_scores_of_the_saved_one(family: str, rig: Rig) -> None:
    reward = rig.reward("lora", family)
    parts = rig.parts("shared", family, temperature=1.0)
    rig.finish(parts.reporter.run)
    found = parts.roles.reward_model.score(scored_rows())
    info = Scorer(rig.home, reward.id, parts.machine).info
    wanted = plain_scores(rig.folder(reward) / "model", scored_rows()) - info.shift
    assert apart(wanted[:1], wanted[1:]) > MOVED
    assert apart(found, wanted) < ROUNDING
    values = parts.roles.critic.values(BATCH).detach()
    ids = BATCH.ids[0, : int(BATCH.prompt_lengths[0]) + 3]
    row = ScoredRow((), ids[:-1].tolist(), ids[-1:].tolist(), "")
    critic = plain_scores(rig.folder(reward) / "model", [row]) - info.shift
    assert apart(values[0, 3], critic) < ROUNDING, "the critic starts as the reward model"
    assert apart(logprobs_in(parts.roles, "reference"), logprobs_of(rig.model(family))) < ROUNDING


def test_what_ppo_saves_is_what_was_in_memory(family: str, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Roles] = []

    built = training.ppo_run.build_roles

    def build(*words: Any) -> Roles:
        kept.append(built(*words))
        return kept[-1]

    monkeypatch.setattr(training.ppo_run, "build_roles", build)
    run = rig.here(rig.queue_ppo("shared", family, temperature=1.0, iterations=2, learning_rate=1e-2))
    (roles,), folder = kept, rig.folder(run)
    ours = logprobs_in(roles)
    assert apart(ours, logprobs_in(roles, "reference")) > MOVED
    assert apart(ours, logprobs_of(folder / "model")) < ROUNDING
