"""PPO on one GPU: tokens per second and share of the peak by phase, and memory. One command, at most 8 minutes.

    python benchmarks/gpu.py [--case NAME] [--peak-tflops N] [--minutes N] [--json]

1B_full, 1B_lora   LLaMA of 1.2 billion random weights: four full models, or one base with an adapter for each role
7B_lora            LLaMA of 6.7 billion random weights on one base
quick              a tiny model, for a look whether everything runs, on a CPU too

bf16 autocast; prompts of 512 tokens, responses of 256. The first iteration warms up, the second is measured. Share of
peak: floating-point operations that the phase needs (2 for each weight and token forward, 4 more backward, 2 of which
fall away for frozen weights; attention not counted) over its time and the peak of the GPU, 989 TFLOPS of an H200 unless
named. A case that would start after `--minutes` is left out, and said so.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]

REWARD = "reward"


class Case(NamedTuple):
    """Hidden and inner width, layers, heads, key-value heads; how it is trained; responses of a rollout."""

    shape: tuple[int, int, int, int, int]
    adapter: str
    rows: int
    prompt: int = 512
    response: int = 256


CASES = {
    "1B_full": Case((2048, 8192, 16, 32, 8), "full", 128),
    "1B_lora": Case((2048, 8192, 16, 32, 8), "lora", 128),
    "7B_lora": Case((4096, 11008, 32, 32, 32), "lora", 64),
    "quick": Case((64, 128, 2, 2, 1), "lora", 8, 32, 16),
}
VOCABULARY = 32_000


def save_models(folder: Path, case: Case, device: str) -> int:
    """A random policy, and a reward model from it: an adapter, and in the full layout a whole model too. Returns the
    number of the policy's weights."""
    import torch
    from peft import LoraConfig, TaskType, get_peft_model
    from ppo import save_with_tokenizer
    from transformers import LlamaConfig, LlamaForCausalLM

    from training.launch.config import RewardConfig
    from training.lm.models import ModelSource, load_classifier, load_encoder, weights_hash

    torch.manual_seed(0)
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    config = LlamaConfig(
        vocab_size=VOCABULARY, max_position_embeddings=4096, pad_token_id=0, eos_token_id=1, bos_token_id=None,
        dtype=torch.bfloat16, **dict(zip(names, case.shape, strict=True)),
    )  # fmt: skip
    with torch.device(device):
        model = LlamaForCausalLM(config).to(torch.bfloat16)
    save_with_tokenizer(model, folder / "policy")
    n_weights = sum(each.numel() for each in model.parameters())
    del model
    source = ModelSource("policy", str(folder / "policy"), weights_hash(folder / "policy"))
    place, defaults = folder / "home" / "runs" / REWARD, RewardConfig()
    classifier = load_classifier(source, torch.bfloat16, 0)
    if case.adapter == "full":
        save_with_tokenizer(classifier, place / "model")
    lora = LoraConfig(
        r=defaults.lora_rank, lora_alpha=defaults.lora_alpha, target_modules="all-linear", task_type=TaskType.SEQ_CLS
    )
    get_peft_model(classifier, lora).save_pretrained(place / "adapter")
    (place / "model").mkdir(exist_ok=True)
    encoder = load_encoder(source)
    info = {
        "shift": 0.0, "std": 1.0, "n": 1, "max_length": 4096, "template_hash": encoder.template_hash,
        "vocabulary_hash": encoder.vocabulary_hash, "base_model": "policy", "base_revision": source.revision,
        "has_adapter": True,
    }  # fmt: skip
    (place / "model" / "reward_config.json").write_text(json.dumps(info))
    return n_weights


def rows_of(name: str, case: Case, device: str, peak_tflops: float) -> list[dict[str, Any]]:
    """Two iterations of the loop; the rows of the second."""
    import random

    import torch
    from ppo import Quiet

    import training.ppo.loop
    from data.fields import from_dict
    from training.launch.config import PPOConfig
    from training.lm.machine_memory import peak_in_use
    from training.lm.models import ModelSource, load_encoder, set_up_machine, weights_hash
    from training.ppo.build_roles import build_roles
    from training.ppo.rollout import PromptItem
    from training.ppo.run import make_learner

    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as scratch:
        folder = Path(scratch)
        n_weights = save_models(folder, case, device)
        config = from_dict(
            PPOConfig,
            {
                "adapter": case.adapter,
                "machine.device": device,
                "machine.precision": "bf16",
                "iterations": 2,
                "sampling.prompts_per_iteration": case.rows,
                "optimiser.ppo_epochs": 1,
                "sampling.max_new_tokens": case.response,
                "sampling.batch_size": case.rows,
                "evaluation.token_rows": 0,
                "evaluation.prompts": 0,
                "machine.micro_batch_tokens": 16 * (case.prompt + case.response),
                "machine.checkpoint_every": 10**6,
            },
        )
        reporter = Quiet(folder)
        place = str(folder / "policy")
        machine, source = set_up_machine(config.machine), ModelSource("policy", place, weights_hash(Path(place)))
        encoder = load_encoder(source)
        roles = build_roles(config, reporter, machine, source, encoder)  # type: ignore[arg-type]
        learner = make_learner(config, reporter, roles, encoder)  # type: ignore[arg-type]
    rng = random.Random(0)
    drawn = [[rng.randrange(3, VOCABULARY) for _ in range(case.prompt)] for _ in range(case.rows)]
    prompts = [PromptItem(str(n), ({"role": "user", "content": ""},), ids) for n, ids in enumerate(drawn)]
    training.ppo.loop.save = lambda *_words: None
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    training.ppo.loop.train(config, learner, prompts, encoder, machine, reporter)  # type: ignore[arg-type]
    return [
        *phase_rows(name, case, n_weights, reporter.phases[-1], reporter.updates[-1]["tokens"], peak_tflops),
        {"case": f"{name}_memory", "ours": round((peak_in_use(machine) or 0) / 1e9, 2), "peer": None, "ratio": None,
         "unit": "GB, peak", "runs": 1},
    ]  # fmt: skip


def phase_rows(
    name: str, case: Case, n_weights: int, seconds: dict[str, float], length: float, peak_tflops: float
) -> list[dict[str, Any]]:
    """Tokens per second of the responses, and the share of the peak, of each phase."""
    responses, everything = case.rows * length, case.rows * (case.prompt + length)
    backward = 4 if case.adapter == "full" else 2
    work = {"generate": 2 * everything, "score": 4 * 2 * everything, "update": 2 * (2 + backward) * everything}
    return [
        {
            "case": f"{name}_{phase}", "ours": round(responses / seconds[phase], 1), "peer": None, "ratio": None,
            "unit": "response tokens per s", "runs": 1, "seconds": round(seconds[phase], 2),
            "share_of_peak": round(n_weights * work[phase] / seconds[phase] / (peak_tflops * 1e12), 4),
        }
        for phase in work
    ]  # fmt: skip


def measure(cases: list[str], peak_tflops: float, minutes: float) -> dict[str, Any]:
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    started, rows, left_out = time.monotonic(), [], []
    for name in cases:
        if time.monotonic() - started > 60 * minutes:
            left_out.append(name)
            continue
        rows += rows_of(name, CASES[name], device, peak_tflops)
        gc.collect()
        if device == "cuda":
            torch.cuda.empty_cache()
    gpu = torch.cuda.get_device_name() if device == "cuda" else "none"
    return {
        "benchmark": "gpu",
        "machine": {"system": platform.platform(), "cores": os.cpu_count(), "gpu": gpu, "peak_tflops": peak_tflops},
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in ("torch", "transformers", "peft")},
        "left_out": left_out,
        "rows": rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=CASES, action="append", help="only this one; may be repeated")
    parser.add_argument("--peak-tflops", type=float, default=989.0, help="dense bf16 peak of the GPU (default: H200)")
    parser.add_argument("--minutes", type=float, default=5.0, help="no case starts later than this (default: 5)")
    parser.add_argument("--quick", action="store_true", help="only the tiny model")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    given = parser.parse_args()
    cases = ["quick"] if given.quick else given.case or [name for name in CASES if name != "quick"]
    found = measure(cases, given.peak_tflops, given.minutes)
    if given.json:
        print(json.dumps(found))
        return
    print(f"{found['machine']['gpu']}; left out for time: {', '.join(found['left_out']) or 'nothing'}")
    for each in found["rows"]:
        share = f"   {each['share_of_peak']:.1%} of peak" if "share_of_peak" in each else ""
        print(f"{each['case']:<20} {each['ours']:>12,.1f} {each['unit']}{share}")


if __name__ == "__main__":
    main()
