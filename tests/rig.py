"""A home folder with a store, rankings of a planted preference and tiny models: all that a training run needs.

The planted preference: the more a response has of the letter z, the better. Runs are done in this process (`here`),
which costs no start, or as in the product in a child of a worker (`in_child`).
"""

from __future__ import annotations

import math
import os
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import factories as make
from tiny import save_tiny_model

from data.fields import from_dict
from data.files.paths import open_home
from data.labels.roles import OPERATOR
from data.records import Project, Run, RunEvent, RunKind, RunStatus, Snapshot, Split
from data.runs.metrics import metrics_of
from data.runs.state import claim_run, events_of, finish_run, get_run
from data.store import open_store
from labeling.snapshot.freeze import SnapshotConfig, freeze_snapshot
from training.jobs.child import do_run
from training.jobs.reporter import Reporter
from training.jobs.worker import Pace, Worker
from training.launch.config import PPOConfig
from training.launch.kinds import CONFIGS, config_of
from training.launch.queue import queue_run
from training.lm.encoding import Encoder
from training.lm.models import Machine, find_model, load_encoder, set_up_machine
from training.ppo.build_roles import build_roles, readings_of
from training.ppo.learner import Learner
from training.ppo.roles import Roles
from training.ppo.rollout import PromptItem
from training.ppo.run import load_prompts, make_learner

LAYOUTS = ("shared", "lora", "full")
QUICK = Pace(poll_s=0.05, heartbeat_s=0.2, lease_s=30.0, cancel_grace_s=20.0)
LETTERS = "abcz"


def planted_responses(rng: random.Random, k: int = 4, lengths: tuple[int, int] = (6, 6)) -> list[str]:
    """k distinct texts of a few letters."""
    texts: list[str] = []
    while len(texts) < k:
        text = "".join(rng.choice(LETTERS) for _ in range(rng.randint(*lengths)))
        if text not in texts:
            texts.append(text)
    return texts


def ranks_by_z(texts: list[str]) -> list[int]:
    counts = [text.count("z") for text in texts]
    return [1 + sum(other > mine for other in counts) for mine in counts]


@dataclass
class Parts:
    """What a PPO run puts together before its loop starts."""

    config: PPOConfig
    reporter: Reporter
    machine: Machine
    encoder: Encoder
    roles: Roles
    prompts: list[PromptItem]
    learner: Learner


def noisy_ranks_by_z(rng: random.Random) -> Callable[[list[str]], list[int]]:
    """Ranks by the planted preference as people see it: the number of z plus Gumbel noise of scale 1.

    Pairs then follow the model of Bradley and Terry with the number of z as the utility.
    """

    def ranks(texts: list[str]) -> list[int]:
        seen = [text.count("z") - math.log(-math.log(rng.random())) for text in texts]
        return [1 + sum(other > mine for other in seen) for mine in seen]

    return ranks


class Rig:
    """One home with its store. Close it at the end."""

    def __init__(self, folder: Path) -> None:
        self.home = open_home(folder)
        self.store = open_store(self.home.store_url)
        self.models = folder / "given"
        self._rewards: dict[tuple[str, str], Run] = {}

    def close(self) -> None:
        self.store.close()

    def model(self, name: str = "llama", **changes: Any) -> str:
        """The folder of a tiny model, made when it is first asked for."""
        folder = self.models / name
        if not folder.exists():
            family = name.split("-", maxsplit=1)[0]
            save_tiny_model(folder, **({"family": family} | changes))
        return str(folder)

    def project(
        self,
        n_prompts: int = 20,
        k: int = 4,
        seed: int = 0,
        prompt: str = "prompt {}",
        lengths: tuple[int, int] = (6, 6),
        ranks: Callable[[list[str]], list[int]] = ranks_by_z,
    ) -> Project:
        """A project whose every prompt has been ranked, by the planted preference or by `ranks`."""
        rng, project, person = random.Random(seed), make.make_project(self.store, k=k), make.make_person(self.store)
        for number in range(n_prompts):
            texts = planted_responses(rng, k, lengths)
            task = make.make_task(self.store, project, *texts, prompt=prompt.format(number))
            make.make_ranking(self.store, task, person, ranks([response.text for response in task.responses]))
        return project

    def snapshot(self, project: Project | None = None, eval_share: float = 0.25) -> Snapshot:
        made = project or self.project()
        return freeze_snapshot(self.store, OPERATOR, self.home, made.id, SnapshotConfig(eval_share=eval_share))

    def queue(self, kind: RunKind, *, reward_run: Run | None = None, snapshot: Snapshot | None = None,
              project: Project | None = None, **changes: Any) -> Run:  # fmt: skip
        """Queue a run with the tests' number of threads and the given fields."""
        return queue_run(
            self.store,
            OPERATOR,
            kind,
            from_dict(CONFIGS[kind], {"machine.threads": int(os.environ.get("OMP_NUM_THREADS", "1"))} | changes),
            project_id=project.id if project else None,
            snapshot_id=snapshot.id if snapshot else None,
            reward_run_id=reward_run.id if reward_run else None,
        )

    def here(self, run: Run, expect: RunStatus | None = RunStatus.SUCCEEDED) -> Run:
        """Do a queued run in this process."""
        claimed = self.claim(run)
        before = signal.getsignal(signal.SIGTERM)
        try:
            do_run(self.store, self.home, run.id, claimed.epoch)
        finally:
            signal.signal(signal.SIGTERM, before)
        return self.look(run, expect)

    def in_child(self, run: Run, expect: RunStatus | None = RunStatus.SUCCEEDED, pace: Pace = QUICK) -> Run:
        """Let a worker do what is queued, in a process of its own."""
        Worker(self.store, self.home, pace).run(once=True)
        return self.look(run, expect)

    def claim(self, run: Run) -> Run:
        with self.store.begin() as tx:
            claimed = claim_run(tx, "rig")
        assert claimed is not None and claimed.id == run.id, "another run is in the queue"
        return claimed

    def finish(self, run: Run) -> None:
        """End a run that this process has claimed and done by hand."""
        with self.store.begin() as tx:
            finish_run(tx, run.id, self.look(run).epoch, RunStatus.SUCCEEDED)

    def reporter(self, run: Run) -> Reporter:
        """A reporter of a run that this process has claimed."""
        reporter = Reporter(self.store, self.home, self.look(run, RunStatus.RUNNING))
        reporter.folder.mkdir(parents=True, exist_ok=True)
        return reporter

    def look(self, run: Run, expect: RunStatus | None = None) -> Run:
        with self.store.read() as tx:
            found = get_run(tx, run.id)
        if expect is not None:
            log = self.home.run_folder(run.id) / "log.txt"
            words = log.read_text(errors="replace")[-3000:] if log.is_file() else ""
            assert found.status is expect, f"{found.status}: {found.error_kind} {found.error_message}\n{words}"
        return found

    def events(self, run: Run, *kinds: str) -> list[RunEvent]:
        with self.store.read() as tx:
            return events_of(tx, run.id, kinds=kinds)

    def metrics(self, run: Run, *, with_time: bool = False) -> dict[tuple[int, str], float | None]:
        """Value by step and name; without what a clock says."""
        with self.store.read() as tx:
            points = metrics_of(tx, run.id)
        return {(p.step, p.name): p.value for p in points if with_time or not p.name.startswith("time/")}

    def curve(self, run: Run, name: str) -> list[float]:
        return [
            value
            for (_, each), value in sorted(self.metrics(run, with_time=True).items())
            if each == name and value is not None
        ]

    def folder(self, run: Run) -> Path:
        return self.home.run_folder(run.id)

    @cached_property
    def small_snapshot(self) -> Snapshot:
        """A snapshot of twelve rankings, for tests that do not care which."""
        return self.snapshot(self.project(n_prompts=12))

    def reward(self, adapter: str = "lora", family: str = "llama") -> Run:
        """A finished reward run on the small snapshot, made when it is first asked for. family: also a model's name
        that `model` has made."""
        if (adapter, family) not in self._rewards:
            words = {"model": self.model(family), "adapter": adapter, "learning_rate": 3e-3, "epochs": 2}
            queued = self.queue(RunKind.REWARD, snapshot=self.small_snapshot, **words)
            self._rewards[adapter, family] = self.here(queued)
        return self._rewards[adapter, family]

    def queue_ppo(self, layout: str = "shared", family: str = "llama", **changes: Any) -> Run:
        """A queued PPO run in one of the three layouts: shared (an adapter for each role), lora, full."""
        reward = changes.pop("reward", None) or self.reward("lora" if layout == "shared" else "full", family)
        words = {"adapter": "full" if layout == "full" else "lora", "prompts_per_iteration": 4, "max_new_tokens": 8}
        words |= {"model": self.model(family), "temperature": 0.7} | changes
        return self.queue(RunKind.PPO, snapshot=self.small_snapshot, reward_run=reward, **words)

    def parts(self, layout: str = "shared", family: str = "llama", **changes: Any) -> Parts:
        """What such a run puts together before its loop starts, as `training.ppo.run.run` does."""
        run = self.queue_ppo(layout, family, **changes)
        self.claim(run)
        reporter = self.reporter(run)
        config: PPOConfig = config_of(run)
        machine = set_up_machine(config.machine)
        source = find_model(config.model, self.home, reporter)
        encoder = load_encoder(source)
        roles = build_roles(config, reporter, machine, source, encoder)
        readings = readings_of(config, reporter, source, encoder)
        prompts = load_prompts(config, reporter, encoder, roles.context, readings)
        return Parts(config, reporter, machine, encoder, roles, prompts, make_learner(config, reporter, roles, encoder))

    def held_out(self, snapshot: Snapshot) -> set[str]:
        """The texts of the prompts on the snapshot's held-out side."""
        from data.files.snapshots import read_groups

        groups = read_groups(self.home.snapshot_folder(snapshot.id))
        return {group.messages[-1]["content"] for group in groups if group.split is Split.EVAL}
