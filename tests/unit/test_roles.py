"""The four roles in every layout: each computes what plain transformers computes, and trains its own weights only."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from rig import LAYOUTS, Parts, Rig
from safetensors.torch import load_file, save_file
from tiny import END, save_tiny_model, tiny_tokenizer
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

import training.ppo.roles
from data.errors import InvalidInput
from data.records import Run, RunKind
from training.lm.encoding import Encoder, Sequences, pack
from training.lm.models import Machine, ModelSource, load_language_model, weights_hash
from training.lm.scorer import Scorer
from training.ppo.roles import Policy, ScoredRow, SeparateRewardModel, SharedRewardModel, Trunk, ended_text

pytestmark = [
    pytest.mark.slow,
    pytest.mark.float64,
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:fan_in_fan_out:UserWarning"),
]
CPU = Machine(torch.device("cpu"), is_bf16=False)
PROMPTS = [[3, 77, 78, 1, 4], [3, 90, 1, 4], [3, 91, 92, 93, 94, 95, 1, 4]]
RESPONSES = [[70, 71, 72, END], [80], [81, 82, END]]


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("roles"))
    yield made
    made.close()


@pytest.fixture(scope="module", params=LAYOUTS)
def parts(request: pytest.FixtureRequest, rig: Rig) -> Parts:
    """One run of each layout, for tests that change nothing in it."""
    return rig.parts(request.param)


@pytest.fixture
def batch() -> Sequences:
    return pack(PROMPTS, RESPONSES, pad_id=0)


def rows_of(parts: Parts) -> list[ScoredRow]:
    messages = ({"role": "user", "content": "hello"},)
    prompt = parts.encoder.prompt_ids(messages)
    return [ScoredRow(messages, prompt, response, parts.encoder.decode(response)) for response in RESPONSES]


@torch.no_grad()
def plain_log_probabilities(model: Any, temperature: float) -> tuple[list[list[float]], list[list[float]]]:
    """Log-probabilities and entropies of the responses, each text alone and without padding."""
    logprobs, entropies = [], []
    for prompt, response in zip(PROMPTS, RESPONSES, strict=True):
        logits = model(input_ids=torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1].double()
        table = torch.log_softmax(logits / temperature, dim=-1)
        logprobs.append([table[place, token].item() for place, token in enumerate(response)])
        entropies.append((-(table.exp() * table).sum(-1)).tolist())
    return logprobs, entropies


def assert_rows(found: Tensor, wanted: list[list[float]], batch: Sequences) -> None:
    for row, values in enumerate(wanted):
        assert found[row, : len(values)].tolist() == pytest.approx(values, abs=1e-10)
    assert (found[~batch.mask] == 0).all()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_layout_follows_the_adapters(layout: str, rig: Rig) -> None:
    parts = rig.parts(layout)
    assert isinstance(parts.roles.reward_model, SharedRewardModel if layout == "shared" else SeparateRewardModel)
    (event,) = rig.events(parts.reporter.run, "roles")
    assert event.detail["layout"].startswith("one base" if layout == "shared" else "separate")
    trained = [*parts.roles.policy_parameters.values(), *parts.roles.critic_parameters.values()]
    assert event.detail["trained_parameters"] == sum(each.numel() for each in trained)
    is_lora = all(".lora_" in name for name in parts.roles.policy_parameters)
    assert is_lora == (layout != "full")


def test_log_probabilities_are_those_of_a_plain_forward_pass(parts: Parts, batch: Sequences, rig: Rig) -> None:
    logprobs, entropies = plain_log_probabilities(AutoModelForCausalLM.from_pretrained(rig.model()), 0.7)
    for role in (parts.roles.policy, parts.roles.reference):
        found = role.token_scores(batch, with_entropy=True)
        assert_rows(found.logprobs, logprobs, batch)
        assert_rows(found.entropy, entropies, batch)


def test_policy_and_reference_are_equal_to_the_last_bit_before_the_first_update(parts: Parts, batch: Sequences) -> None:
    one, other = (role.token_scores(batch).logprobs for role in (parts.roles.policy, parts.roles.reference))
    assert torch.equal(one, other)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_reference_stays_what_it_was_when_the_policy_moves(layout: str, rig: Rig, batch: Sequences) -> None:
    roles = rig.parts(layout).roles
    before = roles.reference.token_scores(batch).logprobs
    scores, values = roles.reward_model.score(rows_of(rig.parts(layout))), roles.critic.values(batch)
    with torch.no_grad():
        for each in roles.policy_parameters.values():
            each.add_(0.1)
    assert (roles.policy.token_scores(batch).logprobs - before)[batch.mask].abs().min() > 1e-3
    assert torch.equal(roles.reference.token_scores(batch).logprobs, before)
    assert torch.equal(roles.critic.values(batch), values)
    assert torch.equal(roles.reward_model.score(rows_of(rig.parts(layout))), scores)


@pytest.mark.parametrize("family", ["qwen2", "gpt2"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_other_families_agree_with_plain_transformers_too(family: str, layout: str, rig: Rig) -> None:
    parts, batch = rig.parts(layout, family), pack(PROMPTS, RESPONSES, pad_id=0)
    wanted, _ = plain_log_probabilities(AutoModelForCausalLM.from_pretrained(rig.model(family)), 0.7)
    found = parts.roles.policy.token_scores(batch).logprobs
    assert_rows(found, wanted, batch)
    assert torch.equal(found, parts.roles.reference.token_scores(batch).logprobs)
    assert_values_are_those_of_the_reward_model(
        parts, rig, rig.reward("lora" if layout == "shared" else "full", family)
    )


@pytest.mark.float32
def test_in_half_precision_policy_and_reference_are_equal_too(rig: Rig, batch: Sequences) -> None:
    for layout in LAYOUTS:
        parts = rig.parts(layout, precision="bf16")
        policy = parts.roles.policy.token_scores(batch).logprobs
        assert policy.dtype == torch.float32
        assert torch.equal(policy, parts.roles.reference.token_scores(batch).logprobs)


def assert_values_are_those_of_the_reward_model(parts: Parts, rig: Rig, reward: Run) -> None:
    """The critic starts as the reward model, read before each token, in the zero of the scores."""
    batch = pack(PROMPTS, RESPONSES, pad_id=0)
    model = AutoModelForSequenceClassification.from_pretrained(rig.folder(reward) / "model").eval()
    wanted = []
    with torch.no_grad():
        for prompt, response in zip(PROMPTS, RESPONSES, strict=True):
            states = model.base_model(input_ids=torch.tensor([prompt + response])).last_hidden_state[0]
            values = model.score(states).squeeze(-1) - reward.result["shift"]
            wanted.append(values[len(prompt) - 1 : -1].tolist())
    assert_rows(parts.roles.critic.values(batch).detach(), wanted, batch)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_values_stand_before_each_token(layout: str, rig: Rig) -> None:
    reward = rig.reward("lora" if layout == "shared" else "full")
    assert_values_are_those_of_the_reward_model(rig.parts(layout), rig, reward)


def test_scores_are_those_of_the_scorer(parts: Parts, rig: Rig) -> None:
    reward_run = parts.reporter.run.reward_run_id or ""
    rows = rows_of(parts)
    wanted = Scorer(rig.home, reward_run, CPU).score([(row.messages, row.text) for row in rows])
    found = parts.roles.reward_model.score(rows)
    assert found.dtype == torch.float32
    assert found.tolist() == pytest.approx(wanted.tolist(), abs=1e-10)


@pytest.mark.parametrize("scale", [True, False])
def test_the_critic_starts_in_the_scale_of_the_scores(scale: bool, rig: Rig, batch: Sequences) -> None:
    reward = rig.reward("lora")
    plain, scaled = (rig.parts("shared", scale_scores=each) for each in (False, scale))
    factor = reward.result["score_std"] if scale else 1.0
    values = (plain.roles.critic.values(batch) / factor).tolist()
    for found, wanted in zip(scaled.roles.critic.values(batch).tolist(), values, strict=True):
        assert found == pytest.approx(wanted, abs=1e-10)
    assert scaled.learner.score_scale == pytest.approx(factor)


def test_a_row_means_the_same_alone_and_in_a_batch(parts: Parts, batch: Sequences) -> None:
    together = parts.roles.policy.token_scores(batch, with_entropy=True)
    values = parts.roles.critic.values(batch)
    for row in range(len(PROMPTS)):
        part = batch.rows(torch.tensor([row]))
        width = part.mask.shape[1]
        alone = parts.roles.policy.token_scores(part, with_entropy=True)
        assert torch.allclose(alone.logprobs[0], together.logprobs[row, :width], atol=1e-10, rtol=0)
        assert torch.allclose(alone.entropy[0], together.entropy[row, :width], atol=1e-10, rtol=0)
        assert torch.allclose(parts.roles.critic.values(part)[0], values[row, :width], atol=1e-10, rtol=0)


def test_what_stands_in_padding_does_not_matter(parts: Parts, batch: Sequences) -> None:
    ids = torch.where(batch.attention, batch.ids, torch.tensor(99))
    other = batch._replace(ids=ids)
    assert not torch.equal(ids, batch.ids)
    assert torch.equal(*(parts.roles.policy.token_scores(each).logprobs for each in (batch, other)))
    assert torch.equal(*(parts.roles.critic.values(each) for each in (batch, other)))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_role_trains_its_own_weights_and_no_others(layout: str, rig: Rig, batch: Sequences) -> None:
    roles = rig.parts(layout).roles
    policy, critic = roles.policy_parameters, roles.critic_parameters
    assert not {id(each) for each in policy.values()} & {id(each) for each in critic.values()}

    def with_gradient(parameters: dict[str, Any]) -> int:
        return sum(each.grad is not None and bool(each.grad.abs().sum() > 0) for each in parameters.values())

    roles.reward_model.score(rows_of(rig.parts(layout)))
    roles.policy.token_scores(batch).logprobs.sum().backward()
    assert with_gradient(policy) > 0 and with_gradient(critic) == 0
    for each in policy.values():
        each.grad = None
    roles.reference.token_scores(batch)  # switches the adapters off in between
    roles.critic.values(batch).sum().backward()
    assert with_gradient(policy) == 0 and with_gradient(critic) > 0
    assert all(each.requires_grad for each in (*policy.values(), *critic.values()))
    frozen = [roles.reference.language_model] if layout == "full" else []
    assert not any(each.requires_grad for model in frozen for each in model.parameters())
    if layout != "full":
        trainable = {id(each) for each in roles.policy.language_model.parameters() if each.requires_grad}
        assert trainable <= {id(each) for each in (*policy.values(), *critic.values())}


def test_a_reward_adapter_that_is_switched_on_is_not_trained(rig: Rig) -> None:
    parts = rig.parts("shared")
    parts.roles.reward_model.score(rows_of(parts))
    trainable = [name for name, each in parts.roles.policy.language_model.named_parameters() if each.requires_grad]
    assert trainable and not any(".reward." in name for name in trainable)
    assert any(".policy." in name for name in trainable) and any(".critic." in name for name in trainable)


def test_logits_in_pieces_give_the_same_numbers_and_gradients(
    rig: Rig, batch: Sequences, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = []
    for rows in (2048, 3):
        roles = rig.parts("full").roles
        monkeypatch.setattr(training.ppo.roles, "LOGITS", rows * roles.policy.language_model.config.vocab_size)
        found = roles.policy.token_scores(batch, with_entropy=True)
        (found.logprobs.sum() + found.entropy.sum()).backward()
        gradient = torch.cat(
            [each.grad.flatten() for each in roles.policy_parameters.values() if each.grad is not None]
        )
        results.append((found.logprobs.detach(), found.entropy.detach(), gradient))
    for one, other in zip(*results, strict=True):
        assert torch.allclose(one, other, atol=1e-10, rtol=0)


@pytest.mark.parametrize(
    ("family", "changes", "is_plain"),
    [
        ("llama", {}, True),
        ("qwen2", {}, True),
        ("gpt2", {}, True),
        ("gemma2", {"final_logit_softcapping": 5.0}, False),
        ("cohere", {"logit_scale": 0.25}, False),
        ("gemma2", {"final_logit_softcapping": None}, True),
    ],
)
def test_logits_that_a_model_scales_or_caps_are_the_ones_that_count(
    family: str, changes: dict[str, Any], is_plain: bool, tmp_path: Path, batch: Sequences
) -> None:
    save_tiny_model(tmp_path, family=family, initializer_range=0.001, **changes)  # logits far below any cap
    model = load_language_model(ModelSource("m", str(tmp_path), weights_hash(tmp_path)), torch.float32)
    policy = Policy(Trunk(model.base_model, CPU), model, 0.7)
    assert policy.has_plain_head == is_plain
    with torch.no_grad():  # now make them large enough for the cap to matter
        model.get_input_embeddings().weight.mul_(3000)
    wanted, _ = plain_log_probabilities(model, 0.7)
    assert_rows(policy.token_scores(batch).logprobs.detach(), wanted, batch)


@pytest.mark.parametrize("layout", ["lora", "full"])
def test_a_reward_model_with_another_tokenizer_reads_text(
    layout: str, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = rig.models / "other"
    if not folder.exists():
        save_tiny_model(
            folder, family="gpt2", tokenizer=tiny_tokenizer(only_end=True, pad=None), eos_token_id=0, bos_token_id=0
        )
    words = {"model": str(folder), "adapter": "full", "learning_rate": 1e-3}
    reward = rig.here(rig.queue(RunKind.REWARD, snapshot=rig.small_snapshot, **words))
    parts = rig.parts(layout, reward=reward)
    texts: list[str] = []
    original = Encoder.response_ids

    def response_ids(self: Encoder, text: str) -> list[int]:
        texts.append(text)
        return original(self, text)

    rows = rows_of(parts)
    with monkeypatch.context() as patch:
        patch.setattr(Encoder, "response_ids", response_ids)
        found = parts.roles.reward_model.score(rows)
    assert texts == [row.text for row in rows]
    wanted = Scorer(rig.home, reward.id, CPU).score([(row.messages, row.text) for row in rows])
    assert found.tolist() == pytest.approx(wanted.tolist(), abs=1e-10)
    (event,) = rig.events(parts.reporter.run, "critic_starts_from_policy")
    assert "other tokens" in event.detail["reason"]
    assert parts.roles.critic.values(pack(PROMPTS, RESPONSES, pad_id=0)).abs().max().item() == 0


def test_a_reward_model_of_another_base_with_the_same_tokens_reads_ids(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An adapter's reward model whose base is not the policy: it can't share the base, but it can share the ids."""
    reward = rig.reward("lora")
    parts = rig.parts("lora", reward=reward, model=rig.model("llama-2", seed=7))
    assert isinstance(parts.roles.reward_model, SeparateRewardModel)
    rows = rows_of(parts)
    with monkeypatch.context() as patch:
        patch.setattr(Encoder, "response_ids", None)
        found = parts.roles.reward_model.score(rows)
    wanted = Scorer(rig.home, reward.id, CPU).score([(row.messages, row.text) for row in rows])
    assert found.tolist() == pytest.approx(wanted.tolist(), abs=1e-10)
    assert not rig.events(parts.reporter.run, "critic_starts_from_policy")


def test_a_padding_token_of_the_reward_models_own_does_not_part_it_from_the_policy(rig: Rig) -> None:
    folder = rig.models / "one-special"
    save_tiny_model(folder, tokenizer=tiny_tokenizer(only_end=True, pad=None), eos_token_id=0, bos_token_id=0)
    reward = rig.here(rig.queue(RunKind.REWARD, snapshot=rig.small_snapshot, model=str(folder), adapter="full"))
    assert [event.detail["token"] for event in rig.events(reward, "padding_token_added")] == ["<|padding|>"]
    parts = rig.parts("full", reward=reward, model=str(folder))
    assert not rig.events(parts.reporter.run, "critic_starts_from_policy")


@pytest.mark.parametrize(
    ("response", "wanted"),
    [([9, 5, END], [9, 5, END]), ([9, 5, 4], [9, 5, 4, END]), ([9, 8], [9, END]), ([END], [END]), ([8], [END])],
    ids=["ended", "cut off", "ended by another end token", "the end alone", "another end alone"],
)
def test_every_scored_text_ends_with_the_end_token_once(response: list[int], wanted: list[int]) -> None:
    row = ScoredRow((), [3, 4], response, "")
    assert ended_text(row, frozenset({END, 8}), (END,), 100).ids == [3, 4, *wanted]


def test_a_scored_text_that_is_too_long_loses_the_start_of_its_prompt_as_in_training() -> None:
    row = ScoredRow((), [10, 11, 12, 13], [20, 21, 22], "")
    assert ended_text(row, frozenset({END}), (END,), 6).ids == [12, 13, 20, 21, 22, END]
    assert ended_text(row, frozenset({END}), (END,), 4).ids == [13, 20, 21, END]


def test_an_adapter_that_does_not_fit_is_refused(rig: Rig) -> None:
    reward = rig.here(rig.queue(RunKind.REWARD, snapshot=rig.small_snapshot, model=rig.model()))
    path = rig.folder(reward) / "adapter" / "adapter_model.safetensors"
    weights = load_file(path)
    name = min(weights)
    for changed, reason in (
        ({key: each for key, each in weights.items() if key != name}, "1 weights are missing, such as"),
        (
            weights | {"base_model.model.model.layers.7.x.lora_A.weight": weights[name].clone()},
            "1 weights find no place",
        ),
        (weights | {name: weights[name][:, :5].clone()}, "size mismatch"),
    ):
        save_file(changed, path)
        with pytest.raises(InvalidInput, match=f"does not fit the policy: .*{reason}"):
            rig.parts("shared", reward=reward)


def test_a_reward_model_without_its_zero_is_refused(rig: Rig) -> None:
    reward = rig.here(rig.queue(RunKind.REWARD, snapshot=rig.small_snapshot, model=rig.model()))
    place = rig.folder(reward) / "model" / "reward_config.json"
    assert json.loads(place.read_text())["shift"] == pytest.approx(reward.result["shift"])
    place.unlink()
    with pytest.raises(InvalidInput, match="zero is not known; train the reward model again"):
        rig.parts("shared", reward=reward)


def test_texts_are_limited_by_what_both_policy_and_critic_read(rig: Rig) -> None:
    assert rig.parts("full").roles.context == 512
    short = rig.model("llama-short", max_position_embeddings=64)
    reward = rig.here(rig.queue(RunKind.REWARD, snapshot=rig.small_snapshot, model=short, adapter="full"))
    assert rig.events(reward, "max_length_lowered")
    assert rig.parts("full", reward=reward).roles.context == 64
