"""What our runs add to TRL's trainers: live metrics, cancelling, and checkpoints that are whole and without pickle."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch
from peft import LoraConfig, TaskType
from transformers import TrainerCallback

from training.jobs.reporter import Reporter
from training.launch.config import TrainConfig
from training.lm.adapters import adapter_on, attach
from training.lm.checkpoint import (
    State,
    checkpoint_at,
    newest_checkpoint,
    pack_optimizer,
    pack_random_state,
    restore,
    save_checkpoint,
    unpack_optimizer,
    unpack_random_state,
)
from training.lm.models import Machine
from training.lm.processes import of_first, total

_TRAINER_STATE = "trainer_state.json"


class ReportingTrainer:
    """Mixed in before one of TRL's trainers: `class RankingTrainer(ReportingTrainer, RewardTrainer)`.

    Set `reporter` before training. `metric_names` maps the trainer's own names of logged numbers to ours.
    """

    reporter: Reporter
    metric_names: dict[str, str]
    state: Any
    model: Any
    optimizer: Any
    lr_scheduler: Any
    _resumed: State | None = None

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Report what the trainer logs, under our names."""
        super().log(logs, start_time)  # type: ignore[misc]
        mapped = {self.metric_names[name]: value for name, value in logs.items() if name in self.metric_names}
        if mapped:
            self.reporter.step(self.state.global_step, self.state.max_steps, mapped)

    def train_or_resume(self) -> None:
        """Train from the newest good checkpoint, or from the start. Raises Cancelled if it was asked to stop."""
        self._resumed, folder = self._checkpoint(), None
        if self._resumed is not None:
            folder = str(self._resumed.folder)
            restored = [*sorted(self._resumed.tensors), "scheduler", "position in the data"]
            self.reporter.resumed_from(self._resumed.step, restored)
        self.add_callback(_StopWhenAsked(self.reporter, self.args.device))  # type: ignore[attr-defined]
        self.train(resume_from_checkpoint=folder)  # type: ignore[attr-defined]
        if self.state.global_step < self.state.max_steps:
            self.reporter.raise_if_stopping()

    def _run_epoch(self, **words: Any) -> None:
        """Nothing where the last step's checkpoint was resumed in the middle of a pass: the trainer would do one more
        step before it sees that it is at the end."""
        if self.state.global_step < self.state.max_steps:
            super()._run_epoch(**words)  # type: ignore[misc]

    def _checkpoint(self) -> State | None:
        """The newest good checkpoint, the same in every process: the first one looks for it."""
        found = newest_checkpoint(self.reporter) if self.reporter.is_main else None
        step = of_first(found.step if found is not None else -1, self.args.device)  # type: ignore[attr-defined]
        return found if self.reporter.is_main or step < 0 else checkpoint_at(self.reporter, step)

    def _save_checkpoint(self, _model: Any, _trial: Any) -> None:
        if not self.reporter.is_main:
            return
        optimizer, optimizer_values = pack_optimizer(self.optimizer)
        random_state, random_values = pack_random_state()
        state = State(
            step=self.state.global_step,
            tensors={"model": _trained(self.model), "optimizer": optimizer, "random": random_state},
            values={
                "optimizer": optimizer_values,
                "random": random_values,
                "scheduler": self.lr_scheduler.state_dict(),
            },
            texts={_TRAINER_STATE: json.dumps(_plain_state(self.state))},
        )
        save_checkpoint(self.reporter, state)

    def _load_from_checkpoint(self, _folder: str, _model: Any = None) -> None:
        if self._resumed is not None:
            restore(_trained(self.model), self._resumed.tensors["model"], "model")

    def _load_optimizer_and_scheduler(self, folder: str | None) -> None:
        if folder is not None and self._resumed is not None:
            unpack_optimizer(self.optimizer, self._resumed.tensors["optimizer"], self._resumed.values["optimizer"])
            self.lr_scheduler.load_state_dict(self._resumed.values["scheduler"])

    def _load_rng_state(self, folder: str | None) -> None:
        if folder is not None and self._resumed is not None:
            unpack_random_state(self._resumed.tensors["random"], self._resumed.values["random"])
            self._resumed = None  # the last to be restored; what is still held would keep deleted files on the disk


class _StopWhenAsked(TrainerCallback):  # type: ignore[misc]
    def __init__(self, reporter: Reporter, device: torch.device) -> None:
        self._reporter, self._device = reporter, device

    def on_step_end(self, _args: Any, _state: Any, control: Any, **_kwargs: Any) -> None:
        asked = torch.tensor([int(self._reporter.should_stop())], device=self._device)
        if int(total(asked).item()):  # all processes stop at the same step, whichever of them was asked
            control.should_save = control.should_training_stop = True


class EveryStep(TrainerCallback):  # type: ignore[misc]
    """Calls a function with the step, at the end of every step."""

    def __init__(self, call: Callable[[int], None]) -> None:
        self._call = call

    def on_step_end(self, _args: Any, state: Any, _control: Any, **_kwargs: Any) -> None:
        self._call(state.global_step)


def common_arguments(config: TrainConfig, reporter: Reporter, machine: Machine) -> dict[str, Any]:
    """Arguments that every trainer gets alike."""
    return {
        "output_dir": str(reporter.folder / "trainer"),
        "seed": config.machine.seed,
        "data_seed": config.machine.seed,
        "use_cpu": machine.device.type == "cpu",
        "bf16": machine.is_bf16,
        "max_grad_norm": config.optimiser.max_grad_norm,
        "gradient_checkpointing": False,
        "logging_steps": 1,
        "logging_nan_inf_filter": False,  # else a loss that is not a number would be shown as the last one that was
        "save_strategy": "steps",
        "save_steps": config.machine.checkpoint_every,
        "eval_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "dataloader_num_workers": 0,
        "dataloader_pin_memory": machine.device.type == "cuda",
        "remove_unused_columns": False,
        "adam_beta2": 0.95,
    }


def warmup_steps(share: float, n_examples: int, batch_size: int, epochs: int) -> int:
    """How many steps have a rising rate: rounded down, because the first of them has the rate 0 and learns nothing."""
    return int(share * epochs * -(-n_examples // batch_size))


def lora_config(config: TrainConfig, task: TaskType, model: Any) -> LoraConfig:
    """Low-rank adapters for this model, on every linear layer but the head."""
    return adapter_on(model, config.optimiser.lora_rank, config.optimiser.lora_alpha, task)


def with_adapter(model: Any, config: TrainConfig, task: TaskType) -> Any:
    """The model with new adapters in float32; its own weights are frozen. Unchanged where every weight is trained."""
    return attach(model, lora_config(config, task, model)) if config.adapter == "lora" else model


def merged(model: Any) -> Any:
    """The model with its adapters worked into its weights, in float32, so that plain transformers loads it."""
    model = model.float()
    return model.merge_and_unload() if hasattr(model, "merge_and_unload") else model


def _trained(model: Any) -> dict[str, torch.Tensor]:
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def _plain_state(state: Any) -> dict[str, Any]:
    import dataclasses

    return dataclasses.asdict(state)
