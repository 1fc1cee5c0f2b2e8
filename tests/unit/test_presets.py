"""Named settings: whole, with their sources, and what differs from them is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from data.errors import InvalidConfig
from data.fields import from_dict, from_words, named_as_now, to_dict
from data.records import RunKind
from training.launch.kinds import CONFIGS, TRAINED
from training.launch.presets import PRESETS, Preset, differing, preset_config, preset_values

ALL = [(kind, name, preset) for kind, presets in PRESETS.items() for name, preset in presets.items()]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "defaults.md"


@pytest.mark.parametrize(("kind", "name", "preset"), ALL)
def test_a_preset_is_a_configuration_with_a_source(kind: RunKind, name: str, preset: Preset) -> None:
    config = preset_config(kind, name, {})
    assert kind in TRAINED and preset.source and preset.title
    assert preset.values == named_as_now(CONFIGS[kind], preset.values), "by the names of today"
    assert preset.values.items() <= to_dict(config).items()
    assert differing(kind, name, to_dict(config)) == []
    assert f"`{name}`" in PAGE.read_text(encoding="utf-8")


def test_the_papers_and_machines_that_people_ask_for_are_there() -> None:
    assert set(PRESETS[RunKind.PPO]) == {
        "instructgpt", "stiennon-2020", "ziegler-2019", "huang-2024", "adapters-one-gpu", "cpu-demo",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "values"),
    [
        # Ouyang et al. 2022: one pass in eight minibatches, KL 0.02; Huang et al. 2024: 53 tokens at 0.7, four passes.
        ("instructgpt", {"kl.coef": 0.02, "optimiser.ppo_epochs": 1, "optimiser.minibatches": 8}),
        ("huang-2024", {"kl.coef": 0.05, "sampling.max_new_tokens": 53, "optimiser.ppo_epochs": 4}),
        ("ziegler-2019", {"kl.target": 6.0, "advantages.score_scale": "whiten", "sampling.max_new_tokens": 24}),
        ("stiennon-2020", {"kl.coef": 0.05, "optimiser.learning_rate": 1.5e-5, "sampling.max_new_tokens": 48}),
    ],
)
def test_what_a_paper_says(name: str, values: dict[str, Any]) -> None:
    assert values.items() <= to_dict(preset_config(RunKind.PPO, name, {})).items()
    assert preset_values(RunKind.PPO, name)["sampling.prompts_per_iteration"] == 512


def test_words_go_over_a_preset_and_what_differs_is_told_by_old_and_new_names() -> None:
    base = preset_values(RunKind.PPO, "instructgpt")
    config = from_words(CONFIGS[RunKind.PPO], ["kl_coef=0.1", "iterations=7"], base)
    assert differing(RunKind.PPO, "instructgpt", to_dict(config)) == [("iterations", 7, 500), ("kl.coef", 0.1, 0.02)]
    assert ("kl.coef", 0.1, 0.05) in differing(RunKind.PPO, "", {"kl_coef": 0.1})
    named = to_dict(from_dict(CONFIGS[RunKind.PPO], base | {"model": "demo", "prompts_file": "x.jsonl"}))
    assert differing(RunKind.PPO, "instructgpt", named) == [], "what a run works on is no setting"


def test_an_unknown_preset_is_refused_with_those_that_are_there() -> None:
    with pytest.raises(InvalidConfig, match=r"preset = 'instruct': one of instructgpt, stiennon-2020, .* for ppo runs"):
        preset_values(RunKind.PPO, "instruct")
    with pytest.raises(InvalidConfig, match="one of none is there for sft runs"):
        preset_values(RunKind.SFT, "instructgpt")
