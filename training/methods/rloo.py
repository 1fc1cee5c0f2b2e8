"""RLOO against the run's reward model, through TRL's RLOOTrainer (Ahmadian et al. 2024): a baseline beside PPO.

Prompts, their token ids and the scores are the same as PPO's; TRL samples, and takes the KL into the reward.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from datasets import Dataset
from peft import TaskType
from trl import RLOOConfig as TRLRLOOConfig
from trl import RLOOTrainer
from trl.trainer.utils import RepeatSampler

from training.jobs.reporter import Reporter
from training.launch.config import RLOOConfig, peak_learning_rate
from training.lm.adapters import report_not_adapted
from training.lm.encoding import Encoder
from training.lm.models import (
    MODEL_FOLDER,
    context_of,
    encoder_of_run,
    find_model,
    load_language_model,
    load_tokenizer,
    save_model,
    set_up_machine,
    stop_as,
    versions,
)
from training.lm.trl_trainer import ReportingTrainer, common_arguments, lora_config, merged
from training.methods.evaluation import evaluate_on_the_way
from training.ppo.build_roles import REWARD_MODEL, load_reward_model
from training.ppo.roles import RewardModel, ScoredRow
from training.ppo.rollout import PromptItem
from training.ppo.run import load_prompts

RLOO_METRICS = {
    "loss": "rloo/loss",
    "reward": "rloo/reward_mean",
    "reward_std": "rloo/reward_std",
    "kl": "rloo/kl_token_mean",
    "completions/mean_length": "rloo/length_mean",
    "completions/clipped_ratio": "rloo/cut_share",
    "grad_norm": "rloo/grad_norm",
    "learning_rate": "rloo/learning_rate",
}


class PromptOrder(RepeatSampler):  # type: ignore[misc]
    """TRL's order of the prompts, drawn anew for every pass from its number: a resumed run goes on in the same one.

    TRL's own draws one order after the other, and begins with the first again after a resume.
    """

    def set_epoch(self, epoch: int) -> None:
        self.generator.manual_seed(self.seed + epoch)


class ReportingRLOOTrainer(ReportingTrainer, RLOOTrainer):  # type: ignore[misc]
    """TRL's RLOOTrainer on prompts whose token ids are ours; a prompt's text is its place in the list."""

    metric_names = RLOO_METRICS
    prompt_list: Sequence[PromptItem]

    def _get_train_sampler(self, dataset: Any = None) -> PromptOrder:
        return PromptOrder(
            self.train_dataset if dataset is None else dataset,
            mini_repeat_count=self.num_generations,
            batch_size=self.args.generation_batch_size // self.num_generations,
            repeat_count=self.num_iterations * self.args.steps_per_generation,
            seed=self.args.seed,
        )

    def _tokenize_prompts(self, prompts: list[str]) -> tuple[list[list[int]], None, dict[str, Any]]:
        return [self.prompt_list[int(place)].ids for place in prompts], None, {}


def run(config: RLOOConfig, reporter: Reporter) -> dict[str, Any]:
    """Train a policy with RLOO and save it so that plain transformers loads it."""
    machine = set_up_machine(config.machine)
    reporter.versions(versions(machine))
    source = find_model(config.model, reporter.home, reporter)
    encoder = encoder_of_run(source, reporter)
    encoder.tokenizer.pad_token_id = encoder.pad_id
    reward_model = load_reward_model(reporter.run.reward_run_id or "", reporter, machine, encoder)
    readings = {REWARD_MODEL: reward_model.reading}
    prompts = load_prompts(config, reporter, encoder, context_of(source), readings)
    is_lora = config.adapter == "lora"
    model = load_language_model(source, machine.frozen_dtype if is_lora else torch.float32)
    stop_as(model, encoder)  # TRL stops at what the model's settings list
    n, rows = (
        config.sampling.responses_per_prompt,
        config.sampling.prompts_per_step * config.sampling.responses_per_prompt,
    )
    options = TRLRLOOConfig(
        **common_arguments(config, reporter, machine),
        max_steps=config.iterations,
        per_device_train_batch_size=rows,
        num_generations=n,
        max_completion_length=config.sampling.max_new_tokens,
        temperature=config.sampling.temperature,
        top_k=0,
        top_p=1.0,
        repetition_penalty=1.0,
        beta=config.kl.coef,
        learning_rate=peak_learning_rate(config),
        lr_scheduler_type="constant",
    )
    trainer: Any = ReportingRLOOTrainer(
        model=model,
        reward_funcs=scores_of(prompts, reward_model, encoder, config.advantages.missing_eos_penalty),
        args=options,
        train_dataset=Dataset.from_list([{"prompt": str(place)} for place in range(len(prompts))]),
        processing_class=encoder.tokenizer,
        peft_config=lora_config(config, TaskType.CAUSAL_LM, model) if is_lora else None,
    )
    trainer.reporter, trainer.prompt_list = reporter, prompts
    if is_lora:
        report_not_adapted(trainer.model, reporter)
    evaluate_on_the_way(trainer, config, reporter, machine, source, encoder, reward_model)
    trainer.train_or_resume()
    save_model(merged(trainer.model), load_tokenizer(source), reporter.folder / MODEL_FOLDER, encoder)
    return {"model": source.name, "revision": source.revision, "prompts": len(prompts)}


def scores_of(
    prompts: Sequence[PromptItem], reward_model: RewardModel, encoder: Encoder, missing_eos_penalty: float
) -> Any:
    """A reward function for TRL: the reward model's scores of sampled ids, less the penalty for those that did not end
    by themselves, as in PPO."""

    def reward(completion_ids: list[list[int]], **words: Any) -> list[float]:
        rows = []
        for place, ids in zip(words["prompts"], completion_ids, strict=True):
            item = prompts[int(place)]
            response = [int(token) for token in ids] or [encoder.end_id]
            rows.append(ScoredRow(item.messages, item.ids, response, encoder.decode(response), item.facts))
        scores: list[float] = reward_model.score(rows).tolist()
        return [
            score if row.response[-1] in encoder.stop_ids else score - missing_eos_penalty
            for score, row in zip(scores, rows, strict=True)
        ]

    return reward
