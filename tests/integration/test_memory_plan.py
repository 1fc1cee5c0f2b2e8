"""The predicted memory of a PPO run against the bytes of the real tensors, and of the real allocator."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from factories import skip
from rig import LAYOUTS, Parts, Rig
from torch import Tensor

import training.check.memory_plan
from data.fields import from_dict, with_values
from training.check.memory_plan import (
    BYTES_PER_CHOICE,
    BYTES_PER_CUT_CHOICE,
    Models,
    Numbers,
    Workload,
    find_models,
    largest_micro_batch,
    memory_table,
    peak,
    plan,
    step_peak,
)
from training.check.weightless import MicroBatch, critic_update, most_held, policy_update
from training.launch.config import PPOConfig
from training.lm.encoding import Sequences, pack
from training.lm.generation import cache_of, choose_tokens, generate, random_numbers
from training.lm.machine_memory import peak_in_use, reset_peak
from training.lm.models import Machine, find_model
from training.lm.scorer import read_reward_info
from training.ppo.build_roles import shares_base
from training.ppo.roles import Critic, Policy, TokenScores
from training.ppo.rollout import Credit, Rollout, minibatch_of
from training.ppo.update import update_minibatch

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:fan_in_fan_out")
CPU = Machine(torch.device("cpu"), False)
MOST = 1.3  # a prediction is never below what was measured, and at most so many times as much
LEAST_SHARED = 0.99  # attention in blocks has a mask, which kernels copy for themselves: a few KB
N, PROMPT, RESPONSE = 6, 40, 20


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("memory"))
    yield made
    made.close()


def models_of(rig: Rig, parts: Parts) -> Models:
    folder = rig.home.run_folder(parts.reporter.run.reward_run_id or "")
    source, info = find_model(parts.config.model, rig.home, parts.reporter), read_reward_info(folder)
    is_shared = shares_base(parts.config, info, source)
    return find_models(parts.config, parts.machine, source, folder, is_shared=is_shared, shares_ids=True)


def batch_of(n: int = N, prompt: int = PROMPT, response: int = RESPONSE) -> Sequences:
    return pack([[7] * prompt] * n, [[9] * response] * n, pad_id=0)


def micro_batch_of(batch: Sequences) -> MicroBatch:
    return MicroBatch(*batch.ids.shape, int(batch.mask.sum()))


def kept_for_backward(run: Callable[[], Tensor], parameters: list[Tensor]) -> int:
    """Bytes of the distinct storages that autograd saves and that are no parameters."""
    weights = {each.untyped_storage().data_ptr() for each in parameters}
    saved: dict[int, int] = {}

    def pack_hook(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack_hook, lambda tensor: tensor):
        out = run()  # it is held, so that no address is used twice
    del out
    return sum(saved.values())


def allocated(run: Callable[[], Any]) -> int:
    """The most that torch's allocator had given out at one time, beyond what it had at the start."""
    gc.collect()
    with torch.profiler.profile(profile_memory=True) as profile:
        run()
    now = most = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            most = max(most, now)
    return most


def give_gradients(parts: Parts) -> None:
    for each in [*parts.roles.policy_parameters.values(), *parts.roles.critic_parameters.values()]:
        each.grad = torch.zeros_like(each)


@pytest.mark.parametrize("is_shared", [False, True], ids=["a row each", "shared"])
@pytest.mark.parametrize(
    ("layout", "family", "precision"),
    [
        ("shared", "llama", "fp32"),
        ("lora", "gpt2", "bf16"),
        ("full", "qwen2", "fp32"),
        *(
            pytest.param(*each, marks=pytest.mark.long)
            for each in (("shared", "llama", "bf16"), ("lora", "llama", "fp32"), ("full", "gpt2", "fp32"))
        ),
    ],
)
def test_what_a_micro_batch_holds(layout: str, family: str, precision: str, is_shared: bool, rig: Rig) -> None:
    parts = rig.parts(layout, family, precision=precision)
    n, prompt = (2 * N, 2 * PROMPT) if is_shared else (N, PROMPT)
    models, batch = models_of(rig, parts), batch_of(n, prompt)
    parts.roles.share_prompts(wanted=is_shared)
    shape = MicroBatch.of(batch, is_shared=is_shared)
    assert shape == (MicroBatch(1, prompt + n * RESPONSE, n * RESPONSE, n) if is_shared else micro_batch_of(batch))
    give_gradients(parts)
    policy, critic = parts.roles.policy, parts.roles.critic
    for model, run, work in (
        (models.policy, lambda: policy.token_scores(batch).logprobs, policy_update),
        (models.critic, lambda: critic.values(batch), critic_update),
    ):
        real = policy.language_model if model is models.policy else critic.trunk.model
        predicted = most_held(model, parts.machine, work(parts.config, shape, parts.machine))
        kept = kept_for_backward(run, list(real.parameters()))
        most = allocated(lambda run=run: torch.autograd.backward(run().sum()))
        assert 0.99 * kept <= most
        assert (LEAST_SHARED if is_shared else 1) * most <= predicted <= MOST * most
    rig.finish(parts.reporter.run)


@pytest.mark.parametrize("name", ["policy", "critic"])
def test_what_a_role_keeps_in_addition_is_predicted_too(name: str, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The roles themselves make the prediction, so it follows a change of what they do."""
    parts = rig.parts("full")
    models, batch, width = models_of(rig, parts), batch_of(), 5000
    give_gradients(parts)
    role, model = getattr(parts.roles, name), getattr(models, name)
    method, update = ("token_scores", policy_update) if name == "policy" else ("values", critic_update)
    usual, work = getattr(type(role), method), update(parts.config, micro_batch_of(batch), parts.machine)

    def wasteful(self: Policy | Critic, given: Sequences, **words: Any) -> TokenScores | Tensor:
        found = usual(self, given, **words)
        numbers = found.logprobs if name == "policy" else found
        more = numbers[..., None].expand(-1, -1, width).exp().mean(-1)  # the exponentials are kept: (B, T, width)
        return TokenScores(more, found.entropy) if name == "policy" else more

    before = most_held(model, parts.machine, work)
    monkeypatch.setattr(type(role), method, wasteful)
    predicted, out = most_held(model, parts.machine, work), getattr(role, method)
    most = allocated(lambda: torch.autograd.backward((out(batch).logprobs if name == "policy" else out(batch)).sum()))
    assert predicted - before >= batch.mask.numel() * width * 4
    assert most <= predicted <= MOST * most
    rig.finish(parts.reporter.run)


@pytest.mark.parametrize(
    ("shape", "is_shared"),
    [
        (MicroBatch(3, 34, 20), False),
        (MicroBatch(3, 34, 20, 1), True),
        (MicroBatch(2, 50, 60, 3), True),
        (MicroBatch(1, 105, 10, 3), True),
    ],
)
def test_a_batch_of_a_shape_has_it(shape: MicroBatch, is_shared: bool) -> None:
    assert MicroBatch.of(shape.batch(CPU.device), is_shared=is_shared) == shape


def test_the_entropy_of_the_loss_is_in_the_prediction(rig: Rig) -> None:
    parts = rig.parts("full")
    models, batch = models_of(rig, parts), batch_of()
    give_gradients(parts)
    config = with_values(parts.config, {"optimiser.entropy_coef": 0.1})
    predicted = most_held(models.policy, CPU, policy_update(config, micro_batch_of(batch), CPU))

    def update() -> None:
        logprobs, entropy = parts.roles.policy.token_scores(batch, with_entropy=True)
        torch.autograd.backward((logprobs + entropy).sum())

    most = allocated(update)
    assert most <= predicted <= MOST * most
    rig.finish(parts.reporter.run)


def test_logits_in_pieces_are_held_one_at_a_time(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = rig.parts("full")
    models, batch = models_of(rig, parts), batch_of(n=12, prompt=4, response=40)
    give_gradients(parts)
    found = []
    for rows in (40, 10_000):
        monkeypatch.setattr("training.ppo.roles.LOGITS", rows * 264)
        work = policy_update(parts.config, micro_batch_of(batch), parts.machine)
        predicted = most_held(models.policy, parts.machine, work)
        most = allocated(lambda: torch.autograd.backward(parts.roles.policy.token_scores(batch).logprobs.sum()))
        assert most <= predicted <= MOST * most
        found.append(predicted)
    assert found[1] - found[0] > 2.2 * 12 * 40 * 264 * 4  # of the three copies of all logits
    rig.finish(parts.reporter.run)


@pytest.mark.parametrize(("layout", "precision"), [*((each, "fp32") for each in LAYOUTS), ("shared", "bf16")])
def test_weights_gradients_and_optimizer_to_the_byte_after_a_step(
    layout: str, precision: str, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = rig.parts(layout, precision=precision)
    monkeypatch.setattr(training.check.memory_plan, "HEAP", {})  # the allocator is asked for tensors alone
    models, batch = models_of(rig, parts), batch_of()
    table, work = plan(parts.config, models, parts.machine, [PROMPT])
    assert work.rule == ""
    zeros = torch.zeros(batch.mask.shape)
    rollout = Rollout([], batch, zeros, zeros, zeros, zeros, zeros, zeros, {})

    def step() -> None:
        minibatch = minibatch_of(rollout, Credit(zeros[:, 0], zeros, zeros, zeros + 1, zeros), torch.arange(N), "token")
        update_minibatch(parts.config, parts.learner, minibatch, number=0, trains_policy=True)

    step()  # which makes the optimizers' states
    for optimizer in (parts.learner.policy_optimizer, parts.learner.critic_optimizer):
        optimizer.zero_grad(set_to_none=True)
    most = allocated(step)
    predicted = step_peak(parts.config, models, parts.machine, table, micro_batch_of(batch), is_by_rule=False)
    given = sum(each.weights for each in table)
    states = sum(each.optimizer for each in table)
    roles, learner = parts.roles, parts.learner
    sides = [(roles.policy_parameters, learner.policy_optimizer), (roles.critic_parameters, learner.critic_optimizer)]
    for part, (parameters, optimizer) in zip(table, sides, strict=False):
        assert part.gradients == sum(each.grad.nbytes for each in parameters.values() if each.grad is not None)
        moments = [state[name] for state in optimizer.state.values() for name in ("exp_avg", "exp_avg_sq")]
        assert part.optimizer == sum(each.nbytes for each in moments)
    assert given == sum(weights_of(parts).values())
    assert most <= predicted - given - states <= MOST * most
    rig.finish(parts.reporter.run)


def weights_of(parts: Parts) -> dict[int, int]:
    """Bytes of every role's weights, by storage."""
    roles, reward = parts.roles, parts.roles.reward_model
    models = [roles.policy.language_model, roles.reference.language_model, roles.critic.trunk.model, roles.critic.head]
    models.append(reward.head if hasattr(reward, "head") else reward.scorer.model)
    storages = [each.untyped_storage() for model in models for each in model.parameters()]
    return {each.data_ptr(): each.nbytes() for each in storages}


@pytest.mark.parametrize(
    ("family", "layout", "precision"),
    [("llama", "full", "fp32"), ("llama", "shared", "bf16"), ("gpt2", "full", "fp32")],
)
def test_the_cache_to_the_byte_after_generation(
    family: str, layout: str, precision: str, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = {"prompts_per_iteration": 3, "responses_per_prompt": 2, "max_new_tokens": 5}
    parts = rig.parts(layout, family, precision=precision, **words)
    _, work = plan(parts.config, models_of(rig, parts), parts.machine, [7, PROMPT])
    caches = []
    monkeypatch.setattr("training.lm.generation.cache_of", lambda out: caches.append(cache_of(out)) or caches[-1])
    parts.roles.policy.trunk.activate()
    model, uniform = parts.roles.policy.language_model, random_numbers(0, [str(each) for each in range(6)], 5)
    no_end = {"stop_ids": frozenset[int](), "pad_id": 0, "machine": parts.machine}
    most = allocated(lambda: generate(model, [[7] * PROMPT] * 3, 2, parts.config.sampling, uniform, **no_end))
    layers = caches[-1].layers
    assert work.cache == sum(each.nbytes for layer in layers for each in (layer.keys, layer.values))
    assert most <= work.cache + work.generating <= MOST * most
    rig.finish(parts.reporter.run)


@pytest.mark.parametrize(("top_p", "size"), [(1.0, BYTES_PER_CHOICE), (0.9, BYTES_PER_CUT_CHOICE)])
def test_what_a_choice_of_tokens_holds(top_p: float, size: int) -> None:
    logits, uniform = torch.randn(64, 5000), torch.rand(64, dtype=torch.float64)
    predicted = size * logits.numel()
    most = logits.nbytes + allocated(lambda: choose_tokens(logits, uniform, 0.7, top_p=top_p))
    assert most <= predicted * 1.001 <= MOST * most


def test_the_largest_micro_batch() -> None:
    words = {"micro_batch_tokens": 100, "max_new_tokens": 10, "prompts_per_iteration": 8}
    config = from_dict(PPOConfig, words)
    assert largest_micro_batch(config, [30], 8) == MicroBatch(3, 34, 20, 1)  # as full as the budget; rows of at most 40
    assert largest_micro_batch(config, [30], 2) == MicroBatch(2, 40, 20, 1)  # no more responses than there are
    assert largest_micro_batch(config, [15, 30], 8) == MicroBatch(3, 34, 40, 1)  # four with the shorter prompt
    assert largest_micro_batch(config, [200], 8) == MicroBatch(1, 210, 10, 1)  # longer than the budget by itself
    three = with_values(config, {"sampling.responses_per_prompt": 3})
    assert largest_micro_batch(three, [30], 24) == MicroBatch(2, 50, 30, 3)  # rows of at most 60, of which one is whole
    assert largest_micro_batch(three, [15, 30], 24) == MicroBatch(2, 50, 60, 3)  # two prompts of the shorter kind
    assert largest_micro_batch(three, [75], 24) == MicroBatch(1, 100, 20, 3)  # two of three responses to a prompt fit
    assert largest_micro_batch(three, [95], 24) == MicroBatch(1, 105, 10, 3)
    assert largest_micro_batch(with_values(three, {"machine.share_prompts": False}), [30], 24) == MicroBatch(3, 34, 20)


def test_the_table_by_hand() -> None:
    policy, critic, work = Numbers(0, 1000), Numbers(0, 900), Workload(micro_batch=7000, cache=4000, generating=500)
    full = memory_table(PPOConfig(adapter="full"), CPU, policy, critic, 800, work)
    assert [(each.name, each.weights, each.gradients, each.optimizer) for each in full] == [
        ("policy", 4000, 4000, 8000), ("critic", 3600, 3600, 7200), ("reward model", 3200, 0, 0),
        ("reference", 4000, 0, 0), ("one micro-batch", 0, 0, 0), ("generation", 0, 0, 0),
    ]  # fmt: skip
    assert peak(full) == 4000 * 5 + 3600 * 4 + 3200 + 2 * 7000  # the heap takes as much again
    assert peak(memory_table(PPOConfig(adapter="full"), CPU, policy, critic, 800, work._replace(cache=13_800))) == (
        4000 * 5 + 3600 * 4 + 3200 + 13_800 + 2 * 500
    )
    more = memory_table(PPOConfig(adapter="full"), CPU, policy, critic, 800, work, (10, 20))
    assert [(each.name, each.weights) for each in more[4:6]] == [
        ("second reward model 1", 40), ("second reward model 2", 80),
    ]  # fmt: skip
    assert peak(more) == peak(full) + 120
    half = Machine(torch.device("cpu"), is_bf16=True)
    shared = memory_table(PPOConfig(adapter="lora"), half, Numbers(1000, 10), Numbers(0, 12), 11, work)
    assert [(each.weights, each.gradients, each.optimizer) for each in shared] == [
        (2040, 40, 80), (48, 48, 96), (44, 0, 0), (0, 0, 0), (0, 0, 0), (0, 0, 0),
    ]  # fmt: skip


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_model_that_can_not_be_tried_is_judged_by_a_rule(
    family: str, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: Any, **_words: Any) -> int:
        raise RuntimeError("the operation depends on the data")

    parts = rig.parts("full", family)
    models = models_of(rig, parts)
    _, tried = plan(parts.config, models, parts.machine, [PROMPT])
    monkeypatch.setattr(training.check.memory_plan, "most_held", refuse)
    table, work = plan(parts.config, models, parts.machine, [PROMPT])
    assert work.rule == "the operation depends on the data"
    assert tried.micro_batch <= work.micro_batch <= 2 * tried.micro_batch and work.cache == tried.cache
    shape = largest_micro_batch(parts.config, [PROMPT], parts.config.minibatch_size)
    assert step_peak(parts.config, models, CPU, table, shape, is_by_rule=True) == sum(
        each.fixed for each in table
    ) + 2 * (work.micro_batch)
    rig.finish(parts.reporter.run)


def test_the_peak_of_this_process_starts_again() -> None:
    """What was held once and is no longer does not count; what is held for a moment does."""
    size = 200_000_000
    torch.ones(2 * size // 4)
    if not reset_peak(CPU):
        skip("this machine does not let a process reset its peak")
    before = peak_in_use(CPU)
    torch.ones(size // 4)
    top = peak_in_use(CPU)
    assert before is not None and top is not None and abs(top - before - size) < 0.1 * size


def test_the_peak_is_not_known_where_it_can_not_be_reset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("training.lm.machine_memory.PROC_SELF", tmp_path / "nothing")
    assert not reset_peak(CPU) and peak_in_use(CPU) is None
