"""The model card of a reward model, written from its run: what it learnt from, how good it is, what it is for."""

from __future__ import annotations

from typing import Any

from training.lm.encoding import Encoder
from training.lm.scorer import RewardInfo

CARD = "README.md"


def model_card(
    info: RewardInfo, run_id: str, snapshot_id: str | None, report: dict[str, Any] | None, encoder: Encoder
) -> str:
    """The card as Markdown with the metadata that the hub reads. Without a report it says that nothing was measured."""
    head = [
        "---",
        "library_name: transformers",
        "pipeline_tag: text-classification",
        "tags: [reward-model, rankloop]",
        "---",
        "",
        "# Reward model",
        "",
        f"Trained by rankloop (run `{run_id}`) from `{info.base_model}` (revision `{info.base_revision}`) on rankings",
        f"of responses, snapshot `{snapshot_id}`.",
        "",
        "## Scores",
        "",
        "A score compares responses to one prompt; by itself, and between prompts, it means little. Load the model",
        "with `AutoModelForSequenceClassification`, encode the prompt by its chat template with a generation prompt,",
        f"append the response and what ends it, `{encoder.show(encoder.end_ids)!r}` (token ids "
        f"{', '.join(map(str, encoder.end_ids))}), and take the shift off the logit:",
        "",
        f"    score = logit - ({info.shift!r})",
        "",
        f"With that the mean over {info.n:,} SFT responses is 0; their standard deviation is {info.std:.4f}. Texts",
        f"have at most {info.max_length:,} tokens; a longer prompt is cut on its left.",
        "",
        *_notes(info, encoder),
    ]
    return "\n".join([*head, *_measured(report), *_use()])


def _notes(info: RewardInfo, encoder: Encoder) -> list[str]:
    """What somebody who loads it by hand would get wrong."""
    notes = []
    if encoder.is_dated:
        notes.append(f"Its template asks for the date (`strftime_now`); it has learnt with {encoder.date.isoformat()}.")
    if info.reads_facts:
        notes.append(
            "It reads a prompt's reference facts where there are some: an empty line, `Reference facts:` and the facts "
            "behind the last message."
        )
    if info.n_heads > 1:
        notes.append(f"Its head is the mean of {info.n_heads} heads, which are in `heads.safetensors`.")
    return [*notes, ""] if notes else []


def _measured(report: dict[str, Any] | None) -> list[str]:
    if report is None:
        return ["## Measured", "", "Nothing: the snapshot had no held-out side.", ""]
    model, length = report["model"], report["model"]["length"]
    rows = [
        ("pair accuracy", model["pair_accuracy"]),
        (f"length alone ({length['baseline']})", length["accuracy"]),
        *([("instant reward model", report["instant"]["pair_accuracy"])] if "instant" in report else []),
        ("two people with each other", model["human_agreement"]),
        ("rankings in exact order", model["exact_order"]),
        ("Kendall's tau-b", model["tau"]),
    ]
    return [
        "## Data",
        "",
        f"{report['train_rankings']:,} rankings to learn from, {model['rankings']:,} held out by prompt "
        f"({model['pairs']:,} pairs), by {len(model['by_annotator']):,} annotators of the held-out side.",
        "",
        "## Measured",
        "",
        "On held-out prompts, with 95 % intervals over prompts.",
        "",
        "| figure | value | interval | n |",
        "|---|---|---|---|",
        *(_row(name, figure) for name, figure in rows),
        "",
        f"Expected calibration error {model['calibration']['error']:.3f}; fitted temperature "
        f"{model['calibration']['temperature']:.2f}.",
        "",
        *(f"- {each}" for each in report["verdicts"]),
        "",
    ]


def _row(name: str, figure: dict[str, Any]) -> str:
    value, low, high = (figure[each] for each in ("value", "low", "high"))
    reach = "" if low is None else f"{low:.3f} to {high:.3f}"
    return f"| {name} | {'unknown' if value is None else f'{value:.3f}'} | {reach} | {figure['n']:,} |"


def _use() -> list[str]:
    return [
        "## Use",
        "",
        "Made to rank responses to prompts like those that it was trained on: as the reward of PPO, with a KL penalty,",
        "or to choose among samples. It has learnt what its annotators preferred, with their errors and their taste.",
        "It is no judge of truth or of safety, and a policy that is trained against it long enough finds what it",
        "overrates.",
        "",
    ]
