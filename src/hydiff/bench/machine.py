"""The device, package versions and memory of the run of a cell."""

from __future__ import annotations

import os
import platform
from typing import Any

from hydiff import auto
from hydiff.errors import has_torch
from hydiff.io.versions import versions
from hydiff.methods import METHODS
from hydiff.methods.devices import is_sent_to_gpu, torch_device

CPU = "CPU"  # first word in the name of a device that is no GPU


def facts(method: str, device: str) -> dict[str, Any]:
    """Return the device and package versions of a finished run, and its peak memory in MB."""
    peak = _peak_of_process()
    if _on_gpu(method, device):
        import torch

        peak = torch.cuda.max_memory_allocated() / 2**20
        torch.cuda.empty_cache()  # leave the memory of the fits to other processes
        torch.cuda.reset_peak_memory_stats()
    return {
        "peak_mb": peak and round(peak, 1),
        "device": device_of(method, device),
        "versions": " ".join(f"{k} {v}" for k, v in versions("numpy", "scipy", "torch").items()),
    }


def _peak_of_process() -> float | None:
    """Peak memory of this process so far, in MB; None on systems that do not record it."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def device_of(method: str, device: str) -> str:
    """Return the name of the device on which a method runs here."""
    cpu = f"{CPU} {platform.machine()}, {os.cpu_count()} cores"
    if not _on_gpu(method, device):
        return cpu
    import torch

    gpu = torch.cuda.get_device_name()
    return f"{gpu} and {cpu}" if method == auto.NAME else gpu


def _on_gpu(method: str, device: str) -> bool:
    """Return whether a method uses a GPU of this machine."""
    can_use_gpu = method == auto.NAME
    if facts := METHODS.get(method):
        can_use_gpu = facts.needs_torch or is_sent_to_gpu(facts, device)
    return can_use_gpu and device != "cpu" and has_torch() and torch_device(device).type == "cuda"
