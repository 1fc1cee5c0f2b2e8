"""From a project's rankings to a frozen snapshot: plan (a dry run with every count), then freeze.

The split is by prompt, never by pair: all judgements of a prompt are on one side.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from data.check_answers import count_repeats
from data.disk import sync_file, sync_folder
from data.engine import Store, Tx
from data.errors import InvalidInput
from data.fields import option
from data.paths import Home
from data.projects import export_key, get_project
from data.prompts import get_splits
from data.rankings import count_superseded, current_rankings
from data.records import Purpose, Ranking, RankingStatus, Snapshot, Split, Task
from data.snapshots import (
    GROUP_COLUMNS,
    GROUPS,
    MANIFEST,
    PAIR_COLUMNS,
    PAIRS,
    Group,
    TableWriter,
    file_hash,
    hashed,
    read_batches,
    save_snapshot,
    snapshot_of_nonce,
    write_parquet,
)
from data.tasks import get_tasks
from labeling.pairs import count_not_compared, count_ties, pairs_from_ranks
from labeling.ranks import is_all_tied
from labeling.tables import pair_batches

SCHEMA_VERSION = 2
_TASKS_AT_ONCE = 500
OnGroup = Callable[[int], None]


@dataclass(frozen=True)
class SnapshotConfig:
    """What goes into a snapshot."""

    eval_share: float = option(
        0.1, "about this share of prompts is held out, where their import named no side", min=0.0, max=0.9
    )
    seed: int = option(0, "which prompts are held out", min=0, max=2**31 - 1)
    include_extra: bool = option(False, "use answers that came after the task had all the annotators it wanted")


@dataclass
class Plan:
    """What a snapshot would hold. `counts` says everything that is kept and everything left out, with its reason."""

    config: SnapshotConfig
    counts: dict[str, Any]
    examples: list[dict[str, str]]


def plan_snapshot(store: Store, project_id: str, config: SnapshotConfig, *, on_group: OnGroup | None = None) -> Plan:
    """Count what a snapshot would hold, and show three of its pairs in words. Nothing is stored.

    `on_group` is called with the number of rankings used so far, after each.
    """
    with store.read() as tx:
        get_project(tx, project_id)
        counter = _counter(tx, project_id, on_group)
        for _ in counter.watch(iter_groups(tx, project_id, config, counter)):
            pass
    return Plan(config, counter.as_counts(), counter.examples)


def freeze_snapshot(
    store: Store,
    home: Home,
    project_id: str,
    config: SnapshotConfig,
    *,
    nonce: str | None = None,
    created_by: str | None = None,
    on_group: OnGroup | None = None,
) -> Snapshot:
    """Write the snapshot's files, then its row. A repeated `nonce` returns the snapshot it made the first time.

    Raises InvalidInput if no pair would be in it.
    """
    if nonce is not None:
        with store.read() as tx:
            found = snapshot_of_nonce(tx, nonce)
        if found is not None:
            return found
    with store.read() as tx:
        get_project(tx, project_id)
        snapshot_id = tx.new_id()
        counter = _counter(tx, project_id, on_group)
        groups = iter_groups(tx, project_id, config, counter)
        folder, digest = _write_files(home, snapshot_id, config, groups, counter)
    saved, values = None, (asdict(config), counter.as_counts(), digest)
    try:
        with store.begin() as tx:
            saved = save_snapshot(tx, snapshot_id, project_id, *values, nonce=nonce, created_by=created_by)
        return saved
    finally:
        if saved is None or saved.id != snapshot_id:  # the row is what counts: without it, or made twice, no files stay
            shutil.rmtree(folder, ignore_errors=True)


def _write_files(
    home: Home, snapshot_id: str, config: SnapshotConfig, groups: Iterator[Group], counter: _Counter
) -> tuple[Path, str]:
    """Write a snapshot's folder, whole or not at all; return it, and the content hash."""
    staging, digest = home.snapshot_folder(f".staging-{snapshot_id}"), hashlib.sha256()
    staging.mkdir(parents=True)
    try:
        passing = hashed(counter.watch(groups), digest)
        write_parquet(staging / GROUPS, GROUP_COLUMNS, (group.as_row() for group in passing))
        counts = counter.as_counts()
        if not counts["pairs"]:
            raise InvalidInput(_nothing_to_freeze(counts))
        _write_pairs(staging)
        _write_manifest(staging, snapshot_id, config, counts, digest.hexdigest(), counter.examples)
        return _settle(staging, home.snapshot_folder(snapshot_id)), digest.hexdigest()
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _write_pairs(folder: Path) -> None:
    with TableWriter(folder / PAIRS, PAIR_COLUMNS) as writer:
        for groups in read_batches(folder / GROUPS):
            for pairs in pair_batches(groups):
                writer.add_batch(pairs)


def _settle(staging: Path, folder: Path) -> Path:
    """Move the files into place once they are on the disk: the row must not outlive them."""
    for path in staging.iterdir():
        sync_file(path)
    sync_folder(staging)
    staging.rename(folder)
    sync_folder(folder.parent)
    return folder


def iter_groups(tx: Tx, project_id: str, config: SnapshotConfig, counter: _Counter) -> Iterator[Group]:
    """Yield the project's usable rankings as groups, by task and time; count the others by reason."""
    key = export_key(tx, project_id)
    used = Counter[str]()  # usable rankings by prompt: a prompt's groups share the weight 1
    for _, task_prompt in _usable(tx, project_id, config, None):
        used[task_prompt] += 1
    splits = split_prompts(get_splits(tx, project_id), set(used), config)
    batch: list[Ranking] = []
    for ranking, _ in _usable(tx, project_id, config, counter):
        batch.append(ranking)
        if len(batch) == _TASKS_AT_ONCE:
            yield from _groups(tx, batch, used, splits, key)
            batch = []
    yield from _groups(tx, batch, used, splits, key)


def split_prompts(
    known: dict[str, tuple[str, Split | None]], wanted: set[str], config: SnapshotConfig
) -> dict[str, Split]:
    """Give each wanted prompt its side: the one that its import named, else by a hash of its text and the seed.

    `known`: prompt id -> (fingerprint, named split). A prompt is held out if its hash, as a number in [0, 1), is below
    the share; so it stays on its side when others come, and no reward model meets a prompt that it was trained on.
    Of five or more at least one is held out, and never all: the one with the lowest or highest hash has to move then.
    """
    places = {
        prompt_id: _unit_hash(config.seed, known[prompt_id][0]) for prompt_id in wanted if known[prompt_id][1] is None
    }
    held_out = {prompt_id for prompt_id, place in places.items() if place < config.eval_share}
    if not held_out and config.eval_share > 0 and len(places) >= 5:
        held_out = {min(places, key=places.__getitem__)}
    if places and len(held_out) == len(places):
        held_out.remove(max(places, key=places.__getitem__))
    sides = {prompt_id: Split.EVAL if prompt_id in held_out else Split.TRAIN for prompt_id in places}
    return sides | {prompt_id: side for prompt_id in wanted if (side := known[prompt_id][1]) is not None}


def _unit_hash(seed: int, fingerprint: str) -> float:
    digest = hashlib.sha256(f"{seed}:{fingerprint}".encode()).digest()
    return int.from_bytes(digest[:6]) / 2**48


def pseudonym(key: str, annotator_id: str) -> str:
    """A name for an annotator that is stable in one project and says nothing outside it."""
    return hmac.new(key.encode(), annotator_id.encode(), hashlib.sha256).hexdigest()[:12]


def _counter(tx: Tx, project_id: str, on_group: OnGroup | None) -> _Counter:
    """A counter that knows already how many answers are no current ones, and how many are repeats."""
    never_used = {"repeat": count_repeats(tx, project_id), "replaced_by_an_edit": count_superseded(tx, project_id)}
    return _Counter(never_used, on_group)


class _Counter:
    """Counts groups as they pass, and keeps three pairs as examples."""

    def __init__(self, never_used: dict[str, int], on_group: OnGroup | None = None) -> None:
        self._on_group = on_group
        self.left_out = Counter[str](skipped=0, unacceptable=0, all_tied=0, extra=0, gold=0)
        self.never_used = never_used
        self.totals = Counter[str](
            groups=0, groups_eval=0, pairs=0, pairs_eval=0, ties=0, not_compared=0, late=0, gold=0
        )
        self.k = Counter[str]()
        self.prompts: dict[str, Split] = {}
        self.annotators: set[str] = set()
        self.examples: list[dict[str, str]] = []

    def watch(self, groups: Iterator[Group]) -> Iterator[Group]:
        for group in groups:
            pairs = pairs_from_ranks(group.ranks)
            is_eval = group.split is Split.EVAL
            self.totals.update(groups=1, pairs=len(pairs), ties=count_ties(group.ranks, group.unplaced))
            self.totals.update(not_compared=count_not_compared(group.unplaced))
            self.totals.update(groups_eval=is_eval, pairs_eval=len(pairs) if is_eval else 0)
            self.k[str(len(group.ranks))] += 1
            self.prompts[group.prompt_id] = group.split
            self.annotators.add(group.annotator)
            if len(self.examples) < 3:
                first = pairs[0]
                texts = (group.messages[-1]["content"], group.responses[first.chosen], group.responses[first.rejected])
                self.examples.append(dict(zip(("prompt", "chosen", "rejected"), (t[:500] for t in texts), strict=True)))
            if self._on_group is not None:
                self._on_group(self.totals["groups"])
            yield group

    def as_counts(self) -> dict[str, Any]:
        n_eval = sum(side is Split.EVAL for side in self.prompts.values())
        return {
            "rankings_used": self.totals["groups"],
            "rankings_train": self.totals["groups"] - self.totals["groups_eval"],
            "rankings_eval": self.totals["groups_eval"],
            "rankings_late": self.totals["late"],
            "rankings_gold": self.totals["gold"],
            "pairs": self.totals["pairs"],
            "pairs_train": self.totals["pairs"] - self.totals["pairs_eval"],
            "pairs_eval": self.totals["pairs_eval"],
            "ties": self.totals["ties"],
            "not_compared": self.totals["not_compared"],
            "prompts": len(self.prompts),
            "prompts_train": len(self.prompts) - n_eval,
            "prompts_eval": n_eval,
            "annotators": len(self.annotators),
            "responses_per_ranking": dict(sorted(self.k.items(), key=lambda each: int(each[0]))),
            "left_out": dict(self.left_out) | self.never_used,
        }


def _usable(tx: Tx, project_id: str, config: SnapshotConfig, counter: _Counter | None) -> Iterator[tuple[Ranking, str]]:
    """Yield (ranking, prompt id) of what can be used; count what can't."""
    with_gold = get_project(tx, project_id).settings.gold_in_snapshots
    for ranking, prompt_id in current_rankings(tx, project_id, with_gold=True):
        is_gold, reason = ranking.purpose is Purpose.GOLD, None
        if is_gold and not with_gold:
            reason = "gold"
        elif ranking.status is RankingStatus.SKIPPED:
            reason = "skipped"
        elif ranking.status is RankingStatus.UNACCEPTABLE:
            reason = "unacceptable"
        elif ranking.is_extra and not config.include_extra:
            reason = "extra"
        elif ranking.ranks is None or is_all_tied(ranking.ranks):
            reason = "all_tied"
        if reason is None:
            if counter is not None:
                counter.totals.update(late=ranking.is_late, gold=is_gold)
            yield ranking, prompt_id
        elif counter is not None:
            counter.left_out[reason] += 1


def _groups(tx: Tx, rankings: list[Ranking], used: Counter[str], splits: dict[str, Split], key: str) -> Iterator[Group]:
    tasks: dict[str, Task] = {each.id: each for each in get_tasks(tx, list({each.task_id for each in rankings}))}
    for ranking in rankings:
        task = tasks[ranking.task_id]
        yield Group(
            ranking_id=ranking.id,
            task_id=task.id,
            prompt_id=task.prompt_id,
            split=splits[task.prompt_id],
            messages=task.messages,
            responses=tuple(response.text for response in task.responses),
            response_ids=tuple(response.id for response in task.responses),
            models=tuple(response.model for response in task.responses),
            ranks=ranking.ranks or (),
            annotator=pseudonym(key, ranking.annotator_id),
            weight=1.0 / used[task.prompt_id],
            unplaced=ranking.detail.unplaced,
            acceptable=ranking.detail.acceptable,
            flags=ranking.detail.flags,
            quality=ranking.detail.quality,
            strength=ranking.detail.strength,
            comment=ranking.comment,
            facts=task.facts,
            duration_ms=ranking.duration_ms,
        )


def _write_manifest(
    folder: Path,
    snapshot_id: str,
    config: SnapshotConfig,
    counts: dict[str, Any],
    digest: str,
    examples: list[dict[str, str]],
) -> None:
    manifest = {
        "schema_version": SCHEMA_VERSION,
        "snapshot": snapshot_id,
        "statement": "rank 1 is best; equal ranks are a tie and give no pair; unplaced: last, in no order",
        "split": "by prompt",
        "weights": "the groups of a prompt share the weight 1; a pair has its group's weight over its number of pairs",
        "config": asdict(config),
        "counts": counts,
        "content_hash": digest,
        "files": {name: {"sha256": file_hash(folder / name)} for name in (GROUPS, PAIRS)},
        "examples": examples,
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2, ensure_ascii=False), encoding="utf-8")


def _nothing_to_freeze(counts: dict[str, Any]) -> str:
    reasons = ", ".join(f"{number} {name.replace('_', ' ')}" for name, number in counts["left_out"].items() if number)
    return f"there is no pair to freeze: {reasons or 'nothing has been ranked yet'}; rank some tasks first"
