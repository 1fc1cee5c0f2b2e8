"""Does PPO raise what people wanted, within its KL, on prompts it never saw? Three seeds each; PPO sees scores only.

What is planted is never shown to PPO: rankings by it train a reward model, PPO trains against that, and answers to
held-out prompts are judged by what was planted.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import factories as make
import pytest
from rig import LAYOUTS, Rig, noisy_ranks_by_z

from data.labels.projects import create_project
from data.labels.prompts import add_prompts
from data.labels.roles import OPERATOR
from data.labels.tasks import get_tasks, list_task_ids
from data.records import NewPrompt, Project, Run, RunKind, Snapshot, Split
from data.runs.metrics import sample_steps, samples_of
from labeling.snapshot.freeze import SnapshotConfig, freeze_snapshot

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::FutureWarning")]
SEEDS = pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
BEGINNINGS = (
    "The movie was", "This film is", "I thought the", "The acting was", "My favourite scene", "The story of",
    "It was a", "The director", "We watched this", "At the end",
)  # fmt: skip
ENDINGS = ("", " really", " not", " very", " one of", " just")


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("ppo-learning"))
    yield made
    made.close()


def answers(rig: Rig, project: Project, before: str, after: str, n_prompts: int, **words: Any) -> dict[str, list[str]]:
    """Texts of both models on prompts of the project, four to each; held-out ones first."""
    names: dict[str, Any] = {"model_a": before, "model_b": after, "k": 4, "limit": n_prompts, "batch_size": n_prompts}
    names["prompts"] = "any"  # fewer would be held out than the test needs
    run = rig.here(rig.queue(RunKind.COMPARE, project=project, **names, **words))
    with rig.store.read() as tx:
        rows = [row for _, row in samples_of(tx, run.id, sample_steps(tx, run.id)[-1])]
    return {side: [row["response"] for row in rows if row["side"] == side] for side in "ab"}


Letters = tuple[Project, Snapshot, str, dict[str, Run]]


@pytest.fixture(scope="module")
def letters(rig: Rig) -> Letters:
    """A tiny model fine-tuned to say short words of four letters, and reward models of people who like one letter."""
    project = rig.project(n_prompts=300, lengths=(1, 8), ranks=noisy_ranks_by_z(random.Random(0)))
    snapshot = rig.snapshot(project)
    # Wide and untied: with a frozen small embedding low-rank training could hardly move a distribution.
    wide = rig.model("llama-wide", hidden_size=64, tie_word_embeddings=False, initializer_range=0.2)
    words = {"snapshot": snapshot, "learning_rate": 3e-3, "epochs": 3}
    sft = rig.here(rig.queue(RunKind.SFT, model=wide, adapter="full", **words))
    model = f"run:{sft.id}"
    rewards = {
        each: rig.here(rig.queue(RunKind.REWARD, model=model, adapter=each, **words)) for each in ("lora", "full")
    }
    return project, snapshot, model, rewards


@SEEDS
@pytest.mark.long
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_planted_letter_becomes_more_frequent(layout: str, seed: int, rig: Rig, letters: Letters) -> None:
    project, snapshot, model, rewards = letters
    reward = rewards["lora" if layout == "shared" else "full"]
    words = {"adapter": "full" if layout == "full" else "lora", "learning_rate": 1e-3, "critic_learning_rate": 1e-3}
    sizes = {"iterations": 16, "prompts_per_iteration": 32, "batch_size": 32, "max_new_tokens": 10}
    links = {"snapshot": snapshot, "reward_run": reward, "model": model, "seed": seed}
    run = rig.here(rig.queue(RunKind.PPO, **links, **words, **sizes, scale_scores=True))
    texts = answers(rig, project, model, f"run:{run.id}", 50, max_new_tokens=10)
    before, after = (fmean(text.count("z") for text in texts[side]) for side in "ab")
    assert after > before + 1.5, (before, after)  # some 1.6 before
    scores = rig.curve(run, "reward/score_mean")
    assert fmean(scores[-5:]) > scores[0] + 0.5
    assert max(rig.curve(run, "kl/k1_mean")) < 12
    assert max(rig.curve(run, "policy/first_ratio_deviation")) < 1e-3


def test_a_heavy_kl_keeps_the_policy_where_it_was(rig: Rig, letters: Letters) -> None:
    _, snapshot, model, rewards = letters
    links = {"snapshot": snapshot, "reward_run": rewards["lora"], "model": model}
    words = {"learning_rate": 1e-3, "critic_learning_rate": 1e-3, "iterations": 12, "max_new_tokens": 10}
    free, held = (rig.here(rig.queue(RunKind.PPO, **links, **words, kl_coef=each)) for each in (0.0, 5.0))
    assert fmean(rig.curve(held, "kl/k1_mean")[-4:]) < 0.3 * fmean(rig.curve(free, "kl/k1_mean")[-4:])


def shared_model(name: str) -> Path:
    """A small model that is not in the repository: in `shared/models` in the checkout, or beside what it stands in."""
    root = Path(__file__).resolve().parents[2]
    for folder in (root, root.parent, root.parent.parent):
        if (found := folder / "shared" / "models" / name).is_dir():
            return found
    return make.skip(f"no folder shared/models/{name} near the checkout")


def ranked_by(rig: Rig, model: str, gold: Callable[[str], float]) -> Project:
    """A project of beginnings of film reviews, sampled from the model and ranked by what is planted."""
    with rig.store.begin() as tx:
        project = create_project(tx, "reviews", k=4, overlap=1)
        texts = [first + last for first in BEGINNINGS for last in ENDINGS]
        prompts = [
            NewPrompt(({"role": "user", "content": text},), Split.TRAIN if place % 4 else Split.EVAL)
            for place, text in enumerate(texts)
        ]
        add_prompts(tx, project.id, prompts)
    words = {"project": project, "model": model, "k": 4, "max_new_tokens": 24, "batch_size": 30}
    rig.here(rig.queue(RunKind.SAMPLE, **words))
    person = make.make_person(rig.store)
    with rig.store.read() as tx:
        tasks = get_tasks(tx, list_task_ids(tx, project.id, limit=1000))
    for task in tasks:
        values = [gold(response.text) for response in task.responses]
        make.make_ranking(rig.store, task, person, [1 + sum(other > mine for other in values) for mine in values])
    return project


class Reviews(NamedTuple):
    """A model that has read film reviews, and what was made of what people like about its texts."""

    model: str
    project: Project
    snapshot: Snapshot
    reward: Run


def count_the(text: str) -> int:
    return len(re.findall(r"\bthe\b", text.lower()))


@pytest.fixture(scope="module")
def reviews(rig: Rig) -> Reviews:
    """A language model of 1.6 million weights; people like the word "the"."""
    model = str(shared_model("tiny-reviews"))
    project = ranked_by(rig, model, count_the)
    snapshot = freeze_snapshot(rig.store, OPERATOR, rig.home, project.id, SnapshotConfig())
    words = {"snapshot": snapshot, "model": model, "learning_rate": 2e-3, "epochs": 6}
    return Reviews(model, project, snapshot, rig.here(rig.queue(RunKind.REWARD, **words)))


def test_a_reward_model_of_a_model_with_words_beats_length(reviews: Reviews) -> None:
    held_out = reviews.reward.result["held_out"]
    assert held_out["pair_accuracy"] > held_out["length_accuracy"] + 0.15


@SEEDS
def test_a_model_with_words_learns_to_say_more_of_one(seed: int, rig: Rig, reviews: Reviews) -> None:
    words = {"snapshot": reviews.snapshot, "model": reviews.model, "reward_run": reviews.reward, "seed": seed}
    rates = {"learning_rate": 1e-3, "critic_learning_rate": 1e-3, "scale_scores": True}
    sizes = {"iterations": 6, "prompts_per_iteration": 45, "batch_size": 45, "max_new_tokens": 24}
    run = rig.here(rig.queue(RunKind.PPO, **words, **rates, **sizes))
    texts = answers(rig, reviews.project, reviews.model, f"run:{run.id}", 15, max_new_tokens=24)
    before, after = (fmean(count_the(text) for text in texts[side]) for side in "ab")
    assert after > before + 0.5  # of 0.5 before
    assert max(rig.curve(run, "kl/k1_mean")) < 15
