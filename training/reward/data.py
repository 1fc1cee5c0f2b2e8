"""What a reward run learns from: its snapshot, encoded for its model, with everything that is cut or left out counted.

`python -m training.reward.data` counts it for a run that is not started yet: the same code gives the same numbers.
"""

from __future__ import annotations

import datetime
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from data.dates import utc_date
from data.errors import InvalidInput, ProjectError
from data.fields import from_dict
from data.files.paths import Home, open_home
from data.packages import check_packages
from training.jobs.reporter import Recorder
from training.launch.config import RewardConfig
from training.lm.dataset import Encoded, encode_snapshot
from training.lm.encoding import Encoder
from training.lm.models import ModelSource, encoder_of_run, find_model, fitting_length, is_classifier


@dataclass(frozen=True)
class RewardData:
    """The encoded snapshot, and what it was encoded with. `config`: as the model at hand allows it."""

    config: RewardConfig
    source: ModelSource
    encoder: Encoder
    encoded: Encoded

    @property
    def counts(self) -> dict[str, int]:
        """Rankings of both sides, and all that was cut or left out, by reason."""
        return {"train": len(self.encoded.train), "held_out": len(self.encoded.held_out), **self.encoded.counts}


def read_data(config: RewardConfig, folder: Path, home: Home, recorder: Recorder) -> RewardData:
    """Encode the snapshot in `folder` as the run reads it. Raises InvalidInput for what can't be trained on."""
    source = find_model(config.model, home, recorder)
    if not config.train:
        config = _as_it_is(config, source)
    encoder = encoder_of_run(source, recorder)
    config = replace(config, max_length=fitting_length(config.max_length, source, recorder))
    encoded = encode_snapshot(folder, encoder, config.max_length, reads_facts=config.facts)
    return RewardData(config, source, encoder, encoded)


def _as_it_is(config: RewardConfig, source: ModelSource) -> RewardConfig:
    """The configuration of a run that trains nothing. Raises InvalidInput for a model without a head."""
    if not is_classifier(source):
        raise InvalidInput(f"model {source.name!r} is no reward model, and train = false trains none; name one")
    return replace(config, adapter="full", heads=1, layers=0)


class Noted:
    """Stands in for a run's reporter where there is no run. `template_date`: that of the snapshot."""

    def __init__(self, template_date: datetime.date) -> None:
        self.models: dict[str, str] = {}
        self.template_date = template_date

    def event(self, kind: str, **detail: Any) -> None:
        """Nothing is stored: the counts say what is lost, and `max_length` what the model reads."""


def main() -> int:
    """Read a snapshot's id, when it was frozen and a configuration from standard input, write the counts to standard
    output, as JSON."""
    check_packages()
    asked, home = json.load(sys.stdin), open_home()
    noted = Noted(utc_date(asked["frozen_at"]))
    try:
        config = from_dict(RewardConfig, asked["config"])
        data = read_data(config, home.snapshot_folder(asked["snapshot_id"]), home, noted)
    except ProjectError as error:
        answer: dict[str, Any] = {"problem": str(error)}
    else:
        model = {"name": data.source.name, "revision": data.source.revision}
        answer = {"counts": data.counts, "max_length": data.config.max_length, "base_model": model}
    sys.stdout.write("\n" + json.dumps(answer) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
