"""Several processes on one machine for one run: the first starts the others, which do the same but report nothing.

They find each other by the environment, as processes of torchrun do, and may be started by it, through `accelerate
launch --multi_gpu`. Each has the whole model; what they compute apart is added up before it is used.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from types import TracebackType

import torch
import torch.distributed as dist
from torch import Tensor

from data.errors import InvalidInput, WorkFailed
from training.jobs.accelerate import check_number, n_started
from training.jobs.reporter import Reporter
from training.launch.process import HELPER_VARIABLE, PARENT_VARIABLE

PATIENCE_S = 5.0
_RENDEZVOUS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class Helpers:
    """`with Helpers(n, reporter, device):` n processes do what is in the block, if this is the first of them.

    Where a launcher has started all of them, none is started here.
    Raises WorkFailed in place of what the block raises, if that came from a helper's end.
    """

    def __init__(self, n: int, reporter: Reporter, device: torch.device) -> None:
        """Raises InvalidInput for more processes than the machine has GPUs, where it has any, and for a launcher that
        has started another number."""
        check_number(n)
        if n > 1 and device.type != "cpu" and n > torch.cuda.device_count():
            has = f"there are {torch.cuda.device_count()} to use on {device.type}"
            raise InvalidInput(f"processes = {n}: {has}; ask for fewer, or for device = cpu")
        self._n, self._reporter = n, reporter
        self._are_there = n_started() > 1
        self._children: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> None:
        if self._n == 1 or self._are_there or not self._reporter.is_main:
            return
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        shared = {"WORLD_SIZE": self._n, "LOCAL_WORLD_SIZE": self._n, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        run = self._reporter.run
        command = [sys.executable, "-P", "-m", "training.jobs.child", run.id, "--epoch", str(run.epoch)]
        for rank in range(1, self._n):
            own = shared | {"RANK": rank, "LOCAL_RANK": rank, HELPER_VARIABLE: 1, PARENT_VARIABLE: os.getpid()}
            environment = os.environ | {name: str(value) for name, value in own.items()}
            self._children.append(subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL))
        os.environ.update({name: str(value) for name, value in (shared | {"RANK": 0, "LOCAL_RANK": 0}).items()})

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _where: TracebackType | None
    ) -> None:
        if self._n > 1 and dist.is_initialized():
            dist.destroy_process_group()
        if self._are_there and self._reporter.is_main and isinstance(error, RuntimeError):
            self._blame_another(error)
        if not self._children:
            return
        failed = self._failed(PATIENCE_S) if isinstance(error, RuntimeError) else None
        for child in self._children:
            if error is not None:
                child.kill()
            child.wait()
        for name in _RENDEZVOUS:
            os.environ.pop(name, None)
        if failed is not None:
            place, status = failed
            words = f"process {place} of {self._n} ended with status {status}"
            why = "most likely the machine ran out of memory; use fewer processes" if status < 0 else "its log says why"
            raise WorkFailed(f"{words}: {why}, then resume") from error

    def _blame_another(self, error: RuntimeError) -> None:
        """Raises WorkFailed if the launcher now stops this process, as it does when another one has ended."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            if self._reporter.was_signalled:
                words = f"another of the {self._n} processes ended: the output of `accelerate launch` says why"
                raise WorkFailed(f"{words}, then resume") from error
            time.sleep(0.1)

    def _failed(self, patience_s: float) -> tuple[int, int] | None:
        """(number, status) of the first helper that has not ended well."""
        end = time.monotonic() + patience_s
        while True:
            for place, child in enumerate(self._children, start=2):
                if child.poll():
                    return place, child.returncode
            if time.monotonic() > end:
                return None
            time.sleep(0.1)


def n_processes() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def process_index() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def total(values: Tensor) -> Tensor:
    """The sum over all processes, in place; the same on each of them."""
    if n_processes() > 1:
        dist.all_reduce(values)
    return values


def add_up_gradients(model: torch.nn.Module) -> None:
    """Give every process the sum of all processes' gradients. One that has none has computed nothing: 0."""
    if n_processes() == 1:
        return
    for parameter in model.parameters():
        if parameter.requires_grad:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad)


def of_first(number: int, device: torch.device) -> int:
    """The first process's number, on all of them: what it alone knows or decides."""
    if n_processes() == 1:
        return number
    told = torch.tensor([number], device=device)
    dist.broadcast(told, src=0)
    return int(told.item())
