"""What the run's device has free, and what this process holds of it. All figures are bytes."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import torch

from training.lm.models import Machine

_CGROUP, PROC_SELF = Path("/sys/fs/cgroup"), Path("/proc/self")
_RESET_PEAK = (
    "5"  # written to clear_refs: the high-water mark of the resident size starts again (man proc_pid_clear_refs)
)


def available_memory(machine: Machine) -> int:
    """Free memory on the run's device: the GPU's, or the machine's and its container's, whichever is less."""
    if machine.device.type == "cuda":
        return int(torch.cuda.mem_get_info(machine.device)[0])
    free = [_free_of_machine()]
    with_limit = _read_number(_CGROUP / "memory.max"), _read_number(_CGROUP / "memory.current")
    if with_limit[0] is not None and with_limit[1] is not None:
        free.append(max(0, with_limit[0] - with_limit[1]))
    return min(free)


def in_use(machine: Machine) -> int | None:
    """Memory that this process holds on the run's device now; None where it can't be read.

    On the CPU it is the resident size, after what was freed has been given back to the system.
    """
    if machine.device.type == "cuda":
        return int(torch.cuda.memory_allocated(machine.device))
    _give_back()
    return _resident("VmRSS") if machine.device.type == "cpu" else None


def reset_peak(machine: Machine) -> bool:
    """Let the peak start again from what is held now. False where that can't be done: no peak is then known."""
    if machine.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(machine.device)
        return True
    _give_back()
    try:
        (PROC_SELF / "clear_refs").write_text(_RESET_PEAK)
    except OSError:
        return False
    return machine.device.type == "cpu"


def peak_in_use(machine: Machine) -> int | None:
    """The most that this process has held since the peak was reset."""
    if machine.device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(machine.device))
    return _resident("VmHWM")


def _give_back() -> None:
    """Freed memory that the C library keeps for later would be used again without growth; glibc can give it back."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _resident(name: str) -> int | None:
    try:
        lines = (PROC_SELF / "status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(name)), None)


def _free_of_machine() -> int:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _read_number(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="utf-8").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
