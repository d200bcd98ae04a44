"""Transforms along the bands: what the paper leaves to later work, as a family of T_g.

A draw is one of three: the bands moved by a few, all around; each band scaled along a smooth curve,
as illumination and gain do; a random subset of the bands kept, the others 0.  Alone they carry no
gap to a measured place, unless bands differ in their gaps; so they come with a quarter turn, too.

Parameters: (bands, quarter turns, kind, three numbers of that kind).
"""

from __future__ import annotations

from math import cos, exp, pi

import torch
from torch import Generator, Tensor

ALONE, TURNED = "spectral", "spectral-rotation"
NAMES = (ALONE, TURNED)
SHIFT, SCALE, SUBSET = range(3)
FARTHEST = 16  # a shift is at most the bands over this
STRONGEST = 0.2  # of a scaling, in the logarithm
LEAST = 0.5  # share of the bands that a subset keeps

Parameters = tuple[float, ...]


def in_any_band(observed: Tensor) -> Tensor:
    """Which entries are measured in some band: (H, W) as it is, (C, H, W) over the bands."""
    if observed.ndim < 3:
        return observed
    return observed.any(-3, keepdim=True).expand_as(observed)


def draws(bands: int, rng: Generator, n: int, *, turned: bool) -> list[Parameters]:
    """Parameters of n transforms of images with so many bands."""
    return [_draw(bands, rng, turned) for _ in range(n)]


def _draw(bands: int, rng: Generator, turned: bool) -> Parameters:
    turns = _whole(rng, 1, 4) if turned else 0
    kind = _whole(rng, 0, 3)
    if kind == SHIFT:
        most = max(bands // FARTHEST, 1)
        by = _whole(rng, 1, most + 1) * (1 if _whole(rng, 0, 2) else -1)
        return (bands, turns, kind, by, 0, 0)
    if kind == SCALE:
        strength = STRONGEST * (2 * _share(rng) - 1)
        return (bands, turns, kind, strength, 0.5 + 1.5 * _share(rng), 2 * pi * _share(rng))
    return (bands, turns, kind, LEAST + (1 - LEAST) * _share(rng), _whole(rng, 0, 2**31), 0)


def along_bands(parameters: Parameters) -> tuple[Tensor, Tensor]:
    """(bands,) which band each comes from, and what it is multiplied with."""
    bands, kind = int(parameters[0]), int(parameters[2])
    one, two, three = parameters[3:]
    index, gain = torch.arange(bands), torch.ones(bands)
    if kind == SHIFT:
        return index.roll(int(one)), gain
    if kind == SCALE:
        places = (index / max(bands - 1, 1)).tolist()
        return index, torch.tensor([exp(one * cos(pi * two * u + three)) for u in places])
    order = torch.randperm(bands, generator=torch.Generator().manual_seed(int(two)))
    gain[order[max(round(one * bands), 1) :]] = 0
    return index, gain


def inverse(parameters: Parameters) -> Parameters:
    """Exact for shifts and scalings; a subset is a projection, and stands for itself."""
    bands, turns, kind, one, two, three = parameters
    return (bands, -turns, kind, one if kind == SUBSET else -one, two, three)


def applied(x: Tensor, parameters: Parameters) -> Tensor:
    """x (..., bands, H, W) without its turn; an image that all bands share stays as it is."""
    if x.ndim < 3 or x.shape[-3] != parameters[0]:
        return x
    index, gain = (v.to(x.device) for v in along_bands(parameters))
    return x.index_select(x.ndim - 3, index) * gain.to(x.dtype).view(-1, 1, 1)


def _whole(rng: Generator, low: int, high: int) -> int:
    return int(torch.randint(low, high, (), generator=rng, device=rng.device))


def _share(rng: Generator) -> float:
    return float(torch.rand((), generator=rng, device=rng.device, dtype=torch.float64))
