"""One sample of a PPO run as the policy and each reward model read it, special tokens and all, for people to see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from data.files.snapshots import read_groups
from training.jobs.reporter import Reporter
from training.launch.config import PPOConfig
from training.lm.encoding import Encoder
from training.ppo.roles import Reading, ScoredRow
from training.ppo.rollout import PromptItem

MOST_CHARACTERS = 20_000  # of a text that is shown; a report is a row of the store
STAND_IN = "This response stands in for one."


@dataclass(frozen=True)
class Shown:
    """A text of `tokens` tokens as `reader` reads it. notes: what was cut or stands in; "" for nothing."""

    reader: str
    tokens: int
    text: str
    notes: str


def show_sample(
    config: PPOConfig,
    reporter: Reporter,
    encoder: Encoder,
    readings: Mapping[str, Reading],
    prompts: Sequence[PromptItem],
) -> list[Shown]:
    """A prompt of the run with a response and its end: first what the policy reads, then the reward models."""
    row, notes = find_sample(config, reporter, encoder, prompts)
    shown = [_shown("policy", encoder, row.prompt + row.response, notes)]
    for name, reading in readings.items():
        fitted, notes = reading.text(row), []
        if fitted.is_prompt_cut:
            notes.append(f"the prompt's beginning is cut: it reads at most {reading.info.max_length} tokens")
        if fitted.is_response_cut:
            notes.append("the response is cut as well")
        shown.append(_shown(name.replace("_", " "), reading.encoder, fitted.ids, notes))
    return shown


def find_sample(
    config: PPOConfig, reporter: Reporter, encoder: Encoder, prompts: Sequence[PromptItem]
) -> tuple[ScoredRow, list[str]]:
    """A prompt with the best-ranked response to it, as if it were sampled, and what was done to it for that.

    The first prompt that has a response, or one of those with reference facts where there are such.
    """
    best: dict[str, str] = {}
    if not config.prompts_file:
        groups = read_groups(reporter.home.snapshot_folder(reporter.run.snapshot_id or ""))
        best = {group.prompt_id: group.best for group in groups}
    known = [prompt for prompt in prompts if prompt.key in best] or prompts
    item = next((prompt for prompt in known if prompt.facts), known[0])
    notes = [] if item.key in best else ["no response to the prompt is in the snapshot, a sentence stands in"]
    response = encoder.response_ids(best.get(item.key, STAND_IN))
    if len(response) > config.sampling.max_new_tokens:
        response = [*response[: config.sampling.max_new_tokens - 1], encoder.end_id]
        notes.append(f"the response is cut to {config.sampling.max_new_tokens} tokens, as max_new_tokens says")
    return ScoredRow(item.messages, item.ids, response, encoder.decode(response), item.facts), notes


def _shown(reader: str, encoder: Encoder, ids: list[int], notes: list[str]) -> Shown:
    text, half = encoder.show(ids), MOST_CHARACTERS // 2
    if len(text) > MOST_CHARACTERS:
        notes = [*notes, f"{len(text) - MOST_CHARACTERS:,} characters of its middle are not shown"]
        text = f"{text[:half]} […] {text[-half:]}"
    return Shown(reader, len(ids), text, "; ".join(notes))
