"""The reward run: a ranking loss over whole rankings, on TRL's RewardTrainer.

All K responses of a prompt stay in one batch element (Ouyang et al. 2022, section 3.5), in one sequence that reads the
prompt once where the model allows it. After training the scores are shifted so that their mean over SFT responses is
0; the shift is a number beside the model, because plain transformers drops a bias in the head.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from statistics import fmean
from typing import Any, NamedTuple

import torch
from datasets import Dataset
from peft import TaskType
from trl import RewardConfig as TRLRewardConfig

from data.labels.prompts import get_splits
from data.runs.held_out import trained_on
from training.jobs.left_out import LeftOut
from training.jobs.reporter import Reporter
from training.launch.config import RewardConfig, peak_learning_rate
from training.lm.adapters import report_not_adapted
from training.lm.dataset import Encoded, EncodedGroup
from training.lm.encoding import PADDING, Encoder
from training.lm.models import (
    MODEL_FOLDER,
    Machine,
    ModelSource,
    load_classifier,
    set_up_machine,
    versions,
)
from training.lm.processes import Helpers, n_processes, of_first
from training.lm.sharing import check_shared_prompts
from training.lm.trl_trainer import EveryStep, common_arguments, warmup_steps, with_adapter
from training.maths.losses import ranking_loss
from training.reward.data import read_data
from training.reward.model_card import CARD, model_card
from training.reward.objective import Objective
from training.reward.report import ReportInput
from training.reward.save import save_reward_model
from training.reward.trainer import METRIC_NAMES, RankingTrainer, as_batch

MIN_LR_SHARE = 0.1
EVALUATIONS = 10  # of a run that does not say how many steps between them


class HeldOutFigures(NamedTuple):
    """Held-out figures; pair accuracies are means over rankings, equal scores count half."""

    loss: float
    pair_accuracy: float
    exact_order: float
    length_accuracy: float


def run(config: RewardConfig, reporter: Reporter) -> dict[str, Any]:
    """Train on the run's snapshot, evaluate on its held-out side, save the model with its zero."""
    machine = set_up_machine(config.machine)
    reporter.versions(versions(machine))
    folder = reporter.home.snapshot_folder(reporter.run.snapshot_id or "")
    data = read_data(config, folder, reporter.home, reporter)
    config, source, encoder, encoded = data.config, data.source, data.encoder, data.encoded
    reporter.event("data", **data.counts)
    lost = {name: data.counts[name] for name in ("prompts_refused", "groups_without_pair")}
    LeftOut.counted("rankings", lost, data.counts["train"] + data.counts["held_out"]).note(reporter)
    trained = start_was_trained_on(encoded.held_out, reporter)
    with Helpers(config.machine.processes, reporter, machine.device):
        trainer = make_trainer(config, reporter, machine, source, encoder, encoded)
        if n_processes() > 1:
            reporter.event("processes", number=n_processes())
        seen = _evaluate_on_the_way(trainer, config, encoded.held_out, reporter)
        if config.train:
            trainer.train_or_resume()
        held_out = seen.get(trainer.state.max_steps) or _scores(trainer, encoded.held_out)
    if not reporter.is_main:
        return {}
    final = evaluate_groups(encoded.held_out, held_out) if encoded.held_out else None
    info = save_reward_model(trainer, config, reporter, source, encoder)
    report = None
    if encoded.held_out:
        shifted = [scores - info.shift for scores in held_out]
        report = ReportInput(folder, encoded).report(shifted, config, reporter, source, encoder, machine)
    card = model_card(info, reporter.run.id, reporter.run.snapshot_id, report, encoder)
    (reporter.folder / MODEL_FOLDER / CARD).write_text(card, encoding="utf-8")
    return {
        "shift": info.shift,
        "score_std": info.std,
        "held_out_rankings": len(encoded.held_out),
        **({"held_out_rankings_trained_on": trained} if trained else {}),
        "held_out": final._asdict() if final else None,
        "model": source.name,
        "base_revision": source.revision,
        "pair_accuracy": report["model"]["pair_accuracy"] if report else None,
        "verdicts": report["verdicts"] if report else [],
    }


def start_was_trained_on(held_out: list[EncodedGroup], reporter: Reporter) -> int:
    """Of how many held-out rankings the model that the run starts from, or one behind it, was trained on the prompt.

    They stay in the figures, as people's figures are over the same ones; an event says how many they are.
    """
    with reporter.store.read() as tx:
        known = trained_on(tx, reporter.home, runs=[reporter.run.id])
        prompts = get_splits(tx, reporter.run.project_id or "")
    ids = [group.prompt_id for group in held_out if group.prompt_id in prompts]
    n = sum(not known.holds_out(prompts[each][0]) for each in ids)
    if n or known.unknown:
        unsure = {"not_known": known.unknown} if known.unknown else {}
        reporter.event("held_out_trained_on", rankings=n, of=len(held_out), **unsure)
    return n


def _evaluate_on_the_way(
    trainer: RankingTrainer, config: RewardConfig, held_out: list[EncodedGroup], reporter: Reporter
) -> dict[int, list[torch.Tensor]]:
    """Report the held-out figures now, if the run has just begun, then every so often and at the last step.

    Returns the raw scores by step, of the latest evaluation alone; it changes as the run goes on.
    """
    seen: dict[int, list[torch.Tensor]] = {}
    if not held_out:
        return seen

    def report(step: int) -> None:
        seen.clear()
        seen[step] = _scores(trainer, held_out)
        figures = evaluate_groups(held_out, seen[step])
        metrics = {f"reward/held_out_{name}": value for name, value in figures._asdict().items()}
        trainer.reporter.step(step, trainer.state.max_steps or None, metrics)

    def evaluate(step: int) -> None:
        last = trainer.state.max_steps
        if step % (config.evaluation.every or ceil(last / EVALUATIONS)) == 0 or step == last:
            report(step)

    if of_first(int(not reporter.checkpoint_folders()), trainer.machine.device):
        report(0)
    trainer.add_callback(EveryStep(evaluate))
    return seen


def evaluate_groups(groups: Sequence[EncodedGroup], scores: Sequence[torch.Tensor]) -> HeldOutFigures:
    """Compare held-out scores with people. The length baseline ranks the longer response first."""
    plain = Objective()
    losses, accuracies, by_length, n_exact = [], [], [], 0
    for group, group_scores in zip(groups, scores, strict=True):
        ranks, alone = torch.tensor(group.ranks), torch.zeros(group.n_responses, dtype=torch.long)
        sure = plain.preferences(group)
        lengths = [len(ids) - start for ids, start in zip(group.sequences, group.prompt_lengths, strict=True)]
        found = ranking_loss(group_scores, ranks, alone, preferences=sure)
        losses.append(float(found.loss))
        accuracies.append(float(found.pair_accuracy))
        longer = ranking_loss(torch.tensor(lengths).float(), ranks, alone, preferences=sure)
        by_length.append(float(longer.pair_accuracy))
        in_order = group_scores[:, None] > group_scores[None, :]
        n_exact += bool(in_order[sure > sure.T].all())
    return HeldOutFigures(fmean(losses), fmean(accuracies), n_exact / len(groups), fmean(by_length))


def _scores(trainer: RankingTrainer, groups: Sequence[EncodedGroup]) -> list[torch.Tensor]:
    """Raw scores of each ranking's responses; of several heads, their mean."""
    return [scores if scores.ndim == 1 else scores.mean(1) for scores in trainer.scores(groups)]


def make_trainer(
    config: RewardConfig,
    reporter: Reporter,
    machine: Machine,
    source: ModelSource,
    encoder: Encoder,
    encoded: Encoded,
) -> RankingTrainer:
    is_lora = config.adapter == "lora"
    dtype = machine.frozen_dtype if is_lora else torch.float32
    model = load_classifier(source, dtype, encoder.pad_id, heads=config.heads, layers=config.layers)
    _give_padding(model, encoder, reporter)
    model = with_adapter(model, config, TaskType.SEQ_CLS)
    if is_lora:
        report_not_adapted(model, reporter)
    arguments = TRLRewardConfig(
        **common_arguments(config, reporter, machine),
        num_train_epochs=config.optimiser.epochs,
        per_device_train_batch_size=config.optimiser.batch_prompts,
        learning_rate=peak_learning_rate(config),
        weight_decay=config.optimiser.weight_decay,
        warmup_steps=warmup_steps(
            config.optimiser.warmup_share, len(encoded.train), config.optimiser.batch_prompts, config.optimiser.epochs
        ),
        lr_scheduler_type="cosine_with_min_lr",
        lr_scheduler_kwargs={"min_lr_rate": MIN_LR_SHARE},
        max_length=None,
    )
    trainer = RankingTrainer(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_dict({"place": range(len(encoded.train))}),
        processing_class=encoder.tokenizer,
        data_collator=as_batch,
    )
    trainer.reporter, trainer.metric_names, trainer.objective = reporter, METRIC_NAMES, Objective.of(config)
    trainer.groups, trainer.pad_id, trainer.machine = encoded.train, encoder.pad_id, machine
    trainer.micro_batch_tokens, trainer.head_weights = (
        config.machine.micro_batch_tokens,
        _head_weights(config, encoded.train),
    )
    trainer.is_shared = config.machine.share_prompts and _may_share(trainer, config.max_length)
    return trainer


def _give_padding(model: Any, encoder: Encoder, reporter: Reporter) -> None:
    """Plain transformers finds the last token by the padding, which must be a token of its own."""
    if not encoder.is_pad_shared:
        encoder.tokenizer.pad_token_id = encoder.pad_id
        return
    encoder.tokenizer.add_special_tokens({"pad_token": PADDING})
    if len(encoder.tokenizer) > model.get_input_embeddings().num_embeddings:  # many models have room
        model.resize_token_embeddings(len(encoder.tokenizer), mean_resizing=False)
    model.config.pad_token_id = encoder.pad_id = encoder.tokenizer.pad_token_id
    reporter.event("padding_token_added", token=PADDING)


def _head_weights(config: RewardConfig, groups: Sequence[EncodedGroup]) -> torch.Tensor:
    """(groups, heads): weights of the Bayesian bootstrap (Rubin 1981), drawn for each prompt and head, mean 1."""
    prompts = {each: place for place, each in enumerate(dict.fromkeys(group.prompt_id for group in groups))}
    generator = torch.Generator().manual_seed(config.machine.seed)
    drawn = torch.empty(len(prompts), config.heads).exponential_(generator=generator)
    return drawn[[prompts[group.prompt_id] for group in groups]]


def _may_share(trainer: RankingTrainer, max_length: int) -> bool:
    """Ask the model whether prompts can be shared, and record its answer."""
    found = check_shared_prompts(trainer.model, trainer.groups, trainer.pad_id, max_length)
    trainer.reporter.event("shared_prompts" if found.holds else "prompts_not_shared", **found._asdict())
    return found.holds
