"""The parts of the PPO loop: what an update does to the weights, and what it may not depend on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from rig import LAYOUTS, Parts, Rig
from torch import Tensor, nn

from data.errors import WorkFailed
from training.lm.encoding import pack
from training.lm.generation import Generated
from training.lm.models import Machine
from training.maths.advantages import gae, token_rewards
from training.maths.kl import kl_estimate
from training.maths.masked import masked_mean, token_weights, whiten
from training.ppo.evaluation import Evaluation, held_out_prompts
from training.ppo.figures import mean_of_steps
from training.ppo.loop import (
    adapt_score_scale,
    adapt_weights,
    check_first_ratio,
    final_scores,
    minibatches,
    prompts_of_iteration,
    train,
    with_centred_critic,
)
from training.ppo.rollout import Credit, Minibatch, Rollout, minibatch_of, sample_rollout
from training.ppo.run import make_learner
from training.ppo.unfinished import Unfinished
from training.ppo.update import RATIO_DEVIATION, Metrics, Seams, backward_ptx, step, update_minibatch

pytestmark = [pytest.mark.slow, pytest.mark.float64, pytest.mark.filterwarnings("ignore::FutureWarning")]
WORDS = {"prompts_per_iteration": 6, "max_new_tokens": 9, "max_grad_norm": 1e6, "learning_rate": 1e-3}
Weights = dict[str, Tensor]


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("ppo"))
    yield made
    made.close()


def prepared(parts: Parts) -> tuple[Rollout, Tensor, Tensor]:
    """Steps 1 to 5 of the loop: a rollout with its advantages and returns. Lengths are made unlike."""
    rollout = sample_rollout(
        parts.roles, parts.prompts[:6], parts.config, parts.encoder, parts.machine, 0, check=lambda: None
    )
    rows = [replace(row, response=row.response[: 1 + place * 7 % 9]) for place, row in enumerate(rollout.rows)]
    batch = pack([row.prompt for row in rows], [row.response for row in rows], 0)
    width = batch.mask.shape[1]
    cut = {
        name: torch.where(batch.mask, getattr(rollout, name)[:, :width], 0)
        for name in ("old_logprobs", "ref_logprobs", "old_values", "entropy")
    }
    rollout = replace(rollout, rows=rows, batch=batch, **cut)
    scores = torch.tensor([0.3, -1.2, 0.9, 2.0, -0.4, 0.1])
    kl = kl_estimate(rollout.old_logprobs, rollout.ref_logprobs, "k1")
    rewards = token_rewards(scores, kl, batch.mask, 0.05)
    advantages, returns = gae(rewards, rollout.old_values, batch.mask, 1.0, 0.95)
    return rollout, whiten(advantages, batch.mask), returns


def taken(parts: Parts, rollout: Rollout, advantages: Tensor, returns: Tensor, index: Tensor) -> Minibatch:
    """The minibatch of the rows in `index`."""
    credit = Credit(rollout.scores, advantages, advantages, advantages, returns)
    return minibatch_of(rollout, credit, index, parts.config.loss_mean)


def weights_of(parts: Parts) -> Weights:
    roles = parts.roles
    return {name: each.detach().clone() for name, each in (roles.policy_parameters | roles.critic_parameters).items()}


def updated(
    rig: Rig, layout: str, index: list[int], parts: Parts | None = None, **changes: Any
) -> tuple[Weights, Metrics]:
    """The weights after one update from the start, and its figures."""
    parts = parts or rig.parts(layout, **(WORDS | changes))
    rollout, advantages, returns = prepared(parts)
    figures = update_minibatch(
        parts.config,
        parts.learner,
        taken(parts, rollout, advantages, returns, torch.tensor(index)),
        number=0,
        trains_policy=True,
    )
    return weights_of(parts), figures


def apart(one: Weights, other: Weights) -> float:
    assert one.keys() == other.keys()
    return max((one[name] - other[name]).abs().max().item() for name in one)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("loss_mean", ["token", "response"])
def test_an_update_does_not_depend_on_how_it_is_cut_or_on_the_order_of_rows(
    layout: str, loss_mean: str, rig: Rig
) -> None:
    whole, figures = updated(rig, layout, [0, 1, 2, 3, 4, 5], loss_mean=loss_mean)
    start = weights_of(rig.parts(layout, **WORDS))
    assert apart(whole, start) > 1e-4
    for index, tokens in (([5, 3, 1, 0, 2, 4], 4096), ([0, 1, 2, 3, 4, 5], 1), ([4, 2, 0, 1, 3, 5], 60)):
        other, others = updated(rig, layout, index, loss_mean=loss_mean, micro_batch_tokens=tokens)
        assert apart(whole, other) < 1e-10
        for name, value in figures.items():
            assert others[name] == pytest.approx(value, abs=1e-10), name


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_update_does_not_depend_on_how_prompts_are_shared_and_cut(layout: str, rig: Rig) -> None:
    """Six responses to two prompts: a pass for each, all that share in one, and lots that hold a part of them."""
    results = []
    for is_shared, tokens in ((False, 4096), (True, 4096), (True, 60), (True, 1)):
        parts = rig.parts(layout, **WORDS, micro_batch_tokens=tokens)
        parts = replace(parts, prompts=[parts.prompts[place // 3] for place in range(6)])
        parts.roles.share_prompts(wanted=is_shared)
        results.append(updated(rig, layout, [0, 1, 2, 3, 4, 5], parts))
    (whole, figures), *others = results
    assert apart(whole, weights_of(rig.parts(layout, **WORDS))) > 1e-4
    for other, found in others:
        assert apart(whole, other) < 1e-10
        for name, value in figures.items():
            assert found[name] == pytest.approx(value, abs=1e-10), name


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_update_does_not_depend_on_the_number_of_threads(layout: str, rig: Rig) -> None:
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            parts = rig.parts(layout, **WORDS)
            torch.set_num_threads(threads)
            results.append(updated(rig, layout, [0, 1, 2, 3, 4, 5], parts))
    finally:
        torch.set_num_threads(before)
    (one, figures), (two, others) = results
    assert apart(one, weights_of(rig.parts(layout, **WORDS))) > 1e-4
    assert apart(one, two) < 1e-10
    for name, value in figures.items():
        assert others[name] == pytest.approx(value, abs=1e-10), name


def gradients(parameters: dict[str, nn.Parameter]) -> dict[str, Tensor]:
    found = {name: each.grad.clone() for name, each in parameters.items() if each.grad is not None}
    for each in parameters.values():
        each.grad = None
    return found


def gradient_of_update(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, rollout: Rollout, advantages: Tensor, returns: Tensor
) -> list[Weights]:
    """The gradients that an update of all rows steps along."""
    kept: list[dict[str, Tensor]] = []

    def catch(_optimizer: Any, parameters: dict[str, nn.Parameter], _norm: float) -> float:
        kept.append(gradients(parameters))
        return 1.0

    with monkeypatch.context() as patch:
        patch.setattr("training.ppo.update.step", catch)
        update_minibatch(
            parts.config,
            parts.learner,
            taken(parts, rollout, advantages, returns, torch.arange(6)),
            number=0,
            trains_policy=True,
        )
    policy, critic = kept
    return policy, critic


def assert_same(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    assert found.keys() == wanted.keys()
    scale = max(each.abs().max().item() for each in wanted.values())
    assert scale > 0
    for name, each in wanted.items():
        assert torch.allclose(found[name], each, atol=2e-5 * scale), name


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("loss_mean", ["token", "response"])
def test_the_first_gradient_is_the_plain_policy_gradient_and_the_critics_squared_error(
    layout: str, loss_mean: str, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = rig.parts(layout, **WORDS, value_clip_range=None, loss_mean=loss_mean)
    rollout, advantages, returns = prepared(parts)
    policy, critic = gradient_of_update(parts, monkeypatch, rollout, advantages, returns)
    roles, batch = parts.roles, rollout.batch
    n, gains = batch.mask.sum(), -advantages * roles.policy.token_scores(batch).logprobs
    (gains.sum() / n if loss_mean == "token" else (gains.sum(1) / batch.mask.sum(1)).mean()).backward()
    assert_same(policy, gradients(roles.policy_parameters))
    (0.5 * ((roles.critic.values(batch) - returns)[batch.mask]).square().sum() / n).backward()
    assert_same(critic, gradients(roles.critic_parameters))


def test_the_kl_in_the_loss_pulls_the_policy_back(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    pulls = []
    for estimator in ("k1", "k2", "k3"):
        parts = rig.parts("full", **WORDS, kl_place="loss", kl_estimator=estimator, kl_coef=0.5)
        with torch.no_grad():  # a policy that has moved from its reference
            for each in parts.roles.policy_parameters.values():
                each.add_(0.01 * torch.sin(torch.arange(each.numel(), dtype=torch.float32)).reshape(each.shape))
        rollout, _, returns = prepared(parts)
        found, _ = gradient_of_update(parts, monkeypatch, rollout, torch.zeros_like(returns), returns)
        logprobs = parts.roles.policy.token_scores(rollout.batch).logprobs
        difference = (rollout.old_logprobs - rollout.ref_logprobs).detach()
        (0.5 * (difference * logprobs).sum() / rollout.batch.mask.sum()).backward()  # E[d * grad log policy]
        assert_same(found, gradients(parts.roles.policy_parameters))
        pulls.append(found)
    assert_same(pulls[0], pulls[1])
    assert_same(pulls[0], pulls[2])


def test_an_entropy_bonus_adds_the_gradient_of_the_entropy(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = rig.parts("full", **WORDS, entropy_coef=0.3)
    rollout, _, returns = prepared(parts)
    found, _ = gradient_of_update(parts, monkeypatch, rollout, torch.zeros_like(returns), returns)
    scores = parts.roles.policy.token_scores(rollout.batch, with_entropy=True)
    (-0.3 * scores.entropy.sum() / rollout.batch.mask.sum()).backward()
    assert_same(found, gradients(parts.roles.policy_parameters))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_first_minibatch_has_the_signature_of_a_sound_start(layout: str, rig: Rig) -> None:
    _, figures = updated(rig, layout, list(range(6)))
    assert figures[RATIO_DEVIATION] < 1e-10
    assert figures["policy/approx_kl"] == pytest.approx(0, abs=1e-10)
    assert figures["policy/clip_fraction"] == 0
    assert figures["policy/loss"] == pytest.approx(0, abs=1e-10)  # minus the mean of whitened advantages
    assert figures["policy/ratio"] == pytest.approx(1, abs=1e-10)


def test_while_the_critic_starts_alone_the_policy_stays(rig: Rig) -> None:
    parts = rig.parts("shared", **WORDS)
    before = weights_of(parts)
    rollout, advantages, returns = prepared(parts)
    figures = update_minibatch(
        parts.config,
        parts.learner,
        taken(parts, rollout, advantages, returns, torch.arange(6)),
        number=0,
        trains_policy=False,
    )
    after = weights_of(parts)
    assert all(torch.equal(before[name], after[name]) for name in parts.roles.policy_parameters)
    assert apart(before, after) > 0
    assert not any(name.startswith("policy/") for name in figures)


def test_rows_outside_a_minibatch_do_not_count(rig: Rig) -> None:
    results = []
    for is_spoilt in (False, True):
        parts = rig.parts("full", **WORDS)
        rollout, advantages, returns = prepared(parts)
        if is_spoilt:
            advantages[[0, 2, 3, 5]] = 1e9
        chosen = torch.tensor([1, 4])
        update_minibatch(
            parts.config,
            parts.learner,
            taken(parts, rollout, advantages, returns, chosen),
            number=0,
            trains_policy=True,
        )
        results.append(weights_of(parts))
    assert apart(*results) == 0


def test_the_step_clips_by_the_norm_of_all_gradients_and_tells_it() -> None:
    parameters = {"a": nn.Parameter(torch.zeros(2)), "b": nn.Parameter(torch.zeros(1))}
    parameters["a"].grad, parameters["b"].grad = torch.tensor([3.0, 0.0]), torch.tensor([4.0])
    optimizer = torch.optim.SGD(list(parameters.values()), lr=1.0)
    assert step(optimizer, parameters, max_norm=1.0) == pytest.approx(5.0)
    norm = 5.0 + 1e-6  # PyTorch's guard against a division by 0
    assert parameters["a"].tolist() == pytest.approx([-3 / norm, 0.0], abs=1e-10)
    assert parameters["b"].tolist() == pytest.approx([-4 / norm], abs=1e-10)


def test_a_response_that_does_not_end_pays_once(rig: Rig) -> None:
    parts = rig.parts("shared", **WORDS, missing_eos_penalty=1.5)
    rollout, _, _ = prepared(parts)
    rollout = replace(rollout, scores=torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), ended=torch.arange(6) % 2 == 0)
    assert final_scores(rollout, parts.config, 2.0).tolist() == [0.5, -0.5, 1.5, 0.5, 2.5, 1.5]


def test_the_critic_is_centred_on_the_first_scores_by_its_bias_alone(rig: Rig) -> None:
    parts = rig.parts("shared", **WORDS)
    before, (rollout, _, _) = weights_of(parts), prepared(parts)
    scores = torch.tensor([0.3, -1.2, 0.9, 2.0, -0.4, 0.1])
    centred = with_centred_critic(parts.learner, rollout, scores)
    assert masked_mean(centred.old_values, rollout.batch.mask).item() == pytest.approx(scores.mean().item(), abs=1e-10)
    assert (centred.old_values[~rollout.batch.mask] == 0).all()
    values = parts.roles.critic.values(rollout.batch)
    assert torch.allclose(values, centred.old_values, atol=1e-10, rtol=0)
    after = weights_of(parts)
    assert [name for name in before if not torch.equal(before[name], after[name])] == ["head.bias"]


def test_every_prompt_comes_once_in_a_pass_and_each_pass_has_its_own_order(rig: Rig) -> None:
    parts = rig.parts("shared", prompts_per_iteration=4)
    n = len(parts.prompts)
    assert n % 4 != 0, "passes should not end with iterations for this test to say anything"
    drawn = [
        prompt.key for iteration in range(n) for prompt in prompts_of_iteration(parts.prompts, parts.config, iteration)
    ]
    passes = [drawn[start : start + n] for start in range(0, 4 * n, n)]
    keys = sorted(prompt.key for prompt in parts.prompts)
    assert all(sorted(each) == keys for each in passes)
    assert len({tuple(each) for each in passes}) > 1
    again = [prompt.key for prompt in prompts_of_iteration(parts.prompts, parts.config, 2)]
    assert again == drawn[8:12]  # told by the iteration alone: a resumed run draws the same
    other_seed = replace(parts.config, seed=1)
    assert [p.key for p in prompts_of_iteration(parts.prompts, other_seed, 0)] != drawn[:4]


def test_more_prompts_are_drawn_than_there_are_by_going_round(rig: Rig) -> None:
    parts = rig.parts("shared", prompts_per_iteration=25)
    chosen = [prompt.key for prompt in prompts_of_iteration(parts.prompts, parts.config, 0)]
    counts = {key: chosen.count(key) for key in chosen}
    assert len(chosen) == 25
    assert max(counts.values()) - min(counts.values()) <= 1


def test_minibatches_hold_every_row_once(rig: Rig) -> None:
    config = replace(rig.parts("shared", prompts_per_iteration=6).config, minibatches=3)
    lots = [lot.tolist() for lot in minibatches(config, 1, 0, 6)]
    assert sorted(row for lot in lots for row in lot) == list(range(6))
    assert [len(lot) for lot in lots] == [2, 2, 2]
    assert lots == [lot.tolist() for lot in minibatches(config, 1, 0, 6)]
    assert lots != [lot.tolist() for lot in minibatches(config, 1, 1, 6)]


def test_another_engine_can_stand_in(rig: Rig) -> None:
    """Sampling and the optimizer step are others; the loop does the rest, and looks at what they bring."""
    parts = rig.parts("full", **WORDS, iterations=2)
    end, asked, stepped = parts.encoder.eos_id, list[int](), list[tuple[int, bool]]()

    def by_a_server(_model: Any, prompts: Any, n: int, *_words: Any, **_more: Any) -> list[Generated]:
        asked.append(len(prompts) * n)
        return [Generated([70 + place % 3, end], has_ended=True) for place in range(len(prompts) * n)]

    def step_elsewhere(_config: Any, _learner: Any, minibatch: Minibatch, **words: Any) -> Metrics:
        rows, tokens = minibatch.batch.response_tokens().view(-1, 2), [[70, end], [71, end], [72, end]]
        assert sorted(rows.tolist()) == sorted(tokens * 2)
        stepped.append((len(rows), words["trains_policy"]))
        return {RATIO_DEVIATION: 0.0, "policy/approx_kl": 0.0}

    seams = Seams(generate=by_a_server, update=step_elsewhere)
    train(parts.config, parts.learner, parts.prompts, parts.encoder, parts.machine, parts.reporter, seams=seams)
    assert asked == [6, 6] and stepped == [(6, True)] * 2 * parts.config.ppo_epochs
    assert rig.curve(parts.reporter.run, "response/length_mean") == [2.0, 2.0]
    asked.clear()
    watched = rig.parts("full", **WORDS, iterations=2, eval_prompts=2, eval_every=9)
    held_out = held_out_prompts(watched.config, watched.reporter, watched.encoder, watched.roles.context)
    words = (watched.encoder, watched.machine, watched.reporter, None)
    evaluation = Evaluation(watched.config, held_out, *words)
    started = (watched.config, watched.learner, watched.prompts, watched.encoder, watched.machine, watched.reporter)
    train(*started, evaluation, seams=seams)
    assert asked == [2, 6, 6, 2], "in evaluations too"
    assert rig.curve(watched.reporter.run, "held_out/length_mean") == [2.0, 2.0]
    wrong = Seams(generate=by_a_server, update=lambda *_words, **_more: {RATIO_DEVIATION: 0.5})
    again = rig.parts("full", **WORDS)
    with pytest.raises(WorkFailed, match="first ratio is off"):
        train(again.config, again.learner, again.prompts, again.encoder, again.machine, again.reporter, seams=wrong)


def test_a_first_ratio_that_is_not_1_stops_the_run() -> None:
    fp32, bf16 = (Machine(torch.device("cpu"), is_bf16=each) for each in (False, True))
    check_first_ratio(9e-4, fp32)
    check_first_ratio(0.04, bf16)
    with pytest.raises(WorkFailed, match=r"the first ratio is off by 0.0020, at most 0.001"):
        check_first_ratio(2e-3, fp32)
    with pytest.raises(WorkFailed, match="off by"):
        check_first_ratio(0.06, bf16)


def test_figures_of_an_iteration_are_means_over_its_steps() -> None:
    steps = [{"value/loss": 1.0, RATIO_DEVIATION: 5.0}, {"value/loss": 2.0, RATIO_DEVIATION: 6.0}]
    assert mean_of_steps(steps) == {"value/loss": 1.5}


def test_ptx_adds_the_language_model_loss_of_ranked_best_responses(rig: Rig) -> None:
    parts = rig.parts("full", **WORDS, ptx_coef=2.0, temperature=1.0)
    assert len(parts.learner.best_of) == rig.events(parts.reporter.run, "best_responses")[0].detail["used"] > 0
    losses = [backward_ptx(parts.config, parts.learner, 4, number) for number in (0, 0, 1)]
    assert losses[0] == losses[1] != losses[2]
    found = gradients(parts.roles.policy_parameters)
    for number in (0, 0, 1):
        generator = torch.Generator().manual_seed((parts.config.seed * 100_003) * 1_009 + number)
        drawn = [
            parts.learner.best_of[place]
            for place in torch.randint(len(parts.learner.best_of), (4,), generator=generator)
        ]
        batch = pack([prompt for prompt, _ in drawn], [response for _, response in drawn], 0)
        weights = token_weights(batch.mask, "token")
        loss = -(weights * parts.roles.policy.token_scores(batch).logprobs).sum()
        (2.0 * loss).backward()
    assert loss.item() == pytest.approx(losses[2], abs=1e-10)
    assert_same(found, gradients(parts.roles.policy_parameters))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_gradient_is_left_from_the_update_before(layout: str, rig: Rig) -> None:
    parts = rig.parts(layout, **(WORDS | {"learning_rate": 0.0}), critic_learning_rate=0.0)
    minibatch = taken(parts, *prepared(parts), torch.arange(6))
    first, second = (
        update_minibatch(parts.config, parts.learner, minibatch, number=number, trains_policy=True) for number in (0, 1)
    )
    assert first == second
    assert first["policy/grad_norm"] > 0 and first["value/grad_norm"] > 0


def test_an_update_takes_the_ptx_loss_along(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    pulls = []
    for coef in (0.0, 1.0, 3.0):
        parts = rig.parts("full", **WORDS, ptx_coef=coef)
        rollout, _, returns = prepared(parts)
        pulls.append(gradient_of_update(parts, monkeypatch, rollout, torch.zeros_like(returns), returns)[0])
    assert max(each.abs().max().item() for each in pulls[0].values()) == 0
    assert_same({name: 3 * each for name, each in pulls[1].items()}, pulls[2])


@pytest.mark.float32
def test_optimizers_hold_what_is_trained_and_nothing_else(rig: Rig) -> None:
    for layout, precision in [(layout, precision) for layout in LAYOUTS for precision in ("fp32", "bf16")]:
        parts = rig.parts(layout, learning_rate=3e-4, critic_learning_rate=7e-5, precision=precision)
        learner = make_learner(parts.config, parts.reporter, parts.roles, parts.encoder)
        pairs = (
            (learner.policy_optimizer, parts.roles.policy_parameters, 3e-4),
            (learner.critic_optimizer, parts.roles.critic_parameters, 7e-5),
        )
        for optimizer, parameters, rate in pairs:
            (group,) = optimizer.param_groups
            assert [id(each) for each in group["params"]] == [id(each) for each in parameters.values()]
            assert (group["lr"], group["betas"], group["eps"], group["weight_decay"]) == (rate, (0.9, 0.95), 1e-5, 0.0)
            assert all(each.dtype == torch.float32 for each in group["params"])


def test_scores_are_cut_after_scaling_and_before_the_penalty(rig: Rig) -> None:
    parts = rig.parts("shared", **WORDS, missing_eos_penalty=1.5, score_clip=1.0)
    rollout, _, _ = prepared(parts)
    rollout = replace(rollout, scores=torch.tensor([1.0, 2.0, 3.0, -4.0, 5.0, 6.0]), ended=torch.arange(6) % 2 == 0)
    assert final_scores(rollout, parts.config, 2.0).tolist() == [0.5, -0.5, 1.0, -2.5, 1.0, -0.5]


def test_scores_may_be_divided_by_their_running_spread(rig: Rig) -> None:
    parts = rig.parts("shared", **WORDS, running_scores=True)
    first, second = torch.tensor([0.0, 0.0, 0.0, 0.0, 0.0, 6.0]), torch.tensor([3.0, 3.0, 3.0, 3.0, 3.0, 3.0])
    scales = []
    for scores in (first, second):
        adapt_score_scale(parts.config, parts.learner, scores)
        scales.append(parts.learner.score_scale)
    assert scales == pytest.approx(
        [first.std(correction=0).item(), torch.cat([first, second]).std(correction=0).item()]
    )


def test_the_surrogate_with_a_penalty_clips_nothing_and_pulls_back(rig: Rig) -> None:
    moved = {}
    for kl_coef in (0.0, 1e4):
        parts = rig.parts("full", **WORDS, surrogate="penalty", update_kl_coef=kl_coef)
        rollout, advantages, returns = prepared(parts)
        for number in range(4):
            figures = update_minibatch(
                parts.config,
                parts.learner,
                taken(parts, rollout, advantages, returns, torch.arange(6)),
                number=number,
                trains_policy=True,
            )
            assert figures["policy/clip_fraction"] == 0
        moved[kl_coef] = figures["policy/approx_kl"]
    assert 0 < moved[1e4] < 0.7 * moved[0.0]


def test_the_weight_of_the_penalty_follows_what_the_update_moved(rig: Rig) -> None:
    parts = rig.parts("full", **WORDS, surrogate="penalty", update_kl_target=0.01)
    rollout, _, _ = prepared(parts)
    kl = torch.zeros_like(rollout.old_logprobs)
    credit, words = Credit(kl[:, 0], kl, kl, kl, kl), {"trains_policy": True, "check": lambda: None}
    still = adapt_weights(parts.config, parts.learner, Unfinished(rollout, credit), **words)
    assert still == {"policy/update_kl": pytest.approx(0, abs=1e-10), "policy/update_kl_coef": 1.0}
    assert parts.learner.update_kl_coef == 0.5
    mask = rollout.batch.mask
    far = replace(rollout, old_logprobs=torch.where(mask, rollout.old_logprobs + 0.5, 0))
    found = adapt_weights(parts.config, parts.learner, Unfinished(far, credit), **words)
    assert found["policy/update_kl"] == pytest.approx(math.exp(-0.5) - 1 + 0.5, abs=1e-10)
    assert parts.learner.update_kl_coef == 1.0
