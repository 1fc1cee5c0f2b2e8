"""What `rankloop demo` writes: a table before and after, curves as pictures, samples side by side, figures as JSON."""

from __future__ import annotations

import json
import math
import random
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any

from app.demo.judge import BEST_LENGTH, END_BONUS, LAPSE, NOISE, STEP, TOKEN_COST, gold_score
from data.intervals import LEAST_PROMPTS, Difference, Told, paired

Rows = list[dict[str, Any]]
Curves = dict[str, list[tuple[int, float]]]
N_RESAMPLES, N_SAMPLES = 2000, 5


def mean_with_interval(values_by_prompt: dict[str, list[float]], seed: int = 0) -> tuple[float, float, float]:
    """(mean, low, high): a 95 % bootstrap interval over prompts, whose answers are not independent."""
    prompts = sorted(values_by_prompt)
    rng = random.Random(seed)

    def mean_of(chosen: list[str]) -> float:
        return fmean(value for prompt in chosen for value in values_by_prompt[prompt])

    resampled = sorted(mean_of(rng.choices(prompts, k=len(prompts))) for _ in range(N_RESAMPLES))
    low, high = resampled[int(0.025 * N_RESAMPLES)], resampled[math.ceil(0.975 * N_RESAMPLES) - 1]
    return mean_of(prompts), low, high


def measure(rows: Rows) -> dict[str, tuple[float, float, float]]:
    """Each figure of one side's answers, with its interval."""
    figures: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        prompt = row["prompt"]
        figures["gold score"][prompt].append(gold_score(row["n_tokens"], row["ended"]))
        figures["reward model's score"][prompt].append(row["score"])
        figures["length in tokens"][prompt].append(row["n_tokens"])
        figures["ended by itself"][prompt].append(float(row["ended"]))
    return {name: mean_with_interval(values) for name, values in figures.items()}


def gain(rows: Rows) -> Difference:
    """By how much the gold score of the answers rose, prompt by prompt."""
    sides: dict[str, dict[str, list[float]]] = {"a": defaultdict(list), "b": defaultdict(list)}
    for row in rows:
        sides[row["side"]][row["prompt"]].append(gold_score(row["n_tokens"], row["ended"]))
    prompts = sorted(set(sides["a"]) & set(sides["b"]))
    before, after = ([fmean(sides[side][prompt]) for prompt in prompts] for side in ("a", "b"))
    return paired(after, before)


def gain_words(gain: Difference) -> str:
    """Whether the gold score rose, with n and interval."""
    if gain.told is Told.TOO_FEW:
        return f"Whether the gold score rose can't be told of {gain.n} prompts; {LEAST_PROMPTS} are needed."
    reach = f"{gain.value:+.2f} ({gain.low:+.2f} to {gain.high:+.2f}, paired over {gain.n} prompts)"
    words = {Told.MORE: "The gold score rose", Told.LESS: "The gold score fell"}
    return f"{words.get(gain.told, 'Whether the gold score rose can not be told')}: {reach}."


def write_report(folder: Path, summary: dict[str, Any], curves: Curves, rows: Rows) -> None:
    """Write report.md, summary.json, reward.png and kl.png; put the figures before and after into the summary."""
    folder.mkdir(parents=True, exist_ok=True)
    before = measure([row for row in rows if row["side"] == "a"])
    after = measure([row for row in rows if row["side"] == "b"])
    summary["before"], summary["after"] = before, after
    summary["gain"] = gain(rows).as_dict()
    _plot(folder / "reward.png", "Reward model's score of the sampled answers", curves["reward/score_mean"], "score")
    _plot(folder / "kl.png", "KL to the model before training", curves["kl/k1_mean"], "nats per answer")
    (folder / "summary.json").write_text(json.dumps(summary, indent=2, ensure_ascii=False), encoding="utf-8")
    (folder / "report.md").write_text(_report(summary, before, after, rows), encoding="utf-8")


def _report(summary: dict[str, Any], before: Any, after: Any, rows: Rows) -> str:
    counts, seconds = summary["counts"], summary["seconds"]
    n_prompts = len({row["prompt"] for row in rows})
    lines = [
        "# The whole loop, with simulated annotators",
        "",
        f"Gold rule: {END_BONUS:g} if an answer ends by itself, minus {TOKEN_COST} for each token that it is longer or "
        f"shorter than {BEST_LENGTH}. Annotators perceive it with Gumbel noise of scale {NOISE}, tie what is closer "
        f"than {STEP}, and rank at random in {LAPSE:.0%} of tasks. The reward model saw their rankings only, PPO saw "
        "the reward model only.",
        "",
        f"{counts['rankings_used']} rankings gave {counts['pairs']} pairs ({counts['ties']} ties). "
        f"{_reward_words(summary)}PPO: {summary['iterations']} iterations, KL at the end {summary['kl_last']:.1f} nats "
        "per answer.",
        "",
        f"## {n_prompts} held-out prompts, {len(rows) // 2} answers each side (95 % bootstrap interval over prompts)",
        "",
        "| | before | after |",
        "|---|---|---|",
        *[f"| {name} | {_cell(before[name])} | {_cell(after[name])} |" for name in before],
        "",
        gain_words(gain(rows)),
        "",
        "![score](reward.png) ![KL](kl.png)",
        "",
        "## Five answers side by side",
        "",
        *_side_by_side(rows),
        "## Time",
        "",
        ", ".join(f"{name} {value:.0f} s" for name, value in seconds.items()),
        "",
    ]
    return "\n".join(lines)


def _reward_words(summary: dict[str, Any]) -> str:
    held_out, n = summary["reward_held_out"], summary["counts"]["rankings_eval"]
    if held_out is None:
        return ""
    accuracy, shorter = held_out["pair_accuracy"], 1 - held_out["length_accuracy"]
    return (
        f"The reward model orders {accuracy:.0%}{_reach(summary)} of the pairs in {n} held-out rankings as the "
        f'annotators did; "the shorter answer is better" orders {shorter:.0%}. '
    ) + "".join(f"{each} " for each in summary.get("reward_verdicts", [])[:1])


def _reach(summary: dict[str, Any]) -> str:
    told = summary.get("reward_pair_accuracy")
    return "" if told is None or told["low"] is None else f" ({told['low']:.0%} to {told['high']:.0%})"


def _side_by_side(rows: Rows) -> list[str]:
    by_prompt: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for row in rows:
        by_prompt[row["prompt"]].setdefault(row["side"], row)
    lines = []
    for prompt in list(by_prompt)[:N_SAMPLES]:
        lines += [f"**{_plain(prompt)}**", ""]
        for side, name in (("a", "before"), ("b", "after")):
            row = by_prompt[prompt][side]
            gold = gold_score(row["n_tokens"], row["ended"])
            end = "" if row["ended"] else " (cut off)"
            lines.append(f"- {name}, gold {gold:.2f}, score {row['score']:.2f}: {_plain(row['response'])}{end}")
        lines.append("")
    return lines


def _cell(figure: tuple[float, float, float]) -> str:
    mean, low, high = figure
    return f"{mean:.2f} ({low:.2f} to {high:.2f})"


def _plain(text: str) -> str:
    """A text on one line of a Markdown page, without anything that Markdown would act on."""
    one_line = " ".join(text.split())
    return "".join(f"\\{char}" if char in "\\`*_{}[]<>#|!$" else char for char in one_line)


def _plot(path: Path, title: str, points: list[tuple[int, float]], unit: str) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.2), layout="constrained")
    axes = figure.add_subplot()
    axes.plot([step for step, _ in points], [value for _, value in points], marker="o", color="#3b5bdb")
    axes.set(title=title, xlabel="iteration", ylabel=unit)
    axes.grid(alpha=0.3)
    FigureCanvasAgg(figure).print_png(str(path))
