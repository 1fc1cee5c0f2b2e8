"""Does PPO learn what the rankings say, and is it caught where it games the reward model? On the real 135M model.

    python benchmarks/learning.py --data DIR [--model MODEL] [--seeds 3] [--iterations 10] [--long 60] [--threads N]
                                  [--kl-coef C] [--case NAME ...] [--long-seed 0] [--out FOLDER [--again]] [--quick]
                                  [--json]

DIR holds the folders koala and vicuna-blog-eval: prompts that people wrote. The model answers them four times each,
simulated annotators who follow a stated gold rule rank the answers with noise, and their rankings train a reward model
for each seed. With each, PPO trains a policy. One seed twice more for longer, the same run with the KL penalty and
without it. The reward model of another seed looks on. Held-out prompts are answered before and after with the same
random numbers; the gold rule, which neither the reward models nor PPO ever see, judges both.

The rule: 1 if an answer ends by itself; minus 0.04 for each token beyond 10, minus 0.2 for each that is missing to 10.
The model hardly ever gives an answer of fewer, so the rankings say only that shorter is better.

seedN        gold after, its gain with the standard error over prompts, and the KL to the start on held-out prompts
long         one seed for longer; `best` is the highest gold on the way, `alarms` what the guards said
no_penalty   the same as `long` but for the penalty

`--again`: with the rankings and the reward models that an earlier call left in OUT; only PPO is done anew.
`--quick`: few prompts and iterations, one seed, responses of 12 tokens; the figures then say nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import platform
import random
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from app.demo.judge import rank_everything, simulated_annotators
from app.demo.run import MAX_NEW_TOKENS, SYSTEM, TEMPERATURE
from data.fields import from_dict
from data.files.paths import Home, open_home
from data.files.rollouts import HELD_OUT, read_rollout, recorded_iterations
from data.files.snapshots import list_snapshots
from data.labels.projects import create_project
from data.labels.prompts import add_prompts
from data.labels.roles import OPERATOR
from data.records import NewPrompt, Run, RunKind, RunStatus, Snapshot, Split
from data.runs.metrics import metrics_of
from data.runs.state import claim_run, events_of, get_run, list_runs
from data.store import Store, open_store
from labeling.snapshot.freeze import SnapshotConfig, freeze_snapshot
from training.jobs.child import do_run
from training.launch.config import DEMO_MODEL, PPOConfig, RewardConfig, SampleConfig
from training.launch.queue import queue_run

N_HELD_OUT, LONGEST_PROMPT = 48, 160  # prompts, characters
BEST_LENGTH, TOO_LONG, TOO_SHORT = 10, 0.04, 0.2  # tokens, and what each further and each missing one costs
ALARMS = ("kl_above_ceiling", "entropy_collapsed", "responses_no_longer_end", "length_at_the_cap",
          "responses_are_empty", "over_optimised")  # fmt: skip
CASES = ("seeds", "long", "no_penalty")
MAX_KL = 20.0  # nats per response; runs with the penalty stay below 10


def prompts_of(data: Path, n_held_out: int, n_train: int) -> list[NewPrompt]:
    """Short prompts of both sets, each once, in an order of their own; the first are held out."""
    files = {"koala/koala_test_set.jsonl": "prompt", "vicuna-blog-eval/question.jsonl": "text"}
    texts = [
        json.loads(line)[field]
        for name, field in files.items()
        for line in (data / name).read_text(encoding="utf-8").splitlines()
    ]
    short = [text for text in dict.fromkeys(texts) if len(text) < LONGEST_PROMPT]
    random.Random(0).shuffle(short)
    return [
        NewPrompt(
            ({"role": "system", "content": SYSTEM}, {"role": "user", "content": text}),
            Split.EVAL if place < n_held_out else None,
        )
        for place, text in enumerate(short[: n_held_out + n_train])
    ]


def gold_score(n_tokens: int, ended: bool) -> float:
    """The gold rule."""
    beyond = n_tokens - BEST_LENGTH
    return ended - (TOO_LONG * beyond if beyond > 0 else -TOO_SHORT * beyond)


class Bench:
    """One store, one snapshot, and runs on it."""

    def __init__(self, home: Home, store: Store, given: argparse.Namespace) -> None:
        self.home, self.store, self.given = home, store, given
        self.tokens = 12 if given.quick else MAX_NEW_TOKENS
        self.machine = {"threads": given.threads, "precision": given.precision}

    def do(self, kind: RunKind, config: Any, words: str, **links: Any) -> Run:
        """A run as the product does it; one line on standard error when it is done."""
        started = time.perf_counter()
        run = queue_run(self.store, OPERATOR, kind, config, **links)
        with self.store.begin() as tx:
            claimed = claim_run(tx, "benchmark")
        assert claimed is not None
        do_run(self.store, self.home, run.id, claimed.epoch)
        with self.store.read() as tx:
            done = get_run(tx, run.id)
        if done.status is not RunStatus.SUCCEEDED:
            raise SystemExit(f"{words}: {done.error_message}")
        print(f"{words}: {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
        return done

    def rank(self, prompts: list[NewPrompt]) -> Snapshot:
        """Sample answers, let the simulated annotators rank them, and freeze the rankings."""
        with self.store.begin() as tx:
            project = create_project(tx, "learning")
            add_prompts(tx, project.id, prompts)
        config = from_dict(
            SampleConfig,
            {
                "model": self.given.model,
                "k": 4,
                "sampling.batch_size": 24,
                "sampling.max_new_tokens": self.tokens,
                "sampling.temperature": TEMPERATURE,
                **self.machine,
            },
        )
        self.do(RunKind.SAMPLE, config, "sample", project_id=project.id)
        rank_everything(self.store, project.id, simulated_annotators(self.store, 2), 0, gold_score)
        return freeze_snapshot(self.store, OPERATOR, self.home, project.id, SnapshotConfig(eval_share=0.0))

    def earlier(self) -> tuple[Snapshot | None, list[Run]]:
        """What an earlier call left: the snapshot, and its reward models in the order of their seeds."""
        with self.store.read() as tx:
            found = list_runs(tx, kinds=(RunKind.REWARD,), status=RunStatus.SUCCEEDED)
            return next(iter(list_snapshots(tx)), None), sorted(found, key=lambda run: int(run.config["machine.seed"]))

    def reward(self, snapshot: Snapshot, seed: int) -> Run:
        config = from_dict(
            RewardConfig,
            {
                "model": self.given.model,
                "optimiser.epochs": 2,
                "optimiser.learning_rate": 3e-4,
                "optimiser.batch_prompts": 4,
                "max_length": 256,
                "evaluation.normalise_on": 128,
                "evaluation.every": 1000,
                "machine.checkpoint_every": 1000,
                "machine.seed": seed,
                **self.machine,
            },
        )
        return self.do(RunKind.REWARD, config, f"reward model, seed {seed}", snapshot_id=snapshot.id)

    def ppo(
        self, snapshot: Snapshot, rewards: list[Run], seed: int, iterations: int, kl_coef: float, evaluations: int = 1
    ) -> Run:
        reward, second = rewards[seed], rewards[(seed + 1) % len(rewards)]
        every = max(1, iterations // evaluations)
        config = from_dict(
            PPOConfig,
            {
                "model": self.given.model,
                "iterations": iterations,
                "sampling.prompts_per_iteration": 16,
                "sampling.batch_size": 16,
                "machine.seed": seed,
                "sampling.max_new_tokens": self.tokens,
                "sampling.temperature": TEMPERATURE,
                "optimiser.learning_rate": 3e-4,
                "optimiser.critic_learning_rate": 2e-4,
                "kl.coef": kl_coef,
                "advantages.score_scale": "sft",
                "advantages.missing_eos_penalty": 0.0,
                "machine.checkpoint_every": 1000,
                "evaluation.every": every,
                "evaluation.prompts": N_HELD_OUT,
                "evaluation.token_rows": N_HELD_OUT,
                "limits.max_kl": MAX_KL,
                "second_reward_run": second.id,
                **self.machine,
            },
        )
        words = f"ppo, seed {seed}, kl_coef {kl_coef:g}, {iterations} iterations"
        return self.do(RunKind.PPO, config, words, snapshot_id=snapshot.id, reward_run_id=reward.id)

    def row(self, case: str, run: Run) -> dict[str, Any]:
        """What the gold rule says before and after, and what the run's own figures say."""
        folder = self.home.run_folder(run.id)
        golds = {iteration: gold_of(folder, iteration) for iteration in recorded_iterations(folder, HELD_OUT)}
        first, last = golds[min(golds)], golds[max(golds)]
        gains = [last[key] - first[key] for key in first]
        with self.store.read() as tx:
            points = metrics_of(tx, run.id)
            events = events_of(tx, run.id, kinds=ALARMS)
        curves: dict[str, dict[int, float]] = {}
        for point in points:
            if point.name.startswith("held_out/") and point.value is not None:
                curves.setdefault(point.name.removeprefix("held_out/"), {})[point.step] = point.value
        of_last = {name: curve[max(curve)] for name, curve in curves.items()}
        gold = {str(step): round(fmean(each.values()), 3) for step, each in golds.items()}
        return {
            "case": case, "ours": round(fmean(last.values()), 3), "peer": None, "ratio": None,
            "unit": "gold after", "before": round(fmean(first.values()), 3), "gain": round(fmean(gains), 3),
            "standard_error": round(stdev(gains) / math.sqrt(len(gains)), 3), "prompts": len(gains),
            "kl": round(of_last["kl_mean"], 2), "score": round(of_last["score_mean"], 3),
            "second_score": round(of_last["second_score_mean"], 3), "length": round(of_last["length_mean"], 1),
            "best": max(gold.values()), "gold": gold,
            "curves": {name: {str(step): round(value, 3) for step, value in curve.items()}
                       for name, curve in curves.items()},
            "alarms": [f"{event.kind} at iteration {event.detail['iteration']}: {event.detail['seen']}"
                       for event in events],
            "runs": [round(each, 3) for each in gains],
        }  # fmt: skip


def gold_of(folder: Path, iteration: int) -> dict[str, float]:
    """The gold score of each held-out prompt's answer."""
    rows = read_rollout(folder, HELD_OUT, iteration)
    return {row["prompt_key"]: gold_score(len(row["ids"]), row["ended"]) for row in rows}


def measure(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    home = open_home(folder)
    store = open_store(home.store_url)
    bench = Bench(home, store, given)
    n_held_out, n_train = (8, 16) if given.quick else (N_HELD_OUT, given.prompts)
    seeds, iterations, long = (1, 2, 2) if given.quick else (given.seeds, given.iterations, given.long)
    snapshot, rewards = bench.earlier() if given.again else (None, [])
    if snapshot is None:
        snapshot = bench.rank(prompts_of(given.data, n_held_out, n_train))
    rewards += [bench.reward(snapshot, seed) for seed in range(len(rewards), max(2, seeds))]
    rows = []
    for seed in range(seeds if "seeds" in given.case else 0):
        rows.append(bench.row(f"seed{seed}", bench.ppo(snapshot, rewards, seed, iterations, given.kl_coef)))
    for case, kl_coef in (("long", given.kl_coef), ("no_penalty", 0.0)):
        if case in given.case:
            run = bench.ppo(snapshot, rewards, given.long_seed, long, kl_coef, evaluations=6)
            rows.append(bench.row(case, run))
    store.close()
    packages = ("torch", "transformers", "peft")
    return {
        "benchmark": "learning",
        "machine": {"system": platform.platform(), "cores": os.cpu_count(), "threads": torch.get_num_threads()},
        "versions": {"python": platform.python_version()} | {name: version(name) for name in packages},
        "sizes": {
            "snapshot": snapshot.counts, "iterations": iterations, "long": long, "kl_coef": given.kl_coef,
            "held_out": n_held_out,
            "reward_accuracy": [run.result["held_out"]["pair_accuracy"] for run in rewards],
        },
        "rows": rows,
    }  # fmt: skip


STYLES = {"long": {"color": "#2f9e44", "marker": "o"}, "no_penalty": {"color": "#c92a2a", "marker": "o"}}


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """The reward model's score and gold of every run, over the square root of the KL."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for row in rows:
        style = STYLES.get(row["case"], {"marker": "s"})
        steps = list(row["gold"])
        roots = [math.sqrt(max(0.0, row["curves"]["kl_mean"][step])) for step in steps]
        left.plot(roots, [row["curves"]["score_mean"][step] for step in steps], label=row["case"], **style)
        right.plot(roots, list(row["gold"].values()), label=row["case"], **style)
    left.set(title="reward model's score", xlabel="square root of the KL, nats", ylabel="held-out mean")
    right.set(title="gold", xlabel="square root of the KL, nats")
    right.legend(fontsize="small")
    for axes in (left, right):
        axes.grid(alpha=0.3)
    FigureCanvasAgg(figure).print_png(str(path))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder with koala and vicuna-blog-eval")
    parser.add_argument("--model", default=DEMO_MODEL, help="'demo', a folder or a hub id (default: demo)")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--prompts", type=int, default=112, help="prompts to rank and train on")
    parser.add_argument("--iterations", type=int, default=10, help="of PPO with the penalty")
    parser.add_argument("--long", type=int, default=60, help="iterations of the two long runs")
    parser.add_argument("--kl-coef", type=float, default=0.05, help="weight of the penalty (default: 0.05)")
    parser.add_argument("--case", nargs="+", choices=CASES, default=CASES, help="only these (default: all)")
    parser.add_argument("--long-seed", type=int, default=0, help="the seed of the two long runs (default: 0)")
    parser.add_argument("--again", action="store_true", help="use the rankings and reward models that are in OUT")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads of torch (default: its own choice)")
    parser.add_argument("--precision", default="bf16", help="of the models at work (default: bf16)")
    parser.add_argument("--out", type=Path, help="keep the home folder, the figures and a plot here")
    parser.add_argument("--quick", action="store_true", help="few prompts and iterations, one seed, short responses")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.out or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.redirect_stdout(sys.stderr):  # what the trainers print
            found = measure(given, folder / "home")
        if given.out:
            (folder / "learning.json").write_text(json.dumps(found, indent=1), encoding="utf-8")
            draw(found["rows"], folder / "learning.png")
    if given.json:
        print(json.dumps(found))
        return
    for row in found["rows"]:
        gain = f"gold {row['before']:.2f} -> {row['ours']:.2f}, gain {row['gain']:.2f} ± {row['standard_error']:.2f}"
        print(
            f"{row['case']:<12} {gain} (se), KL {row['kl']:.1f} nats, score {row['score']:.2f}, best {row['best']:.2f}"
        )
        for alarm in row["alarms"]:
            print(f"{'':<12} {alarm}")


if __name__ == "__main__":
    main()
