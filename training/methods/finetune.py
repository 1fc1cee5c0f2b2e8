"""SFT and DPO runs on the same snapshot, through TRL's own trainers: baselines beside PPO, and a start for it.

SFT learns the best-ranked response of each ranking, DPO the snapshot's pairs. Token ids come from our encoder, so that
all methods read the same.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import torch
from datasets import Dataset
from peft import TaskType
from trl import DPOConfig as TRLDPOConfig
from trl import DPOTrainer, SFTTrainer
from trl import SFTConfig as TRLSFTConfig

from data.errors import InvalidInput
from data.files.snapshots import MANIFEST, PAIRS, Group, read_groups, read_parquet
from data.records import RunKind, Split
from training.jobs.left_out import LeftOut
from training.jobs.reporter import Reporter
from training.launch.config import DPOConfig, FinetuneConfig, SFTConfig, peak_learning_rate
from training.lm.adapters import report_not_adapted
from training.lm.encoding import Encoder, fit
from training.lm.models import (
    MODEL_FOLDER,
    encoder_of_run,
    find_model,
    fitting_length,
    load_language_model,
    load_tokenizer,
    save_model,
    set_up_machine,
    versions,
)
from training.lm.trl_trainer import ReportingTrainer, common_arguments, lora_config, merged, warmup_steps, with_adapter
from training.methods.evaluation import evaluate_on_the_way

WARMUP_SHARE = 0.03
SFT_METRICS = {
    "loss": "sft/loss",
    "mean_token_accuracy": "sft/token_accuracy",
    "grad_norm": "sft/grad_norm",
    "learning_rate": "sft/learning_rate",
}
DPO_METRICS = {
    "loss": "dpo/loss",
    "rewards/accuracies": "dpo/pair_accuracy",
    "rewards/margins": "dpo/margin",
    "grad_norm": "dpo/grad_norm",
    "learning_rate": "dpo/learning_rate",
}


class ReportingSFTTrainer(ReportingTrainer, SFTTrainer):  # type: ignore[misc]
    """TRL's SFTTrainer on rows that hold token ids already."""

    metric_names = SFT_METRICS

    def _prepare_dataset(self, dataset: Any, *_args: Any, **_kwargs: Any) -> Any:
        return dataset


class ReportingDPOTrainer(ReportingTrainer, DPOTrainer):  # type: ignore[misc]
    """TRL's DPOTrainer on rows that hold token ids already."""

    metric_names = DPO_METRICS

    def _prepare_dataset(self, dataset: Any, *_args: Any, **_kwargs: Any) -> Any:
        return dataset


def run(config: FinetuneConfig, reporter: Reporter) -> dict[str, Any]:
    """Train on the run's snapshot and save the model so that plain transformers loads it."""
    machine = set_up_machine(config.machine)
    reporter.versions(versions(machine))
    source = find_model(config.model, reporter.home, reporter)
    encoder = encoder_of_run(source, reporter)
    encoder.tokenizer.pad_token_id = encoder.pad_id
    config = replace(config, max_length=fitting_length(config.max_length, source, reporter))
    is_dpo = reporter.run.kind is RunKind.DPO
    rows = pair_rows(config, reporter, encoder) if is_dpo else best_rows(config, reporter, encoder)
    is_lora = config.adapter == "lora"
    model = load_language_model(source, machine.frozen_dtype if is_lora else torch.float32)
    arguments = common_arguments(config, reporter, machine) | _batch_arguments(config, len(rows))
    trainer: Any
    if is_dpo:
        assert isinstance(config, DPOConfig)
        options = TRLDPOConfig(**arguments, beta=config.kl.beta, max_length=config.max_length)
        adapter = lora_config(config, TaskType.CAUSAL_LM, model) if is_lora else None
        trainer = ReportingDPOTrainer(
            model=model,
            args=options,
            train_dataset=Dataset.from_list(rows),
            processing_class=encoder.tokenizer,
            peft_config=adapter,
        )
    else:
        assert isinstance(config, SFTConfig)
        trainer = ReportingSFTTrainer(
            model=with_adapter(model, config, TaskType.CAUSAL_LM),
            args=TRLSFTConfig(**arguments, max_length=None, packing=False),
            train_dataset=Dataset.from_list(rows),
            processing_class=encoder.tokenizer,
        )
    trainer.reporter = reporter
    if is_lora:
        report_not_adapted(trainer.model, reporter)
    evaluate_on_the_way(trainer, config, reporter, machine, source, encoder)
    trainer.train_or_resume()
    save_model(merged(trainer.model), load_tokenizer(source), reporter.folder / MODEL_FOLDER, encoder)
    return {"model": source.name, "revision": source.revision, "examples": len(rows)}


def best_rows(config: FinetuneConfig, reporter: Reporter, encoder: Encoder) -> list[dict[str, Any]]:
    """The best-ranked response of each ranking on the training side; the loss counts the response only.

    `best_tied`: rankings that put several first, of which one is learnt from.
    """
    counts = Counter[str](examples=0, prompts_cut=0, responses_cut=0, refused=0, best_tied=0)
    rows = []
    for group in _train_groups(reporter):
        try:
            fitted = fit(encoder.prompt_ids(group.messages), encoder.response_ids(group.best), config.max_length)
        except InvalidInput:
            counts["refused"] += 1
            continue
        counts.update(examples=1, prompts_cut=fitted.is_prompt_cut, responses_cut=fitted.is_response_cut)
        counts["best_tied"] += group.ranks.count(1) > 1
        labels = [-100] * len(fitted.prompt) + fitted.response
        rows.append({"input_ids": fitted.prompt + fitted.response, "labels": labels})
    return reported(rows, counts, reporter)


def pair_rows(config: FinetuneConfig, reporter: Reporter, encoder: Encoder) -> list[dict[str, Any]]:
    """The snapshot's pairs on the training side; pairs whose sides became equal by being cut are left out."""
    counts = Counter[str](examples=0, prompts_cut=0, responses_cut=0, refused=0, same_when_cut=0)
    folder, rows = reporter.home.snapshot_folder(reporter.run.snapshot_id or ""), []
    if n_split := json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["counts"].get("evenly_split"):
        counts["evenly_split"] = n_split  # between the annotators of a task: such a pair has no better side
    for pair in read_parquet(folder / PAIRS):
        if pair["split"] != Split.TRAIN.value:
            continue
        try:
            prompt = encoder.prompt_ids(tuple(pair["messages"]))
        except InvalidInput:
            counts["refused"] += 1
            continue
        sides = [encoder.response_ids(pair[side]) for side in ("chosen", "rejected")]
        longest = max(sides, key=len)
        head = fit(prompt, longest, config.max_length)
        chosen, rejected = (fit(head.prompt, side, config.max_length) for side in sides)
        if chosen.response == rejected.response:
            counts["same_when_cut"] += 1
            continue
        cut = chosen.is_response_cut or rejected.is_response_cut
        counts.update(examples=1, prompts_cut=head.is_prompt_cut, responses_cut=cut)
        rows.append({"prompt_ids": head.prompt, "chosen_ids": chosen.response, "rejected_ids": rejected.response})
    return reported(rows, counts, reporter)


def _train_groups(reporter: Reporter) -> list[Group]:
    folder = reporter.home.snapshot_folder(reporter.run.snapshot_id or "")
    return [group for group in read_groups(folder) if group.split is Split.TRAIN]


def reported(rows: list[dict[str, Any]], counts: Counter[str], reporter: Reporter) -> list[dict[str, Any]]:
    reporter.event("data", **counts)
    lost = {name: counts[name] for name in ("refused", "same_when_cut")}
    LeftOut.counted("training examples", lost, len(rows)).report(
        reporter, "Take a model that reads such prompts, or raise max_length"
    )
    if not rows:
        raise InvalidInput("the snapshot's training side holds nothing to learn from; rank more prompts")
    return rows


def _batch_arguments(config: FinetuneConfig, n_examples: int) -> dict[str, Any]:
    micro = min(config.machine.micro_batch_size, config.optimiser.batch_size)
    return {
        "num_train_epochs": config.optimiser.epochs,
        "per_device_train_batch_size": micro,
        "gradient_accumulation_steps": config.optimiser.batch_size // micro,
        "learning_rate": peak_learning_rate(config),
        "lr_scheduler_type": "cosine_with_min_lr",
        "lr_scheduler_kwargs": {"min_lr_rate": 0.1},
        "warmup_steps": warmup_steps(WARMUP_SHARE, n_examples, config.optimiser.batch_size, config.optimiser.epochs),
    }
