"""Transforms along the bands, which the paper leaves to later work, as families of T_g.

T_g must turn a scene into a plausible scene.  Three families nearly do so.  Each includes a quarter
turn, since a transform along the bands alone carries no gap that all bands share to a measured
place:

shifted-bands  moves the bands by a few, like a shift of wavelengths; the end band is repeated
scaled-bands   dims each band along a smooth curve, like a change of illumination.  It never
               brightens: the network cannot return values above 1
hidden-bands   T_g is the turn alone; a random subset of the bands of the turned cube is measured
               again, and the network must restore all bands

Two older, mixed families often draw implausible scenes: bands moved cyclically, scaled by up to a
fifth up or down, or set to 0 outside a random subset, in the target too.  A network that learns to
map 0 to 0 leaves gaps empty.

Parameters: (bands, quarter turns, kind, three numbers of that kind).
"""

from __future__ import annotations

from math import cos, exp, pi

import torch
from torch import Generator, Tensor

ALONE, TURNED = "spectral", "spectral-rotation"
SHIFTED, SCALED, HIDDEN = "shifted-bands", "scaled-bands", "hidden-bands"
SHIFT, SCALE, SUBSET, MOVE, DIM, HIDE = range(6)
KINDS = {  # kinds of transforms that each family draws
    ALONE: (SHIFT, SCALE, SUBSET),
    TURNED: (SHIFT, SCALE, SUBSET),
    SHIFTED: (MOVE,),
    SCALED: (DIM,),
    HIDDEN: (HIDE,),
}
NAMES = tuple(KINDS)
FARTHEST = {SHIFT: 16, MOVE: 64}  # a shift is at most the number of bands divided by this, or 1
STRONGEST = {SCALE: 0.2, DIM: 0.1}  # largest amplitude of a scaling, in the logarithm
LEAST = 0.5  # smallest share of the bands that a subset keeps

Parameters = tuple[float, ...]


def reaching(observed: Tensor, name: str) -> Tensor:
    """Mark entries that a transform along the bands, without its turn, carries to an observed one.

    A mask (H, W) is returned unchanged; in a mask (C, H, W) the bands within reach count.
    """
    if observed.ndim < 3 or name in (SCALED, HIDDEN):
        return observed
    if name != SHIFTED:
        return observed.any(-3, keepdim=True).expand_as(observed)
    bands = torch.arange(observed.shape[-3])
    far = _farthest(MOVE, len(bands))
    near = [(bands + by).clamp(0, len(bands) - 1) for by in range(-far, far + 1)]
    return torch.stack([observed.index_select(-3, i.to(observed.device)) for i in near]).any(0)


def draws(name: str, bands: int, rng: Generator, n: int) -> list[Parameters]:
    """Draw the parameters of n transforms of a family, for images with `bands` bands."""
    return [_draw(name, bands, rng) for _ in range(n)]


def _draw(name: str, bands: int, rng: Generator) -> Parameters:
    """Draw the parameters of one transform of a family."""
    turns = 0 if name == ALONE else _whole(rng, 1, 4)
    kinds = KINDS[name]
    kind = kinds[_whole(rng, 0, len(kinds))] if len(kinds) > 1 else kinds[0]
    if kind in FARTHEST:
        by = _whole(rng, 1, _farthest(kind, bands) + 1) * (1 if _whole(rng, 0, 2) else -1)
        return (bands, turns, kind, by, 0, 0)
    if kind in STRONGEST:
        strength = STRONGEST[kind] * (_share(rng) if kind == DIM else 2 * _share(rng) - 1)
        return (bands, turns, kind, strength, 0.5 + 1.5 * _share(rng), 2 * pi * _share(rng))
    return (bands, turns, kind, LEAST + (1 - LEAST) * _share(rng), _whole(rng, 0, 2**31), 0)


def _farthest(kind: int, bands: int) -> int:
    """Return the largest shift of a kind, in bands."""
    return max(bands // FARTHEST[kind], 1)


def along_bands(parameters: Parameters) -> tuple[Tensor, Tensor]:
    """(bands,) index of the band that each band comes from, and (bands,) factor of each band."""
    bands, kind = int(parameters[0]), int(parameters[2])
    amount, frequency, phase = parameters[3:]
    index, gain = torch.arange(bands), torch.ones(bands)
    if kind == SHIFT:
        return index.roll(int(amount)), gain
    if kind == MOVE:
        return (index - int(amount)).clamp(0, bands - 1), gain
    if kind in STRONGEST:
        places = (index / max(bands - 1, 1)).tolist()
        top = 1 if kind == DIM else 0  # subtracted from the curve, so that factors are at most 1
        return index, torch.tensor(
            [exp(amount * (cos(pi * frequency * u + phase) - top)) for u in places]
        )
    return index, gain * _subset(parameters) if kind == SUBSET else gain


def measured_bands(parameters: Parameters) -> Tensor:
    """(bands,) bool, True for the bands of a transformed image that are measured again."""
    if parameters[2] == HIDE:
        return _subset(parameters)
    return torch.ones(int(parameters[0]), dtype=torch.bool)


def _subset(parameters: Parameters) -> Tensor:
    """(bands,) bool: a random subset of at least one band, determined by the parameters."""
    bands, share, seed = int(parameters[0]), parameters[3], int(parameters[4])
    order = torch.randperm(bands, generator=torch.Generator().manual_seed(seed))
    subset = torch.zeros(bands, dtype=torch.bool)
    subset[order[: max(round(share * bands), 1)]] = True
    return subset


def inverse(parameters: Parameters) -> Parameters:
    """Return the parameters of the inverse transform.

    It is exact for scalings, and for shifts except for repeated end bands.  A subset of the bands
    is a projection, which is returned itself.
    """
    bands, turns, kind, first, second, third = parameters
    return (bands, -turns, kind, first if kind in (SUBSET, HIDE) else -first, second, third)


def applied(x: Tensor, parameters: Parameters) -> Tensor:
    """Transform x (..., bands, H, W) along the bands; a plane shared by all bands is unchanged."""
    if x.ndim < 3 or x.shape[-3] != parameters[0]:
        return x
    index, gain = (v.to(x.device) for v in along_bands(parameters))
    return x.index_select(x.ndim - 3, index) * gain.to(x.dtype).view(-1, 1, 1)


def _whole(rng: Generator, low: int, high: int) -> int:
    """Draw a whole number from low to high - 1."""
    return int(torch.randint(low, high, (), generator=rng, device=rng.device))


def _share(rng: Generator) -> float:
    """Draw a number from 0 to 1."""
    return float(torch.rand((), generator=rng, device=rng.device, dtype=torch.float64))
