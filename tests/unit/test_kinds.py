"""The table of the kinds of runs: whole, and what others know of a kind by its name agrees with it."""

from __future__ import annotations

import importlib
import inspect

import pytest

from app.cli import build_parser
from data.fields import describe
from data.records import RunKind
from data.runs.held_out import LEARN, SAMPLE_PROMPTS
from training.launch.config import TrainConfig
from training.launch.kinds import KINDS, TRAINED, WRITERS


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
