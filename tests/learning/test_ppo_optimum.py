"""PPO against the one policy that is best: pi*(y|x) proportional to pi_ref(y|x) * exp(r(x,y) / kl_coef).

Responses are so short, and the vocabulary so small, that every response there is can be written down. The reward is a
table, so the optimum is known, and how far the trained policy is from it is exact.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from rig import Rig
from tiny import END, PAD, tiny_language_model
from torch import Tensor, nn

from data.fields import from_dict
from training.launch.config import PPOConfig
from training.lm.encoding import pack
from training.lm.models import ModelSource as Source
from training.lm.models import backbone, load_encoder, set_up_machine
from training.ppo.learner import Learner
from training.ppo.loop import train
from training.ppo.roles import Critic, Policy, Roles, ScoredRow, Trunk
from training.ppo.rollout import PromptItem

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::FutureWarning")]
VOCABULARY = 9
CASES = pytest.mark.parametrize(
    ("seed", "kl_coef"),
    [
        (0, 0.5),
        *(pytest.param(s, c, marks=pytest.mark.long) for c in (0.5, 1.0) for s in (0, 1, 2) if (s, c) != (0, 0.5)),
    ],
)
PROMPT = [3, 5]
Response = tuple[int, ...]


def responses_of(longest: int) -> list[Response]:
    """Every response of at most `longest` tokens: each ends with the end token or at the limit."""
    found: list[Response] = []
    for length in range(1, longest + 1):
        for each in itertools.product(range(VOCABULARY), repeat=length):
            if END not in each[:-1] and (length == longest or each[-1] == END):
                found.append(each)
    return found


class Table:
    """A reward model that is a table of all responses."""

    def __init__(self, responses: list[Response], seed: int) -> None:
        drawn = torch.randn(len(responses), generator=torch.Generator().manual_seed(seed))
        self.scores = dict(zip(responses, drawn.tolist(), strict=True))

    def score(self, rows: list[ScoredRow]) -> Tensor:
        return torch.tensor([self.scores[tuple(row.response)] for row in rows])

    def spread(self, _rows: list[ScoredRow]) -> None:
        return None


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("optimum"))
    yield made
    made.close()


@torch.no_grad()
def log_distribution(policy: Policy, responses: list[Response]) -> Tensor:
    """Log-probability of every response, (N,) float64; they sum to 1."""
    batch = pack([PROMPT] * len(responses), responses, PAD)
    return policy.token_scores(batch).logprobs.double().sum(1)


def four_roles(table: Table, machine: Any, seed: int) -> Roles:
    """Full models of one layer and nine tokens; the critic starts at 0."""
    shape = {"vocab_size": VOCABULARY, "num_hidden_layers": 1, "tie_word_embeddings": False, "initializer_range": 0.2}
    model = tiny_language_model(seed, **shape)
    frozen, trunk = copy.deepcopy(model).requires_grad_(False), backbone(copy.deepcopy(model))
    head = nn.Linear(32, 1)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    named = {f"trunk.{name}": each for name, each in trunk.named_parameters()}
    return Roles(
        policy=Policy(Trunk(backbone(model), machine), model, 1.0),
        reference=Policy(Trunk(backbone(frozen), machine), frozen, 1.0),
        critic=Critic(Trunk(trunk, machine), head),
        reward_model=table,
        policy_parameters=dict(model.named_parameters()),
        critic_parameters=named | {"head.weight": head.weight, "head.bias": head.bias},
    )


def distance_from_optimum(rig: Rig, longest: int, seed: int, **changes: Any) -> tuple[float, float]:
    """Train, and return KL(policy, optimum) before and after, in nats."""
    words: dict[str, Any] = {
        "threads": 1, "seed": seed, "adapter": "full", "max_new_tokens": longest, "prompts_per_iteration": 256,
        "batch_size": 256, "ppo_epochs": 2, "minibatches": 2, "missing_eos_penalty": 0.0, "checkpoint_every": 10**6,
        "gae_lambda": 1.0, "micro_batch_tokens": 10**6, "value_clip_range": None, "token_rows": 0, "sample_rows": 0,
    }  # fmt: skip
    config = from_dict(PPOConfig, words | changes)
    run = rig.queue_ppo(seed=seed)
    rig.claim(run)
    machine, responses = set_up_machine(config.machine), responses_of(longest)
    table = Table(responses, seed)
    roles = four_roles(table, machine, seed)
    reference = log_distribution(roles.reference, responses)
    # Log-probabilities in float32 are off by up to 2^-24 of themselves, and so are their probabilities as a whole.
    assert reference.exp().sum().item() == pytest.approx(1, abs=2 * 2**-24 * reference.abs().max().item())
    wanted = reference + torch.tensor(list(table.scores.values()), dtype=torch.float64) / config.kl.coef
    optimum = wanted - wanted.logsumexp(0)

    def distance() -> float:
        now = log_distribution(roles.policy, responses)
        return float((now.exp() * (now - optimum)).sum())

    before = distance()
    optimizers = [
        torch.optim.AdamW(list(each.values()), lr=1e-3, weight_decay=0.0)
        for each in (roles.policy_parameters, roles.critic_parameters)
    ]
    learner = Learner(roles, *optimizers, kl_coef=config.kl.coef)
    for rate in (1e-3, 1e-3, 1e-3, 3e-4):  # a constant one ends in a random walk around the optimum
        for optimizer in optimizers:
            optimizer.param_groups[0]["lr"] = rate
        stage = from_dict(PPOConfig, words | changes | {"iterations": learner.iteration + config.iterations // 4})
        encoder = load_encoder(Source("m", rig.model(), ""))
        prompts = [PromptItem("one", ({"role": "user", "content": "x"},), PROMPT)]
        train(stage, learner, prompts, encoder, machine, rig.reporter(run))
    rig.finish(run)
    return before, distance()


@CASES
def test_one_token_responses_reach_the_optimum(rig: Rig, seed: int, kl_coef: float) -> None:
    before, after = distance_from_optimum(rig, 1, seed, kl_coef=kl_coef, iterations=40)
    assert before > 0.1
    assert after < 0.02


@CASES
def test_two_token_responses_reach_the_optimum(rig: Rig, seed: int, kl_coef: float) -> None:
    before, after = distance_from_optimum(rig, 2, seed, kl_coef=kl_coef, iterations=100)
    assert before > 0.1
    assert after < 0.02
