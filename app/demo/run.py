"""`rankloop demo`: the whole loop with simulated annotators, on the real 135M model, in some ten minutes on two cores.

Sample, rank, freeze, train a reward model, run PPO, and let the gold rule judge answers to prompts that nothing was
trained on. The rule ranks the training answers, through annotators with noise; the reward model and PPO never see it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from app.demo.judge import rank_everything, simulated_annotators
from app.demo.report import write_report
from app.words.progress import ProgressLine
from app.words.values import count
from data.errors import InvalidInput
from data.fields import from_dict
from data.files.paths import Home
from data.files.prompt_rows import told
from data.files.rows import Problem, read_rows
from data.labels.projects import create_project
from data.labels.prompts import add_prompts
from data.labels.roles import OPERATOR
from data.records import NewPrompt, Run, RunKind, Split
from data.runs.metrics import metrics_of, samples_of
from data.runs.state import get_run
from data.store import Store, open_store
from labeling.files.parse import parse_prompt
from labeling.snapshot.freeze import SnapshotConfig, freeze_snapshot
from training.launch.config import DEMO_MODEL, CompareConfig, PPOConfig, RewardConfig, SampleConfig
from training.launch.presets import preset_config
from training.launch.process import start_worker, wait_for
from training.launch.queue import queue_run

PROMPTS_FILE = Path(__file__).with_name("prompts.txt")
SYSTEM = "You are a helpful assistant. Answer briefly, in one short sentence."
N_TRAIN, N_HELD_OUT = 96, 48
FULL_MINUTES = 10
SHORT_CHARACTERS = 160
MAX_NEW_TOKENS, TEMPERATURE = 40, 0.7
PRESET = "cpu-demo"
Words = dict[str, Any]
IN_BF16: Words = {"machine.precision": "bf16"}
ANSWERS_EACH = 2  # answers of each model to each held-out prompt
Announce = Callable[[str], None]


def _quiet(_words: str) -> None:
    """Say nothing."""


def run_demo(
    home: Home,
    store_url: str,
    minutes: float = FULL_MINUTES,
    announce: Announce = _quiet,
    prompts: Path | None = None,
    model: str = DEMO_MODEL,
) -> dict[str, Any]:
    """Run the loop and write its report to the home folder's demo/<time>; return the summary.

    minutes: fewer than 10 shrink the numbers of prompts and iterations in proportion. prompts: a file in the place of
    the package's own prompts. Raises InvalidInput for a bad file, WorkFailed if a run fails.
    """
    started = time.time()
    share = min(1.0, max(0.1, minutes / FULL_MINUTES))
    store = open_store(store_url)
    worker = start_worker(home, store_url, quiet=True)
    try:
        demo = _Demo(store, home, announce, share, model)
        summary = demo.run(load_prompts(prompts, share, announce))
    finally:
        worker.terminate()
        worker.wait(timeout=30)
        store.close()
    folder = home.root / "demo" / time.strftime("%Y%m%d-%H%M%S", time.localtime(started))
    summary["seconds"]["whole"] = time.time() - started
    write_report(folder, summary, demo.curves, demo.rows)
    announce(f"report: {folder / 'report.md'}")
    return summary | {"folder": str(folder)}


def load_prompts(path: Path | None, share: float, announce: Announce = _quiet) -> list[NewPrompt]:
    """Prompts: first those named as held out, then those to train on, drawn with a fixed seed."""
    n_held_out, n_train = max(8, round(N_HELD_OUT * share)), max(16, round(N_TRAIN * share))
    if path is None:
        texts = [line for line in PROMPTS_FILE.read_text(encoding="utf-8").splitlines() if line]
    else:
        texts = _short_texts(path, announce)
    if len(texts) < n_held_out + n_train:
        raise InvalidInput(
            f"{n_held_out + n_train} prompts of less than {SHORT_CHARACTERS} characters are needed, found {len(texts)}"
        )
    chosen = random.Random(0).sample(texts, n_held_out + n_train)
    return [
        NewPrompt(
            ({"role": "system", "content": SYSTEM}, {"role": "user", "content": text}),
            Split.EVAL if place < n_held_out else None,
        )
        for place, text in enumerate(chosen)
    ]


def _short_texts(path: Path, announce: Announce) -> list[str]:
    """The last turns of a file's prompts that are short, each once; what is left out is announced."""
    texts, problems, n_long = list[str](), list[Problem](), 0
    for row in read_rows(path):
        try:
            if isinstance(row, Problem):
                problems.append(row)
            elif len(text := parse_prompt(row.value).messages[-1]["content"]) < SHORT_CHARACTERS:
                texts.append(text)
            else:
                n_long += 1
        except InvalidInput as error:
            problems.append(Problem(row.line, str(error)))
    apart = list(dict.fromkeys(texts))
    if problems:
        announce(f"{path.name}: {count(len(problems), 'row')} can't be read: {told(problems)}")
    if n_long or len(apart) < len(texts):
        announce(
            f"{path.name}: left out: {count(n_long, 'prompt')} of {SHORT_CHARACTERS} characters or more, and "
            f"{len(texts) - len(apart):,} that are there already"
        )
    return apart


class _Demo:
    """One go through the loop; keeps what the report needs."""

    def __init__(self, store: Store, home: Home, announce: Announce, share: float, model: str) -> None:
        self._store, self._home, self._announce, self._share, self._model = store, home, announce, share, model
        self.curves: dict[str, list[tuple[int, float]]] = {}
        self.rows: list[dict[str, Any]] = []
        self._seconds: dict[str, float] = {}

    def run(self, prompts: list[NewPrompt]) -> dict[str, Any]:
        """The five steps; returns the summary's figures."""
        n_held_out = sum(prompt.split is Split.EVAL for prompt in prompts)
        with self._store.begin() as tx:
            project = create_project(tx, f"Demo run {tx.new_id()[-6:]}")
            add_prompts(tx, project.id, prompts)
        sampled: Words = {"sampling.max_new_tokens": MAX_NEW_TOKENS, "sampling.temperature": TEMPERATURE} | IN_BF16
        words: Words = {"model": self._model, "k": 4, "split": "train", "sampling.batch_size": 24}
        sample = from_dict(SampleConfig, words | sampled)
        self._do("sample 4 answers to each training prompt", RunKind.SAMPLE, sample, project_id=project.id)
        n_ranked = rank_everything(self._store, project.id, simulated_annotators(self._store, 2), seed=0)
        self._announce(f"two simulated annotators ranked {n_ranked} tasks")
        snapshot = freeze_snapshot(self._store, OPERATOR, self._home, project.id, SnapshotConfig())
        reward = self._do(
            "train the reward model on these rankings", RunKind.REWARD, self._reward_config(), snapshot_id=snapshot.id
        )
        ppo = self._do(
            "train the policy against it",
            RunKind.PPO,
            self._ppo_config(),
            snapshot_id=snapshot.id,
            reward_run_id=reward.id,
        )
        pair: Words = {"model_a": self._model, "model_b": f"run:{ppo.id}", "k": ANSWERS_EACH, "limit": n_held_out}
        pair |= {"sampling.batch_size": 48}
        compare = self._do(
            "answer the held-out prompts, before and after",
            RunKind.COMPARE,
            from_dict(CompareConfig, pair | sampled),
            project_id=project.id,
            reward_run_id=reward.id,
        )
        self._collect(ppo.id, compare.id)
        return {
            "model": self._model,
            "project": project.id,
            "snapshot": snapshot.id,
            "reward_run": reward.id,
            "ppo_run": ppo.id,
            "compare_run": compare.id,
            "counts": snapshot.counts,
            "reward_held_out": reward.result["held_out"],
            "reward_pair_accuracy": reward.result["pair_accuracy"],
            "reward_verdicts": reward.result["verdicts"],
            "kl_last": self.curves["kl/k1_mean"][-1][1],
            "iterations": len(self.curves["kl/k1_mean"]),
            "seconds": self._seconds,
        }

    def _reward_config(self) -> RewardConfig:
        words: Words = {"model": self._model, "machine.checkpoint_every": 1000}
        config: RewardConfig = preset_config(RunKind.REWARD, PRESET, words)
        return config

    def _ppo_config(self) -> PPOConfig:
        iterations = max(2, round(10 * self._share))
        words: Words = {"model": self._model, "iterations": iterations, "machine.checkpoint_every": 1000}
        config: PPOConfig = preset_config(RunKind.PPO, PRESET, words)
        return config

    def _do(self, words: str, kind: RunKind, config: Any, **links: Any) -> Run:
        started = time.time()
        self._announce(f"{words} ...")
        run = queue_run(self._store, OPERATOR, kind, config, **links)
        with ProgressLine(words) as line:
            run = wait_for(self._store, run.id, on_change=lambda now: line.update(now.step, now.total_steps))
        self._seconds[kind.value] = time.time() - started
        self._announce(f"{words}: done in {self._seconds[kind.value]:.0f} s")
        return run

    def _collect(self, ppo_id: str, compare_id: str) -> None:
        with self._store.read() as tx:
            for point in metrics_of(tx, ppo_id):
                if point.value is not None:
                    self.curves.setdefault(point.name, []).append((point.step, point.value))
            last = get_run(tx, compare_id).step
            self.rows = [row for _, row in samples_of(tx, compare_id, last)]
