"""From a project's rankings to a frozen snapshot: plan (a dry run with every count), then freeze.

The split is by prompt, never by pair: all judgements of a prompt are on one side.
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
import json
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from data.errors import InvalidInput
from data.fields import option
from data.files.paths import Home
from data.files.snapshots import (
    GROUP_COLUMNS,
    GROUPS,
    MANIFEST,
    OTHER_COLUMNS,
    OTHERS,
    PAIR_COLUMNS,
    PAIRS,
    PROMPTS,
    TableWriter,
    file_hash,
    hash_row,
    hashed,
    read_batches,
    save_snapshot,
    snapshot_of_nonce,
)
from data.labels.adjudications import current_adjudications
from data.labels.check_answers import count_repeats
from data.labels.gold import gold_of_project
from data.labels.projects import export_key, get_project
from data.labels.prompts import get_splits
from data.labels.rankings import count_superseded, current_rankings
from data.labels.roles import Actor, acting, require
from data.labels.tasks import get_tasks
from data.records import Prompt, Ranking, RankingStatus, Role, Snapshot, Split
from data.runs.frozen_prompts import write_prompts
from data.store.disk import sync_file, sync_folder
from data.store.engine import Store, Tx
from labeling.judgement.consensus import annotator_accuracies, comparisons, vote_weight
from labeling.snapshot.counts import OnGroup, SnapshotCounter
from labeling.snapshot.groups import (
    JudgedTask,
    Merge,
    TaskOutcome,
    build_group,
    decided_part,
    judgement,
    other_row,
    parts_of_task,
    usable,
)
from labeling.snapshot.splits import side_of_other, split_prompts
from labeling.snapshot.tables import pair_batches

SCHEMA_VERSION = 2
TASKS_AT_ONCE = 500
_MERGE_NOTES = {
    Merge.EACH.value: "each ranking is a group; n_agree of n_annotators says how many ranked the pair the same way",
    Merge.SOFT.value: "one group per task; probability: the share of annotators for a pair's direction, a tie half; "
    "a pair has its majority's direction, an even split gives none",
}
LEAST_WEIGHT = 0.01  # of an annotator: nobody's rankings vanish


class AnnotatorWeights(StrEnum):
    """How much each annotator counts."""

    EQUAL = "equal"
    DAWID_SKENE = "dawid_skene"


@dataclass(frozen=True)
class SnapshotConfig:
    """What goes into a snapshot."""

    eval_share: float = option(
        0.1, "about this share of prompts is held out, where their import named no side", min=0.0, max=0.9
    )
    seed: int = option(0, "which prompts are held out", min=0, max=2**31 - 1)
    include_extra: bool = option(False, "use answers that came after the task had all the annotators it wanted")
    merge: str = option(
        Merge.EACH.value,
        "several rankings of a task: each by itself, or merged into soft pairs, as sure as its annotators agree",
        choices=tuple(Merge),
    )
    annotator_weights: str = option(
        AnnotatorWeights.EQUAL.value,
        "what an annotator's rankings weigh: all the same, or by how reliable their agreement with others makes them",
        choices=tuple(AnnotatorWeights),
    )


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
        for outcome in outcomes(tx, project_id, config, with_others=False):
            counter.add(outcome)
    return Plan(config, counter.as_counts(), counter.examples)


def freeze_snapshot(
    store: Store,
    who: Actor,
    home: Home,
    project_id: str,
    config: SnapshotConfig,
    *,
    nonce: str | None = None,
    on_group: OnGroup | None = None,
) -> Snapshot:
    """Write the snapshot's files, then its row. A repeated `nonce` returns the snapshot it made the first time.

    Raises InvalidInput if no pair would be in it.
    """
    with store.read() as tx:
        require(tx, who, Role.RESEARCHER)
        found = None if nonce is None else snapshot_of_nonce(tx, nonce)
    if found is not None:
        return found
    with store.read() as tx:
        get_project(tx, project_id)
        snapshot_id = tx.new_id()
        counter = _counter(tx, project_id, on_group)
        tasks = outcomes(tx, project_id, config, with_others=True)
        side_of = partial(_side_by_text, config)
        prompts = partial(write_prompts, tx, project_id, side_of=side_of)
        folder, digest = _write_files(home, snapshot_id, config, tasks, prompts, counter)
    saved, values = None, (asdict(config), counter.as_counts(), digest, file_hash(folder / PROMPTS))
    try:
        with acting(store, who, Role.RESEARCHER) as tx:
            saved = save_snapshot(tx, snapshot_id, project_id, *values, nonce=nonce, created_by=who.id)
        return saved
    finally:
        if saved is None or saved.id != snapshot_id:  # the row is what counts: without it, or made twice, no files stay
            shutil.rmtree(folder, ignore_errors=True)


def _write_files(
    home: Home,
    snapshot_id: str,
    config: SnapshotConfig,
    tasks: Iterable[TaskOutcome],
    write_prompts: Callable[[Path, Path], None],
    counter: SnapshotCounter,
) -> tuple[Path, str]:
    """Write a snapshot's folder, whole or not at all; return it, and the content hash."""
    staging, digest = home.snapshot_folder(f".staging-{snapshot_id}"), hashlib.sha256()
    staging.mkdir(parents=True)
    try:
        _write_groups(staging, tasks, counter, digest)
        counts = counter.as_counts()
        if not counts["pairs"]:
            raise InvalidInput(_nothing_to_freeze(counts))
        _write_pairs(staging)
        write_prompts(staging, staging / PROMPTS)
        _write_manifest(staging, snapshot_id, config, counts, digest.hexdigest(), counter.examples)
        return _settle(staging, home.snapshot_folder(snapshot_id)), digest.hexdigest()
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _write_groups(folder: Path, tasks: Iterable[TaskOutcome], counter: SnapshotCounter, digest: Any) -> None:
    """Write the groups and the other answers as they come, and count them. The hash is of what is used: of the others,
    those that no response is acceptable, which are negative examples in an unpaired export."""
    unacceptable = hashlib.sha256()
    with TableWriter(folder / GROUPS, GROUP_COLUMNS) as used, TableWriter(folder / OTHERS, OTHER_COLUMNS) as others:
        for outcome in tasks:
            counter.add(outcome)
            for group in hashed(outcome.groups, digest):
                used.add_row(group.as_row())
            for row in outcome.others:
                others.add_row(row)
                if row["left_out"] == RankingStatus.UNACCEPTABLE:
                    hash_row(row, unacceptable)
    if unacceptable.digest() != hashlib.sha256().digest():
        digest.update(unacceptable.digest())


def _write_pairs(folder: Path) -> None:
    with TableWriter(folder / PAIRS, PAIR_COLUMNS) as writer:
        for groups in read_batches(folder / GROUPS):
            for pairs in pair_batches(groups):
                writer.add_batch(pairs)


def _side_by_text(config: SnapshotConfig, prompt: Prompt) -> Split:
    """The side of a prompt of which the snapshot has no group."""
    known = {prompt.id: (prompt.fingerprint, prompt.split)}
    return side_of_other(known, prompt.id, eval_share=config.eval_share, seed=config.seed)


def _settle(staging: Path, folder: Path) -> Path:
    """Move the files into place once they are on the disk: the row must not outlive them."""
    for path in staging.iterdir():
        sync_file(path)
    sync_folder(staging)
    staging.rename(folder)
    sync_folder(folder.parent)
    return folder


def outcomes(tx: Tx, project_id: str, config: SnapshotConfig, *, with_others: bool) -> Iterator[TaskOutcome]:
    """Yield what becomes of each task that was answered, by task and time; the answers that are no group by themselves
    are made rows `with_others`."""
    name_of = partial(pseudonym, export_key(tx, project_id))
    weight_of = _annotator_weights(tx, project_id, config)
    totals: dict[str, float] = defaultdict(float)  # a prompt's groups share the weight 1
    for judged in _judged_tasks(tx, project_id, config, weight_of):
        for part in judged.parts:
            totals[judged.prompt_id] += part.weight
    known = get_splits(tx, project_id)
    splits = split_prompts(known, totals.keys(), eval_share=config.eval_share, seed=config.seed)
    gold = gold_of_project(tx, project_id) if with_others else {}
    judged_tasks = _judged_tasks(tx, project_id, config, weight_of)
    while batch := list(itertools.islice(judged_tasks, TASKS_AT_ONCE)):
        needed = [each.task_id for each in batch if each.parts or (each.aside and with_others)]
        tasks = {each.id: each for each in get_tasks(tx, needed)}
        for judged in batch:
            split = splits.get(judged.prompt_id) or side_of_other(
                known, judged.prompt_id, eval_share=config.eval_share, seed=config.seed
            )
            groups, others = [], []
            for part in judged.parts:
                weight, task = part.weight / totals[judged.prompt_id], tasks[judged.task_id]
                groups.append(build_group(part, task, judged.rankings, split=split, name_of=name_of, weight=weight))
            for aside in judged.aside if with_others else ():
                expected = gold.get(judged.task_id) if aside.reason == "gold" else None
                row = other_row(aside, tasks[judged.task_id], split=split, name_of=name_of, gold=expected)
                others.append(row)
            yield TaskOutcome(judged, split, groups, others)


def _judged_tasks(
    tx: Tx, project_id: str, config: SnapshotConfig, weight_of: Callable[[str], float]
) -> Iterator[JudgedTask]:
    """Yield each task that was answered: by what a researcher decided on it, else by what its annotators said."""
    decisions = {each.task_id: each for each in current_adjudications(tx, project_id)}
    with_gold = get_project(tx, project_id).settings.gold_in_snapshots
    for task_id, prompt_id, answers in _answers_by_task(tx, project_id):
        rankings, aside = usable(answers, include_extra=config.include_extra, with_gold=with_gold)
        if task_id in decisions:
            parts, aside = decided_part(decisions[task_id], answers, weight_of)
        else:
            parts, more = parts_of_task(rankings, weight_of, config.merge)
            aside += more
        yield JudgedTask(task_id, prompt_id, rankings, parts, aside)


def _answers_by_task(tx: Tx, project_id: str) -> Iterator[tuple[str, str, list[Ranking]]]:
    by_task = itertools.groupby(
        current_rankings(tx, project_id, with_gold=True), lambda each: (each[0].task_id, each[1])
    )
    for (task_id, prompt_id), answers in by_task:
        yield task_id, prompt_id, [answer for answer, _ in answers]


def _annotator_weights(tx: Tx, project_id: str, config: SnapshotConfig) -> Callable[[str], float]:
    """What each annotator's rankings weigh. Whoever shares no task with others weighs what they do in the mean."""
    if config.annotator_weights != AnnotatorWeights.DAWID_SKENE:
        return lambda _annotator_id: 1.0
    with_gold = get_project(tx, project_id).settings.gold_in_snapshots
    units: list[dict[str, int]] = []
    for _, _, answers in _answers_by_task(tx, project_id):
        rankings, _ = usable(answers, include_extra=config.include_extra, with_gold=with_gold)
        units += comparisons({each.annotator_id: judgement(each) for each in rankings})
    # Rounded, so that two people who are alike weigh the same and an even split between them stays one.
    accuracies = annotator_accuracies(units)
    weights = {name: max(LEAST_WEIGHT, round(vote_weight(each), 2)) for name, each in accuracies.items()}
    mean = fmean(weights.values()) if weights else 1.0
    return lambda annotator_id: weights.get(annotator_id, mean)


def pseudonym(key: str, annotator_id: str) -> str:
    """A name for an annotator that is stable in one project and says nothing outside it."""
    return hmac.new(key.encode(), annotator_id.encode(), hashlib.sha256).hexdigest()[:12]


def _counter(tx: Tx, project_id: str, on_group: OnGroup | None) -> SnapshotCounter:
    """A counter that knows already how many answers are no current ones, and how many are repeats."""
    never_used = {"repeat": count_repeats(tx, project_id), "replaced_by_an_edit": count_superseded(tx, project_id)}
    return SnapshotCounter(never_used, on_group)


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
        "merge": _MERGE_NOTES[config.merge],
        "adjudicated": "where a researcher has decided on a task, its group is that decision",
        "split": "by prompt",
        "weights": "the groups of a prompt share the weight 1; a pair has its group's weight over its number of pairs",
        "config": asdict(config),
        "counts": counts,
        "content_hash": digest,
        "files": {path.name: {"sha256": file_hash(path)} for path in sorted(folder.glob("*.parquet"))},
        "examples": examples,
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2, ensure_ascii=False), encoding="utf-8")


def _nothing_to_freeze(counts: dict[str, Any]) -> str:
    reasons = ", ".join(f"{number} {name.replace('_', ' ')}" for name, number in counts["left_out"].items() if number)
    return f"there is no pair to freeze: {reasons or 'nothing has been ranked yet'}; rank some tasks first"
