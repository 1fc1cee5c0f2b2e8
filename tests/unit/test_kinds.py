"""The table of the kinds of runs: whole, and what others know of a kind by its name agrees with it."""

from __future__ import annotations

import importlib
import inspect
from dataclasses import replace

import pytest
from factories import make_project
from run_makers import queued

from app.cli import build_parser
from data.fields import describe, to_dict
from data.records import RunKind
from data.runs.held_out import LEARN, SAMPLE_PROMPTS
from data.store import Store
from training.launch.config import TrainConfig
from training.launch.kinds import KINDS, TRAINED, WRITERS, config_of, settings


def test_every_kind_has_a_row() -> None:
    assert set(KINDS) == set(RunKind)


@pytest.mark.parametrize("kind", list(RunKind))
def test_its_job_takes_its_configuration(kind: RunKind) -> None:
    row = KINDS[kind]
    config, reporter = inspect.signature(importlib.import_module(row.job).run).parameters.values()
    assert set(str(config.annotation).replace(" ", "").split("|")) & {each.__name__ for each in row.config.__mro__}
    assert reporter.name == "reporter"


@pytest.mark.parametrize("kind", [kind for kind in RunKind if KINDS[kind].command])
def test_its_command_is_one(kind: RunKind, capsys: pytest.CaptureFixture[str]) -> None:
    words = KINDS[kind].command.split()
    with pytest.raises(SystemExit) as ended:
        build_parser().parse_args([*(word for word in words if not word.startswith("--")), "--help"])
    assert ended.value.code == 0
    assert words[-1] in capsys.readouterr().out


@pytest.mark.parametrize("kind", TRAINED)
def test_the_fields_that_its_form_shows_first_are_its_own(kind: RunKind) -> None:
    assert set(KINDS[kind].first) <= {info.name for info in describe(KINDS[kind].config)}


def test_what_is_held_out_is_told_of_every_kind_that_learns() -> None:
    """`data` can't see this table; a kind that is missing there would call its training prompts held out."""
    assert set(LEARN) == {kind for kind, row in KINDS.items() if issubclass(row.config, TrainConfig)}
    fields = {kind: {info.name for info in describe(row.config)} for kind, row in KINDS.items()}
    assert set(SAMPLE_PROMPTS) == {kind for kind, names in fields.items() if "prompts_file" in names}


def test_who_writes_a_model_that_others_start_from_is_trained() -> None:
    assert set(WRITERS) < set(TRAINED)
    assert {RunKind.CHECK, RunKind.BASELINES}.isdisjoint(TRAINED)


# What a PPO run of release 0.1.0 has in the store: no groups, three yes/no fields, and one that is gone.
OLD = {
    "adapter": "lora", "batch_size": 8, "checkpoint_every": 25, "clip_range": 0.2, "critic_learning_rate": None,
    "critic_warmup": 2, "device": "cpu", "entropy_coef": 0.01, "eval_every": 10, "eval_prompts": 16,
    "gae_lambda": 0.95, "gamma": 1.0, "iterations": 50, "kl_coef": 0.02, "kl_estimator": "k1", "kl_horizon": 10000,
    "kl_place": "loss", "kl_target": 6.0, "learning_rate": 3e-06, "lora_alpha": 32, "lora_rank": 16,
    "loss_mean": "response", "max_grad_norm": 1.0, "max_kl": None, "max_new_tokens": 24, "max_prompt_tokens": 512,
    "max_update_kl": None, "micro_batch_tokens": 4096, "minibatches": 2, "missing_eos_penalty": 1.0, "model": "demo",
    "on_alarm": "stop", "ppo_epochs": 4, "precision": "auto", "prompts_file": "", "prompts_per_iteration": 32,
    "ptx_coef": 0.0, "ptx_file": "", "responses_per_prompt": 1, "running_scores": False, "sample_rows": 8,
    "scale_scores": True, "score_clip": None, "second_reward_run": "", "seed": 3, "share_prompts": True,
    "surrogate": "clip", "temperature": 0.7, "threads": 1, "token_rows": 8, "update_kl_coef": 1.0,
    "update_kl_target": 0.01, "value_clip_range": None, "whiten_rewards": False,
}  # fmt: skip


def test_a_run_that_an_older_release_stored_is_read_to_the_last_field(sqlite_store: Store) -> None:
    run = replace(queued(sqlite_store, RunKind.PPO, make_project(sqlite_store)), config=OLD)
    config = config_of(run)
    assert settings(run) == to_dict(config), "nothing is missing, and nothing is left over"
    assert config.advantages.score_scale == "sft"
    assert (config.kl.coef, config.kl.place, config.kl.target, config.limits.value_clip_range) == (
        0.02,
        "loss",
        6.0,
        None,
    )
    assert (config.machine.seed, config.sampling.max_new_tokens, config.optimiser.ppo_epochs) == (3, 24, 4)
    for info in describe(type(config)):
        if info.flat in OLD:
            assert settings(run)[info.name] == OLD[info.flat], info.name
