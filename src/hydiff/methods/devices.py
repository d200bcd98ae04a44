"""The device that a run uses: that of a network, and that of the components of a cube."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hydiff.errors import BadValue, UnknownName, need_torch
from hydiff.methods import Chosen, Method


def torch_device(device: str) -> Any:
    """Return the torch device of a name; "auto" is the GPU if there is one, else the CPU."""
    need_torch(f"the device {device}")
    import torch

    if str(device) == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        place = torch.device(device)
    except (RuntimeError, TypeError, ValueError):
        raise UnknownName("device", device, ("auto", "cpu", "cuda", "cuda:0")) from None
    if place.type == "cuda" and not torch.cuda.is_available():
        raise BadValue("device cuda was asked for, but torch finds none here; use `device='cpu'`")
    return place


def gpu_of_components(several: Sequence[Chosen], device: str) -> Any:
    """Return the GPU that fills the components of a cube for these methods; None: numpy and scipy.

    With "auto" this is done beside a network only: `smooth` alone takes less time than the import
    of torch, and so its bytes are the same on machines with and without a GPU.
    """
    facts = [chosen.facts for chosen in several if chosen.facts.coordinates]
    if not any(fact.pretrained or is_sent_to_gpu(fact, device) for fact in facts):
        return None
    place = torch_device(device)
    return place if place.type == "cuda" else None


def is_sent_to_gpu(facts: Method, device: str) -> bool:
    """Return whether the components of a method are filled on a GPU because the device is named."""
    return facts.coordinates and str(device).startswith("cuda")
