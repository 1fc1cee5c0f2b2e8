"""RLOO through TRL, and the table of baselines at equal KL."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import factories as make
import pytest
import torch
from rig import Rig
from tiny import STRICT_TEMPLATE, tiny_tokenizer
from trl import RLOOTrainer

from data.errors import InvalidInput
from data.fields import describe
from data.records import Run, RunKind, Split
from training.launch.config import PPOConfig, RLOOConfig
from training.measures.equal_kl import NO_EVALUATIONS, score_at
from training.methods.baselines import kl_of_best
from training.methods.rloo import PromptOrder, scores_of
from training.ppo.loop import final_scores
from training.ppo.roles import ScoredRow
from training.ppo.rollout import Rollout

pytestmark = [
    pytest.mark.float64,
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*experimental.*:UserWarning"),
]


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("baselines"))
    yield made
    made.close()


def rloo(rig: Rig, **changes: Any) -> Run:
    words = {"model": rig.model(), "iterations": 3, "prompts_per_step": 2, "responses_per_prompt": 2}
    words |= {"max_new_tokens": 6, "learning_rate": 1e-2, "checkpoint_every": 2} | changes
    return rig.here(rig.queue(RunKind.RLOO, snapshot=rig.small_snapshot, reward_run=rig.reward(), **words))


@pytest.mark.parametrize("adapter", ["lora", "full"])
def test_rloo_learns_against_our_reward_model_and_its_policy_can_be_used(adapter: str, rig: Rig) -> None:
    run = rloo(rig, adapter=adapter)
    found = rig.metrics(run)
    assert {step for step, _ in found} == {0, 1, 2, 3}, "the start is evaluated too"
    assert found[1, "rloo/kl_token_mean"] == pytest.approx(0, abs=1e-10)
    assert math.isfinite(found[3, "rloo/reward_mean"] or math.nan)
    assert any(event.detail["step"] == 2 for event in rig.events(run, "checkpoint")) or rig.folder(run).is_dir()
    words = {"model": f"run:{run.id}", "k": 2, "max_new_tokens": 4, "only_new": False}
    sampled = rig.here(rig.queue(RunKind.SAMPLE, project=rig.project(2), **words))
    assert rig.metrics(sampled)


def test_what_rloo_makes_of_three_scores(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each response's score less the mean of the others': of 1, 2 and 6."""
    made: list[list[float]] = []
    inner = RLOOTrainer._generate_and_score_completions

    def recorded(trainer: Any, inputs: Any) -> Any:
        out = inner(trainer, inputs)
        made.append(out["advantages"].tolist())
        return out

    monkeypatch.setattr(RLOOTrainer, "_generate_and_score_completions", recorded)
    monkeypatch.setattr("training.methods.rloo.scores_of", lambda *_words: three_scores)
    rloo(rig, iterations=1, prompts_per_step=1, responses_per_prompt=3, kl_coef=0.0, eval_prompts=0)
    assert made == [pytest.approx([-3.0, -1.5, 4.5], abs=1e-10)]


def three_scores(completion_ids: list[list[int]], **_words: Any) -> list[float]:
    assert len(completion_ids) == 3
    return [1.0, 2.0, 6.0]


def test_prompts_that_the_reward_model_refuses_are_left_out(rig: Rig) -> None:
    """By RLOO those to sample from, by the table those that are held out."""
    project, person = make.make_project(rig.store, k=2), make.make_person(rig.store)
    for number in range(12):
        before = ({"role": "system", "content": "be kind"},) if number % 3 == 0 else ()
        asked, split = (
            (*before, {"role": "user", "content": f"ask {number}"}),
            Split.EVAL if number < 6 else Split.TRAIN,
        )
        task = make.make_task(rig.store, project, "zz", "ab", prompt=asked, split=split)
        make.make_ranking(rig.store, task, person, [1, 2])
    rig.model("llama-strict", tokenizer=tiny_tokenizer(template=STRICT_TEMPLATE))
    links = {"snapshot": rig.snapshot(project), "reward_run": rig.reward("full", "llama-strict")}
    words = {"model": rig.model(), "max_new_tokens": 4}
    sizes = {"iterations": 1, "prompts_per_step": 2, "responses_per_prompt": 2}
    run = rig.here(rig.queue(RunKind.RLOO, **links, **words, **sizes))
    counted = {"used": 4, "too_long": 0, "refused_by_policy": 0, "refused_by_reward_model": 2}
    assert rig.events(run, "prompts")[0].detail == counted
    table = rig.here(rig.queue(RunKind.BASELINES, **links, **words, responses=2, best_of=2))
    assert table.result["prompts"] == 4
    assert rig.events(table, "held_out_prompts_refused")[0].detail == {"used": 4, "refused_by_reward_model": 2}


def test_a_response_that_does_not_end_pays_what_it_pays_in_ppo(rig: Rig) -> None:
    parts = rig.parts("full", missing_eos_penalty=1.5)
    encoder, prompts = parts.encoder, parts.prompts[:2]
    end, (a, b) = encoder.eos_id, encoder.response_ids("ab")[:2]
    ids = [[a, b, end], [a, b], [end], []]  # the last: TRL has cut all of it, so it did end
    words = {"prompts": ["0", "1", "0", "1"], "completion_ids": ids}
    free, charged = (scores_of(prompts, parts.roles.reward_model, encoder, penalty)(**words) for penalty in (0.0, 1.5))
    assert len(set(free)) > 1
    assert [with_it - without for with_it, without in zip(charged, free, strict=True)] == pytest.approx([0, -1.5, 0, 0])
    rows = [
        ScoredRow(prompts[int(place)].messages, prompts[int(place)].ids, each or [end], "", {})
        for place, each in zip(words["prompts"], ids, strict=True)
    ]
    ended = torch.tensor([True, False, True, True])
    scores = parts.roles.reward_model.score(rows)
    empty: Any = None
    rollout = Rollout(rows, empty, ended, scores, empty, empty, empty, empty, {})
    assert charged == pytest.approx(final_scores(rollout, parts.config, 1.0).tolist()), "PPO's own"


def test_the_penalty_has_ppos_default_and_words_and_reaches_the_reward(rig: Rig) -> None:
    name = "advantages.missing_eos_penalty"
    ours, ppos = ({info.name: info for info in describe(config)}[name] for config in (RLOOConfig, PPOConfig))
    assert ours == ppos
    free, charged = (rloo(rig, iterations=1, max_new_tokens=2, missing_eos_penalty=each) for each in (0.0, 3.0))
    without, found = rig.metrics(free), rig.metrics(charged)
    share = without[1, "rloo/cut_share"]
    assert share and found[1, "rloo/cut_share"] == share
    expected = (without[1, "rloo/reward_mean"] or 0) - 3.0 * share
    assert found[1, "rloo/reward_mean"] == pytest.approx(expected, abs=1e-10)


def test_every_pass_over_the_prompts_has_an_order_of_its_own() -> None:
    order = PromptOrder(range(20), mini_repeat_count=2, batch_size=4, seed=3)
    passes = []
    for number in (0, 1, 0, 1):
        order.set_epoch(number)
        passes.append(list(order))
    assert passes[0] == passes[2] != passes[1] == passes[3]
    assert sorted(passes[1]) == sorted([*range(20), *range(20)])


def test_the_table_has_every_policy_at_its_kl(rig: Rig) -> None:
    policy = rloo(rig, iterations=4, learning_rate=5e-2)
    sft = rig.here(rig.queue(RunKind.SFT, snapshot=rig.small_snapshot, model=rig.model(), learning_rate=3e-2, epochs=2))
    words = {"models": f"run:{policy.id} run:{sft.id}", "responses": 2, "best_of": 8, "max_new_tokens": 6}
    words["second_reward_run"] = f"{rig.reward('full').id},{rig.reward('lora').id}"
    run = rig.here(rig.queue(RunKind.BASELINES, snapshot=rig.small_snapshot, reward_run=rig.reward(), **words))
    result = run.result
    assert result["prompts"] == 3
    start, *others = result["policies"]
    assert [row["model"] for row in result["policies"]] == ["start", f"run:{policy.id}", f"run:{sft.id}"]
    assert start["kl"] == 0
    assert all(row["kl"] != 0 and math.isfinite(row["second_score"]) for row in others)
    assert all(row["second_spread"] > 0 for row in result["policies"])
    curve = result["best_of_n"]
    assert [point["n"] for point in curve] == [1, 2, 4, 8]
    assert [point["kl"] for point in curve] == pytest.approx([kl_of_best(n) for n in (1, 2, 4, 8)])
    scores = [point["score"] for point in curve]
    assert scores == sorted(scores)
    assert result["best_of_n_ends_at_kl"] == pytest.approx(kl_of_best(8))
    points = [(point["kl"], point["score"]) for point in curve]
    for row in result["policies"]:
        best = score_at(points, row["kl"])
        assert (best is None) == (row["kl"] > kl_of_best(8))
        gain = None if best is None else pytest.approx(row["score"] - best)
        assert (row["best_of_n_at_its_kl"], row["gain_over_best_of_n"]) == (best, gain)
    found = rig.metrics(policy)
    assert result["equal_kl"] == max(0.0, found[4, "held_out/kl_mean"] or 0.0) and not result["evaluations_differ_in"]
    scores = [row["score_at_equal_kl"] for row in result["policies"]]
    assert scores == [None, found[4, "held_out/score_mean"], None]
    assert [row["why_no_score_at_equal_kl"] for row in result["policies"]] == ["the start", None, NO_EVALUATIONS]


def test_policies_of_every_kind_stand_beside_each_other_at_the_least_of_their_last_kls(rig: Rig) -> None:
    words = {"eval_every": 1, "max_new_tokens": 6, "temperature": 1.0}
    links = {"snapshot": rig.small_snapshot, "reward_run": rig.reward("full"), "model": rig.model()}
    ppo = rig.here(rig.queue_ppo("full", iterations=2, learning_rate=2e-2, kl_coef=0.0, **words))
    sizes = {"iterations": 6, "prompts_per_step": 2, "responses_per_prompt": 2, "learning_rate": 1e-1}
    by_rloo = rig.here(rig.queue(RunKind.RLOO, **links, **words, **sizes, adapter="full"))
    steps = {"batch_size": 16, "micro_batch_size": 16, "epochs": 3, "learning_rate": 2e-2}
    dpo = rig.here(rig.queue(RunKind.DPO, **links, **words, **steps, adapter="full"))
    models = " ".join(f"run:{each.id}" for each in (ppo, by_rloo, dpo, rloo(rig, iterations=1)))
    asked = {"models": models, "responses": 1, "best_of": 2, "max_new_tokens": 6}
    run = rig.here(rig.queue(RunKind.BASELINES, **links, **asked))
    result, found = run.result, {each.step: rig.metrics(each) for each in (ppo, by_rloo, dpo)}
    _, *rows, without = result["policies"]
    last = {n: of[n, "held_out/kl_mean"] or 0.0 for n, of in found.items()}
    assert len(last) == 3, "the numbers of steps tell them apart"
    shorter = min(last, key=last.__getitem__)
    assert result["equal_kl"] == last[shorter] > 0
    assert result["evaluations_differ_in"] == []
    scores = dict(zip(found, (row["score_at_equal_kl"] for row in rows), strict=True))
    assert scores[shorter] == found[shorter][shorter, "held_out/score_mean"]
    assert None not in scores.values() and all(row["why_no_score_at_equal_kl"] is None for row in rows)
    assert without["why_no_score_at_equal_kl"] == "evaluated by another reward model"
    beyond = [row for row in rows if row["kl"] > result["best_of_n_ends_at_kl"]]
    assert beyond, "it went further than the best of two for this test to say anything"
    assert all(row["best_of_n_at_its_kl"] is None and row["gain_over_best_of_n"] is None for row in beyond)


def test_the_kl_of_best_of_n() -> None:
    assert [kl_of_best(n) for n in (1, 4)] == pytest.approx([0, 0.6362943611])


def test_what_is_no_policy_is_refused_at_once(rig: Rig) -> None:
    for models in (f"run:{rig.reward().id}", "some-model"):
        with pytest.raises(InvalidInput, match="models = "):
            rig.queue(RunKind.BASELINES, snapshot=rig.small_snapshot, reward_run=rig.reward(), models=models)
