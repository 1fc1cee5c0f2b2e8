"""The predicted memory of a PPO step at the worst length beside what it really took, by the check before a run.

    python benchmarks/memory.py --model FOLDER [--prompt N] [--response N] [--tokens N] [--threads N] [--json]

One base with an adapter for each role, and four full models, each in a process of its own: as many prompts of
`--prompt` tokens with responses of `--response` as `--tokens` hold. The reward model is made from the model.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]
LAYOUTS = ("lora", "full")


def save_reward_model(model: str, place: Path) -> None:
    """A reward model as a run's folder would hold it: whole, and as an adapter."""
    import torch
    from peft import TaskType

    from training.launch.config import RewardConfig
    from training.lm.models import ModelSource, load_classifier, load_encoder, load_tokenizer, save_model, weights_hash
    from training.lm.trl_trainer import with_adapter

    source = ModelSource(model, model, weights_hash(Path(model)))
    classifier, encoder = load_classifier(source, torch.float32), load_encoder(source)
    save_model(classifier, load_tokenizer(source), place / "model")
    info = {
        "shift": 0.0, "std": 1.0, "n": 1, "max_length": 4096, "template_hash": encoder.template_hash,
        "vocabulary_hash": encoder.vocabulary_hash, "base_model": model, "base_revision": source.revision,
        "has_adapter": True,
    }  # fmt: skip
    (place / "model" / "reward_config.json").write_text(json.dumps(info))
    with_adapter(classifier, RewardConfig(), TaskType.SEQ_CLS).save_pretrained(place / "adapter")


def prompt_of(model: str, tokens: int) -> str:
    """A text that is a prompt of so many tokens, or of a few less."""
    from training.lm.models import ModelSource, load_encoder

    encoder, text = load_encoder(ModelSource(model, model, "")), ""
    while len(encoder.prompt_ids(({"role": "user", "content": f"{text} word"},))) <= tokens:
        text += " word"
    return text


def check(arguments: argparse.Namespace, layout: str, folder: str) -> dict[str, Any]:
    """The whole check in this process: its report."""
    from ppo import REWARD, Quiet

    from data.fields import from_dict
    from training.check.run import Preflight
    from training.launch.config import PPOConfig

    class Reporter(Quiet):
        """Also takes what a check tells besides."""

        def versions(self, _found: dict[str, Any]) -> None:
            return None

        def step(self, *_words: Any) -> None:
            return None

    place = Path(folder) / "home" / "runs" / REWARD
    if not place.exists():
        save_reward_model(arguments.model, place)
        row = {"messages": [{"role": "user", "content": prompt_of(arguments.model, arguments.prompt)}]}
        (Path(folder) / "prompts.jsonl").write_text(json.dumps(row))
    config = from_dict(
        PPOConfig,
        {
            "model": arguments.model,
            "adapter": layout,
            "machine.device": "cpu",
            "machine.precision": "fp32",
            "machine.threads": arguments.threads,
            "sampling.prompts_per_iteration": 8,
            "sampling.max_new_tokens": arguments.response,
            "machine.micro_batch_tokens": arguments.tokens,
            "prompts_file": str(Path(folder) / "prompts.jsonl"),
            "evaluation.prompts": 0,
        },
    )
    report = Preflight(config, Reporter(Path(folder))).look()  # type: ignore[arg-type]
    return {"layout": layout, "checks": report.checks, "memory": report.memory, "step": report.step}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--prompt", type=int, default=192)
    parser.add_argument("--response", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        for layout in LAYOUTS:
            with ProcessPoolExecutor(1, mp_context=context) as pool:
                found = pool.submit(check, arguments, layout, folder).result()
            if arguments.json:
                print(json.dumps(found))
                continue
            memory = found["memory"]
            predicted, measured = memory["predicted_step_mb"], memory.get("measured_step_mb")
            words = (
                "not measured" if measured is None else f"{measured:,.0f} MB measured ({predicted / measured:.2f} x)"
            )
            print(f"{layout}: {found['step']['tokens']:.0f} tokens, {predicted:,.0f} MB predicted, {words}")


if __name__ == "__main__":
    main()
