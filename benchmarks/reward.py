"""How long one epoch over the same rankings takes: our reward trainer beside TRL's RewardTrainer.

    python benchmarks/reward.py [--case NAME] [--rankings N] [--runs N] [--threads N] [--quick] [--json]

K4_P256_R64, K9_P512_R128   K responses of up to R tokens (at least half of that) to prompts of P tokens; seconds for an
                            epoch, and the peak memory of the process (the rows that end in _mb)
linear_in_K                 what five more responses cost us from 7 to 12, over what they cost from 2 to 7; P as in the
                            first case, all responses of R tokens. 1: linear

Same model (LLaMA of 6 layers and width 576, random), same rankings, AdamW, float32 and 8 rankings a step on both sides;
TRL gets all C(K, 2) pairs of each ranking, in forward passes of the same number of tokens. Each run is a process of its
own, in turns; the best time counts, and the least memory. `--quick`: a smaller model, a quarter of the lengths,
one run.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import random
import resource
import sys
import tempfile
import time
from collections import Counter
from importlib.metadata import version
from itertools import combinations
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

CASES = {"K4_P256_R64": (4, 256, 64), "K9_P512_R128": (9, 512, 128)}
LINEAR = "linear_in_K"
TOKENS, BATCH, RATE = 2048, 8, 1e-5
Shape = tuple[int, int, int, int, int]  # rankings, responses each, tokens: prompt, longest and shortest response
PAD, END, VOCABULARY = 0, 1, 8192


def save_model(folder: Path, *, quick: bool) -> None:
    """A model with random weights and a tokenizer that is only asked for its special tokens."""
    import torch
    from tokenizers import Tokenizer, models
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(0)
    shape = (96, 256, 2, 3, 1) if quick else (576, 1536, 6, 9, 3)
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    config = LlamaConfig(
        vocab_size=VOCABULARY, max_position_embeddings=4096, pad_token_id=PAD, eos_token_id=END, bos_token_id=None,
        **dict(zip(names, shape, strict=True)),
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    words = {f"<{n}>": n for n in range(VOCABULARY)}
    built = Tokenizer(models.WordLevel(words, unk_token="<2>"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=built, pad_token="<0>", eos_token="<1>", unk_token="<2>")
    tokenizer.save_pretrained(folder)


def rankings(n: int, k: int, p: int, r: int, shortest: int) -> list[Any]:
    """Random token ids; responses are between `shortest` and r tokens, the end token included."""
    from training.lm.dataset import EncodedGroup

    rng = random.Random(0)

    def ids(size: int) -> list[int]:
        return [rng.randrange(3, VOCABULARY) for _ in range(size)]

    found = []
    for number in range(n):
        prompt = ids(p)
        sequences = [[*prompt, *ids(rng.randint(shortest, r) - 1), END] for _ in range(k)]
        ranks = rng.sample(range(1, k + 1), k)
        found.append(EncodedGroup(str(number), str(number), sequences, [p] * k, ranks, 1.0))
    return found


class Quiet:
    """Stands in for a run's reporter: nothing is stored while the clock runs, on either side."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.checkpoint_root, self.events = folder, folder / "checkpoints", dict[str, Any]()

    def event(self, kind: str, **detail: Any) -> None:
        self.events[kind] = detail

    def step(self, *_words: Any, **_more: Any) -> None:
        return None

    def should_stop(self) -> bool:
        return False

    def raise_if_stopping(self) -> None:
        return None

    def checkpoint_folders(self) -> list[Any]:
        return []


def ours(model: Path, groups: list[Any], folder: Path) -> float:
    """Seconds of an epoch by the trainer of a reward run."""
    from transformers.trainer_utils import SaveStrategy

    from data.fields import from_dict
    from training.launch.config import RewardConfig
    from training.lm.dataset import Encoded
    from training.lm.models import ModelSource, load_encoder, set_up_machine
    from training.reward.run import make_trainer

    config = from_dict(
        RewardConfig,
        {
            "model": str(model),
            "adapter": "full",
            "machine.device": "cpu",
            "optimiser.batch_prompts": BATCH,
            "optimiser.learning_rate": RATE,
            "max_length": 4096,
            "machine.micro_batch_tokens": TOKENS,
            "machine.checkpoint_every": 10**6,
        },
    )
    source, reporter = ModelSource(str(model), str(model), ""), Quiet(folder)
    machine, encoder = set_up_machine(config.machine), load_encoder(source)
    trainer = make_trainer(config, reporter, machine, source, encoder, Encoded(groups, [], Counter()))  # type: ignore[arg-type]
    if "shared_prompts" not in reporter.events:
        raise SystemExit(f"prompts were not shared: {reporter.events}")
    trainer.args.save_strategy = SaveStrategy.NO  # as on the other side
    return seconds_of(trainer)


def theirs(model: Path, groups: list[Any], folder: Path) -> float:
    """Seconds of an epoch by TRL's RewardTrainer on all pairs."""
    import torch
    from datasets import Dataset
    from transformers import AutoModelForSequenceClassification, AutoTokenizer
    from trl import RewardConfig, RewardTrainer

    pairs, longest = [], 0
    for group in groups:
        for i, j in combinations(range(group.n_responses), 2):
            better, worse = (i, j) if group.ranks[i] < group.ranks[j] else (j, i)
            pairs.append({"chosen_ids": group.sequences[better], "rejected_ids": group.sequences[worse]})
        longest = max(longest, *map(len, group.sequences))
    of_ranking = len(pairs) // len(groups)
    fitting = [size for size in range(1, BATCH * of_ranking + 1)
               if BATCH * of_ranking % size == 0 and 2 * size * longest <= TOKENS]  # fmt: skip
    micro = max(fitting, default=1)
    arguments = RewardConfig(
        output_dir=str(folder / "trl"), num_train_epochs=1, per_device_train_batch_size=micro,
        gradient_accumulation_steps=BATCH * of_ranking // micro, learning_rate=RATE, adam_beta2=0.95, max_length=None,
        use_cpu=True, bf16=False, gradient_checkpointing=False, report_to=[], save_strategy="no", disable_tqdm=True,
        logging_steps=1,
    )  # fmt: skip
    classifier = AutoModelForSequenceClassification.from_pretrained(model, num_labels=1, dtype=torch.float32)
    trainer = RewardTrainer(
        model=classifier, args=arguments, train_dataset=Dataset.from_list(pairs),
        processing_class=AutoTokenizer.from_pretrained(model),
    )  # fmt: skip
    return seconds_of(trainer)


def seconds_of(trainer: Any) -> float:
    """Seconds from the first step on: not what a trainer sets up, nor what torch does at its first use."""
    import torch
    from transformers import TrainerCallback

    class Clock(TrainerCallback):  # type: ignore[misc]
        start = 0.0

        def on_train_begin(self, *_words: Any, **_more: Any) -> None:
            self.start = time.perf_counter()

    ids = torch.full((2, 64), 5)
    trainer.model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits.sum().backward()
    trainer.model.zero_grad()
    clock = Clock()
    trainer.add_callback(clock)
    trainer.train()
    return time.perf_counter() - clock.start


def _child(name: str, model: str, shape: Shape, folder: str, threads: int, answer: Any) -> None:
    import warnings

    import torch

    warnings.simplefilter("ignore")
    os.dup2(2, 1)  # what the trainers print must not stand in our answer
    if threads:
        torch.set_num_threads(threads)
    seconds = {"ours": ours, "theirs": theirs}[name](Path(model), rankings(*shape), Path(folder))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    answer.send((seconds, peak / 2**20))


def in_a_process(name: str, model: Path, shape: Shape, threads: int) -> tuple[float, float]:
    """(seconds, peak MB) of one side, alone in a process."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as folder:
        process = context.Process(target=_child, args=(name, str(model), shape, folder, threads, sender))
        process.start()
        sender.close()
        try:
            found: tuple[float, float] = receiver.recv()
        except EOFError:
            raise SystemExit(f"{name} failed") from None
        finally:
            process.join()
    return found


def row(name: str, mine: list[float], peers: list[float], unit: str) -> dict[str, Any]:
    best, other = min(mine), min(peers) if peers else None
    ratio = round(other / best, 2) if other is not None else None
    runs = {"ours": [round(each, 2) for each in mine], "peer": [round(each, 2) for each in peers]}
    peer = None if other is None else round(other, 2)
    return {"case": name, "ours": round(best, 2), "peer": peer, "ratio": ratio, "unit": unit, "runs": runs}


def linearity(model: Path, n: int, runs: int, threads: int, shrink: int) -> dict[str, Any]:
    _, p, r = CASES["K4_P256_R64"]
    few, some, many = (
        min(in_a_process("ours", model, (n, k, p // shrink, r // shrink, r // shrink), threads)[0] for _ in range(runs))
        for k in (2, 7, 12)
    )
    seconds = [round(each, 3) for each in (few, some, many)]
    unit = "s from K=7 to 12 over s from K=2 to 7"
    value = round((many - some) / (some - few), 3)
    return {"case": LINEAR, "ours": value, "peer": None, "ratio": None, "unit": unit, "runs": seconds}


def measure(cases: list[str], n: int, runs: int, threads: int, *, quick: bool) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    shrink = 4 if quick else 1
    with tempfile.TemporaryDirectory() as scratch:
        model = Path(scratch) / "model"
        save_model(model, quick=quick)
        for name in (each for each in cases if each in CASES):
            k, p, r = CASES[name]
            shape = (n, k, p // shrink, r // shrink, r // shrink // 2)
            sides: dict[str, list[tuple[float, float]]] = {"ours": [], "theirs": []}
            for _ in range(runs):
                for side, found in sides.items():
                    found.append(in_a_process(side, model, shape, threads))
            for place, (suffix, unit) in enumerate((("", "s"), ("_mb", "MB, peak of the process"))):
                mine, peers = ([each[place] for each in sides[side]] for side in sides)
                rows.append(row(name + suffix, mine, peers, unit))
        if LINEAR in cases:
            rows.append(linearity(model, n, runs, threads, shrink))
    packages = ("torch", "transformers", "trl")
    return {
        "benchmark": "reward",
        "machine": {"system": platform.platform(), "cores": os.cpu_count(), "threads": threads or "torch's choice"},
        "versions": {"python": platform.python_version()} | {name: version(name) for name in packages},
        "sizes": {"rankings": n, "quick": quick},
        "rows": rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=[*CASES, LINEAR], action="append", help="only this one; may be repeated")
    parser.add_argument("--rankings", type=int, default=8, help="rankings of an epoch (default: 8, one step)")
    parser.add_argument("--runs", type=int, default=2, help="runs of each side (default: 2)")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads of torch (default: its own choice)")
    parser.add_argument("--quick", action="store_true", help="a smaller model, a quarter of the lengths, one run")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    given = parser.parse_args()
    found = measure(
        given.case or [*CASES, LINEAR],
        given.rankings,
        1 if given.quick else given.runs,
        given.threads,
        quick=given.quick,
    )
    if given.json:
        print(json.dumps(found))
        return
    print(f"{given.rankings} rankings; ratio above 1: ours is better")
    for each in found["rows"]:
        peer = "" if each["peer"] is None else f"   TRL {each['peer']:>9,.2f}   ratio {each['ratio']:.2f}"
        print(f"{each['case']:<16} {each['ours']:>9,.2f}{peer}   {each['unit']}")


if __name__ == "__main__":
    main()
