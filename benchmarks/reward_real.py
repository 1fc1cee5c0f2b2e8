"""Reward models on rankings that people made: accuracy on held-out prompts beside length alone, a head on the frozen
model, and the same model with an untrained head; and ours beside TRL's RewardTrainer, over several seeds.

    python benchmarks/reward_real.py --data DIR --model MODEL [--sets NAME ...] [--k 4] [--seeds 3] [--limit N]
                                     [--layers N] [--full] [--no-peer] [--grouped] [--rate R] [--epochs N]
                                     [--max-length N] [--threads N] [--precision P] [--keep FOLDER] [--quick] [--json]

DIR holds the folders pandalm, llmbar and oasst-en-trees as their authors publish them. MODEL is a folder or a hub id.
All three become one project; the split is by prompt text. `peer` is length alone, or TRL's accuracy in the last row.
`--sets`: other sets than these three; `ratings` is folder vader-ratings: sentences of film reviews, each rated by some
15 people, K to a ranking, by their mean ratings. All pairs of a ranking are trained on, on both sides, and a step
takes as many of them: ours 8 whole rankings, TRL's as many pairs out of all.
`--layers`: both sides train the first layers of the model only. `--full`: every weight, no adapters. `--no-peer`: no
run of TRL's. `--grouped`: TRL's steps take the pairs of 8 whole rankings too, in place of pairs out of all.
`--quick`: 240 rankings of PandaLM, one seed, texts of at most 96 tokens.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import islice, pairwise
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from data.fields import from_dict
from data.files.paths import Home, open_home
from data.labels.projects import create_project
from data.labels.roles import OPERATOR
from data.records import Run, RunKind, RunStatus, Snapshot
from data.runs.metrics import metrics_of
from data.runs.state import claim_run, get_run
from data.store import Store, open_store
from labeling.files.imports import import_rankings
from labeling.snapshot.freeze import SnapshotConfig, freeze_snapshot
from training.jobs.child import do_run
from training.launch.config import RewardConfig
from training.launch.queue import queue_run
from training.lm.dataset import EncodedGroup, encode_snapshot
from training.lm.models import Machine, ModelSource, load_classifier, load_encoder
from training.lm.scorer import score_groups
from training.measures.figures import Judged, pair_accuracy, pair_columns

BATCH = 8


def pandalm(folder: Path) -> Iterator[dict[str, Any]]:
    """Three annotators each; 0 is a tie, else which response is better."""
    for row in json.loads((folder / "testset-v1.json").read_text(encoding="utf-8")):
        prompt = "\n\n".join(filter(None, [row["instruction"], row["input"]]))
        for person in ("annotator1", "annotator2", "annotator3"):
            ranks = {0: [1, 1], 1: [1, 2], 2: [2, 1]}[row[person]]
            responses = [str(row["response1"]), str(row["response2"])]
            yield {"prompt": prompt, "responses": responses, "ranks": ranks, "annotator": f"pandalm-{person}"}


def llmbar(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.glob("LLMBar-*.json")):
        for row in json.loads(path.read_text(encoding="utf-8")):
            ranks = [1, 2] if row["label"] == 1 else [2, 1]
            responses = [row["output_1"], row["output_2"]]
            yield {"prompt": row["input"], "responses": responses, "ranks": ranks, "annotator": "llmbar"}


def ratings(folder: Path, k: int) -> Iterator[dict[str, Any]]:
    """K sentences of film reviews in a random draw, ranked by the mean of what people rated them; no two of them
    within half a point, of -4 to 4."""
    lines = (folder / "movieReviewSnippets_GroundTruth.txt").read_text(encoding="utf-8", errors="replace").splitlines()
    rated = [(float(mean), text) for _, mean, text in (line.split("\t") for line in lines)]
    Random(0).shuffle(rated)
    for number in range(len(rated) // k):
        drawn = rated[k * number : k * number + k]
        best_first = sorted((mean for mean, _ in drawn), reverse=True)
        if all(above - below >= 0.5 for above, below in pairwise(best_first)):
            ranks = [best_first.index(mean) + 1 for mean, _ in drawn]
            responses = [text for _, text in drawn]
            yield {"prompt": f"Review {number}:", "responses": responses, "ranks": ranks, "annotator": "raters"}


SETS = ("pandalm", "llmbar", "oasst-en-trees", "ratings")


def snapshot_of(store: Store, home: Home, data: Path, limit: int, sets: Sequence[str], k: int) -> Snapshot:
    """The sets as one project, about a third of the prompts held out."""
    with store.begin() as tx:
        project = create_project(tx, "real", overlap=3)
    readers = {
        "pandalm": pandalm(data / "pandalm"),
        "llmbar": llmbar(data / "llmbar"),
        "ratings": ratings(data / "vader-ratings", k),
    }
    rows = [row for name, reader in readers.items() if name in sets for row in islice(reader, limit or None)]
    file = home.uploads / "rankings.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    import_rankings(store, OPERATOR, project.id, file)
    if "oasst-en-trees" in sets:
        import_rankings(store, OPERATOR, project.id, data / "oasst-en-trees" / "en_100_tree.jsonl", format_name="oasst")
    return freeze_snapshot(store, OPERATOR, home, project.id, SnapshotConfig(eval_share=0.33))


@dataclass(frozen=True)
class Setting:
    """What both sides train, and on what."""

    model: str
    length: int
    rate: float
    epochs: int
    threads: int
    precision: str
    adapter: str
    is_grouped: bool


def first_layers(model: str, n: int, folder: Path) -> str:
    """Save a model's first n layers as a model of its own."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    whole = AutoModelForCausalLM.from_pretrained(model)
    whole.model.layers = whole.model.layers[:n]
    whole.config.num_hidden_layers = n
    if getattr(whole.config, "layer_types", None):
        whole.config.layer_types = whole.config.layer_types[:n]
    whole.save_pretrained(folder)
    AutoTokenizer.from_pretrained(model).save_pretrained(folder)
    return str(folder)


def ours(store: Store, home: Home, snapshot: Snapshot, setting: Setting, seed: int) -> Run:
    """A reward run as the product does it."""
    config = from_dict(
        RewardConfig,
        {
            "model": setting.model,
            "machine.seed": seed,
            "adapter": setting.adapter,
            "optimiser.learning_rate": setting.rate,
            "optimiser.epochs": setting.epochs,
            "max_length": setting.length,
            "optimiser.batch_prompts": BATCH,
            "evaluation.every": 1_000_000,
            "machine.threads": setting.threads,
            "machine.precision": setting.precision,
        },
    )
    run = queue_run(store, OPERATOR, RunKind.REWARD, config, snapshot_id=snapshot.id)
    with store.begin() as tx:
        claimed = claim_run(tx, "benchmark")
    assert claimed is not None
    do_run(store, home, run.id, claimed.epoch)
    with store.read() as tx:
        done = get_run(tx, run.id)
    if done.status is not RunStatus.SUCCEEDED:
        raise SystemExit(f"seed {seed}: {done.error_message}")
    return done


def theirs(folder: Path, home: Home, snapshot: Snapshot, setting: Setting, seed: int) -> float:
    """TRL's RewardTrainer on the same pairs, adapters and rate; returns its accuracy on the same held-out rankings."""
    from datasets import Dataset
    from peft import LoraConfig
    from torch.utils.data import SequentialSampler
    from transformers import set_seed
    from trl import RewardConfig as TRLConfig
    from trl import RewardTrainer

    source = ModelSource(setting.model, setting.model, "")
    encoder = load_encoder(source)
    encoded = encode_snapshot(home.snapshot_folder(snapshot.id), encoder, setting.length)
    set_seed(seed)
    classifier = load_classifier(source, torch.float32, encoder.pad_id)
    encoder.tokenizer.pad_token_id = encoder.pad_id
    passes = list(encoded.train)
    if setting.is_grouped:  # every epoch is written down, the rankings in an order of its own
        order = Random(seed)
        passes = [each for _ in range(setting.epochs) for each in order.sample(encoded.train, len(encoded.train))]
    pairs = [
        {"chosen_ids": group.sequences[i], "rejected_ids": group.sequences[j]}
        for group in passes
        for i in range(group.n_responses)
        for j in range(group.n_responses)
        if group.ranks[i] < group.ranks[j]
    ]
    batch = round(BATCH * len(pairs) / len(passes))
    arguments = TRLConfig(
        output_dir=str(folder / f"trl-{seed}"), num_train_epochs=1 if setting.is_grouped else setting.epochs,
        per_device_train_batch_size=batch,
        seed=seed,
        learning_rate=setting.rate, lr_scheduler_type="cosine_with_min_lr", lr_scheduler_kwargs={"min_lr_rate": 0.1},
        adam_beta2=0.95, max_length=None, use_cpu=True, bf16=setting.precision == "bf16", report_to=[],
        gradient_checkpointing=False, save_strategy="no", disable_tqdm=True, logging_steps=50,
    )  # fmt: skip
    adapters = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.0, target_modules="all-linear", task_type="SEQ_CLS")
    is_lora = setting.adapter == "lora"
    trainer = RewardTrainer(
        model=classifier, args=arguments, train_dataset=Dataset.from_list(pairs), processing_class=encoder.tokenizer,
        peft_config=adapters if is_lora else None,
    )  # fmt: skip
    if setting.is_grouped:
        trainer._get_train_sampler = lambda *_: SequentialSampler(trainer.train_dataset)
    trainer.train()
    machine = Machine(torch.device("cpu"), is_bf16=setting.precision == "bf16")
    return accuracy(trainer.model, encoded.held_out, encoder.pad_id, machine)


def accuracy(classifier: Any, groups: list[EncodedGroup], pad_id: int, machine: Machine) -> float:
    scores = score_groups(classifier.eval(), groups, pad_id, machine, 4096, is_shared=False)
    judged = [
        Judged(each.ranking_id, each.prompt_id, tuple(each.ranks), tuple(given.tolist()), (0,) * each.n_responses)
        for each, given in zip(groups, scores, strict=True)
    ]
    return float(pair_accuracy(pair_columns(judged))["value"])


def rows_of(store: Store, home: Home, run: Run, seed: int) -> list[dict[str, Any]]:
    """What one run's report says, as rows."""
    report = json.loads((home.run_folder(run.id) / "report.json").read_text(encoding="utf-8"))
    with store.read() as tx:
        points = metrics_of(tx, run.id, names=("reward/held_out_pair_accuracy",))
    untrained = next(point.value for point in points if point.step == 0)
    length = report["model"]["length"]["accuracy"]
    found = {"trained": report["model"]["pair_accuracy"], "untrained_head": {"value": untrained}}
    if "instant" in report:
        found["instant"] = report["instant"]["pair_accuracy"]
    if report["model"]["human_agreement"]["value"] is not None:
        found["two_people"] = report["model"]["human_agreement"]
    return [
        {
            "case": f"{name}_seed{seed}",
            "ours": figure["value"],
            "interval": [figure.get("low"), figure.get("high")],
            "peer": length["value"],
            "ratio": figure["value"] / length["value"],
            "unit": "pair accuracy; peer: length alone",
            "runs": [figure["value"]],
            "prompts": figure.get("prompts"),
        }
        for name, figure in found.items()
    ]


def measure(given: argparse.Namespace) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    seeds, length = (1, 96) if given.quick else (given.seeds, given.max_length)
    with tempfile.TemporaryDirectory() as scratch:
        home = open_home(Path(given.keep or scratch) / "home")
        store = open_store(home.store_url)
        limit, sets = (240, ["pandalm"]) if given.quick else (given.limit, given.sets)
        snapshot = snapshot_of(store, home, given.data, limit, sets, given.k)
        model = first_layers(given.model, given.layers, Path(scratch) / "model") if given.layers else given.model
        adapter = "full" if given.full else "lora"
        setting = Setting(
            model, length, given.rate, given.epochs, given.threads, given.precision, adapter, given.grouped
        )
        pairs: list[tuple[float, float]] = []
        for seed in range(seeds):
            run = ours(store, home, snapshot, setting, seed)
            rows += rows_of(store, home, run, seed)
            if given.peer:
                peer = theirs(Path(scratch), home, snapshot, setting, seed)
                pairs.append((run.result["held_out"]["pair_accuracy"], peer))
            print(f"seed {seed}: {rows[-1]} {pairs}", file=sys.stderr, flush=True)
        store.close()
    mine, peers = [a for a, _ in pairs], [b for _, b in pairs]
    if pairs:
        rows.append(
            {"case": "against_trl", "ours": fmean(mine), "peer": fmean(peers), "ratio": fmean(mine) / fmean(peers),
             "unit": "pair accuracy, mean over seeds; runs: ours and TRL's in turns",
             "runs": [round(each, 4) for pair in pairs for each in pair]}
        )  # fmt: skip
    packages = ("torch", "transformers", "trl", "peft")
    return {
        "benchmark": "reward_real",
        "machine": {"system": platform.platform(), "cores": os.cpu_count(), "threads": torch.get_num_threads()},
        "versions": {"python": platform.python_version()} | {name: version(name) for name in packages},
        "sizes": {
            "sets": list(sets),
            "k": given.k,
            "snapshot": snapshot.counts,
            "adapter": setting.adapter,
            "max_length": length,
            "layers": given.layers,
            "rate": given.rate,
            "epochs": given.epochs,
            "precision": given.precision,
        },
        "rows": rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder with pandalm, llmbar and oasst-en-trees")
    parser.add_argument("--model", required=True, help="a folder or a hub id")
    parser.add_argument("--sets", nargs="+", choices=SETS, help="what to train and measure on",
                        default=SETS[:3])  # fmt: skip
    parser.add_argument("--k", type=int, default=4, help="sentences to a ranking of the set ratings (default: 4)")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--limit", type=int, default=0, help="at most so many rankings of each set; 0: all")
    parser.add_argument("--max-length", type=int, default=384, help="tokens of prompt and response")
    parser.add_argument("--grouped", action="store_true", help="TRL's steps take whole rankings too")
    parser.add_argument("--rate", type=float, default=1e-4, help="peak learning rate of both sides (default: 1e-4)")
    parser.add_argument("--epochs", type=int, default=1, help="passes over the rankings, of both sides (default: 1)")
    parser.add_argument("--layers", type=int, default=0, help="only the first layers of the model; 0: all")
    parser.add_argument("--full", action="store_true", help="every weight on both sides, in place of adapters")
    parser.add_argument("--peer", action=argparse.BooleanOptionalAction, default=True, help="TRL's trainer beside ours")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads of torch (default: its own choice)")
    parser.add_argument("--precision", default="fp32", help="fp32 or bf16, of both sides (default: fp32)")
    parser.add_argument("--keep", default="", help="keep the home folder here, to look at the runs")
    parser.add_argument("--quick", action="store_true", help="240 rankings, one seed, short texts")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    given = parser.parse_args()
    if given.threads:
        torch.set_num_threads(given.threads)
    with contextlib.redirect_stdout(sys.stderr):  # what the trainers print
        found = measure(given)
    if given.json:
        print(json.dumps(found))
        return
    for row in found["rows"]:
        reach = row.get("interval")
        words = f" ({reach[0]:.3f} to {reach[1]:.3f})" if reach and reach[0] is not None else ""
        print(f"{row['case']:<24} {row['ours']:.3f}{words}, peer {row['peer']:.3f}")


if __name__ == "__main__":
    main()
