"""Responses to a prompt that share it in PPO's forward passes: the same numbers and gradients, for fewer tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rig import LAYOUTS, Parts, Rig
from tiny import END
from torch import Tensor

from training.lm.encoding import Sequences, pack
from training.lm.packing import rows_of_batch
from training.ppo.loop import minibatches
from training.ppo.roles import ScoredRow
from training.ppo.rollout import micro_batches_of
from training.ppo.sharing import check_shared_roles

pytestmark = [
    pytest.mark.slow,
    pytest.mark.float64,
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:fan_in_fan_out:UserWarning"),
]
PROMPTS = [[3, 77, 78, 1, 4], [3, 90, 1, 4]]
RESPONSES = [[70, 71, 72, END], [80], [81, 82, END], [83, 84, 85, 86, END], [87, END], [88, 89]]


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("shared"))
    yield made
    made.close()


@pytest.fixture
def batch() -> Sequences:
    """Three responses to each of two prompts, not in the order of the prompts, and another beginning the same way."""
    prompts = [PROMPTS[place % 2] for place in range(6)]
    return pack([*prompts, PROMPTS[0][:3]], [*RESPONSES, [70, END]], pad_id=0)


def numbers_of(parts: Parts, batch: Sequences) -> tuple[list[Tensor], dict[str, Tensor], int]:
    """What policy, reference and critic say of a batch, every gradient, and how many tokens the models read."""
    roles, read = parts.roles, list[int]()
    trunks = {id(each.model): each.model for each in (roles.policy.trunk, roles.critic.trunk)}

    def count(_model: Any, _given: Any, words: dict[str, Tensor]) -> None:
        read.append(words["input_ids"].numel())

    hooks = [model.register_forward_pre_hook(count, with_kwargs=True) for model in trunks.values()]
    scores, reference = roles.policy.token_scores(batch, with_entropy=True), roles.reference.token_scores(batch)
    outputs = [scores.logprobs, scores.entropy, reference.logprobs]
    mix = torch.linspace(-1, 1, int(batch.mask.sum()))
    (scores.logprobs[batch.mask] * mix).sum().backward()
    outputs.append(roles.critic.values(batch))
    (outputs[-1][batch.mask] * mix).sum().backward()
    for hook in hooks:
        hook.remove()
    parameters = roles.policy_parameters | {f"critic.{name}": each for name, each in roles.critic_parameters.items()}
    gradients = {name: each.grad.clone() for name, each in parameters.items() if each.grad is not None}
    for each in parameters.values():
        each.grad = None
    return [each.detach() for each in outputs], gradients, sum(read)


@pytest.mark.parametrize("family", ["llama", "qwen2", "gpt2"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_shared_prompt_changes_no_number_and_no_gradient(
    layout: str, family: str, rig: Rig, batch: Sequences
) -> None:
    parts = rig.parts(layout, family)
    with torch.no_grad():
        for each in parts.roles.policy_parameters.values():
            each.add_(0.02)  # an adapter that does nothing would hide a wrong gradient
    (wanted, gradients, many) = numbers_of(parts, batch)
    parts.roles.share_prompts(wanted=True)
    assert parts.roles.shares_prompts
    (found, others, few) = numbers_of(parts, batch)
    for one, other in zip(wanted, found, strict=True):
        assert one.abs().max() > 0.01
        assert (one - other).abs().max() < 1e-10
    assert others.keys() == gradients.keys()
    for name, gradient in gradients.items():
        assert (others[name] - gradient).abs().max() < 1e-10 * max(1.0, float(gradient.abs().max())), name
    assert few < 0.8 * many


def test_a_batch_without_a_common_prompt_is_read_without_its_padding(rig: Rig) -> None:
    parts, batch = rig.parts("full"), pack(PROMPTS, RESPONSES[:2], pad_id=0)
    wanted, _, tokens = numbers_of(parts, batch)
    parts.roles.share_prompts(wanted=True)
    found, _, others = numbers_of(parts, batch)
    assert tokens == 2 * batch.ids.numel() > others == 2 * int(batch.attention.sum())  # of the policy and the critic
    for one, other in zip(wanted, found, strict=True):
        assert (one - other).abs().max() < 1e-10


def test_a_batch_of_one_length_is_read_as_before(rig: Rig) -> None:
    parts, batch = rig.parts("full"), pack([PROMPTS[0], PROMPTS[0][::-1]], [RESPONSES[0]] * 2, pad_id=0)
    wanted, _, tokens = numbers_of(parts, batch)
    parts.roles.share_prompts(wanted=True)
    found, _, others = numbers_of(parts, batch)
    assert tokens == others
    assert all(torch.equal(one, other) for one, other in zip(wanted, found, strict=True))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_check_holds_and_leaves_nothing_behind(layout: str, rig: Rig) -> None:
    parts = rig.parts(layout)
    found = check_shared_roles(parts.roles, parts.prompts, parts.encoder, 64)
    assert found.holds, found
    assert 0 < found.output_difference < 1e-10 and found.gradient_difference < 1e-10
    assert not parts.roles.shares_prompts
    parameters = [*parts.roles.policy_parameters.values(), *parts.roles.critic_parameters.values()]
    assert all(each.grad is None for each in parameters)


@pytest.mark.float32
def test_in_half_precision_the_check_has_a_wider_limit(rig: Rig) -> None:
    parts = rig.parts("shared", precision="bf16")
    found = check_shared_roles(parts.roles, parts.prompts, parts.encoder, 64)
    assert found.holds and found.gradient_difference > 1e-4


def test_a_model_that_ignores_positions_is_found_out(rig: Rig) -> None:
    class Forgetful(torch.nn.Module):
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner, self.config = inner, inner.config

        def forward(self, **words: Any) -> Any:
            return self.inner(**{name: value for name, value in words.items() if name != "position_ids"})

    for role in ("critic", "reward_model"):
        parts = rig.parts("shared")
        trunk = getattr(parts.roles, role).trunk
        trunk.model = Forgetful(trunk.model)
        found = check_shared_roles(parts.roles, parts.prompts, parts.encoder, 64)
        assert found.reason == "the model gives other numbers that way"
        assert not parts.roles.shares_prompts


def test_a_policy_that_caps_its_logits_keeps_a_pass_for_each_response(rig: Rig) -> None:
    parts = rig.parts("full")
    parts.roles.policy.has_plain_head = False
    assert "capped" in check_shared_roles(parts.roles, parts.prompts, parts.encoder, 64).reason


def test_a_window_shorter_than_the_texts_speaks_against_it(rig: Rig) -> None:
    parts = rig.parts("full")
    parts.roles.reward_model.model.config.sliding_window = 16
    assert "window of 16 tokens" in check_shared_roles(parts.roles, parts.prompts, parts.encoder, 64).reason
    assert check_shared_roles(parts.roles, parts.prompts, parts.encoder, 16).holds


def test_a_reward_model_that_reads_longer_texts_has_its_own_length(rig: Rig) -> None:
    """With facts, or encoded again, its texts are longer than the policy's: a window may cut them alone."""
    parts = rig.parts("full")
    model = parts.roles.reward_model
    model.model.config.sliding_window = 16
    model.reading = replace(model.reading, info=replace(model.reading.info, reads_facts=True))
    assert "window of 16 tokens" in check_shared_roles(parts.roles, parts.prompts, parts.encoder, 16).reason


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_shared_prompt_changes_no_score(layout: str, rig: Rig) -> None:
    """Ended and cut-off responses, in the order in which they were given; one read alone has its score too."""
    parts = rig.parts(layout)
    model, messages = parts.roles.reward_model, ({"role": "user", "content": "hello"},)
    prompts = [parts.encoder.prompt_ids(messages), PROMPTS[0]]
    rows = [
        ScoredRow(messages, prompts[place % 2], response, parts.encoder.decode(response))
        for place, response in enumerate(RESPONSES)
    ]
    wanted = model.score(rows)
    model.share_prompts(wanted=True)
    assert wanted.std() > 1e-3
    assert model.score(rows).tolist() == pytest.approx(wanted.tolist(), abs=1e-10)
    assert model.score(rows[2:3]).tolist() == pytest.approx(wanted[2:3].tolist(), abs=1e-10)


drawn = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 3), st.integers(1, 9)), min_size=1, max_size=14)


@given(drawn, st.integers(1, 60), st.randoms(use_true_random=False))
def test_lots_of_shared_prompts_hold_every_row_once_and_stay_within_their_size(
    shapes: list[tuple[int, int, int]], tokens: int, rng: Any
) -> None:
    batch = pack([[key] * n for n, key, _ in shapes], [[6] * n for _, _, n in shapes], pad_id=0)
    wanted = sorted(rng.sample(range(len(shapes)), rng.randint(1, len(shapes))))
    batch = batch.rows(torch.tensor(wanted))
    lots = list(micro_batches_of(batch, tokens, is_shared=True))
    assert sorted(row for lot in lots for row in lot.tolist()) == list(range(len(wanted)))
    for lot in lots:
        rows = rows_of_batch(batch.rows(lot))
        assert len(lot) == 1 or sum(row.n_tokens for row in rows) <= tokens
    assert len(lots) <= len(list(micro_batches_of(batch, tokens)))


def test_minibatches_keep_the_responses_to_a_prompt_together_where_they_can(rig: Rig) -> None:
    config = replace(rig.parts("shared", prompts_per_iteration=6).config, responses_per_prompt=4, minibatches=3)
    lots = [lot.tolist() for lot in minibatches(config, 1, 0, 24)]
    assert sorted(row for lot in lots for row in lot) == list(range(24))
    assert [len({row // 4 for row in lot}) for lot in lots] == [2, 2, 2]
    scattered = replace(config, minibatches=8)  # six prompts can't be dealt out to eight
    lots = [lot.tolist() for lot in minibatches(scattered, 1, 0, 24)]
    assert sorted(row for lot in lots for row in lot) == list(range(24))
    assert max(len({row // 4 for row in lot}) for lot in lots) > 1
