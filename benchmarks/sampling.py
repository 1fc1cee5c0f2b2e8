"""How long K responses to each prompt take: ours beside transformers' generate(num_return_sequences=K).

    python benchmarks/sampling.py [--prompts N] [--runs N] [--threads N] [--quick] [--json]

K8_P256         eight responses of 64 tokens to each prompt of 256; nothing ends before
K8_P256_ended   the same where responses end by themselves, after a third of that in the mean

Same model (LLaMA of 6 layers and width 576, random), prompts, float32 and sampling from the whole distribution on both
sides, each in a process of its own, in turns; the first call warms up, of the others the best counts. Ours reads a
prompt once for its K responses and drops those that have ended. `--quick`: a smaller model, a quarter of the lengths.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.ppo import END, PAD, VOCABULARY, row, save_models

K, CALLS = 8, 3
CASES = {"K8_P256": False, "K8_P256_ended": True}


def prompts(n: int, size: int) -> list[list[int]]:
    import random

    rng = random.Random(0)
    return [[rng.randrange(3, VOCABULARY) for _ in range(size)] for _ in range(n)]


def ours(model: Any, ids: list[list[int]], size: int, seed: int) -> int:
    """Response tokens sampled by our loop."""
    import torch

    from training.launch.shared_config import PolicySampling
    from training.lm.generation import generate, random_numbers
    from training.lm.models import Machine

    keys = [f"{seed}:{place}" for place in range(len(ids) * K)]
    found = generate(
        model, ids, K, PolicySampling(max_new_tokens=size), random_numbers(0, keys, size), stop_ids=frozenset({END}),
        pad_id=PAD, machine=Machine(torch.device("cpu"), is_bf16=False),
    )  # fmt: skip
    return sum(len(each.ids) for each in found)


def theirs(model: Any, ids: list[list[int]], size: int, seed: int) -> int:
    """Response tokens sampled by transformers."""
    import torch

    torch.manual_seed(seed)
    given = torch.tensor(ids)
    found = model.generate(
        given, attention_mask=torch.ones_like(given), do_sample=True, top_k=0, top_p=1.0, temperature=1.0,
        num_return_sequences=K, max_new_tokens=size, eos_token_id=END, pad_token_id=PAD,
    )  # fmt: skip
    return int((found[:, given.shape[1] :] != PAD).sum())


def _child(name: str, folder: str, shape: tuple[int, int, int], threads: int, answer: Any) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    os.dup2(2, 1)
    if threads:
        torch.set_num_threads(threads)
    n, prompt, response = shape
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ids, call = prompts(n, prompt), {"ours": ours, "theirs": theirs}[name]
    seconds, tokens = [], 0
    for number in range(CALLS):
        started = time.perf_counter()
        tokens += call(model, ids, response, number)
        seconds.append(time.perf_counter() - started)
    answer.send((seconds[1:], tokens / CALLS / n / K))


def in_a_process(name: str, folder: Path, shape: tuple[int, int, int], threads: int) -> tuple[list[float], float]:
    """(seconds of each call after the first, mean tokens of a response) of one side, alone in a process."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(name, str(folder), shape, threads, sender))
    process.start()
    sender.close()
    try:
        found: tuple[list[float], float] = receiver.recv()
    except EOFError:
        raise SystemExit(f"{name} failed") from None
    finally:
        process.join()
    return found


def measure(n: int, runs: int, threads: int, *, quick: bool) -> dict[str, Any]:
    rows = []
    shrink = 4 if quick else 1
    shape = (n, 256 // shrink, 64 // shrink)
    for name, ends in CASES.items():
        with tempfile.TemporaryDirectory() as scratch:
            save_models(Path(scratch), response=shape[2], ends=ends, quick=quick)
            sides: dict[str, list[tuple[list[float], float]]] = {"ours": [], "theirs": []}
            for _ in range(runs):
                for side, found in sides.items():
                    found.append(in_a_process(side, Path(scratch) / "policy", shape, threads))
        times = [[each for seconds, _ in sides[side] for each in seconds] for side in sides]
        lengths = {side: round(sum(length for _, length in found) / runs, 1) for side, found in sides.items()}
        rows.append(row(name, times[0], times[1], "s") | {"response_tokens": lengths})
    return {
        "benchmark": "sampling",
        "machine": {"system": platform.platform(), "cores": os.cpu_count(), "threads": threads or "torch's choice"},
        "versions": {"python": platform.python_version()} | {each: version(each) for each in ("torch", "transformers")},
        "sizes": {"prompts": n, "k": K, "prompt": shape[1], "response": shape[2], "quick": quick},
        "rows": rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--runs", type=int, default=2, help="runs of each side (default: 2)")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads of torch (default: its own choice)")
    parser.add_argument("--quick", action="store_true", help="a smaller model, a quarter of the lengths, one run")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    given = parser.parse_args()
    found = measure(given.prompts, 1 if given.quick else given.runs, given.threads, quick=given.quick)
    if given.json:
        print(json.dumps(found))
        return
    print("ratio above 1: ours is better")
    for each in found["rows"]:
        numbers = f"{each['ours']:>8,.2f}   transformers {each['peer']:>8,.2f}   ratio {each['ratio']:.2f}"
        print(f"{each['case']:<16} {numbers}   {each['unit']}   {each['response_tokens']}")


if __name__ == "__main__":
    main()
