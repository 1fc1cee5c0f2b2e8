"""Which prompts are held out of models: the one place that decides it, for every figure that is called held-out.

A prompt is held out of a model if nothing in the model's lineage was trained on it: not the run that made it, nor its
reward models (second ones and those of an ensemble too), nor the model that it started from, and so on back. A run is
trained on the training side of its snapshot's rankings; PPO and RLOO also on the prompts that they sample from (those
on the snapshot's training side, or a file's), and PPO-ptx on the prompts of its texts. Prompts are told by their
messages, so that a copy in another project is the same prompt.

Not known here: what a model was trained on that comes from a hub or from a folder outside the home folder's runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq

from data.errors import InvalidInput, NotFound
from data.files.language_texts import LanguageText, read_texts
from data.files.paths import KEPT_FILES, Home
from data.files.prompt_rows import PromptRow, read_prompts
from data.files.snapshots import PROMPTS, get_snapshot
from data.labels.prompts import get_splits, iter_prompts
from data.records import Prompt, Run, RunKind, Split
from data.runs.best_policy import run_of
from data.runs.frozen_prompts import group_sides
from data.runs.lineage import parents_of, starts_of
from data.runs.state import get_run
from data.store.engine import Tx
from data.text import messages_fingerprint

SAMPLE_PROMPTS = (RunKind.PPO, RunKind.RLOO, RunKind.CHECK)  # a check looks at what PPO would be trained on
LEARN = (RunKind.REWARD, RunKind.SFT, RunKind.DPO, *SAMPLE_PROMPTS)


@dataclass
class TrainedOn:
    """The prompts (fingerprints) that some models were trained on. `unknown`: of what that can't be told, and why."""

    prompts: set[str] = field(default_factory=set)
    unknown: list[str] = field(default_factory=list)

    def holds_out(self, fingerprint: str) -> bool:
        return fingerprint not in self.prompts


@dataclass(frozen=True)
class Choice:
    """Prompts of a project to ask models. Of all the project's, `n_held_out` are held out of the models and `n_trained`
    are not; `trained`: fingerprints of the chosen ones that are not."""

    prompts: Sequence[Prompt]
    trained: frozenset[str]
    n_held_out: int
    n_trained: int
    unknown: Sequence[str]


def trained_on(tx: Tx, home: Home, *, models: Iterable[str] = (), runs: Iterable[str] = ()) -> TrainedOn:
    """What models, by the names that configurations have for them, and runs were trained on, with all behind them."""
    named = [_run_behind(home, model) for model in models]
    trained = TrainedOn()
    for run in _lineage(tx, home, [*runs, *filter(None, named)], trained):
        if run.kind not in LEARN:
            continue
        for what, look in _sources(tx, home, run):
            try:
                trained.prompts |= look()
            except (NotFound, InvalidInput, OSError) as error:
                trained.unknown.append(f"{what} of {run.kind} run {run.id}: {error}")
    return trained


def choose_prompts(
    tx: Tx, home: Home, project_id: str, limit: int, *, models: Iterable[str], runs: Iterable[str], with_trained: bool
) -> Choice:
    """Up to `limit` of a project's prompts that are held out of models and runs: those named as held out first, then
    those without a side, each in the project's order. `with_trained`: then also others.

    Raises InvalidInput that says what there is and what to do, if no prompt is held out, or if it can't be told.
    """
    known = trained_on(tx, home, models=models, runs=runs)
    prompts = list(iter_prompts(tx, project_id))
    if not prompts:
        raise InvalidInput("the project has no prompts; type one, or import some")
    held_out = [each for each in prompts if known.holds_out(each.fingerprint)]
    trained = [each for each in prompts if not known.holds_out(each.fingerprint)]
    if not with_trained:
        _refuse_without(held_out, trained, known)
    order = (Split.EVAL, None, Split.TRAIN)
    wanted = sorted(held_out, key=lambda each: order.index(each.split)) + (trained if with_trained else [])
    chosen = wanted[:limit]
    seen = frozenset(each.fingerprint for each in chosen) & known.prompts
    return Choice(chosen, seen, len(held_out), len(trained), known.unknown)


def _refuse_without(held_out: list[Prompt], trained: list[Prompt], known: TrainedOn) -> None:
    asked = "or set prompts = any to take others, which the result then says"
    if known.unknown:
        raise InvalidInput(
            f"it can't be told which prompts are held out: {'; '.join(known.unknown)}; type one, {asked}"
        )
    if not held_out:
        raise InvalidInput(
            f"none of the project's {len(trained):,} prompts is held out of what is compared: its runs, their reward "
            f"models and their starts were trained on all of them; import new prompts, type one, {asked}"
        )


def _lineage(tx: Tx, home: Home, run_ids: Iterable[str], trained: TrainedOn) -> Iterator[Run]:
    """The runs and all behind them, each once."""
    waiting, seen = list(run_ids), set[str]()
    while waiting:
        try:
            run = get_run(tx, waiting.pop(0))
        except NotFound as error:
            trained.unknown.append(str(error))
            continue
        if run.id in seen:
            continue
        seen.add(run.id)
        waiting += parents_of(run)
        waiting += filter(None, (_run_behind(home, name) for name in starts_of(run) if run_of(name) is None))
        yield run


def _run_behind(home: Home, model: str) -> str | None:
    """The run that made a model: of run:ID and run:ID/best, and of a folder of a run; None for any other."""
    runs, place = home.root / "runs", Path(model).expanduser()
    if run_of(model) is None and place.is_absolute() and place.is_relative_to(runs) and place != runs:
        return place.relative_to(runs).parts[0]
    return run_of(model)


def _sources(tx: Tx, home: Home, run: Run) -> Iterator[tuple[str, Callable[[], set[str]]]]:
    """What a run was trained on: words for it, and a function that gives its prompts' fingerprints."""
    if run.snapshot_id is not None:
        yield "the rankings", lambda: _of_snapshot(tx, home, run.snapshot_id or "", with_unranked=False)
    if run.kind in SAMPLE_PROMPTS:
        if file := str(run.config.get("prompts_file") or ""):
            yield "prompts_file", lambda: _of_prompts_file(_kept(home, run, "prompts_file", file))
        elif run.snapshot_id is not None:
            yield "the prompts", lambda: _of_snapshot(tx, home, run.snapshot_id or "", with_unranked=True)
    if texts := str(run.config.get("ptx_file") or ""):
        yield "ptx_file", lambda: _of_texts(_kept(home, run, "ptx_file", texts))


def _of_snapshot(tx: Tx, home: Home, snapshot_id: str, *, with_unranked: bool) -> set[str]:
    """Fingerprints of a snapshot's training side, the prompts that nobody has ranked among them or not.

    Of an old snapshot without frozen prompts the unranked ones are those that the project has by now: that is no fewer
    than the run can have seen.
    """
    snapshot, folder = get_snapshot(tx, snapshot_id), home.snapshot_folder(snapshot_id)
    if snapshot.prompts_hash is not None:
        path = folder / PROMPTS
        if not path.is_file():
            raise NotFound(f"the file {path} is missing: the snapshot's folder was moved or not copied to this machine")
        table = pq.read_table(path, columns=["fingerprint", "split", "is_ranked"]).to_pylist()
        return {row["fingerprint"] for row in table
                if row["split"] == Split.TRAIN.value and (with_unranked or row["is_ranked"])}  # fmt: skip
    known, sides = get_splits(tx, snapshot.project_id), group_sides(folder)
    if with_unranked:
        sides = {prompt_id: side or Split.TRAIN for prompt_id, (_, side) in known.items()} | sides
    return {known[each][0] for each, side in sides.items() if side is Split.TRAIN and each in known}


def _kept(home: Home, run: Run, name: str, given: str) -> Path:
    """The copy that the run has made of a file; before its first start the file itself."""
    kept = home.run_folder(run.id) / f"{KEPT_FILES[name]}{Path(given).suffix.lower()}"
    return kept if kept.is_file() else Path(given)


def _of_prompts_file(path: Path) -> set[str]:
    return {messages_fingerprint(row.messages) for row in read_prompts(path) if isinstance(row, PromptRow)}


def _of_texts(path: Path) -> set[str]:
    """Of the texts those that have a prompt."""
    texts = (text for text in read_texts(path) if isinstance(text, LanguageText))
    return {messages_fingerprint(text.messages) for text in texts if text.messages is not None}
