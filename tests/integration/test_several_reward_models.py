"""Reward runs of several seeds: queued in one go, named together as second reward models, each bad one told."""

from __future__ import annotations

import pytest
import torch
from cli_runner import Cli
from factories import make_snapshot
from run_makers import ended

from data.errors import InvalidConfig, InvalidInput
from data.fields import from_dict
from data.files.paths import Home
from data.labels.roles import OPERATOR
from data.records import RunKind, RunStatus, Snapshot
from data.runs.state import list_runs
from data.store import Store
from training.launch.config import BaselinesConfig, PPOConfig, RewardConfig, ScoreConfig
from training.launch.queue import MOST_SEEDS, queue_run, queue_seeds
from training.ppo.evaluation import TELLING, second_figures

pytestmark = pytest.mark.float64


@pytest.fixture
def snapshot(sqlite_store: Store, home: Home) -> Snapshot:
    return make_snapshot(sqlite_store, home)


def test_of_several_models_the_mean_less_the_spread_of_each_response() -> None:
    """By hand: spreads 1 and 3 about the means 2 and 5."""
    found = second_figures(torch.tensor([[1.0, 3.0], [2.0, 8.0]]))
    assert found == {
        "held_out/second_score_mean": 3.5, "held_out/second_spread_mean": 2.0, "held_out/second_sure_score_mean": 1.5,
    }  # fmt: skip
    assert second_figures(torch.tensor([[1.0], [2.0]])) == {"held_out/second_score_mean": 1.5}
    assert TELLING.index("held_out/second_sure_score_mean") < TELLING.index("held_out/second_score_mean")


@pytest.mark.parametrize("kind", [RunKind.PPO, RunKind.BASELINES])
def test_one_or_several_second_reward_runs_are_stored_by_their_whole_ids(
    kind: RunKind, sqlite_store: Store, snapshot: Snapshot
) -> None:
    first, second, third = (ended(sqlite_store, RunKind.REWARD, snapshot=snapshot, seed=n) for n in range(3))
    links = {"snapshot_id": snapshot.id, "reward_run_id": first.id}
    for written, stored in (
        ("", ()),
        (second.id[-8:], (second,)),
        (f" {second.id[-8:]}, {third.id} ", (second, third)),
    ):
        config = (PPOConfig if kind is RunKind.PPO else BaselinesConfig)(second_reward_run=written)
        run = queue_run(sqlite_store, OPERATOR, kind, config, **links)
        assert run.config["second_reward_run"] == ",".join(each.id for each in stored)


def test_each_bad_second_reward_run_is_told_and_nothing_is_queued(sqlite_store: Store, snapshot: Snapshot) -> None:
    first, good = (ended(sqlite_store, RunKind.REWARD, snapshot=snapshot, seed=n) for n in range(2))
    failed = ended(sqlite_store, RunKind.REWARD, status=RunStatus.FAILED, snapshot=snapshot)
    tuned = ended(sqlite_store, RunKind.SFT, snapshot=snapshot)
    written = f"{good.id},nowhere,{failed.id},,{tuned.id},{good.id}"
    links = {"snapshot_id": snapshot.id, "reward_run_id": first.id}
    with pytest.raises(InvalidInput) as told:
        queue_run(sqlite_store, OPERATOR, RunKind.PPO, PPOConfig(second_reward_run=written), **links)
    said = str(told.value)
    assert said.startswith(f"second_reward_run = {written!r}: ")
    for words in (
        "no run 'nowhere'", f"run {failed.id} is a reward run that has failed; a finished reward run is needed",
        "an id is missing between two commas", f"run {tuned.id} is a sft run that has succeeded",
        f"run {good.id} is named twice",
    ):  # fmt: skip
        assert said.count(words) == 1, words
    with sqlite_store.read() as tx:
        assert not list_runs(tx, kinds=(RunKind.PPO,))


def test_what_waits_is_scored_by_one_model_at_a_time() -> None:
    with pytest.raises(InvalidConfig, match="beside is for a file"):
        ScoreConfig(unranked=True, beside="a")


def test_seeds_are_counted_up_from_the_run_s(sqlite_store: Store, home: Home, snapshot: Snapshot) -> None:
    runs = queue_seeds(
        sqlite_store,
        OPERATOR,
        RunKind.REWARD,
        from_dict(RewardConfig, {"machine.seed": 5}),
        3,
        snapshot_id=snapshot.id,
        nonce="a",
    )
    assert [run.config["machine.seed"] for run in runs] == [5, 6, 7]
    assert len({str(run.config | {"machine.seed": 0}) for run in runs}) == 1
    again = queue_seeds(
        sqlite_store,
        OPERATOR,
        RunKind.REWARD,
        from_dict(RewardConfig, {"machine.seed": 5}),
        3,
        snapshot_id=snapshot.id,
        nonce="a",
    )
    assert [run.id for run in again] == [run.id for run in runs], "the same click"
    for n in (0, MOST_SEEDS + 1):
        with pytest.raises(InvalidConfig, match=f"{n} seeds: 1 to {MOST_SEEDS} are allowed"):
            queue_seeds(sqlite_store, OPERATOR, RunKind.REWARD, RewardConfig(), n, snapshot_id=snapshot.id)
    with pytest.raises(InvalidConfig, match="seed = 2147483648"):
        queue_seeds(
            sqlite_store,
            OPERATOR,
            RunKind.REWARD,
            from_dict(RewardConfig, {"machine.seed": 2**31 - 1}),
            2,
            snapshot_id=snapshot.id,
        )
    with sqlite_store.read() as tx:
        assert len(list_runs(tx)) == 3


def test_the_command_queues_a_run_for_each_seed(
    home: Home, sqlite_store: Store, snapshot: Snapshot, capsys: pytest.CaptureFixture[str]
) -> None:
    cli = Cli(home.root, capsys)
    made = cli.make("train", "reward", "--snapshot", snapshot.id, "--seeds", "3", "--set", "seed=2", "epochs=2")
    assert [each["config"]["machine.seed"] for each in made["runs"]] == [2, 3, 4] and made["id"] == made["runs"][0][
        "id"
    ]
    assert {each["config"]["optimiser.epochs"] for each in made["runs"]} == {2}
    assert "0 seeds: 1 to 16 are allowed" in cli.refuse("train", "reward", "--snapshot", snapshot.id, "--seeds", "0")
