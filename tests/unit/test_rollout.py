"""One rollout: what is recorded of each sampled response, and that batching does not matter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from rig import LAYOUTS, Parts, Rig
from tiny import END
from transformers import AutoModelForCausalLM

from training.jobs.reporter import Cancelled
from training.launch.config import PPOConfig
from training.lm.encoding import pack
from training.lm.scorer import Scorer
from training.ppo.rollout import Rollout, micro_batches_of, sample_rollout

pytestmark = [pytest.mark.slow, pytest.mark.float64, pytest.mark.filterwarnings("ignore::FutureWarning")]
WORDS = {"responses_per_prompt": 3, "max_new_tokens": 12}


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("rollout"))
    # A model that ends often: some responses end, some are cut off.
    made.model("llama", tie_word_embeddings=False)
    tilt(made.model("llama"))
    yield made
    made.close()


def tilt(folder: str) -> None:
    """Make the end token likelier than others at some places and unlikelier at others."""
    model = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        model.lm_head.weight[END] *= 15
    model.save_pretrained(folder)


@pytest.fixture(scope="module", params=LAYOUTS)
def parts(request: pytest.FixtureRequest, rig: Rig) -> Parts:
    return rig.parts(request.param, **WORDS)


def sample(parts: Parts, n: int = 4, iteration: int = 0, check: Any = lambda: None, **changes: Any) -> Rollout:
    config = PPOConfig(**({name: getattr(parts.config, name) for name in PPOConfig.__dataclass_fields__} | changes))
    return sample_rollout(parts.roles, parts.prompts[:n], config, parts.encoder, parts.machine, iteration, check=check)


def test_everything_recorded_is_what_plain_transformers_says_of_the_same_ids(parts: Parts, rig: Rig) -> None:
    rollout = sample(parts)
    model = AutoModelForCausalLM.from_pretrained(rig.model())
    assert len(rollout.rows) == 12
    for row, sampled in enumerate(rollout.rows):
        n = len(sampled.response)
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([sampled.prompt + sampled.response])).logits[0]
        table = torch.log_softmax(logits[len(sampled.prompt) - 1 : -1] / parts.config.temperature, dim=-1)
        wanted = [table[place, token].item() for place, token in enumerate(sampled.response)]
        entropies = (-(table.exp() * table).sum(-1)).tolist()
        assert rollout.old_logprobs[row, :n].tolist() == pytest.approx(wanted, abs=1e-10)
        assert rollout.ref_logprobs[row, :n].tolist() == pytest.approx(wanted, abs=1e-10)
        assert rollout.entropy[row, :n].tolist() == pytest.approx(entropies, abs=1e-10)
        assert rollout.batch.mask[row].tolist() == [True] * n + [False] * (rollout.batch.mask.shape[1] - n)
    for each in (rollout.old_logprobs, rollout.ref_logprobs, rollout.old_values, rollout.entropy):
        assert each.shape == rollout.batch.mask.shape
        assert (each[~rollout.batch.mask] == 0).all()
        assert not each.requires_grad


def test_before_the_first_update_the_kl_is_exactly_zero(parts: Parts) -> None:
    rollout = sample(parts)
    assert torch.equal(rollout.old_logprobs, rollout.ref_logprobs)


def test_a_response_ends_with_its_first_end_token_or_at_the_limit(parts: Parts) -> None:
    rollout = sample(parts)
    assert 0 < rollout.ended.sum() < len(rollout.rows), "the test needs responses of both sorts"
    for row, sampled in enumerate(rollout.rows):
        assert sampled.response.count(END) == int(rollout.ended[row])
        assert (sampled.response[-1] == END) == bool(rollout.ended[row])
        assert bool(rollout.ended[row]) or len(sampled.response) == 12
        assert sampled.text == parts.encoder.decode(sampled.response)


def test_responses_of_a_prompt_stand_together_and_differ(parts: Parts) -> None:
    rollout = sample(parts)
    owners = [row.prompt for row in rollout.rows]
    assert owners == [prompt.ids for prompt in parts.prompts[:4] for _ in range(3)]
    assert len({(*row.prompt, *row.response) for row in rollout.rows}) > 6


def test_scores_are_the_scorers_of_the_same_ids_with_an_end(parts: Parts, rig: Rig) -> None:
    rollout = sample(parts)
    scorer = Scorer(rig.home, parts.reporter.run.reward_run_id or "", parts.machine)
    wanted = scorer.score_ids(
        [row.prompt + [each for each in row.response if each != END] + [END] for row in rollout.rows]
    )
    assert rollout.scores.tolist() == pytest.approx(wanted.tolist(), abs=1e-10)


@pytest.mark.parametrize("tokens", [1, 40, 4096])
def test_how_rows_are_batched_changes_nothing(parts: Parts, tokens: int) -> None:
    usual, other = sample(parts), sample(parts, micro_batch_tokens=tokens, batch_size=1)
    assert [row.response for row in usual.rows] == [row.response for row in other.rows]
    for name in ("old_logprobs", "ref_logprobs", "old_values", "entropy", "scores"):
        assert torch.allclose(getattr(usual, name), getattr(other, name), atol=1e-10, rtol=0)


def test_the_same_iteration_draws_the_same_and_another_one_other_texts(parts: Parts) -> None:
    first, again, later = sample(parts), sample(parts), sample(parts, iteration=1)
    assert [row.response for row in first.rows] == [row.response for row in again.rows]
    assert torch.equal(first.old_logprobs, again.old_logprobs)
    assert [row.response for row in first.rows] != [row.response for row in later.rows]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_it_is_the_policy_that_samples_whichever_role_was_asked_last(layout: str, rig: Rig) -> None:
    parts = rig.parts(layout, **WORDS)
    with torch.no_grad():  # a policy that has moved from its reference
        for each in parts.roles.policy_parameters.values():
            each.add_(0.02 * torch.sin(torch.arange(each.numel(), dtype=torch.float32)).reshape(each.shape))
    parts.roles.policy.trunk.activate()
    first = sample(parts)
    for role in (parts.roles.reference.trunk, parts.roles.critic.trunk):
        role.activate()
        again = sample(parts)
        assert [row.response for row in again.rows] == [row.response for row in first.rows]
        assert torch.equal(again.old_logprobs, first.old_logprobs)
    assert not torch.equal(first.old_logprobs, first.ref_logprobs)


def test_a_request_to_stop_is_heard_anywhere_in_a_rollout(parts: Parts) -> None:
    calls: list[int] = []
    sample(parts, check=lambda: calls.append(1), micro_batch_tokens=40)
    n_forwards = len(calls)
    assert n_forwards > 12 + 4  # between tokens, and between the passes of the four roles

    def stop() -> None:
        calls.append(1)
        if len(calls) == n_forwards:
            raise Cancelled("stop")

    calls.clear()
    with pytest.raises(Cancelled):
        sample(parts, check=stop, micro_batch_tokens=40)


def test_the_sampling_temperature_is_in_every_log_probability(rig: Rig) -> None:
    parts = rig.parts("shared", temperature=1.7, **WORDS)
    rollout = sample(parts)
    model = AutoModelForCausalLM.from_pretrained(rig.model())
    row = rollout.rows[0]
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([row.prompt + row.response])).logits[0, len(row.prompt) - 1]
    for temperature, is_right in ((1.7, True), (1.0, False)):
        wanted = torch.log_softmax(logits / temperature, 0)[row.response[0]].item()
        assert (rollout.old_logprobs[0, 0].item() == pytest.approx(wanted, abs=1e-10)) == is_right


lengths = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=12)


@given(lengths, st.integers(1, 60), st.randoms(use_true_random=False))
def test_micro_batches_hold_every_row_once_and_stay_within_their_size(
    drawn: list[tuple[int, int]], tokens: int, rng: Any
) -> None:
    batch = pack([[5] * n for n, _ in drawn], [[6] * n for _, n in drawn], pad_id=0)
    wanted = sorted(rng.sample(range(len(drawn)), rng.randint(1, len(drawn))))
    batch = batch.rows(torch.tensor(wanted))
    lots = list(micro_batches_of(batch, tokens))
    assert sorted(row for lot in lots for row in lot.tolist()) == list(range(len(wanted)))
    for lot in lots:
        part = batch.rows(lot)
        assert len(lot) == 1 or part.ids.numel() <= tokens
    widths = [batch.rows(lot).ids.shape[1] for lot in lots]
    assert widths == sorted(widths)  # similar lengths together: little padding
