"""How a configuration becomes a form: groups, labels, help."""

from __future__ import annotations

import pytest

from app.widgets.forms.config_form import GROUP_WORDS, grouped, help_of, label_of
from data.fields import describe
from training.launch.config import PPOConfig
from training.launch.kinds import CONFIGS


@pytest.mark.parametrize("config", list(CONFIGS.values()))
def test_each_field_is_in_one_group(config: type) -> None:
    names = [info.name for _, members in grouped(config, (), ()) for info in members]
    assert sorted(names) == sorted(info.name for info in describe(config))
    assert {info.group for info in describe(config)} <= {"", *GROUP_WORDS}


def test_what_stands_in_front_keeps_its_order_and_is_nowhere_else() -> None:
    groups = dict(grouped(PPOConfig, ("kl.coef", "model"), ("machine.seed",)))
    assert [info.name for info in groups[""]] == ["kl.coef", "model"]
    rest = [info.name for words, members in groups.items() if words for info in members]
    assert not {"kl.coef", "model", "machine.seed"} & set(rest)


def test_label_and_help() -> None:
    infos = {info.name: info for info in describe(PPOConfig)}
    assert label_of(infos["kl.coef"]) == "KL coef (reward per nat)"
    assert label_of(infos["sampling.max_new_tokens"]) == "Max new tokens", "a unit that the name says is not said twice"
    assert help_of(infos["kl.coef"]) == (
        "Weight of the KL penalty. Default: `0.05`. On the command line: `--set kl.coef=...`"
    )
    assert "Default: empty" in help_of(infos["prompts_file"])
