"""A trained reward model to files: the model as plain transformers loads it, with its zero beside it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from training.jobs.reporter import Reporter
from training.launch.config import RewardConfig
from training.lm.encoding import Encoder
from training.lm.models import ADAPTER_FOLDER, MODEL_FOLDER, REWARD_FILE, ModelSource, save_model, write_json
from training.lm.recorded_scores import record_scores
from training.lm.scorer import HEADS_FILE, RewardInfo, bare, score_sequences
from training.lm.trl_trainer import merged
from training.reward.trainer import RankingTrainer

BATCH = 16


def save_reward_model(
    trainer: RankingTrainer, config: RewardConfig, reporter: Reporter, source: ModelSource, encoder: Encoder
) -> RewardInfo:
    """Save the adapter where there is one, then the whole model with its zero and scale on SFT responses.

    Of several heads the mean becomes the model's own; they are kept beside it, each with its own zero. A model of which
    only the first layers were taken has no adapter that would fit another.
    """
    model, machine = trainer.model.eval(), trainer.machine
    sequences = [sequence for group in trainer.groups for sequence in group.sequences]
    chosen = random.Random(config.machine.seed).sample(sequences, min(config.evaluation.normalise_on, len(sequences)))
    heads = _take_heads(model, chosen, trainer) if config.heads > 1 else None
    has_adapter = config.adapter == "lora" and not config.layers
    if has_adapter:
        model.save_pretrained(reporter.folder / ADAPTER_FOLDER, save_embedding_layers=False)
    whole = merged(model).to(machine.device).eval()
    scores = score_sequences(whole, chosen, encoder.pad_id, machine, BATCH)
    record_scores(reporter.folder, chosen, scores, machine)
    info = RewardInfo(
        shift=float(scores.mean()),
        std=float(scores.std(correction=0)),
        n=len(chosen),
        max_length=config.max_length,
        template_hash=encoder.template_hash,
        vocabulary_hash=encoder.vocabulary_hash,
        base_model=source.name,
        base_revision=source.revision,
        has_adapter=has_adapter,
        reads_facts=config.facts,
        n_heads=config.heads,
    )
    folder = reporter.folder / MODEL_FOLDER
    save_model(whole, encoder.tokenizer, folder, encoder)
    if heads is not None:
        save_file(heads, folder / HEADS_FILE)
    write_json(folder / REWARD_FILE, asdict(info))
    return info


def _take_heads(model: Any, chosen: Sequence[Sequence[int]], trainer: RankingTrainer) -> dict[str, Tensor]:
    """The heads' weights (m, d) and zeros (m,); what is left in the model is their mean."""
    raw = score_sequences(model, chosen, trainer.pad_id, trainer.machine, BATCH)
    score = bare(model).score
    copies = [score] if isinstance(score, nn.Linear) else [*score.modules_to_save.values(), score.original_module]
    heads = copies[0].weight.detach().cpu().clone()
    with torch.no_grad():
        for each in copies:
            each.weight = nn.Parameter(each.weight.mean(0, keepdim=True), requires_grad=each.weight.requires_grad)
            each.out_features = 1
    return {"heads": heads, "shifts": raw.mean(0)}
