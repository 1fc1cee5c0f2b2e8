"""The reward run: a pairwise ranking loss over whole rankings, one forward pass per response, on TRL's RewardTrainer.

All K responses of a prompt stay in one batch element (Ouyang et al. 2022, section 3.5). After training the scores are
shifted so that their mean over SFT responses is 0; the shift is a number beside the model, because plain transformers
drops a bias in the head.
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
from torch import Tensor
from trl import RewardConfig as TRLRewardConfig
from trl import RewardTrainer

from training.config import RewardConfig, peak_learning_rate
from training.dataset import Encoded, EncodedGroup, encode_snapshot
from training.encoding import PADDING, Encoder
from training.hf import EveryStep, ReportingTrainer, common_arguments, merged, warmup_steps, with_adapter
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
from training.reporter import Reporter
from training.scorer import RewardInfo, pad_right, pooled_scores, score_sequences

MIN_LR_SHARE = 0.1


class Evaluation(NamedTuple):
    """Held-out figures; pair accuracies are means over rankings, equal scores count half."""

    loss: float
    pair_accuracy: float
    exact_order: float
    length_accuracy: float


class RankingTrainer(ReportingTrainer, RewardTrainer):  # type: ignore[misc]
    """TRL's RewardTrainer with whole rankings as batch elements.

    Loss and figures are means over all rankings, and all scores, of a step: how it is cut into micro-batches, and that
    the last one may be smaller, changes nothing.
    """

    centring = 0.0
    loss_is_scaled_for_ga = True  # by compute_loss
    _step_scores: list[Tensor]

    def _prepare_dataset(self, dataset: Any, *_args: Any, **_kwargs: Any) -> Any:
        return dataset  # it holds token ids already

    def _get_num_items_in_batch(self, batch_samples: list[dict[str, Tensor]], _device: Any) -> int:
        self._step_scores = []
        return sum(len(inputs["weights"]) for inputs in batch_samples)

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Tensor],
        return_outputs: bool = False,
        num_items_in_batch: int | None = None,
    ) -> Any:
        """One micro-batch's part of the step's ranking loss; figures are kept until the next log."""
        scores = pooled_scores(model, inputs["input_ids"], inputs["attention_mask"])
        result = ranking_loss(
            scores, inputs["ranks"], inputs["groups"], inputs["weights"], self.centring, inputs.get("preferences")
        )
        loss = result.loss * (result.n_groups / (num_items_in_batch or result.n_groups))
        self._step_scores.append(scores.detach())
        together = torch.cat(self._step_scores)
        figures = self._metrics["train"]
        figures["pair_accuracy"] += [result.pair_accuracy.item()] * result.n_groups
        figures["score_mean"], figures["score_std"] = [together.mean().item()], [together.std(correction=0).item()]
        return (loss, {"scores": scores}) if return_outputs else loss


METRIC_NAMES = {
    "loss": "reward/loss",
    "pair_accuracy": "reward/pair_accuracy",
    "score_mean": "reward/score_mean",
    "score_std": "reward/score_std",
    "grad_norm": "reward/grad_norm",
    "learning_rate": "reward/learning_rate",
}


class GroupCollator:
    """Rankings to one batch: all responses padded together, with the ranking that each belongs to."""

    def __init__(self, pad_id: int) -> None:
        self._pad_id = pad_id

    def __call__(self, examples: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        sequences = [sequence for example in examples for sequence in example["sequences"]]
        ids, attention = pad_right(sequences, self._pad_id)
        batch = {
            "input_ids": ids,
            "attention_mask": attention,
            "groups": torch.tensor([place for place, each in enumerate(examples) for _ in each["sequences"]]),
            "ranks": torch.tensor([rank for example in examples for rank in example["ranks"]]),
            "weights": torch.tensor([example["weight"] for example in examples]),
        }
        if any(example["probabilities"] for example in examples):
            same = batch["groups"][:, None] == batch["groups"][None, :]
            batch["preferences"] = torch.zeros(same.shape)
            blocks = [preferences(each["ranks"], each["probabilities"]).flatten() for each in examples]
            batch["preferences"][same] = torch.cat(blocks)
        return batch


def preferences(ranks: Sequence[int], probabilities: Sequence[float]) -> Tensor:
    """(K, K): how sure it is that response i is better than j, as the ranks say where nothing else does."""
    if probabilities:
        return torch.tensor(probabilities, dtype=torch.float32).reshape(len(ranks), len(ranks))
    given = torch.tensor(ranks)
    return (given[:, None] < given[None, :]).to(torch.float32)


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
    trainer = _make_trainer(config, reporter, machine, source, encoder, encoded)

    def evaluate(step: int) -> None:
        if encoded.held_out and (step % config.eval_every == 0 or step == trainer.state.max_steps):
            _report_evaluation(trainer, encoded.held_out, encoder, machine, step)

    if encoded.held_out and not reporter.checkpoint_folders():
        _report_evaluation(trainer, encoded.held_out, encoder, machine, 0)
    trainer.add_callback(EveryStep(evaluate))
    trainer.train_or_resume()
    final = evaluate_groups(trainer.model, encoded.held_out, encoder, machine, 16) if encoded.held_out else None
    info = _save(trainer.model, config, reporter, machine, source, encoder, encoded.train)
    return {
        "shift": info.shift,
        "score_std": info.std,
        "held_out_rankings": len(encoded.held_out),
        "held_out": final._asdict() if final else None,
        "model": source.name,
        "base_revision": source.revision,
    }


def evaluate_groups(
    classifier: Any, groups: Sequence[EncodedGroup], encoder: Encoder, machine: Machine, batch_size: int
) -> Evaluation:
    """Score held-out rankings and compare with people. The length baseline ranks the longer response first."""
    sequences = [sequence for group in groups for sequence in group.sequences]
    every_score = score_sequences(classifier, sequences, encoder.pad_id, machine, batch_size)
    losses, accuracies, by_length, n_exact = [], [], [], 0
    parts = torch.split(every_score, [group.n_responses for group in groups])
    for group, scores in zip(groups, parts, strict=True):
        ranks, alone = torch.tensor(group.ranks), torch.zeros(group.n_responses, dtype=torch.long)
        sure = preferences(group.ranks, group.probabilities)
        lengths = [len(ids) - start for ids, start in zip(group.sequences, group.prompt_lengths, strict=True)]
        found = ranking_loss(scores, ranks, alone, preferences=sure)
        losses.append(float(found.loss))
        accuracies.append(float(found.pair_accuracy))
        by_length.append(
            float(ranking_loss(torch.tensor(lengths).float(), ranks, alone, preferences=sure).pair_accuracy)
        )
        in_order = scores[:, None] > scores[None, :]
        n_exact += bool(in_order[sure > sure.T].all())
    return Evaluation(fmean(losses), fmean(accuracies), n_exact / len(groups), fmean(by_length))


def _make_trainer(
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
    micro = min(config.micro_batch_prompts, config.batch_prompts)
    arguments = TRLRewardConfig(
        **common_arguments(config, reporter, machine),
        num_train_epochs=config.epochs,
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=config.batch_prompts // micro,
        learning_rate=peak_learning_rate(config),
        weight_decay=config.weight_decay,
        warmup_steps=warmup_steps(config.warmup_share, len(encoded.train), config.batch_prompts, config.epochs),
        lr_scheduler_type="cosine_with_min_lr",
        lr_scheduler_kwargs={"min_lr_rate": MIN_LR_SHARE},
        max_length=None,
    )
    columns = ("sequences", "ranks", "weight", "probabilities")
    rows = [{name: getattr(group, name) for name in columns} for group in encoded.train]
    trainer = RankingTrainer(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_list(rows),
        processing_class=encoder.tokenizer,
        data_collator=GroupCollator(encoder.pad_id),
    )
    trainer.reporter, trainer.metric_names, trainer.centring = reporter, METRIC_NAMES, config.centring
    return trainer


def _report_evaluation(
    trainer: RankingTrainer, groups: list[EncodedGroup], encoder: Encoder, machine: Machine, step: int
) -> None:
    figures = evaluate_groups(trainer.model, groups, encoder, machine, 16)
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
