"""What a PPO run keeps an eye on: held-out prompts, the best checkpoint, alarms, and its rollouts token by token."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from statistics import fmean, pstdev
from typing import Any

import pytest
import torch
from rig import LAYOUTS, Rig
from transformers import AutoModelForCausalLM

import training.ppo.evaluation
from data.errors import InvalidInput
from data.files.rollouts import HELD_OUT, TOKEN_COLUMNS, TRAIN, read_rollout, recorded_iterations
from data.records import FailureKind, Run, RunKind, RunStatus
from data.runs.state import resume_run
from training.lm.models import weights_hash
from training.ppo.evaluation import Evaluation, held_out_prompts
from training.ppo.learner import Learner
from training.ppo.roles import ScoredRow, SharedRewardModel

pytestmark = [pytest.mark.float64, pytest.mark.filterwarnings("ignore::FutureWarning")]
WORDS = {"iterations": 4, "learning_rate": 1e-2, "critic_learning_rate": 1e-2, "eval_every": 2, "token_rows": 3}


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("watch"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def finished(rig: Rig) -> Run:
    return rig.here(rig.queue_ppo("shared", **WORDS))


def rows_of(rig: Rig, run: Run, side: str, iteration: int) -> list[dict[str, Any]]:
    return read_rollout(rig.folder(run), side, iteration)


def test_the_same_prompts_are_measured_at_the_start_at_times_and_at_the_end(finished: Run, rig: Rig) -> None:
    steps = sorted({step for step, name in rig.metrics(finished) if name.startswith("held_out/")})
    assert steps == recorded_iterations(rig.folder(finished), HELD_OUT) == [0, 2, 4]
    keys = [[row["prompt_key"] for row in rows_of(rig, finished, HELD_OUT, step)] for step in steps]
    assert keys[0] == keys[1] == keys[2] and len(set(keys[0])) == 3
    prompts = {row["prompt"] for row in rows_of(rig, finished, HELD_OUT, 0)}
    assert prompts == rig.held_out(rig.small_snapshot)
    found = rig.metrics(finished)
    assert found[0, "held_out/kl_mean"] == 0, "before the first update the policy is its reference"
    assert found[4, "held_out/kl_mean"] != 0
    for step in steps:
        at = {name: float(found[step, f"held_out/{name}"] or 0) for name in ("score_mean", "kl_mean", "objective")}
        assert at["objective"] == pytest.approx(at["score_mean"] - 0.05 * max(0, at["kl_mean"]), abs=1e-10)


def test_a_score_that_is_gamed_up_to_the_last_evaluation_is_told(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four evaluations of a run are as few as the guard needs, and the fourth comes after the last iteration."""

    def measure(_self: Evaluation, learner: Learner, *_words: Any) -> dict[str, float]:
        step = float(learner.iteration)
        entry = {"score": step, "second": -step, "iteration": step}
        learner.watch.evaluations = [*learner.watch.evaluations, entry]
        return {"held_out/score_mean": step}

    monkeypatch.setattr(Evaluation, "measure", measure)
    run = rig.here(rig.queue_ppo("shared", **(WORDS | {"iterations": 3, "eval_every": 1})))
    (event,) = rig.events(run, "over_optimised")
    assert event.detail["iteration"] == 3 and "3.000 and -3.000 now" in event.detail["seen"]


def test_all_heads_are_asked_within_the_budget_of_tokens(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    words = {"model": rig.model(), "learning_rate": 3e-3, "heads": 3}
    reward = rig.here(rig.queue(RunKind.REWARD, snapshot=rig.small_snapshot, adapter="lora", **words))
    asked: list[int] = []
    plain = SharedRewardModel.spread

    def spread(self: SharedRewardModel, rows: list[ScoredRow]) -> torch.Tensor | None:
        asked.append(len(rows))
        return plain(self, rows)

    monkeypatch.setattr(SharedRewardModel, "spread", spread)
    results = []
    for tokens in (4096, 1):
        asked.clear()
        run = rig.here(
            rig.queue_ppo("shared", reward=reward, **(WORDS | {"iterations": 2, "micro_batch_tokens": tokens}))
        )
        results.append([value for (_, name), value in rig.metrics(run).items() if name == "held_out/spread_mean"])
        assert asked == ([3, 3] if tokens > 1 else [1] * 6)
    assert results[0] == pytest.approx(results[1], abs=1e-10)


def test_the_best_policy_is_kept_and_is_the_one_that_was_measured(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: dict[int, dict[str, torch.Tensor]] = {}
    original = training.ppo.evaluation.save_policy

    def keep(policy: Any, tokenizer: Any, folder: Any, encoder: Any) -> None:
        original(policy, tokenizer, folder, encoder)
        kept[len(kept)] = {name: each.clone() for name, each in policy.language_model.state_dict().items()}

    monkeypatch.setattr(training.ppo.evaluation, "save_policy", keep)
    run = rig.here(rig.queue_ppo("full", **(WORDS | {"iterations": 6})))
    figures = {step: value for (step, name), value in rig.metrics(run).items() if name == "held_out/objective"}
    best = max(figures, key=lambda step: (figures[step], -step))
    assert run.result["best_iteration"] == best
    told = [event.detail["iteration"] for event in rig.events(run, "best_so_far")]
    assert told[0] == 0 and told[-1] == best and told == sorted(told)
    standing = run.result["best_standing"]
    second = max(set(figures) - {best}, key=lambda step: (figures[step], -step))
    assert (standing["prompts"], standing["evaluations"], standing["next_iteration"]) == (3, len(figures), second)
    assert standing["less_next"]["value"] == pytest.approx(figures[best] - figures[second], abs=1e-10)
    if best:
        assert standing["less_start"]["value"] == pytest.approx(figures[best] - figures[0], abs=1e-10)
    folder = rig.folder(run) / "best"
    assert folder.is_dir() is (best > 0)
    if best:
        saved = AutoModelForCausalLM.from_pretrained(folder).state_dict()
        assert all(torch.equal(saved[name], each) for name, each in kept[max(kept)].items())


def test_only_what_is_better_than_everything_before_is_saved(rig: Rig) -> None:
    parts = rig.parts("shared")
    tokenizer = parts.encoder.tokenizer
    held_out = held_out_prompts(parts.config, parts.reporter, parts.encoder, parts.roles.context)
    evaluation = Evaluation(parts.config, held_out, parts.encoder, parts.machine, parts.reporter, tokenizer)
    is_there, best = [], []
    for iteration, objective in enumerate((0.5, 0.5, 0.4, 0.7, 0.6)):
        parts.learner.iteration = iteration
        figures = {"held_out/objective": objective, "held_out/score_mean": 1.0}
        evaluation.keep_if_best(parts.learner, figures, [objective - 0.1, objective + 0.1])
        is_there.append((parts.reporter.folder / "best" / "model.safetensors").is_file())
        best.append(parts.learner.watch.best["iteration"])
    assert is_there == [False, False, False, True, True], "the start is the best until something is better"
    assert best == [0, 0, 0, 3, 3]
    assert json.loads((parts.reporter.folder / "best" / "best.json").read_text())["iteration"] == 3
    told = [(event.detail["iteration"], event.detail["next_iteration"], event.detail["evaluations"])
            for event in rig.events(parts.reporter.run, "best_compared")]  # fmt: skip
    assert told == [(0, None, 1), (0, 1, 2), (3, 0, 4), (3, 4, 5)], "the third changes nothing"
    assert set(parts.learner.watch.by_prompt) == {"0", "3", "4"}
    rig.finish(parts.reporter.run)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_second_reward_model_decides_which_is_best(layout: str, rig: Rig) -> None:
    second = rig.reward("full" if layout == "shared" else "lora")
    before = weights_hash(rig.folder(second) / "model")
    run = rig.here(rig.queue_ppo(layout, **WORDS, second_reward_run=second.id))
    figures = told_at(rig, run, "held_out/second_score_mean")
    assert sorted(figures) == [0, 2, 4]
    assert run.result["best_iteration"] == max(figures, key=lambda step: (figures[step], -step))
    assert {event.detail["told_by"] for event in rig.events(run, "best_so_far")} == {"held_out/second_score_mean"}
    assert weights_hash(rig.folder(second) / "model") == before
    assert not told_at(rig, run, "held_out/second_spread_mean"), "of one model there is none"
    assert all(
        row["second_score"] is not None and row["second_spread"] is None for row in rows_of(rig, run, HELD_OUT, 4)
    )


def kept_apart(values: Iterable[float]) -> float:
    """How far a sum over these values, each of which comes in at most twice, may be off: the file keeps them in
    float32, which takes up to 2^-24 of each."""
    return 2**-23 * sum(map(abs, values))


def told_at(rig: Rig, run: Run, name: str) -> dict[int, float]:
    """A metric by step."""
    return {step: float(value or 0) for (step, each), value in rig.metrics(run).items() if each == name}


def test_several_second_reward_models_decide_by_their_mean_less_their_spread(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = [rig.reward("full"), rig.reward("lora")]
    watched: list[dict[str, float]] = []
    plain = Evaluation.keep_if_best

    def keep(self: Evaluation, learner: Learner, figures: dict[str, float], by_prompt: list[float]) -> None:
        plain(self, learner, figures, by_prompt)
        assert sum(by_prompt) / 3 == pytest.approx(figures["held_out/second_sure_score_mean"], abs=1e-10)
        watched[:] = learner.watch.evaluations

    monkeypatch.setattr(Evaluation, "keep_if_best", keep)
    run = rig.here(rig.queue_ppo("shared", **WORDS, second_reward_run=",".join(each.id for each in seconds)))
    mean, spread, sure = (
        told_at(rig, run, f"held_out/second_{name}") for name in ("score_mean", "spread_mean", "sure_score_mean")
    )
    assert sorted(mean) == sorted(spread) == sorted(sure) == [0, 2, 4]
    assert all(spread[step] > 0 and sure[step] == pytest.approx(mean[step] - spread[step], abs=1e-10) for step in mean)
    score = told_at(rig, run, "held_out/score_mean")  # by the second of them, which PPO trains against here
    assert all(abs(mean[step] - score[step]) > 1e-3 for step in mean), "the first says something too"
    assert run.result["best_iteration"] == max(sure, key=lambda step: (sure[step], -step))
    assert {event.detail["told_by"] for event in rig.events(run, "best_so_far")} == {"held_out/second_sure_score_mean"}
    for step in mean:
        rows = rows_of(rig, run, HELD_OUT, step)
        off = kept_apart(each[name] for each in rows for name in ("second_score", "second_spread", "score"))
        assert sum(each["second_score"] for each in rows) / len(rows) == pytest.approx(mean[step], abs=off)
        assert sum(each["second_spread"] for each in rows) / len(rows) == pytest.approx(spread[step], abs=off)
        for each in rows:  # one of the two is PPO's own, so the mean and the spread say what the other one gives
            assert abs(each["second_score"] - each["score"]) == pytest.approx(each["second_spread"], abs=off)
    assert [each["second"] for each in watched] == pytest.approx([sure[step] for step in (0, 2, 4)], abs=1e-10)


@pytest.mark.parametrize("layout", ["shared", "full"])
def test_an_ensemble_of_heads_says_how_sure_it_is(layout: str, rig: Rig) -> None:
    words = {"model": rig.model(), "learning_rate": 3e-3, "heads": 3}
    adapter = "lora" if layout == "shared" else "full"
    reward = rig.here(rig.queue(RunKind.REWARD, snapshot=rig.small_snapshot, adapter=adapter, **words))
    run = rig.here(rig.queue_ppo(layout, reward=reward, **WORDS))
    found = rig.metrics(run)
    for step in (0, 2, 4):
        score, spread, sure = (
            float(found[step, f"held_out/{name}"] or 0) for name in ("score_mean", "spread_mean", "sure_score_mean")
        )
        assert spread > 0
        assert sure == pytest.approx(score - spread, abs=1e-10)


def test_the_spread_is_the_scorers_own(rig: Rig) -> None:
    from training.lm.models import Machine
    from training.lm.scorer import Scorer
    from training.ppo.roles import SharedRewardModel, ended_text
    from training.ppo.rollout import sample_rollout

    words = {"model": rig.model(), "learning_rate": 3e-3, "heads": 3}
    reward = rig.here(rig.queue(RunKind.REWARD, snapshot=rig.small_snapshot, adapter="lora", **words))
    parts = rig.parts("shared", reward=reward)
    model = parts.roles.reward_model
    assert isinstance(model, SharedRewardModel)
    rollout = sample_rollout(
        parts.roles, parts.prompts[:4], parts.config, parts.encoder, parts.machine, 0, check=lambda: None
    )
    scorer = Scorer(rig.home, reward.id, Machine(torch.device("cpu"), False))
    ends = (parts.encoder.stop_ids, parts.encoder.end_ids, scorer.info.max_length)
    wanted = scorer.spread_ids([ended_text(row, *ends).ids for row in rollout.rows])
    found = model.spread(rollout.rows)
    assert found is not None and wanted is not None
    assert torch.allclose(found, wanted, atol=1e-10, rtol=0)


def test_an_alarm_is_recorded_and_the_run_goes_on(rig: Rig) -> None:
    run = rig.here(rig.queue_ppo("shared", **(WORDS | {"learning_rate": 1e-1}), max_kl=1e-3))
    (event,) = rig.events(run, "kl_above_ceiling")[:1]
    assert "max_kl = 0.001" in event.detail["seen"] and "raise kl_coef" in event.detail["advice"]
    assert run.result["iterations"] == 4


def test_an_alarm_can_stop_the_run_which_can_be_resumed(rig: Rig) -> None:
    words = WORDS | {"learning_rate": 1e-1}
    run = rig.here(rig.queue_ppo("shared", **words, max_kl=1e-3, on_alarm="stop"), RunStatus.FAILED)
    assert run.error_kind is FailureKind.ERROR
    assert run.error_message is not None and "kl_above_ceiling" in run.error_message
    (event,) = rig.events(run, "kl_above_ceiling")
    stopped_at = event.detail["iteration"]
    with rig.store.begin() as tx:
        resume_run(tx, run.id)
    assert rig.here(run).result["iterations"] == 4
    (resumed,) = rig.events(run, "resumed_from_checkpoint")
    assert resumed.detail["step"] == stopped_at


def test_every_number_of_the_loop_is_kept_for_some_tokens(finished: Run, rig: Rig) -> None:
    assert recorded_iterations(rig.folder(finished), TRAIN) == [1, 2, 3, 4]
    for iteration in (1, 2):
        rows = rows_of(rig, finished, TRAIN, iteration)
        assert len(rows) == 3
        for row in rows:
            n = len(row["ids"])
            off = kept_apart([row["score_after_penalty"], *(each for name in TOKEN_COLUMNS for each in row[name])])
            assert all(len(row[name]) == n for name in (*TOKEN_COLUMNS, "clipped", "tokens"))
            assert row["kl"] == pytest.approx(sum(row["logprob"]) - sum(row["ref_logprob"]), abs=off)
            penalties = [-0.05 * (p - q) for p, q in zip(row["logprob"], row["ref_logprob"], strict=True)]
            assert row["kl_penalty"] == pytest.approx(penalties, abs=off)
            assert row["reward"][:-1] == pytest.approx(penalties[:-1], abs=off)
            assert row["reward"][-1] == pytest.approx(penalties[-1] + row["score_after_penalty"], abs=off)
            after = [*row["value"][1:], 0.0]
            errors = [r + v1 - v0 for r, v0, v1 in zip(row["reward"], row["value"], after, strict=True)]
            assert row["td_error"] == pytest.approx(errors, abs=off)
            gains, carried = [], 0.0
            for error in reversed(errors):
                carried = error + 0.95 * carried
                gains.append(carried)
            wanted = [gain + value for gain, value in zip(reversed(gains), row["value"], strict=True)]
            assert row["return"] == pytest.approx(wanted, abs=off)
            assert row["clipped"] == [
                (ratio - 1) * (1 if a > 0 else -1) > 0.2
                for ratio, a in zip(row["ratio"], row["advantage"], strict=True)
            ]
    assert any(abs(ratio - 1) > 1e-4 for row in rows_of(rig, finished, TRAIN, 1) for ratio in row["ratio"])


def test_whitened_rewards_have_the_mean_of_the_plain_ones_and_a_spread_of_1(rig: Rig) -> None:
    words = {"iterations": 1, "eval_prompts": 0, "token_rows": 256, "whiten_rewards": True}
    rows = rows_of(rig, rig.here(rig.queue_ppo("shared", **(WORDS | words))), TRAIN, 1)
    plain, found = [], []
    for row in rows:
        penalties = [-0.05 * (p - q) for p, q in zip(row["logprob"], row["ref_logprob"], strict=True)]
        plain += [*penalties[:-1], penalties[-1] + row["score_after_penalty"]]
        found += row["reward"]
    spread = pstdev(plain)
    assert abs(spread - 1) > 0.1
    # A value, the mean and the spread are each off by at most 2^-24 of the largest value, as the file keeps them.
    wanted = [(each - fmean(plain)) / spread + fmean(plain) for each in plain]
    off = 2**-24 * max(map(abs, plain)) * (4 + max(map(abs, wanted))) / min(1.0, spread) ** 2
    assert found == pytest.approx(wanted, abs=off)


def test_a_file_is_read_by_itself_and_some_columns_of_it(finished: Run, rig: Rig) -> None:
    rows = read_rollout(rig.folder(finished), TRAIN, 2, ("prompt", "score"))
    assert all(row.keys() == {"prompt", "score"} for row in rows)
    with pytest.raises(InvalidInput, match="can't be read"):
        read_rollout(rig.folder(finished), TRAIN, 99)
    (rig.folder(finished) / "rollouts" / "train-00000077.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(InvalidInput, match="train-00000077"):
        read_rollout(rig.folder(finished), TRAIN, 77)


def test_nothing_is_kept_or_measured_where_nothing_is_asked_for(rig: Rig) -> None:
    run = rig.here(rig.queue_ppo("shared", **(WORDS | {"token_rows": 0, "eval_prompts": 0, "iterations": 1})))
    assert not (rig.folder(run) / "rollouts").exists()
    assert not any(name.startswith("held_out/") for _, name in rig.metrics(run))
    assert "best_iteration" not in run.result
