"""What the KL penalty and the guards are for: a reward model that is wrong where the policy goes without them."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

import pytest
from rig import Rig

from data.files.rollouts import HELD_OUT, read_rollout
from data.records import RunKind

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.filterwarnings("ignore::FutureWarning")]


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("gaming"))
    yield made
    made.close()


def three_are_best(text: str) -> int:
    """What people want: up to three z, and every further one is one too many."""
    n = text.count("z")
    return n if n <= 3 else 6 - n


def test_without_the_penalty_the_reward_model_is_gamed_and_the_guard_says_so(rig: Rig) -> None:
    """Few of the ranked answers have more than three z, so the reward model learns that more are better. Held by the KL
    the policy stays what people want while its score rises; the same run without it leaves what the reward model knows.

    Without the KL an update is as wild as it likes: with the kernels of one processor the policy was at its worst after
    the last update, with another's it had come back. So the worst of its evaluations is looked at. Measured: the seed
    below with both kinds of kernels, and three other seeds of rankings, models and updates with the second
    (`ATEN_CPU_CAPABILITY=default`). Where the KL holds the policy, what people want rose by 0.22, 0.21, 0.27, 0.26 and
    0.10, and its score by 1.3, 1.2, 3.1, 1.7 and 4.1. Without it what people want was lower than that by 1.7, 1.9, 0.7,
    0.9 and 3.3 or more, at 8, 7, 5, 4 and 11 times the KL, and the entropy collapsed. That the second reward model saw
    it (`over_optimised`) happened in two of the five: tests/unit/test_guards.py has that rule.
    """

    def ranks(texts: list[str]) -> list[int]:
        values = [three_are_best(text) for text in texts]
        return [1 + sum(other > mine for other in values) for mine in values]

    project = rig.project(n_prompts=300, lengths=(1, 6), ranks=ranks)
    wide = rig.model("llama-wide", hidden_size=64, tie_word_embeddings=False, initializer_range=0.2)
    words = {"snapshot": rig.snapshot(project), "learning_rate": 3e-3}
    model = f"run:{rig.here(rig.queue(RunKind.SFT, model=wide, adapter='full', epochs=3, **words)).id}"
    reward, second = (
        rig.here(rig.queue(RunKind.REWARD, model=model, adapter="lora", epochs=3, seed=seed, **words))
        for seed in (0, 1)
    )
    words |= {"model": model, "reward_run": reward, "second_reward_run": second.id, "critic_learning_rate": 1e-3}
    words |= {"iterations": 30, "prompts_per_iteration": 32, "batch_size": 32, "max_new_tokens": 10, "max_kl": 15.0}
    words |= {"scale_scores": True, "eval_every": 3, "eval_prompts": 64, "token_rows": 64}
    held, free = (rig.here(rig.queue(RunKind.PPO, kl_coef=each, **words)) for each in (0.2, 0.0))
    golds: dict[str, list[float]] = {}  # after each evaluation
    scores: dict[str, list[float]] = {}
    for run in (held, free):
        evaluations = [read_rollout(rig.folder(run), HELD_OUT, step) for step in range(0, 31, 3)]
        golds[run.id] = [fmean(three_are_best(row["response"]) for row in rows) for rows in evaluations]
        scores[run.id] = [fmean(row["score"] for row in rows) for rows in evaluations]
    assert golds[held.id][0] == golds[free.id][0]  # the same start and random numbers
    assert golds[held.id][-1] > golds[held.id][0] - 0.1
    assert scores[held.id][-1] > scores[held.id][0] + 0.5
    assert min(golds[free.id]) < golds[held.id][-1] - 0.35
    assert max(rig.curve(free, "held_out/kl_mean")) > 2 * rig.curve(held, "held_out/kl_mean")[-1]
    alarms = ("over_optimised", "kl_above_ceiling", "entropy_collapsed", "length_at_the_cap", "responses_no_longer_end")
    assert rig.events(held, *alarms) == []
    assert rig.events(free, *alarms)
