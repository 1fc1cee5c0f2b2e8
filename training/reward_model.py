"""The reward run: a ranking loss over whole rankings, on TRL's RewardTrainer.

All K responses of a prompt stay in one batch element (Ouyang et al. 2022, section 3.5), in one sequence that reads the
prompt once where the model allows it. After training the scores are shifted so that their mean over SFT responses is
0; the shift is a number beside the model, because plain transformers drops a bias in the head.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, replace
from statistics import fmean
from typing import Any, NamedTuple

import torch
from datasets import Dataset
from peft import TaskType
from trl import RewardConfig as TRLRewardConfig

from training.config import RewardConfig, peak_learning_rate
from training.dataset import Encoded, EncodedGroup, encode_snapshot
from training.encoding import PADDING, Encoder
from training.held_out import Reported
from training.hf import EveryStep, common_arguments, merged, warmup_steps, with_adapter
from training.maths.losses import ranking_loss
from training.models import (
    ADAPTER_FOLDER,
    MODEL_FOLDER,
    REWARD_FILE,
    Machine,
    ModelSource,
    find_model,
    fitting_length,
    load_classifier,
    load_encoder,
    save_model,
    set_up_machine,
    versions,
    write_json,
)
from training.ranking_trainer import METRIC_NAMES, RankingTrainer, as_batch
from training.reporter import Reporter
from training.scorer import RewardInfo, score_groups, score_sequences
from training.shared_prompts import check_shared_prompts
from training.targets import Objective

MIN_LR_SHARE = 0.1


class Evaluation(NamedTuple):
    """Held-out figures; pair accuracies are means over rankings, equal scores count half."""

    loss: float
    pair_accuracy: float
    exact_order: float
    length_accuracy: float


def run(config: RewardConfig, reporter: Reporter) -> dict[str, Any]:
    """Train on the run's snapshot, evaluate on its held-out side, save the model with its zero."""
    machine = set_up_machine(config)
    reporter.versions(versions(machine))
    source = find_model(config.model, reporter.home, reporter)
    encoder = load_encoder(source)
    folder = reporter.home.snapshot_folder(reporter.run.snapshot_id or "")
    config = replace(config, max_length=fitting_length(config.max_length, source, reporter))
    encoded = encode_snapshot(folder, encoder, config.max_length)
    reporter.event("data", train=len(encoded.train), held_out=len(encoded.held_out), **dict(encoded.counts))
    trainer = make_trainer(config, reporter, machine, source, encoder, encoded)

    def evaluate(step: int) -> None:
        if encoded.held_out and (step % config.eval_every == 0 or step == trainer.state.max_steps):
            _report_evaluation(trainer, encoded.held_out, step)

    if encoded.held_out and not reporter.checkpoint_folders():
        _report_evaluation(trainer, encoded.held_out, 0)
    trainer.add_callback(EveryStep(evaluate))
    trainer.train_or_resume()
    held_out = _scores(trainer, encoded.held_out)
    final = evaluate_groups(encoded.held_out, held_out) if encoded.held_out else None
    info = _save(trainer.model, config, reporter, machine, source, encoder, encoded.train)
    if encoded.held_out:
        shifted = [scores - info.shift for scores in held_out]
        report = Reported(folder, encoded).report(shifted, config, reporter, source, encoder, machine)
    return {
        "shift": info.shift,
        "score_std": info.std,
        "held_out_rankings": len(encoded.held_out),
        "held_out": final._asdict() if final else None,
        "model": source.name,
        "base_revision": source.revision,
        "verdicts": report["verdicts"] if encoded.held_out else [],
    }


def evaluate_groups(groups: Sequence[EncodedGroup], scores: Sequence[torch.Tensor]) -> Evaluation:
    """Compare held-out scores with people. The length baseline ranks the longer response first."""
    plain = Objective()
    losses, accuracies, by_length, n_exact = [], [], [], 0
    for group, given in zip(groups, scores, strict=True):
        ranks, alone = torch.tensor(group.ranks), torch.zeros(group.n_responses, dtype=torch.long)
        sure = plain.preferences(group)
        lengths = [len(ids) - start for ids, start in zip(group.sequences, group.prompt_lengths, strict=True)]
        found = ranking_loss(given, ranks, alone, preferences=sure)
        losses.append(float(found.loss))
        accuracies.append(float(found.pair_accuracy))
        longer = ranking_loss(torch.tensor(lengths).float(), ranks, alone, preferences=sure)
        by_length.append(float(longer.pair_accuracy))
        in_order = given[:, None] > given[None, :]
        n_exact += bool(in_order[sure > sure.T].all())
    return Evaluation(fmean(losses), fmean(accuracies), n_exact / len(groups), fmean(by_length))


def _scores(trainer: RankingTrainer, groups: Sequence[EncodedGroup]) -> list[torch.Tensor]:
    return score_groups(
        trainer.model,
        groups,
        trainer.pad_id,
        trainer.machine,
        trainer.micro_batch_tokens,
        is_shared=trainer.is_shared,
    )


def make_trainer(
    config: RewardConfig,
    reporter: Reporter,
    machine: Machine,
    source: ModelSource,
    encoder: Encoder,
    encoded: Encoded,
) -> RankingTrainer:
    is_lora = config.adapter == "lora"
    model = load_classifier(source, machine.frozen_dtype if is_lora else torch.float32, encoder.pad_id)
    if (
        encoder.is_pad_shared
    ):  # plain transformers finds the last token by the padding, which must be a token of its own
        encoder.tokenizer.add_special_tokens({"pad_token": PADDING})
        if len(encoder.tokenizer) > model.get_input_embeddings().num_embeddings:  # many models have room
            model.resize_token_embeddings(len(encoder.tokenizer), mean_resizing=False)
        model.config.pad_token_id = encoder.pad_id = encoder.tokenizer.pad_token_id
        reporter.event("padding_token_added", token=PADDING)
    else:
        encoder.tokenizer.pad_token_id = encoder.pad_id
    model = with_adapter(model, config, TaskType.SEQ_CLS)
    arguments = TRLRewardConfig(
        **common_arguments(config, reporter, machine),
        num_train_epochs=config.epochs,
        per_device_train_batch_size=config.batch_prompts,
        learning_rate=peak_learning_rate(config),
        weight_decay=config.weight_decay,
        warmup_steps=warmup_steps(config.warmup_share, len(encoded.train), config.batch_prompts, config.epochs),
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
    trainer.micro_batch_tokens = config.micro_batch_tokens
    trainer.is_shared = config.share_prompts and _may_share(trainer, config.max_length)
    return trainer


def _may_share(trainer: RankingTrainer, max_length: int) -> bool:
    """Ask the model whether prompts can be shared, and record its answer."""
    found = check_shared_prompts(trainer.model, trainer.groups, trainer.pad_id, max_length)
    trainer.reporter.event("shared_prompts" if found.holds else "prompts_not_shared", **found._asdict())
    return found.holds


def _report_evaluation(trainer: RankingTrainer, groups: list[EncodedGroup], step: int) -> None:
    figures = evaluate_groups(groups, _scores(trainer, groups))
    metrics = {f"reward/held_out_{name}": value for name, value in figures._asdict().items()}
    trainer.reporter.step(step, trainer.state.max_steps or None, metrics)


def _save(
    model: Any,
    config: RewardConfig,
    reporter: Reporter,
    machine: Machine,
    source: ModelSource,
    encoder: Encoder,
    train: list[EncodedGroup],
) -> RewardInfo:
    """Save the adapter where there is one, then the whole model with its zero and scale on SFT responses."""
    is_lora = config.adapter == "lora"
    if is_lora:
        model.save_pretrained(reporter.folder / ADAPTER_FOLDER, save_embedding_layers=False)
    whole = merged(model).to(machine.device).eval()
    sequences = [sequence for group in train for sequence in group.sequences]
    chosen = random.Random(config.seed).sample(sequences, min(config.normalise_on, len(sequences)))
    scores = score_sequences(whole, chosen, encoder.pad_id, machine, 16)
    info = RewardInfo(
        shift=float(scores.mean()),
        std=float(scores.std(correction=0)),
        n=len(chosen),
        max_length=config.max_length,
        template_hash=encoder.template_hash,
        vocabulary_hash=encoder.vocabulary_hash,
        base_model=source.name,
        base_revision=source.revision,
        has_adapter=is_lora,
    )
    save_model(whole, encoder.tokenizer, reporter.folder / MODEL_FOLDER)
    write_json(reporter.folder / MODEL_FOLDER / REWARD_FILE, asdict(info))
    return info
